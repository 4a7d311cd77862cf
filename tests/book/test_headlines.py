"""Sentences of the first screen of the results: which line each is about, and what it says."""

import gallery
import numpy as np
import pandas as pd
import pytest

from contrastbook.evidence import claims, headlines
from contrastbook.evidence.headlines import HEADLINES, Headline
from contrastlab.tables import report

RING = Headline("ring", "1", "ring/iring", "ring/ir", "a ring", "no ring")
LINE = {
    "paper": "ring", "table": "1", "method": "ring/iring", "base": "ring/ir", "dataset": "cifar10", "stands_for": "",
    "profile": "laptop", "verdict": "same sign", "unit": "points", "published": 2.7, "claimed_sign": 1,
    "gain": 1.24, "low": 0.81, "high": 1.67, "used": 8,
}  # fmt: skip


def test_every_headline_is_a_claim_of_a_paper_and_every_paper_has_one() -> None:
    frame = claims.frame([])
    known = set(zip(frame["paper"], frame["table"], frame["method"], frame["base"], strict=True))
    assert {(each.paper, each.table, each.method, each.base) for each in HEADLINES} <= known
    assert {each.paper for each in HEADLINES} == set(frame["paper"]) == set(gallery.NAMES)
    assert set(claims.PROFILES) <= set(report.PROFILES)


def test_own_data_come_first_then_a_verdict_then_the_profile_that_searched_furthest() -> None:
    def chosen(*changes: dict) -> dict:
        line = headlines.line_of(RING, pd.DataFrame([LINE | change for change in changes]))
        assert line is not None
        return line

    other = {"dataset": "rooms", "stands_for": "cifar10"}
    assert chosen(other, {"verdict": "open"})["dataset"] == "cifar10"
    assert chosen({"profile": "fair", "verdict": "open"}, {"profile": "laptop"})["profile"] == "laptop"
    assert chosen({"profile": "laptop"}, {"profile": "tuned"})["profile"] == "tuned"
    not_run = pd.DataFrame([LINE | {"gain": np.nan, "verdict": "not run"}])
    assert headlines.line_of(RING, not_run) is None
    assert headlines.sentence(RING, None) == "A ring against no ring: not run."


@pytest.mark.parametrize(("change", "said"), [
    ({}, "A ring beats no ring by 1.2 points (0.8 to 1.7), as published."),
    ({"verdict": "opposite sign", "gain": -1.24, "low": -1.67, "high": -0.81},
     "A ring loses to no ring by 1.2 points (0.8 to 1.7); the paper prints +2.7."),
    ({"verdict": "not of the published size"},
     "A ring against no ring: +1.2 points (+0.8 to +1.7); the paper prints +2.7."),
    ({"verdict": "no difference, as claimed", "claimed_sign": 0, "gain": 0.1, "low": -0.2, "high": 0.4},
     "A ring against no ring: +0.1 points (−0.2 to +0.4), as published."),
    ({"verdict": "open", "low": np.nan, "high": np.nan}, "A ring against no ring: +1.2 points; the paper prints +2.7."),
    ({"verdict": "difference where none is claimed", "claimed_sign": 0},
     "A ring beats no ring by 1.2 points (0.8 to 1.7); the paper claims no difference."),
    ({"verdict": "open", "low": -0.2, "published": np.nan, "claimed_sign": -1},
     "A ring against no ring: +1.2 points (−0.2 to +1.7); the paper says that it is behind."),
])  # fmt: skip
def test_a_sentence_says_the_difference_its_interval_and_what_the_paper_has(change: dict, said: str) -> None:
    assert headlines.sentence(RING, LINE | change) == said


def test_the_first_screen_names_the_data_the_seeds_and_the_profile_of_each_line() -> None:
    assert headlines.place(LINE) == "CIFAR-10, 8 seeds, profile laptop"
    page = gallery.findings(claims.frame([]))
    assert page.count("<dt>") == len(gallery.NAMES)
    assert page.count("Nothing is decided") == len(gallery.NAMES)
    assert page.count(": not run.") == len(HEADLINES)
