"""What the folder of a run says of it, read without PyTorch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from contrastlab import files
from contrastlab.checkpoint import Artefact
from contrastlab.errors import CorruptFileError

RECORD = "run.json"
NEEDED = {
    "schema": int, "hash": str, "recipe": dict, "dataset": str, "seed": int, "history": list, "seconds": int | float,
    "images": int | float,
}  # fmt: skip


def read_record(folder: Path) -> dict[str, Any]:
    """What the ``run.json`` of a folder says; a ``CorruptFileError`` names one that is damaged or newer."""
    record, reason = Artefact(folder, "", RECORD, "run", NEEDED).read(), ""
    if not re.fullmatch("[0-9a-f]{64}", record["hash"]):
        reason = f"hash={record['hash']!r}: accepted are 64 hexadecimal digits"
    if not isinstance(record["recipe"].get("name"), str):
        reason = "its recipe has no name"
    if reason:
        raise CorruptFileError(f"{folder / RECORD} is no record of a run ({reason}); delete its folder and run it anew")
    return record


def records(roots: Iterable[Path | str]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Folder and record of every finished run under ``roots``."""
    for root in roots:
        for path in files.listed(Path(root), f"encoders/*/{RECORD}"):
            yield path.parent, read_record(path.parent)
