"""Crosses beside their parents: the grid as a table, and who is better than whom."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from contrastbook.studies import crosses
from contrastbook.studies.crosses import CHOICES, CROSSES
from contrastlab import report, tasks
from contrastlab.errors import NotApplicableError, UnknownNameError

CHILD = "crosses/jcl_ring"
PARENTS = CROSSES[CHILD].parents


def runs(values: dict[str, list[float]]) -> pd.DataFrame:
    rows = [
        {"name": name, "seed": seed, "linear": value, "knn200": value / 2, "loss": 1.0, "test_images": 1000}
        for name, each in values.items() for seed, value in enumerate(each)
    ]  # fmt: skip
    return pd.DataFrame(rows).set_index(["name", "seed"]).sort_index()


def test_the_grid_is_whole_and_its_picture_counts_alike() -> None:
    grid = crosses.grid_frame()
    assert len(grid) == math.prod(map(len, CHOICES.values()))
    assert (grid["reason"] != "").eq(~grid["exists"]).all()
    states = crosses.states(grid)
    assert states.size == len(grid)
    assert (states.to_numpy() == 2).sum() == grid["published"].sum()
    assert (states.to_numpy() >= 1).sum() == grid["exists"].sum()
    why = crosses.objections(grid)
    assert why["combinations"].sum() == (~grid["exists"]).sum()
    assert why["combinations"].is_monotonic_decreasing
    for reason, line in why.iterrows():
        mine = grid[grid["reason"] == reason]
        assert line["for example"] in set(mine[list(CHOICES)].agg(" × ".join, axis=1))


def test_names_of_crosses() -> None:
    assert list(crosses.chosen("all")) == list(CROSSES)
    assert list(crosses.chosen("cmc_jcl, jcl_ring")) == ["crosses/cmc_jcl", "crosses/jcl_ring"]
    with pytest.raises(UnknownNameError, match="crosses/jcl_ring"):
        crosses.chosen("jcl_rings")


def test_a_child_is_above_a_parent_by_more_than_chance_or_not() -> None:
    floor = crosses.floor(CHILD)
    one = runs({CHILD: [40.0], PARENTS[0]: [30.0], PARENTS[1]: [39.0], floor: [41.0]})
    width = tasks.metric("linear").half_width
    error = np.hypot(width(40.0, 1000), width(39.0, 1000))
    assert 1 < error < 10
    assert crosses.compare(one, CHILD, PARENTS[0]) == ("above", 10.0)
    assert crosses.compare(one, CHILD, PARENTS[1]) == ("level with", 1.0)
    assert crosses.compare(one, PARENTS[0], CHILD)[0] == "below"
    assert crosses.compare(one, CHILD, "ring/ir")[0] == "not run"
    # over seeds the differences are paired
    many = runs({CHILD: [40.0, 50.0, 60.0], PARENTS[0]: [39.0, 48.9, 59.1], PARENTS[1]: [30.0, 60.0, 60.0]})
    gap, half = report.interval([1.0, 1.1, 0.9])
    assert half < gap
    word, value = crosses.compare(many, CHILD, PARENTS[0])
    assert (word, value) == ("above", pytest.approx(gap))
    assert crosses.compare(many, CHILD, PARENTS[1])[0] == "level with"
    chosen = {CHILD: CROSSES[CHILD]}
    said = crosses.verdicts(one, chosen)
    assert "level with" in said[0]
    assert said[1] == "Above both parents: none."
    assert said[2].endswith("anything: none.")


def test_a_family_has_parents_and_the_floor() -> None:
    floor = crosses.floor(CHILD)
    frame = crosses.family(
        runs({CHILD: [40.0, 42.0], PARENTS[0]: [30.0], PARENTS[1]: [39.0], floor: [20.0]}), {CHILD: CROSSES[CHILD]}
    )
    assert list(frame.index.get_level_values("role")) == ["child", "parent", "parent", "random"]
    assert frame["linear"].iloc[0] == 41
    assert frame["linear − random"].iloc[0] == 21
    assert frame["knn200 − random"].iloc[-1] == 0
    assert math.isnan(crosses.mean(runs({CHILD: [1.0]}), "ring/ir", "linear"))


def test_what_cannot_exist_is_said_and_the_rest_is_measured(monkeypatch) -> None:
    asked = []

    def study(name: str, dataset: str, profile: str, seed: int, **where: object) -> object:
        asked.append((name, seed, where))
        if name == "crosses/cmc_jcl":
            raise NotApplicableError("grey")
        rows = [{"name": name, "seed": seed, "linear": 1.0, "knn200": 1.0, "loss": None, "test_images": 10}]
        return type("Stored", (), {"rows": rows})()

    monkeypatch.setattr(crosses, "study", study)
    found, missing = crosses.measured(crosses.chosen("cmc_jcl"), "digits", "smoke", (0, 1), out_dir="x")
    assert missing == {"crosses/cmc_jcl": "grey"}
    names = {*CROSSES["crosses/cmc_jcl"].parents, *map(crosses.floor, CROSSES["crosses/cmc_jcl"].parents)}
    assert set(found.index.get_level_values("name")) == {*names, "ours/random_lab"}
    assert len(asked) == 2 * len({name for name, *_ in asked})
    assert all(where == {"out_dir": "x"} for *_, where in asked)
