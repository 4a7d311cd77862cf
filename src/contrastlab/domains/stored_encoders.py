"""Trained encoders as files that other libraries read: ``encoder.safetensors``, tensors and a few plain words.

A single stream's backbone keeps its names, which for a ResNet are torchvision's and timm's; its head is ``head.…``.
With several streams each name begins with its stream's: ``L.conv1.weight``. torchvision reads it by one line::

    torchvision.models.resnet18().load_state_dict(safetensors.torch.load_file(path), strict=False)  # misses fc only

``contrastlab export`` (:func:`contrastlab.tables.exchange.export`) makes a folder of it for others, timm among them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
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
    builders: dict[str, str] = {}
    for domain in domains.rows():
        builders |= domain.builders
    if kind not in builders:
        raise domains.unknown("kind of encoder", kind, builders)
    return resolve_name(builders[kind])


def save(encoders: nn.ModuleList, folder: Path, streams: Sequence[str], build_as: Mapping[str, Any]) -> Path:
    """Write the encoders of a run, one per stream of the given names, whole or not at all, into the run's folder.

    ``build_as`` are the arguments of :func:`contrastlab.encoders.build`, or of the builder ``kind``, that all share.
    """
    tensors: dict[str, Tensor] = {}
    channels: dict[str, Any] = {}
    same: dict[str, str] = {}
    for name, encoder in zip(streams, encoders, strict=True):
        channels[name] = encoder.in_channels
        if isinstance(encoder, Shared):
            first = list(encoders).index(encoder.encoder)
            same[name] = streams[first]
            continue
        prefix = _prefix(name, streams)
        for key, value in encoder.state_dict().items():
            if key.startswith(("backbone.", "head.")):
                tensors[prefix + key.removeprefix("backbone.")] = value
    values: dict[str, Any] = {"build": dict(build_as), "streams": channels}
    if same:
        values["same"] = same
    return files.write_tensors(folder / FILE, tensors, values)


def _prefix(stream: str, streams: Collection[str]) -> str:
    """How the names of a stream's tensors begin in the file."""
    if len(streams) > 1:
        return f"{stream}."
    return ""


def load(run: Any, device: torch.device | str = "cpu") -> nn.ModuleList:
    """The encoders of a run, one per stream, in evaluation mode; ``run`` may be the path of its folder, or of the file.

    A ``CorruptFileError`` names a file that is not one of :func:`save`, or is cut short.
    """
    path = Path(getattr(run, "folder", run))
    if path.suffix != ".safetensors":
        path = path / FILE
    if not path.exists():
        raise MissingDataError(f"no encoder at {path}: has the run been finished?")
    tensors, values = files.read_tensors(path)
    try:
        encoders = _encoders(path, tensors, values)
    except UnknownNameError as error:
        advice = "encoders.register makes an architecture of your own known to a process"
        raise UnknownNameError(f"{path} is whole, and needs what is not known here: {error}; {advice}") from error
    except (KeyError, TypeError, AttributeError, ValueError, RuntimeError) as error:
        raise CorruptFileError(f"{path} holds no encoder of this package ({error}); run it anew") from error
    return nn.ModuleList(encoders).eval().to(device)


def _encoders(path: Path, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> list[nn.Module]:
    """The encoders of a file's tensors, one per stream."""
    streams = values["streams"]
    same = values.get("same", {})
    arguments = dict(values["build"])
    build = _builder(arguments.pop("kind", "image"))
    if "weights" in arguments:  # they are in this file; another folder is not read on its behalf
        raise ValueError(f"build.weights={arguments['weights']!r}: expected a file with weights of its own")
    built = {}
    for name, channels in streams.items():
        if name not in same:
            built[name] = build(in_channels=channels, **arguments)
    for name, encoder in built.items():
        state = _state_of_stream(tensors, _prefix(name, streams))
        check_weights(path, encoder.state_dict(), state)
        encoder.load_state_dict(state)
    encoders: list[nn.Module] = []
    for name in streams:
        if name in same:
            encoders.append(Shared(built[same[name]]))
        else:
            encoders.append(built[name])
    return encoders


def _state_of_stream(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors of one stream, under the names that its encoder gives them."""
    state = {}
    for key, value in tensors.items():
        if not key.startswith(prefix):
            continue
        name = key.removeprefix(prefix)
        if not name.startswith("head."):
            name = f"backbone.{name}"
        state[name] = value
    return state
