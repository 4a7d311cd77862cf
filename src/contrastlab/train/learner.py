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
    terms: int  #: in the denominator of the last direction: its negatives and the positive
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
        first_views, second_views = self._views_of_queries(views)
        batch = key.Batch(first_views, indices, labels, draws.generator, self.chunks, step, total)
        directions, new_keys = self.keys.ask(batch, self._forward, self.network)
        if second_views:
            directions += self._second_directions(directions, second_views)
        losses = []
        counts = []  # of negatives, in each direction
        for number, direction in enumerate(directions):
            context = Context(step, total, number, self.network.objective_module, indices)
            loss, negatives = self._direction_loss(direction, draws, context)
            losses.append(loss)
            counts.append(negatives)
        pairs: list[tuple[Tensor, Tensor]] = []
        for direction in directions:
            pair = self.keys.unit_pair(direction)
            if pair is not None:
                pairs.append(pair)
        stored = [self.recipe.positives.stored(keys) for keys in new_keys]
        terms = counts[-1] + 1  # of the last direction
        return Step(self._total(losses), terms, tuple(stored), tuple(pairs))

    def _views_of_queries(self, views: tuple[Tensor, ...]) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """The views of the first kind of queries and of their keys, and those of a second kind of queries, if any."""
        if len(self.weights) == 1:
            return views, ()
        streams = len(self.recipe.views.streams)
        return views[:-streams], views[-streams:]

    def _direction_loss(self, direction: key.Direction, draws: BatchRandom, context: Context) -> tuple[Tensor, int]:
        """The loss of one direction over the batch, and the number of its negatives."""
        objective = self.recipe.objective
        # float32 whatever the precision of the encoder: at τ = 0.01 a bfloat16 logit is off by half a nat
        with torch.autocast(direction.query.device.type, enabled=False):
            losses, negatives = self._query_losses(direction, draws, context)
            if objective.couples_queries:
                losses = collectives.gather_with_gradient(losses)
            return objective.reduce(losses), negatives

    def _total(self, losses: list[Tensor]) -> Tensor:
        """The mean over the directions of each kind of query, weighted, summed over the pairs of streams."""
        kinds = torch.stack(losses).view(len(self.weights), -1).mean(1)
        weighted = [weight * kind for weight, kind in zip(self.weights, kinds, strict=True)]
        return torch.stack(weighted).sum() * len(self.recipe.views.pairs)

    def _second_directions(self, directions: list[key.Direction], views: tuple[Tensor, ...]) -> list[key.Direction]:
        """The same keys, contrasted with a second kind of queries: those of the stream that the keys are of."""
        queries = self.keys.queries(self._forward, views)
        second = []
        for direction, (_, key_stream) in zip(directions, self.keys.directions, strict=True):
            second.append(replace(direction, query=queries[key_stream % len(views)]))
        return second

    def commit(self, indices: Tensor, step: Step) -> None:
        """Store the batch's keys, after the optimiser step."""
        self.keys.commit(indices, step.store)

    def _query_losses(self, direction: key.Direction, draws: BatchRandom, context: Context) -> tuple[Tensor, int]:
        """The objective's loss of each query ``[B]``, before it is reduced, and the number of negatives.

        Scores are held for a chunk at a time, unless the objective needs them together.
        """
        objective = self.recipe.objective
        batch = len(direction.query)
        if self.chunks == 1 or objective.needs_whole_batch:
            scores = self._scores(direction, draws, context)
            return objective(scores, context), scores.size
        size = math.ceil(batch / self.chunks)
        state = draws.generator.get_state()

        def chunk(start: int) -> tuple[Tensor, int]:
            draws.generator.set_state(state)  # each chunk draws for the whole batch and keeps what its queries need
            own_draws = replace(draws, first=draws.first + start, global_batch=draws.global_batch or batch)
            own_context = context
            if context.items is not None:
                own_context = replace(context, items=context.items[start : start + size])
            scores = self._scores(direction.part(start, start + size), own_draws, context)
            return objective(scores, own_context), scores.size

        chunks = [checkpoint(chunk, start, use_reentrant=False) for start in range(0, batch, size)]
        losses = torch.cat([losses_of_chunk for losses_of_chunk, _ in chunks])
        _, negatives = chunks[0]
        return losses, negatives

    def _scores(self, direction: key.Direction, draws: BatchRandom, context: Context) -> Scores:
        """The scores of each query with its positive, its negatives and, where asked for, its neighbours."""
        negatives, positives = self.recipe.negatives, self.recipe.positives
        step, total = context.step, context.total
        q = direction.query.float() / self.recipe.temperature
        positive_scores = (direction.positive.float() * q[:, None]).sum(2)
        own, lift = positives.pair(positive_scores, step, total)
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
        """The pool, from which negatives and positives choose; ``own`` ``[B]`` are the scores of the positives."""
        pool = direction.pool.float()
        if not self.keys.holds_keys:
            return Candidates(
                q @ pool.T,
                own=direction.own,
                labels=direction.labels,
                banned=direction.banned,
                positive=own.detach(),
            )
        # by the size of the global batch, so that any number of processes goes the same way
        dense = 4 * (draws.global_batch or len(q)) * len(pool) <= DENSE_BYTES
        return Stored(
            q,
            pool,
            own=direction.own,
            labels=direction.labels,
            banned=direction.banned,
            dense=dense,
            positive=own.detach(),
        )
