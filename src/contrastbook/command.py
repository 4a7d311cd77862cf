"""The command ``contrastlab claims``, which the command line finds through the entry point ``contrastlab.commands``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from contrastlab import terminal


def add(commands: Any) -> None:
    """Add the command to argparse's subcommands."""
    claims = commands.add_parser("claims", help="every claimed difference beside what the stored runs say of it")
    claims.add_argument("--out", type=Path, help="also write the lines to this file (csv, parquet), and what they mean")
    terminal.add_forms(claims, results=True)
    claims.set_defaults(action=_claims)


def _claims(args: argparse.Namespace) -> None:
    from contrastbook.evidence import claims
    from contrastlab import results

    if args.out is not None:
        claims.check_path(args.out)
    lines = claims.frame(results.find(terminal.folders("results", args.results)))
    every: Any = lines.astype(object).where(lines.notna(), None).to_dict("records")
    measured = [line for line in every if line["gain"] is not None]
    shown = []
    for line in measured:
        ends = "" if line["low"] is None else f" [{line['low']:+.2f}, {line['high']:+.2f}]"
        shown.append({
            "claim": f"{claims.table_of(line)}, {claims.column_of(line)}: {line['claim']}",
            "published": claims.published(line), "measured": f"{line['gain']:+.2f}{ends}",
            "seeds": line["used"], "profile": line["profile"], "verdict": claims.sentence(line),
        })  # fmt: skip
    terminal.show(args, every, shown)
    if not args.form:
        print(f"{len(every) - len(measured)} claims have no run.")
    if args.out is not None:
        print("Written:", *claims.write(lines, args.out))
