"""Published beside measured: intervals, marks, and what never shares a column."""

import math
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from contrastlab import methods, papers, tasks
from contrastlab.support.errors import ArgumentError, ContrastLabError, UnknownNameError
from contrastlab.tables import report, results
from contrastlab.tables.report import Unavailable
from made_runs import refused

PLAN = papers.plan("ring", 1)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
MACHINE = results.provenance("cpu")
RESULTS = Path(__file__).parents[1] / "results"


def result(
    method: str, seed: int, linear: float, *, dataset="cifar10", profile="paper", day=0, data="d", note="",
    items=10_000, precision="32-true", **settings,
) -> results.Result:  # fmt: skip
    now = NOW + timedelta(days=day)
    protocol = PLAN.settings(dataset, method, profile)
    recipe = methods.get(method).override(protocol.overrides)
    origin = results.Provenance(**MACHINE, data_fingerprint=data, data_note=note, started=now, finished=now, wall_s=1.0)
    return results.Result(
        table="ring/table1", dataset=dataset, method=method, seed=seed, profile=profile, task="linear",
        task_config=tasks.Linear.of(protocol).identity(), protocol={}, items=items, recipe=recipe.describe(),
        settings={**protocol.model_dump(mode="json"), **settings}, metrics={"linear": linear}, precision=precision,
        provenance=origin,
    )  # fmt: skip


def paper(stored: list[results.Result], **options) -> report.Report:
    return report.table(PLAN, stored, "cifar10", "paper", **options)


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


def test_paper_profile_has_published_measured_and_difference_and_counts_agreement() -> None:
    table = paper(FULL)
    frame = table.frame.set_index("row")
    assert frame.loc["IR", "published"] == 81.2
    assert frame.loc["IR", "measured (paper)"] == pytest.approx(244 / 3)
    assert frame.loc["IR", "measured − published"] == pytest.approx(244 / 3 - 81.2)
    assert frame.loc["IR", "seeds (paper)"] == 3
    assert frame.loc["IR", "by seed (paper)"] == "0:80.0 1:81.0 2:83.0"
    # the paired difference: 83.0 - 80.0, 83.5 - 81.0, 86.0 - 83.0
    gain = frame.loc["IRing − IR"]
    assert (gain["kind"], gain["by seed (paper)"]) == ("difference", "0:3.0 1:2.5 2:3.0")
    assert gain["measured (paper)"] == pytest.approx(8.5 / 3)
    assert table.banner == ""
    assert "− published" in table.texts
    assert any("no uncertainty" in line for line in table.legend)
    sentences = paper(FULL).summary
    assert any("inside our interval for 2 of 2 rows" in s for s in sentences)
    off = [*(result("ring/ir", s, 70.0 + s / 10) for s in range(3))]
    table = paper(off)
    assert any("Outside" in s and "IR (-11.1)" in s for s in table.summary)
    effect = next(s for s in sentences if s.startswith("IRing − IR"))
    assert "excludes 0" in effect


@pytest.mark.parametrize("profile", ["smoke", "laptop"])
def test_small_profiles_carry_a_banner_and_no_difference(profile: str) -> None:
    small = [result("ring/ir", 0, 20.0, profile=profile), result("ours/random", 0, 15.0, profile=profile)]
    table = report.table(PLAN, small, "cifar10", profile)
    for text in (table.markdown(), table.html()):
        assert "not " in table.banner
        assert table.banner.replace("<", "&lt;") in text.replace("&#x27;", "'")
        assert f"profile {profile}" in text
    assert "− published" not in table.texts
    assert not [c for c in table.frame if c == "published" or "− published" in c]
    assert table.banner in table.summary


