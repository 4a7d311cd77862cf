"""ARCHITECTURE.md tells the truth about rooms, arrows and one step of a method."""

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from contrastlab import data, tasks
from contrastlab.keys import MemoryBank
from contrastlab.negatives import BatchRandom
from contrastlab.pictures.augmentations import augmentation
from contrastlab.settings import Settings
from contrastlab.train.learner import Learner

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
TABLES = re.findall(r"\| room \| .*?\n\n", TEXT, re.S)


def rooms(table: str) -> list[str]:
    """Names in the first column of a table of rooms, from top to bottom."""
    return [name for line in table.strip().splitlines()[2:] for name in re.findall(r"`([a-z_]+)`", line.split("|")[1])]


ROOMS = dict(zip(("contrastlab", "contrastbook"), map(rooms, TABLES), strict=True))

REMAINS = {
    "pictures/fitting.py": {"train", "train.checkpoint"},
    "pictures/task.py": {"tables.results"},
    "support/doctor.py": {"data", "train.schedule"},
    "support/provenance.py": {"settings"},
    "tasks.py": {"tables.foreign"},
}
"""Imports that still point up: none may be added, and one that is cut leaves this list."""


def modules(package: str) -> Iterator[tuple[str, str, ast.AST]]:
    """Path below the package, room and syntax tree of each of its modules."""
    for path in sorted((SOURCE / package).rglob("*.py")):
        place = path.relative_to(SOURCE / package)
        yield place.as_posix(), place.with_suffix("").parts[0], ast.parse(path.read_text(encoding="utf-8"))


def imported(tree: ast.AST, package: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == package:
            yield from (f"{package}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def upward(package: str) -> dict[str, set[str]]:
    """Module to what it imports from rooms below its own, or from modules of no room."""
    place = {room: k for k, room in enumerate(ROOMS[package])}
    found: dict[str, set[str]] = {}
    for path, room, tree in modules(package):
        for name in imported(tree, package):
            root, _, module = name.partition(".")
            other = module.partition(".")[0]
            if root == package and place.get(other, -1) > place.get(room, len(place)):
                found.setdefault(path, set()).add(module)
    return found


@pytest.mark.parametrize("package", ROOMS)
def test_the_list_of_rooms_is_that_of_the_folders(package: str) -> None:
    there = {path.stem for path in (SOURCE / package).iterdir()} - {"__init__", "__main__", "__pycache__", "py"}
    assert len(set(ROOMS[package])) == len(ROOMS[package])
    assert set(ROOMS[package]) == there


def test_a_room_imports_from_rooms_above_it_only_and_nothing_from_the_book() -> None:
    assert upward("contrastlab") == REMAINS
    assert upward("contrastbook") == {}
    for path, _, tree in modules("contrastlab"):
        assert not any(name.startswith("contrastbook") for name in imported(tree, "contrastlab")), path


def test_tests_that_the_page_names_exist() -> None:
    for name in re.findall(r"`(tests/[a-z_/]+(?:\.py)?)`", TEXT):
        assert (ROOT / name).exists(), name


def test_every_test_module_says_what_it_promises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    promises = importlib.import_module("promises").promises()
    assert len(promises) > 90
    assert [name for name, promise in promises.items() if len(promise.split()) < 4] == []


def test_the_step_of_the_page_has_the_loss_of_the_learner() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.S)
    there: dict[str, Any] = {}
    exec(code, there)
    recipe, draws = there["recipe"], torch.Generator().manual_seed(0)
    settings = Settings(arch="tiny", stem="cifar", dim=16, image_size=8)
    count = len(there["pictures"])
    encoder = there["encoder"]
    encoder.zero_grad()
    learner = Learner(recipe, settings, images=count, classes=10, seed=0, encoders=nn.ModuleList([encoder]))
    store = learner.keys.stores[0]
    draws = torch.Generator().manual_seed(0)
    fresh = MemoryBank(count, 16, draws)  # the page draws the bank, then the view, then the ring
    store.rows.copy_(fresh.rows)
    batch = there["batch"]
    view = recipe.views.make(there["pictures"].items[batch], augmentation("instdisc", 8), draws)
    step = learner.loss(view, batch, batch, BatchRandom(draws, 0, 32), 0, 1)
    torch.testing.assert_close(step.loss, there["losses"].mean())
    learner.commit(batch, step)
    torch.testing.assert_close(store.rows, there["bank"].rows)


def test_every_task_and_every_data_set_has_a_test_that_names_it() -> None:
    """Its name, its family's, its class or its reader: those who add one add a test of it."""
    tests = Path(__file__).parent
    here = {*tests.rglob("test_*.py"), tests / "bad_input.toml"} - {Path(__file__)}
    words = set(re.findall(r"\w+", " ".join(path.read_text(encoding="utf-8") for path in here)))
    own = {name: {name, kind.__name__} for name, kind in tasks.TASKS.items()}
    own |= {name: {name, str(data.PUBLISHED.get(name, {}).get("read", "")).rpartition(".")[2]} for name in data.names()}
    families = {name: {name.partition("_")[0]} for name in own}  # such as voices_digit
    assert not [name for name, known in own.items() if not (known | families[name]) & words]
