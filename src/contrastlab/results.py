"""Stored results: one JSON file per run, task and seed, whole or not there at all.

``<root>/cells/<data set>/<profile>/<method>-seed<k>-<task>-<hash>.json``, where the hash is over what decides the
number: recipe, settings of training, task and data. A field at its default leaves no trace in it, so a new field
orphans nothing. A file is read back only if its content still has that hash, the name that was made from it, and the
checksum it was written with. Files of schema 1, one per table and seed, are read, too; they and older files of schema 2
carry no checksum.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from pydantic import ConfigDict, Field, ValidationError, computed_field, model_validator
from torch import Tensor

from contrastlab import files, methods, tasks
from contrastlab.errors import ContrastLabError, CorruptFileError, reject
from contrastlab.provenance import Provenance, _Stored, provenance
from contrastlab.settings import Settings

__all__ = [
    "Provenance",
    "Result",
    "digest",
    "find",
    "location",
    "pack",
    "provenance",
    "read",
    "save",
    "setup",
    "slug",
    "unpack",
]


class Result(_Stored):
    """What one task says of the encoders of one run."""

    schema_version: Literal[2] = Field(2, alias="schema")
    table: str = Field(description="the table it was first computed for, such as ring/table1; others may show it")
    dataset: str = Field(description="pre-training data")
    on: str = Field("", description="data the task scores on; empty: those of pre-training")
    method: str = Field(description="full name, such as ring/iring or ours/random")
    seed: int
    profile: str
    task: str = Field(description="name in contrastlab.tasks.TASKS")
    task_config: dict[str, Any] = Field(description="Task.identity(): its fields that are not at their default")
    protocol: dict[str, Any] = Field(description="how the metrics were taken, in words and numbers for a reader")
    items: int = Field(ge=1, description="test items the metrics were taken on")
    settings: dict[str, Any] = Field(description="Settings.model_dump(mode='json'), whole")
    recipe: dict[str, Any] = Field(description="Recipe.describe()")
    metrics: dict[str, float] = Field(description="in the unit that the metric declares")
    half_widths: dict[str, float] = Field(
        default_factory=dict, description="95 % half-widths of sampling errors that cannot be computed from a metric"
    )
    correct: dict[str, str] = Field(default_factory=dict, description="by metric, which test items were right: pack()")
    curve: list[dict[str, float]] = Field(default_factory=list, description="one row per epoch; losses in nats")
    precision: str = Field("32-true", description="precision the encoders were trained in")
    provenance: Provenance

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, raw: dict[str, Any]) -> dict[str, Any]:
        # Tuples become lists now, so that a result equals itself after a round trip through its file.
        keys = [key for key in ("settings", "recipe", "protocol", "task_config") if key in raw]
        plain: dict[str, Any] = {key: json.loads(json.dumps(raw[key])) for key in keys}
        return {**raw, **plain}

    @model_validator(mode="after")
    def _finite(self) -> Self:
        for kind in ("metrics", "half_widths"):
            for name, value in getattr(self, kind).items():
                if not math.isfinite(value):
                    raise ValueError(f"{kind}[{name!r}]={value!r}: accepted is a finite number")
        for epoch, row in enumerate(self.curve):
            for name, value in row.items():
                if not math.isfinite(value):
                    raise ValueError(f"curve[{epoch}][{name!r}]={value!r}: accepted is a finite number")
        return self

    @cached_property
    def setup(self) -> str:
        """Hash of recipe, settings and task: equal for results that a table may show in one row, whatever the data."""
        return setup(self.recipe, self.settings, self.task, self.task_config)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def config_hash(self) -> str:
        """Hash of setup and data: equal for results that may be averaged over seeds."""
        return digest({"setup": self.setup, "data": self.provenance.data_fingerprint})


def slug(table: int | str) -> str:
    """``table5b`` of ``"5b"``; a figure is called by its kind, ``"figure2"``, and stays as it is."""
    return str(table) if str(table).startswith("figure") else f"table{table}"


def digest(config: Mapping[str, Any]) -> str:
    """SHA-256 of the canonical JSON of ``config``: 64 hexadecimal digits."""
    text = json.dumps(config, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def setup(recipe: Mapping[str, Any], settings: Mapping[str, Any], task: str, task_config: Mapping[str, Any]) -> str:
    """Hash of what decides a number beside data and seed.

    Args:
        recipe: ``Recipe.describe()``; the name is no part of it.
        settings: ``Settings.model_dump(mode="json")``.
        task: its name.
        task_config: ``Task.identity()``.
    """
    plain = json.loads(json.dumps(dict(recipe)))
    trained = plain.get("keys") is not None
    return digest(
        {
            "recipe": {key: value for key, value in plain.items() if key != "name"},
            "settings": Settings.model_validate(dict(settings)).identity(trained),
            "task": {"name": task, **task_config},
        }
    )


def pack(right: Tensor) -> str:
    """A boolean ``[N]`` as text, a bit each: ``N`` and a colon before base64."""
    bits = np.packbits(right.cpu().numpy().astype(bool))
    return f"{len(right)}:{base64.b64encode(bits.tobytes()).decode()}"


def unpack(text: str) -> Tensor:
    """The boolean ``[N]`` that :func:`pack` made a text of.

    Raises:
        CorruptFileError: it is no such text, or has not as many bits as it says.
    """
    count, _, bits = text.partition(":")
    try:
        packed, length = base64.b64decode(bits, validate=True), int(count)
        if len(packed) != (length + 7) // 8:
            raise ValueError(f"{len(packed)} bytes for {length} items")
    except ValueError as error:
        raise CorruptFileError(f"which items were right, {text[:40]!r}, cannot be read: {error}") from error
    known = np.unpackbits(np.frombuffer(packed, dtype=np.uint8), count=length)
    return torch.from_numpy(known.astype(bool))


def _slug(name: str) -> str:
    """A file name for ``name``; a name that loses characters keeps apart from others by a hash."""
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-") or "unnamed"
    return slug if slug == name else f"{slug[-60:]}-{hashlib.sha256(name.encode()).hexdigest()[:6]}"


def location(
    root: Path | str, *, dataset: str, profile: str, method: str, seed: int, task: str, hash_: str, on: str = ""
) -> Path:
    """Where the result of one task on one run lies under ``root``, stored or not."""
    asked = f"{_slug(task)}-{_slug(on)}" if on else _slug(task)
    name = f"{_slug(method.replace('/', '-'))}-seed{int(seed)}-{asked}-{_slug(hash_[:8])}.json"
    return Path(root) / "cells" / _slug(dataset) / _slug(profile) / name


def _path(result: Result, root: Path | str) -> Path:
    return location(
        root, dataset=result.dataset, profile=result.profile, method=result.method, seed=result.seed,
        task=result.task, hash_=result.config_hash, on=result.on,
    )  # fmt: skip


def save(result: Result, root: Path | str) -> Path:
    """Write ``result`` under ``root`` so that a reader sees all of it or nothing; gives the file.

    Raises:
        StorageError: it cannot be written; nothing is left half-written.
    """
    stored = files.with_checksum(result.model_dump(mode="json", by_alias=True))
    text = json.dumps(stored, indent=1, ensure_ascii=False, allow_nan=False)
    return files.write_whole(_path(result, root), text + "\n")


def read(path: Path | str) -> tuple[Result, ...]:
    """The results stored in ``path``: one, or of a file of schema 1 one for each of its tasks.

    Raises:
        FileNotFoundError: there is no such file.
        CorruptFileError: it is not a whole, unaltered result under its own name.
    """
    path = Path(path)
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        schema = raw.get("schema")
        if schema not in (1, 2):
            raise ValueError(
                f"schema={schema!r}: accepted is 1 or 2; a newer version of this package may have written it"
            )
        raw = files.verified(raw)
        stored = raw.pop("config_hash", None)
        made = _from_schema_1(raw) if schema == 1 else (Result.model_validate(raw),)
        expected = _schema_1_hash(raw) if schema == 1 else made[0].config_hash
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError, ContrastLabError) as error:
        reason = _reason(error)
        raise CorruptFileError(f"{path} is not a stored result: {reason}. Delete it and run the cell again.") from error
    if stored != expected:
        raise CorruptFileError(
            f"{path} was altered after it was written: its settings, recipe and data do not have the hash"
            f" {str(stored)[:8]} it carries. Restore it, or delete it and run the cell again."
        )
    if schema != 1 and path.name != _path(made[0], "").name:
        raise CorruptFileError(
            f"{path} was renamed or exchanged: what it holds is {_path(made[0], '').name}. Restore it, or delete it and"
            " run the cell again."
        )
    return made


def _schema_1_hash(raw: Mapping[str, Any]) -> str:
    return digest({"settings": raw["settings"], "recipe": raw["recipe"], "data": raw["provenance"]["data_fingerprint"]})


def _from_schema_1(raw: Mapping[str, Any]) -> tuple[Result, ...]:
    """Schema 1 held a table's cell: a linear probe and nearest neighbours of one image set, all fields written out."""
    settings = Settings.from_schema_1(raw["settings"])
    profile = "pilot" if raw["profile"] == "laptop" else raw["profile"]  # its name since there is a searched one
    shared = {
        "table": f"{raw['paper']}/{slug(raw['table'])}",
        **{key: raw[key] for key in ("dataset", "method", "seed")},
        "profile": profile,
        "items": raw["test_images"],
        "settings": settings.model_dump(mode="json"),
        "recipe": methods.canonical(raw["recipe"]),
        "curve": raw["curve"],
        "precision": settings.precision,
        "provenance": raw["provenance"],
    }
    return tuple(
        Result.model_validate(
            {
                **shared,
                "task": task.name,
                "task_config": task.identity(),
                "protocol": raw["protocol"],
                "metrics": {m.name: raw["metrics"][m.name] for m in task.metrics if m.name in raw["metrics"]},
            }
        )
        for task in (tasks.Linear.of(settings), tasks.Neighbours.of(settings))
    )


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc'])) or 'file'}: {first['msg']}"
    return str(error)


