"""Lines of a command: a table that fits the terminal, or JSON or CSV for another program."""

from __future__ import annotations

import csv
import io
import json
import math
import shutil
import sys
import textwrap
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from contrastlab.support import escape, shipped
from contrastlab.support.errors import check

FOLDERS = (Path("runs"), *shipped.RESULTS)
"""Folders whose results are listed where none is named."""


def add_forms(parser: ArgumentParser, *, results: bool = False) -> None:
    """Give a command the options ``--json`` and ``--csv``, and ``--results`` where it reads results."""
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", dest="form", action="store_const", const="json", help="print JSON, all fields")
    form.add_argument("--csv", dest="form", action="store_const", const="csv", help="print CSV, all fields")
    if results:
        folders = "folder of results; default runs, results and those that came with the package"
        parser.add_argument("--results", action="append", help=folders)


def folders(argument: str, given: Sequence[str] | None) -> Sequence[str | Path]:
    """The folders that are asked for, which must exist, or the usual ones, which need not."""
    for folder in given or ():
        check(Path(folder).is_dir(), argument, folder, "a folder that exists")
    return given or [folder for folder in FOLDERS if folder.is_dir()]


def width() -> int | None:
    """Columns of the terminal; ``None`` where another program reads."""
    if not sys.stdout.isatty():
        return None
    return shutil.get_terminal_size().columns


def table(heads: Sequence[str], rows: Iterable[Sequence[object]], wide: int | None) -> str:
    """Rows below their heads, folded to ``wide`` columns; ``None``: a line each, whatever its length."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, pad_edge=False)
    for head in heads:
        grid.add_column(Text(head), overflow="fold")
    for row in rows:
        grid.add_row(*(Text(escape.line(cell)) for cell in row))
    console = Console(file=io.StringIO(), width=wide or 100_000, color_system=None, force_jupyter=False)
    with console.capture() as captured:
        console.print(grid)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def fold(text: str, wide: int | None) -> str:
    """A sentence on lines of at most ``wide`` columns; ``None``: on one."""
    if wide is None:
        return text
    return textwrap.fill(text, wide, subsequent_indent="  ")


def _finite(record: Mapping[Any, Any]) -> dict[Any, Any]:
    """A record with ``None`` for its values that are infinite or NaN."""
    finite = dict(record)
    for name, value in record.items():
        if isinstance(value, float) and not math.isfinite(value):
            finite[name] = None
    return finite


def show(args: Namespace, records: Sequence[Mapping[Any, Any]], rows: Iterable[Mapping[str, object]]) -> None:
    """Print what a command lists: ``records`` for another program (:func:`add_forms`), ``rows`` for a person.

    JSON has neither infinity nor NaN: both are ``null`` there.
    """
    if args.form == "json":
        finite_records = [_finite(record) for record in records]
        print(json.dumps(finite_records, indent=1, ensure_ascii=False, allow_nan=False))
    elif args.form == "csv":
        heads = list(records[0]) if records else []
        writer = csv.DictWriter(sys.stdout, heads, lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)
    else:
        lines = list(rows)
        if lines:
            cells = [list(line.values()) for line in lines]
            print(table(list(lines[0]), cells, width()))
