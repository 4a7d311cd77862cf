"""Many small networks of one shape, trained side by side on one core."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def symmetric(shape: tuple[int, int], generator: torch.Generator) -> Tensor:
    """U(−1, 1); divided by the root of a layer's inputs, this is how ``torch.nn.Linear`` starts."""
    return 2 * torch.rand(shape, generator=generator) - 1


class Networks:
    """M networks of linear layers with ReLU between them, independent as long as the loss is a sum over them.

    ``weights`` and ``biases`` are given network by network, layer by layer, ``[in, out]`` and ``[1, out]``; as
    attributes they are stacked layer by layer, ``[M, in, out]`` and ``[M, 1, out]``.
    """

    def __init__(self, weights: Sequence[Sequence[Tensor]], biases: Sequence[Sequence[Tensor]]) -> None:
        self.weights = [torch.stack(layer).requires_grad_() for layer in zip(*weights, strict=True)]
        self.biases = [torch.stack(layer).requires_grad_() for layer in zip(*biases, strict=True)]
        self.parameters = [*self.weights, *self.biases]

    def __call__(self, inputs: Tensor, models: slice = slice(None)) -> Tensor:
        """Outputs ``[M, B, out]`` of ``[M, B, in]``, each by its own network, of all networks or of a slice."""
        hidden = inputs
        for index, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            if index:
                hidden = hidden.relu()
            hidden = torch.baddbmm(bias[models], hidden, weight[models])
        return hidden
