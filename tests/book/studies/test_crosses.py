"""The grid of choices and the crosses nobody tried."""

import math
from types import SimpleNamespace

import pandas as pd
import pytest

from contrastbook import studies
from contrastbook.studies import crosses
from contrastbook.studies.crosses import CHOICES, CROSSES, floor, grid, protocol, recipe_of
from contrastlab import methods, papers
from contrastlab.support.errors import NotApplicableError
from contrastlab.train import pretrain
from made_runs import quiet


def test_a_cross_is_a_recipe_that_no_paper_has() -> None:
    cells = grid()
    published = set(cells[cells["published"]][list(CHOICES)].itertuples(index=False, name=None))
    for name, cross in CROSSES.items():
        assert cross.recipe.name == name
        assert name not in methods.names()
        assert crosses._kinds(cross.recipe) not in published
        # every choice comes from a parent
        parents = [methods.get(parent) for parent in cross.parents]
        assert cross.recipe.temperature in {parent.temperature for parent in parents}
        for part in ("negatives", "positives", "objective", "keys"):
            kinds = {type(getattr(parent, part)) for parent in parents}
            assert type(getattr(cross.recipe, part)) in kinds, (name, part)


@pytest.mark.parametrize("name", CROSSES)
def test_crosses_and_parents_exist_at_the_sizes_of_the_profiles(name: str) -> None:
    for profile in ("smoke", "laptop", "paper"):
        changes = protocol("cifar10", profile).overrides
        for each in (name, *CROSSES[name].parents):
            assert recipe_of(each).override(changes).name == each


def test_names_are_looked_up_and_two_colour_streams_need_colour() -> None:
    assert recipe_of("jcl_ring") is recipe_of("crosses/jcl_ring")
    assert recipe_of("ring/simclr") is methods.get("ring/simclr")
    assert (floor("jcl_ring"), floor("cmc_jcl")) == crosses.REFERENCES
    assert list(crosses.chosen("all")) == list(CROSSES)
    assert list(crosses.chosen("cmc_jcl, jcl_ring")) == ["crosses/cmc_jcl", "crosses/jcl_ring"]
    with pytest.raises(NotApplicableError, match="colour|channel"):
        crosses.run("cmc_jcl", "digits", "smoke", 0)


def test_the_grid_and_its_picture_hold_every_method_of_a_table() -> None:
    cells = grid()
    assert len(cells) == math.prod(map(len, CHOICES.values()))
    assert (cells["recipe"].notna() == cells["exists"]).all()
    assert cells[cells["published"]]["exists"].all()
    tried = {name for names in cells["tried"] for name in names}
    printed = {name for each in papers.plans() for name, label in papers.plan(*each).rows.items() if label}
    assert tried == {name for name in printed if crosses._kinds(methods.get(name))}
    # rows that this project adds to a table are no publication
    assert not tried & {"cmc/cmc_moco_nce", "fmicl/spectral", "jcl/vanilla"}
    reasons = set(cells["reason"]) - {""}  # of kinds and not of values
    assert not [reason for reason in reasons if "(" in reason or "x:" in reason or "given" in reason]
    assert len(reasons) < 15
    states = crosses.states(cells)
    assert states.size == len(cells)
    assert (states.to_numpy() == 2).sum() == cells["published"].sum()
    assert (states.to_numpy() >= 1).sum() == cells["exists"].sum()
    why = crosses.objections(cells)
    assert why["combinations"].sum() == (~cells["exists"]).sum()
    assert why["combinations"].is_monotonic_decreasing
    for reason, line in why.iterrows():
        mine = cells[cells["reason"] == reason]
        assert line["for example"] in set(mine[list(CHOICES)].agg(" × ".join, axis=1))


def test_what_is_in_the_grid_trains(pictures, tiny) -> None:
    # one of each objective and kind of key; all of them take a few seconds more
    cells = grid()
    changes = {
        "keys.size": 32, "keys.shuffle_groups": 1, "negatives.k": 8, "negatives.inner": 5, "negatives.outer": 60,
        "negatives.clusters": 4, "positives.clusters": 4, "positives.runs": 2, "negatives.runs": 2,
    }  # fmt: skip
    for recipe in cells[cells["exists"]].groupby(["keys", "objective"])["recipe"].last():
        done = pretrain(recipe.override(changes), tiny.override(epochs=1), pictures(48), log=quiet)
        assert math.isfinite(done.history[-1]["loss"]), recipe


def test_a_cross_is_measured_once(monkeypatch, tmp_path) -> None:
    small = protocol("shapes", "smoke").override(
        train_images=64, test_images=32, epochs=1, batch_size=32, dim=16, overrides={"keys.size": 64},
        linear={"train_images": 64},
    )  # fmt: skip
    monkeypatch.setattr(crosses, "protocol", lambda dataset, profile: small)
    first = crosses.study("simclr_ball", "shapes", "smoke", 3, out_dir=tmp_path)
    (row,) = first.rows
    assert (row["name"], row["seed"]) == ("crosses/simclr_ball", 3)
    assert 0 <= min(row["linear"], row["knn200"]) <= max(row["linear"], row["knn200"]) <= 100
    (path,) = tmp_path.rglob("*.json")
    assert studies.read(path) == first
    monkeypatch.setattr(crosses, "run", lambda *_, **__: pytest.fail("run again"))
    assert crosses.study("simclr_ball", "shapes", "smoke", 3, out_dir=tmp_path / "b", read_also=[tmp_path]) == first


CHILD = "crosses/jcl_ring"
PARENTS = CROSSES[CHILD].parents


def runs(values: dict[str, list[float]]) -> pd.DataFrame:
    rows = [
        {"name": name, "seed": seed, "linear": value, "knn200": value / 2, "loss": 1.0, "test_images": 1000}
        for name, each in values.items() for seed, value in enumerate(each)
    ]  # fmt: skip
    return pd.DataFrame(rows).set_index(["name", "seed"]).sort_index()


def test_a_child_stands_beside_its_parents_and_the_floor() -> None:
    made = runs({CHILD: [40.0, 42.0], PARENTS[0]: [30.0], PARENTS[1]: [39.0], floor(CHILD): [20.0]})
    frame = crosses.family(made, {CHILD: CROSSES[CHILD]})
    assert list(frame.index.get_level_values("role")) == ["child", "parent", "parent", "random"]
    assert frame[["linear", "linear − random"]].iloc[0].tolist() == [41, 21]
    assert frame["knn200 − random"].iloc[-1] == 0
    assert math.isnan(crosses.mean(made, "ring/ir", "linear"))


def test_what_cannot_exist_is_said_and_the_rest_is_measured(monkeypatch) -> None:
    asked = []

    def study(name: str, dataset: str, profile: str, seed: int, **where: object) -> object:
        asked.append((name, seed, where))
        if name == "crosses/cmc_jcl":
            raise NotApplicableError("grey")
        return SimpleNamespace(rows=runs({name: [1.0]}).reset_index().assign(seed=seed).to_dict("records"))

    monkeypatch.setattr(crosses, "study", study)
    found, missing = crosses.measured(crosses.chosen("cmc_jcl"), "digits", "smoke", (0, 1), out_dir="x")
    assert missing == {"crosses/cmc_jcl": "grey"}
    names = {*CROSSES["crosses/cmc_jcl"].parents, *map(crosses.floor, CROSSES["crosses/cmc_jcl"].parents)}
    assert set(found.index.get_level_values("name")) == {*names, "ours/random_lab"}
    assert len(asked) == 2 * len({name for name, *_ in asked})
    assert all(where == {"out_dir": "x"} for *_, where in asked)
