"""Learning without negatives: a predictor's output follows the other view's projection (Grill et al. 2020, BYOL).

SimSiam (Chen & He 2021) is the same without a momentum encoder.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contrastlab.keys import Batch, Contrasts, Direction, Embed, Keys, KeyState, Network, base, momentum_update
from contrastlab.objectives import ALONE, Context, Objective, Scores
from contrastlab.scores import choices
from contrastlab.scores.choices import Choices, Need, Setup
from contrastlab.support.errors import is_integer, is_number, reject
from contrastlab.support.seeds import fixed

PREDICTED = "keys: what a predictor of the queries follows, without gradient"


@dataclass(frozen=True)
class Predicted(Keys):
    """The other view's projection, without gradient: what the query, which goes through a predictor, is to equal.

    The key comes from a momentum encoder (BYOL, section 3.1). Its ``momentum`` grows from the number given to 1 by half
    a cosine over the run. ``None`` is the encoder itself (SimSiam). ``predictor`` is the width of the predictor: a
    linear layer, batch-norm, ReLU and a linear layer, shared by all views. ``None`` leaves it out; then all embeddings
    soon are one, as both papers report. Views go through the encoders one after the other.
    """

    momentum: float | None = 0.996
    predictor: int | None = 4096

    offers = frozenset({PREDICTED})
    bounds_information = False  # no negatives, no bound of this kind

    def __post_init__(self) -> None:
        if self.momentum is not None and not (is_number(self.momentum) and 0 <= self.momentum <= 1):
            raise reject("momentum", self.momentum, "None, or a number from 0 to 1")
        if self.predictor is not None and not is_integer(self.predictor):
            raise reject("predictor", self.predictor, "None, or a width of at least 1")

    def views_needed(self, streams: int, further: int) -> int:
        return base.views_of_other_keys(streams, further)

    def needs(self, given: Choices) -> Iterator[Need]:
        yield from super().needs(given)
        alone = f"{self!r} has no negatives, so objective must be Follow()"
        yield Need(choices.POSITIVE_ALONE, alone, f"given: {given.objective!r}")

    def module(self, setup: Setup) -> nn.Module | None:
        """The predictor, ``[B, d]`` → ``[B, d]``, where there is one."""
        if self.predictor is None:
            return None
        with fixed(int(torch.randint(2**31, (), generator=setup.generator))):
            return nn.Sequential(
                nn.Linear(setup.dim, self.predictor, bias=False),
                nn.BatchNorm1d(self.predictor),
                nn.ReLU(inplace=True),
                nn.Linear(self.predictor, setup.dim),
            )

    def embed(self, encoders: nn.ModuleList, module: nn.Module | None, views: tuple[Tensor, ...]) -> list[Tensor]:
        """Unit queries ``[B, d]`` of each view, then unit projections ``[B, d]`` of each."""
        projections = [_project(encoders, number, view) for number, view in enumerate(views)]
        queries = projections
        if module is not None:
            queries = [module(projection).float() for projection in projections]
        return [F.normalize(each, dim=1, eps=1e-8) for each in (*queries, *projections)]

    def state(self, setup: Setup) -> PredictedState:
        return PredictedState(setup, self.momentum)

    @property
    def latex(self) -> str:
        of = r"\text{ without gradient}"
        if self.momentum is not None:
            of = rf"\text{{ of a momentum encoder, }}m={self.momentum:g}\to1"
        return rf"\text{{the other view}}{of}\text{{, queries through a predictor}}"


def _project(encoders: nn.ModuleList, number: int, view: Tensor) -> Tensor:
    projected: Tensor = encoders[number % len(encoders)].project(view)  # type: ignore[operator]
    return projected.float()


class PredictedState(KeyState):
    """Queries of one view and the key of the other, both ways."""

    def __init__(self, setup: Setup, momentum: float | None) -> None:
        super().__init__(setup)
        self.momentum = momentum
        if len(setup.encoders) == 1:
            self.directions = ((0, 1), (1, 0))
        if momentum is not None:
            self.slow = copy.deepcopy(setup.encoders).requires_grad_(False)

    def ask(self, batch: Batch, embed: Embed, network: Network) -> Contrasts:
        embedded = embed(*batch.views)
        count = len(batch.views)
        queries, own_keys = embedded[:count], embedded[count:]
        targets = [key.detach() for key in own_keys]
        if self.slow is not None:
            targets = self._slow_keys(batch, network)
        no_others = torch.zeros_like(targets[0][:1])
        directions = []
        for query, key in self.directions:
            directions.append(Direction(queries[query], targets[key][:, None], no_others))
        return Contrasts(directions)

    @torch.no_grad()
    def _slow_keys(self, batch: Batch, network: Network) -> list[Tensor]:
        """Unit keys of each view by the momentum encoders, which first move towards the encoders."""
        slow = self.slow
        assert slow is not None
        assert self.momentum is not None
        last = max(batch.step - 1, 0)  # the update belongs to the optimiser step before
        left = (1 - self.momentum) * (math.cos(math.pi * last / batch.total) + 1) / 2
        momentum_update(slow, network.encoders, 1 - left)

        def embed(*views: Tensor) -> list[Tensor]:
            return [F.normalize(_project(slow, number, view), dim=1, eps=1e-8) for number, view in enumerate(views)]

        return base.in_chunks(embed, batch.views, batch.chunks)


@dataclass(frozen=True)
class Follow(Objective):
    """``‖q − k⁺‖² = 2 − 2 q·k⁺`` of unit vectors: losses ``[B]``, squared distances from 0 to 4 (BYOL, Eq. 2).

    Without negatives equal embeddings of all items are a best solution, so the keys must be :class:`Predicted`. It
    bounds no mutual information.
    """

    offers = frozenset({choices.POSITIVE_ALONE})
    latex = r"\lVert q-k^+\rVert^2"

    def needs(self, given: Choices) -> Iterator[Need]:
        why = f"{self!r} has no negatives, so a predictor must follow keys without gradient: take Predicted"
        yield Need(PREDICTED, why, f"given: keys={given.keys!r}")
        yield Need(choices.ONE_POSITIVE, f"{self!r} has one positive", f"given: positives={given.positives!r}")

    def __call__(self, scores: Scores, context: Context = ALONE) -> Tensor:
        scores.require_one_positive("Follow")
        return 2 - 2 * scores.own / scores.require_highest("Follow")
