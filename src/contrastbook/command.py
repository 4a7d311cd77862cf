"""The command ``contrastlab claims``, which the command line finds through the entry point ``contrastlab.commands``."""

from __future__ import annotations

import argparse
from collections import Counter
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
    from contrastbook.evidence import claims

    lines = claims.frame(results.find(terminal.folders("results", args.results)))
    every: Any = lines.astype(object).where(lines.notna(), None).to_dict("records")
    told = [line for line in every if (line["core_hours"] is not None if args.prices else line["seeds"] > 1)]
    shown: list[dict[str, object]] = []
    for line in sorted(told, key=lambda line: (line["verdict"] == "open", line["verdict"])):
        name = f"{claims.table_of(line)}, {claims.column_of(line)}: {line['claim']}"
        row = {"claim": name, "published": claims.published(line)}
        if args.prices:
            row["price"] = f"{line['core_hours']:.1f} core-hours".replace("inf core-hours", "out of reach on two cores")
        else:
            row |= {"measured": claims.measured(line), "seeds": line["used"], "profile": line["profile"]}
        shown.append({**row, "verdict": claims.sentence(line)})
    terminal.show(args, every, shown)
    if not args.form and not args.prices:
        counts = "; ".join(f"{each}: {n}" for each, n in Counter(line["verdict"] for line in every).most_common())
        single = f"{sum(line['seeds'] == 1 for line in every)} lines of one seed are left out, see --csv"
        print(terminal.fold(f"{counts}. {single}; --prices says what would decide a claim.", terminal.width()))
