"""The benchmarks' own machinery: unequal values fail, ratios and bars are computed right, the page's file is whole."""

import ast
import json
from pathlib import Path
from typing import Any

import harness
import outside
import pytest
import report
import torch

from contrastlab.information.toys import JointGaussian

FOLDER = Path(__file__).parents[1] / "benchmarks"


def way(name: str, median: float, *, peer: bool = False, peak: float | None = 1.0) -> dict[str, Any]:
    return {
        "name": name, "peer": peer, "equal": True, "peak_mb": peak, "rounds": 3,
        "cpu_ms": {"median": median, "min": median}, "wall_ms": {"median": median, "min": median},
    }  # fmt: skip


ROW = {
    "id": "task", "group": "g", "title": "Task", "note": "",
    "ways": [
        way("ours", 10.0, peak=50.0), way("sort", 40.0), way("slow", 30.0, peer=True), way("quick", 20.0, peer=True),
        {"name": "absent"},
    ],
}  # fmt: skip


@pytest.mark.parametrize(("bar", "value", "holds"), [
    ({"against": "sort", "faster": 4.0}, 4.0, True),
    ({"against": "sort", "faster": 4.1}, 4.0, False),
    ({"against": "sort", "slower": 0.2}, 0.25, False),
    ({"against": report.PEERS, "slower": 0.5}, 0.5, True),
    ({"against": "absent", "faster": 1.0}, None, None),
    ({"against": "nobody", "faster": 1.0}, None, None),
    ({"peak_mb": 50}, 50.0, True),
    ({"peak_mb": 49}, 50.0, False),
])  # fmt: skip
def test_a_bar_is_judged(bar: dict[str, Any], value: float | None, holds: bool | None) -> None:
    found = report.verdict({"what": "w", "row": "task", **bar}, [ROW])
    assert (found["value"], found["holds"]) == (value, holds)


def test_a_missed_bar_is_an_error_and_one_that_was_not_measured_is_none() -> None:
    verdicts = [{"what": str(holds), "holds": holds} for holds in (True, False, None)]
    assert report.missed(verdicts) == ["False"]
    assert report.missed(verdicts[::2]) == []


def test_rows_that_ran_alone_replace_those_of_an_earlier_run_and_say_where_they_are_from() -> None:
    earlier = {"rows": [{**ROW, "id": name} for name in ("one", "moco", "two")]}
    again = {**ROW, "id": "moco", "ways": [way("ours", 5.0)]}
    new = {**ROW, "id": "from_views[256]"}
    found = report.added(earlier, [new, again], {"taken": "today"})
    assert [row["id"] for row in found["rows"]] == ["one", "moco", "two", "from_views[256]"]
    assert found["rows"][1] == {**again, "origin": {"taken": "today"}}
    assert found["rows"][0] == earlier["rows"][0]
    (bar,) = [bar for bar in found["bars"] if bar["row"] == "from_views[256]"]
    assert (bar["value"], bar["holds"]) == (0.5, True)


def test_the_table_names_every_way_and_what_is_not_installed() -> None:
    verdict = report.verdict({"what": "w", "row": "task", "against": "sort", "faster": 5.0}, [ROW])
    text = "\n".join(report.table([ROW], [verdict]))
    assert all(name in text for name in ("sort", "slow", "quick", "not installed", "missed", "4.00"))


def test_unequal_values_fail_and_a_missing_peer_does_not() -> None:
    true = [torch.tensor(2.0), torch.tensor([3.0, 4.0])]
    harness.same("equal", [true[0] * (1 + 0.9e-5), true[1] * (1 + 0.9e-4)], true)
    with pytest.raises(AssertionError, match="value"):
        harness.same("value", [true[0] * (1 + 2e-5), true[1]], true)
    with pytest.raises(AssertionError, match="gradient"):
        harness.same("gradient", [true[0], true[1] * (1 + 2e-4)], true)
    with pytest.raises(AssertionError, match="tensors"):
        harness.same("missing", true[:1], true)

    def without(module: str) -> harness.Way:
        raise ModuleNotFoundError(name=module)

    assert harness.peer("it", lambda: without("lightly.loss")) == harness.Missing("it")
    with pytest.raises(ModuleNotFoundError):
        harness.peer("it", lambda: without("contrastlab.nothing"))


def test_ways_take_turns_and_peak_memory_counts_what_a_step_holds() -> None:
    order: list[str] = []

    class Benchmark:
        def pedantic(self, target: Any, rounds: int) -> None:
            for _ in range(rounds):
                target()

    ways = [harness.Way(name, lambda name=name: order.append(name)) for name in "abc"]  # type: ignore[misc]
    spent = harness.take_turns(ways, 3, Benchmark())
    assert "".join(order) == "abcbcacab"
    assert {name: len(times) for name, times in spent.items()} == {"a": 3, "b": 3, "c": 3}

    def step() -> None:
        torch.ones(8_000_000).add(1)  # two tensors of 32 MB

    found = harness.peak_memory(step)
    assert 60 < found < 80 if Path("/proc/self/clear_refs").exists() else found is None


def test_each_task_has_a_truth_and_the_stored_results_answer_every_bar() -> None:
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in FOLDER.glob("bench_*.py")]
    calls = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    calls = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "contest"]
    assert len(calls) > 10
    assert all(any(k.arg == "truth" for k in call.keywords) for call in calls)
    stored = json.loads(report.STORED.read_text(encoding="utf-8"))
    rows = stored["rows"]
    assert {"batch", "queue", "bank", "views", "training"} == {row["group"] for row in rows}
    assert all(row["ways"][0]["name"] == "ours" and len(row["ways"]) > 1 for row in rows)
    assert stored["bars"] == [report.verdict(bar, rows) for bar in report.bars()]
    measured = {row["id"] for row in rows}
    assert all((bar["holds"] is None) == (bar["row"] not in measured) for bar in stored["bars"])
    assert sum(bar["holds"] is not None for bar in stored["bars"]) >= 9
    assert {"git_commit", "cpu", "threads"} <= stored["provenance"].keys()
    assert {"torch", "numpy", "lightly", "pytorch-metric-learning", "python"} <= stored["provenance"]["versions"].keys()


def test_a_critic_of_all_canonical_pairs_is_the_log_ratio_of_normal_variables() -> None:
    x, y = JointGaussian.correlated(0.6, 3).sample(500, torch.Generator().manual_seed(0))
    x, y = (x - x.mean(0)) @ torch.tensor([[1.0, 2.0, 0.0], [0.0, 1.0, 0.5], [0.0, 0.0, 2.0]]), y - y.mean(0)
    fitted = JointGaussian(torch.cov(torch.cat([x, y], 1).T.double()).numpy(), 3)
    assert torch.allclose(outside.Critic(x, y, 3, False)(x, y).double(), fitted.log_ratio(x, y), atol=1e-3)
    assert not any(outside.network(kind, 3, 3)(x, y).any() for kind in ("separable", "joint"))  # before training
