"""Keys without a memory: the batch (SimCLR; MoCo v3; fmicl Eq. 11), class vectors, locations and pixels of a map."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contrastlab.keys import base
from contrastlab.keys.base import Batch, Contrasts, Direction, Embed, Keys, KeyState, Network
from contrastlab.scores import choices
from contrastlab.scores.choices import Choices, Need, Setup
from contrastlab.support import collectives
from contrastlab.support.errors import (
    NotApplicableError,
    check,
    check_choice,
    check_flag,
    check_integer,
    is_integer,
    is_number,
    reject,
)
from contrastlab.support.seeds import fixed


@dataclass(frozen=True)
class InBatch(Keys):
    """The other embeddings of the same batch, over all processes, with their gradients (SimCLR).

    Keys are ``"both"`` views of all other images (SimCLR), the other view of them only (``"across"``), or the query's
    own view of them (``"within"``, fmicl Eq. 11). The positive is always the other view. Streams (CMC) are compared
    ``"across"``. In MoCo v3 the keys come from a momentum encoder, without gradient, and queries go through two more
    layers, the predictor.
    """

    against: Literal["both", "across", "within"] = "both"
    symmetric: bool = True  #: both views ask, and the loss is their mean; else only the first
    momentum: float | None = None  #: of a momentum encoder (with ``"across"``)
    predictor: int | None = None  #: width of the predictor (with a momentum encoder)

    def __post_init__(self) -> None:
        check_choice("against", self.against, ("both", "across", "within"))
        check_flag("symmetric", self.symmetric)
        if self.momentum is not None and not (is_number(self.momentum) and 0 <= self.momentum <= 1):
            raise reject("momentum", self.momentum, "None, or a number from 0 to 1")
        if self.momentum is not None and self.against != "across":
            raise reject("against", self.against, "'across' with a momentum encoder: keys are of the other view")
        if self.predictor is not None and (self.momentum is None or not is_integer(self.predictor)):
            raise reject("predictor", self.predictor, "None, or a width of at least 1 with a momentum encoder")

    @property
    def offers(self) -> frozenset[str]:
        return frozenset({choices.LABELLED})

    def views_needed(self, streams: int, further: int) -> int:
        return base.views_of_other_keys(streams, further)

    def needs(self, given: Choices) -> Iterator[Need]:
        yield from super().needs(given)
        if self.against == "within":
            yield Need(choices.ONE_POSITIVE, "neighbours within the query's own view are not positives")

    def module(self, setup: Setup) -> nn.Module | None:
        """The predictor, ``[B, d]`` → ``[B, d]``, where there is one."""
        if self.predictor is None:
            return None
        with fixed(int(torch.randint(2**31, (), generator=setup.generator))):
            return normed_layers(setup.dim, self.predictor, setup.dim)

    def embed(self, encoders: nn.ModuleList, module: nn.Module | None, views: tuple[Tensor, ...]) -> list[Tensor]:
        """Unit embeddings ``[B, d]``; with a predictor, one for all streams, of its output, view by view (MoCo v3)."""
        if module is None:
            return base.embed(encoders, views)
        embeddings = []
        for number, view in enumerate(views):
            encoder = encoders[number % len(encoders)]
            predicted = module(encoder.project(view))  # type: ignore[operator]
            embeddings.append(F.normalize(predicted.float(), dim=1, eps=1e-8))
        return embeddings

    def state(self, setup: Setup) -> InBatchState:
        return InBatchState(setup, self)

    @property
    def latex(self) -> str:
        views = {"both": "both views", "across": "the other view", "within": "the same view"}[self.against]
        parts = [rf"\text{{the batch, {views}}}"]
        if self.momentum is not None:
            parts.append(rf"\text{{, momentum encoder }}m={self.momentum:g}")
        if self.predictor is not None:
            parts.append(r"\text{, queries through a predictor}")
        if not self.symmetric:
            parts.append(r"\text{, one direction}")
        return "".join(parts)


class InBatchState(KeyState):
    """Embeddings of the batch as each other's keys: the two views of one stream, or the pairs of several."""

    def __init__(self, setup: Setup, choice: InBatch) -> None:
        super().__init__(setup)
        self.momentum = choice.momentum
        self.reads_labels = setup.reads_labels
        self.against = choice.against
        pairs: tuple[tuple[int, int], ...] = ((0, 1), (1, 0))
        if len(setup.encoders) > 1:
            self.against = "across"
            pairs = setup.views.pairs
        if not choice.symmetric:
            pairs = tuple((query, key) for query, key in pairs if query < key)
        self.directions = pairs
        if choice.momentum is not None:
            self.slow = copy.deepcopy(setup.encoders).requires_grad_(False)

    def ask(self, batch: Batch, embed: Embed, network: Network) -> Contrasts:
        queries = embed(*batch.views)
        pools = self._pools(queries, batch, network)
        items = len(pools[0])
        check(items > 1, "batch", items, "at least two items: keys in a batch of one have no negatives")
        local = collectives.rows_of_this_process(len(queries[0]), queries[0].device)
        classes = None
        if self.reads_labels:
            classes = collectives.gather(batch.labels)[:, None]
        directions = []
        for query, key in self.directions:
            direction = self._direction(queries[query], pools[query], pools[key], local, classes)
            directions.append(direction)
        return Contrasts(directions)

    def _direction(
        self, query: Tensor, same_view: Tensor, other_view: Tensor, local: Tensor, classes: Tensor | None
    ) -> Direction:
        """Queries ``[B, d]`` against both views' keys ``[N, d]`` of all processes; ``local`` are this one's rows."""
        positive = other_view[local][:, None]
        if self.against == "within":
            return Direction(query, positive, same_view, labels=classes, banned=local[:, None])
        if self.against == "across":
            return Direction(query, positive, other_view, own=local, labels=classes)
        # SimCLR: both views of all other images
        keys = torch.cat([other_view, same_view])
        banned = (local + len(other_view))[:, None]
        if classes is not None:
            classes = classes.repeat(2, 1)
        return Direction(query, positive, keys, own=local, labels=classes, banned=banned)

    def _pools(self, queries: list[Tensor], batch: Batch, network: Network) -> list[Tensor]:
        """The keys of each view over all processes: the embeddings themselves, or those of a momentum encoder."""
        slow = self.slow
        if slow is None:
            return [collectives.gather_with_gradient(query) for query in queries]
        with torch.no_grad():
            base.momentum_update(slow, network.encoders, self.momentum or 0.0)
            keys = base.in_chunks(lambda *views: base.embed(slow, views), batch.views, batch.chunks)
            return [collectives.gather(key) for key in keys]


