"""Learning rate, optimiser and precision of a run, as settings name them."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from contrastlab.settings import Settings
from contrastlab.support.errors import import_extra

if TYPE_CHECKING:
    from lightning_fabric import Fabric


def cpu_fabric(asked: str = "32-true") -> Fabric:
    """One process on the CPU."""
    from lightning_fabric import Fabric  # seconds, which what trains nothing does without

    with warnings_only():
        return Fabric(accelerator="cpu", devices=1, precision=precision(asked, "cpu"))


@contextmanager
def warnings_only() -> Iterator[None]:
    """Keep Fabric from saying which precision it was asked for, line by line into every notebook; it still warns."""
    logger = logging.getLogger("lightning_fabric")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


def precision(asked: str, accelerator: str = "auto") -> Any:
    """The precision of encoders: ``auto`` is bf16-mixed where the accelerator has such instructions."""
    if asked != "auto":
        return asked
    if accelerator != "cpu" and torch.cuda.is_available():
        has_bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        has_bf16 = _cpu_has_bf16()
    if has_bf16:
        return "bf16-mixed"
    return "32-true"


def _cpu_has_bf16() -> bool:
    """Whether the CPU has bfloat16 instructions, as far as this version of PyTorch can say."""
    known = [getattr(torch.cpu, name, None) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported")]
    return any(ask is not None and ask() for ask in known)


def optimiser(settings: Settings, parameters: Iterable[nn.Parameter], *, fused: bool = False) -> torch.optim.Optimizer:
    """SGD with momentum, Adam (weight decay added to the gradient), AdamW (weights decayed apart from it) or LARS.

    Parameters without gradient, such as a fixed patch projection, are left out; those without dimensions, such as a
    learnt temperature, are in a group of their own without weight decay. With ``decay = "matrices"`` biases and the
    weights of norms, which have one dimension, are in that group, too; LARS takes plain steps there. ``fused`` takes a
    step in one kernel, which LARS has not.
    """
    kind = settings.optimiser
    least_dimensions = 1
    if kind.decay == "matrices":
        least_dimensions = 2
    decayed: list[nn.Parameter] = []
    undecayed: list[nn.Parameter] = []
    for parameter in parameters:
        if not parameter.requires_grad:
            continue
        if parameter.dim() >= least_dimensions:
            decayed.append(parameter)
        else:
            undecayed.append(parameter)
    groups: list[Any] = [{"params": decayed}]
    if undecayed:
        groups.append({"params": undecayed, "weight_decay": 0.0})
    options: dict[str, Any] = {"lr": settings.lr, "weight_decay": settings.weight_decay}
    if kind.name == "lars":
        lars: Any = import_extra("timm.optim", "vit").Lars
        return lars(groups, momentum=settings.momentum, trust_coeff=kind.trust, eps=kind.eps, **options)
    options["fused"] = fused
    if kind.name == "sgd":
        return torch.optim.SGD(groups, momentum=settings.momentum, **options)
    if kind.name == "adamw":
        return torch.optim.AdamW(groups, betas=kind.betas, eps=kind.eps, **options)
    return torch.optim.Adam(groups, betas=kind.betas, eps=kind.eps, **options)


def learning_rate(settings: Settings, epoch: int, done: float = 0.0) -> float:
    """Learning rate before plateau drops, of an epoch (from 0) of which a share is ``done``.

    The linear schedule (BERT, MoCo v3) changes within epochs; the papers' others change the rate between them only.
    """
    warm = settings.warmup_epochs
    if settings.schedule == "linear":
        passed = epoch + done
        if passed < warm:
            return settings.lr * passed / warm
        return settings.lr * max(0.0, settings.epochs - passed) / max(settings.epochs - warm, 1)
    if epoch < warm:
        return settings.lr * (epoch + 1) / warm
    if settings.schedule == "cosine":
        return settings.lr * 0.5 * (1 + math.cos(math.pi * epoch / settings.epochs))
    if settings.schedule == "steps":
        drops = sum(epoch >= milestone for milestone in settings.milestones)
        return settings.lr * settings.gamma**drops
    return settings.lr


def plateau_drops(history: list[dict[str, float]], settings: Settings) -> int:
    """Drops taken so far: one each time 1-NN accuracy has not improved for ``patience`` epochs (vince C.2)."""
    best_accuracy = -math.inf
    epochs_since = 0  # the best one, or the last drop
    drops = 0
    for row in history:
        epochs_since += 1
        if row.get("nn1", -math.inf) > best_accuracy:
            best_accuracy = row["nn1"]
            epochs_since = 0
        if epochs_since >= settings.patience and drops < settings.drops:
            drops += 1
            epochs_since = 0
    return drops
