"""A pretended device: values that lie on the CPU and say that they lie elsewhere.

A tensor of the device holds an ordinary CPU tensor, and every operation is computed on that one. So a run has real
values and needs no GPU; and what a GPU would refuse is refused here: tensors of two devices in one operation, and
draws from a generator of another device. Where the host would have to wait for a GPU, the line of contrastlab that
makes it wait is counted, or is an error while ``Device.may_wait`` is false.

The device is called ``meta``, the only one that PyTorch knows everywhere and computes nothing on. It does not show
speed, the rounding of a GPU's kernels, precision (autocast), or whether memory is pinned.
"""

from __future__ import annotations

import linecache
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import safetensors.torch
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map

import contrastlab

ELSEWHERE = torch.device("meta")
PACKAGE = Path(contrastlab.__file__).parent

COPIES = {"_to_copy", "copy_"}
INDEXING = {"index", "index_put", "index_put_"}
READS = {"_local_scalar_dense", "equal", "_linalg_svd"}  # the host needs the result
SIZES = {"nonzero", "masked_select", "bincount", "_unique2", "unique_dim", "unique_consecutive", "repeat_interleave"}
"""Operations whose result has a size that depends on values: the host waits to learn it."""

OF_UINT16 = {
    *COPIES, "alias", "clone", "detach", "expand", "new_empty", "permute", "select", "slice", "split", "transpose",
    "unsqueeze", "view", "_unsafe_view",
}  # fmt: skip
"""Operations that a GPU has for uint16, as far as pictures need them."""


class DeviceMixError(RuntimeError):
    """Something of one device was used on another."""


class WaitError(RuntimeError):
    """The host waits for the device where it must not."""


