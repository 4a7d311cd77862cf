"""The command ``contrastlab claims``, which the command line finds through the entry point ``contrastlab.commands``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, cast

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
    every = cast("list[dict[str, Any]]", lines.astype(object).where(lines.notna(), None).to_dict("records"))
    measured = [line for line in every if line["gain"] is not None]
    terminal.show(args, every, (
        {
            "claim": f"{claims.table_of(line)}, {claims.column_of(line)}: {line['claim']}",
            "published": claims.published(line),
            "measured": f"{line['gain']:+.2f}" + _ends(line["low"], line["high"]),
            "seeds": line["used"], "profile": line["profile"], "verdict": claims.sentence(line),
        }
        for line in measured
    ))  # fmt: skip
    if not args.form:
        print(f"{len(every) - len(measured)} claims have no run.")
    if args.out is not None:
        print("Written:", *claims.write(lines, args.out))


def _ends(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f" [{low:+.2f}, {high:+.2f}]"