def test_profiles_and_data_sets_never_mix() -> None:
    mixed = [*FULL, result("ring/ir", 7, 10.0, profile="smoke"), result("ring/ir", 8, 11.0, dataset="shapes")]
    assert paper(mixed).frame.equals(paper(FULL).frame)
    smoke = report.table(PLAN, mixed, "cifar10", "smoke")
    assert row(smoke, "IR").measured == report.Estimate(10.0, None, 1, tasks.metric("linear").half_width(10.0, 10_000))
    assert row(smoke, "IRing").status == "not run"
    measured = {c for c in smoke.frame if "(smoke)" in c}
    assert measured
    assert not measured & set(report.table(PLAN, mixed, "cifar10", "laptop").frame)


def test_gain_is_paired_over_common_seeds_of_the_same_data() -> None:
    table = paper([*FULL, result("ring/iring", 9, 10.0)])
    gain = row(table, "IRing − IR")
    expected = stats.ttest_rel([83.0, 83.5, 86.0], [80.0, 81.0, 83.0]).confidence_interval(0.95)
    assert gain.measured is not None
    assert gain.measured.seeds == 3
    assert gain.measured.mean - gain.measured.half_width == pytest.approx(expected.low)
    assert gain.measured.mean + gain.measured.half_width == pytest.approx(expected.high)
    assert gain.published == 2.7
    assert "+2.7" in table.markdown()
    assert row(table, "CMCRing − CMC").status == "not run"
    apart = paper([result("ring/ir", 0, 80.0), result("ring/iring", 1, 83.0)])
    assert row(apart, "IRing − IR").status == "n/a: no seed in common"
    other = paper([result("ring/ir", 0, 80.0), result("ring/iring", 0, 83, data="e")])
    assert row(other, "IRing − IR").measured is None
    assert "different data" in row(other, "IRing − IR").status


def test_one_row_of_one_seed_says_what_is_not_known() -> None:
    table = paper([result("ring/ir", 0, 85.0, note="JPEG, quality 75")])
    assert "85.00 (± 0.70)" in table.markdown()
    assert any("one seed has no interval" in line for line in table.legend)
    assert math.isnan(table.frame.set_index("row").loc["IR", "95 % half-width (paper)"])
    assert any("One seed only for every row" in s for s in table.summary)
    assert any("agreement is not judged" in s for s in table.summary)
    assert row(table, "IR").above_random is None
    assert any("random encoder has not been run" in s for s in table.summary)
    assert "JPEG, quality 75" in table.html()


@pytest.mark.parametrize(("linear", "above"), [(45.0, True), (41.3, False), (41.0, False), (30.0, False)])
def test_mark_against_the_random_encoder(linear: float, above: bool) -> None:
    table = paper([result("ours/random", 0, 41.0), result("ring/ir", 0, linear)])
    ir = row(table, "IR")
    assert ir.versus_random == pytest.approx(linear - 41)
    assert ir.above_random is above
    assert ("▲" if above else "▽") in next(x for x in table.markdown().splitlines() if "| IR |" in x)
    word = "Above the random encoder: IR" if above else "Not yet above the random encoder"
    assert any(s.startswith(word) for s in table.summary)
    assert row(table, "random encoder").above_random is None


def test_all_rows_stand_in_the_table_run_or_not() -> None:
    table = report.table(PLAN, [Unavailable("cmc", "grey images have no colours")], "shapes", "smoke")
    assert [r.label for r in table.rows] == [
        "IR", "IRing", "CMC", "CMCRing", "MoCo", "MoCoRing", "LA", "random encoder", "supervised, same encoder",
        "IRing − IR", "CMCRing − CMC", "MoCoRing − MoCo",
    ]  # fmt: skip
    assert row(table, "CMC").status == "n/a: grey images have no colours"
    assert row(table, "CMCRing − CMC").status == "n/a: grey images have no colours"
    assert row(table, "LA").status == "not run"
    sentences = table.summary
    assert "Not possible here: CMC (grey images have no colours)." in sentences
    assert table.markdown().count("grey images") == 1
    assert sentences[0] == "0 of 7 rows have a measured number."


