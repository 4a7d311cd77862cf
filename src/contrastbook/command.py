"""The command ``contrastlab claims``, which the command line finds through the entry point ``contrastlab.commands``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from contrastlab.__main__ import RESULTS_HELP, result_folders


def add(commands: Any) -> None:
    """Add the command to argparse's subcommands."""
    claims = commands.add_parser("claims", help="every claimed difference beside what the stored runs say of it")
    claims.add_argument("--results", action="append", help=RESULTS_HELP)
    claims.add_argument("--out", type=Path, help="also write the lines to this file (csv, parquet), and what they mean")
    claims.set_defaults(action=_claims)


def _claims(args: argparse.Namespace) -> None:
    import pandas as pd
    import torch

    from contrastbook.evidence import claims
    from contrastlab import results

    torch.set_num_threads(1)  # more would wait for each other
    if args.out is not None:
        claims.check_path(args.out)
    lines = claims.frame(results.find(result_folders("results", args.results)))
    for line in lines[lines["gain"].notna()].to_dict("records"):
        ends = "" if pd.isna(line["low"]) else f" [{line['low']:+.2f}, {line['high']:+.2f}]"
        print(
            f"{claims.table_of(line)}, {claims.column_of(line)}, {line['profile']}: {line['claim']}"
            f" published {claims.published(line)}, measured {line['gain']:+.2f}{ends}; {claims.sentence(line)}"
        )
    print(f"{int((lines['verdict'] == 'not run').sum())} claims have no run.")
    if args.out is not None:
        print("Written:", *claims.write(lines, args.out))
