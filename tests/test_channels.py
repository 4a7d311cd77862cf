"""Channels of a scene: what each view is, which pairs are compared, patches and predictions against their loops."""

import copy
import itertools
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from scipy import stats
from torch import Tensor, nn
from torch.nn import functional as F

from contrastbook.made import rooms
from contrastlab import encoders, keys, methods, negatives, positives
from contrastlab.domains.detection.network import AS_THEY_ARE
from contrastlab.domains.scenes.augmentation import SceneAugmentation
from contrastlab.domains.scenes.data import SceneSet
from contrastlab.domains.scenes.views import CODE, LAYOUT, Channels, labels, slices
from contrastlab.methods import Recipe
from contrastlab.negatives import BatchRandom
from contrastlab.settings import Settings
from contrastlab.support import seeds
from contrastlab.support.errors import ArgumentError, UnknownNameError
from contrastlab.train import pretrain
from contrastlab.train.learner import Learner
from contrastlab.views import Augmented, Split
from made_runs import generator, quiet

FOUR = ("L", "ab", "depth", "normal")
SETTINGS = Settings(
    arch="scene",
    width=0.03125,
    dim=8,
    image_size=32,
    augmentation="cmc",
    batch_size=4,
    epochs=1,
    milestones=(),
    optimiser={"name": "adam"},
    lr=1e-3,
    knn_every=0,
)
CROPS = SceneAugmentation("cmc", 32)


def scenes(count: int = 8) -> Tensor:
    """Rendered rooms with random arrows of flow, packed with all parts of :data:`LAYOUT`."""
    still, _ = rooms.render(torch.arange(count), height=40, width=48)
    flow = torch.randn(count, 2, 40, 48, generator=generator()).to(still)
    items = torch.cat([still, flow], 1)
    assert items.shape[1] == sum(LAYOUT.values())
    return items


def rooms_of(count: int = 8) -> SceneSet:
    items, kinds = rooms.render(torch.arange(count), height=40, width=48)
    return SceneSet("few", items, kinds, rooms.KINDS, rooms.CLASSES)


def whole_scenes(count: int = 8) -> Tensor:
    return SceneAugmentation("none", 32).plain(scenes(count))


WHERE = slices(10)

# What each view is ----------------------------------------------------------------------------------------------------


def test_views_have_the_channels_of_table_12() -> None:
    views = Channels((*FOUR, "label"), "full").read(whole_scenes())
    assert [view.shape[1] for view in views] == [1, 2, 1, 3, 1]
    assert Channels(FOUR).channels(10) == (1, 2, 1, 3)


def test_luminance_and_chrominance_are_those_of_a_split() -> None:
    packed = whole_scenes()
    views = Channels(("L", "ab")).read(packed)
    expected = Split().plain(packed[:, WHERE["rgb"]], AS_THEY_ARE)
    torch.testing.assert_close(views, expected)


def test_normals_are_read_as_they_are() -> None:
    packed = whole_scenes()
    (normals,) = Channels(("normal",)).read(packed)
    assert torch.equal(normals, packed[:, WHERE["normal"]])


@pytest.mark.parametrize(("metres", "value"), [(0.7, -1), (math.sqrt(0.7 * 10), 0), (10.0, 1)])
def test_depth_is_the_logarithm_of_metres_between_the_ends_of_the_sensor(metres: float, value: float) -> None:
    packed = whole_scenes(1)
    packed[:, WHERE["depth"]] = metres
    (depth,) = Channels(("depth",)).read(packed)
    torch.testing.assert_close(depth, torch.full_like(depth, value), atol=1e-5, rtol=0)


def test_each_class_is_a_number_of_its_own_far_from_the_others() -> None:
    packed = whole_scenes()
    (view,) = Channels(("label",)).read(packed)
    classes = labels(packed)[:, None]
    numbers = []
    for each in classes.unique():
        (number,) = view[classes == each].unique().tolist()
        numbers.append(number)
    assert len(numbers) == 5
    assert min(numbers) >= -1
    assert max(numbers) <= 1
    for one, other in itertools.combinations(numbers, 2):
        assert abs(one - other) > 0.2


def test_what_is_missing_is_zero_in_a_view_and_void_is_the_lowest_number() -> None:
    packed = whole_scenes(2)
    packed[0, WHERE["depth"], 3, 5] = math.nan
    packed[0, WHERE["normal"], 3, 5] = math.nan
    packed[1, WHERE["label"], 0, 0] = -1
    depth, normal, label = Channels(("depth", "normal", "label")).read(packed)
    assert depth[0, :, 3, 5].tolist() == [0]
    assert normal[0, :, 3, 5].tolist() == [0, 0, 0]
    assert label[1, :, 0, 0].tolist() == [-1]
    for view in (depth, normal, label):
        assert bool(view.isfinite().all())