def test_configurations_are_not_averaged_and_precisions_told_apart() -> None:
    old = result("ring/ir", 0, 10.0, day=-1, epochs=1)
    table = paper([old, *FULL])
    assert row(table, "IR").measured.mean == pytest.approx(244 / 3)
    assert "1 result(s) of an earlier configuration left out" in row(table, "IR").note
    alone = paper([old])
    assert "other settings than the protocol has now: epochs" in row(alone, "IR").note
    mixed = [result("ring/ir", 0, 80.0), result("ring/iring", 0, 83.0, precision="bf16-mixed")]
    table = paper(mixed)
    assert any("precision" in line and "bf16-mixed" in line for line in table.legend)
    assert "bf16-mixed against 32-true" in row(table, "IRing − IR").note
    assert not any("precision" in line for line in paper(FULL).legend)


def test_a_note_of_every_printed_number_stands_once_and_labels_with_a_comma_are_kept_apart() -> None:
    plan = papers.plan("fmicl", 8)
    table = report.table(plan, [], "cifar10", "paper")
    (note,) = {plan.published_note("cifar10", name) for name in plan.rows}
    assert note in table.caption
    assert not [r for r in table.rows if note in r.note]
    assert "two encoders" in row(paper([]), "CMC").note
    bold = row(report.table(papers.plan("fmicl", 2), [], "cifar10", "paper"), "KL")
    assert bold.note == "in bold in the paper"
    assert any("Not run: KL, α = 0.1; KL, α = 1; " in sentence for sentence in table.summary)


def test_origin_tells_seeds_days_code_machine_and_time() -> None:
    text = report.origin(FULL)
    assert text.startswith(f"{len(FULL)} results, seeds 0, 1, 2; {NOW.date().isoformat()}; code ")
    assert f"torch {FULL[0].provenance.versions.get('torch', '?')}" in text
    assert f"{len(FULL) / 3600:.1f} hours in all" in text
    later = report.origin([*FULL, result("ring/ir", 7, 80.0, day=2)])
    assert f"{NOW.date()} to {(NOW + timedelta(days=2)).date()}" in later


def test_html_and_markdown_escape() -> None:
    nasty = "<script>alert('x')</script> | a_b"
    table = report.table(PLAN, [Unavailable("ring/cmc", nasty)], "folder:/<b>&|", "smoke")
    html = table._repr_html_()
    assert "<script>" not in html
    assert "<b>" not in html
    assert "&lt;script&gt;" in html
    shown = result("ring/ir", 0, 1.0, dataset="shapes", profile="smoke").model_copy(update={"dataset": "folder:/<b>&|"})
    table = report.table(PLAN, [shown, Unavailable("ring/cmc", nasty)], "folder:/<b>&|", "smoke")
    lines = [line for line in table.markdown().splitlines() if line.startswith("|")]
    assert len(lines) == 3
    widths = {line.replace("\\|", "").count("|") for line in lines}
    assert len(widths) == 1
    assert "<script>" not in "".join(line.replace("\\<", "") for line in lines)
    assert '"' not in report.image(table.figure()).split('alt="')[1].split('" src=')[0]


def test_a_figure_draws_each_interval_and_published_numbers_only_in_the_papers_protocol() -> None:
    def diamonds(table: report.Report) -> int:
        return sum(line.get_marker() == "D" for line in table.figure().axes[0].lines)

    assert diamonds(paper(FULL)) == 2
    small = [result("ring/ir", 0, 20.0, profile="laptop"), result("ours/random", 0, 15.0, profile="laptop")]
    table = report.table(PLAN, small, "cifar10", "laptop")
    assert diamonds(table) == 0
    assert "IR 20.00 (±" in table.alt
    assert table.figure().get_label() == table.alt
    assert report.table(PLAN, [], "cifar10", "laptop").figure().axes[0].lines[:] == []
    table = paper(FULL)
    bars = [line for line in table.figure().axes[0].lines if len(line.get_xdata()) == 2 and line.get_linewidth() == 2]
    drawn = [r for r in table.rows if r.kind != "difference" and r.measured]
    assert len(bars) == len(drawn) == 3
    for bar, shown in zip(bars, drawn, strict=True):
        ((low, high),) = pairwise(bar.get_xdata())
        assert high - low == pytest.approx(2 * shown.measured.half_width)


