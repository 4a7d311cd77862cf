"""Patches of a picture: PIRL's shuffled nine against a loop, the loss of both heads, and two at a fixed distance."""

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from contrastlab import data, encoders, keys, methods, negatives, objectives
from contrastlab.methods import Recipe
from contrastlab.negatives import BatchRandom
from contrastlab.pictures.augmentations import augmentation
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


def pictures(count: int, side: int, channels: int = 3) -> Tensor:
    """Every pixel value tells the picture, the row and the column."""
    rows, columns = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    place = torch.stack([rows, columns, rows + columns][:channels]).float()
    return place[None] + 1000 * torch.arange(count).view(-1, 1, 1, 1)


def test_the_puzzle_equals_a_loop() -> None:
    images, cell, patch = pictures(6, 36), 12, 9
    made = cut(images, cell, patch, generator(3))
    assert made.shape == (6, 9, 3, 9, 9)
    orders = set()
    for image, patches in zip(images, made, strict=True):
        found = []
        for one in patches:
            top, left = int(one[0, 0, 0]) % 1000, int(one[1, 0, 0]) % 1000
            # a patch is what the picture has there, and lies within its cell
            assert torch.equal(one, image[:, top : top + patch, left : left + patch])
            row, column = top // cell, left // cell
            assert top + patch <= (row + 1) * cell
            assert left + patch <= (column + 1) * cell
            found.append(3 * row + column)
        assert sorted(found) == list(range(9))
        orders.add(tuple(found))
    assert len(orders) > 1


