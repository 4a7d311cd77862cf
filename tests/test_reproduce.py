"""A cell of a table: run once, stored, read again; what cannot be says why."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from contrastlab import data, papers, reproduce, results
from contrastlab.data import Splits
from contrastlab.errors import ArgumentError, MissingDataError, NonFiniteLossError, UnknownNameError
from contrastlab.pretrain.learner import Learner
from contrastlab.report import Unavailable

PLAN = papers.plan("ring", 1)


@pytest.fixture
def few(monkeypatch, pictures) -> None:
    """Every data set is a few random pictures, grey ones where the real ones are grey."""

    def load(name: str, root=None) -> Splits:
        channels = 1 if name == "digits" else 3
        train, test = pictures(192, channels, 0), pictures(64, channels, 1)
        return Splits(name=name, pretrain=train, train=train, test=test, note="random pictures")

    monkeypatch.setattr(data, "load", load)
    monkeypatch.delenv("CONTRASTLAB_PROFILE", raising=False)


def run(method: str, out: Path, *, dataset: str = "shapes", **options):
    lines: list[str] = []
    options = {"seed": 0, "profile": "smoke", "read_also": (), "accelerator": "cpu", "log": lines.append, **options}
    return reproduce.cell(PLAN, dataset, method, out_dir=out, **options), lines


def forbid_training(monkeypatch) -> None:
    monkeypatch.setattr(reproduce, "pretrain", lambda *a, **k: pytest.fail("trained again"))


@pytest.mark.parametrize(
    ("given", "seeds"),
    [("0,1", (0, 1)), (" 2 , 0,2 ", (2, 0)), (3, (3,)), ("7", (7,)), ([1], (1,)), ((0, 1, 1), (0, 1)),
     (range(3), (0, 1, 2)), (["4", 5], (4, 5)), ("1,", (1,))],
)  # fmt: skip
def test_seeds_are_read_as_a_number_a_string_or_a_list(given, seeds) -> None:
    assert reproduce.parse_seeds(given) == seeds


@pytest.mark.parametrize("bad", ["a", "", "0,x", "1.5", -1, "0,-1", [], [None], None, 1.5, [[1]]])
def test_anything_else_is_no_seed(bad) -> None:
    with pytest.raises(ArgumentError, match="^seeds="):
        reproduce.parse_seeds(bad)


def test_auto_is_the_paper_with_a_gpu_and_laptop_without(monkeypatch) -> None:
    monkeypatch.delenv("CONTRASTLAB_PROFILE", raising=False)
    for gpu, expected in ((True, "paper"), (False, "laptop")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda answer=gpu: answer)
        assert reproduce.resolve_profile(PLAN, "auto") == expected
        assert reproduce.resolve_profile(PLAN, "smoke") == "smoke"
    with pytest.raises(UnknownNameError, match="profile 'lapptop'; did you mean laptop"):
        reproduce.resolve_profile(PLAN, "lapptop")


def test_a_cell_is_run_stored_and_then_read_without_training(few, tmp_path, monkeypatch) -> None:
    first, lines = run("iring", tmp_path)
    assert first.method == "ring/iring"
    assert set(first.metrics) >= {"linear", "knn200", "nn1", "loss"}
    assert all(0 <= first.metrics[m] <= 100 for m in ("linear", "knn200", "nn1"))
    assert len(first.curve) == first.settings["epochs"]
    assert (first.test_images, first.seed, first.profile, first.dataset) == (64, 0, "smoke", "shapes")
    assert first.settings == PLAN.settings("shapes", "iring", "smoke").model_dump(mode="json")
    assert first.provenance.data_note == "random pictures"
    assert any("linear" in line for line in lines)
    found = results.find(tmp_path, paper="ring", table="1", dataset="shapes", profile="smoke")
    assert found == [first]
    forbid_training(monkeypatch)
    again, lines = run("ring/iring", tmp_path)
    assert again == first
    assert len(lines) == 1
    assert "stored" in lines[0]
    read, _ = run("iring", tmp_path / "elsewhere", read_also=(tmp_path,))
    assert read == first


def test_a_stored_cell_of_other_data_settings_or_seed_is_not_this_one(few, tmp_path, monkeypatch, pictures) -> None:
    run("random", tmp_path)
    shapes = reproduce.fingerprint(data.load("shapes"))

    def there(dataset="shapes", seed=0, profile="smoke", data=shapes):
        return reproduce.stored(PLAN, dataset, "random", seed, profile, data=data, roots=(tmp_path,))

    assert there() is not None
    assert there(data="other") is None
    assert there(seed=1) is None
    assert there(profile="laptop") is None
    assert there(dataset="cifar10") is None
    splits = data.load("shapes")
    other = dataclasses.replace(splits, train=pictures(192, 3, 5))
    assert reproduce.fingerprint(other) != data


def test_without_resume_a_stored_cell_is_computed_anew(few, tmp_path, monkeypatch) -> None:
    first, _ = run("ir", tmp_path)
    calls: list[bool] = []
    train = reproduce.pretrain

    def count(*args, **options):
        calls.append(options["resume"])
        return train(*args, **options)

    monkeypatch.setattr(reproduce, "pretrain", count)
    again, _ = run("ir", tmp_path, resume=False)
    assert calls == [False]
    assert again.metrics == first.metrics


def test_a_cell_cut_off_is_resumed_to_the_same_numbers(few, tmp_path) -> None:
    whole, _ = run("moco", tmp_path / "whole")
    sittings = 0
    while True:
        try:
            pieces, lines = run("moco", tmp_path / "pieces", max_minutes=0)
            break
        except KeyboardInterrupt:
            sittings += 1
            assert results.find(tmp_path / "pieces") == []
    assert sittings > 1
    assert any("resume at" in line for line in lines)
    assert pieces.metrics == whole.metrics
    assert pieces.config_hash == whole.config_hash


def test_a_cell_that_diverges_stores_nothing(few, tmp_path, monkeypatch) -> None:
    loss = Learner.loss

    def spoilt(self, *args):
        out = loss(self, *args)
        return dataclasses.replace(out, loss=out.loss * float("nan"))

    monkeypatch.setattr(Learner, "loss", spoilt)
    with pytest.raises(NonFiniteLossError, match="step 0"):
        run("ir", tmp_path)
    assert results.find(tmp_path) == []
    assert list(tmp_path.rglob("*.pt")) == []


@pytest.mark.parametrize("method", ["cmc", "ring/cmcring"])
def test_a_colour_split_of_grey_images_is_unavailable_with_the_reason(method, few, tmp_path, monkeypatch) -> None:
    forbid_training(monkeypatch)
    done, _ = run(method, tmp_path, dataset="digits")
    assert isinstance(done, Unavailable)
    assert done.method == PLAN.resolve(method)
    assert "grey" in done.reason
    assert list(tmp_path.iterdir()) == []


def test_real_digits_run_at_smoke_size(tmp_path) -> None:
    done, _ = run("random", tmp_path, dataset="digits")
    assert 50 < done.metrics["linear"] <= 100
    assert done.curve == []


@pytest.mark.parametrize("given", ["ir, random", ["ir", "random"], ("ring/ir", "ours/random")])
def test_a_table_takes_methods_as_a_string_or_a_list(given, few, tmp_path, monkeypatch) -> None:
    asked: list[tuple[str, int]] = []
    cell = reproduce.cell

    def watch(plan, dataset, name, seed, profile, **options):
        asked.append((name, seed))
        return cell(plan, dataset, "random", seed, profile, **options)

    monkeypatch.setattr(reproduce, "cell", watch)
    reproduce.table(
        "ring", "1", "shapes", methods_=given, profile="smoke", seeds="0,1", references=False, out_dir=tmp_path,
        read_also=(), accelerator="cpu", log=lambda line: None,
    )  # fmt: skip
    assert asked == [("ring/ir", 0), ("ours/random", 0), ("ring/ir", 1), ("ours/random", 1)]


def test_a_table_of_grey_images_marks_the_rows_that_cannot_be(few, tmp_path) -> None:
    lines: list[str] = []
    shown = reproduce.table(
        "ring", 1, "digits", methods_="ir,cmc", profile="smoke", seeds=[0, 1], out_dir=tmp_path, read_also=(),
        accelerator="cpu", log=lines.append,
    )  # fmt: skip
    assert sum("[ring/cmc] n/a" in line for line in lines) == 1
    stored = {(r.method, r.seed) for r in results.find(tmp_path)}
    assert stored == {(m, s) for m in ("ring/ir", "ours/random", "ours/supervised") for s in (0, 1)}
    text = shown._repr_markdown_()
    assert "n/a" in text
    assert "grey" in text


def test_unknown_names_are_answered_with_near_ones(few, tmp_path) -> None:
    with pytest.raises(UnknownNameError, match="did you mean.*iring"):
        run("irimg", tmp_path)
    with pytest.raises(UnknownNameError, match="did you mean.*shapes"):
        run("ir", tmp_path, dataset="shape")
    with pytest.raises(UnknownNameError, match="did you mean.*smoke"):
        run("ir", tmp_path, profile="smok")
    with pytest.raises(ArgumentError, match="methods="):
        reproduce.table("ring", 1, "shapes", methods_=" , ", profile="smoke", out_dir=tmp_path)
    for target, near in (("ring/tabel1", "ring/table1"), ("rimg/table1", "ring/table1")):
        with pytest.raises(UnknownNameError, match=near):
            reproduce.parse_target(target)
    assert reproduce.parse_target("ring/table1") == ("ring", "1")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_data_set_says_where_it_was_looked_for(tmp_path, monkeypatch) -> None:
    with pytest.raises(MissingDataError, match=str(tmp_path / "none")):
        run("ir", tmp_path / "out", dataset=f"folder:{tmp_path / 'none'}")
    assert not (tmp_path / "out").exists()


def test_a_mistyped_notebook_parameter_is_refused_with_a_near_match() -> None:
    fine = {"In": [], "_i": "x", "dataset": "shapes", "seeds": "0", "profile": "smoke", "reproduce": reproduce}
    reproduce.check_parameters(fine)
    with pytest.raises(UnknownNameError, match="did you mean dataset"):
        reproduce.check_parameters({**fine, "datset": "cifar10"})
