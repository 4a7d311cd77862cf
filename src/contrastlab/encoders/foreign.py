"""Networks of other libraries and of your own as backbones, and state dicts that other libraries trained.

``timm:<name>`` and ``torchvision:<name>`` are architectures, which start untrained; :func:`register` names one of your
own. Nothing is downloaded. Of a file that ``torch.save`` wrote, tensors and plain values are read and nothing else.
"""

from __future__ import annotations

import pickle
import tomllib
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import entry_points
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from contrastlab import errors
from contrastlab.encoders.networks import Network, Stem

GROUP = "contrastlab.encoders"
"""Entry point group of a package of your own: name of an architecture to the function that makes it."""

_KEY_MAPS: Mapping[str, Mapping[str, Any]] = tomllib.loads(
    (files("contrastlab.encoders") / "state_dicts.toml").read_text(encoding="utf-8")
)
_WITHIN = ("state_dict", "model", "model_state_dict", "teacher", "student")  # where a checkpoint keeps its tensors
_OWN: dict[str, Callable[..., nn.Module]] = {}


def register(name: str, make: Callable[..., nn.Module]) -> str:
    """Make a backbone of your own known as the architecture ``name``, in this process; gives the name.

    ``make(in_channels=C, **arch_options)`` gives a module from views ``[B, C, H, W]`` to features ``[B, F]`` or a map
    ``[B, F, h, w]``, with F as its attribute ``num_features``. Settings choose it by ``arch``, and both its name and
    its options are hashed; its code is not, so changed code needs another name. Its stem and width are its own.
    """
    if not isinstance(name, str) or ":" in name or "/" not in name.strip("/"):
        raise errors.reject("name", name, "a name of your own such as 'mine/wide'")
    if not callable(make):
        raise errors.reject("make", make, "a function or class that makes a network")
    _OWN[name] = make
    return name


def names() -> tuple[str, ...]:
    """Architectures beside the package's: registered ones, those of entry points, and how others begin."""
    return (*_OWN, *entry_points(group=GROUP).names, "timm:<name>", "torchvision:<name>")


def network(arch: str, options: Mapping[str, Any]) -> Network | None:
    """What makes the backbone ``arch`` with further arguments ``options``; ``None`` for a name that is not known."""
    library, colon, name = arch.partition(":")
    if colon and library in _LIBRARIES:
        return partial(_LIBRARIES[library], name, options)
    make = _OWN.get(arch) or next((point.load() for point in entry_points(group=GROUP, name=arch)), None)
    return None if make is None else partial(_own, arch, make, options)


def _own(
    arch: str, make: Callable[..., nn.Module], options: Mapping[str, Any], in_channels: int, stem: Stem, width: float
) -> tuple[nn.Module, int]:
    made = _made(arch, partial(make, in_channels=in_channels), options)
    if not isinstance(made, nn.Module) or not errors.is_integer(getattr(made, "num_features", None)):
        raise errors.reject("arch", arch, "one that makes a torch.nn.Module with a number of features num_features")
    return made, int(made.num_features)  # type: ignore[arg-type]


def _made(arch: str, make: Callable[..., nn.Module], options: Mapping[str, Any]) -> nn.Module:
    try:
        return make(**options)
    except (TypeError, ValueError, AssertionError, RuntimeError) as error:
        raise errors.reject("arch_options", dict(options), f"what {arch} takes ({error})") from error


def _timm(name: str, options: Mapping[str, Any], in_channels: int, stem: Stem, width: float) -> tuple[nn.Module, int]:
    timm, (plain, _, tag) = errors.import_extra("timm", "vit"), name.partition(".")
    if plain not in (known := timm.list_models()):
        raise errors.unknown("network of timm", plain, known)
    if tag:
        raise _not_downloaded("timm", plain, f"hf download timm/{name} model.safetensors")
    made = _made(f"timm:{name}", partial(timm.create_model, name, in_chans=in_channels, num_classes=0), options)
    return _fitted(made, f"timm:{name}", in_channels, stem, width), int(made.head_hidden_size)  # type: ignore[arg-type]


