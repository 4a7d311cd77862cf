"""ARCHITECTURE.md tells the truth about rooms and arrows."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from contrastlab import data, tasks

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "contrastlab"
TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
ROOMS = [
    name
    for line in re.search(r"\| room \| .*?\n\n", TEXT, re.S)[0].strip().splitlines()[2:]  # type: ignore[index]
    for name in re.findall(r"`([a-z_]+)`", line.split("|")[1])
]


REMAINS = {
    "pictures/fitting.py": {"train", "train.checkpoint"},
    "pictures/task.py": {"tables.results"},
    "scores/candidates.py": {"objectives"},
    "support/doctor.py": {"data", "pictures", "train.schedule"},
    "support/provenance.py": {"keys", "settings"},
    "tasks.py": {"tables.foreign"},
}
"""Imports that still point up: none may be added, and one that is cut leaves this list."""


def modules() -> Iterator[tuple[Path, str]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        yield path, parts[0]


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "contrastlab":
            yield from (f"contrastlab.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def test_the_list_of_rooms_is_that_of_the_folders() -> None:
    there = {room for _, room in modules()} - {"__init__", "__main__"}
    assert len(set(ROOMS)) == len(ROOMS)
    assert set(ROOMS) == there


def test_a_room_imports_from_rooms_above_it_only_and_nothing_from_the_book() -> None:
    place = {room: k for k, room in enumerate(ROOMS)}
    upward: dict[str, set[str]] = {}
    for path, room in modules():
        for name in imported(ast.parse(path.read_text(encoding="utf-8"))):
            assert not name.startswith("contrastbook"), path
            package, _, module = name.partition(".")
            other = module.partition(".")[0]
            if package == "contrastlab" and place.get(other, -1) > place.get(room, len(ROOMS)):
                upward.setdefault(path.relative_to(PACKAGE).as_posix(), set()).add(module)
    assert upward == REMAINS


def test_tests_that_promises_name_exist() -> None:
    for name in re.findall(r"`(tests/[a-z_/]+(?:\.py)?)`", TEXT):
        assert (ROOT / name).exists(), name


def test_every_task_and_every_data_set_has_a_test_that_names_it() -> None:
    """Its name, its family's, its class or its reader: those who add one add a test of it."""
    tests = Path(__file__).parent
    here = {*tests.rglob("test_*.py"), tests / "bad_input.toml"} - {Path(__file__)}
    words = set(re.findall(r"\w+", " ".join(path.read_text(encoding="utf-8") for path in here)))
    own = {name: {name, kind.__name__} for name, kind in tasks.TASKS.items()}
    own |= {name: {name, str(data.PUBLISHED.get(name, {}).get("read", "")).rpartition(".")[2]} for name in data.names()}
    families = {name: {name.partition("_")[0]} for name in own}  # such as voices_digit
    assert not [name for name, known in own.items() if not (known | families[name]) & words]
