"""The matrix says of each published table what is stored, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

from contrastlab import papers, report, results

STORED = results.find([Path(__file__).parents[1] / "results"])


def entry(name: str) -> papers.Entry:
    return next(e for e in papers.catalogue() if e.name == name)


def test_rows_and_seeds_are_counted() -> None:
    mine = [r for r in STORED if r.table == "ring/table1" and (r.dataset, r.profile) == ("plain_shapes", "first")]
    found = [e for e in report.evidence(entry("ring/table1"), mine) if e.profile == "first"]
    methods = {r.method for r in mine} & set(papers.plan("ring", "1").methods)
    assert [(e.dataset, e.rows, e.of) for e in found] == [("plain_shapes", len(methods), 7)]
    assert found[0].seeds == max(len({r.seed for r in mine if r.method == m}) for m in methods)
    fewer = [r for r in mine if r.method != "ring/la"]
    assert report.evidence(entry("ring/table1"), fewer)[0].rows == len(methods) - 1


def test_runs_of_another_table_count_where_the_protocol_is_shared() -> None:
    mine = [r for r in STORED if r.table == "fmicl/table2" and r.task == "neighbours"]
    assert report.evidence(entry("fmicl/table10"), mine)
    assert report.evidence(entry("vince/table1"), mine) == ()


def test_data_of_the_paper_say_more_than_more_rows_of_other_data() -> None:
    mine = [r for r in STORED if r.task == "transfer" and r.profile == "laptop"]
    few = [r for r in mine if r.dataset == "shapes" or r.method == "ring/ir"]
    best = report.best_first(report.evidence(entry("ring/table3"), few))
    assert [(each.dataset, each.rows, each.printed) for each in best] == [("cifar10", 1, True), ("shapes", 7, False)]


def test_every_published_table_has_a_line_and_studies_are_named() -> None:
    page = report.matrix([], {"vince/table3": {"paper": "<11> studies"}})
    assert [re.sub("<[^>]+>", "", name) for name in re.findall(r'<th scope="row">(.*?)</th>', page)] == [
        e.name for e in papers.catalogue()
    ]
    assert "&lt;11&gt; studies" in page
    assert page.count('class="there"') == 1 + sum(bool(e.notebook) for e in papers.catalogue())
