"""Files that people have, changed field by field: whatever stands in them, an error of this package says so.

Each try changes one or two fields of a valid file (another type, a number out of range, NaN, a text, nothing at all,
or no such field), with a checksum that fits, and lets what reads such files in a command read it. What is read is a
number, or a refusal that a command ends with in status 2; anything else would be "a fault of contrastlab".
"""

from __future__ import annotations

import copy
import io
import json
import math
import random
import struct
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image
from torch import nn

from contrastlab import __main__, checkpoint, data, encoders, methods, results
from contrastlab.checksums import with_checksum
from contrastlab.encoders import foreign
from contrastlab.pretrain.schedule import cpu_fabric
from contrastlab.reproduce import embed, exchange
from torments.cells import cell
from torments.figures import Figures, Log

STRANGE = (
    None, True, False, -1, 0, 7, 2**70, 1e308, -0.5, math.nan, math.inf, "", "x", "\0", "../..", "x" * 5000, [], {},
    [None], [[1, 2]], {"a": 1}, "NaN", "1",
)  # fmt: skip


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where a field is in nested mappings and lists, outermost first."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = [at] if at else []
    for name, each in inner:
        found += places(each, (*at, name))
    return found


def changed(whole: Any, draw: random.Random, strange: tuple[Any, ...] = STRANGE) -> tuple[Any, str]:
    """A copy with one or two fields changed or left out, and what was done, in words."""
    other, said = copy.deepcopy(whole), []
    for _ in range(draw.choice((1, 1, 1, 2))):
        every = places(other)
        if not every:
            break
        *path, last = draw.choice(every)
        inside = other
        for name in path:
            inside = inside[name]
        value = draw.choice(strange)
        if draw.randrange(5) == 0:
            del inside[last]
            said.append(f"without {(*path, last)}")
        else:
            inside[last] = value
            said.append(f"{(*path, last)} = {str(value)[:30]!r}")
    return other, ", ".join(said)


class Kinds:
    """A valid file of each kind in a folder, and what changes and reads it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        small = cell("queue, linear")
        run = small.run(folder / "runs") if hasattr(small, "run") else None
        self.every: dict[str, Callable[[random.Random], str]] = {
            "annotations": self.annotations, "table": self.table, "sound": self.sound, "weights": self.weights,
        }  # fmt: skip
        if run is not None:
            self.every["run"] = self.run
