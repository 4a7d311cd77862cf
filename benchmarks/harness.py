"""One fair comparison: ways to compute the same thing are proved equal, then timed in turn.

A task is a test that hands its ways to the ``contest`` fixture (see ``conftest.py``). pytest-benchmark drives the
rounds; in a round every way runs once, and each round begins with another way, so that whatever else the machine does
falls on all of them. Processor time and wall time are read around each way. Peak memory is that of a forked child which
runs the way once, above what it held before: the inputs are there, the caches of the parent's allocator are given back
first.
"""

from __future__ import annotations

import ctypes
import gc
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from threading import Thread
from typing import Any

import torch
from torch import Tensor

VALUE, GRADIENT = 1e-5, 1e-4
"""Relative deviation of a value, and of a gradient in norm, from the float64 truth."""

Found = Callable[[], Sequence[Tensor]]
"""The value, then its gradients."""


@dataclass(frozen=True)
class Way:
    """One way to do a task.

    Args:
        name: in the table.
        step: what is timed.
        found: value and gradients, compared with the truth before anything is timed; ``None`` for a yardstick, which
            computes something else on purpose (plain MoCo beside its ring).
        peer: a published library, in its best legal configuration.
    """

    name: str
    step: Callable[[], object]
    found: Found | None = None
    peer: bool = False


@dataclass(frozen=True)
class Missing:
    """A peer that is not installed."""

    name: str


def peer(name: str, make: Callable[[], Way]) -> Way | Missing:
    """``make()``, or :class:`Missing` where its package is not installed."""
    try:
        return make()
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("lightly", "pytorch_metric_learning"):
            raise
        return Missing(name)


def loss_way(
    name: str,
    loss: Callable[..., Tensor],
    inputs: Sequence[Tensor],
    *,
    after: Callable[[], object] | None = None,
    peer: bool = False,
    equal: bool = True,
) -> Way:
    """Forward and backward of a scalar ``loss(*inputs)``, and what a step does ``after`` them."""
    asked = [x for x in inputs if x.requires_grad]

    def step() -> None:
        for x in asked:
            x.grad = None
        loss(*inputs).backward()
        if after is not None:
            after()

    def found() -> list[Tensor]:
        value = loss(*inputs)
        return [value.detach(), *torch.autograd.grad(value, asked)]

    return Way(name, step, found if equal else None, peer)


def truth_of(loss: Callable[..., Tensor], *inputs: Tensor) -> list[Tensor]:
    """Value and gradients of ``loss`` in float64."""
    double = [x.detach().double().requires_grad_(x.requires_grad) for x in inputs]
    value = loss(*double)
    return [value.detach(), *torch.autograd.grad(value, [x for x in double if x.requires_grad])]


def same(name: str, found: Sequence[Tensor], truth: Sequence[Tensor]) -> None:
    """Fail unless value and gradients agree with the truth."""
    assert len(found) == len(truth), f"{name}: {len(found)} tensors instead of {len(truth)}"
    for tensor, true, allowed in zip(found, truth, [VALUE] + [GRADIENT] * (len(truth) - 1), strict=True):
        assert tensor.shape == true.shape, f"{name}: shape {tuple(tensor.shape)} instead of {tuple(true.shape)}"
        off = float((tensor.double() - true.double()).norm() / true.double().norm().clamp(min=1e-30))
        assert off <= allowed, f"{name}: relative deviation {off:.1e} from the float64 truth, allowed {allowed:g}"


def take_turns(ways: Sequence[Way], rounds: int, benchmark: Any) -> dict[str, list[tuple[float, float]]]:
    """``rounds`` rounds in which each way runs once: seconds of processor and wall per way and round."""
    spent: dict[str, list[tuple[float, float]]] = {way.name: [] for way in ways}
    turn = 0

    def one_round() -> None:
        nonlocal turn
        first = turn % len(ways)
        for way in [*ways[first:], *ways[:first]]:
            wall, cpu = time.perf_counter(), time.process_time()
            way.step()
            spent[way.name].append((time.process_time() - cpu, time.perf_counter() - wall))
        turn += 1

    benchmark.pedantic(one_round, rounds=rounds)
    return spent


def summary(spent: Sequence[tuple[float, float]], peak: float | None) -> dict[str, Any]:
    """Median and least milliseconds of a way, and its peak memory in MB."""
    row: dict[str, Any] = {"rounds": len(spent)}
    for which, clock in enumerate(("cpu_ms", "wall_ms")):
        values = [1000 * s[which] for s in spent]
        row[clock] = {"median": float(f"{median(values):.4g}"), "min": float(f"{min(values):.4g}")}
    row["peak_mb"] = None if peak is None else round(peak, 1)
    return row


def peak_memory(step: Callable[[], object]) -> float | None:
    """Megabytes (10⁶ bytes) that one ``step`` holds at its peak above what was there before; ``None`` off Linux.

    Args:
        step: has run before; runs once more, in a forked child, and changes nothing here.
    """
    reset = Path("/proc/self/clear_refs")
    if not reset.exists():
        return None
    gc.collect()
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            libc = ctypes.CDLL(None)
            libc.mallopt(-3, 1 << 16)  # M_MMAP_THRESHOLD: memory is taken from, and given back to, the system at once
            libc.malloc_trim(0)
            reset.write_text("5")
            before, code = _status("VmRSS"), _status("RssFile")
            # in a thread of its own, so that room that a thread keeps for its next step is counted
            thread = Thread(target=step)
            thread.start()
            thread.join()
            # pages of libraries that the child had not yet touched are no memory of the step
            os.write(write, str(_status("VmHWM") - before - (_status("RssFile") - code)).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return float(text) * 1024 / 1e6 if text else None


def _status(field: str) -> int:
    # kB
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field + ":"))