def _torchvision(
    name: str, options: Mapping[str, Any], in_channels: int, stem: Stem, width: float
) -> tuple[nn.Module, int]:
    from torchvision import models

    plain, _, tag = name.partition(".")
    if plain not in (known := models.list_models(module=models)):
        raise errors.unknown("network of torchvision", plain, known)
    if tag:
        if tag not in (weights := models.get_model_weights(plain).__members__):
            raise errors.unknown(f"weights of {plain}", tag, weights)
        raise _not_downloaded("torchvision", plain, f"curl -O {weights[tag].url}")
    if in_channels != 3:
        raise errors.NotApplicableError(f"networks of torchvision read three channels; torchvision:{name} is to read"
                                        f" {in_channels}")  # fmt: skip
    made = _made(f"torchvision:{name}", partial(models.get_model, name, weights=None), options)
    layers = [(path, layer) for path, layer in made.named_modules() if isinstance(layer, nn.Linear)]
    if not layers:
        raise errors.NotApplicableError(f"torchvision:{name} has no linear classifier that could be taken off")
    made.set_submodule(layers[-1][0], nn.Identity())
    return _fitted(made, f"torchvision:{name}", in_channels, stem, width), layers[-1][1].in_features


_LIBRARIES: Mapping[str, Callable[..., tuple[nn.Module, int]]] = {"timm": _timm, "torchvision": _torchvision}


def _not_downloaded(library: str, plain: str, get: str) -> errors.MissingDataError:
    return errors.MissingDataError(
        f"trained weights of {library}:{plain} are not downloaded here; get the file, {get}, and pass it:"
        f" --encoder FILE --arch {library}:{plain}"
    )


def _fitted(made: nn.Module, arch: str, in_channels: int, stem: Stem, width: float) -> nn.Module:
    """A network with the stem that is asked for: its own, or in a ResNet that for small pictures."""
    if width != 1:
        raise errors.reject("width", width, f"1 with {arch}, whose channels are its own")
    if stem == "cifar":
        first = getattr(made, "conv1", None)
        if not isinstance(first, nn.Conv2d) or not hasattr(made, "maxpool"):
            raise errors.reject("stem", stem, f"'imagenet' with {arch}: its stem is its own")
        small = nn.Conv2d(in_channels, first.out_channels, 3, 1, 1, bias=False)
        nn.init.kaiming_normal_(small.weight, mode="fan_out", nonlinearity="relu")
        made.conv1, made.maxpool = small, nn.Identity()
    return made


# State dicts of other trainers ----------------------------------------------------------------------------------------


def read(path: Path) -> dict[str, Tensor]:
    """The tensors of a ``.safetensors`` file, or of a checkpoint of ``torch.save``, by name, on the CPU."""
    if not path.is_file():
        raise errors.MissingDataError(f"no state dict at {path}: there is no such file")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        inside: Any = torch.load(path, map_location="cpu", weights_only=True)
        while not any(isinstance(value, Tensor) for value in inside.values()):
            inside = next(inside[name] for name in _WITHIN if isinstance(inside.get(name), Mapping))
        return {str(name): value for name, value in inside.items() if isinstance(value, Tensor)}
    except PermissionError as error:
        raise errors.unreadable(str(path), error) from error
    except (
        pickle.UnpicklingError, SafetensorError, OSError, RuntimeError, ValueError, LookupError, AttributeError,
        EOFError, StopIteration,
    ) as error:  # fmt: skip
        reason = (str(error) or "no tensors in it").splitlines()[0]
        raise errors.CorruptFileError(
            f"{path} holds no state dict that is read here ({reason}); accepted is a .safetensors file, or what"
            " torch.save wrote of tensors and plain values: other objects would be run, so they are refused"
        ) from error


def fill(backbone: nn.Module, path: Path, arch: str) -> str:
    """Give a backbone the tensors of a file, whatever its trainer calls them; gives the trainer's name.

    Rows of ``state_dicts.toml`` are tried in order. All tensors of the backbone must be there, in their shapes; only
    counters of batches may lack. What the file has beside them (heads, queues, a momentum encoder) is left aside.
    """
    state, wanted = read(path), backbone.state_dict()
    tries: dict[str, list[str]] = {}
    for trainer, row in _KEY_MAPS.items():
        prefix, children, named = row["prefix"], row.get("children", ()), {}
        for key, value in state.items():
            first, dot, rest = key.removeprefix(prefix).partition(".")
            if key.startswith(prefix):
                place = int(first) if first.isdecimal() and int(first) < len(children) else None
                named[(first if place is None else children[place]) + dot + rest] = value
        fits = {name: named[name] for name, own in wanted.items() if name in named and named[name].shape == own.shape}
        tries[trainer] = [name for name in wanted if name not in fits and not name.endswith("num_batches_tracked")]
        if not tries[trainer]:
            backbone.load_state_dict(fits, strict=False)
            return trainer
    trainer, lacking = min(tries.items(), key=lambda each: len(each[1]))
    what = f"{len(lacking)} of {len(wanted)} tensors are absent or of another shape, such as {lacking[0]}"
    raise errors.reject("arch", arch, f"the architecture of {path}: read as of {trainer}, {what}")
