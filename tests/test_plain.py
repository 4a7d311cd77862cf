"""A run of contrastlab and a plain script of the same SimCLR end with about the same loss."""

import json

import plain
import pytest


@pytest.mark.nightly
def test_a_run_and_a_plain_script_reach_about_the_same_loss(tmp_path):
    out = tmp_path / "plain.json"
    plain.main(["--dataset", "shapes", "--images", "512", "--epochs", "3", "--seeds", "1", "--out", str(out)])
    ours, script = json.loads(out.read_text(encoding="utf-8"))["runs"]
    assert (ours["who"], script["who"]) == ("contrastlab", "plain")
    assert ours["loss"] == pytest.approx(script["loss"], abs=0.1)
    assert ours["loss"] < 6.1  # log 511 = 6.24 where nothing is learnt