def find(
    root: Path | str | Iterable[Path | str],
    *,
    table: str | None = None,
    dataset: str | None = None,
    profile: str | None = None,
    method: str | None = None,
    task: str | None = None,
    seed: int | None = None,
) -> list[Result]:
    """All stored results under ``root`` that match, in the order of their paths; none twice.

    Args:
        root: such as ``results`` or ``runs``, or several; a folder that does not exist holds no results.
        table: first computed for this table, such as ``ring/table1``; ``None``, here and below, is any.
        dataset: of pre-training, as it was run.
        profile: one of the ``profiles`` of a table.
        method: full name, such as ``ring/iring``.
        task: its name.
        seed: of the run.

    Raises:
        ArgumentError: ``root`` is a file.
        CorruptFileError: files that should be results are none; the message names each.
    """
    wanted = {"table": table, "dataset": dataset, "profile": profile, "method": method, "task": task, "seed": seed}
    known: dict[tuple[str | int, ...], Result] = {}
    damaged: list[CorruptFileError] = []
    folders = [root] if isinstance(root, str | Path) else root
    for base in {Path(folder).resolve(): Path(folder) for folder in folders}.values():
        if base.exists() and not base.is_dir():
            raise reject("root", str(base), "a folder")
        inner = f"{_slug(dataset) if dataset else '*'}/{_slug(profile) if profile else '*'}/*-seed*-*.json"
        for path in (*sorted(base.glob(f"cells/{inner}")), *sorted(base.glob(f"*_*/{inner}"))):
            try:
                found = read(path)
            except CorruptFileError as error:
                damaged.append(error)
                continue
            for r in found:
                if all(value is None or getattr(r, key) == value for key, value in wanted.items()):
                    known.setdefault((r.config_hash, r.dataset, r.on, r.profile, r.method, r.seed), r)
    if len(damaged) > 1:
        raise CorruptFileError(f"{len(damaged)} damaged results: " + " ".join(map(str, damaged)))
    if damaged:
        raise damaged[0]
    return list(known.values())