def test_places_and_orders_are_uniform_and_sizes_the_released() -> None:
    made = cut(pictures(1, 12, 2).expand(4000, -1, -1, -1) % 1000, 4, 2, generator(1))
    top, left = (made[:, :, k, 0, 0].long() for k in (0, 1))
    for offset in (top % 4, left % 4):
        shares = offset.flatten().bincount(minlength=3) / offset.numel()
        assert (shares - 1 / 3).abs().max() < 0.01
    which = 3 * (top // 4) + left // 4
    for position in range(9):
        shares = which[:, position].bincount(minlength=9) / len(which)
        assert (shares - 1 / 9).abs().max() < 0.025
    assert cell_and_patch(224) == (85, 64)
    assert cell_and_patch(32) == (12, 9)


@pytest.mark.parametrize("part", [Jigsaw(), Jigsaw(count=2), Jigsaw("lab"), Jigsaw("ydbdr", 2, scaling="released")])
def test_views_come_first_and_patches_behind_them(part: Jigsaw) -> None:
    images = torch.randint(0, 256, (5, 3, 40, 40), generator=generator(), dtype=torch.uint8)
    a = augmentation("cmc_jitter", 32)
    made = part.make(images, a, generator(7))
    base = Augmented(part.count) if part.space is None else Split(part.space, part.count, part.scaling)
    for ours, theirs in zip(made, base.make(images, a, generator(7)), strict=False):
        assert torch.equal(ours, theirs)
    assert [tuple(v.shape) for v in made[len(part.streams) * part.count :]] == [
        (5, 9, channels, 9, 9) for channels in part.channels(3)
    ]
    assert (part.streams, part.pairs, part.single()) == (base.streams, base.pairs, base.single())
    for ours, theirs in zip(part.plain(images, a), base.plain(images, a), strict=True):
        assert torch.equal(ours, theirs)


def test_patches_keep_the_colours_that_views_change() -> None:
    images = torch.full((3, 3, 32, 32), 90, dtype=torch.uint8)
    images[:, 0] = 200
    *_, patches = Jigsaw(count=1).make(
        images, replace(augmentation("mocov2", 32), mean=(0.0,) * 3, std=(1.0,) * 3), generator()
    )
    expected = torch.tensor([200, 90, 90]) / 255
    torch.testing.assert_close(patches, expected.view(1, 1, 3, 1, 1).expand_as(patches))


def test_ready_crops_have_one_more_for_the_puzzle() -> None:
    part, a = Jigsaw("ydbdr", 2), augmentation("cmc", 32)
    options = crop_options(part, 32)
    crop = Crops(a, seed=0, **options)
    boxes = torch.stack([crop.boxes(number, 100, 100) for number in range(400)])
    assert boxes.shape == (400, 3, 4)
    area = boxes[:, :, 2] * boxes[:, :, 3] / 100**2
    assert area[:, 2].min() > 0.58
    assert area[:, :2].min() < 0.3
    # the boxes of the views are those that a recipe without a puzzle has
    plain = Crops(a, 2, 0)
    assert torch.equal(boxes[:, :2], torch.stack([plain.boxes(number, 100, 100) for number in range(400)]))
    ready = torch.randint(0, 256, (4, 3, 3, 32, 32), generator=generator(), dtype=torch.uint8)
    made = part.make(ready, a, generator(2))
    assert len(made) == 6
    assert made[-1].shape == (4, 9, 2, 9, 9)


def test_the_second_head_reads_the_patches_in_order() -> None:
    encoder = encoders.build("tiny", stem="cifar", dim=6, pieces=9).eval()
    patches = torch.randn(4, 9, 3, 9, 9)
    with torch.no_grad():
        slow = [torch.cat([encoder.patch_head(encoder.features(patch[None]))[0] for patch in item]) for item in patches]
        expected = F.normalize(encoder.puzzle_head(torch.stack(slow)), dim=1)
        torch.testing.assert_close(encoder(patches), expected)
        assert not torch.allclose(encoder(patches.flip(1)), expected, atol=1e-3)
    # views are embedded by the other head, as without the puzzle
    torch.manual_seed(0)
    one = encoders.build("tiny", stem="cifar", dim=6).state_dict()
    torch.manual_seed(0)
    two = encoders.build("tiny", stem="cifar", dim=6, pieces=9).state_dict()
    assert all(torch.equal(value, two[name]) for name, value in one.items())


@pytest.mark.parametrize("space", [None, "lab"])
@pytest.mark.parametrize("kind", ["bank", "queue"])
def test_the_loss_weighs_views_and_patches(kind: str, space: Any) -> None:
    choice = keys.Bank() if kind == "bank" else keys.Queue(11, 0.5, further_view=space is not None)
    part = Jigsaw(space, 1 if kind == "bank" else 2, weight=0.3)
    recipe = Recipe("x/pirl", "PIRL", part, choice, negatives.Every(), temperature=TAU)
    settings = Settings(image_size=16, arch="tiny", stem="cifar", dim=6)
    learner = Learner(recipe, settings, images=20, classes=2, seed=0).eval()
    images = torch.randint(0, 256, (5, 3, 20, 20), generator=generator(), dtype=torch.uint8)
    indices = torch.arange(5) + 3
    views = part.make(images, augmentation("cmc", 16), generator(1))
    before = copy.deepcopy(learner)
    done = learner.loss(views, indices, indices, BatchRandom(generator()), 0, 1)
    streams = len(part.streams)
    whole, patches = views[:streams], views[-streams:]
    slow = before.keys.slow or before.network.encoders
    further = views[streams : 2 * streams]
    total = torch.zeros(())
    for query, key in part.pairs:
        asked = before.network.encoders[query](whole[query])
        again = before.network.encoders[key](patches[key])
        for row in range(5):
            if kind == "bank":
                positive = before.keys.stored(key)[indices[row]]
                others = before.keys.stored(key)[torch.arange(20) != indices[row]]
            else:
                positive, others = slow[key](further[key])[row], before.keys.stored(key)
            total = total + 0.7 * softmax_loss(asked[row], positive, others) / 5
            total = total + 0.3 * softmax_loss(again[row], positive, others) / 5
    torch.testing.assert_close(done.loss, total, rtol=1e-4, atol=1e-5)
    done.loss.backward()
    assert all(p.grad is not None for p in learner.network.parameters())


def test_each_kind_of_query_and_direction_has_an_offset() -> None:
    binary = objectives.BinaryNCE(kappa=None)
    recipe = Recipe("x/pirl", "PIRL", Jigsaw("lab"), keys.Bank(), negatives.Uniform(8), objective=binary)
    learner = Learner(recipe, Settings(image_size=16, arch="tiny", stem="cifar", dim=6), images=20, classes=2, seed=0)
    images = torch.randint(0, 256, (5, 3, 20, 20), generator=generator(), dtype=torch.uint8)
    views = recipe.views.make(images, augmentation("cmc", 16), generator(1))
    learner.loss(views, torch.arange(5), torch.arange(5), BatchRandom(generator()), 0, 1)
    assert learner.network.objective_module.values.shape == (4,)
    assert len(set(learner.network.objective_module.values.tolist())) == 4


def test_a_queue_may_ask_for_keys_of_a_further_view() -> None:
    softmax = Recipe("x/cmc", "CMC", Split("lab", 2), keys.Queue(9, further_view=True), negatives.Every())
    assert softmax.keys.views_needed(2, 0) == 2
    for count, further in ((1, True), (2, False)):
        with pytest.raises(errors.NotApplicableError, match="needs"):
            replace(softmax, views=Split("lab", count), keys=keys.Queue(9, further_view=further))


@pytest.mark.parametrize("views", [Jigsaw("ydbdr", 2), Offset(3)])
def test_a_run_of_patches_trains_and_its_encoders_have_no_second_head(views: Any, tiny, pictures, tmp_path) -> None:
    kind = keys.Queue(20, 0.9, further_view=len(views.streams) == 2)
    recipe = Recipe("x/patches", "patches", views, kind, negatives.Every(), temperature=TAU)
    settings = tiny.override(image_size=12, epochs=1)
    trained = pretrain(recipe, settings, pictures(48), seed=0)
    assert len(trained.encoders) == len(views.streams)
    encoders.save(
        trained.encoders, tmp_path, views.streams, {"arch": "tiny", "stem": "cifar", "head": "linear", "dim": 16}
    )
    again = encoders.load(tmp_path)
    shown = views.plain(pictures(4).items, augmentation("cmc", 12))
    with torch.no_grad():
        torch.testing.assert_close(
            encoders.features(again, shown), encoders.features(trained.encoders.eval(), shown), rtol=1e-4, atol=1e-5
        )


def test_an_embedding_is_told_from_places_of_the_other_half(pictures) -> None:
    """CMC(Patch) of Table 7, which needs a network that names its blocks."""
    recipe = methods.get("cmc/stl10_patch")
    settings = Settings(
        image_size=32, arch="half_alexnet64", stem="cifar", width=0.125, dim=12, epochs=1, batch_size=16,
        milestones=(), knn_every=0, optimiser={"name": "adam", "betas": (0.5, 0.999)}, lr=1e-3,
    )  # fmt: skip
    done = pretrain(recipe, settings, pictures(48), seed=1)
    start = pretrain(replace(recipe, keys=None), settings, pictures(48), seed=1)
    blocks = [(a.backbone, b.backbone) for a, b in zip(done.encoders, start.encoders, strict=True)]
    moved = [not torch.equal(p, q) for a, b in blocks for p, q in zip(a.parameters(), b.parameters(), strict=True)]
    assert all(moved)
    with pytest.raises(errors.ArgumentError, match="dim=16: expected 12"):
        pretrain(recipe, settings.override(dim=16), pictures(48), seed=1)


def test_div2k_is_read_as_it_is_unpacked(tmp_path) -> None:
    with pytest.raises(errors.MissingDataError, match="DIV2K_train_HR does not exist"):
        data.load("div2k", tmp_path)
    folder = tmp_path / "DIV2K" / "DIV2K_train_HR"
    folder.mkdir(parents=True)
    with pytest.raises(errors.MissingDataError, match="div2k: there is no item in it"):
        data.load("div2k", tmp_path)
    ramp = torch.arange(600)[None].expand(300, 600)
    for k in range(3):
        Image.fromarray((ramp % 200 + k).to(torch.uint8).numpy()).convert("RGB").save(folder / f"000{k + 1}.png")
    splits = data.load("div2k", tmp_path)
    assert len(splits.pretrain) == 3
    assert not splits.labelled
    with pytest.raises(errors.NotApplicableError, match="no labels"):
        _ = splits.test
    # patches 100 pixels apart are cut from the picture as it is, 600 by 300
    part, a = Offset(100), replace(augmentation("cmc", 16), mean=(0.0,) * 3, std=(1 / 255,) * 3)
    crop = Crops(a, seed=0, **crop_options(part, 16))
    ((_, images),) = batches(splits.pretrain, torch.arange(3), 3, "cpu", drop_last=False, crop=crop, workers=0)
    assert images.shape == (3, 1, 3, 116, 116)
    first, second = part.make(images, a, generator())
    torch.testing.assert_close(((second - first).round() + 200) % 200, torch.full_like(first, 100.0))


@pytest.mark.parametrize("distance", [0, 3, 9])
def test_two_patches_are_so_many_pixels_apart(distance: int) -> None:
    a = replace(augmentation("cmc", 6), mean=(0.0,) * 3, std=(1 / 255,) * 3)
    images = (pictures(50, 15) % 1000).to(torch.uint8)
    part = Offset(distance)
    first, second = part.make(images, a, generator(1))
    assert first.shape == second.shape == (50, 3, 6, 6)
    assert torch.equal((second - first).round()[:, :2], torch.full_like(first[:, :2], distance))
    top, left = first[:, 0, 0, 0].round(), first[:, 1, 0, 0].round()
    # a patch is what the picture has there
    for one, i, j, image in zip(first, top.int().tolist(), left.int().tolist(), images, strict=True):
        torch.testing.assert_close(one, image[:, i : i + 6, j : j + 6].float())
    room = 15 - 6 - distance
    assert (int(top.min()), int(left.min())) == (0, 0)
    assert int(top.max()) == int(left.max()) == room
    assert part.single() == Augmented(1)


def test_a_streamed_picture_gives_a_window_that_holds_both() -> None:
    options = crop_options(Offset(10), 6)
    crop = Crops(augmentation("cmc", 6), seed=0, **options)
    assert crop.size == 16
    boxes = torch.cat([crop.boxes(number, 20, 17) for number in range(300)])
    assert set(boxes[:, 2].tolist()) == set(boxes[:, 3].tolist()) == {16}
    assert (set(boxes[:, 0].tolist()), set(boxes[:, 1].tolist())) == (set(range(5)), {0, 1})
    (first, second) = Offset(10).make(torch.zeros(3, 1, 3, 16, 16, dtype=torch.uint8), augmentation("cmc", 6))
    assert first.shape == second.shape == (3, 3, 6, 6)
    with pytest.raises(errors.NotApplicableError, match="no square of 16 px"):
        crop.boxes(0, 15, 40)
