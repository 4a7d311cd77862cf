"""An artefact: what a training (of encoders, detectors, fine-tuned networks) leaves in a folder.

One process holds its lock, resumes its checkpoint, writes tensors, then their record, and removes the checkpoint.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from contrastlab.support import files
from contrastlab.support.errors import CorruptFileError, MissingDataError, StorageError, UnknownNameError

if TYPE_CHECKING:  # records are read without torch
    import torch
    from torch import Tensor

FILE = "checkpoint.safetensors"
RUN = "run.json"
NEEDED = {
    "schema": int,
    "hash": str,
    "recipe": dict,
    "dataset": str,
    "seed": int,
    "history": list,
    "seconds": int | float,
    "images": int | float,
}
"""What the record of a run has at least, and of which type."""


@dataclass(frozen=True)
class Artefact:
    """The folder of a training.

    ``origin`` is a fingerprint of what decides the training; a file of another one is refused (older files say none).
    It is empty where the record says it otherwise, and ``None`` to read whatever is there.
    """

    folder: Path  # the lock is beside it
    tensors: str  # name of the file
    record: str = ""  # name of the JSON file that says what they are; empty where the tensors' header says it
    kind: str = "training"  # in words
    fields: Mapping[str, Any] = field(default_factory=dict)  # that a record has at least, with their types
    origin: str | None = ""

    @property
    def finished(self) -> bool:
        """Whether all its files are there."""
        return all((self.folder / name).exists() for name in (self.tensors, self.record))

    def lock(self, *, wait: bool = True) -> FileLock | None:
        """The right to write it; see :func:`contrastlab.support.files.lock`."""
        return files.lock(self.folder.with_suffix(".lock"), wait=wait)

    def save_checkpoint(self, state: dict[str, Any]) -> None:
        """Write the checkpoint."""
        save(state, self.folder / FILE, self.origin or "")

    def load_checkpoint(self, device: torch.device | str = "cpu") -> dict[str, Any] | None:
        """The state in the checkpoint, or ``None`` where there is none; see :func:`load`."""
        path = self.folder / FILE
        if not path.exists():
            return None
        return load(path, device, self.origin)

    def remove_checkpoint(self, *, may_stay: bool = False) -> None:
        """Remove the checkpoint, if there is one; one that cannot be removed is a ``StorageError``.

        It ``may_stay`` where nothing was trained: a process that was killed may have left it, in a read-only folder.
        """
        path = self.folder / FILE
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            if not may_stay:
                raise StorageError(f"cannot remove {path}: {error.strerror or error}; run again to continue") from error

    def read_record(self) -> dict[str, Any]:
        """What the record says; a ``CorruptFileError`` if it is damaged, newer, or of another training."""
        path = self.folder / self.record
        if not path.exists():
            raise MissingDataError(f"no {self.kind} at {self.folder}: has its training been finished?")
        try:
            record = files.read_record(path)
            if record.get("schema", 1) != 1:
                raise ValueError(f"schema={record['schema']!r}: expected 1; a newer version may have written it")
            wrong = [name for name, of in self.fields.items() if not isinstance(record.get(name), of)]
            if wrong:
                raise ValueError(f"{', '.join(wrong)}: missing, or of another type")
        except files.DAMAGED as error:
            reason = f"{path} is no record of a {self.kind} ({error})"
            raise CorruptFileError(f"{reason}; delete its folder and run it anew") from error
        check_origin(record, self.origin, path)
        return record

    def write_record(self, record: Mapping[str, Any]) -> None:
        """Write the record, after the tensors: it says that they are finished."""
        files.write_record(self.folder / self.record, {**record, **self._origin, "schema": 1})

    def read_tensors(self, device: torch.device | str = "cpu") -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and the values in their header; a ``CorruptFileError`` names a file of another training."""
        path = self.folder / self.tensors
        tensors, values = files.read_tensors(path, device)
        check_origin(values, self.origin, path)
        return tensors, values

    def write_tensors(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> Path:
        """Write the tensors, before the record."""
        return files.write_tensors(self.folder / self.tensors, tensors, {**values, **self._origin})

    @property
    def _origin(self) -> dict[str, str]:
        return _stated(self.origin or "")


def _stated(origin: str) -> dict[str, str]:
    """What a file says of its origin: nothing where that is empty."""
    if not origin:
        return {}
    return {"origin": origin}


def save(state: dict[str, Any], path: Path, origin: str = "") -> None:
    """Write nested dictionaries and lists of tensors and plain values."""
    tensors: dict[str, Tensor] = {}
    values = _flat(state, "", tensors)
    files.write_tensors(path, tensors, {**values, **_stated(origin)})


def load(path: Path, device: torch.device | str = "cpu", origin: str | None = "") -> dict[str, Any]:
    """Read what :func:`save` wrote; a ``CorruptFileError`` names a file that is damaged or of another training."""
    tensors, values = files.read_tensors(path, device)
    check_origin(values, origin, path)
    values.pop("origin", None)
    try:
        state = _nested(values, tensors)
        if not isinstance(state, dict):
            raise TypeError("its state is no dictionary")
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptFileError(f"checkpoint {path} holds no run ({error}); delete it to start anew") from error
    return state


def check_origin(stored: Mapping[str, Any], origin: str | None, path: Path) -> None:
    """Refuse what a file holds of another training; files of older versions say none."""
    if origin is not None and stored.get("origin", origin) != origin:
        raise CorruptFileError(f"{path} is of another training; delete {path.parent} to start this one anew")


def read_run(folder: Path) -> dict[str, Any]:
    """What the ``run.json`` of a folder says; a ``CorruptFileError`` names one that is damaged or newer."""
    record = Artefact(folder, "", RUN, "run", NEEDED).read_record()
    wrong = _mistake(record)
    if wrong:
        raise CorruptFileError(f"{folder / RUN} is no record of a run ({wrong}); delete its folder and run it anew")
    return record


def _mistake(record: Mapping[str, Any]) -> str:
    """What in a record, which has all fields, cannot be that of a run; empty where nothing is wrong."""
    name = record["recipe"].get("name")
    if name is None:
        return "its recipe has no name"
    if not isinstance(name, str) or "\0" in name:
        return f"its recipe has the name {name!r}"
    if not re.fullmatch("[0-9a-f]{64}", record["hash"]):
        return f"hash={record['hash']!r}: accepted are 64 hexadecimal digits"
    if not all(_is_row(row) for row in record["history"]):
        return "its history has other rows than numbers by name"
    return ""


def _is_row(row: object) -> bool:
    """Whether a row of a history has numbers alone."""
    if not isinstance(row, Mapping):
        return False
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in row.values())


