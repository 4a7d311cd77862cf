"""Published beside measured: intervals, marks, and what never shares a column."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from contrastlab import papers, report, results
from contrastlab.errors import ArgumentError, UnknownNameError
from contrastlab.report import Unavailable

PLAN = papers.plan("ring", 1)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
MACHINE = results.provenance("cpu")


def result(
    method: str, seed: int, linear: float, *, dataset="cifar10", profile="paper", day=0, data="d", note="",
    test_images=10_000, **settings,
) -> results.Result:  # fmt: skip
    now = NOW + timedelta(days=day)
    return results.Result(
        paper="ring",
        table="1",
        dataset=dataset,
        method=method,
        seed=seed,
        profile=profile,
        protocol={},
        test_images=test_images,
        settings={**PLAN.settings(dataset, method, profile).model_dump(mode="json"), **settings},
        recipe={"name": method},
        metrics={"linear": linear},
        provenance=results.Provenance(
            **MACHINE, data_fingerprint=data, data_note=note, started=now, finished=now, wall_s=1.0
        ),
    )


def row(table: report.Report, label: str) -> report.Row:
    return next(r for r in table.rows if r.label == label)


FULL = [
    *(result("ours/random", s, v) for s, v in enumerate((40.0, 41.0, 42.0))),
    *(result("ring/ir", s, v) for s, v in enumerate((80.0, 81.0, 83.0))),
    *(result("ring/iring", s, v) for s, v in enumerate((83.0, 83.5, 86.0))),
]


def test_interval_is_students() -> None:
    values = [80.0, 81.0, 83.0]
    mean, half = report.interval(values)
    low, high = stats.t.interval(0.95, 2, loc=np.mean(values), scale=stats.sem(values))
    assert (mean - half, mean + half) == pytest.approx((low, high), rel=1e-12)
    t = 0.95 * math.sqrt(2 / (4 * 0.975 * 0.025))  # closed form of the quantile at two degrees of freedom
    assert half == pytest.approx(t * math.sqrt(7 / 3) / math.sqrt(3), rel=1e-9)
    assert report.interval([3.0]) == (3.0, None)
    with pytest.raises(ArgumentError, match="values="):
        report.interval([])


def test_binomial_half_width() -> None:
    assert report.binomial_half_width(85, 10_000) == pytest.approx(0.70, abs=0.005)
    assert report.binomial_half_width(90, 10_000) == pytest.approx(0.59, abs=0.005)
    with pytest.raises(ArgumentError, match="percent="):
        report.binomial_half_width(101, 10)
    with pytest.raises(ArgumentError, match="images="):
        report.binomial_half_width(50, 0)


def test_paper_profile_has_published_measured_and_difference() -> None:
    table = report.table(PLAN, FULL, "cifar10", "paper")
    frame = table.frame.set_index("row")
    assert frame.loc["IR", "published"] == 81.2
    assert frame.loc["IR", "measured (paper)"] == pytest.approx(244 / 3)
    assert frame.loc["IR", "measured − published"] == pytest.approx(244 / 3 - 81.2)
    assert frame.loc["IR", "seeds (paper)"] == 3
    assert table.banner == ""
    assert "measured − published" in table.markdown()
    assert "no uncertainty" in table.legend


@pytest.mark.parametrize("profile", ["smoke", "laptop"])
def test_small_profiles_carry_a_banner_and_no_difference(profile: str) -> None:
    small = [result("ring/ir", 0, 20.0, profile=profile), result("ours/random", 0, 15.0, profile=profile)]
    table = report.table(PLAN, small, "cifar10", profile)
    for text in (table.markdown(), table.html()):
        assert "not " in table.banner
        assert table.banner.replace("<", "&lt;") in text.replace("&#x27;", "'")
        assert "measured − published" not in text
        assert "published (paper protocol)" in text
        assert f"profile {profile}" in text
    assert not [c for c in table.frame if c == "published" or "− published" in c]
    assert table.banner in report.summary_sentences(table)


def test_profiles_and_data_sets_never_mix() -> None:
    mixed = [*FULL, result("ring/ir", 7, 10.0, profile="smoke"), result("ring/ir", 8, 11.0, dataset="shapes")]
    assert report.table(PLAN, mixed, "cifar10", "paper").frame.equals(
        report.table(PLAN, FULL, "cifar10", "paper").frame
    )
    smoke = report.table(PLAN, mixed, "cifar10", "smoke")
    assert row(smoke, "IR").measured == report.Estimate(10.0, None, 1, report.binomial_half_width(10.0, 10_000))
    assert row(smoke, "IRing").status == "not run"
    measured = {c for c in smoke.frame if "(smoke)" in c}
    assert measured
    assert not measured & set(report.table(PLAN, mixed, "cifar10", "laptop").frame)


def test_gain_is_paired_over_common_seeds() -> None:
    table = report.table(PLAN, [*FULL, result("ring/iring", 9, 10.0)], "cifar10", "paper")
    gain = row(table, "IRing − IR")
    expected = stats.ttest_rel([83.0, 83.5, 86.0], [80.0, 81.0, 83.0]).confidence_interval(0.95)
    assert gain.measured is not None
    assert gain.measured.seeds == 3
    assert gain.measured.mean - gain.measured.half_width == pytest.approx(expected.low)
    assert gain.measured.mean + gain.measured.half_width == pytest.approx(expected.high)
    assert gain.published == 2.7
    assert "+2.7" in table.markdown()
    assert row(table, "CMCRing − CMC").status == "not run"


def test_gain_needs_common_seeds_and_the_same_data() -> None:
    apart = report.table(PLAN, [result("ring/ir", 0, 80.0), result("ring/iring", 1, 83.0)], "cifar10", "paper")
    assert row(apart, "IRing − IR").status == "n/a: no seed in common"
    other = report.table(PLAN, [result("ring/ir", 0, 80.0), result("ring/iring", 0, 83, data="e")], "cifar10", "paper")
    assert row(other, "IRing − IR").measured is None
    assert "different data" in row(other, "IRing − IR").status


def test_one_seed_has_no_interval_and_says_so() -> None:
    table = report.table(PLAN, [result("ring/ir", 0, 85.0)], "cifar10", "paper")
    assert "85.00 (1 seed, no interval; test set ± 0.70)" in table.markdown()
    assert math.isnan(table.frame.set_index("row").loc["IR", "95 % half-width (paper)"])
    assert any("One seed only for IR" in s for s in report.summary_sentences(table))
    assert any("agreement is not judged" in s for s in report.summary_sentences(table))


def test_labels_with_a_comma_are_kept_apart() -> None:
    plan = papers.plan("fmicl", 8)
    sentences = report.summary_sentences(report.table(plan, [], "cifar10", "paper"))
    assert any("Not run: KL, α = 0.1; KL, α = 1; " in sentence for sentence in sentences)


@pytest.mark.parametrize(("linear", "above"), [(45.0, True), (41.3, False), (41.0, False), (30.0, False)])
def test_mark_against_the_random_encoder(linear: float, above: bool) -> None:
    table = report.table(PLAN, [result("ours/random", 0, 41.0), result("ring/ir", 0, linear)], "cifar10", "paper")
    ir = row(table, "IR")
    assert ir.versus_random == pytest.approx(linear - 41)
    assert ir.above_random is above
    assert ("▲" if above else "▽ not above random") in next(x for x in table.markdown().splitlines() if "| IR |" in x)
    word = "Above the random encoder: IR" if above else "Not yet above the random encoder"
    assert any(s.startswith(word) for s in report.summary_sentences(table))
    assert row(table, "random encoder").above_random is None


def test_without_a_random_encoder_nothing_is_claimed() -> None:
    table = report.table(PLAN, [result("ring/ir", 0, 80.0)], "cifar10", "paper")
    assert row(table, "IR").above_random is None
    assert any("random encoder has not been run" in s for s in report.summary_sentences(table))


def test_all_rows_stand_in_the_table_run_or_not() -> None:
    table = report.table(PLAN, [], "shapes", "smoke", unavailable=[Unavailable("cmc", "grey images have no colours")])
    assert [r.label for r in table.rows] == [
        "IR", "IRing", "CMC", "CMCRing", "MoCo", "MoCoRing", "LA", "random encoder", "supervised, same encoder",
        "IRing − IR", "CMCRing − CMC", "MoCoRing − MoCo",
    ]  # fmt: skip
    assert row(table, "CMC").status == "n/a: grey images have no colours"
    assert row(table, "CMCRing − CMC").status == "n/a: grey images have no colours"
    assert row(table, "LA").status == "not run"
    assert "n/a: grey images" in table.markdown()
    sentences = report.summary_sentences(table)
    assert "Not possible here: CMC." in sentences
    assert sentences[0] == "0 of 7 rows have a measured number."


def test_configurations_are_not_averaged() -> None:
    old = result("ring/ir", 0, 10.0, day=-1, epochs=1)
    table = report.table(PLAN, [old, *FULL], "cifar10", "paper")
    assert row(table, "IR").measured.mean == pytest.approx(244 / 3)
    assert "1 result(s) of an earlier configuration left out" in row(table, "IR").note
    alone = report.table(PLAN, [old], "cifar10", "paper")
    assert "other settings than the protocol has now: epochs" in row(alone, "IR").note


def test_the_datas_own_note_reaches_the_reader() -> None:
    table = report.table(PLAN, [result("ring/ir", 0, 80.0, note="JPEG, quality 75")], "cifar10", "paper")
    assert "JPEG, quality 75" in table.html()


def test_a_note_of_every_printed_number_stands_once() -> None:
    plan = papers.plan("fmicl", 8)
    table = report.table(plan, [], "cifar10", "paper")
    (note,) = {plan.published_note("cifar10", name) for name in plan.methods}
    assert note in table.caption
    assert not [r for r in table.rows if note in r.note]
    assert "two encoders" in row(report.table(PLAN, [], "cifar10", "paper"), "CMC").note
    bold = row(report.table(papers.plan("fmicl", 2), [], "cifar10", "paper"), "KL")
    assert bold.note == "in bold in the paper"


def test_origin_tells_seeds_days_code_machine_and_time() -> None:
    text = report.origin(FULL)
    assert text.startswith(f"{len(FULL)} runs, seeds 0, 1, 2; {NOW.date().isoformat()}; code ")
    assert f"torch {FULL[0].provenance.versions.get('torch', '?')}" in text
    assert f"{len(FULL) / 3600:.1f} hours in all" in text
    later = report.origin([*FULL, result("ring/ir", 7, 80.0, day=2)])
    assert f"{NOW.date()} to {(NOW + timedelta(days=2)).date()}" in later
    with pytest.raises(ArgumentError, match="results="):
        report.origin([])


def test_agreement_with_the_paper_is_counted() -> None:
    sentences = report.summary_sentences(report.table(PLAN, FULL, "cifar10", "paper"))
    assert any("inside our interval for 2 of 2 rows" in s for s in sentences)
    off = [*(result("ring/ir", s, 70.0 + s / 10) for s in range(3))]
    assert any("Outside" in s and "IR (-11.1)" in s for s in report.summary_sentences(
        report.table(PLAN, off, "cifar10", "paper")))  # fmt: skip
    effect = next(s for s in sentences if s.startswith("IRing − IR"))
    assert "excludes 0" in effect


def test_html_and_markdown_escape() -> None:
    nasty = "<script>alert('x')</script> | a_b"
    table = report.table(PLAN, [], "folder:/<b>&|", "smoke", unavailable=[Unavailable("ring/cmc", nasty)])
    html = table._repr_html_()
    assert "<script>" not in html
    assert "<b>" not in html
    assert "&lt;script&gt;" in html
    lines = [line for line in table.markdown().splitlines() if line.startswith("|")]
    widths = {line.replace("\\|", "").count("|") for line in lines}
    assert len(widths) == 1
    assert "<script>" not in "".join(line.replace("\\<", "") for line in lines)
    assert '"' not in table.figure_html().split('alt="')[1].split('" src=')[0]


def test_figure_shows_published_only_in_the_papers_protocol() -> None:
    def diamonds(table: report.Report) -> int:
        return sum(line.get_marker() == "D" for line in table.figure().axes[0].lines)

    assert diamonds(report.table(PLAN, FULL, "cifar10", "paper")) == 2
    small = [result("ring/ir", 0, 20.0, profile="laptop"), result("ours/random", 0, 15.0, profile="laptop")]
    table = report.table(PLAN, small, "cifar10", "laptop")
    assert diamonds(table) == 0
    assert "IR 20.00 (1 seed" in table.alt
    assert table.figure().get_label() == table.alt
    assert report.table(PLAN, [], "cifar10", "laptop").figure().axes[0].lines[:] == []


def test_figure_draws_each_interval() -> None:
    table = report.table(PLAN, FULL, "cifar10", "paper")
    bars = [line for line in table.figure().axes[0].lines if len(line.get_xdata()) == 2 and line.get_linewidth() == 2]
    drawn = [r for r in table.rows if r.kind != "difference" and r.measured]
    assert len(bars) == len(drawn) == 3
    for bar, shown in zip(bars, drawn, strict=True):
        ((low, high),) = pairwise(bar.get_xdata())
        assert high - low == pytest.approx(2 * shown.measured.half_width)


def test_bad_names_and_results() -> None:
    with pytest.raises(UnknownNameError, match="laptop"):
        report.table(PLAN, [], "cifar10", "laptp")
    with pytest.raises(UnknownNameError, match="cifar10"):
        report.table(PLAN, [], "cifar11", "smoke")
    with pytest.raises(UnknownNameError, match="did you mean cmc"):
        report.table(PLAN, [], "digits", "smoke", unavailable=[Unavailable("cmcc", "x")])
    no_metric = result("ring/ir", 0, 1.0).model_copy(update={"metrics": {"nn1": 1.0}})
    with pytest.raises(ArgumentError, match="metric 'linear'"):
        report.table(PLAN, [no_metric], "cifar10", "paper")
    with pytest.raises(ArgumentError, match="test_images="):
        report.table(PLAN, [result("ring/ir", 0, 1.0), result("ring/ir", 1, 1.0, test_images=5)], "cifar10", "paper")


def test_str_is_what_a_terminal_shows() -> None:
    text = str(report.table(PLAN, FULL, "cifar10", "paper"))
    assert "| IRing |" in text
    assert "- 2 of 7 rows have a measured number." in text


def timed(method: str, seed: int, seconds: list[float], day: int = 0, machine: str = "a", **settings) -> results.Result:
    run = result(method, seed, 50.0, profile="laptop", day=day, **settings)
    curve = [{"epoch": i + 1.0, "seconds": s} for i, s in enumerate(np.cumsum(seconds).tolist())]
    where = run.provenance.model_copy(update={"cpu": machine, "threads": 1})
    return run.model_copy(update={"curve": curve, "provenance": where})


def test_epoch_cost_pairs_seeds_and_stands_beside_the_printed_ratio() -> None:
    found = [
        timed("ring/ir", 0, [2.0, 1.0]), timed("ring/ir", 1, [1.0, 3.0]),
        timed("ring/iring", 0, [3.0, 1.5]), timed("ring/iring", 1, [2.5, 2.5]), timed("ring/iring", 2, [9.0, 9.0]),
        timed("ring/iring", 0, [70.0], day=-1, epochs=1), result("ring/moco", 0, 1.0, profile="laptop"),
    ]  # fmt: skip
    cost = report.epoch_cost(PLAN, found, "cifar10", "laptop")
    assert list(cost.index) == ["IR", "IRing", "MoCo", "MoCoRing"]
    iring = cost.loc["IRing"]
    printed = papers.published("ring", "5a").set_index(["row", "column"])["value"]
    for column in ("CIFAR10 epoch seconds", "ImageNet epoch minutes"):
        expected = printed["IRing", column] / printed["IR", column]
        assert iring[f"published ratio, {column.split()[0]}"] == pytest.approx(expected)
    assert iring["seconds an epoch (laptop)"] == pytest.approx(27.5 / 6)
    assert iring["sd over epochs (laptop)"] == pytest.approx(np.std([3, 1.5, 2.5, 2.5, 9, 9], ddof=1))
    assert iring["fastest epoch (laptop)"] == pytest.approx(1.5)
    assert (iring["epochs (laptop)"], iring["seeds (laptop)"]) == (6, 3)
    # seed 2 has no base; 2.25/1.5 and 2.5/2
    mean, half = report.interval([1.5, 1.25])
    assert iring["ratio (laptop)"] == pytest.approx(mean)
    assert iring["95 % half-width (laptop)"] == pytest.approx(half)
    assert iring["ratio of fastest epochs (laptop)"] == pytest.approx(1.5)
    assert iring["machine"] == "a, 1 thread"
    assert math.isnan(cost.loc["IR", "ratio (laptop)"])
    assert math.isnan(cost.loc["IR", "published ratio, CIFAR10"])
    assert math.isnan(cost.loc["MoCo", "seconds an epoch (laptop)"])  # stored without a curve
    assert cost.loc["MoCo", "epochs (laptop)"] == 0


def test_epoch_cost_compares_no_two_machines_and_no_two_settings() -> None:
    base = timed("ring/ir", 0, [1.0, 1.0])
    for other in (timed("ring/iring", 0, [2.0, 2.0], machine="b"), timed("ring/iring", 0, [2.0, 2.0], batch_size=7)):
        cost = report.epoch_cost(PLAN, [base, other], "cifar10", "laptop")
        assert cost.loc["IRing", "seconds an epoch (laptop)"] == pytest.approx(2)
        assert cost.loc["IRing", ["ratio (laptop)", "ratio of fastest epochs (laptop)"]].isna().all()
    one = report.epoch_cost(PLAN, [base, timed("ring/iring", 0, [2.0])], "cifar10", "laptop").loc["IRing"]
    assert one["ratio (laptop)"] == pytest.approx(2)
    assert one[["95 % half-width (laptop)", "sd over epochs (laptop)"]].isna().all()
    with pytest.raises(UnknownNameError, match="laptop"):
        report.epoch_cost(PLAN, [], "cifar10", "laptp")
