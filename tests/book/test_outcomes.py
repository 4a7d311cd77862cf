"""What came of a table, in sentences: what was run, the verdicts on its claims, and numbers and names in words."""

from collections.abc import Sequence

import pandas as pd
import pytest

from contrastbook.evidence import claims, outcomes
from contrastlab.tables import report
from contrastlab.tables.report import Evidence, Report
from contrastlab.tables.results import Result
from test_report import FULL, PLAN, entry, result

RUN = Evidence("cifar10", "laptop", rows=6, of=7, seeds=8)
LINE = {
    "paper": "ring",
    "table": "1",
    "claim": "IRing − IR",
    "dataset": "cifar10",
    "on": "",
    "stands_for": "",
    "profile": "laptop",
    "search": "rates",
    "verdict": "open",
    "bound": None,
    "claimed_sign": 1,
    "above_untrained": True,
    "seeds": 16,
    "unit": "points",
}
NOT_SEARCHED = "settings not searched for both rows"


def measured(*stored: Result) -> Report:
    return report.table(PLAN, stored, "cifar10", "paper")


@pytest.mark.parametrize(
    ("verdict", "named", "sentence"),
    [
        ("same sign", ["a − b", "c − d"], "a − b and c − d have the published sign."),
        ("same sign", ["a", "b", "c", "d"], "Four have the published sign."),
        ("opposite sign, on rooms", ["a − b"], "a − b has the opposite sign on generated rooms."),
        (
            "difference where none is claimed",
            ["a − b", "a − b"],
            "a − b (2 columns) have a clear sign, where the paper claims no difference.",
        ),
        (
            "no gain of the published size: at most 0.5 points either way, on camvid",
            ["a − b"],
            "a − b: at most 0.5 points either way on CamVid, so no gain of the published size.",
        ),
        ("open", ["a"], "a is undecided: its interval contains 0."),
        ("open", ["a", "b"], "a and b are undecided: their intervals contain 0."),
        ("open", ["a", "b", "c", "d"], "Four are undecided: their intervals contain 0."),
        ("open (4 of 8 seeds)", ["a"], "a has 4 of the 8 seeds that a verdict needs."),
        ("open (4 of 8 seeds)", ["a", "b"], "a and b have 4 of the 8 seeds that a verdict needs."),
        (
            "open (clips cannot stand in)",
            ["a"],
            "a was run on drawn clips, which cannot stand in for the paper's data.",
        ),
        (
            f"open ({NOT_SEARCHED})",
            ["a", "b"],
            "a and b were run with settings that no search chose, which decides nothing.",
        ),
        (
            "open (a row is not above an untrained encoder)",
            ["a"],
            "a cannot be decided: a row is no better than an untrained encoder.",
        ),
    ],
)
def test_a_verdict_on_some_claims_is_a_sentence(verdict: str, named: list[str], sentence: str) -> None:
    assert outcomes.verdict_on(named, verdict) == sentence


def test_claims_of_one_verdict_share_a_sentence_and_what_is_decided_comes_first() -> None:
    changes: Sequence[dict[str, object]] = (
        {"claim": "a"},
        {"claim": "b", "verdict": "same sign"},
        {"claim": "c", "search": ""},
        {"claim": "d", "verdict": "same sign"},
        {"claim": "not run", "verdict": "not run"},
        {"claim": "of other data", "dataset": "stl10"},
        {"claim": "of another profile", "profile": "tuned"},
        {"claim": "of another table", "table": "2"},
    )
    lines = pd.DataFrame([LINE | change for change in changes])
    head, sentences = outcomes.of_table(entry("ring/table1"), RUN, [], lines)
    assert head == "We ran four of the claimed differences."
    assert sentences == [
        "b and d have the published sign.",
        "a is undecided: its interval contains 0.",
        "c was run with settings that no search chose, which decides nothing.",
    ]


def test_a_table_none_of_whose_claims_was_run_says_how_many_numbers_are_above_the_floor() -> None:
    below = result("ring/iring", 0, 30.0)
    of_rows = outcomes.rows_above_floor
    assert of_rows([measured(*FULL)]) == "Each of the 2 numbers is above the random encoder."
    assert of_rows([measured(*FULL[:6], below)]) == "1 of 2 numbers are above the random encoder."
    assert of_rows([measured(*FULL[:6])]) == "1 of 1 numbers are above the random encoder."
    assert of_rows([measured(*FULL[:6], result("ours/supervised", 0, 90.0))]) == of_rows([measured(*FULL[:6])])
    assert of_rows([measured(*FULL[:3])]) == "No claimed difference was run."

    not_run = claims.frame([], [PLAN])
    outcome = outcomes.of_table(entry("ring/table1"), RUN, [measured(*FULL)], not_run)
    assert outcome == ("Each of the 2 numbers is above the random encoder.", [])


def test_what_was_run_is_said_with_data_profile_and_seeds() -> None:
    one = Evidence("cifar10", "laptop", rows=1, of=7, seeds=1)
    assert outcomes.what_was_run(RUN) == "We ran 6 of its 7 rows on CIFAR-10 with profile laptop, with up to 8 seeds."
    assert outcomes.what_was_run(one) == "We ran 1 of its 7 rows on CIFAR-10 with profile laptop, with one seed."
    assert outcomes.run_in_short(RUN) == "6 of 7 rows, 8 seeds, laptop, CIFAR-10"
    assert outcomes.run_in_short(one) == "1 of 7 rows, 1 seed, laptop, CIFAR-10"


def test_verdicts_are_counted_the_most_frequent_first_and_what_is_open_last() -> None:
    verdicts = ["open", "not run", "opposite sign", "same sign", "open", "same sign", "open", "not run"]
    counts = outcomes.verdict_counts(pd.DataFrame({"verdict": verdicts}))
    assert list(counts.items()) == [("same sign", 2), ("opposite sign", 1), ("open", 3)]


def test_numbers_and_names_stand_in_words() -> None:
    numbers = [outcomes.number_in_words(count) for count in (0, 1, 12, 13)]
    assert numbers == ["none", "one", "twelve", "13"]
    assert outcomes.enumeration(["a"]) == "a"
    assert outcomes.enumeration(["a", "b", "a", "c"]) == "a (2 columns), b and c"


def test_several_tables_are_named_as_their_paper_counts_them() -> None:
    assert outcomes.heading([entry("ring/table1")]) == "Table 1"
    assert outcomes.heading(map(entry, ("ring/table1", "ring/table2", "ring/table3"))) == "Tables 1, 2 and 3"
    assert outcomes.heading(map(entry, ("vince/figure6", "vince/table3"))) == "Table 3 and Figure 6"
