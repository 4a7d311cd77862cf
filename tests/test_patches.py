"""Patches of a picture: PIRL's shuffled nine against a loop, the loss of both heads, and two at a fixed distance."""

import copy
import itertools
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

from contrastlab import data, encoders, keys, methods, negatives, objectives
from contrastlab.methods import Recipe
from contrastlab.negatives import BatchRandom
from contrastlab.pictures.augmentations import Augmentation, augmentation
from contrastlab.pictures.loading import Crops, batches
from contrastlab.settings import Settings
from contrastlab.support import errors
from contrastlab.train import pretrain
from contrastlab.train.learner import Learner
from contrastlab.views import Augmented, Jigsaw, Offset, Split
from contrastlab.views.base import crop_options
from contrastlab.views.images import cell_and_patch, cut
from made_runs import generator
from test_streams import softmax_loss

TAU = 0.2
SMALL = Settings(image_size=16, arch="tiny", stem="cifar", dim=6)


def with_addresses(count: int, side: int) -> Tensor:
    """Pictures whose pixels hold their row, their column and the number of their picture."""
    images = torch.empty(count, 3, side, side)
    images[:, 0] = torch.arange(side)[:, None]
    images[:, 1] = torch.arange(side)
    images[:, 2] = torch.arange(count)[:, None, None]
    return images


def random_pictures(count: int, side: int) -> Tensor:
    return torch.randint(0, 256, (count, 3, side, side), generator=generator(), dtype=torch.uint8)


def without_normalisation(name: str, size: int) -> Augmentation:
    """Views whose values are those of the picture, from 0 to 1."""
    return replace(augmentation(name, size), mean=(0.0,), std=(1.0,))


# The puzzle -----------------------------------------------------------------------------------------------------------


def test_the_puzzle_holds_a_patch_of_every_cell_once() -> None:
    cell, patch = 12, 9
    images = with_addresses(6, 3 * cell)
    puzzles = cut(images, cell, patch, generator(3))
    assert puzzles.shape == (6, 9, 3, patch, patch)
    for image, pieces in zip(images, puzzles, strict=True):
        cells = set()
        for piece in pieces:
            top, left, _ = piece[:, 0, 0].int().tolist()
            assert torch.equal(piece, image[:, top : top + patch, left : left + patch])
            row, column = top // cell, left // cell
            assert top + patch <= (row + 1) * cell
            assert left + patch <= (column + 1) * cell
            cells.add((row, column))
        assert cells == set(itertools.product(range(3), range(3)))


def test_the_place_of_a_patch_in_its_cell_is_uniform_along_both_sides() -> None:
    cell, patch, count = 4, 2, 4000
    puzzles = cut(with_addresses(count, 3 * cell), cell, patch, generator(1))
    top = puzzles[:, :, 0, 0, 0].long() % cell
    left = puzzles[:, :, 1, 0, 0].long() % cell
    places = (3 * top + left).flatten()
    shares = places.bincount(minlength=9) / len(places)
    assert len(shares) == 9
    assert (shares - 1 / 9).abs().max() < 0.01


def test_the_order_of_the_patches_is_uniform_and_drawn_for_each_picture() -> None:
    cell, patch, count = 4, 2, 4000
    puzzles = cut(with_addresses(count, 3 * cell), cell, patch, generator(1))
    row = puzzles[:, :, 0, 0, 0].long() // cell
    column = puzzles[:, :, 1, 0, 0].long() // cell
    cells = 3 * row + column
    for position in range(9):
        shares = cells[:, position].bincount(minlength=9) / count
        assert (shares - 1 / 9).abs().max() < 0.025
    assert len(cells.unique(dim=0)) > 0.98 * count  # of 362880 orders


@pytest.mark.parametrize(("size", "cell", "patch"), [(224, 85, 64), (32, 12, 9)])
def test_cells_and_patches_have_the_released_sides_in_proportion_to_the_view(size: int, cell: int, patch: int) -> None:
    assert cell_and_patch(size) == (cell, patch)


def test_a_view_that_is_too_small_for_a_puzzle_is_refused() -> None:
    with pytest.raises(errors.ArgumentError, match="size=5: expected at least 6 pixels"):
        cell_and_patch(5)


JIGSAWS = [
    (Jigsaw(), Augmented()),
    (Jigsaw(count=2), Augmented(2)),
    (Jigsaw("lab"), Split("lab")),
    (Jigsaw("ydbdr", 2, scaling="released"), Split("ydbdr", 2, "released")),
]


