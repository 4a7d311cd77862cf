"""A recipe made concrete: its networks, its keys, and the loss of one batch.

What differs from one kind of part to another is asked of the part: here is no case for any of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from contrastlab import keys as key
from contrastlab.negatives import BatchRandom
from contrastlab.objectives import Context, Scores
from contrastlab.pictures import encoder as enc
from contrastlab.recipe import Recipe
from contrastlab.scores.candidates import DENSE_BYTES, Candidates, Stored, checked
from contrastlab.settings import Settings
from contrastlab.support import collectives
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
    """State of a method (network and keys): its ``state_dict`` has all that must survive a restart.

    ``images`` is the number of pre-training images, ``classes`` that of their classes (for the supervised reference).
    There is one encoder for each stream of the views; ``None`` builds those of ``settings`` for ``image_channels``.
    """

    _forward: key.Embed

    def __init__(
        self,
        recipe: Recipe,
        settings: Settings,
        *,
        images: int,
        classes: int,
        seed: int,
        image_channels: int = 3,
        encoders: nn.ModuleList | None = None,
    ) -> None:
        super().__init__()
        self.recipe, self.chunks = recipe, settings.accumulate
        if encoders is None:
            with fixed(seed):
                encoders = enc.build_for(
                    recipe.views,
                    image_channels,
                    arch=settings.arch,
                    stem=settings.stem,
                    head=settings.head,
                    dim=settings.dim,
                    width=settings.width,
                    options=settings.arch_options,
                )
        streams = recipe.views.streams
        check(len(encoders) == len(streams), "encoders", len(encoders), f"one for each stream of the views, {streams}")
        setup = key.Setup(
            encoders,
            recipe.views,
            images,
            classes,
            settings.dim,
            generator=torch.Generator().manual_seed(seed),
            k_means=recipe.k_means,
            reads_labels=recipe.reads_labels,
        )
        self.weights = recipe.views.query_weights
        keys_module = None
        if recipe.keys is None:
            self.keys = key.KeyState(setup)
        else:  # in this order: both draw from the generator
            keys_module = recipe.keys.module(setup)
            self.keys = recipe.keys.state(setup)
        directions = len(self.weights) * len(self.keys.directions)
        objective_module = recipe.objective.module(replace(setup, directions=directions))
        self.network = key.Network(encoders, recipe.keys, keys_module, objective_module)
        if settings.sync_batch_norm:
            self._synchronise()
        self.bind(self.network)

    def _synchronise(self) -> None:
        groups, chunks = self.network.keys.shuffle_groups, self.chunks
        check(groups == 1, "sync_batch_norm", True, f"False with shuffle_groups={groups}: groups are to be apart")
        check(chunks == 1, "sync_batch_norm", True, f"False with accumulate={chunks}: batch-norm sees a chunk")
        key.synchronise(self)

    def bind(self, forward: key.Embed) -> None:
        """Use ``forward``, the wrapped form of ``network`` (distributed, compiled), from now on."""
        # past nn.Module's bookkeeping: registered, it would put every parameter into the state twice
        object.__setattr__(self, "_forward", forward)

    def loss(
        self, views: tuple[Tensor, ...], indices: Tensor, labels: Tensor, draws: BatchRandom, step: int, total: int
    ) -> Step:
        """Loss of one batch; changes nothing but the momentum network and what the objective keeps from batch to batch.

        ``views`` are as ``recipe.views.make`` gives them, ``indices`` ``[B]`` the numbers of the images in the
        pre-training set. Labels ``[B]`` are read where ``recipe.reads_labels``. Steps count from 0.
        """
        second_views: tuple[Tensor, ...] = ()
        if len(self.weights) > 1:  # the views of a second kind of queries lie behind the others
            streams = len(self.recipe.views.streams)
            views, second_views = views[:-streams], views[-streams:]
        batch = key.Batch(views, indices, labels, draws.generator, self.chunks, step, total)
        directions, fresh = self.keys.ask(batch, self._forward, self.network)
        if second_views:
            directions += self._asked_again(directions, second_views)
        objective = self.recipe.objective
        losses, terms = [], 0
        for i, direction in enumerate(directions):
            # float32 whatever the precision of the encoder: at τ = 0.01 a bfloat16 logit is off by half a nat
            with torch.autocast(direction.query.device.type, enabled=False):
                context = Context(step, total, i, self.network.objective_module, indices)
                rows, size = self._rows(direction, draws, context)
                if objective.couples_queries:
                    rows = collectives.gather_with_gradient(rows)
                losses.append(objective.reduce(rows))
                terms = size + 1
        pairs = tuple(pair for direction in directions for pair in self.keys.unit_pair(direction))
        stored = tuple(self.recipe.positives.stored(keys) for keys in fresh)
        return Step(self._total(losses), terms, stored, pairs)

    def _total(self, losses: list[Tensor]) -> Tensor:
        """The mean over the directions of each kind of query, weighted, summed over the pairs of streams."""
        kinds = torch.stack(losses).view(len(self.weights), -1).mean(1)
        weighted = [weight * kind for weight, kind in zip(self.weights, kinds, strict=True)]
        return torch.stack(weighted).sum() * len(self.recipe.views.pairs)

    def _asked_again(self, directions: list[key.Direction], views: tuple[Tensor, ...]) -> list[key.Direction]:
        """The same keys, contrasted with a second kind of queries: those of the stream that the keys are of."""
        queries = self.keys.queries(self._forward, views)
        again = []
        for direction, (_, key_stream) in zip(directions, self.keys.directions, strict=True):
            again.append(replace(direction, query=queries[key_stream % len(views)]))
        return again

    def commit(self, indices: Tensor, step: Step) -> None:
        """Store the batch's keys, after the optimiser step."""
        self.keys.commit(indices, step.store)

    def _rows(self, direction: key.Direction, draws: BatchRandom, context: Context) -> tuple[Tensor, int]:
        """What the objective gives of each query, and its number of negatives.

        Scores are held for a chunk at a time, unless the objective needs them together.
        """
        objective, batch = self.recipe.objective, len(direction.query)
        if self.chunks == 1 or objective.needs_whole_batch:
            scores = self._scores(direction, draws, context)
            return objective(scores, context), scores.size
        state, size = draws.generator.get_state(), math.ceil(batch / self.chunks)

        def chunk(start: int) -> tuple[Tensor, int]:
            draws.generator.set_state(state)  # each chunk draws for the whole batch and keeps its own rows
            own_draws = replace(draws, first=draws.first + start, global_batch=draws.global_batch or batch)
            scores = self._scores(direction.part(start, start + size), own_draws, context)
            items = None if context.items is None else context.items[start : start + size]
            return objective(scores, replace(context, items=items)), scores.size

        chunks = [checkpoint(chunk, start, use_reentrant=False) for start in range(0, batch, size)]
        _, negatives = chunks[0]
        return torch.cat([rows for rows, _ in chunks]), negatives

    def _scores(self, direction: key.Direction, draws: BatchRandom, context: Context) -> Scores:
        negatives, positives = self.recipe.negatives, self.recipe.positives
        step, total = context.step, context.total
        q = direction.query.float() / self.recipe.temperature
        own, lift = positives.pair((direction.positive.float() * q[:, None]).sum(2), step, total)
        candidates = self._candidates(q, direction, own, draws)
        chosen = checked(negatives, negatives.select(candidates, draws, step, total), candidates.shape)
        neighbours = positives.select(candidates, chosen, draws, step, total)
        neighbour_scores = None
        if neighbours is not None:
            neighbour_scores = candidates.read(checked(positives, neighbours, candidates.shape))
        return Scores(
            own,
            candidates.read(chosen),
            neighbour_scores,
            count=chosen.count(candidates.shape[1]),
            lift=lift,
            highest=1 / self.recipe.temperature,
            embeddings=self._embeddings(direction),
        )

    def _embeddings(self, direction: key.Direction) -> Tensor | None:
        """``[B, 2, d]`` queries and positives, for an objective that reads them."""
        if not self.recipe.objective.reads_embeddings:
            return None
        return torch.stack([direction.query.float(), direction.positive[:, 0].float()], 1)

    def _candidates(self, q: Tensor, direction: key.Direction, own: Tensor, draws: BatchRandom) -> Candidates | Stored:
        pool = direction.pool.float()
        about = (direction.own, direction.labels, direction.banned)
        if not self.keys.holds_keys:
            return Candidates(q @ pool.T, *about, positive=own.detach())
        # by the size of the global batch, so that any number of processes goes the same way
        dense = 4 * (draws.global_batch or len(q)) * len(pool) <= DENSE_BYTES
        return Stored(q, pool, *about, dense, positive=own.detach())
