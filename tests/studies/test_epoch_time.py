"""ring Table 5a: epochs timed from stored curves, paired by seed, never across machines or settings."""

import math
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from contrastbook.studies import epoch_time
from contrastlab import methods, papers, report, results, tasks
from contrastlab.errors import UnknownNameError

PLAN = papers.plan("ring", 1)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
COLUMNS = ("CIFAR10 epoch seconds", "ImageNet epoch minutes")


def timed(
    method: str, seed: int, seconds: list[float], *, day: int = 0, machine: str = "a", task: str = "linear",
    precision: str = "32-true", table: str = "ring/table1", **settings,
) -> results.Result:  # fmt: skip
    now = NOW + timedelta(days=day)
    protocol = PLAN.settings("cifar10", method, "laptop").override(**settings)
    where = {**results.provenance("cpu"), "cpu": machine, "threads": 1}
    curve = [{"epoch": i + 1.0, "seconds": s} for i, s in enumerate(np.cumsum(seconds).tolist())]
    return results.Result(
        table=table, dataset="cifar10", method=method, seed=seed, profile="laptop", task=task,
        task_config=tasks.get(task, protocol).identity(), protocol={}, items=100,
        settings=protocol.model_dump(mode="json"),
        recipe=methods.get(method).override(protocol.overrides).describe(),
        metrics={"linear" if task == "linear" else "knn200": 50.0}, curve=curve, precision=precision,
        provenance=results.Provenance(**where, data_fingerprint="d", started=now, finished=now, wall_s=1.0),
    )  # fmt: skip


def test_epochs_pair_seeds_and_stand_beside_the_printed_ratio() -> None:
    found = [
        timed("ring/ir", 0, [2.0, 1.0]), timed("ring/ir", 1, [1.0, 3.0]),
        timed("ring/iring", 0, [3.0, 1.5]), timed("ring/iring", 1, [2.5, 2.5]), timed("ring/iring", 2, [9.0, 9.0]),
        timed("ring/iring", 0, [70.0], day=-1, epochs=1), timed("ring/moco", 0, []),
    ]  # fmt: skip
    # a run that two tasks scored is timed once
    cost = epoch_time.epoch_cost(
        PLAN, [*found, timed("ring/ir", 0, [2.0, 1.0], task="neighbours")], "cifar10", "laptop"
    )
    assert list(cost.index) == ["IR", "IRing", "MoCo", "MoCoRing"]
    iring = cost.loc["IRing"]
    printed = papers.published("ring", "5a").set_index(["row", "column"])["value"]
    for column in COLUMNS:
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
    assert (cost.loc["IR", "epochs (laptop)"], cost.loc["MoCo", "epochs (laptop)"]) == (4, 0)
    said = epoch_time.sentences(cost, "cifar10", "laptop")
    assert "IRing costs 1.50 times" in said[0]
    assert "MoCoRing is not measured" in said[1]


def test_no_two_machines_settings_or_precisions_are_compared() -> None:
    base = timed("ring/ir", 0, [1.0, 1.0])
    ratios = ["ratio (laptop)", "ratio of fastest epochs (laptop)"]
    for other in ({"machine": "b"}, {"batch_size": 7}, {"precision": "bf16-mixed"}):
        cost = epoch_time.epoch_cost(PLAN, [base, timed("ring/iring", 0, [2.0, 2.0], **other)], "cifar10", "laptop")
        assert cost.loc["IRing", "seconds an epoch (laptop)"] == pytest.approx(2)
        assert cost.loc["IRing", ratios].isna().all()
    one = epoch_time.epoch_cost(PLAN, [base, timed("ring/iring", 0, [2.0])], "cifar10", "laptop").loc["IRing"]
    assert one["ratio (laptop)"] == pytest.approx(2)
    assert one[["95 % half-width (laptop)", "sd over epochs (laptop)"]].isna().all()
    with pytest.raises(UnknownNameError, match="laptop"):
        epoch_time.epoch_cost(PLAN, [], "cifar10", "laptp")


def test_a_newer_run_of_another_table_is_not_timed() -> None:
    own = [timed("ring/ir", 0, [1.0, 1.0]), timed("ring/iring", 0, [2.0, 2.0])]
    # ring Table 4 has the same method with a shorter run
    other = timed("ring/ir", 0, [9.0], day=1, table="ring/table4", epochs=1)
    cost = epoch_time.epoch_cost(PLAN, [*own, other], "cifar10", "laptop")
    assert cost.loc["IR", "seconds an epoch (laptop)"] == pytest.approx(1)
    assert cost.loc["IRing", "ratio (laptop)"] == pytest.approx(2)
    # alone it is no evidence for this table; a run with this table's settings is, whichever table asked for it
    alone = epoch_time.epoch_cost(PLAN, [own[1], other], "cifar10", "laptop")
    assert alone.loc["IR", "epochs (laptop)"] == 0
    same = timed("ring/ir", 0, [4.0, 4.0], table="vince/table1")
    shared = epoch_time.epoch_cost(PLAN, [own[1], same], "cifar10", "laptop")
    assert shared.loc["IRing", "ratio (laptop)"] == pytest.approx(0.5)


def test_printed_ratios_and_differences() -> None:
    printed = papers.published("ring", "5a").set_index(["row", "column"])["value"]
    ratio, extra = epoch_time.published(), epoch_time.published("extra")
    for ring, base in (("IRing", "IR"), ("MoCoRing", "MoCo")):
        for column in COLUMNS:
            assert ratio.loc[column, ring] * printed[base, column] == pytest.approx(printed[ring, column])
            assert extra.loc[column, ring] + printed[base, column] == pytest.approx(printed[ring, column])
    assert set(epoch_time.printed_beside()["table"]) == {"5a", "5b"}


def test_the_ring_of_a_batch_holds_a_tenth_of_it() -> None:
    plan = papers.plan("ring", "5d")
    pools = epoch_time.pools(plan)
    assert set(pools.index) == set(plan.profiles)
    assert (pools["candidates"] == 2 * pools["batch"] - 2).all()
    assert ((pools["hole"] + pools["kept"]) / pools["candidates"]).between(0.08, 0.1).all()


def test_both_parts_of_a_ring_take_time() -> None:
    parts = epoch_time.where_time_goes({"small": 500, "large": 1000}, queries=4, dimension=8)
    assert list(parts.index) == ["small", "large"]
    assert (parts > 0).all(axis=None)
