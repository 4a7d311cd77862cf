"""What stands between the query's projection and its comparison with keys, and nowhere else (MoCo v3)."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional as F

from contrastlab.keys.base import Network


def normed_layers(*sizes: int) -> nn.Sequential:
    """Linear layers without bias, batch-norm behind each, ReLU between; the last norm has no weights (MoCo v3).

    Args:
        sizes: features from the input to the output.
    """
    layers: list[nn.Module] = []
    for k, (inputs, outputs) in enumerate(pairwise(sizes), 1):
        last = k == len(sizes) - 1
        layers += [nn.Linear(inputs, outputs, bias=False), nn.BatchNorm1d(outputs, affine=not last)]
        layers += [] if last else [nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


class Predicting(Network):
    """Encoders whose projections go through a predictor before they are queries, view by view.

    Args:
        encoders: one per stream.
        predictor: ``[B, dim]`` to ``[B, dim]``, shared by the streams.
    """

    def __init__(self, encoders: nn.ModuleList, predictor: nn.Module) -> None:
        super().__init__(encoders)
        self.predictor = predictor

    def forward(self, *views: Tensor) -> list[Tensor]:
        """Unit predictions ``[B, dim]`` of each view."""
        streams = len(self.encoders)
        made = (self.encoders[v % streams].project(view) for v, view in enumerate(views))  # type: ignore[operator]
        return [F.normalize(self.predictor(projected).float(), dim=1, eps=1e-8) for projected in made]
