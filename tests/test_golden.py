"""Hashes, data, tables and two steps of every recipe are those of ``golden.json``; see ``golden.py``."""

import copy
import dataclasses
from typing import Any

import pytest

import golden
from contrastlab import methods, negatives
from contrastlab.support.errors import MissingDataError
from made_runs import one_of_each_kind, part_types

STORED = golden.read()
SOURCES = golden.sources_of(STORED)
EXPERIMENTS = golden.experiments()
KINDS = {name: (kind, part_types(methods.get(recipe))) for name, (kind, recipe) in EXPERIMENTS.items()}

LOSS_WITHIN = 2e-4
"""Share of a loss or norm that processors may differ by: their sums have another order."""

CHOSEN_WITHIN = 0.02
"""Share of the chosen keys that may be others there: two scores nearly equal."""


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Which values of a recipe are others than the stored ones, beyond what processors differ by."""
    found = [name for name in ("identity", "state") if before[name] != now[name]]
    for name in ("encoders", "learner"):
        if now[name] != pytest.approx(before[name], rel=LOSS_WITHIN):
            found.append(name)
    if now["losses"] != pytest.approx(before["losses"], rel=LOSS_WITHIN):
        found.append("losses")
    for name in ("negatives", "positives"):
        moved = sum(abs(old - new) for old, new in zip(before[name], now[name], strict=True))
        if moved > CHOSEN_WITHIN * sum(before[name]):
            found.append(name)
    return found


@pytest.mark.parametrize("name", sorted({*golden.generated()} - {*golden.SLOW_TO_MAKE}))
def test_data_that_every_machine_has_are_the_stored_ones(name: str) -> None:
    assert golden.data_set(name) == SOURCES[name]


@pytest.mark.nightly
@pytest.mark.parametrize("name", sorted(SOURCES.keys() - {*golden.generated()}) + sorted(golden.SLOW_TO_MAKE))
def test_data_that_are_on_this_machine_are_the_stored_ones(name: str) -> None:
    try:
        found = golden.data_set(name)
    except MissingDataError:
        pytest.skip("this data set is not on this machine")
    assert found == SOURCES[name]


def test_stored_results_and_the_runs_behind_them_keep_their_hashes() -> None:
    """Results may be added; none may go, and none may get another hash."""
    changed = []
    for path, hashes in STORED["results"].items():
        if golden.stored_result(golden.CELLS / path, SOURCES) != hashes:
            changed.append(path)
    assert not changed
    assert len(STORED["results"]) > 1000


def test_the_hash_of_a_run_depends_on_its_recipe_its_settings_and_its_data() -> None:
    first = next(name for name in STORED["results"] if "/ring-iring-seed0-" in name)
    result = golden.results.read(golden.CELLS / first)
    source = SOURCES[result.dataset]
    run = golden.run_hash(result, source)
    recipe = copy.deepcopy(result.recipe)
    recipe["temperature"] = 0.08
    others = [
        golden.run_hash(result.model_copy(update={"recipe": recipe}), source),
        golden.run_hash(result.model_copy(update={"settings": {**result.settings, "lr": 0.5}}), source),
        golden.run_hash(result, dataclasses.replace(source, pretrain="other")),
        golden.run_hash(result.model_copy(update={"seed": 77}), source),
    ]
    assert len({run, *others}) == 5


@pytest.mark.parametrize("name", STORED["tables"])
def test_every_cell_of_a_table_is_set_up_as_before(name: str) -> None:
    paper, _, table = name.partition("/")
    assert golden.table_setups(paper, table) == STORED["tables"][name]


def test_every_recipe_is_in_the_file() -> None:
    assert list(EXPERIMENTS) == list(STORED["recipes"])


def test_every_recipe_keeps_its_hash() -> None:
    found = {name: golden.identity(methods.get(recipe)) for name, (_, recipe) in EXPERIMENTS.items()}
    assert found == {name: stored["identity"] for name, stored in STORED["recipes"].items()}


@pytest.mark.parametrize("name", one_of_each_kind(KINDS))
def test_two_steps_of_a_recipe_are_the_stored_ones(name: str) -> None:
    kind, recipe = EXPERIMENTS[name]
    assert differences(STORED["recipes"][name], golden.recipe_values(kind, recipe)) == []


@pytest.mark.parametrize(("changes", "seen"), [
    ({"temperature": 0.071}, {"losses"}),
    ({"negatives": negatives.Ring(1, 20, k=64)}, {"losses", "negatives"}),
])  # fmt: skip
def test_a_changed_recipe_is_noticed(changes: dict[str, Any], seen: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    name = "ring/iring"
    recipe = dataclasses.replace(methods.get(name), **changes)
    monkeypatch.setattr(methods, "get", lambda name: recipe)
    found = differences(STORED["recipes"][name], golden.recipe_values("pictures", name))
    assert {"identity", *seen} <= set(found)
