"""Stored results: one JSON file per cell and seed, whole or not there at all.

``<root>/<paper>_table<k>/<data set>/<profile>/<method>-seed<k>-<hash>.json``, where the hash is over what
decides the number: settings, recipe and data. A file is read back only if its content still has that hash.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Literal, Self

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError, computed_field, field_validator, model_validator

from contrastlab import __version__
from contrastlab.errors import CorruptFileError, reject

__all__ = [
    "Provenance",
    "Result",
    "config_hash",
    "find",
    "location",
    "provenance",
    "read",
    "save",
    "write_whole",
]

_PACKAGES = ("torch", "torchvision", "numpy", "scikit-learn", "scipy", "pandas", "lightning-fabric", "faiss-cpu")


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Provenance(_Stored):
    """Where a number comes from. :func:`provenance` fills in code and machine; the run adds the rest."""

    git_commit: str | None = Field(description="commit of this package's checkout; None outside one")
    git_dirty: bool | None = Field(description="whether tracked files differed from that commit")
    package: str = Field(description="version of contrastlab")
    versions: dict[str, str] = Field(description="python and the packages that compute")
    cpu: str
    cores: int = Field(description="logical cores of the machine")
    threads: int = Field(description="threads torch computes with")
    device: str
    gpu: str | None
    driver: str | None
    cuda: str | None
    deterministic: bool = Field(description="torch.are_deterministic_algorithms_enabled()")
    data_fingerprint: str = Field(description="hash of the images and labels used")
    data_note: str = Field("", description="what to know about this copy of the data, such as a lossy re-encoding")
    started: datetime = Field(description="UTC")
    finished: datetime = Field(description="UTC")
    wall_s: float = Field(ge=0, description="seconds, training and evaluation")
    cpu_s: float | None = Field(None, ge=0, description="processor seconds of this process")
    images_per_s: float | None = Field(None, ge=0, description="training images a second, over all processes")
    peak_memory_bytes: int | None = Field(None, ge=0, description="of the GPU if there is one, else of the process")

    @field_validator("started", "finished")
    @classmethod
    def _utc(cls, value: datetime) -> datetime:
        if value.utcoffset() is None or value.utcoffset():
            raise ValueError("accepted is a time in UTC with its zone, as datetime.now(UTC) gives it")
        return value


class Result(_Stored):
    """One cell of one table, for one seed."""

    schema_version: Literal[1] = Field(1, alias="schema")
    paper: str
    table: str
    dataset: str
    method: str = Field(description="full name, such as ring/iring or ours/random")
    seed: int
    profile: str
    protocol: dict[str, Any] = Field(description="how the metric was taken: probe, features, stem, frozen, split")
    test_images: int = Field(ge=1, description="images the metric was taken on")
    settings: dict[str, Any] = Field(description="Settings.model_dump(mode='json')")
    recipe: dict[str, Any] = Field(description="Recipe.describe()")
    metrics: dict[str, float] = Field(description="accuracies in percent, losses and bounds in nats")
    curve: list[dict[str, float]] = Field(default_factory=list, description="one row per epoch")
    provenance: Provenance

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, raw: dict[str, Any]) -> dict[str, Any]:
        # Tuples become lists now, so that a result equals itself after a round trip through its file.
        keys = [key for key in ("settings", "recipe", "protocol") if key in raw]
        plain: dict[str, Any] = {key: json.loads(json.dumps(raw[key])) for key in keys}
        return {**raw, **plain}

    @model_validator(mode="after")
    def _finite(self) -> Self:
        for name, value in self.metrics.items():
            if not math.isfinite(value):
                raise ValueError(f"metrics[{name!r}]={value!r}: accepted is a finite number")
        for epoch, row in enumerate(self.curve):
            for name, value in row.items():
                if not math.isfinite(value):
                    raise ValueError(f"curve[{epoch}][{name!r}]={value!r}: accepted is a finite number")
        return self

    @computed_field  # type: ignore[prop-decorator]
    @property
    def config_hash(self) -> str:
        """Hash of settings, recipe and data: equal for results that may be averaged over seeds."""
        return config_hash(self.settings, self.recipe, self.provenance.data_fingerprint)


def slug(table: int | str) -> str:
    """``table5b`` of ``"5b"``; a figure is called by its kind, ``"figure2"``, and stays as it is."""
    return str(table) if str(table).startswith("figure") else f"table{table}"


def config_hash(settings: Mapping[str, Any], recipe: Mapping[str, Any], data_fingerprint: str) -> str:
    """SHA-256 of the canonical JSON of what decides a number beside the seed.

    Args:
        settings: ``Settings.model_dump(mode="json")``.
        recipe: ``Recipe.describe()``.
        data_fingerprint: hash of the data used.

    Returns:
        64 hexadecimal digits.
    """
    config = {"settings": dict(settings), "recipe": dict(recipe), "data": data_fingerprint}
    text = json.dumps(config, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _slug(name: str) -> str:
    """A file name for ``name``; a name that loses characters keeps apart from others by a hash."""
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-") or "unnamed"
    return slug if slug == name else f"{slug[-60:]}-{hashlib.sha256(name.encode()).hexdigest()[:6]}"


def location(
    root: Path | str, *, paper: str, table: int | str, dataset: str, profile: str, method: str, seed: int, hash_: str
) -> Path:
    """Where the result of one cell lies under ``root``, stored or not."""
    name = f"{method.replace('/', '-')}-seed{seed}-{hash_[:8]}.json"
    return Path(root) / f"{paper}_{slug(table)}" / _slug(dataset) / _slug(profile) / name


def _path(result: Result, root: Path | str) -> Path:
    return location(
        root, paper=result.paper, table=result.table, dataset=result.dataset, profile=result.profile,
        method=result.method, seed=result.seed, hash_=result.config_hash,
    )  # fmt: skip


def save(result: Result, root: Path | str) -> Path:
    """Write ``result`` under ``root`` so that a reader sees all of it or nothing.

    The text goes to a file beside the target first, reaches the disk, and is then renamed onto it.

    Returns:
        The file written.
    """
    text = json.dumps(result.model_dump(mode="json", by_alias=True), indent=1, ensure_ascii=False, allow_nan=False)
    return write_whole(_path(result, root), text + "\n")


def write_whole(path: Path, text: str) -> Path:
    """Write ``text`` to ``path``, whole or not at all, making the folders it needs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = None
    try:
        with NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, suffix=".tmp", delete=False) as file:
            temporary = Path(file.name)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        os.replace(temporary, path)
    except BaseException:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise
    return path


