"""Networks of other libraries and of your own as backbones, and state dicts that other libraries trained.

``timm:<name>`` and ``torchvision:<name>`` are architectures, which start untrained; :func:`register` names one of your
own. Nothing is downloaded. Of a file that ``torch.save`` wrote, tensors and plain values are read and nothing else.
"""

from __future__ import annotations

import pickle
import re
import tomllib
from collections.abc import Callable, Mapping
from functools import partial
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from contrastlab.pictures.networks import Network, Stem
from contrastlab.support import errors, files
from contrastlab.support.tensors import describe, is_floating

_GROUP = "contrastlab.encoders"
_KEY_MAPS: Mapping[str, Any] = tomllib.loads(
    resources.files("contrastlab.pictures").joinpath("state_dicts.toml").read_text("utf-8")
)
_OWN: dict[str, Callable[..., Any]] = {}


def register(name: str, make: Callable[..., nn.Module]) -> None:
    """Make a backbone of your own known as the architecture ``name``, in this process.

    ``make(in_channels=C, **arch_options)`` gives a module from views ``[B, C, H, W]`` to features ``[B, F]`` or a map
    ``[B, F, h, w]``, with F as its attribute ``num_features``. Settings choose it by ``arch``, and both its name and
    its options are hashed; its code is not, so changed code needs another name. Its stem and width are its own. The
    entry points ``contrastlab.encoders`` of a package are known to every process.
    """
    if not isinstance(name, str) or ":" in name or "/" not in name.strip("/"):
        raise errors.reject("name", name, "a name of your own such as 'mine/wide'")
    _OWN[name] = make


def network(arch: str, options: Mapping[str, Any]) -> Network | None:
    """What makes the backbone ``arch`` with further arguments ``options``; ``None`` for a name that is not known."""
    make = _maker(arch)
    if make is None:
        return None
    return partial(_build, arch, make, options)


def _maker(arch: str) -> Callable[..., Any] | None:
    """The function of a library, of :func:`register` or of an entry point that makes ``arch``."""
    library, _, name = arch.partition(":")
    if name and library in _LIBRARIES:
        return partial(_LIBRARIES[library], name)
    if arch in _OWN:
        return _OWN[arch]
    for point in metadata.entry_points(group=_GROUP, name=arch):
        return point.load()
    return None


def _build(
    arch: str, make: Callable[..., Any], options: Mapping[str, Any], in_channels: int, stem: Stem, width: float
) -> nn.Module:
    if ":" in arch and (stem, width) != ("imagenet", 1):
        raise errors.reject("stem, width", (stem, width), f"('imagenet', 1) with {arch}: both are its own")
    try:
        return make(in_channels=in_channels, **options)
    except (TypeError, ValueError, AssertionError, RuntimeError) as error:
        if isinstance(error, errors.ContrastLabError):
            raise
        raise errors.reject("arch_options", dict(options), f"what {arch} takes ({error})") from error


def _timm(name: str, in_channels: int, **options: Any) -> Any:
    timm = errors.import_extra("timm", "vit")
    _check("timm", name, timm.list_models(), f"hf download timm/{name} model.safetensors")
    return timm.create_model(name, in_chans=in_channels, num_classes=0, **options)


def _torchvision(name: str, in_channels: int, **options: Any) -> Any:
    from torchvision import models

    plain, _, tag = name.partition(".")
    how = f"the url of torchvision.models.get_model_weights({plain!r})[{tag!r}]"
    _check("torchvision", name, models.list_models(module=models), how)
    model = models.get_model(name, weights=None, **options)
    linear = [path for path, layer in model.named_modules() if isinstance(layer, nn.Linear)]
    if not linear:
        raise errors.NotApplicableError(f"torchvision:{name} cannot be used here: no linear classifier to take off")
    if in_channels != 3:
        missing = f"{in_channels} channels instead of three"
        raise errors.NotApplicableError(f"torchvision:{name} cannot be used here: {missing}")
    classifier = linear[-1]
    model.num_features = model.get_submodule(classifier).in_features
    model.set_submodule(classifier, nn.Identity())
    return model


_LIBRARIES: Mapping[str, Callable[..., Any]] = {"timm": _timm, "torchvision": _torchvision}


