"""Lines of each room beside the budget that ARCHITECTURE.md gives it: ``python benchmarks/size.py`` (``make size``).

Code lines are those that hold neither blanks, comments nor docstrings alone.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).parents[1]
_LAYOUT = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
}  # fmt: skip


def lines(path: Path) -> tuple[int, int]:
    """All lines of a file, and those of code."""
    text = path.read_text(encoding="utf-8")
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _LAYOUT:
            code.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            code -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return text.count("\n"), len(code)


def measure(root: Path = ROOT) -> dict[str, tuple[int, int]]:
    """Lines and code lines of each room of ``src``, of each package, and of ``tests``."""
    sizes: dict[str, tuple[int, int]] = {}
    for top in ("src/contrastlab", "src/contrastbook", "tests"):
        for path in sorted((root / top).rglob("*.py")):
            parts = path.relative_to(root / top).with_suffix("").parts
            for name in {top.removeprefix("src/"), f"{top.removeprefix('src/')}.{parts[0]}"}:
                found, more = sizes.get(name, (0, 0)), lines(path)
                sizes[name] = (found[0] + more[0], found[1] + more[1])
    return sizes


def budgets(text: str) -> list[tuple[tuple[str, ...], int, int | None]]:
    """Rows of ARCHITECTURE.md's table of budgets: the rooms of a row, its lines, and its code lines if it has any."""
    table = re.search(r"\| rooms \| lines at most \| code \| goal \|\n.*?\n\n", text, re.S)
    assert table, "ARCHITECTURE.md has no table of budgets"
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table[0].strip().splitlines()[2:]]
    return [
        (tuple(re.findall(r"`([a-z_.]+)`", rooms)), int(most.replace(",", "")), int(code.replace(",", "") or 0) or None)
        for rooms, most, code, _ in rows
    ]


def report(root: Path = ROOT) -> list[tuple[str, int, int, int, int | None]]:
    """A row for each budget: rooms, lines, code lines, and the most that either may be."""
    sizes = measure(root)
    out = []
    for rooms, most, code in budgets((root / "ARCHITECTURE.md").read_text(encoding="utf-8")):
        each = [sizes.get(room, (0, 0)) for room in rooms]
        out.append((", ".join(rooms), sum(size[0] for size in each), sum(size[1] for size in each), most, code))
    return out


def main() -> int:
    """Print the table; 1 where a room is over its budget."""
    rows = report()
    for rooms, count, code, most, most_code in rows:
        over = count > most or (most_code is not None and code > most_code)
        limit = f"{most:7,d}" + (f" and {most_code:,d} of code" if most_code else "")
        print(f"{count:7,d} lines {code:7,d} code, at most{limit}  {'OVER ' if over else ''}{rooms}")
    return int(any(count > most or (limit is not None and code > limit) for _, count, code, most, limit in rows))


if __name__ == "__main__":
    sys.exit(main())