@pytest.mark.parametrize(("part", "base"), JIGSAWS, ids=repr)
def test_views_come_first_and_patches_of_each_stream_behind_them(part: Jigsaw, base: Augmented | Split) -> None:
    images = random_pictures(5, 40)
    a = augmentation("cmc_jitter", 32)
    expected = base.make(images, a, generator(7))
    made = part.make(images, a, generator(7))
    views = made[: len(expected)]
    pieces = made[len(expected) :]
    for ours, theirs in zip(views, expected, strict=True):
        assert torch.equal(ours, theirs)
    assert [tuple(each.shape) for each in pieces] == [(5, 9, channels, 9, 9) for channels in base.channels(3)]


@pytest.mark.parametrize(("part", "base"), JIGSAWS, ids=repr)
def test_a_puzzle_leaves_streams_pairs_and_plain_views_as_they_are_without_it(
    part: Jigsaw, base: Augmented | Split
) -> None:
    images = random_pictures(5, 40)
    a = augmentation("cmc_jitter", 32)
    assert part.streams == base.streams
    assert part.pairs == base.pairs
    assert part.single() == base.single()
    for ours, theirs in zip(part.plain(images, a), base.plain(images, a), strict=True):
        assert torch.equal(ours, theirs)


def test_patches_keep_the_colours_that_views_change() -> None:
    images = torch.full((3, 3, 32, 32), 90, dtype=torch.uint8)
    images[:, 0] = 200
    view, pieces = Jigsaw(count=1).make(images, without_normalisation("mocov2", 32), generator())
    expected = torch.tensor([200, 90, 90]) / 255
    torch.testing.assert_close(pieces, expected.view(1, 1, 3, 1, 1).expand_as(pieces))
    assert (view - expected.view(1, 3, 1, 1)).abs().max() > 0.05


def test_patches_are_normalised_as_views_are() -> None:
    images = torch.full((3, 3, 32, 32), 90, dtype=torch.uint8)
    a = replace(augmentation("cmc", 32), mean=(0.2, 0.3, 0.4), std=(0.5, 0.6, 0.7))
    view, pieces = Jigsaw(count=1).make(images, a, generator())
    expected = a.normalise(torch.full((1, 3, 1, 1), 90 / 255))
    torch.testing.assert_close(view, expected.expand_as(view))
    torch.testing.assert_close(pieces, expected.expand_as(pieces))


def test_a_streamed_picture_gives_one_more_crop_of_most_of_it_for_the_puzzle() -> None:
    a = augmentation("cmc", 32)
    with_puzzle = Crops(a, seed=0, **crop_options(Jigsaw("ydbdr", 2), 32))
    without = Crops(a, 2, 0)
    boxes = torch.stack([with_puzzle.boxes(number, 100, 100) for number in range(400)])
    boxes_of_views = torch.stack([without.boxes(number, 100, 100) for number in range(400)])
    assert boxes.shape == (400, 3, 4)
    assert torch.equal(boxes[:, :2], boxes_of_views)
    area = boxes[:, :, 2] * boxes[:, :, 3] / 100**2
    assert area[:, :2].min() < 0.3
    assert area[:, 2].min() > 0.58


def test_the_last_of_ready_crops_is_cut_into_patches() -> None:
    ready = torch.zeros(4, 3, 3, 32, 32, dtype=torch.uint8)
    ready[:, 2] = 255
    one, other, pieces = Jigsaw(count=2).make(ready, without_normalisation("cmc", 32), generator(2))
    assert not one.any()
    assert not other.any()
    assert pieces.shape == (4, 9, 3, 9, 9)
    assert bool((pieces == 1).all())


# Networks and losses of puzzles ---------------------------------------------------------------------------------------


def test_the_second_head_reads_the_patches_in_order() -> None:
    encoder = encoders.build("tiny", stem="cifar", dim=6, pieces=9).eval()
    puzzles = torch.randn(4, 9, 3, 9, 9)
    with torch.no_grad():
        expected = []
        for pieces in puzzles:
            features = [encoder.patch_head(encoder.features(piece[None]))[0] for piece in pieces]
            embedding = encoder.puzzle_head(torch.cat(features)[None])[0]
            expected.append(F.normalize(embedding, dim=0))
        torch.testing.assert_close(encoder(puzzles), torch.stack(expected))
        assert not torch.allclose(encoder(puzzles.flip(1)), torch.stack(expected), atol=1e-3)


