"""Kernels and bytes of a step are counted as by hand, and grow only where somebody means it."""

from typing import Any

import cost
import counts
import pytest
import torch

GROWTH = 1.05


STANDS_FOR_A_KIND = set(counts.COUNTED.values())


@pytest.mark.parametrize("name", [
    name if name in STANDS_FOR_A_KIND else pytest.param(name, marks=pytest.mark.nightly) for name in counts.CASES
])  # fmt: skip
def test_a_step_starts_no_more_kernels_and_moves_no_more_bytes_than_stored(name: str) -> None:
    # if it should, and where it has fallen, python benchmarks/counts.py stores the new counts
    stored, found = counts.stored()[name], counts.count(counts.CASES[name])
    grown = {
        f"{unit} of {phase}": (stored.get(phase, {}).get(unit, 0), number)
        for phase, numbers in found.items()
        for unit, number in numbers.items()
        if number > GROWTH * stored.get(phase, {}).get(unit, 0)
    }
    assert not grown
    assert stored.keys() == found.keys()


def test_every_case_is_stored() -> None:
    assert counts.stored().keys() == counts.CASES.keys()


X, LINE = torch.empty(8, 100, device="meta"), torch.empty(100, device="meta")
ROWS = torch.empty(8, 10, dtype=torch.int64, device="meta")
BYTES: dict[str, tuple[Any, int]] = {
    "add": (lambda: X + X, 3 * 3200),
    "of a row that is expanded": (lambda: X + LINE.expand(8, 100), 2 * 3200 + 400),
    "topk": (lambda: X.topk(5), 6 * 3200 + 8 * 5 * (4 + 8)),
    "gather": (lambda: X.gather(1, ROWS), 8 * 10 * (4 + 4 + 8)),
    "rows": (lambda: X.index_select(0, ROWS[0]), 2 * 10 * 400 + 80),
    "rows written": (lambda: X.index_copy_(0, ROWS[0, :2], X[:2]), 2 * (800 + 16)),
    "a sum": (lambda: X.sum(), 3200 + 4),
}


@pytest.mark.parametrize("name", BYTES)
def test_bytes_of_an_operation_are_what_it_reads_and_writes(name: str) -> None:
    operation, expected = BYTES[name]
    with counts.Traffic() as traffic:
        operation()
    assert traffic.kernels["views"] == 1
    assert traffic.bytes["views"] == pytest.approx(expected, rel=0.01)


def test_views_of_memory_are_no_kernels() -> None:
    with counts.Traffic() as traffic:
        X.view(80, 10).T[3:].unsqueeze(0).expand(5, -1, -1).detach()
    assert not traffic.kernels


def test_passes_are_those_that_give_the_counted_bytes() -> None:
    passes = counts.passes()
    assert passes.keys() == {*cost.KINDS, "views"}
    name = counts.COUNTED["region"]
    recipe, settings = counts.CASES[name].recipe_and_settings()
    work = cost.work(recipe, settings, counts.CASES[name].images)
    assert work.kind == "region"
    stored = counts.stored()[name]
    in_all = stored["objective"]["bytes"] + stored["backward of the objective"]["bytes"]
    assert 4 * work.scores * passes["region"].value + work.drawn_bytes == pytest.approx(in_all)
    for kind, case in counts.COUNTED.items():
        recipe, settings = counts.CASES[case].recipe_and_settings()
        assert kind in (cost.work(recipe, settings, counts.CASES[case].images).kind, "views")
