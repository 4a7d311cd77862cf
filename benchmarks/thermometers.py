"""How densely the code of each room is written: ``python benchmarks/thermometers.py`` (``make thermometers``).

Syntax nodes per line of code, and the longest functions in syntax nodes. A thermometer is read, it is no law: lightly,
litgpt and pytorch-metric-learning have 4.6 to 5.2 nodes a line. Lines of code hold more than blanks, comments and
docstrings.
"""

from __future__ import annotations

import ast
import io
import tokenize
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
LONGEST = 3
_LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def is_docstring(node: ast.AST) -> bool:
    """Whether a statement is a text alone."""
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Constant):
        return False
    return isinstance(node.value.value, str)


def count_nodes(tree: ast.AST) -> int:
    """Nodes of the syntax tree, markers of reading and writing left out."""
    return sum(1 for node in ast.walk(tree) if not isinstance(node, ast.expr_context))


def code_lines(text: str) -> int:
    """Lines that hold neither blanks, comments nor docstrings alone."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _LAYOUT:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and is_docstring(node):
            last = node.end_lineno or node.lineno
            lines.difference_update(range(node.lineno, last + 1))
    return len(lines)


@dataclass(frozen=True)
class File:
    """What is measured of a file."""

    lines: int
    nodes: int
    functions: list[tuple[int, str]]  #: nodes and ``file:function`` of each function


def measure(path: Path, name: str) -> File:
    """Lines of code, nodes and functions of a file that is called ``name``."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    functions: list[tuple[int, str]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions.append((count_nodes(node), f"{name}:{node.name}"))
    return File(code_lines(text), count_nodes(tree), functions)


def rooms(root: Path = ROOT) -> dict[str, list[File]]:
    """The files of each room of ``src``, and of ``tests`` and ``benchmarks``."""
    found: dict[str, list[File]] = {}
    for top in ("src/contrastlab", "src/contrastbook", "tests", "benchmarks"):
        for path in sorted((root / top).rglob("*.py")):
            inside = path.relative_to(root / top)
            room = top
            if top.startswith("src/"):
                room = f"{top.removeprefix('src/')}/{inside.parts[0]}"
            found.setdefault(room, []).append(measure(path, inside.as_posix()))
    return found


def report(files: list[File], name: str) -> str:
    """A line: lines of code, nodes a line, and the longest functions."""
    lines = sum(file.lines for file in files)
    density = sum(file.nodes for file in files) / max(lines, 1)
    functions = sorted((each for file in files for each in file.functions), reverse=True)
    longest = ", ".join(f"{where} {size}" for size, where in functions[:LONGEST])
    return f"{name:32} {lines:7,d} {density:6.1f}  {longest}"


def main() -> None:
    """Print a line for each room and one for each package."""
    found = rooms()
    print(f"{'room':32} {'lines':>7} {'nodes':>6}  longest functions in nodes")
    for name, files in found.items():
        print(report(files, name))
    for package in ("contrastlab", "contrastbook"):
        every = [file for name, files in found.items() if name.startswith(f"{package}/") for file in files]
        print(report(every, package))


if __name__ == "__main__":
    main()
