"""ring Table 5a: epochs timed from stored curves, paired by seed, never across machines or settings."""

import math
from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import pytest

from contrastbook.studies import epoch_time
from contrastlab import methods, papers, tasks
from contrastlab.tables import report, results

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


def cost_of(*runs: results.Result) -> pd.DataFrame:
    """Columns without the profile behind their names."""
    cost = epoch_time.epoch_cost(PLAN, list(runs), "cifar10", "laptop")
    return cost.rename(columns=lambda name: name.removesuffix(" (laptop)"))


def test_epochs_pair_seeds_and_stand_beside_the_printed_ratio() -> None:
    cost = cost_of(
        timed("ring/ir", 0, [2.0, 1.0]), timed("ring/ir", 1, [1.0, 3.0]),
        timed("ring/iring", 0, [3.0, 1.5]), timed("ring/iring", 1, [2.5, 2.5]), timed("ring/iring", 2, [9.0, 9.0]),
        timed("ring/iring", 0, [70.0], day=-1, epochs=1), timed("ring/moco", 0, []),
        timed("ring/ir", 0, [2.0, 1.0], task="neighbours"),  # a run that two tasks scored is timed once
    )  # fmt: skip
    assert list(cost.index) == ["IR", "IRing", "MoCo", "MoCoRing"]
    iring, ir = cost.loc["IRing"], cost.loc["IR"]
    printed = papers.published("ring", "5a").set_index(["row", "column"])["value"]
    for column in COLUMNS:
        expected = printed["IRing", column] / printed["IR", column]
        assert iring[f"published ratio, {column.split()[0]}"] == pytest.approx(expected)
    # seed 2 has no base; 2.25/1.5 and 2.5/2
    mean, half = report.interval([1.5, 1.25])
    expected = {
        "seconds an epoch": 27.5 / 6, "sd over epochs": np.std([3, 1.5, 2.5, 2.5, 9, 9], ddof=1), "fastest epoch": 1.5,
        "epochs": 6, "seeds": 3, "ratio": mean, "95 % half-width": half, "ratio of fastest epochs": 1.5,
    }  # fmt: skip
    assert iring[list(expected)].to_dict() == pytest.approx(expected)
    assert iring["machine"] == "a, 1 thread"
    assert ir[["ratio", "published ratio, CIFAR10"]].isna().all()
    assert math.isnan(cost.loc["MoCo", "seconds an epoch"])  # stored without a curve
    assert (ir["epochs"], cost.loc["MoCo", "epochs"]) == (4, 0)
    said = epoch_time.sentences(cost.add_suffix(" (laptop)"), "cifar10", "laptop")
    assert "IRing costs 1.50 times" in said[0]
    assert "MoCoRing is not measured" in said[1]


def test_only_runs_of_one_machine_setting_precision_and_table_are_compared() -> None:
    base = timed("ring/ir", 0, [1.0, 1.0])
    for other in ({"machine": "b"}, {"batch_size": 7}, {"precision": "bf16-mixed"}):
        iring = cost_of(base, timed("ring/iring", 0, [2.0, 2.0], **other)).loc["IRing"]
        assert iring["seconds an epoch"] == pytest.approx(2)
        assert iring[["ratio", "ratio of fastest epochs"]].isna().all()
    one = cost_of(base, timed("ring/iring", 0, [2.0])).loc["IRing"]
    assert one["ratio"] == pytest.approx(2)
    assert one[["95 % half-width", "sd over epochs"]].isna().all()
    ir, iring = timed("ring/ir", 0, [1.0, 1.0]), timed("ring/iring", 0, [2.0, 2.0])
    # ring Table 4 has the same method with a shorter run
    other = timed("ring/ir", 0, [9.0], day=1, table="ring/table4", epochs=1)
    cost = cost_of(ir, iring, other)
    assert cost.loc["IR", "seconds an epoch"] == pytest.approx(1)
    assert cost.loc["IRing", "ratio"] == pytest.approx(2)
    # alone it is no evidence for this table; a run with this table's settings is, whichever table asked for it
    assert cost_of(iring, other).loc["IR", "epochs"] == 0
    same = timed("ring/ir", 0, [4.0, 4.0], table="vince/table1")
    assert cost_of(iring, same).loc["IRing", "ratio"] == pytest.approx(0.5)


def test_printed_ratios_and_the_pools_of_a_batch() -> None:
    printed = papers.published("ring", "5a").set_index(["row", "column"])["value"]
    ratio, extra = epoch_time.published(), epoch_time.published("extra")
    for ring, base in (("IRing", "IR"), ("MoCoRing", "MoCo")):
        for column in COLUMNS:
            assert ratio.loc[column, ring] * printed[base, column] == pytest.approx(printed[ring, column])
            assert extra.loc[column, ring] + printed[base, column] == pytest.approx(printed[ring, column])
    assert set(epoch_time.printed_beside()["table"]) == {"5a", "5b"}
    plan = papers.plan("ring", "5d")
    pools = epoch_time.pools(plan)
    assert set(pools.index) == set(plan.profiles)
    assert ((pools["hole"] + pools["kept"]) / pools["candidates"]).between(0.08, 0.1).all()
