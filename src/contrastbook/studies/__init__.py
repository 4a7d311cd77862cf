"""Experiments of the papers outside their tables of encoders, and crosses of their choices.

A study is a function from a configuration to rows of numbers. :func:`measure` stores the rows with the
configuration and their provenance, and reads them back when the same configuration is asked for again.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

import pandas as pd
from pydantic import Field, ValidationError

from contrastlab.settings import FrozenModel
from contrastlab.support import files
from contrastlab.support.errors import CorruptFileError, MissingDataError, unknown
from contrastlab.tables import results

Row = dict[str, float | int | str | None]
Entry = TypeVar("Entry")


class Study(FrozenModel):
    """Rows measured under one configuration."""

    study: str = Field(description="such as vince_table3")
    profile: str
    config: dict[str, Any] = Field(description="everything that decides the numbers")
    rows: list[Row]
    provenance: dict[str, Any] = Field(description="results.provenance() and started, finished (UTC), wall_s, cpu_s")
    schema_version: Literal[1] = 1


def location(root: Path | str, study: str, profile: str, config: Mapping[str, Any]) -> Path:
    """The file that holds these rows under ``root``, measured or not."""
    text = json.dumps(config, sort_keys=True, allow_nan=False)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Path(root) / study / f"{profile}-{digest[:8]}.json"


def read(path: Path | str) -> Study:
    """The study stored in ``path``; a ``CorruptFileError`` where it is not whole or its name is another's."""
    path = Path(path)
    try:
        study = Study.model_validate(files.read_record(path))
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
        raise CorruptFileError(f"{path} is not a stored study: {reason}. Delete it.") from error
    if path.name != location("", study.study, study.profile, study.config).name:
        raise CorruptFileError(f"{path} was altered or renamed: its configuration has another hash. Delete it.")
    return study


def stored(study: str, profile: str, config: Mapping[str, Any], roots: Sequence[Path | str]) -> Study | None:
    """The rows of this configuration from the first of the folders that holds them; ``None`` where none does."""
    for root in roots:
        path = location(root, study, profile, config)
        if path.exists():
            return read(path)
    return None


def stored_rows(study: str, profile: str, roots: Sequence[Path | str], index: Sequence[str]) -> pd.DataFrame:
    """All rows that are stored of a study in a profile, sorted by ``index``.

    Each configuration is read once, from the first folder that has it.

    Raises:
        MissingDataError: none is stored.
    """
    paths: dict[str, Path] = {}
    for root in roots:
        for path in Path(root).joinpath(study).glob(f"{profile}-*.json"):
            paths.setdefault(path.name, path)
    rows: list[dict[str, Any]] = []
    for name in sorted(paths):
        rows += [dict(row) for row in read(paths[name]).rows]
    if not rows:
        folders = ", ".join(map(str, roots))
        raise MissingDataError(f"nothing of the study {study} in profile {profile} is stored under {folders}")
    return pd.DataFrame(rows).set_index(list(index)).sort_index()


def measure(
    study: str,
    profile: str,
    config: Mapping[str, Any],
    run: Callable[[], Sequence[Row]],
    *,
    out_dir: Path | str,
    read_also: Sequence[Path | str] = (),
) -> Study:
    """The stored rows of this configuration; measured with ``run`` and stored where there are none."""
    earlier = stored(study, profile, config, (out_dir, *read_also))
    if earlier is not None:
        return earlier
    started = datetime.now(UTC)
    wall = time.perf_counter()
    cpu = time.process_time()
    rows = [dict(row) for row in run()]
    origin = results.provenance() | {
        "started": started.isoformat(),
        "finished": datetime.now(UTC).isoformat(),
        "wall_s": time.perf_counter() - wall,
        "cpu_s": time.process_time() - cpu,
    }
    measured = Study(study=study, profile=profile, config=dict(config), rows=rows, provenance=origin)
    path = location(out_dir, study, profile, config)
    files.write_record(path, measured.model_dump(mode="json"))
    return read(path)


def lookup(table: Mapping[str, Entry], name: str, kind: str = "profile") -> Entry:
    """``table[name]``, or an ``UnknownNameError`` with near matches."""
    if name not in table:
        raise unknown(kind, name, table)
    return table[name]
