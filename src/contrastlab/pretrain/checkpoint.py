"""The state of a training run in one file: tensors beside JSON, whole or not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from contrastlab import files
from contrastlab.errors import CorruptFileError

FILE = "checkpoint.safetensors"


def save(state: dict[str, Any], path: Path) -> None:
    """Write nested dictionaries and lists of tensors and plain values; a kill leaves the old file or the new one.

    Raises:
        StorageError: the file cannot be written.
    """
    tensors: dict[str, Tensor] = {}
    files.write_tensors(path, tensors, _flat(state, "", tensors))


def load(path: Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    """Read what :func:`save` wrote; tensors and JSON only, no code is run.

    Raises:
        CorruptFileError: naming the file and what to do.
    """
    tensors, values = files.read_tensors(path, device)
    try:
        state = _nested(values, tensors)
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptFileError(f"checkpoint {path} holds no run ({error}); delete it to start anew") from error
    if not isinstance(state, dict):
        raise CorruptFileError(f"checkpoint {path} holds no run; delete it to start anew")
    return state


def _flat(value: Any, path: str, tensors: dict[str, Tensor]) -> dict[str, Any]:
    # a dictionary becomes a list of pairs, because the keys of JSON are texts and an optimiser's are numbers
    if isinstance(value, Tensor):
        tensors[path] = value
        return {"tensor": path}
    if isinstance(value, dict):
        return {"dict": [[key, _flat(item, f"{path}/{key}", tensors)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        return {"list": [_flat(item, f"{path}/{k}", tensors) for k, item in enumerate(value)]}
    return {"value": value}


def _nested(flat: dict[str, Any], tensors: dict[str, Tensor]) -> Any:
    ((kind, value),) = flat.items()
    if kind == "tensor":
        return tensors[value]
    if kind == "dict":
        return {key: _nested(item, tensors) for key, item in value}
    if kind == "list":
        return [_nested(item, tensors) for item in value]
    return value
