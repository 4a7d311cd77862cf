"""Does a ring gain from the other pictures' keys, or from older keys of the query's own picture?

A queue holds such keys. They are close to the query, so that MoCo pushes them away and a ring skips them. Here both
rows are trained once as they are, and once without the own keys, on the features of a frozen network.

:func:`study` trains one row with one seed. :func:`table` reads what is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from contrastbook import studies
from contrastbook.studies import Row, Study, probing
from contrastlab import data, methods, papers, tasks
from contrastlab.data import Splits
from contrastlab.keys import Queue
from contrastlab.keys.base import Batch, Contrasts, Embed, Network
from contrastlab.keys.stored import QueueState
from contrastlab.methods import Recipe
from contrastlab.pictures.items import fingerprint
from contrastlab.scores.choices import Setup
from contrastlab.settings import Settings
from contrastlab.support import collectives, shipped
from contrastlab.support.errors import check
from contrastlab.train import cpu_fabric
from contrastlab.train.loop import Log

NAME = "own_keys"
METHODS = ("ring/moco", "ring/mocoring")


@dataclass(frozen=True)
class QueueWithoutOwn(Queue):
    """A queue in which an older key of the query's own item is no negative."""

    def state(self, setup: Setup) -> QueueWithoutOwnState:
        """The keys of one run."""
        return QueueWithoutOwnState(setup, self)


class QueueWithoutOwnState(QueueState):
    """Remembers of which item each key is.

    The queue is no longer than an epoch, so it holds at most one key of an item that is asked about. A query without
    such a key leaves out the oldest key of the queue, so that all queries have equally many negatives.
    """

    items: Tensor  # [size], -1 for the keys of the beginning

    def __init__(self, setup: Setup, choice: Queue) -> None:
        super().__init__(setup, choice)
        check(choice.size <= setup.items, "size", choice.size, f"at most the number of items, {setup.items}")
        self.register_buffer("items", torch.full((choice.size,), -1))

    def ask(self, batch: Batch, embed: Embed, network: Network) -> Contrasts:
        """As a queue does; the own older key is no candidate."""
        contrasts = super().ask(batch, embed, network)
        own = self.slots_of(batch.indices)
        directions = [replace(direction, own=own) for direction in contrasts.directions]
        return contrasts._replace(directions=directions)

    def slots_of(self, indices: Tensor) -> Tensor:
        """``[B]`` slots of the items' older keys; that of the oldest key for an item without one."""
        is_own = self.items == indices[:, None]
        oldest = self.stores[0].pointer
        return torch.where(is_own.any(1), is_own.int().argmax(1), oldest)

    def commit(self, indices: Tensor, new_keys: tuple[Tensor, ...]) -> None:
        """Store the keys of a step, and of which items they are."""
        every = collectives.gather(indices)
        slots = (self.stores[0].pointer + torch.arange(len(every), device=every.device)) % len(self.items)
        self.items.index_copy_(0, slots, every)
        super().commit(indices, new_keys)


def recipe_of(method: str, *, own_keys: bool) -> Recipe:
    """MoCo or MoCoRing, with or without older keys of the query's own picture among the negatives."""
    recipe = methods.get(method)
    if own_keys:
        return recipe
    queue = {field.name: getattr(recipe.keys, field.name) for field in fields(Queue)}
    return replace(recipe, keys=QueueWithoutOwn(**queue))


def study(
    method: str,
    own_keys: bool,
    dataset: str,
    profile: str,
    seed: int,
    *,
    data_root: str | Path | None = None,
    log: Log = lambda line: None,
    **where: Any,
) -> Study:
    """One row with one seed, measured or read, in a file of its own; ``where``: of :func:`studies.measure`.

    The row has the linear accuracy in percent.
    """
    settings = papers.plan("ring", "1").settings(dataset, method, profile)
    splits = data.load(dataset, data_root).limited(settings.train_images, settings.test_images)
    recipe = recipe_of(method, own_keys=own_keys).override(settings.overrides)
    config = {
        "dataset": dataset,
        "data": fingerprint(splits),
        "own_keys": own_keys,
        "recipe": recipe.describe(),
        "settings": settings.model_dump(mode="json", exclude_defaults=True),
        "seed": seed,
    }
    torch.set_num_threads(1)
    rows = partial(_rows, method, own_keys, recipe, settings, splits, seed, log)
    return studies.measure(NAME, profile, config, rows, **where)


def _rows(
    method: str, own_keys: bool, recipe: Recipe, settings: Settings, splits: Splits, seed: int, log: Log
) -> list[Row]:
    trained, evaluation = probing.train(recipe, settings, splits, seed, cpu_fabric(settings.precision), log)
    accuracy = tasks.Linear.of(settings).score(trained.encoders, evaluation)["linear"]
    return [
        {
            "method": method,
            "own_keys": own_keys,
            "seed": seed,
            "linear": accuracy.value,
            "test_items": accuracy.items,
            "loss": trained.history[-1]["loss"],
            "train_s": trained.seconds,
        }
    ]


def table(roots: Sequence[Path | str] = shipped.RESULTS, profile: str = "features") -> pd.DataFrame:
    """A row for each method, with and without own keys, and seed that is stored, as :func:`study` measured it.

    Raises:
        MissingDataError: none is stored.
    """
    return studies.stored_rows(NAME, profile, roots, ["method", "own_keys", "seed"])
