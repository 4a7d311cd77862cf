"""The command ``contrastlab claims``, which the command line finds through the entry point ``contrastlab.commands``."""

from __future__ import annotations

import argparse
from typing import Any

from contrastlab import terminal


def add(commands: Any) -> None:
    """Add the command to argparse's subcommands."""
    claims = commands.add_parser("claims", help="every claimed difference beside what the stored runs say of it")
    claims.add_argument("--prices", action="store_true", help="those without a verdict, and core-hours to decide each")
    terminal.add_forms(claims, results=True)
    claims.set_defaults(action=_claims)


def _claims(args: argparse.Namespace) -> None:
    from contrastlab import results  # before pandas, which it misses by name

    # isort: split
    from contrastbook.evidence import claims

    lines = claims.frame(results.find(terminal.folders("results", args.results)))
    every: Any = lines.astype(object).where(lines.notna(), None).to_dict("records")
    asked = [line for line in every if line["core_hours" if args.prices else "gain"] is not None]
    shown: list[dict[str, object]] = []
    for line in asked:
        name = f"{claims.table_of(line)}, {claims.column_of(line)}: {line['claim']}"
        shown.append({"claim": name, "published": claims.published(line)})
        if args.prices:
            cost = f"{line['core_hours']:.1f} core-hours".replace("inf core-hours", "out of reach on two cores")
            shown[-1] |= {"price": cost, "why": claims.sentence(line)}
            continue
        ends = "" if line["low"] is None else f" [{line['low']:+.2f}, {line['high']:+.2f}]"
        seeds = {"seeds": line["used"], "profile": line["profile"], "verdict": claims.sentence(line)}
        shown[-1] |= {"measured": f"{line['gain']:+.2f}{ends}", **seeds}
    terminal.show(args, every, shown)
    if not args.form and not args.prices:
        left = len(every) - len(asked)
        print(terminal.fold(f"{left} claims have no run; --prices says what would decide them.", terminal.width()))
