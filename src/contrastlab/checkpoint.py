"""The state of a training in one file: tensors beside JSON, whole or not there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from contrastlab import files
from contrastlab.errors import CorruptFileError

FILE = "checkpoint.safetensors"


def save(state: dict[str, Any], path: Path, origin: str = "") -> None:
    """Write nested dictionaries and lists of tensors and plain values; a kill leaves the old file or the new one.

    Args:
        state: of a training.
        path: of the file.
        origin: what decides the training, as a fingerprint; empty where the state says it otherwise.

    Raises:
        StorageError: the file cannot be written.
    """
    tensors: dict[str, Tensor] = {}
    files.write_tensors(path, tensors, {**_flat(state, "", tensors), **({"origin": origin} if origin else {})})


def load(path: Path, device: torch.device | str = "cpu", origin: str = "") -> dict[str, Any]:
    """Read what :func:`save` wrote; tensors and JSON only, no code is run.

    Args:
        path: of the file.
        device: of the tensors.
        origin: of the training that goes on from it.

    Raises:
        CorruptFileError: naming the file and what to do: it is damaged, or of another training.
    """
    tensors, values = files.read_tensors(path, device)
    check_origin(values, origin, path)
    values.pop("origin", None)
    try:
        state = _nested(values, tensors)
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptFileError(f"checkpoint {path} holds no run ({error}); delete it to start anew") from error
    if not isinstance(state, dict):
        raise CorruptFileError(f"checkpoint {path} holds no run; delete it to start anew")
    return state


def check_origin(stored: Mapping[str, Any], origin: str, path: Path) -> None:
    """Refuse what a file holds of another training; files of older versions say none.

    Raises:
        CorruptFileError: naming the file and what to do.
    """
    if stored.get("origin", origin) != origin:
        raise CorruptFileError(f"{path} is of another training; delete {path.parent} to start this one anew")


def fill_optimiser(optimiser: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Give an optimiser its stored state, each tensor in the memory format of its parameter.

    Files know no memory format, and a fused step takes momenta to lie as their parameter does.
    """
    optimiser.load_state_dict(state)
    for parameter, moments in optimiser.state.items():
        for name, value in moments.items():
            if isinstance(value, Tensor) and value.shape == parameter.shape:
                moments[name] = torch.empty_like(parameter).copy_(value)


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