def test_views_are_embedded_by_the_head_that_an_encoder_without_a_puzzle_has() -> None:
    torch.manual_seed(0)
    without = encoders.build("tiny", stem="cifar", dim=6).eval()
    torch.manual_seed(0)
    with_puzzle = encoders.build("tiny", stem="cifar", dim=6, pieces=9).eval()
    views = torch.randn(4, 3, 16, 16)
    with torch.no_grad():
        assert torch.equal(with_puzzle(views), without(views))


def softmax_losses(queries: Tensor, positives: Tensor, negatives_of: list[Tensor]) -> Tensor:
    """The mean over a batch, one query after the other."""
    losses = []
    for query, positive, others in zip(queries, positives, negatives_of, strict=True):
        losses.append(softmax_loss(query, positive, others))
    return torch.stack(losses).mean()


@pytest.mark.parametrize("space", [None, "lab"])
def test_the_loss_weighs_views_and_patches_against_a_bank(space: str | None) -> None:
    part = Jigsaw(space, 1, weight=0.3)
    learner = learner_of(Recipe("x/pirl", "PIRL", part, keys.Bank(), negatives.Every(), temperature=TAU))
    made = part.make(random_pictures(5, 20), augmentation("cmc", 16), generator(1))
    views = made[: len(part.streams)]
    pieces = made[len(part.streams) :]
    items = torch.arange(5) + 3

    expected = torch.zeros(())
    for query, key in part.pairs:
        stored = learner.keys.stored(key).clone()
        others = [stored[torch.arange(20) != item] for item in items.tolist()]
        of_views = learner.network.encoders[query](views[query])
        of_pieces = learner.network.encoders[key](pieces[key])  # asks its own stream
        expected = expected + 0.7 * softmax_losses(of_views, stored[items], others)
        expected = expected + 0.3 * softmax_losses(of_pieces, stored[items], others)

    loss = learner.loss(made, items, items, BatchRandom(generator()), 0, 1).loss
    torch.testing.assert_close(loss, expected, rtol=1e-4, atol=1e-5)
    assert_all_learn(learner.network, loss)


@pytest.mark.parametrize("space", [None, "lab"])
def test_the_loss_weighs_views_and_patches_against_a_queue(space: str | None) -> None:
    part = Jigsaw(space, 2, weight=0.3)
    queue = keys.Queue(11, 0.5, further_view=space is not None)
    learner = learner_of(Recipe("x/pirl", "PIRL", part, queue, negatives.Every(), temperature=TAU))
    made = part.make(random_pictures(5, 20), augmentation("cmc", 16), generator(1))
    streams = len(part.streams)
    views = made[:streams]
    further_views = made[streams : 2 * streams]
    pieces = made[2 * streams :]
    items = torch.arange(5) + 3
    momentum_encoders = copy.deepcopy(learner.keys.slow)

    expected = torch.zeros(())
    for query, key in part.pairs:
        positives = momentum_encoders[key](further_views[key])
        others = [learner.keys.stored(key).clone()] * 5
        of_views = learner.network.encoders[query](views[query])
        of_pieces = learner.network.encoders[key](pieces[key])  # asks its own stream
        expected = expected + 0.7 * softmax_losses(of_views, positives, others)
        expected = expected + 0.3 * softmax_losses(of_pieces, positives, others)

    loss = learner.loss(made, items, items, BatchRandom(generator()), 0, 1).loss
    torch.testing.assert_close(loss, expected, rtol=1e-4, atol=1e-5)
    assert_all_learn(learner.network, loss)


def learner_of(recipe: Recipe) -> Learner:
    return Learner(recipe, SMALL, images=20, classes=2, seed=0).eval()


def assert_all_learn(network: nn.Module, loss: Tensor) -> None:
    """Every parameter gets a gradient."""
    network.zero_grad()
    loss.backward()
    assert [name for name, parameter in network.named_parameters() if parameter.grad is None] == []


def test_each_kind_of_query_and_direction_has_an_offset() -> None:
    binary = objectives.BinaryNCE(kappa=None)
    recipe = Recipe("x/pirl", "PIRL", Jigsaw("lab"), keys.Bank(), negatives.Uniform(8), objective=binary)
    learner = Learner(recipe, SMALL, images=20, classes=2, seed=0)
    views = recipe.views.make(random_pictures(5, 20), augmentation("cmc", 16), generator(1))
    learner.loss(views, torch.arange(5), torch.arange(5), BatchRandom(generator()), 0, 1)
    offsets = learner.network.objective_module.values.tolist()
    assert len(offsets) == 4
    assert len(set(offsets)) == 4