def read(path: Path | str) -> Result:
    """The result stored in ``path``.

    Raises:
        FileNotFoundError: there is no such file.
        CorruptFileError: it is not a whole, unaltered result.
    """
    path = Path(path)
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        stored = raw.pop("config_hash", None)
        result = Result.model_validate(raw)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        reason = _reason(error)
        raise CorruptFileError(f"{path} is not a stored result: {reason}. Delete it and run the cell again.") from error
    if stored != result.config_hash:
        raise CorruptFileError(
            f"{path} was altered after it was written: its settings, recipe and data do not have the hash"
            f" {str(stored)[:8]} it carries. Restore it, or delete it and run the cell again."
        )
    return result


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc'])) or 'file'}: {first['msg']}"
    return str(error)


def find(
    root: Path | str,
    *,
    paper: str | None = None,
    table: int | str | None = None,
    dataset: str | None = None,
    profile: str | None = None,
    method: str | None = None,
    seed: int | None = None,
) -> list[Result]:
    """All stored results under ``root`` that match, in the order of their paths.

    Args:
        root: such as ``results`` or ``runs``; a folder that does not exist holds no results.
        paper: short name of the paper; ``None``, here and below, is any.
        table: ``1`` or ``"5a"``.
        dataset: name as it was run.
        profile: ``smoke``, ``laptop`` or ``paper``.
        method: full name, such as ``ring/iring``.
        seed: of the run.

    Raises:
        ArgumentError: ``root`` is a file.
        CorruptFileError: a file that should be a result is not one.
    """
    root = Path(root)
    if root.exists() and not root.is_dir():
        raise reject("root", str(root), "a folder")
    wanted = {"paper": paper, "dataset": dataset, "profile": profile, "method": method, "seed": seed}
    if table is not None:
        wanted["table"] = str(table)
    folder = f"{paper or '*'}_{'*' if table is None else slug(table)}"
    pattern = f"{folder}/{_slug(dataset) if dataset else '*'}/{_slug(profile) if profile else '*'}/*-seed*-*.json"
    found = (read(path) for path in sorted(root.glob(pattern)))
    return [r for r in found if all(value is None or getattr(r, key) == value for key, value in wanted.items())]


def provenance(device: torch.device | str = "cpu") -> dict[str, Any]:
    """Code and machine, as the first fields of :class:`Provenance`.

    Args:
        device: where the run computes.

    Returns:
        ``git_commit`` to ``deterministic``; the run adds data, times and speed.
    """
    device = torch.device(device)
    commit, dirty = _git()
    cuda = device.type == "cuda"
    return {
        "git_commit": commit,
        "git_dirty": dirty,
        "package": __version__,
        "versions": {"python": platform.python_version(), **_versions()},
        "cpu": _cpu(),
        "cores": os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
        "device": str(device),
        "gpu": torch.cuda.get_device_name(device) if cuda else None,
        "driver": _driver() if cuda else None,
        "cuda": torch.version.cuda if cuda else None,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _output(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _git() -> tuple[str | None, bool | None]:
    here = Path(__file__).resolve()
    git = ("git", "-C", str(here.parent))
    # A virtual environment may lie inside somebody else's repository: only our own, tracked file counts.
    if _output(*git, "ls-files", "--error-unmatch", here.name) is None:
        return None, None
    commit = _output(*git, "rev-parse", "HEAD")
    state = _output(*git, "status", "--porcelain", "--untracked-files=no")
    return commit, None if state is None else bool(state)


def _cpu() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    if sys.platform == "darwin":
        name = _output("sysctl", "-n", "machdep.cpu.brand_string")
        if name:
            return name
    return platform.processor() or platform.machine()


def _driver() -> str | None:
    lines = (_output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader") or "").splitlines()
    return lines[0].strip() if lines else None
