"""What every door of this package asks of a tensor that a user gives, and of a network that is only read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contrastlab.support import host
from contrastlab.support.errors import check, reject

FLOATING = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
_LONGEST = 1.02  # of a unit row, or a mean of such: bfloat16 is off by no more


def describe(value: object) -> object:
    """What a value is, for a refusal: the dtype of a dense tensor, else its layout or its type in words."""
    if isinstance(value, type):
        return f"{value.__name__}, a class"
    if not isinstance(value, Tensor):
        return type(value).__name__
    if value.is_nested:
        return f"{value.dtype}, nested"
    if value.layout != torch.strided:
        return f"{value.dtype}, {value.layout}"
    return value.dtype


def is_floating(value: object, dtypes: tuple[torch.dtype, ...] = FLOATING) -> bool:
    """Whether a value is a dense tensor of real floating-point numbers."""
    if not isinstance(value, Tensor) or value.is_nested:
        return False
    return value.layout == torch.strided and value.dtype in dtypes


def is_whole(value: object) -> bool:
    """Whether a value is a dense tensor of integers; booleans count as 0 and 1."""
    if not isinstance(value, Tensor) or value.is_nested or value.layout != torch.strided:
        return False
    return not (value.is_floating_point() or value.is_complex() or value.is_quantized)


def check_floating(**values: object) -> None:
    """Reject what is no dense tensor of real floating-point numbers."""
    for name, value in values.items():
        check(is_floating(value), name, describe(value), "a dense tensor of floating-point numbers")


def check_finite(**values: Tensor) -> None:
    """Reject a tensor that holds NaN or infinity, and say how many rows do; the host waits for a GPU."""
    for name, value in values.items():
        is_finite = value.isfinite()
        if bool(is_finite.all()):
            continue
        if value.dim() < 2:
            count = int((~is_finite).sum())
            where = f"{count} of {value.numel()} numbers"
        else:
            count = int((~is_finite.flatten(1).all(1)).sum())
            where = f"{count} of {len(value)} rows"
        raise reject(name, f"nan or inf in {where}", "finite numbers")


def check_rows(name: str, value: object) -> None:
    """Reject what is no dense floating-point tensor ``[N, d]`` with a row and a column at least, all numbers finite."""
    check_floating(**{name: value})
    assert isinstance(value, Tensor)
    if value.dim() != 2 or not value.numel():
        raise reject(name, tuple(value.shape), "a tensor of shape [N, d], with N and d of at least 1")
    check_finite(**{name: value})


def check_same(what: str, **values: Tensor | None) -> None:
    """Reject tensors that differ in ``what``, ``"device"`` or ``"dtype"``; ``None`` is left out."""
    properties = {name: getattr(value, what) for name, value in values.items() if value is not None}
    if len(set(properties.values())) > 1:
        listed = ", ".join(str(each) for each in properties.values())
        raise reject(", ".join(properties), listed, f"tensors of one {what}")


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """Scores are computed in the precision of their tensors; some devices, such as meta, know no autocast."""
    if not torch.amp.is_autocast_available(device.type):
        return nullcontext()
    return torch.autocast(device.type, enabled=False)


def unit_rows(rows: Tensor) -> Tensor:
    """``[N, d]`` rows divided by their length, whatever its size: squares of 1e200 or 1e-200 are no float64 numbers."""
    largest = rows.detach().abs().amax(1, keepdim=True)
    return F.normalize(rows / torch.where(largest > 0, largest, 1.0), dim=1)


def check_unit(name: str, rows: Tensor) -> None:
    """Reject rows ``[N, d]`` that are not finite, or longer than unit length; on a CPU, as a GPU's host would wait."""
    check_floating(**{name: rows})
    if not host.holds(rows.device) or not rows.numel():
        return
    check_finite(**{name: rows})
    longest = float(rows.detach().norm(dim=1).max())
    check(longest <= _LONGEST, name, f"a row of length {longest:.4g}", "rows divided by their length")


@contextmanager
def frozen(network: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; the mode of every submodule is put back afterwards."""
    modes = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes:
            module.training = mode
