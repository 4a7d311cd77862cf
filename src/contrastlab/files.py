"""Files that are whole or not there: written beside their place and moved into it. Tensors and JSON, never pickles."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from contrastlab.errors import CorruptFileError, StorageError

__all__ = ["lock", "make_folder", "read_tensors", "write_tensors", "write_whole"]


def make_folder(path: Path) -> Path:
    """``path``, made with its parents where it is not there.

    Raises:
        StorageError: it cannot be made; the message names it and the system's reason.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot make the folder {path}: {error.strerror or error}") from error
    return path


def write_whole(path: Path, content: str | bytes) -> Path:
    """Write ``content`` to ``path`` so that a reader, or a kill at any instant, sees the old file or the new one.

    Raises:
        StorageError: the file cannot be written (a full disk, a read-only folder); the old one, if any, stays.
    """
    make_folder(path.parent)
    data = content.encode() if isinstance(content, str) else content
    temporary = None
    try:
        with NamedTemporaryFile("wb", dir=path.parent, prefix=path.name, suffix=".tmp", delete=False) as file:
            temporary = Path(file.name)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        os.replace(temporary, path)
    except BaseException as error:
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise StorageError(f"cannot write {path}: {error.strerror or error}; nothing was changed there") from error
        raise
    return path


def write_tensors(path: Path, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> Path:
    """Write tensors, and plain values as JSON in the header, as one safetensors file; see :func:`write_whole`."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    return write_whole(path, save(plain, {"values": json.dumps(values, allow_nan=False)}))


def read_tensors(path: Path, device: torch.device | str = "cpu") -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors on ``device`` and values that :func:`write_tensors` wrote.

    Raises:
        CorruptFileError: naming the file and what to do.
    """
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > path.stat().st_size:
                raise ValueError("the file is cut short")
            values = json.loads(json.loads(file.read(length))["__metadata__"]["values"])
        tensors = load_file(path, device=str(device))
    except (OSError, SafetensorError, ValueError, KeyError, TypeError, RecursionError, struct.error) as error:
        raise CorruptFileError(f"{path} cannot be read ({error}); delete it to start this run anew") from error
    return tensors, values


def lock(path: Path, *, wait: bool = True) -> FileLock | None:
    """The lock ``path``, held until released or until the process that holds it ends, by whatever way.

    Args:
        path: of a file beside what is to be written by one process at a time.
        wait: wait for another process that holds it; else give ``None``.

    Raises:
        StorageError: the file cannot be made.
    """
    make_folder(path.parent)
    held = FileLock(path)
    try:
        held.acquire(timeout=-1 if wait else 0)
    except Timeout:
        return None
    except OSError as error:
        raise StorageError(f"cannot lock {path}: {error.strerror or error}") from error
    return held
