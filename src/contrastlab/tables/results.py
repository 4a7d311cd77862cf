"""Stored results: ``<root>/cells/<data set>/<profile>/<method>-seed<k>-<task>-<hash>.json``.

The hash is over what decides the number: recipe, settings of training, task and data. A file is read back only if its
content still has that hash, the name made from it, and its checksum (older files have none). :func:`find` checks a file
again only when its size or times have changed, and :func:`headings` does not even read it before. In a wheel all
results are in one file: ``shipped.ARCHIVE``.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import contrastlab.support.lab  # noqa: F401

import numpy as np
from pydantic import ConfigDict, Field, ValidationError, ValidationInfo, computed_field, model_validator
from pydantic_core import from_json

from contrastlab.settings import FrozenModel, Settings
from contrastlab.support import checksums, files, shipped
from contrastlab.support.cache import Cache
from contrastlab.support.errors import ContrastLabError, CorruptFileError, reject
from contrastlab.support.provenance import Clock, Provenance, provenance

if TYPE_CHECKING:  # results are read without torch
    from torch import Tensor

__all__ = [
    "FOREIGN",
    "UNTRAINED",
    "Clock",
    "Heading",
    "Provenance",
    "Result",
    "bits",
    "digest",
    "find",
    "headings",
    "location",
    "look_up",
    "pack",
    "provenance",
    "read",
    "save",
    "setup_hash",
    "whole_hash",
]

FOREIGN = "foreign/"
"""How the method of a result begins whose encoder was not trained here; its recipe says ``foreign`` and no parts."""

UNTRAINED = "untrained"
"""What stands for the hash of a foreign network's weights, or before it, where it is a floor."""

_Read = TypeVar("_Read", "Result", "Heading")

_FROM_A_FILE = "from a file"  # context of a validation: JSON has no tuples


@dataclass(frozen=True)
class Heading:
    """Which result it is, without its numbers; the fields are those of :class:`Result`."""

    table: str
    dataset: str
    on: str
    profile: str
    method: str
    seed: int
    task: str
    setup_hash: str