def test_bad_names_and_results_and_rows_that_were_asked_for() -> None:
    cmcc = [Unavailable("cmcc", "x")]
    refused(
        (lambda: report.table(PLAN, cmcc, "digits", "smoke"), UnknownNameError, "did you mean cmc"),
        (lambda: paper([result("ring/ir", 0, 1.0), result("ring/ir", 1, 1.0, items=5)]), ArgumentError, "items="),
    )
    no_metric = result("ring/ir", 0, 1.0).model_copy(update={"metrics": {"linear5": 1.0}})
    assert row(paper([no_metric]), "IR").status == "not run"
    given = [result("ours/random", 0, 41.0), result("ring/ir", 0, 45.0)]
    table = paper([*given, Unavailable("cmc", "grey")])
    table.check("ir,cmc")
    with pytest.raises(ContrastLabError, match="ring/moco"):
        table.check("ir,moco")
    with pytest.raises(ContrastLabError, match="ours/random"):
        paper(given[1:]).check("ir")


def test_a_row_is_one_line_with_its_gain_and_the_decimals_of_the_paper() -> None:
    table = paper(FULL)
    assert len(table.texts) == 3  # two methods and the random encoder; rows that were not run are no lines
    line = table.texts.set_index("method").loc["IRing"]
    assert line["published"] == "83.9"
    assert line["published gain"] == "+2.7"
    assert line["against base"].startswith("+2.83 ± ")
    assert line["against random"] == "+43.2 ▲"
    assert table.html().count("<tr") == 1 + len(table.texts)
    assert "3 seeds a row." in table.legend
    text = str(paper(FULL))
    line = next(line for line in text.splitlines() if line.strip().startswith("IRing"))
    assert "83.9" in line
    assert "84.17 ± " in line
    assert "2 of 7 rows have a measured number." in text
    # fmicl Table 2 prints two decimals: 89.66 is 0.05 below 89.71, not 0.1
    two = {"IR": 89.71, "IRing": 89.66, "IRing − IR": -0.05}
    rows = tuple(replace(r, published=two.get(r.label)) for r in table.rows)
    line = replace(table, rows=rows).texts.set_index("method").loc["IRing"]
    assert (line["published"], line["published gain"]) == ("89.66", "−0.05")
    # a number that ends in 0 has as many as the others of its column
    rows = tuple(replace(r, published={"IR": 83.53, "IRing": 84.5}.get(r.label)) for r in table.rows)
    assert replace(table, rows=rows).texts.set_index("method").loc["IRing", "published"] == "84.50"


def test_of_two_seeds_both_numbers_are_shown() -> None:
    two = [r for r in FULL if r.seed < 2]
    table = paper(two)
    line = table.texts.set_index("method").loc["IRing"]
    assert line["measured"] == "83.25 (83.00 to 83.50)"
    assert line["against base"] == "+2.75 (+2.50 to +3.00)"
    assert "±" not in " ".join(table.texts["measured"])
    assert any(said.startswith("Of two seeds both") for said in table.legend)
    assert not any(said.startswith("± is") for said in table.legend)


def test_results_of_another_table_serve_where_the_protocol_is_the_same() -> None:
    elsewhere = [r.model_copy(update={"table": "ring/table9", "method": "other/name"}) for r in FULL]
    here, there = (paper(given).frame for given in (FULL, elsewhere))
    assert here.equals(there)
    # of another protocol they do not
    changed = [result("ring/ir", 0, 50.0, epochs=3).model_copy(update={"table": "ring/table9"})]
    assert row(paper(changed), "IR").status == "not run"


