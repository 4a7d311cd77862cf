"""What a table says in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Self

from contrastlab import escape
from contrastlab.report.rows import Row


class Sentences(tuple[str, ...]):
    """Lines of text that print themselves; what a name of somebody's brings along breaks no line."""

    def __new__(cls, lines: Iterable[str] = ()) -> Self:
        """Of any lines."""
        return super().__new__(cls, map(escape.line, lines))

    def __repr__(self) -> str:
        return "\n".join(self)

    def _repr_markdown_(self) -> str:
        return "\n".join(f"- {escape.markdown(line)}" for line in self)


def listed(names: Sequence[str]) -> str:
    """Names in a row, with semicolons where one has a comma of its own."""
    return ("; " if any(", " in name for name in names) else ", ").join(names)


def effect(row: Row, gap: str) -> str:
    """A gain with its interval, and whether its sign is decided."""
    assert row.measured is not None
    gain, half = row.measured.mean, row.measured.half_width
    if half is None:
        return f"{row.label}: {gain:+.2f} {gap} with one common seed; no conclusion about its sign."
    verdict = "its interval contains 0, so the sign is open" if abs(gain) <= half else "its interval excludes 0"
    return f"{row.label}: {gain:+.2f} ± {half:.2f} {gap} over {row.measured.seeds} common seeds; {verdict}."


def agreement(run: Sequence[Row], gap: str) -> list[str]:
    """How many published numbers lie inside our intervals."""
    gaps = [
        (row.label, row.difference, row.measured.half_width)
        for row in run
        if row.measured is not None and row.difference is not None and row.measured.half_width is not None
    ]
    if not gaps:
        return ["No row has both a published number and an interval of ours, so agreement is not judged."]
    inside = [label for label, difference, half in gaps if abs(difference) <= half]
    outside = [f"{label} ({difference:+.1f})" for label, difference, half in gaps if abs(difference) > half]
    out = [
        f"The published number lies inside our interval for {len(inside)} of {len(gaps)} rows"
        f" (at 95 %, about {len(gaps) / 20:.1f} would lie outside by chance)."
    ]
    if outside:
        out.append(f"Outside, measured minus published in {gap}: {listed(outside)}.")
    return out
