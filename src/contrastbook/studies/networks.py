"""Many small networks of one shape, trained side by side on one core."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def symmetric(shape: tuple[int, int], generator: torch.Generator) -> Tensor:
    """Numbers from U(−1, 1); over the root of a layer's inputs they are what ``torch.nn.Linear`` starts from."""
    return 2 * torch.rand(shape, generator=generator) - 1


class Networks:
    """M networks of linear layers with ReLU between them, run at once.

    The state of one never depends on the others as long as the loss is a sum over them and the optimiser works entry
    by entry.

    Args:
        weights: for each network those of its layers, ``[in, out]``.
        biases: for each network those of its layers, ``[1, out]``.

    Attributes:
        weights: of each layer ``[M, in, out]``.
        biases: of each layer ``[M, 1, out]``.
    """

    def __init__(self, weights: Sequence[Sequence[Tensor]], biases: Sequence[Sequence[Tensor]]) -> None:
        self.weights = [torch.stack(layer).requires_grad_() for layer in zip(*weights, strict=True)]
        self.biases = [torch.stack(layer).requires_grad_() for layer in zip(*biases, strict=True)]

    @property
    def parameters(self) -> list[Tensor]:
        """What an optimiser changes."""
        return [*self.weights, *self.biases]

    def __call__(self, inputs: Tensor, models: slice = slice(None)) -> Tensor:
        """Outputs ``[M, B, out]`` of ``[M, B, in]``, each by its own network, of all networks or of a slice."""
        hidden = inputs
        for index, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            hidden = torch.baddbmm(bias[models], hidden.relu() if index else hidden, weight[models])
        return hidden
