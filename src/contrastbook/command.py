"""The command ``contrastlab claims``, which the command line finds through the entry point ``contrastlab.commands``."""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from contrastlab.support import terminal


def add(commands: Any) -> None:
    """Add the command to argparse's subcommands."""
    claims = commands.add_parser("claims", help="every claimed difference beside what the stored runs say of it")
    claims.add_argument("--prices", action="store_true", help="those without a verdict, and core-hours to decide each")
    terminal.add_forms(claims, results=True)
    claims.set_defaults(action=_claims)


def _claims(args: argparse.Namespace) -> None:
    from contrastlab.tables import results  # before pandas, which it misses by name

    # isort: split
    from contrastbook.evidence import claims, words

    lines = claims.frame(results.find(terminal.folders("results", args.results)))
    every = lines.astype(object).where(lines.notna(), None).to_dict("records")
    if args.prices:
        listed = [line for line in every if line["core_hours"] is not None]
    else:
        listed = [line for line in every if line["seeds"] > 1]
    listed.sort(key=_open_last)
    shown: list[dict[str, object]] = []
    for line in listed:
        name = f"{words.table_of(line)}, {words.column_of(line)}: {line['claim']}"
        row: dict[str, object] = {"claim": name, "published": words.published(line)}
        if args.prices:
            row["price"] = _price(line["core_hours"])
        else:
            row["measured"] = words.measured(line)
            row["seeds"] = words.seeds(line)
            row["profile"] = line["profile"]
        row["verdict"] = words.sentence(line)
        shown.append(row)
    terminal.show(args, every, shown)
    if not args.form and not args.prices:
        print(terminal.fold(_summary(every), terminal.width()))


def _open_last(line: Mapping[Any, Any]) -> tuple[bool, str]:
    """The key by which lines are sorted: by verdict, those without one at the end."""
    return line["verdict"] == "open", line["verdict"]


def _price(core_hours: float) -> str:
    if math.isinf(core_hours):
        return "out of reach on two cores"
    return f"{core_hours:.1f} core-hours"


def _summary(lines: Sequence[Mapping[Any, Any]]) -> str:
    """How many lines have each verdict, and what the list leaves out."""
    verdicts = Counter(line["verdict"] for line in lines)
    counts = "; ".join(f"{verdict}: {count}" for verdict, count in verdicts.most_common())
    single = sum(line["seeds"] == 1 for line in lines)
    return f"{counts}. {single} lines of one seed are left out, see --csv; --prices says what would decide a claim."