def test_what_is_missing_is_not_a_number_in_a_target() -> None:
    packed = whole_scenes(2)
    packed[0, WHERE["depth"], 3, 5] = math.nan
    packed[1, WHERE["label"], 0, 0] = -1
    _, depth, code = Channels(("L",), targets=("depth", "label")).read(packed)
    assert depth.isnan().nonzero().tolist() == [[0, 0, 3, 5]]
    assert code.isnan().nonzero().tolist() == [[1, channel, 0, 0] for channel in range(CODE)]


def test_a_class_is_predicted_as_a_unit_vector_orthogonal_to_those_of_the_others() -> None:
    packed = whole_scenes(1)
    _, code = Channels(("L",), targets=("label",)).read(packed)
    vectors = code[0].flatten(1).T
    classes = labels(packed)[0].flatten()
    is_same = classes[:, None] == classes
    torch.testing.assert_close(vectors @ vectors.T, is_same.float(), atol=1e-5, rtol=0)


def test_channels_are_those_of_the_items() -> None:
    assert Channels(("L",)).channels(3) == (1,)
    assert Augmented().channels(8) == (8,)  # all channels stacked, as one would a picture's


# Patches --------------------------------------------------------------------------------------------------------------


def test_a_patch_is_cut_from_all_channels_alike_and_keeps_what_was_stored() -> None:
    items = scenes(8)
    patches = SceneAugmentation("crop", 16).random(items, generator(3))
    for scene, patch in zip(items.float(), patches, strict=True):
        stored = patch.clone()
        stored[WHERE["rgb"]] = (stored[WHERE["rgb"]] * 255).round()
        windows = scene.unfold(1, 16, 1).unfold(2, 16, 1)  # [C, top, left, 16, 16]: every place a patch can have
        is_there = (windows == stored[:, None, None]).all(4).all(3).all(0)
        assert int(is_there.sum()) == 1


def test_a_patch_begins_at_every_place_equally_often() -> None:
    numbered = torch.arange(6 * 7).view(1, 1, 6, 7).expand(3000, 3, 6, 7)
    patches = SceneAugmentation("crop", 4).random(numbered, generator(3))
    corners = (patches[:, 0, 0, 0] * 255).round().long()
    places, frequencies = corners.unique(return_counts=True)
    assert places.tolist() == [7 * top + left for top in range(3) for left in range(4)]
    assert stats.chisquare(frequencies.numpy()).pvalue > 1e-3


def test_half_of_the_patches_are_mirror_images_whose_arrows_are_turned() -> None:
    items = scenes(100)
    upright = SceneAugmentation("crop", 16).random(items, generator(3))
    patches = SceneAugmentation("cmc", 16).random(items, generator(3))
    mirrored = upright.flip(3)
    mirrored[:, WHERE["normal"].start] *= -1
    mirrored[:, WHERE["flow"].start] *= -1
    is_turned = (patches != upright).flatten(1).any(1)
    assert 35 <= int(is_turned.sum()) <= 65
    assert torch.equal(patches[is_turned], mirrored[is_turned])


def test_patches_depend_on_the_generator_alone() -> None:
    items = scenes(8)
    mirror = SceneAugmentation("cmc", 16)
    assert torch.equal(mirror.random(items, generator(3)), mirror.random(items, generator(3)))


def test_depth_falls_towards_where_the_normal_does_not_point_in_mirror_images_too() -> None:
    curved_class = 3
    patch = torch.cat([CROPS.random(scenes(60), generator(seed)) for seed in (0, 1)])
    (depth,) = patch[:, WHERE["depth"]].unbind(1)
    step = depth[:, :, 2:] - depth[:, :, :-2]
    normal_to_the_right = patch[:, WHERE["normal"].start, :, 1:-1]
    is_curved = labels(patch)[:, :, 1:-1] == curved_class
    is_clear = is_curved & (step.abs() < 0.3) & (normal_to_the_right.abs() > 0.3)
    agrees = step[is_clear] * normal_to_the_right[is_clear] > 0
    assert len(agrees) > 600
    assert agrees.float().mean() > 0.9


def test_a_patch_larger_than_its_scene_is_refused() -> None:
    with pytest.raises(ArgumentError, match="size=64: .*40"):
        SceneAugmentation("cmc", 64).random(scenes(1))


# The loss of patches --------------------------------------------------------------------------------------------------


def patch_recipe(views: Channels) -> Recipe:
    parts = {"keys": keys.Locations(), "negatives": negatives.Every(), "positives": positives.Each()}
    return Recipe("x/patches", "patches", views, **parts, temperature=0.2)


