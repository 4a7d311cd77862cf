"""A recipe made concrete: its networks, its stored keys, and the loss of one batch.

Everything that must survive a restart is in ``Learner.state_dict``.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contrastlab import encoders as enc
from contrastlab import keys as key
from contrastlab.candidates import DENSE_BYTES, Candidates, Stored
from contrastlab.clusters import kmeans
from contrastlab.errors import reject
from contrastlab.methods import Recipe
from contrastlab.negatives import BatchRandom
from contrastlab.objectives import AlignUniform, BinaryNCE, Scores
from contrastlab.positives import Joint, Many
from contrastlab.settings import Settings
from contrastlab.views import Augmented


class Network(nn.Module):
    """The part that gradients reach: one encoder per stream, and class vectors where the recipe has them."""

    def __init__(self, encoders: nn.ModuleList, prototypes: nn.Parameter | None) -> None:
        super().__init__()
        self.encoders = encoders
        self.prototypes = prototypes

    def forward(self, *views: Tensor) -> list[Tensor]:
        """Unit embeddings ``[B, d]`` of each view; views beyond the number of encoders share the first.

        Two views of one encoder go through it as one batch, so batch-norm sees both (SimCLR).
        """
        if len(self.encoders) == len(views):
            return [encoder(view) for encoder, view in zip(self.encoders, views, strict=True)]
        return list(self.encoders[0](torch.cat(views)).chunk(len(views)))


@dataclass(frozen=True)
class Step:
    """What one batch gave.

    Args:
        loss: scalar, in nats, with gradient: the sum over the streams (CMC has two), and the mean where both views
            of one stream ask (SimCLR).
        terms: terms in the denominator of one direction.
        store: what :meth:`Learner.commit` writes into the stored keys, per stream.
    """

    loss: Tensor
    terms: int
    store: tuple[Tensor, ...]


@dataclass(frozen=True)
class _Direction:
    query: Tensor  # [B, d] unit, with gradient
    positive: Tensor  # [B, d] unit, or [B, M, d]
    pool: Tensor  # [N, d] unit
    own: Tensor | None = None  # [B] rows of the pool that are the positives
    labels: Tensor | None = None  # [N, H] clusters of the pool
    banned: Tensor | None = None  # [B, E] rows that are no candidates


class Learner(nn.Module):
    """State of a method: query network, momentum network, banks or queues, NCE offsets.

    Args:
        recipe: the method.
        settings: encoder and embedding dimension are read from it.
        image_channels: 1 or 3.
        images: number of pre-training images N (rows of a bank).
        classes: number of classes (only the supervised reference uses it).
        seed: of the initial weights and keys.
    """

    offsets: Tensor
    _forward: Callable[..., list[Tensor]]

    def __init__(
        self, recipe: Recipe, settings: Settings, *, image_channels: int, images: int, classes: int, seed: int
    ) -> None:
        super().__init__()
        self.recipe = recipe
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            encoders = enc.build_for(
                recipe.views, image_channels,
                arch=settings.arch, stem=settings.stem, head=settings.head, dim=settings.dim,
            )  # fmt: skip
        generator = torch.Generator().manual_seed(seed)
        supervised = isinstance(recipe.keys, key.Prototypes)
        if supervised and classes < 2:
            raise reject("classes", classes, "at least 2 classes for the supervised reference")
        self.network = Network(encoders, key.prototypes(classes, settings.dim, generator) if supervised else None)
        self.slow = None
        streams = len(encoders)
        stores: list[nn.Module] = []
        if isinstance(recipe.keys, key.Bank):
            clusters, runs = recipe.clusters
            if clusters > images:
                raise reject("clusters", clusters, f"at most the number of images, {images}")
            stores = [key.MemoryBank(images, settings.dim, generator, runs=runs) for _ in range(streams)]
        slow = isinstance(recipe.keys, key.Queue | key.InBatch) and recipe.keys.momentum is not None
        if slow:
            self.slow = copy.deepcopy(encoders).requires_grad_(False)
        if isinstance(recipe.keys, key.Queue):
            stores = [key.KeyQueue(recipe.keys.size, settings.dim, generator) for _ in range(streams)]
        self.stores = nn.ModuleList(stores)
        self.register_buffer("offsets", torch.full((streams,), math.nan))
        self.bind(self.network)

    def bind(self, forward: Callable[..., list[Tensor]]) -> None:
        """Use ``forward``, the wrapped form of ``network`` (distributed, compiled), from now on."""
        # past nn.Module's bookkeeping: registered, it would put every parameter into the state twice
        object.__setattr__(self, "_forward", forward)

    def loss(
        self, views: tuple[Tensor, ...], indices: Tensor, labels: Tensor, draws: BatchRandom, step: int, total: int
    ) -> Step:
        """Loss of one batch; changes nothing but the momentum network and, at the first batch, the NCE offsets.

        Args:
            views: as ``recipe.views.make`` gives them, each ``[B, C, H, W]``.
            indices: ``[B]`` numbers of the images in the pre-training set.
            labels: ``[B]``, read by the supervised reference only.
            draws: random numbers of the selection.
            step: gradient step from 0.
            total: gradient steps of the run.
        """
        choice = self.recipe.keys
        if isinstance(choice, key.Queue):
            return self._queue(views, choice, draws, step, total)
        if isinstance(choice, key.InBatch):
            return self._batch(views, choice, draws, step, total)
        queries = self._forward(*views)
        if isinstance(choice, key.Prototypes):
            pool = F.normalize(self.network.prototypes, dim=1)  # type: ignore[arg-type]
            return self._sum([_Direction(queries[0], pool[labels], pool, labels)], (), draws, step, total)
        directions = []
        for i, q in enumerate(queries):
            bank: key.MemoryBank = self._store(self._other(i))
            clusters = bank.labels if bank.labels.shape[1] else None
            directions.append(_Direction(q, bank.rows[indices], bank.rows, indices, clusters))
        return self._sum(directions, tuple(q.detach() for q in queries), draws, step, total)

    def commit(self, indices: Tensor, step: Step) -> None:
        """Store the batch's keys; after the optimiser step, because the loss still needs the old ones."""
        for store, embeddings in zip(self.stores, step.store, strict=True):
            if isinstance(store, key.MemoryBank):
                store.update(indices, embeddings, self.recipe.keys.rate)  # type: ignore[union-attr]
            elif isinstance(store, key.KeyQueue):
                store.enqueue(embeddings)

    def cluster(self, seed: int = 1234) -> None:
        """Cluster the banks anew, where the recipe needs clusters (LA and CAVE: once an epoch)."""
        clusters, runs = self.recipe.clusters
        for i in range(len(self.stores) if clusters else 0):
            bank: key.MemoryBank = self._store(i)
            bank.labels.copy_(kmeans(bank.rows, clusters, runs, seed=seed))

    def rows(self, stream: int) -> Tensor:
        """``[N, d]`` stored keys of a stream."""
        stored: Tensor = self._store(stream).rows
        return stored

    def _store(self, stream: int) -> Any:
        return self.stores[stream]  # a MemoryBank or a KeyQueue, which ModuleList does not tell

    def _other(self, stream: int) -> int:
        # two streams: each is compared with the other's keys (CMC); one stream: with its own
        return len(self.network.encoders) - 1 - stream

    def _queue(self, views: tuple[Tensor, ...], choice: key.Queue, draws: BatchRandom, step: int, total: int) -> Step:
        assert self.slow is not None
        streams, size = len(self.network.encoders), len(views[0])
        parts = key.local_parts(choice.parts)
        if parts == 1:
            queries = self._forward(*views[:streams])
        else:
            split = [list(v.tensor_split(parts)) for v in views[:streams]]
            pieces = [self._forward(*piece) for piece in zip(*split, strict=True)]
            queries = [torch.cat(stream) for stream in zip(*pieces, strict=True)]
        # one stream: the other views are keys; two: those of the same view (CMC), or of further views of the image
        first = 0 if streams == len(views) else streams
        slow = []
        with torch.no_grad():
            key.momentum_update(self.slow, self.network.encoders, choice.momentum)
            for j, encoder in enumerate(self.slow):
                seen = views[first + j :: streams]
                # image by image, so that the order is that of the global batch; one view keeps its memory format
                flat = seen[0] if len(seen) == 1 else torch.stack(seen, 1).flatten(0, 1)
                embedded = key.in_parts(encoder, flat, choice.parts, draws.generator)
                slow.append(embedded.view(size, len(seen), -1))
        others = [self._other(i) for i in range(streams)]
        many = isinstance(self.recipe.positives, Many | Joint)
        positives = [keys if many else keys[:, 0] for keys in slow]
        directions = [_Direction(q, positives[j], self._store(j).rows) for q, j in zip(queries, others, strict=True)]
        mean = isinstance(self.recipe.positives, Joint)
        return self._sum(directions, tuple(k.mean(1) if mean else k[:, 0] for k in slow), draws, step, total)

    def _batch(self, views: tuple[Tensor, ...], choice: key.InBatch, draws: BatchRandom, step: int, total: int) -> Step:
        rank, _ = key.world()
        queries = self._forward(*views)
        size = len(queries[0])
        local = torch.arange(size, device=queries[0].device) + rank * size
        if self.slow is None:
            pools = [key.gather_with_gradient(q) for q in queries]
        else:
            with torch.no_grad():
                key.momentum_update(self.slow, self.network.encoders, choice.momentum or 0.0)
                pools = [key.gather(k) for k in Network(self.slow, None)(*views)]
        against = choice.against if isinstance(self.recipe.views, Augmented) else "across"
        directions = []
        for i, q in enumerate(queries if choice.symmetric else queries[:1]):
            other, same = pools[1 - i], pools[i]
            if against == "both":  # SimCLR: both views of all other images
                themselves = (local + len(same))[:, None]
                directions.append(_Direction(q, other[local], torch.cat([other, same]), local, banned=themselves))
            elif against == "within":
                directions.append(_Direction(q, other[local], same, banned=local[:, None]))
            else:
                directions.append(_Direction(q, other[local], other, local))
        return self._sum(directions, (), draws, step, total)

    def _sum(
        self, directions: list[_Direction], store: tuple[Tensor, ...], draws: BatchRandom, step: int, total: int
    ) -> Step:
        losses, terms = [], 0
        objective, positives = self.recipe.objective, self.recipe.positives
        for i, d in enumerate(directions):
            # float32 whatever the precision of the encoder: at τ = 0.01 a bfloat16 logit is off by half a nat
            with torch.autocast(d.query.device.type, enabled=False):
                q = d.query.float() / self.recipe.temperature
                candidates = self._candidates(q, d, draws)
                negatives = self.recipe.negatives.select(candidates, draws, step, total)
                others = positives.select(candidates, negatives, draws, step, total)
                positive = d.positive.float()
                if isinstance(positives, Many | Joint):
                    own, lift = positives.pair((positive * q[:, None]).sum(2), step, total)
                else:
                    own, lift = (q * positive).sum(1), None
                scores = Scores(
                    own,
                    candidates.read(negatives),
                    None if others is None else candidates.read(others),
                    negatives.count(candidates.shape[1]),
                    lift,
                    1 / self.recipe.temperature,
                )
                rows = objective(scores, self._offset(i, scores))
                if isinstance(objective, AlignUniform):
                    losses.append(objective.reduce(key.gather_with_gradient(rows)))
                else:
                    losses.append(rows.mean())
                terms = scores.size + 1
        return Step(torch.stack(losses).mean() * len(self.network.encoders), terms, store)

    def _candidates(self, q: Tensor, d: _Direction, draws: BatchRandom) -> Candidates | Stored:
        if not self.stores:
            return Candidates(q @ d.pool.float().T, d.own, d.labels, d.banned)
        # by the size of the global batch, so that any number of processes goes the same way
        dense = 4 * (draws.rows or len(q)) * len(d.pool) <= DENSE_BYTES
        return Stored(q, d.pool.float(), d.own, d.labels, d.banned, dense)

    def _offset(self, direction: int, scores: Scores) -> Tensor | None:
        objective = self.recipe.objective
        if not (isinstance(objective, BinaryNCE) and objective.estimates_offset):
            return None
        # decided on the device: no host synchronisation
        with torch.no_grad():
            every = key.gather(objective.offset(scores)[None])
            first = torch.logsumexp(every, 0) - math.log(len(every))
            old = self.offsets[direction]
            self.offsets[direction] = torch.where(old.isnan(), first, old)
        return self.offsets[direction].clone()
