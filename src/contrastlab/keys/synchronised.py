"""Batch-norm whose statistics are those of the global batch, so that in-batch keys are as one process computes them.

PyTorch's own needs a GPU; this one also works on CPUs, and its state dict is that of the norm it stands for.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from contrastlab.errors import NotApplicableError
from contrastlab.keys.base import gather_with_gradient, world


class _Synchronised(_BatchNorm):
    def forward(self, x: Tensor) -> Tensor:
        """Normalised by mean and variance over all processes, which have batches of one size, with their gradients."""
        count = world()[1]
        if count == 1 or not self.training:
            return super().forward(x)
        axes, shape = [k for k in range(x.dim()) if k != 1], [1, -1, *[1] * (x.dim() - 2)]
        full = x.float()
        mean = gather_with_gradient(full.mean(axes)[None]).mean(0)
        centred = full - mean.view(shape)
        variance = gather_with_gradient(centred.square().mean(axes)[None]).mean(0)
        if self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None:
            with torch.no_grad():
                self.num_batches_tracked.add_(1)
                size, share = count * x.numel() / x.shape[1], self.momentum or 0.0
                self.running_mean.lerp_(mean, share)
                self.running_var.lerp_(variance * (size / (size - 1)), share)
        out = centred * (variance + self.eps).rsqrt().view(shape)
        if self.affine:
            out = out * self.weight.view(shape) + self.bias.view(shape)
        return out.to(x.dtype)


_KINDS: dict[type, type] = {
    kind: type(f"Sync{kind.__name__}", (_Synchronised, kind), {}) for kind in (nn.BatchNorm1d, nn.BatchNorm2d)
}


def synchronise(network: nn.Module, *, on: bool = True) -> None:
    """Let every batch-norm of ``network`` see the global batch, in place; ``on=False`` makes it the plain one again."""
    for module in network.modules():
        if isinstance(module, _Synchronised) and not on:
            module.__class__ = type(module).__bases__[1]
        elif isinstance(module, _BatchNorm) and on and not isinstance(module, _Synchronised):
            if type(module) not in _KINDS or module.momentum is None:
                raise NotApplicableError(f"sync_batch_norm=True: no form of {module} for several processes is known")
            module.__class__ = _KINDS[type(module)]