def _check(library: str, name: str, known: list[str], get: str) -> None:
    """Refuse a name that a library has not, and say of one with a tag, ``resnet18.a1_in1k``, how to get its weights."""
    plain, _, tag = name.partition(".")
    errors.check_name(f"network of {library}", plain, known)
    if tag:
        how = f"{get}, then --encoder FILE --arch {library}:{plain}"
        raise errors.MissingDataError(f"weights of {library}:{name} are not downloaded here; get the file: {how}")


# State dicts of other trainers ----------------------------------------------------------------------------------------


_WRAPPERS = ("state_dict", "model_state_dict", "model", "net", "network", "teacher", "student")
"""What trainers call the weights among the things that they save, in the order in which they are looked for."""


def read(path: Path) -> dict[str, Tensor]:
    """The tensors of a ``.safetensors`` file, or of a checkpoint of ``torch.save``, by name, on the CPU.

    A checkpoint may hold them beside other things, under a name of :data:`_WRAPPERS`, or in any other mapping: then the
    one with most tensors is taken.
    """
    files.check_regular(path)
    if not path.exists():
        raise errors.MissingDataError(f"{path} does not exist: expected a file of weights")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
        weights = _weights(checkpoint)
        return {str(name): value for name, value in weights.items() if isinstance(value, Tensor)}
    except (*files.DAMAGED, pickle.UnpicklingError, SafetensorError, RuntimeError, EOFError) as error:
        first_line = _reason(error).splitlines()[0]
        accepted = "a .safetensors file, or tensors and plain values of torch.save; other objects are not read"
        raise errors.CorruptFileError(f"{path} holds no state dict ({first_line}); expected {accepted}") from error


def _reason(error: Exception) -> str:
    """Why a file was refused, in words of a user; torch's own message advises to trust the file."""
    save = "where it was trained, save the tensors alone: torch.save(model.state_dict(), 'weights.pth')"
    named = re.search(r"GLOBAL ([\w.]+)", str(error))
    if isinstance(error, pickle.UnpicklingError) and named:
        return f"it holds an object of {named[1]} beside tensors; {save}"
    if "TorchScript" in str(error):
        return f"it is a TorchScript archive; {save}"
    if isinstance(error, EOFError):
        return "it is empty or cut short"
    if isinstance(error, pickle.UnpicklingError | LookupError):
        return "torch.save did not write it, or it is damaged"
    return str(error) or type(error).__name__


def _weights(inside: Any) -> Mapping[Any, Any]:
    """The mapping in a checkpoint that holds the weights."""
    if not isinstance(inside, Mapping):
        raise TypeError(f"it is a {type(inside).__name__}, not a dictionary")
    for name in _WRAPPERS:
        wrapped = inside.get(name)
        if not isinstance(wrapped, Mapping):
            continue
        weights = _most(wrapped)
        if weights:
            return weights
    weights = _most(inside)
    if not weights:
        raise ValueError("no tensor is in it")
    return weights