FURTHER = Recipe("x/cmc", "CMC", Split("lab", 2), keys.Queue(9, further_view=True), negatives.Every())


def test_a_queue_may_ask_for_keys_of_a_further_view() -> None:
    assert FURTHER.keys.views_needed(2, 0) == 2


@pytest.mark.parametrize(("count", "further"), [(1, True), (2, False)])
def test_a_queue_is_given_a_further_view_where_it_asks_for_one_and_nowhere_else(count: int, further: bool) -> None:
    with pytest.raises(errors.NotApplicableError, match="needs"):
        replace(FURTHER, views=Split("lab", count), keys=keys.Queue(9, further_view=further))


# Runs -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("views", [Jigsaw("ydbdr", 2), Offset(3)])
def test_a_run_of_patches_trains_and_its_encoders_have_no_second_head(
    views: Jigsaw | Offset, tiny, pictures, tmp_path
) -> None:
    queue = keys.Queue(20, 0.9, further_view=isinstance(views, Jigsaw))
    recipe = Recipe("x/patches", "patches", views, queue, negatives.Every(), temperature=TAU)
    settings = tiny.override(image_size=12, epochs=1)
    trained = pretrain(recipe, settings, pictures(48), seed=0).encoders
    assert len(trained) == len(views.streams)
    without_second_head = {"arch": "tiny", "stem": "cifar", "head": "linear", "dim": 16}
    encoders.save(trained, tmp_path, views.streams, without_second_head)
    again = encoders.load(tmp_path)
    shown = views.plain(pictures(4).items, augmentation("cmc", 12))
    with torch.no_grad():
        features = encoders.features(again, shown)
        expected = encoders.features(trained.eval(), shown)
    torch.testing.assert_close(features, expected, rtol=1e-4, atol=1e-5)


HALF_ALEXNET = Settings(
    image_size=32,
    arch="half_alexnet64",
    stem="cifar",
    width=0.125,
    dim=12,
    epochs=1,
    batch_size=16,
    milestones=(),
    knn_every=0,
    optimiser={"name": "adam", "betas": (0.5, 0.999)},
    lr=1e-3,
)


def test_an_embedding_is_told_from_places_of_the_other_half(pictures) -> None:
    """CMC(Patch) of Table 7, which needs a network that names its blocks."""
    recipe = methods.get("cmc/stl10_patch")
    trained = pretrain(recipe, HALF_ALEXNET, pictures(48), seed=1).encoders
    start = pretrain(replace(recipe, keys=None), HALF_ALEXNET, pictures(48), seed=1).encoders
    for encoder, untrained in zip(trained, start, strict=True):
        for after, before in zip(encoder.backbone.parameters(), untrained.backbone.parameters(), strict=True):
            assert not torch.equal(after, before)


def test_places_have_as_many_numbers_as_the_embedding(pictures) -> None:
    with pytest.raises(errors.ArgumentError, match="dim=16: expected 12"):
        pretrain(methods.get("cmc/stl10_patch"), HALF_ALEXNET.override(dim=16), pictures(48), seed=1)


# Two patches at a distance --------------------------------------------------------------------------------------------