def normed_layers(*sizes: int) -> nn.Sequential:
    """Linear layers without bias, batch-norm behind each, ReLU between; the last norm has no weights (MoCo v3)."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs, bias=False), nn.BatchNorm1d(outputs), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers[:-2], nn.BatchNorm1d(sizes[-1], affine=False))


@dataclass(frozen=True)
class Pairs(Keys):
    """The other view of the same item and no other key, as the head gives it, of no set length (Barlow Twins, VICReg).

    The views go through the encoder one after the other, so batch-norm sees one at a time. The first view asks; an
    objective that reads embeddings treats both alike.
    """

    offers = frozenset({choices.PROJECTIONS})
    bounds_information = False  # no negatives, no bound of this kind
    latex = r"\text{the other view, not normalised}"

    def views_needed(self, streams: int, further: int) -> int:
        return base.views_of_other_keys(streams, further)

    def needs(self, given: Choices) -> Iterator[Need]:
        yield from super().needs(given)
        reason = f"{self!r} has embeddings of no set length, which only an objective that reads embeddings can compare"
        yield Need(choices.READS_EMBEDDINGS, reason, f"given: {given.objective!r}")

    def embed(self, encoders: nn.ModuleList, module: nn.Module | None, views: tuple[Tensor, ...]) -> list[Tensor]:
        """What the heads give ``[B, d]``, before it has unit length."""
        embeddings = []
        for number, view in enumerate(views):
            encoder = encoders[number % len(encoders)]
            embeddings.append(encoder.project(view).float())  # type: ignore[operator]
        return embeddings

    def state(self, setup: Setup) -> PairsState:
        for encoder in setup.encoders:
            if not hasattr(encoder, "project"):
                raise NotApplicableError(f"{self!r}: {type(encoder).__name__} has no method project")
        return PairsState(setup)


class PairsState(KeyState):
    """The embeddings of two views, or of the pairs of several streams."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        pairs = setup.views.pairs
        if len(setup.encoders) == 1:
            pairs = ((0, 1),)
        self.directions = tuple((query, key) for query, key in pairs if query < key)

    def unit_pair(self, direction: Direction) -> tuple[Tensor, Tensor] | None:
        """Less their means over the batch, in which the losses that read embeddings have no say."""
        query = direction.query.detach()
        positive = direction.positive.detach()
        unit_query = F.normalize(query - query.mean(0), dim=1, eps=1e-8)
        unit_positive = F.normalize(positive - positive.mean(0), dim=2, eps=1e-8)
        return unit_query, unit_positive

    def ask(self, batch: Batch, embed: Embed, network: Network) -> Contrasts:
        embedded = embed(*batch.views)
        no_others = torch.zeros_like(embedded[0][:1])
        directions = []
        for query, key in self.directions:
            directions.append(Direction(embedded[query], embedded[key][:, None], no_others))
        return Contrasts(directions)