def _most(inside: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """Of a mapping and those in it the one with most tensors, the outermost of several; empty where none has any."""
    best: Mapping[Any, Any] = {}
    count = 0
    unread = [inside]
    seen: set[int] = set()
    while unread:
        mapping = unread.pop(0)
        if id(mapping) in seen:  # a file may hold itself
            continue
        seen.add(id(mapping))
        tensors = sum(isinstance(value, Tensor) for value in mapping.values())
        if tensors > count:
            best = mapping
            count = tensors
        unread += [value for value in mapping.values() if isinstance(value, Mapping)]
    return best


def check_weights(path: Path, wanted: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> None:
    """Refuse tensors of a file that no network can compute with, by a ``CorruptFileError`` that names the first."""
    for name, place in wanted.items():
        value = weights.get(name)
        if value is None:
            continue
        wrong = _fault(name, value, place)
        if wrong:
            accepted = "dense floating-point tensors of finite numbers, and variances of at least 0"
            raise errors.CorruptFileError(f"{path}: {name} is {wrong}; accepted are {accepted}")


def _fault(name: str, value: Tensor, place: Tensor) -> str:
    """Why no network can compute with a tensor in the place of another one; empty where it can."""
    if value.is_meta:
        return "on the device meta, without numbers"
    if value.layout != torch.strided:
        return str(describe(value))
    if place.is_floating_point() and not is_floating(value):
        return str(describe(value))
    if not value.to(place.dtype).isfinite().all():
        return f"not finite in {place.dtype}"
    if name.endswith("running_var") and bool((value < 0).any()):
        return "a negative variance"
    return ""


def fill(backbone: nn.Module, path: Path, arch: str) -> str:
    """Give a backbone the tensors of a file, whatever its trainer calls them; gives the trainer's name.

    Rows of ``state_dicts.toml`` are tried in order, then again behind each prefix that names in the file share. All
    tensors of the backbone must be there, in their shapes; only counters of batches may lack. What the file has beside
    them (heads, queues, a momentum encoder) is left aside.
    """
    state = read(path)
    wanted = backbone.state_dict()
    for lead in ("", *_leads(state)):
        behind = {key.removeprefix(lead): value for key, value in state.items() if key.startswith(lead)}
        for trainer, row in _KEY_MAPS.items():
            fits, missing = _fitting(behind, row, wanted)
            if missing:
                continue
            check_weights(path, wanted, fits)
            backbone.load_state_dict(fits, strict=False)
            if lead:
                return f"{trainer}, behind {lead}"
            return trainer
    raise errors.reject("arch", arch, _closest(path, state, wanted))


def _closest(path: Path, state: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> str:
    """What a file has that no row fits, and what it lacks by the row that fits best."""
    missing_of = {trainer: _fitting(state, row, wanted)[1] for trainer, row in _KEY_MAPS.items()}
    trainer = min(missing_of, key=lambda name: len(missing_of[name]))
    missing = missing_of[trainer]
    mismatch = f"{len(missing)} of {len(wanted)} tensors are absent or of another shape, such as {missing[0]}"
    names = ", ".join(list(state)[:3])
    return f"the architecture of {path}, which has {names}: read as of {trainer}, {mismatch}"


def _leads(state: Mapping[str, Tensor]) -> list[str]:
    """What stands before a dot in names of a file, up to six words, the shortest first, in the file's order."""
    found: dict[str, None] = {}
    for words in range(1, 7):
        for name in state:
            parts = name.split(".")
            if len(parts) > words:
                found[".".join(parts[:words]) + "."] = None
    return list(found)


def _fitting(
    state: Mapping[str, Tensor], row: Mapping[str, Any], wanted: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], list[str]]:
    """The tensors of a file under the backbone's names, as one trainer's row maps them, and the names that lack."""
    renamed: dict[str, Tensor] = {}
    for key, value in state.items():
        if key.startswith(row["prefix"]):
            renamed[_renamed(key.removeprefix(row["prefix"]), row, state, wanted)] = value
    fits = {}
    missing = []
    for name, place in wanted.items():
        tensor = renamed.get(name)
        if tensor is not None and tensor.shape == place.shape:
            fits[name] = tensor
        elif not name.endswith("num_batches_tracked"):
            missing.append(name)
    return fits, missing


def _renamed(name: str, row: Mapping[str, Any], state: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> str:
    """What the backbone calls a tensor of a file, given its name behind the prefix of a row."""
    children = {str(number): child for number, child in enumerate(row.get("children", ()))}
    first, dot, rest = name.partition(".")
    if first == "blocks" and "block" in row:
        return _name_in_block(rest, row, state, wanted)
    return row.get("names", children).get(first, first) + dot + rest


def _name_in_block(name: str, row: Mapping[str, Any], state: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> str:
    """``blocks.1.0.conv_dw.weight`` for ``1._depthwise_conv.weight``: the block after ``blocks.0.0``."""
    blocks = list(dict.fromkeys(re.findall(r"^blocks\.\d+\.\d+", "\n".join(wanted), re.MULTILINE)))
    number, layer, kind = f"{name}..".split(".")[:3]
    if not number.isdecimal() or int(number) >= len(blocks):
        return name
    prefix = row["prefix"]
    expands = f"{prefix}blocks.{number}.{prefix}expand_conv.weight" in state
    names = row["block"] if expands else row["block_that_does_not_expand"]
    layer = layer.removeprefix(prefix)
    return f"{blocks[int(number)]}.{names.get(layer, layer)}.{kind}"