def addresses_of_patches(part: Offset, images: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Both patches, whose values are those of the pictures with addresses."""
    first, second = part.make(images.to(torch.uint8), without_normalisation("cmc", size), generator(1))
    return (first * 255).round(), (second * 255).round()


@pytest.mark.parametrize("distance", [0, 3, 9])
def test_two_patches_of_a_picture_are_so_many_pixels_apart_along_both_sides(distance: int) -> None:
    first, second = addresses_of_patches(Offset(distance), with_addresses(50, 15), 6)
    apart = (second - first).unique(dim=0)
    rows, columns, pictures_apart = apart[0]
    assert len(apart) == 1
    assert rows.unique().tolist() == [distance]
    assert columns.unique().tolist() == [distance]
    assert pictures_apart.unique().tolist() == [0]


@pytest.mark.parametrize("distance", [0, 3, 9])
def test_a_patch_is_what_its_picture_has_there(distance: int) -> None:
    images = with_addresses(50, 15)
    first, _ = addresses_of_patches(Offset(distance), images, 6)
    assert first.shape == (50, 3, 6, 6)
    for image, patch in zip(images, first, strict=True):
        top, left, _ = patch[:, 0, 0].int().tolist()
        assert torch.equal(patch, image[:, top : top + 6, left : left + 6])


@pytest.mark.parametrize("distance", [0, 3, 9])
def test_a_pair_of_patches_begins_at_every_place_where_both_fit_equally_often(distance: int) -> None:
    count = 4000
    images = with_addresses(1, 15).expand(count, -1, -1, -1)
    first, _ = addresses_of_patches(Offset(distance), images, 6)
    places = 15 - 6 - distance + 1
    for corner in (first[:, 0, 0, 0], first[:, 1, 0, 0]):
        shares = corner.long().bincount() / count
        assert len(shares) == places
        assert (shares - 1 / places).abs().max() < 0.03


def test_pairs_of_patches_are_refused_where_a_picture_does_not_hold_both() -> None:
    with pytest.raises(errors.NotApplicableError, match="needs 16 px along both sides; these have 15 by 15"):
        addresses_of_patches(Offset(10), with_addresses(2, 15), 6)


def test_one_encoder_sees_both_patches_and_probes_see_whole_pictures() -> None:
    assert Offset(3).streams == ("patch",)
    assert Offset(3).single() == Augmented(1)


def test_a_streamed_picture_gives_a_window_that_holds_both() -> None:
    crop = Crops(augmentation("cmc", 6), seed=0, **crop_options(Offset(10), 6))
    assert crop.size == 16
    boxes = torch.cat([crop.boxes(number, 20, 17) for number in range(300)])
    top, left, height, width = boxes.unbind(1)
    assert height.unique().tolist() == [16]
    assert width.unique().tolist() == [16]
    assert top.unique().tolist() == [0, 1, 2, 3, 4]
    assert left.unique().tolist() == [0, 1]
    with pytest.raises(errors.NotApplicableError, match="no square of 16 px"):
        crop.boxes(0, 15, 40)


def test_both_patches_are_cut_from_a_ready_window() -> None:
    windows = with_addresses(3, 16)[:, None]
    first, second = addresses_of_patches(Offset(10), windows, 6)
    assert first[:, :2, 0, 0].tolist() == [[0, 0]] * 3
    assert second[:, :2, 0, 0].tolist() == [[10, 10]] * 3


# DIV2K ----------------------------------------------------------------------------------------------------------------


def test_div2k_says_where_it_is_looked_for(tmp_path) -> None:
    with pytest.raises(errors.MissingDataError, match="DIV2K_train_HR does not exist"):
        data.load("div2k", tmp_path)
    (tmp_path / "DIV2K" / "DIV2K_train_HR").mkdir(parents=True)
    with pytest.raises(errors.MissingDataError, match="div2k: there is no item in it"):
        data.load("div2k", tmp_path)


def write_ramps(root: Path, count: int) -> None:
    """Pictures of 600 by 300 pixels whose level is their column, modulo 200."""
    folder = root / "DIV2K" / "DIV2K_train_HR"
    folder.mkdir(parents=True)
    ramp = (torch.arange(600) % 200).to(torch.uint8).expand(300, 600).numpy()
    for k in range(count):
        Image.fromarray(ramp).convert("RGB").save(folder / f"000{k + 1}.png")


def test_div2k_is_read_as_it_is_unpacked_and_has_no_labels(tmp_path) -> None:
    write_ramps(tmp_path, 3)
    splits = data.load("div2k", tmp_path)
    assert len(splits.pretrain) == 3
    assert not splits.labelled
    with pytest.raises(errors.NotApplicableError, match="no labels"):
        _ = splits.test


def test_patches_of_div2k_are_cut_from_the_picture_as_it_is(tmp_path) -> None:
    write_ramps(tmp_path, 3)
    pictures = data.load("div2k", tmp_path).pretrain
    part = Offset(100)
    crop = Crops(augmentation("cmc", 16), seed=0, **crop_options(part, 16))
    ((_, windows),) = batches(pictures, torch.arange(3), 3, "cpu", drop_last=False, crop=crop, workers=0)
    assert windows.shape == (3, 1, 3, 116, 116)
    first, second = addresses_of_patches(part, windows, 16)
    assert ((second - first) % 200).unique().tolist() == [100]
