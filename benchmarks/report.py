"""From measured ways to a table: ratios, and which bars hold. Nothing here measures."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
STORED = HERE / "results" / "cpu.json"
PEERS = "fastest peer"

Row = Mapping[str, Any]


def bars() -> list[dict[str, Any]]:
    """The bars of ``bars.toml``."""
    found: list[dict[str, Any]] = tomllib.loads((HERE / "bars.toml").read_text(encoding="utf-8"))["bar"]
    return found


def against(row: Row, name: str) -> Mapping[str, Any] | None:
    """The measured way ``name`` of a row, or the fastest of its peers; ``None`` where there is none."""
    ways = [
        way for way in row["ways"][1:] if "cpu_ms" in way and (way["peer"] if name == PEERS else way["name"] == name)
    ]
    return min(ways, key=lambda way: float(way["cpu_ms"]["median"]), default=None)


def verdict(bar: Mapping[str, Any], rows: Sequence[Row]) -> dict[str, Any]:
    """A bar with ``value`` and ``holds``, both ``None`` where it was not measured.

    ``faster``: the other way's median processor time over ours, at least. ``slower``: ours over the other's, at most.
    ``peak_mb``: our peak memory above the inputs, at most.
    """
    row = next((row for row in rows if row["id"] == bar["row"]), None)
    value = holds = None
    if row is not None and "peak_mb" in bar:
        value = row["ways"][0]["peak_mb"]
        holds = None if value is None else value <= bar["peak_mb"]
    elif row is not None and (other := against(row, bar["against"])) is not None:
        times = other["cpu_ms"]["median"] / row["ways"][0]["cpu_ms"]["median"]
        value = times if "faster" in bar else 1 / times
        holds = value >= bar["faster"] if "faster" in bar else value <= bar["slower"]
    return {**bar, "value": None if value is None else float(f"{value:.3g}"), "holds": holds}


def missed(verdicts: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the bars that are missed are of; one that was not measured is not among them."""
    return [verdict["what"] for verdict in verdicts if verdict["holds"] is False]


def added(stored: Mapping[str, Any], rows: Sequence[Row], origin: Mapping[str, Any]) -> dict[str, Any]:
    """Rows and bars of a stored run with these rows in place of its own or behind them; each says where it is from."""
    own = {row["id"]: {**row, "origin": dict(origin)} for row in rows}
    kept = [own.pop(row["id"], row) for row in stored["rows"]]
    every = [*kept, *own.values()]
    return {"rows": every, "bars": [verdict(bar, every) for bar in bars()]}


def wanted(bar: Mapping[str, Any]) -> str:
    """What a bar asks for."""
    if "peak_mb" in bar:
        return f"≤ {bar['peak_mb']:,} MB"
    return f"≥ {bar['faster']:g}× faster" if "faster" in bar else f"≤ {bar['slower']:g}× as long"


def said(holds: bool | None) -> str:
    """A verdict in one word."""
    return {True: "holds", False: "missed", None: "not measured"}[holds]


def table(rows: Sequence[Row], verdicts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Lines for the terminal: every way beside ours, then the bars."""
    cells = [("task", "ours, ms", "beside", "ms", "times ours", "MB", "MB ours")]
    for row in rows:
        ours = row["ways"][0]
        for way in row["ways"][1:]:
            if "cpu_ms" not in way:
                cells.append((row["title"], "", way["name"], "not installed", "", "", ""))
                continue
            theirs, mine = way["cpu_ms"]["median"], ours["cpu_ms"]["median"]
            memory = [f"{w['peak_mb']:,.0f}" if w["peak_mb"] is not None else "–" for w in (way, ours)]
            cells.append((row["title"], f"{mine:,.4g}", way["name"], f"{theirs:,.4g}", f"{theirs / mine:.2f}", *memory))
    lines = _aligned(cells, "<><>>>>")
    marks = [("bar", "beside", "wanted", "measured", "")]
    for v in verdicts:
        value = "" if v["value"] is None else f"{v['value']:,.4g}"
        marks.append((v["what"], v.get("against", "memory"), wanted(v), value, said(v["holds"])))
    return [*lines, "", *_aligned(marks, "<<<><")]


def _aligned(cells: Sequence[Sequence[str]], sides: str) -> list[str]:
    widths = [max(len(row[i]) for row in cells) for i in range(len(sides))]
    return ["  ".join(f"{c:{s}{w}}" for c, s, w in zip(row, sides, widths, strict=True)).rstrip() for row in cells]