class Result(FrozenModel):
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
    # 95 % half-widths of sampling errors that cannot be computed from a metric
    half_widths: dict[str, float] = Field(default_factory=dict)
    correct: dict[str, str] = Field(default_factory=dict, description="by metric, which test items were right: pack()")
    curve: list[dict[str, float]] = Field(default_factory=list, description="one row per epoch; losses in nats")
    precision: str = Field("32-true", description="precision the encoders were trained in")
    provenance: Provenance

    model_config = ConfigDict(populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, raw: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        # Tuples become lists now, so that a result equals itself after a round trip through its file.
        if info.context == _FROM_A_FILE:
            return raw
        plain = dict(raw)
        for name in ("settings", "recipe", "protocol", "task_config"):
            if name in raw:
                plain[name] = json.loads(json.dumps(raw[name]))
        return plain

    @cached_property
    def setup_hash(self) -> str:
        """Hash of recipe, settings and task: equal for results that a table may show in one row, whatever the data."""
        return setup_hash(self.recipe, self.settings, self.task, self.task_config)

    @property
    def heading(self) -> Heading:
        """Which result it is."""
        return Heading(
            table=self.table,
            dataset=self.dataset,
            on=self.on,
            profile=self.profile,
            method=self.method,
            seed=self.seed,
            task=self.task,
            setup_hash=self.setup_hash,
        )

    @computed_field  # type: ignore[prop-decorator]
    @property
    def config_hash(self) -> str:
        """Hash of the setup hash and the data: equal for results that may be averaged over seeds."""
        return whole_hash(self.setup_hash, self.provenance.data_fingerprint, self.recipe, self.provenance.processes)


def digest(config: Mapping[str, Any]) -> str:
    """SHA-256 of the canonical JSON of ``config``: 64 hexadecimal digits."""
    text = json.dumps(config, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def setup_hash(
    recipe: Mapping[str, Any], settings: Settings | Mapping[str, Any], task: str, task_config: Mapping[str, Any]
) -> str:
    """Hash of what decides a number beside data and seed; mappings are as in a :class:`Result`."""
    if not isinstance(settings, Settings):
        settings = Settings.model_validate(dict(settings))
    unnamed = {name: value for name, value in recipe.items() if name != "name"}
    trained = recipe.get("keys") is not None
    return digest({"recipe": unnamed, "settings": settings.identity(trained), "task": {"name": task, **task_config}})


def whole_hash(setup_hash: str, data: str, recipe: Mapping[str, Any], processes: int) -> str:
    """Hash of what decides a number beside the seed: also the processes that trained, where there are several."""
    decisive: dict[str, Any] = {"setup": setup_hash, "data": data}
    if processes > 1 and recipe.get("keys") is not None:
        decisive["processes"] = processes
    return digest(decisive)


def pack(right: Tensor) -> str:
    """A boolean ``[N]`` as text, a bit each: ``N`` and a colon before base64."""
    packed = np.packbits(right.cpu().numpy().astype(bool))
    return f"{len(right)}:{base64.b64encode(packed.tobytes()).decode()}"


def bits(text: str) -> np.ndarray:
    """The boolean ``[N]`` that :func:`pack` made a text of; a ``CorruptFileError`` for any other text."""
    count, _, content = text.partition(":")
    try:
        packed = base64.b64decode(content, validate=True)
        length = int(count)
        if len(packed) != (length + 7) // 8:
            raise ValueError(f"{len(packed)} bytes for {length} items")
    except ValueError as error:
        raise CorruptFileError(f"which items were right, {text[:40]!r}, cannot be read: {error}") from error
    flags = np.unpackbits(np.frombuffer(packed, dtype=np.uint8), count=length)
    return flags.astype(bool)


_RESTORE = "Restore it, or delete it and run the cell again."
_CHECKSUMS_SINCE = "2026-11-22T08"  # of results that were finished before, some have none
_SETTLED_S = 2  # seconds after which a change of a file also changes its time stamp


def _slug(name: str) -> str:
    """A file name for ``name``; a name that loses characters keeps apart from others by a hash."""
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-") or "unnamed"
    if slug == name:
        return slug
    name_hash = hashlib.sha256(name.encode()).hexdigest()
    return f"{slug[-60:]}-{name_hash[:6]}"


def location(
    root: Path | str, *, dataset: str, profile: str, method: str, seed: int, task: str, hash_: str, on: str = ""
) -> Path:
    """Where the result of one task on one run lies under ``root``, stored or not."""
    method_slug = _slug(method.replace("/", "-"))
    scored = _slug(task)
    if on:
        scored = f"{scored}-{_slug(on)}"
    name = f"{method_slug}-seed{int(seed)}-{scored}-{_slug(hash_[:8])}.json"
    return Path(root) / "cells" / _slug(dataset) / _slug(profile) / name


def _path(result: Result, root: Path | str) -> Path:
    return location(
        root,
        dataset=result.dataset,
        profile=result.profile,
        method=result.method,
        seed=result.seed,
        task=result.task,
        hash_=result.config_hash,
        on=result.on,
    )


def save(result: Result, root: Path | str) -> Path:
    """Write ``result`` under ``root`` so that a reader sees all of it or nothing; gives the file."""
    return files.write_record(_path(result, root), result.model_dump(mode="json", by_alias=True))


def read(path: Path | str) -> Result:
    """The result stored in ``path``; a ``CorruptFileError`` if it is not whole, unaltered and under its own name."""
    path = Path(path)
    return _verified(_Entry(path, path, partial(_json, path)))


def _json(path: Path) -> Any:
    files.check_regular(path)
    return from_json(path.read_bytes())  # json.loads takes twice as long, and a list reads thousands


def _verified(entry: _Entry) -> Result:
    """A stored result; refused unless it is whole, unaltered and under its own name."""
    try:
        record = entry.load()
        _check_schema(record)
        result, stated_hash = _parse(_with_valid_checksum(record))
        expected_hash = result.config_hash
    except _UNREADABLE as error:
        raise _unreadable(entry.path, error) from error
    if stated_hash != expected_hash:
        wrong = f"its settings, recipe and data do not have the hash {str(stated_hash)[:8]} it carries"
        raise CorruptFileError(f"{entry.path} was altered after it was written: {wrong}. {_RESTORE}")
    expected_name = _path(result, "").name
    if entry.path.name != expected_name:
        raise CorruptFileError(f"{entry.path} was renamed or exchanged: what it holds is {expected_name}. {_RESTORE}")
    return result


def _verified_before(entry: _Entry, setup_hash: str) -> Result:
    """A stored result whose file has not changed since it was verified; ``setup_hash`` was stored then."""
    try:
        record = entry.load()
        _check_schema(record)
        result, _ = _parse(record)
    except _UNREADABLE as error:
        raise _unreadable(entry.path, error) from error
    result.__dict__["setup_hash"] = setup_hash  # in place of computing it
    return result


_UNREADABLE = (ValueError, TypeError, AttributeError, KeyError, RecursionError, ContrastLabError)
"""What reading a record that is no result may raise."""


def _unreadable(path: Path, error: Exception) -> CorruptFileError:
    """The error of a file that holds no result."""
    reason = _why_unreadable(error)
    return CorruptFileError(f"{path} is not a stored result: {reason}. Delete it and run the cell again.")


def _check_schema(record: dict[str, Any]) -> None:
    """Refuse a record of another schema."""
    schema = record.get("schema")
    if schema != 2:
        raise ValueError(f"schema={schema!r}: expected 2; a newer version of this package may have written it")


def _with_valid_checksum(record: dict[str, Any]) -> dict[str, Any]:
    """The record without its checksum, if that is right; only old records may have none."""
    if checksums.CHECKSUM not in record and record["provenance"]["finished"] > _CHECKSUMS_SINCE:
        raise ValueError("its checksum is missing")
    return checksums.verified(record)


def _parse(record: dict[str, Any]) -> tuple[Result, Any]:
    """The result of a record, and the hash that the record states."""
    stated_hash = record.pop("config_hash", None)
    record.pop(checksums.CHECKSUM, None)
    return Result.model_validate(record, context=_FROM_A_FILE), stated_hash


def _why_unreadable(error: Exception) -> str:
    """The message of an error; of pydantic's, the first field that is wrong and why."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"]) or "file"
    return f"{field}: {first['msg']}"


def look_up(roots: Iterable[Path | str], *, method: str, hash_: str, **place: Any) -> Result | None:
    """The first result with that hash at a :func:`location`, of this recipe under whatever name: papers share them."""
    for root in roots:
        path = location(root, method=method, hash_=hash_, **place)
        any_method = path.name.replace(method.replace("/", "-"), "*", 1)
        entries = list(_stored(Path(root), f"{path.parts[-3]}/{path.parts[-2]}/{any_method}"))
        entries.sort(key=lambda entry: entry.path != path)  # the method's own name first
        for entry in entries:
            result = _verified(entry)
            if result.config_hash == hash_:
                return result
    return None


@dataclass(frozen=True)
class _Entry:
    """A stored result that has not been read yet."""

    path: Path  # where it lies; for one in an archive, where it would lie outside
    file: Path  # that it is in: its own, or the archive
    load: Callable[[], Any]  # reads its JSON


def _stored(root: Path, pattern: str, names_in: Callable[[Path], Iterable[str]] = shipped.records) -> Iterator[_Entry]:
    """The results under a root whose paths fit a pattern, in the order of their paths, those of an archive last."""
    for path in files.listed(root, f"cells/{pattern}"):
        yield _Entry(path, path, partial(_json, path))
    archive = root / shipped.ARCHIVE
    if not archive.is_file():
        return
    for name in names_in(archive):
        if fnmatchcase(name, f"cells/{pattern}"):
            yield _Entry(root / name, archive, partial(_packed, archive, name))


def _packed(archive: Path, name: str) -> Any:
    return dict(shipped.records(archive)[name])


def _listed(index: Cache, archive: Path) -> list[str]:
    """Names of the results in an archive, which is unpacked only if it has changed since the index has them."""
    stamp = _stamp(archive)
    listed = index.get(archive.name)
    if stamp and listed is not None and listed["stamp"] == stamp:
        return list(listed["names"])
    names = list(shipped.records(archive))
    if stamp:
        index.put(archive.name, {"stamp": stamp, "names": names})
    return names


def _stamp(path: Path) -> str:
    """What changes with the content of a file; empty while it is so new that it may change within its time stamp."""
    status = path.stat()
    if time.time() - status.st_mtime <= _SETTLED_S:
        return ""
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"


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
    """All stored results whose fields are those given (``None`` is any), in the order of their paths; none twice.

    ``root`` is a folder such as ``results`` or ``runs``, or several; one that does not exist holds no results. A
    ``CorruptFileError`` names every file that should be a result and is not.
    """
    filters = {"table": table, "dataset": dataset, "profile": profile, "method": method, "task": task, "seed": seed}
    dataset_folder = _slug(dataset) if dataset else "*"
    profile_folder = _slug(profile) if profile else "*"
    results: dict[tuple[str | int, ...], Result] = {}
    for result in _every(root, f"{dataset_folder}/{profile_folder}", _indexed):
        if _passes(result, filters):
            key = (result.config_hash, result.dataset, result.on, result.profile, result.method, result.seed)
            results.setdefault(key, result)
    return list(results.values())


def headings(root: Path | str | Iterable[Path | str]) -> list[Heading]:
    """Which results are stored: folders and errors as in :func:`find`, but a file that is known is not read again."""
    return list(dict.fromkeys(_every(root, "*/*", _indexed_heading)))


def _folders(root: Path | str | Iterable[Path | str]) -> list[Path]:
    """The folders that ``root`` stands for, none twice; the last name of a folder with several counts."""
    if isinstance(root, str | Path):
        return [Path(root)]
    folders: dict[Path, Path] = {}
    for folder in root:
        folders[Path(folder).resolve()] = Path(folder)
    return list(folders.values())


def _passes(result: Result, filters: Mapping[str, str | int | None]) -> bool:
    """Whether a result has the value of each filter; ``None`` accepts all."""
    return all(value is None or getattr(result, name) == value for name, value in filters.items())


def _every(
    root: Path | str | Iterable[Path | str], pattern: str, read_entry: Callable[[Cache, str, _Entry], _Read]
) -> list[_Read]:
    """What ``read_entry`` gives of each stored result below folders that fit a pattern, by index, name and entry."""
    items: list[_Read] = []
    damaged: list[CorruptFileError] = []
    for folder in _folders(root):
        if folder.exists() and not folder.is_dir():
            raise reject("root", str(folder), "a folder")
        index = Cache(f"results in {folder.resolve()}")
        for entry in _stored(folder, f"{pattern}/*-seed*-*.json", partial(_listed, index)):
            try:
                item = read_entry(index, os.path.relpath(entry.path, folder), entry)
                _check_place(folder, entry.path, item)
            except CorruptFileError as error:
                damaged.append(error)
            else:
                items.append(item)
        index.save()
    if len(damaged) > 1:
        messages = " ".join(str(error) for error in damaged)
        raise CorruptFileError(f"{len(damaged)} damaged results: {messages}")
    if damaged:
        raise damaged[0]
    return items


def _check_place(folder: Path, path: Path, result: Result | Heading) -> None:
    """Refuse a result that lies in the folder of another data set or profile."""
    its_folder = folder / "cells" / _slug(result.dataset) / _slug(result.profile)
    if path.parent != its_folder:
        raise CorruptFileError(f"{path} was moved: it is a result of {its_folder}. {_RESTORE}")


_READ: dict[Path, tuple[str, Result]] = {}
"""Results that this process has read, with the stamps of their files."""


def _indexed(index: Cache, name: str, entry: _Entry) -> Result:
    """A result: read once by a process, and verified once by a machine, while the file that it is in does not change.

    ``index`` keeps for later processes, by ``name``, the stamp of a verified file and the heading of its result.
    """
    stamp = _stamp(entry.file)
    place = entry.path.absolute()
    stamp_when_read, result_when_read = _READ.get(place, ("", None))
    if stamp and stamp_when_read == stamp and result_when_read is not None:
        return result_when_read
    heading = _heading_of_verified(index, name, stamp)
    result = _verified(entry) if heading is None else _verified_before(entry, heading.setup_hash)
    if stamp:
        index.put(name, {"stamp": stamp, "heading": asdict(result.heading)})
        _READ[place] = stamp, result
    return result


def _indexed_heading(index: Cache, name: str, entry: _Entry) -> Heading:
    """The heading of a result, whose file is read only if it was not verified or has changed since."""
    heading = _heading_of_verified(index, name, _stamp(entry.file))
    if heading is not None:
        return heading
    return _indexed(index, name, entry).heading


def _heading_of_verified(index: Cache, name: str, stamp: str) -> Heading | None:
    """What the index keeps of a file, if that was verified with this stamp."""
    record = index.get(name)
    is_known = record is not None and record["stamp"] == stamp
    if stamp and is_known:
        return Heading(**record["heading"])
    return None
