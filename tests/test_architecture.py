"""ARCHITECTURE.md tells the truth about rooms, arrows and sizes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "contrastlab"
TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
ROOMS = [
    name
    for line in re.search(r"\| room \| .*?\n\n", TEXT, re.S)[0].strip().splitlines()[2:]  # type: ignore[index]
    for name in re.findall(r"`([a-z_]+)`", line.split("|")[1])
]
SITTING = 350
"""Lines of a file that one reads at a sitting."""


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


def test_a_room_imports_from_rooms_above_it_only() -> None:
    place = {room: k for k, room in enumerate(ROOMS)}
    wrong = []
    for path, room in modules():
        if room in ("__init__", "__main__"):
            continue
        for name in imported(ast.parse(path.read_text(encoding="utf-8"))):
            parts = name.split(".")
            if parts[0] == "contrastlab" and len(parts) > 1 and parts[1] in place and place[parts[1]] > place[room]:
                wrong.append(f"{path.relative_to(PACKAGE)} imports {name}")
    assert not wrong


def test_a_long_file_says_why_it_is_long() -> None:
    silent = []
    for path, _ in modules():
        text = path.read_text(encoding="utf-8")
        if text.count("\n") > SITTING and "long because" not in (ast.get_docstring(ast.parse(text)) or ""):
            silent.append(f"{path.relative_to(PACKAGE)}: {text.count(chr(10))} lines")
    assert not silent


def test_tests_that_promises_name_exist() -> None:
    for name in re.findall(r"`(tests/[a-z_/]+(?:\.py)?)`", TEXT):
        assert (ROOT / name).exists(), name
