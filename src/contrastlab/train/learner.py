"""A recipe made concrete: its networks, its keys, and the loss of one batch.

What differs from one kind of part to another is asked of the part: here is no case for any of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from contrastlab import keys as key
from contrastlab.negatives import BatchRandom
from contrastlab.objectives import Scores
from contrastlab.pictures import encoder as enc
from contrastlab.recipe import Recipe
from contrastlab.scores.candidates import DENSE_BYTES, Candidates, Stored, checked
from contrastlab.settings import Settings
from contrastlab.support.errors import check
from contrastlab.support.seeds import fixed


@dataclass(frozen=True)
class Step:
    """What one batch gave.

    The loss (nats, with gradient) is the sum over the views' pairs of streams, and the mean where both views of one
    stream ask (SimCLR).
    """

    loss: Tensor
    terms: int  #: in the denominator of one direction
    store: tuple[Tensor, ...]  #: keys to be stored, ``[B, d]`` of each stream
    pairs: tuple[tuple[Tensor, Tensor], ...] = ()  #: unit queries and positives of each direction, without gradient


class Learner(nn.Module):
    """State of a method (query network, keys, NCE offsets): its ``state_dict`` has all that must survive a restart.

    ``images`` is the number of pre-training images, ``classes`` that of their classes (for the supervised reference).
    There is one encoder for each stream of the views; ``None`` builds those of ``settings`` for ``image_channels``.
    """

    offsets: Tensor
    _forward: key.Embed

    def __init__(
        self, recipe: Recipe, settings: Settings, *, images: int, classes: int, seed: int, image_channels: int = 3,
        encoders: nn.ModuleList | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.recipe, self.chunks = recipe, settings.accumulate
        if encoders is None:
            with fixed(seed):
                encoders = enc.build_for(
                    recipe.views, image_channels, arch=settings.arch, stem=settings.stem, head=settings.head,
                    dim=settings.dim, width=settings.width, options=settings.arch_options,
                )  # fmt: skip
        streams = recipe.views.streams
        check(len(encoders) == len(streams), "encoders", len(encoders), f"one for each stream of the views, {streams}")
        generator = torch.Generator().manual_seed(seed)
        setup = key.Setup(encoders, recipe.views, images, classes, settings.dim, generator, recipe.k_means)
        self.network = key.Network(encoders) if recipe.keys is None else recipe.keys.network(setup)
        self.keys = key.KeyState(setup) if recipe.keys is None else recipe.keys.state(setup)
        if settings.sync_batch_norm:
            groups, chunks = getattr(recipe.keys, "shuffle_groups", 1), self.chunks
            check(groups == 1, "sync_batch_norm", True, f"False with shuffle_groups={groups}: groups are to be apart")
            check(chunks == 1, "sync_batch_norm", True, f"False with accumulate={chunks}: batch-norm sees a chunk")
            key.synchronise(self)
        self.weights = recipe.views.query_weights
        self.register_buffer("offsets", torch.full((len(self.weights) * len(self.keys.directions),), math.nan))
        self.bind(self.network)

    def bind(self, forward: key.Embed) -> None:
        """Use ``forward``, the wrapped form of ``network`` (distributed, compiled), from now on."""
        # past nn.Module's bookkeeping: registered, it would put every parameter into the state twice
        object.__setattr__(self, "_forward", forward)

    def loss(
        self, views: tuple[Tensor, ...], indices: Tensor, labels: Tensor, draws: BatchRandom, step: int, total: int
    ) -> Step:
        """Loss of one batch; changes nothing but the momentum network and, at the first batch, the NCE offsets.

        ``views`` are as ``recipe.views.make`` gives them, ``indices`` ``[B]`` the numbers of the images in the
        pre-training set. Labels ``[B]`` are read by the supervised reference only. Steps count from 0.
        """
        streams = len(self.recipe.views.streams)
        views, again = (views, ()) if len(self.weights) == 1 else (views[:-streams], views[-streams:])
        batch = key.Batch(views, indices, labels, draws.generator, self.chunks)
        directions, fresh = self.keys.ask(batch, self._forward, self.network)
        if again:
            directions += self._asked_again(directions, again)
        objective, losses, terms = self.recipe.objective, [], 0
        for i, direction in enumerate(directions):
            # float32 whatever the precision of the encoder: at τ = 0.01 a bfloat16 logit is off by half a nat
            with torch.autocast(direction.query.device.type, enabled=False):
                rows, size = self._rows(i, direction, draws, step, total)
                losses.append(objective.reduce(key.gather_with_gradient(rows) if objective.couples_queries else rows))
                terms = size + 1
        kinds = torch.stack(losses).view(len(self.weights), -1).mean(1)
        weighed = [weight * kind for weight, kind in zip(self.weights, kinds, strict=True)]
        loss = torch.stack(weighed).sum() * len(self.recipe.views.pairs)
        pairs = tuple((each.query.detach(), each.positive.detach()) for each in directions if self.keys.unit)
        return Step(loss, terms, tuple(self.recipe.positives.stored(keys) for keys in fresh), pairs)

    def _asked_again(self, directions: list[key.Direction], views: tuple[Tensor, ...]) -> list[key.Direction]:
        """The same keys, contrasted with a second kind of queries, one of each stream."""
        queries, part = self.keys.queries(self._forward, views), self.recipe.views
        return [
            replace(direction, query=queries[part.key_stream(q % len(views), k % len(views))])
            for direction, (q, k) in zip(directions, self.keys.directions, strict=True)
        ]

    def commit(self, indices: Tensor, step: Step) -> None:
        """Store the batch's keys, after the optimiser step."""
        self.keys.commit(indices, step.store)

    def _rows(self, i: int, direction: key.Direction, draws: BatchRandom, step: int, total: int) -> tuple[Tensor, int]:
        """What the objective gives of each query, and its number of negatives; scores are held for a chunk at a time.

        An offset is estimated from all scores, which are then held together.
        """
        objective, batch = self.recipe.objective, len(direction.query)
        if self.chunks == 1 or objective.estimates_offset:
            scores = self._scores(direction, draws, step, total)
            return objective(scores, self._offset(i, scores)), scores.size
        state, size = draws.generator.get_state(), -(-batch // self.chunks)

        def some(start: int) -> tuple[Tensor, int]:
            draws.generator.set_state(state)  # each chunk draws for the whole batch and keeps its own rows
            of = {name: getattr(direction, name) for name in ("query", "positive", "own", "banned")}
            part: dict[str, Any] = {k: None if rows is None else rows[start : start + size] for k, rows in of.items()}
            mine = replace(draws, first=draws.first + start, rows=draws.rows or batch)
            scores = self._scores(replace(direction, **part), mine, step, total)
            return objective(scores), scores.size

        made = [checkpoint(some, start, use_reentrant=False) for start in range(0, batch, size)]
        return torch.cat([rows for rows, _ in made]), made[0][1]

    def _scores(self, direction: key.Direction, draws: BatchRandom, step: int, total: int) -> Scores:
        negatives, positives = self.recipe.negatives, self.recipe.positives
        q = direction.query.float() / self.recipe.temperature
        candidates = self._candidates(q, direction, draws)
        chosen = checked(negatives, negatives.select(candidates, draws, step, total), candidates.shape)
        further = positives.select(candidates, chosen, draws, step, total)
        own, lift = positives.pair((direction.positive.float() * q[:, None]).sum(2), step, total)
        others = None if further is None else candidates.read(checked(positives, further, candidates.shape))
        count = chosen.count(candidates.shape[1])
        return Scores(own, candidates.read(chosen), others, count, lift, 1 / self.recipe.temperature)

    def _candidates(self, q: Tensor, direction: key.Direction, draws: BatchRandom) -> Candidates | Stored:
        pool = direction.pool.float()
        about = (direction.own, direction.labels, direction.banned)
        if not self.keys.holds_keys:
            return Candidates(q @ pool.T, *about)
        # by the size of the global batch, so that any number of processes goes the same way
        dense = 4 * (draws.rows or len(q)) * len(pool) <= DENSE_BYTES
        return Stored(q, pool, *about, dense)

    def _offset(self, direction: int, scores: Scores) -> Tensor | None:
        objective = self.recipe.objective
        if not objective.estimates_offset:
            return None
        # decided on the device: no host synchronisation
        with torch.no_grad():
            every = key.gather(objective.offset(scores)[None])
            first = torch.logsumexp(every, 0) - math.log(len(every))
            old = self.offsets[direction]
            self.offsets[direction] = torch.where(old.isnan(), first, old)
        return self.offsets[direction].clone()
