"""Trained encoders as files that other libraries read: ``encoder.safetensors``, tensors and a few plain words.

A single stream's backbone keeps its names, which for a ResNet are torchvision's and timm's; its head is ``head.…``.
With several streams each name begins with its stream's: ``L.conv1.weight``. torchvision reads it by one line::

    torchvision.models.resnet18().load_state_dict(safetensors.torch.load_file(path), strict=False)  # misses fc only

``contrastlab export`` (:func:`contrastlab.tables.exchange.export`) makes a folder of it for others, timm among them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import torch
from torch import Tensor, nn

from contrastlab import domains
from contrastlab.pictures.encoder import Shared
from contrastlab.pictures.foreign_networks import check_weights
from contrastlab.support import files
from contrastlab.support.errors import CorruptFileError, MissingDataError, UnknownNameError

FILE = "encoder.safetensors"


def _builder(kind: str) -> Callable[..., Any]:
    """The function that makes encoders of a kind, as a stored file says it."""
    builders = {name: where for each in domains.rows() for name, where in each.builders.items()}
    if kind not in builders:
        raise domains.unknown("kind of encoder", kind, builders)
    return resolve_name(builders[kind])


def save(encoders: nn.ModuleList, folder: Path, streams: Sequence[str], build_as: Mapping[str, Any]) -> Path:
    """Write the encoders of a run, one per stream of the given names, whole or not at all, into the run's folder.

    ``build_as`` are the arguments of :func:`contrastlab.encoders.build`, or of the builder ``kind``, that all share.
    """
    tensors: dict[str, Tensor] = {}
    values: dict[str, Any] = {"build": dict(build_as), "streams": {}}
    for name, encoder in zip(streams, encoders, strict=True):
        values["streams"][name] = encoder.in_channels
        if isinstance(encoder, Shared):
            values.setdefault("same", {})[name] = streams[list(encoders).index(encoder.encoder)]
            continue
        prefix = f"{name}." if len(streams) > 1 else ""
        for key, value in encoder.state_dict().items():
            if key.startswith(("backbone.", "head.")):
                tensors[prefix + key.removeprefix("backbone.")] = value
    return files.write_tensors(folder / FILE, tensors, values)


def load(run: Any, device: torch.device | str = "cpu") -> nn.ModuleList:
    """The encoders of a run, one per stream, in evaluation mode; ``run`` may be the path of its folder, or of the file.

    A ``CorruptFileError`` names a file that is not one of :func:`save`, or is cut short.
    """
    path = Path(getattr(run, "folder", run))
    path = path if path.suffix == ".safetensors" else path / FILE
    if not path.exists():
        raise MissingDataError(f"no encoder at {path}: has the run been finished?")
    tensors, values = files.read_tensors(path)
    try:
        streams, same, how = values["streams"], values.get("same", {}), dict(values["build"])
        make = _builder(how.pop("kind", "image"))
        if "weights" in how:  # they are in this file; another folder is not read on its behalf
            raise ValueError(f"build.weights={how['weights']!r}: accepted is a file with weights of its own")
        made = {name: make(in_channels=c, **how) for name, c in streams.items() if name not in same}
        for name, encoder in made.items():
            prefix = f"{name}." if len(streams) > 1 else ""
            own = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
            named = {k if k.startswith("head.") else f"backbone.{k}": v for k, v in own.items()}
            check_weights(path, encoder.state_dict(), named)
            encoder.load_state_dict(named)
        encoders = [Shared(made[same[name]]) if name in same else made[name] for name in streams]
    except UnknownNameError as error:
        advice = "encoders.register makes an architecture of your own known to a process"
        raise UnknownNameError(f"{path} is whole, and needs what is not known here: {error}; {advice}") from error
    except (KeyError, TypeError, AttributeError, ValueError, RuntimeError) as error:
        raise CorruptFileError(f"{path} holds no encoder of this package ({error}); run it anew") from error
    return nn.ModuleList(encoders).eval().to(device)
