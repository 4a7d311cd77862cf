"""Files that are whole or not there: tensors and JSON, never pickles, with a checksum (older versions' have none)."""

from __future__ import annotations

import fcntl
import glob
import hashlib
import json
import os
import secrets
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import contrastlab.support.lab  # noqa: F401

from filelock import FileLock, Timeout
from safetensors import SafetensorError

from contrastlab.support.checksums import ALTERED, CHECKSUM, checksum, verified, with_checksum
from contrastlab.support.errors import CorruptFileError, MissingDataError, StorageError, unreadable

if TYPE_CHECKING:  # records are read without torch
    import torch
    from torch import Tensor

DAMAGED = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""What reading JSON out of a damaged file, and taking it apart, may raise."""
_DAMAGED_TENSORS = (*DAMAGED, SafetensorError, struct.error)

_BLANK = "0" * 64


def check_regular(path: Path) -> None:
    """Refuse a pipe, a device and what else is there and neither file nor folder: to read it might never end."""
    if not (path.is_file() or path.is_dir()) and path.exists():
        raise CorruptFileError(f"{path} is no regular file; put a file in its place, or remove it")


def content_hash(path: Path) -> str:
    """First 16 hexadecimal digits of the SHA-256 of a file's content."""
    check_regular(path)
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:16]
    except FileNotFoundError as error:
        raise MissingDataError(f"{path} does not exist: expected a file") from error
    except IsADirectoryError as error:
        raise CorruptFileError(f"{path} is a folder: expected a file") from error
    except PermissionError as error:
        raise unreadable(str(path), error) from error


def make_folder(path: Path) -> Path:
    """``path``, made with its parents where it is not there; a ``StorageError`` names what cannot be made and why."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot make the folder {path}: {error.strerror or error}") from error
    return path


def listed(folder: Path, pattern: str) -> Iterator[Path]:
    """What ``folder.glob(pattern)`` gives, sorted; a folder that may not be read is a ``StorageError``, not empty."""
    first, _, rest = pattern.partition("/")
    try:
        names = sorted(os.listdir(folder))
    except PermissionError as error:
        raise unreadable(str(folder), error) from error
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        if fnmatchcase(name, first):
            yield from listed(folder / name, rest) if rest else (folder / name,)


def write_whole(path: Path, content: str | bytes | bytearray) -> Path:
    """Write ``content`` to ``path`` so that a reader, or a kill at any instant, sees the old file or the new one.

    What a process that was killed while it wrote ``path`` left beside it is removed. Where the file cannot be written
    (a full disk, a read-only folder), a ``StorageError`` says so, and the old one stays.
    """
    make_folder(path.parent)
    _remove_leftovers(path)
    if isinstance(content, str):
        content = content.encode()
    try:
        with _temporary(path) as file:
            try:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
                os.replace(file.name, path)
            except BaseException:
                with suppress(OSError):
                    os.unlink(file.name)
                raise
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror or error}; nothing was changed there") from error
    return path


def _temporary(path: Path) -> IO[bytes]:
    """A new file beside ``path``, locked as long as it is open: only what nobody holds is a leftover."""
    while True:
        file = open(f"{path}{secrets.token_hex(4)}.tmp", "xb")  # noqa: SIM115 - the caller closes it
        with suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_nlink:
            return file
        file.close()  # another process took it for a leftover before it was locked


def _remove_leftovers(path: Path) -> None:
    for name in glob.glob(f"{glob.escape(str(path))}*.tmp"):
        if not os.path.isfile(name):  # a pipe, say, that nobody ever writes to
            continue
        with suppress(OSError), open(name, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(name)


def write_record(path: Path, record: Mapping[str, Any]) -> Path:
    """Write plain values with their checksum as JSON; see :func:`write_whole`."""
    text = json.dumps(with_checksum(record), indent=1, ensure_ascii=False, allow_nan=False)
    return write_whole(path, text + "\n")


def read_record(path: Path) -> dict[str, Any]:
    """What :func:`write_record` wrote; raises one of :data:`DAMAGED`, where it cannot be read or was altered."""
    check_regular(path)
    return verified(json.loads(path.read_text(encoding="utf-8")))


def write_tensors(path: Path, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> Path:
    """Write tensors, and plain values as JSON in the header, as one safetensors file; see :func:`write_whole`.

    The last of the values is ``checksum``, the SHA-256 of the file with zeros in its place.
    """
    from safetensors.torch import save

    plain_tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps({**values, CHECKSUM: _BLANK}, allow_nan=False)
    content = bytearray(save(plain_tensors, {"values": text}))
    (length,) = struct.unpack_from("<Q", content)
    start = content.rfind(_BLANK.encode(), 8, 8 + length)
    content[start : start + len(_BLANK)] = hashlib.sha256(content).hexdigest().encode()
    return write_whole(path, content)


def read_tensors(path: Path, device: torch.device | str = "cpu") -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors on ``device`` and values that :func:`write_tensors` wrote; a ``CorruptFileError`` tells of damage."""
    from safetensors.torch import load_file

    check_regular(path)
    try:
        values = _verified_values(path)
        tensors = load_file(path, device=str(device))
    except _DAMAGED_TENSORS as error:
        raise CorruptFileError(f"{path} cannot be read ({error}); delete it to start this run anew") from error
    return tensors, values


def _verified_values(path: Path) -> dict[str, Any]:
    """The values of a file of :func:`write_tensors`; a ``ValueError`` if it does not have its checksum."""
    with path.open("rb") as file:
        length_bytes = file.read(8)
        (length,) = struct.unpack("<Q", length_bytes)
        if length > path.stat().st_size:
            raise ValueError("the file is cut short")
        header = file.read(length)
        values = _values(header)
        expected = values.pop(CHECKSUM, None)
        if expected is None:
            return values
        before, found, behind = header.rpartition(str(expected).encode())
        digest = hashlib.sha256(length_bytes + before + _BLANK.encode() + behind)
        while True:
            piece = file.read(1 << 20)
            if not piece:
                break
            digest.update(piece)
    if not found or digest.hexdigest() != expected:
        raise ValueError(ALTERED)
    return values


def tensors_checksum(path: Path) -> str | None:
    """The checksum in the header of a whole file of :func:`write_tensors`; ``None`` of an older version's."""
    check_regular(path)
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        return _values(file.read(length)).get(CHECKSUM)


def _values(header: bytes) -> dict[str, Any]:
    return json.loads(json.loads(header)["__metadata__"]["values"])


def fingerprint(tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> str:
    """SHA-256 of tensors by name, and of plain values: what a training began from. 64 hexadecimal digits."""
    import torch

    digest = hashlib.sha256(checksum(values).encode())
    for name, tensor in tensors.items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def lock(path: Path, *, wait: bool = True) -> FileLock | None:
    """The lock ``path``, held until released or until its process ends; if another one holds it, wait, or ``None``."""
    make_folder(path.parent)
    file_lock = FileLock(path)
    timeout = -1 if wait else 0
    try:
        file_lock.acquire(timeout=timeout)
    except Timeout:
        return None
    except OSError as error:
        raise StorageError(f"cannot lock {path}: {error.strerror or error}") from error
    return file_lock
