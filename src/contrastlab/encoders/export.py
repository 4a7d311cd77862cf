"""Trained encoders as files that other libraries read: ``encoder.safetensors``, tensors and a few plain words.

A single stream's backbone has its own names in the file, which for a ResNet are torchvision's and timm's; its head is
``head.…``. With several streams each name is behind its stream's: ``L.conv1.weight``.
Elsewhere it is read by one line::

    torchvision.models.resnet18().load_state_dict(safetensors.torch.load_file(path), strict=False)  # misses fc only
    timm.models.load_checkpoint(timm.create_model("resnet18", num_classes=0), path, strict=False)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from contrastlab import files
from contrastlab.encoders import sentences
from contrastlab.encoders.encoder import Encoder, Shared, build
from contrastlab.errors import CorruptFileError, MissingDataError

FILE = "encoder.safetensors"

BUILDERS: Mapping[str, Callable[..., Any]] = MappingProxyType({"image": build, "sentence": sentences.build})
"""Kind of encoder, as a file says it, to the function that makes one; a file that says none has the first."""


def _names(encoder: Encoder) -> dict[str, Tensor]:
    state = dict(encoder.backbone.state_dict())
    return state | {f"head.{name}": tensor for name, tensor in encoder.head.state_dict().items()}


def save(encoders: nn.ModuleList, folder: Path, streams: Sequence[str], build_as: Mapping[str, Any]) -> Path:
    """Write the encoders of a run, whole or not at all.

    Args:
        encoders: one per stream.
        folder: of the run.
        streams: their names.
        build_as: arguments of :func:`contrastlab.encoders.build` that all of them share; the rest is read from them.
            With ``kind``, arguments of that one of :data:`BUILDERS`.
    """
    tensors: dict[str, Tensor] = {}
    channels = {}
    shared = {}
    for name, encoder in zip(streams, encoders, strict=True):
        channels[name] = encoder.in_channels
        if isinstance(encoder, Shared):
            shared[name] = next(s for s, e in zip(streams, encoders, strict=True) if e is encoder.encoder)
            continue
        prefix = f"{name}." if len(streams) > 1 else ""
        tensors |= {prefix + key: value for key, value in _names(encoder).items()}  # type: ignore[arg-type]
    same = {"same": shared} if shared else {}
    return files.write_tensors(folder / FILE, tensors, {"build": dict(build_as), "streams": channels, **same})


def load(run: Any, device: torch.device | str = "cpu") -> nn.ModuleList:
    """The encoders of a run, one per stream, in evaluation mode.

    Args:
        run: a run, the path of its folder, or that of the file itself.
        device: where they go.

    Raises:
        CorruptFileError: the file is not one of :func:`save`, or is cut short.
    """
    path = Path(getattr(run, "folder", run))
    path = path if path.suffix == ".safetensors" else path / FILE
    if not path.exists():
        raise MissingDataError(f"no encoder at {path}: has the run been finished?")
    tensors, values = files.read_tensors(path)
    try:
        streams: dict[str, int] = values["streams"]
        same: dict[str, str] = values.get("same", {})
        how = dict(values["build"])
        make = BUILDERS[how.pop("kind", "image")]
        if "weights" in how:  # they are in this file; another folder is not read on its behalf
            raise ValueError(f"build.weights={how['weights']!r}: accepted is a file with weights of its own")
        own = {name: make(in_channels=c, **how) for name, c in streams.items() if name not in same}
        for name, encoder in own.items():
            prefix = f"{name}." if len(streams) > 1 else ""
            mine = {key[len(prefix) :]: value for key, value in tensors.items() if key.startswith(prefix)}
            head = {key[len("head.") :]: value for key, value in mine.items() if key.startswith("head.")}
            encoder.head.load_state_dict(head)
            encoder.backbone.load_state_dict({k: v for k, v in mine.items() if not k.startswith("head.")})
        encoders = [Shared(own[same[name]]) if name in same else own[name] for name in streams]
    except (KeyError, TypeError, AttributeError, ValueError, RuntimeError) as error:
        raise CorruptFileError(f"{path} holds no encoder of this package ({error}); run it anew") from error
    return nn.ModuleList(encoders).eval().to(device)
