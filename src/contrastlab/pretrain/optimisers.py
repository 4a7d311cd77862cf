"""The optimiser of a run, as settings name it."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from contrastlab.settings import Settings


def optimiser(settings: Settings, parameters: Iterable[nn.Parameter], *, fused: bool = False) -> torch.optim.Optimizer:
    """SGD with momentum, Adam (weight decay added to the gradient) or AdamW (weights decayed apart from it).

    Args:
        settings: ``optimiser``, ``lr``, ``weight_decay``, and ``momentum`` of SGD.
        parameters: of the network; those without gradient, such as a fixed patch projection, are left out.
        fused: the step as one kernel.
    """
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    own, how = settings.optimiser, {"lr": settings.lr, "weight_decay": settings.weight_decay, "fused": fused}
    if own.name == "sgd":
        return torch.optim.SGD(trained, momentum=settings.momentum, **how)  # type: ignore[arg-type]
    kind = torch.optim.AdamW if own.name == "adamw" else torch.optim.Adam
    return kind(trained, betas=own.betas, eps=own.eps, **how)  # type: ignore[arg-type]