@dataclass(frozen=True)
class Prototypes(Keys):
    """One learnt unit vector per class: softmax classification, our supervised reference."""

    reads_labels = True
    bounds_information = False  # the keys are no samples
    latex = r"\text{a learnt vector per class}"

    def module(self, setup: Setup) -> ClassVectors:
        check(setup.classes >= 2, "classes", setup.classes, "at least 2 classes for the supervised reference")
        return ClassVectors(setup.classes, setup.dim, setup.generator)

    def state(self, setup: Setup) -> PrototypesState:
        return PrototypesState(setup)


class ClassVectors(nn.Module):
    """A learnt vector of each class, drawn with squared length one on average."""

    def __init__(self, classes: int, dim: int, generator: torch.Generator) -> None:
        super().__init__()
        self.vectors = nn.Parameter(torch.randn(classes, dim, generator=generator) / math.sqrt(dim))

    def forward(self) -> Tensor:
        """Unit vectors ``[classes, d]``."""
        return F.normalize(self.vectors, dim=1)


class PrototypesState(KeyState):
    """The first view of each stream against the class vectors."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.directions = tuple((stream, stream) for stream in range(len(setup.encoders)))

    def ask(self, batch: Batch, embed: Embed, network: Network) -> Contrasts:
        assert network.keys_module is not None
        queries = embed(*batch.views)
        pool = network.keys_module()
        own = pool[batch.labels][:, None]
        directions = [Direction(queries[query], own, pool, batch.labels) for query, _ in self.directions]
        return Contrasts(directions)


@dataclass(frozen=True)
class Locations(Keys):
    """The locations of one block's map, of all items of the batch: no bank, (m + 1)-way softmax (CMC, B.2).

    The last layer of one stream's encoder is the query. Each location of the other stream's map of the same item is its
    positive by itself; the locations of all other items are the negatives. With one stream, it is an encoder's last
    layer against its own map, which is local DIM. The map is compared as it is, scaled to unit length: the paper says
    nothing of a projection, and the blocks in question have as many channels as the embedding (256 in Table 12).
    ``block`` is a name of :meth:`contrastlab.encoders.Encoder.stages`.
    """

    block: str = "conv4"

    bounds_information = False  # the locations of one item come together, so they are no independent samples

    def needs(self, given: Choices) -> Iterator[Need]:
        yield from super().needs(given)
        several = f"{self!r} gives several keys of each item, so positives must be Each()"
        yield Need(choices.EACH_KEY, several, f"given: {given.positives!r}")

    def views_needed(self, streams: int, further: int) -> int:
        return 1

    def embed(self, encoders: nn.ModuleList, module: nn.Module | None, views: tuple[Tensor, ...]) -> list[Tensor]:
        """Unit embeddings ``[B, d]`` of each view, then unit locations ``[B, h·w, d]`` of each map, with d channels."""
        embeddings, locations = [], []
        for encoder, view in zip(encoders, views, strict=True):
            embedding, features = encoder.embed_with_map(view, self.block)  # type: ignore[operator]
            if features.shape[1] != embedding.shape[1]:
                raise reject("dim", embedding.shape[1], f"{features.shape[1]}, the channels of the map {self.block}")
            embeddings.append(embedding)
            locations.append(F.normalize(features.flatten(2).mT.float(), dim=2, eps=1e-8))
        return embeddings + locations

    def state(self, setup: Setup) -> LocationsState:
        return LocationsState(setup)

    @property
    def latex(self) -> str:
        return rf"\text{{the batch, locations of the map {self.block}}}"


class LocationsState(KeyState):
    """Embeddings of the batch against the locations of its maps."""

    def ask(self, batch: Batch, embed: Embed, network: Network) -> Contrasts:
        embedded = embed(*batch.views)
        streams = len(network.encoders)
        queries = embedded[:streams]
        maps = embedded[streams:]
        pools = {key: collectives.gather_with_gradient(maps[key]) for _, key in self.directions}
        items = collectives.rows_of_this_process(len(queries[0]), queries[0].device)
        directions = []
        for query, key in self.directions:
            places = maps[key].shape[1]
            places_of_item = items[:, None] * places + torch.arange(places, device=items.device)
            pool = pools[key].flatten(0, 1)
            directions.append(Direction(queries[query], maps[key], pool, banned=places_of_item))
        return Contrasts(directions)


@dataclass(frozen=True)
class Pixels(Keys):
    r"""The pixels of the target channels: cross-view prediction as a recipe, the rival of CMC's Table 5.

    A decoder without skip connections, ``width`` channels in its finest map, predicts each target from the last map of
    the first stream's encoder, :math:`\hat v=g(f(v_1))`. The score of prediction and target is minus half their mean
    squared difference, so with :class:`contrastlab.objectives.Likelihood` and τ = 1 the loss is the L2 loss of section
    3.1: a Gaussian that knows every pixel by itself, and has no negatives.
    """

    width: int = 32

    bounds_information = False  # no negatives, no bound of this kind
    latex = r"\text{the target itself, }s^+=-\tfrac12\,\overline{\lVert v-g(f(v_1))\rVert^2}\text{ over pixels}"

    def __post_init__(self) -> None:
        check_integer("width", self.width)

    def needs(self, given: Choices) -> Iterator[Need]:
        yield Need(choices.TARGETS, f"{self!r} predicts channels: views need targets", f"given: {given.views!r}")
        alone = f"{self!r} has no negatives, so objective must be Likelihood()"
        yield Need(choices.POSITIVE_ALONE, alone, f"given: {given.objective!r}")

    def module(self, setup: Setup) -> nn.ModuleList:
        """A decoder for each target.

        It freezes the encoder's head: predictions come from the maps, and several processes wait for a gradient of
        every parameter that asks for one.
        """
        first, channels = setup.encoders[0], setup.views.target_channels
        with fixed(int(torch.randint(2**31, (), generator=setup.generator))):
            decoders = [first.decoder(c, self.width, skips=False) for c in channels]  # type: ignore[operator]
        head = getattr(first, "head", None)
        if head is not None:
            head.requires_grad_(False)
        return nn.ModuleList(decoders)

    def embed(self, encoders: nn.ModuleList, module: nn.Module | None, views: tuple[Tensor, ...]) -> list[Tensor]:
        """Predictions ``[B, c, H, W]`` of each target from the first stream's view."""
        assert isinstance(module, nn.ModuleList)
        maps = encoders[0].stages(views[0])  # type: ignore[operator]
        size = (views[0].shape[2], views[0].shape[3])
        return [decoder(maps, size).float() for decoder in module]

    def state(self, setup: Setup) -> PixelsState:
        return PixelsState(setup)