@contextmanager
def describing(folder: Path) -> Iterator[None]:
    """What is taken from the record of a run inside; a ``CorruptFileError`` says of it what is missing or impossible.

    A part or an architecture that is not known here keeps its ``UnknownNameError``: another process may know it.
    """
    try:
        yield
    except UnknownNameError:
        raise
    except files.DAMAGED as error:
        reason = str(error)
        if isinstance(error, LookupError):  # whose text is the key alone
            reason = f"{type(error).__name__}: {error}"
        wrong = f"{folder / RUN} does not describe a run ({reason})"
        raise CorruptFileError(f"{wrong}; restore it, or run it anew") from error


def runs(roots: Iterable[Path | str]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Folder and record of every finished run under ``roots``."""
    for root in roots:
        for path in files.listed(Path(root), f"encoders/*/{RUN}"):
            yield path.parent, read_run(path.parent)


def fill_optimiser(optimiser: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Give an optimiser its stored state, each tensor in the memory format of its parameter, as a fused step needs."""
    import torch

    optimiser.load_state_dict(state)
    for parameter, moments in optimiser.state.items():
        for name, value in moments.items():
            if isinstance(value, torch.Tensor) and value.shape == parameter.shape:
                moments[name] = torch.empty_like(parameter).copy_(value)


def _flat(value: Any, path: str, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """A nested value as JSON; its tensors are added to ``tensors``, by their paths.

    A dictionary becomes a list of pairs, because the keys of JSON are texts and an optimiser's are numbers.
    """
    from torch import Tensor

    if isinstance(value, Tensor):
        tensors[path] = value
        return {"tensor": path}
    if isinstance(value, dict):
        return {"dict": [[key, _flat(item, f"{path}/{key}", tensors)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        return {"list": [_flat(item, f"{path}/{k}", tensors) for k, item in enumerate(value)]}
    return {"value": value}


def _nested(flat: dict[str, Any], tensors: dict[str, Tensor]) -> Any:
    """The value that :func:`_flat` made JSON of."""
    ((kind, value),) = flat.items()
    if kind == "tensor":
        return tensors[value]
    if kind == "dict":
        return {key: _nested(item, tensors) for key, item in value}
    if kind == "list":
        return [_nested(item, tensors) for item in value]
    return value
