"""Print what the tests promise: the first sentence of each test module."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]


def promises() -> dict[str, str]:
    """By test module, the first line of its docstring."""
    lines = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        lines[path.relative_to(ROOT).as_posix()] = docstring.partition("\n")[0]
    return lines


if __name__ == "__main__":
    for name, promise in promises().items():
        print(f"{name:<45}{promise}")