def learner_of(recipe: Recipe, channels: int = 10) -> Learner:
    torch.manual_seed(1)
    made = encoders.build_for(recipe.views, channels, arch="scene", width=0.03125, dim=8)
    return Learner(recipe, SETTINGS, images=20, classes=3, seed=0, encoders=made)


def loss_of(learner: Learner, views: list[Tensor]) -> Any:
    return learner.loss(views, torch.arange(3), torch.arange(3), BatchRandom(torch.Generator()), 0, 1)


def patch_loss(networks: nn.ModuleList, views: list[Tensor], pair: tuple[int, int]) -> Tensor:
    """One query, one location after the other: global from the first stream, local from the second."""
    query, key = pair
    queries = F.normalize(networks[query].head(networks[query].stages(views[query])["conv5"]), dim=1)
    keys_of_items = places_of_items(networks[key].stages(views[key])["conv4"])
    losses = []
    for item, q in enumerate(queries):
        others = []
        for other, places in enumerate(keys_of_items):
            if other != item:
                others += [q @ place / 0.2 for place in places]
        for place in keys_of_items[item]:
            positive = q @ place / 0.2
            losses.append(torch.logsumexp(torch.stack([positive, *others]), 0) - positive)
    return torch.stack(losses).mean()


def places_of_items(maps: Tensor) -> list[list[Tensor]]:
    """The unit vectors at all places of each of the maps ``[B, C, h, w]``."""
    items = []
    for item in maps:
        _, height, width = item.shape
        places = []
        for row in range(height):
            for column in range(width):
                places.append(F.normalize(item[:, row, column], dim=0))
        items.append(places)
    return items


PARTS = {
    "one view": Channels(("L",)),
    "two": Channels(("L", "ab")),
    "core": Channels(FOUR),
    "full": Channels(FOUR, "full"),
    "labels": Channels(("L", "label")),
}


@pytest.mark.parametrize("name", PARTS)
def test_the_patch_loss_is_the_sum_over_pairs_and_locations(name: str) -> None:
    part = PARTS[name]
    learner = learner_of(patch_recipe(part))
    views = part.make(scenes(3), CROPS, generator(0))
    twin = copy.deepcopy(learner.network.encoders).double()
    wide_views = [view.double() for view in views]
    loss_of_pair = {pair: patch_loss(twin, wide_views, pair) for pair in part.pairs}

    loss = loss_of(learner, views).loss
    loss.backward()

    assert loss.item() == pytest.approx(sum(loss_of_pair.values()).item(), rel=1e-5)
    for stream, encoder in enumerate(learner.network.encoders):
        # an encoder hears of its own pairs only; of a core view, colour and depth never meet
        own_losses = [loss_of_pair[pair] for pair in part.pairs if stream in pair]
        gradients = torch.autograd.grad(sum(own_losses), [*twin[stream].parameters()], retain_graph=True)
        for parameter, expected in zip(encoder.parameters(), gradients, strict=True):
            within = 5e-3 * float(expected.abs().max())
            torch.testing.assert_close(parameter.grad.double(), expected, rtol=1e-3, atol=within)


def test_one_view_is_compared_with_itself() -> None:
    assert Channels(("L",)).pairs == ((0, 0),)


def test_the_core_graph_has_the_edges_of_the_first_view_in_both_directions() -> None:
    assert Channels(FOUR).pairs == ((0, 1), (0, 2), (0, 3), (1, 0), (2, 0), (3, 0))


def test_the_full_graph_has_every_edge_in_both_directions() -> None:
    assert Channels(("L", "ab", "depth"), "full").pairs == ((0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1))


def compare_with_map(block: str) -> None:
    recipe = replace(patch_recipe(Channels(("L",))), keys=keys.Locations(block))
    loss_of(learner_of(recipe), recipe.views.make(scenes(3), CROPS))


def test_a_map_with_other_channels_than_the_embedding_is_refused() -> None:
    with pytest.raises(ArgumentError, match="dim=8: expected 4, the channels of the map conv2"):
        compare_with_map("conv2")


def test_a_map_that_the_network_has_not_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="conv9"):
        compare_with_map("conv9")


