"""The grid of choices and the crosses nobody tried."""

from __future__ import annotations

import math

import pytest

from contrastbook import studies
from contrastbook.studies import crosses
from contrastbook.studies.crosses import CHOICES, CROSSES, floor, grid, protocol, recipe_of
from contrastlab import methods, papers
from contrastlab.errors import NotApplicableError, UnknownNameError

CHANGES = {"keys.size": 32, "keys.shuffle_groups": 1, "negatives.k": 8, "negatives.inner": 5, "negatives.outer": 60}


def test_a_cross_is_a_recipe_that_no_paper_has() -> None:
    published = {cell.choices for cell in grid() if cell.tried}
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


def test_names() -> None:
    assert recipe_of("jcl_ring") is recipe_of("crosses/jcl_ring")
    assert recipe_of("ring/simclr") is methods.get("ring/simclr")
    assert (floor("jcl_ring"), floor("cmc_jcl")) == crosses.REFERENCES
    with pytest.raises(UnknownNameError, match="crosses/jcl_ring"):
        recipe_of("crosses/jcl_rings")


def test_the_grid_is_whole_and_holds_every_method_of_a_table() -> None:
    cells = grid()
    assert len(cells) == math.prod(len(kinds) for kinds in CHOICES.values())
    assert all((cell.recipe is None) == bool(cell.reason) for cell in cells)
    assert all(cell.recipe is not None for cell in cells if cell.tried)
    tried = {name for cell in cells for name in cell.tried}
    printed = {name for each in papers.plans() for name, label in papers.plan(*each).rows.items() if label}
    assert tried == {name for name in printed if crosses._kinds(methods.get(name))}
    # rows that this project adds to a table are no publication
    assert not tried & {"cmc/cmc_moco_nce", "fmicl/spectral", "jcl/vanilla"}


def test_reasons_are_of_kinds_and_not_of_values() -> None:
    reasons = {cell.reason for cell in grid() if cell.reason}
    assert not [reason for reason in reasons if "(" in reason or "x:" in reason or "given" in reason]
    assert len(reasons) < 15


def test_what_is_in_the_grid_trains(pictures, tiny) -> None:
    # one of each objective and kind of key; all of them take a few seconds more
    cells = [cell for cell in grid() if cell.recipe is not None]
    one = {(cell.choices[1], cell.choices[4]): cell.recipe for cell in cells}
    changes = CHANGES | {"negatives.clusters": 4, "positives.clusters": 4, "positives.runs": 2, "negatives.runs": 2}
    for recipe in one.values():
        done = crosses.pretrain(recipe.override(changes), tiny.override(epochs=1), pictures(48), log=lambda line: None)
        assert math.isfinite(done.history[-1]["loss"]), recipe


def test_a_cross_is_measured_once(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    small = protocol("shapes", "smoke").override(
        train_images=64, test_images=32, epochs=1, batch_size=32, dim=16, overrides={"keys.size": 64},
        linear={"train_images": 64},
    )  # fmt: skip
    monkeypatch.setattr(crosses, "protocol", lambda dataset, profile: small)
    first = crosses.study("simclr_ball", "shapes", "smoke", 3, out_dir=tmp_path)
    (row,) = first.rows
    assert row["name"] == "crosses/simclr_ball"
    assert row["seed"] == 3
    assert 0 <= row["linear"] <= 100
    assert 0 <= row["knn200"] <= 100
    (path,) = tmp_path.rglob("*.json")
    assert studies.read(path) == first
    monkeypatch.setattr(crosses, "run", None)
    assert crosses.study("simclr_ball", "shapes", "smoke", 3, out_dir=tmp_path / "b", read_also=[tmp_path]) == first


def test_two_colour_streams_need_colour() -> None:
    with pytest.raises(NotApplicableError, match="colour|channel"):
        crosses.run("cmc_jcl", "digits", "smoke", 0)
