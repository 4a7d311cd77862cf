"""Files that are whole or not there: written beside their place and moved into it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import torch

from contrastlab.errors import CorruptFileError


def save(state: dict[str, Any], path: Path) -> None:
    """Write tensors and plain values so that a kill at any instant leaves the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def load(path: Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    """Read what :func:`save` wrote; tensors and plain values only, no code is run.

    Raises:
        CorruptFileError: naming the file and what to do.
    """
    try:
        state = torch.load(path, map_location=device, weights_only=True)
    except Exception as error:
        raise CorruptFileError(
            f"checkpoint {path} cannot be read ({type(error).__name__}); delete it to start this run anew"
        ) from error
    if not isinstance(state, dict):
        raise CorruptFileError(f"checkpoint {path} holds no run; delete it to start anew")
    return state