class PixelsState(KeyState):
    """Predictions and what they are predictions of, as vectors whose product is the score."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.streams = len(setup.encoders)
        self.directions = setup.views.pairs[:1]

    def unit_pair(self, direction: Direction) -> tuple[Tensor, Tensor] | None:
        return None

    def ask(self, batch: Batch, embed: Embed, network: Network) -> Contrasts:
        r"""One direction, from the first view to the targets; what is NaN in a target is not asked for.

        With :math:`q=(\hat x,-\lVert\hat x\rVert^2/2,1)` and :math:`k=(x,1,-\lVert x\rVert^2/2)` the product is
        :math:`-\lVert x-\hat x\rVert^2/2`.
        """
        targets = torch.cat([target.flatten(1) for target in batch.views[self.streams :]], 1)
        predictions = torch.cat([prediction.flatten(1) for prediction in embed(*batch.views)], 1)
        is_known = targets.isfinite()
        scale = 1 / math.sqrt(targets.shape[1])
        predictions = predictions.where(is_known, 0.0) * scale
        targets = targets.where(is_known, 0.0) * scale
        ones = targets.new_ones(len(targets), 1)
        query = torch.cat([predictions, -predictions.square().sum(1, keepdim=True) / 2, ones], 1)
        key = torch.cat([targets, ones, -targets.square().sum(1, keepdim=True) / 2], 1)
        no_others = torch.zeros_like(key[:1])
        return Contrasts([Direction(query, key[:, None], no_others)])