def test_a_metric_says_its_unit_range_direction_and_sampling_error(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = tasks.Metric(
        "linear", "time", unit="seconds", high=math.inf, higher_is_better=False, error="none", items="steps", gap="s"
    )
    monkeypatch.setattr(tasks, "metric", lambda name: seconds)
    table = paper([result("ours/random", 0, 300.0), result("ring/ir", 0, 200.0)])
    assert row(table, "IR").above_random is True  # fewer seconds are better
    assert row(table, "IR").measured.sampling is None
    assert "time (seconds)" in table.caption
    assert "percent" not in table.markdown()
    assert "200.00" in table.markdown()
    assert table.figure().axes[0].get_xlabel().startswith("time (seconds)")
    table.check("ir")
    ap = tasks.Metric("linear", "box AP", unit="AP", error="bootstrap", items="pictures")
    monkeypatch.setattr(tasks, "metric", lambda name: ap)
    one = result("ring/ir", 0, 20.0).model_copy(update={"half_widths": {"linear": 1.25}})
    assert "20.00 (± 1.25)" in paper([one]).markdown()


def test_sentences_have_one_untrained_encoder_that_is_not_called_random() -> None:
    plan = papers.plan("fmicl", 9)

    def floor(dataset: str) -> list[str]:
        made = report.table(plan, [], dataset, "laptop" if dataset == "wikisplit" else "smoke")
        return [r.label for r in made.rows if r.kind == "reference"]

    assert floor("wikisplit") == ["pretrained network as loaded", "supervised, same encoder"]
    # from scratch it is random
    assert floor("grammar")[0] == "random encoder"
    stored = results.find(RESULTS, dataset="wikisplit")
    made = report.table(plan, stored, "wikisplit", "laptop")
    assert "ours/random" in {r.method for r in made.rows if r.measured}
    assert "ours/random_lab" not in {r.method for r in made.rows}
    said = " ".join((made.text(), made.html(), *made.summary))
    assert "above the pretrained network as loaded" in said
    assert "against start" in made.texts
    assert "random" not in said
    assert "dashed line: pretrained" in made.figure().axes[0].get_title(loc="left")


def test_a_laptop_table_without_a_search_does_not_claim_one() -> None:
    stored = results.find(RESULTS)
    banner = {
        dataset: report.table(papers.plan(*plan), stored, dataset, "laptop").banner
        for plan, dataset in ((("cmc", 3), "rooms"), (("ring", "5c"), "fsdd"), (("fmicl", 9), "wikisplit"))
    }
    assert "settings chosen on held-out training items" in banner["rooms"]
    assert "settings chosen on held-out training items" in banner["fsdd"]
    assert "without a search" in banner["wikisplit"]
    assert "chosen" not in banner["wikisplit"]


def test_what_training_said_without_labels_is_the_mean_over_seeds_and_older_results_said_nothing() -> None:
    assert paper(FULL).training() == ""
    curves = [
        {"loss": 2.0 + s, "alignment": 0.5, "effective_rank": 4.0, **({"collapsed": 1.0} if s else {})} for s in (0, 1)
    ]
    said = [
        result("ring/ir", s, 80.0).model_copy(update={"curve": [{"loss": 9.0}, last]}) for s, last in enumerate(curves)
    ]
    head, line = paper([*said, *FULL[6:]]).training().splitlines()[-2:]
    assert head.split("  ")[0] == "method"
    assert " ".join(head.split()) == "method loss alignment effective rank collapsed"
    assert line.split() == ["IR", "2.50", "0.50", "4.00", "0.50"]


def test_columns_are_those_with_a_number_and_other_data_stand_beside_no_published_one() -> None:
    stored = results.find(RESULTS, dataset="rooms", profile="laptop")
    plan = papers.plan("cmc", 5)
    every = list(plan.select("rooms"))
    shown = report.columns(plan, stored, "rooms", "laptop")
    # pictures that are not at hand have no number, and stand first in the plan
    assert [each.name for each in shown] == every[1:]
    assert all(any(row.measured for row in each.rows) for each in shown)
    (empty,) = report.columns(plan, [], "rooms", "laptop")
    assert empty.name == every[0]
    stored = results.find(RESULTS, dataset="cifar10", profile="laptop")
    plan = papers.plan("cmc", 1)
    shown = report.columns(plan, stored, "cifar10", "laptop")
    assert [each.name for each in shown] == ["half", "one", "two", "half_top5", "one_top5", "two_top5"]
    for each in shown:
        assert all(row.published is None for row in each.rows)
        assert f"Data set cifar10, column {each.name}, profile" in each.caption
    own = report.table(plan, [], "imagenet", "paper", column="half")
    assert any(row.published is not None for row in own.rows)


def entry(name: str) -> papers.Entry:
    return next(e for e in papers.catalogue() if e.name == name)


def test_the_matrix_counts_rows_and_seeds() -> None:
    mine = results.find(RESULTS, table="ring/table1", dataset="plain_shapes", profile="first")
    found = [e for e in report.evidence(entry("ring/table1"), mine) if e.profile == "first"]
    methods = {r.method for r in mine} & set(papers.plan("ring", "1").rows)
    assert [(e.dataset, e.rows, e.of) for e in found] == [
        ("plain_shapes", len(methods), len(papers.plan("ring", "1").rows))
    ]
    assert found[0].seeds == max(len({r.seed for r in mine if r.method == m}) for m in methods)
    fewer = [r for r in mine if r.method != "ring/la"]
    assert report.evidence(entry("ring/table1"), fewer)[0].rows == len(methods) - 1


def test_shared_protocols_count_and_data_of_the_paper_say_more_than_more_rows() -> None:
    mine = [r for r in results.find(RESULTS) if r.table == "fmicl/table2" and r.task == "neighbours"]
    assert report.evidence(entry("fmicl/table10"), mine)
    assert report.evidence(entry("vince/table1"), mine) == ()
    mine = [r for r in results.find(RESULTS) if r.task == "transfer" and r.profile == "laptop"]
    few = [r for r in mine if r.dataset == "shapes" or r.method in ("ring/ir", "ring/iring")]
    best = report.best_first(report.evidence(entry("ring/table3"), few))
    assert [(each.dataset, each.rows, each.in_paper) for each in best] == [("cifar10", 2, True), ("shapes", 7, False)]
    one = [r for r in few if r.dataset == "shapes" or r.method == "ring/ir"]
    best = report.best_first(report.evidence(entry("ring/table3"), one))
    assert [(each.dataset, each.rows) for each in best] == [("shapes", 7), ("cifar10", 1)]  # one row compares nothing


def test_columns_of_a_table_are_one_table_and_a_smoke_run_marks_no_row() -> None:
    page = report.Reports((paper(FULL), replace(paper(FULL[:6]), name="other"))).html()
    assert re.findall("<th>(.*?)</th>", page) == ["", "cifar10", "other", "IR", "IRing", "random encoder", "IRing − IR"]
    assert re.search(r"<th>IR</th>\s*<td>81.33 ± 3.79 ▲</td>\s*<td>81.33 ± 3.79 ▲</td>", page)
    assert re.search(r"<th>IRing − IR</th>\s*<td>\+2.83 ± [\d.]+</td>\s*<td>–</td>", page)
    small = [result(name, 0, value, profile="smoke") for name, value in (("ring/ir", 50.0), ("ours/random", 15.0))]
    assert re.search(r"\+35\.0[^▲▽]*$", report.table(PLAN, small, "cifar10", "smoke").html())