class Pretended(Tensor):
    """A tensor of the device, made of a CPU tensor with its ``values``."""

    values: Tensor

    @staticmethod
    def __new__(cls, values: Tensor) -> Pretended:
        layout = {"strides": values.stride(), "storage_offset": values.storage_offset()}
        tensor = Tensor._make_wrapper_subclass(cls, values.size(), dtype=values.dtype, device=ELSEWHERE, **layout)
        tensor.values = values
        return tensor

    def __repr__(self) -> str:
        return f"Pretended({self.values!r})"

    @classmethod
    def __torch_dispatch__(cls, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError(f"{operation} of a pretended device that is not in use")


class Generator(torch.Generator):
    """A CPU generator that says it is of a device."""

    place: torch.device

    def __new__(cls, device: torch.device | str = "cpu") -> Generator:
        generator = super().__new__(cls, "cpu")
        generator.place = torch.device(device)
        return generator

    @property
    def device(self) -> torch.device:
        return self.place


def is_away(place: Any) -> bool:
    """Whether a device, a tensor, or what names a device is elsewhere."""
    if isinstance(place, Tensor):
        place = place.device
    return place is not None and torch.device(place).type == ELSEWHERE.type


def values_of(x: Any) -> Any:
    """The CPU tensor of a tensor of the device; anything else as it is."""
    return x.values if isinstance(x, Pretended) else x


def pretended(x: Any) -> Any:
    """A CPU tensor as one of the device; anything else as it is."""
    return Pretended(x) if isinstance(x, Tensor) and not isinstance(x, Pretended) else x


class Device:
    """The device while it is in use."""

    def __init__(self) -> None:
        self.waits: Counter[str] = Counter()  #: how often each line made the host wait
        self.may_wait = True
        self.exempt = ""  #: part of a line of contrastlab that may always wait

    def wait(self, why: str) -> None:
        """The host waits."""
        line = line_of_package()
        self.waits[line] += 1
        is_exempt = self.exempt and self.exempt in line
        if not self.may_wait and not is_exempt:
            raise WaitError(f"the host waits for {why} at {line}")

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Tensors of the device exist within."""
        with (
            mock.patch.object(torch, "Generator", Generator),
            mock.patch.object(torch, "autocast", autocast),
            mock.patch.object(safetensors.torch, "load_file", load_file),
            Operations(self),
            Calls(self),
        ):
            yield

    def fabric(self) -> Any:
        """What a training asks of Fabric."""
        return SimpleNamespace(
            device=ELSEWHERE,
            launch=lambda: None,
            barrier=lambda: None,
            autocast=nullcontext,
            setup=lambda network, optimiser: (network, optimiser),
            backward=lambda loss: loss.backward(),
        )


class Operations(TorchDispatchMode):
    """Computes every operation on the CPU, and refuses what a device would."""

    def __init__(self, device: Device) -> None:
        super().__init__()
        self.device = device

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = operation.overloadpacket.__name__
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        takes_away = any(isinstance(x, Pretended) for x in tensors)
        if name in COPIES:
            self.check_copy(name, args, kwargs)
        elif takes_away:
            self.check_places(operation, name, tensors, args)
            self.check_wait(name, args, kwargs)
            self.check_dtypes(name, tensors)

        gives_away = takes_away
        target = kwargs.get("device")
        if target is not None:
            gives_away = is_away(target)
            kwargs["device"] = torch.device("cpu") if gives_away else target
        out = operation(*tree_map(values_of, args), **tree_map(values_of, kwargs))
        if not gives_away:
            return out
        out = tree_map(pretended, out)
        return return_and_correct_aliasing(operation, args, kwargs, out) if takes_away else out

    def check_copy(self, name: str, args: Any, kwargs: Any) -> None:
        """A copy from one device to the other waits, unless it is told not to."""
        if name == "copy_":
            target, source = args[0].device, args[1]
            free = args[2] if len(args) > 2 else kwargs.get("non_blocking", False)
        else:
            source = args[0]
            target = kwargs.get("device") or source.device
            free = kwargs.get("non_blocking", False)
        if is_away(source) != is_away(target) and not free:
            self.device.wait("a copy between host and device")

    def check_places(self, operation: Any, name: str, tensors: list[Tensor], args: Any) -> None:
        """All tensors are on the device, but for single numbers of pointwise operations, and indices."""
        strangers = [x for x in tensors if not isinstance(x, Pretended)]
        if torch.Tag.pointwise in operation.tags:
            strangers = [x for x in strangers if x.dim() > 0]
        if not strangers:
            return
        if name in INDEXING and isinstance(args[0], Pretended):
            self.device.wait("indices that lie on the CPU")
            return
        places = [(tuple(x.shape), x.device.type) for x in tensors]
        raise DeviceMixError(f"{name} of tensors on two devices, {places}, at {line_of_package()}")

    def check_dtypes(self, name: str, tensors: list[Tensor]) -> None:
        """Of uint16 a GPU has views and copies, and little else."""
        if name not in OF_UINT16 and any(x.dtype == torch.uint16 for x in tensors):
            raise NotImplementedError(f"{name} of uint16 at {line_of_package()}")

    def check_wait(self, name: str, args: Any, kwargs: Any) -> None:
        """Values that the host asks for, and sizes that depend on values."""
        if name in READS or (name in SIZES and kwargs.get("output_size") is None):
            self.device.wait(name)
        elif name in INDEXING:
            indices = [x for x in tree_leaves(args[1]) if isinstance(x, Tensor)]
            if any(x.dtype in (torch.bool, torch.uint8) for x in indices):
                self.device.wait("the number of entries of a mask")


class Calls(TorchFunctionMode):
    """What PyTorch does before there is an operation: generators, and values from Python and to it."""

    def __init__(self, device: Device) -> None:
        super().__init__()
        self.device = device

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        self.check_generator(function, args, kwargs)
        first = args[0] if args else None
        if function in (torch.tensor, torch.as_tensor) and is_away(kwargs.get("device")):
            target = kwargs.pop("device")
            return function(*args, **kwargs).to(target)
        if function is Tensor.new_tensor and isinstance(first, Pretended):
            return torch.tensor(args[1], dtype=kwargs.get("dtype", first.dtype), device=first.device)
        if function is Tensor.tolist and isinstance(first, Pretended):
            return first.cpu().tolist()
        return function(*args, **kwargs)

    def check_generator(self, function: Any, args: Any, kwargs: Any) -> None:
        """A generator draws on its own device only."""
        generator = kwargs.get("generator")
        if generator is None:
            return
        target = kwargs.get("device")
        if target is None and args and isinstance(args[0], Tensor):
            target = args[0].device
        if is_away(generator.device) != is_away(target):
            name, where = getattr(function, "__name__", function), line_of_package()
            raise DeviceMixError(f"{name} on {target or 'cpu'} with a generator of {generator.device}, at {where}")


AUTOCAST, LOAD_FILE = torch.autocast, safetensors.torch.load_file


def autocast(device_type: str, *args: Any, **kwargs: Any) -> Any:
    """``torch.autocast``, which knows no device of this name."""
    return nullcontext() if is_away(device_type) else AUTOCAST(device_type, *args, **kwargs)


def load_file(path: Any, device: str = "cpu") -> dict[str, Tensor]:
    """``safetensors.torch.load_file``, which fills no tensors of the device."""
    return {name: tensor.to(device) for name, tensor in LOAD_FILE(path).items()}


def line_of_package() -> str:
    """The innermost line of contrastlab that is being computed."""
    frame = sys._getframe(1)
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(PACKAGE):
            text = linecache.getline(str(path), frame.f_lineno).strip()
            return f"{path.relative_to(PACKAGE)}:{frame.f_lineno}: {text}"
        frame = frame.f_back
    return "no line of contrastlab"
