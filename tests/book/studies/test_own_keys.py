"""A queue without the query's own older keys, and what is stored of a run with it."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from contrastbook.studies import own_keys
from contrastlab import data, methods, papers
from contrastlab.domains.features.write import write_features
from contrastlab.keys import Queue
from contrastlab.keys.base import Batch
from contrastlab.pictures.augmentations import Augmentation
from contrastlab.scores.choices import Setup
from contrastlab.support.errors import ArgumentError
from contrastlab.views import Augmented
from made_runs import generator, quiet

ITEMS, SIZE, BATCH = 12, 8, 4


def state(items: int = ITEMS) -> own_keys.QueueWithoutOwnState:
    setup = Setup(nn.ModuleList([nn.Linear(3, 2)]), Augmented(2), items, 2, 2, generator())
    return own_keys.QueueWithoutOwn(SIZE).state(setup)


def test_an_older_key_of_the_item_is_left_out_or_else_the_oldest_key() -> None:
    queue = state()
    held: list[int] = [-1] * SIZE  # of the slow twin, in the order of the slots
    oldest = 0
    for epoch in range(3):
        order = torch.randperm(ITEMS, generator=generator(epoch))
        for batch in order.split(BATCH):
            slots = queue.slots_of(batch).tolist()
            for item, slot in zip(batch.tolist(), slots, strict=True):
                assert slot == (held.index(item) if item in held else oldest)
            queue.commit(batch, (nn.functional.normalize(torch.randn(BATCH, 2)),))
            for item in batch.tolist():
                held[oldest] = item
                oldest = (oldest + 1) % SIZE
    assert queue.items.tolist() == held


def test_a_queue_that_could_hold_an_item_twice_is_refused() -> None:
    with pytest.raises(ArgumentError, match="^size=8: expected at most the number of items, 7"):
        state(items=7)


def test_all_else_is_the_row_itself() -> None:
    for method in own_keys.METHODS:
        recipe = methods.get(method)
        without = own_keys.recipe_of(method, own_keys=False)
        assert own_keys.recipe_of(method, own_keys=True) == recipe
        assert replace(without, keys=recipe.keys) == recipe
        assert Queue(**vars(without.keys)) == recipe.keys


def test_queries_are_contrasted_without_their_own_older_keys() -> None:
    queue = state()
    queue.commit(torch.tensor([5, 6, 7, 8]), (nn.functional.normalize(torch.randn(BATCH, 2)),))
    network = SimpleNamespace(encoders=queue.slow)
    views = tuple(torch.randn(2, BATCH, 3, generator=generator()))
    asked = Batch(views, torch.tensor([7, 1, 5, 2]), torch.zeros(BATCH), generator())
    (direction,) = queue.ask(asked, lambda *inputs: [queue.slow[0](view) for view in inputs], network).directions
    assert direction.own.tolist() == [2, 4, 0, 4]
    assert direction.pool is queue.stored(0)


def test_a_run_is_measured_once_and_read_back(tmp_path: Path, monkeypatch) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU())
    folder = write_features(
        network, data.load("digits"), tmp_path / "digits", Augmentation("crop", 8, resize=8), views=2, log=quiet
    )
    plan = papers.plan("ring", "1")
    settings = plan.settings(f"features:{folder}", "ring/mocoring", "smoke").override(overrides={"keys.size": 256})
    monkeypatch.setattr(type(plan), "settings", lambda *asked: settings)
    for has_own in (True, False):
        measured = own_keys.study("ring/mocoring", has_own, f"features:{folder}", "smoke", 3, out_dir=tmp_path)
    again = own_keys.study("ring/mocoring", False, f"features:{folder}", "smoke", 3, out_dir=tmp_path)
    assert again.provenance == measured.provenance
    table = own_keys.table([tmp_path], "smoke")
    assert list(table.index) == [("ring/mocoring", False, 3), ("ring/mocoring", True, 3)]
    assert table["linear"].between(0, 100).all()