# Prediction -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["depth", "normal", "label", "ab"])
def test_predicting_is_half_the_mean_squared_error_of_what_is_known(target: str) -> None:
    recipe = replace(methods.get("cmc/predict_depth"), views=Channels(("L",), targets=(target,)))
    learner = learner_of(recipe)
    items = scenes(3)
    items[0, WHERE["depth"], 10:30, 10:30] = math.nan
    items[0, WHERE["normal"], 10:30, 10:30] = math.nan
    items[1, WHERE["label"], 10:20] = -1
    luminance, wanted = recipe.views.make(items, CROPS, generator(0))
    twin = copy.deepcopy(learner.network).double()
    (decoder,) = twin.keys_module
    predicted = decoder(twin.encoders[0].stages(luminance.double()), (32, 32))
    is_known = ~wanted.isnan()
    squares = (predicted[is_known] - wanted.double()[is_known]) ** 2
    expected = squares.sum() / wanted.numel() / 2
    expected.backward()

    loss = loss_of(learner, [luminance, wanted]).loss
    loss.backward()

    assert bool(is_known.all()) is (target == "ab")
    assert loss.item() == pytest.approx(expected.item(), rel=1e-4)
    slow = dict(twin.named_parameters())
    for name, parameter in learner.network.named_parameters():
        if name.startswith("encoders") and ".head." in name:
            assert parameter.grad is None  # the fully connected layers take no part
        else:
            torch.testing.assert_close(parameter.grad.double(), slow[name].grad, rtol=1e-2, atol=1e-5)


@pytest.mark.parametrize("skips", [True, False])
def test_a_decoder_without_skips_reads_the_last_map_only(skips: bool) -> None:
    torch.manual_seed(0)
    encoder = encoders.build("scene", in_channels=1, width=0.03125, dim=8).eval()
    decoder = encoder.decoder(2, 4, skips=skips).eval()
    with torch.no_grad():
        maps = encoder.stages(torch.randn(2, 1, 32, 32))
        others_changed = {name: stage + 1 for name, stage in maps.items()}
        others_changed["conv5"] = maps["conv5"]
        is_equal = torch.equal(decoder(maps, (32, 32)), decoder(others_changed, (32, 32)))
    assert is_equal is not skips


@pytest.mark.parametrize("skips", [True, False])
def test_a_decoder_gives_a_map_of_the_size_that_is_asked_for(skips: bool) -> None:
    encoder = encoders.build("scene", in_channels=1, width=0.03125, dim=8).eval()
    decoder = encoder.decoder(2, 4, skips=skips).eval()
    with torch.no_grad():
        maps = encoder.stages(torch.zeros(2, 1, 32, 32))
        assert decoder(maps, (33, 20)).shape == (2, 2, 33, 20)


# Runs -----------------------------------------------------------------------------------------------------------------

NAMES = [name for name in methods.names("cmc") if "scenes" not in name]
OF_SCENES = [name for name in NAMES if isinstance(methods.get(name).views, Channels)]


@pytest.mark.parametrize("name", OF_SCENES)
def test_rows_train_with_adam_and_resume(name: str, tmp_path) -> None:
    recipe = methods.get(name)
    done = pretrain(recipe, SETTINGS, rooms_of(), seed=1, folder=tmp_path, log=quiet)
    (row,) = done.history
    assert math.isfinite(row["loss"])
    assert "mi_bound" not in row
    again = pretrain(recipe, SETTINGS, rooms_of(), seed=1, folder=tmp_path, log=quiet)
    assert again.history == done.history
    start = untrained(recipe, SETTINGS, rooms_of())
    for trained, untouched in zip(done.encoders, start, strict=True):
        for ours, theirs in zip(trained.backbone.parameters(), untouched.backbone.parameters(), strict=True):
            assert not torch.equal(ours, theirs)


def untrained(recipe: Recipe, settings: Settings, items: SceneSet) -> nn.ModuleList:
    """The encoders that a run of a recipe begins with."""
    start = replace(methods.get("cmc/scenes_random"), views=recipe.views.single())
    return pretrain(start, settings, items, seed=1).encoders


def test_adam_is_that_of_torch() -> None:
    recipe = methods.get("cmc/views_1")
    items = rooms_of(8)
    settings = SETTINGS.override(optimiser={"betas": (0.5, 0.9)}, weight_decay=0.0)
    done = pretrain(recipe, settings, items, seed=1, log=quiet)

    start = pretrain(replace(recipe, keys=None), settings, items, seed=1).encoders.train()
    learner = Learner(recipe, settings, images=8, classes=3, seed=1, encoders=start)
    optimiser = torch.optim.Adam(learner.network.parameters(), lr=1e-3, betas=(0.5, 0.9))
    order = torch.randperm(8, generator=seeds.generator(1, "order", 0))
    for step in range(2):
        batch = items.items[order[4 * step : 4 * step + 4]]
        views = recipe.views.make(batch, CROPS, seeds.generator(1, "views/0", step))
        draws = BatchRandom(torch.Generator())
        loss = learner.loss(views, torch.arange(4), torch.arange(4), draws, step, 2).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()

    for ours, theirs in zip(done.encoders.parameters(), learner.network.encoders.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
