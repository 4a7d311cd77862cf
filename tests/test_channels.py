"""Channels of a scene: what each view is, which pairs are compared, patches and predictions against their loops."""

import copy
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
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
from made_runs import generator, quiet, refused

FOUR = ("L", "ab", "depth", "normal")
SETTINGS = Settings(
    arch="scene", width=0.03125, dim=8, image_size=32, augmentation="cmc", batch_size=4, epochs=1, milestones=(),
    optimiser={"name": "adam"}, lr=1e-3, knn_every=0,
)  # fmt: skip


CROPS = SceneAugmentation("cmc", 32)


def scenes(count: int = 8, first: int = 0) -> Tensor:
    still, _ = rooms.render(torch.arange(first, first + count), height=40, width=48)
    return torch.cat([still, torch.randn(count, 2, 40, 48, generator=generator()).to(still)], 1)


def rooms_of(count: int = 8) -> SceneSet:
    items, kinds = rooms.render(torch.arange(count), height=40, width=48)
    return SceneSet("few", items, kinds, rooms.KINDS, rooms.CLASSES)


def test_each_view_is_its_channel() -> None:
    packed = SceneAugmentation("none", 32).plain(scenes())
    views = Channels((*FOUR, "label"), "full").read(packed)
    assert [view.shape[1] for view in views] == [1, 2, 1, 3, 1]  # Table 12's star
    torch.testing.assert_close(views[:2], Split().plain(packed[:, :3], AS_THEY_ARE))
    for metres, value in ((0.7, -1), (10.0, 1)):
        pixel = packed[:1, :, :1, :1].clone().index_fill_(1, torch.tensor(4), metres)
        assert Channels(("depth",)).read(pixel)[0].item() == pytest.approx(value, abs=1e-5)
    assert torch.equal(views[3], packed[:, 5:8])
    codes = {int(c): float(views[4][labels(packed)[:, None] == c].unique()) for c in labels(packed).unique()}
    assert len(codes) == 5
    assert min(abs(a - b) for i, a in codes.items() for j, b in codes.items() if i != j) > 0.2


def test_what_is_missing_is_zero_for_an_encoder_and_not_asked_of_a_decoder() -> None:
    packed = SceneAugmentation("none", 32).plain(scenes(2))
    packed[0, 4:8, 3, 5] = math.nan
    packed[1, 3, 0, 0] = -1
    depth, normal, label = Channels(("depth", "normal", "label"), targets=()).read(packed)
    assert depth[0, 0, 3, 5] == 0
    assert bool((normal[0, :, 3, 5] == 0).all())
    assert label[1, 0, 0, 0] == -1
    assert all(bool(view.isfinite().all()) for view in (depth, normal, label))
    *_, depth, code = Channels(("L",), targets=("depth", "label")).read(packed)
    assert depth.isnan().nonzero().tolist() == [[0, 0, 3, 5]]
    assert code.isnan().nonzero().tolist() == [[1, channel, 0, 0] for channel in range(CODE)]
    known = code[0].flatten(1).T
    products = known @ known.T  # classes are orthogonal unit vectors
    same = labels(packed)[0].flatten()
    torch.testing.assert_close(products, (same[:, None] == same).float(), atol=1e-5, rtol=0)


def test_a_patch_is_cut_from_all_channels_alike_and_its_mirror_image_turns_arrows() -> None:
    items = scenes(30)
    assert items.shape[1] == sum(LAYOUT.values())
    plain, mirror = SceneAugmentation("crop", 16), SceneAugmentation("cmc", 16)
    where = slices(10)
    crops = plain.random(items, generator(3))
    for scene, crop in zip(items.float(), crops, strict=True):
        windows = scene.unfold(1, 16, 1).unfold(2, 16, 1)  # every place a patch can have
        right = (windows == crop[:, None, None])[4:].flatten(3).all(3).all(0)  # exactly as it was stored
        assert int(right.sum()) == 1
        top, left = right.nonzero()[0].tolist()
        assert torch.equal(scene[:3, top : top + 16, left : left + 16], (crop[:3] * 255).round())
    flipped = mirror.random(items, generator(3))
    turned = [(crop.flip(2), other) for crop, other in zip(crops, flipped, strict=True) if not torch.equal(crop, other)]
    assert 5 <= len(turned) <= 25
    for arrows, other in turned:
        arrows[[where["normal"].start, where["flow"].start]] *= -1
        assert torch.equal(arrows, other)
    assert torch.equal(mirror.random(items, generator(3)), flipped)
    """Depth falls towards where the normal does not point, in a patch and in its mirror image alike."""
    items = scenes(60)
    for seed in (0, 1):
        patch = SceneAugmentation("cmc", 32).random(items, generator(seed))
        step = patch[:, 4, :, 2:] - patch[:, 4, :, :-2]
        right, curved = patch[:, 5, :, 1:-1], patch[:, 3, :, 1:-1] == 3
        clear = curved & (step.abs() < 0.3) & (right.abs() > 0.3)
        assert int(clear.sum()) > 300
        assert float((step[clear] * right[clear] > 0).float().mean()) > 0.9


def test_a_patch_larger_than_its_scene_is_refused_and_channels_are_those_of_the_items() -> None:
    with pytest.raises(ArgumentError, match="size=64: .*40"):
        SceneAugmentation("cmc", 64).random(scenes(1))
    assert Channels(("L",)).channels(3) == (1,)
    assert Augmented().channels(8) == (8,)  # all channels stacked, as one would a picture's


def patch_recipe(views: Channels, **parts: Any) -> Recipe:
    chosen = keys.Locations(), negatives.Every(), positives.Each()
    return Recipe("x/patches", "patches", views, *chosen, temperature=0.2, **parts)


def learner_of(recipe: Recipe, channels: int = 10) -> Learner:
    torch.manual_seed(1)
    made = encoders.build_for(recipe.views, channels, arch="scene", width=0.03125, dim=8)
    return Learner(recipe, SETTINGS, images=20, classes=3, seed=0, encoders=made)


def loss_of(learner: Learner, views: list[Tensor]) -> Any:
    return learner.loss(views, torch.arange(3), torch.arange(3), BatchRandom(torch.Generator()), 0, 1)


def patch_loss(networks: nn.ModuleList, views: list[Tensor], pair: tuple[int, int]) -> Tensor:
    """One query, one location after the other: global from the first stream, local from the second."""
    query, key = pair
    asked = F.normalize(networks[query].head(networks[query].stages(views[query])["conv5"]), dim=1)
    seen = networks[key].stages(views[key])["conv4"]
    places = [F.normalize(seen[b, :, i, j], dim=0) for b in range(len(seen)) for i in range(seen.shape[2])
              for j in range(seen.shape[3])]  # fmt: skip
    each, losses = seen.shape[2] * seen.shape[3], []
    for b, q in enumerate(asked):
        others = [q @ place / 0.2 for n, place in enumerate(places) if n // each != b]
        for place in places[b * each : (b + 1) * each]:
            scores = torch.stack([q @ place / 0.2, *others])
            losses.append(torch.logsumexp(scores, 0) - scores[0])
    return torch.stack(losses).mean()


PARTS = {
    "one view": Channels(("L",)), "two": Channels(("L", "ab")), "core": Channels(FOUR), "full": Channels(FOUR, "full"),
    "labels": Channels(("L", "label")),
}  # fmt: skip


@pytest.mark.parametrize("name", PARTS)
def test_the_patch_loss_is_the_sum_over_pairs_and_locations(name: str) -> None:
    part = PARTS[name]
    count = len(part.names)
    assert len(part.pairs) == {"one view": 1, "full": 12}.get(name, 2 * (count - 1))
    state = learner_of(patch_recipe(part))
    views = part.make(scenes(3), CROPS, generator(0))
    twin = copy.deepcopy(state.network.encoders).double()
    wide = [view.double() for view in views]
    each = {pair: patch_loss(twin, wide, pair) for pair in part.pairs}
    done = loss_of(state, views)
    assert done.loss.item() == pytest.approx(sum(each.values()).item(), rel=1e-5)
    done.loss.backward()
    for stream in range(count):  # an encoder hears of its own pairs only; of a core view, colour and depth never meet
        mine = [loss for pair, loss in each.items() if stream in pair]
        slow = torch.autograd.grad(sum(mine), list(twin[stream].parameters()), retain_graph=True)
        for got, wanted in zip(state.network.encoders[stream].parameters(), slow, strict=True):
            within = 5e-3 * float(wanted.abs().max())
            torch.testing.assert_close(got.grad.double(), wanted, rtol=1e-3, atol=within)


def test_the_full_graph_counts_every_edge_in_both_directions() -> None:
    assert Channels(FOUR, "full").pairs == tuple((i, j) for i in range(4) for j in range(4) if i != j)
    assert Channels(FOUR).pairs == ((0, 1), (0, 2), (0, 3), (1, 0), (2, 0), (3, 0))
    assert Channels(("L",)).pairs == ((0, 0),)


def test_a_map_with_other_channels_than_the_embedding_is_refused() -> None:
    recipe = patch_recipe(Channels(("L",)))

    def lose(block: str) -> None:
        loss_of(learner_of(replace(recipe, keys=keys.Locations(block))), recipe.views.make(scenes(3), CROPS))

    refused(
        (lambda: lose("conv2"), ArgumentError, "dim=8: expected 4, the channels of the map conv2"),
        (lambda: lose("conv9"), UnknownNameError, "conv9"),
    )


@pytest.mark.parametrize("target", ["depth", "normal", "label", "ab"])
def test_predicting_is_half_the_mean_squared_error(target: str) -> None:
    recipe = replace(methods.get("cmc/predict_depth"), views=Channels(("L",), targets=(target,)))
    state = learner_of(recipe)
    items = scenes(3)
    items[0, 4:8, 10:30, 10:30] = math.nan
    items[1, 3, 10:20] = -1
    views = recipe.views.make(items, CROPS, generator(0))
    assert len(views) == 2
    twin = copy.deepcopy(state.network).double()
    maps = twin.encoders[0].stages(views[0].double())
    guess = twin.keys_module[0]({name: maps[name] for name in maps}, (32, 32))
    wanted = views[1].double()
    known = ~wanted.isnan()
    expected = ((guess[known] - wanted[known]) ** 2).sum() / wanted.numel() / 2
    done = loss_of(state, views)
    assert done.loss.item() == pytest.approx(expected.item(), rel=1e-4)
    done.loss.backward()
    expected.backward()
    for (name, got), wanted in zip(state.network.named_parameters(), twin.parameters(), strict=True):
        if ".head." in name and name.startswith("encoders"):
            assert got.grad is None  # the fully connected layers take no part
        else:
            torch.testing.assert_close(got.grad.double(), wanted.grad, rtol=1e-2, atol=1e-5)


def test_a_decoder_without_skips_reads_the_last_map_only() -> None:
    encoder = encoders.build("scene", in_channels=1, width=0.03125, dim=8).eval()
    with torch.no_grad():
        maps = encoder.stages(torch.randn(2, 1, 32, 32))
        changed = {name: m + (name != "conv5") for name, m in maps.items()}
        for skips in (True, False):
            decoder = encoder.decoder(2, 4, skips=skips).eval()
            assert torch.equal(decoder(maps, (32, 32)), decoder(changed, (32, 32))) is not skips
            assert decoder(maps, (33, 20)).shape == (2, 2, 33, 20)


OF_SCENES = [n for n in methods.names("cmc") if "scenes" not in n and isinstance(methods.get(n).views, Channels)]


@pytest.mark.parametrize("name", OF_SCENES)
def test_rows_train_with_adam_and_resume(name: str, tmp_path) -> None:
    recipe = methods.get(name)
    done = pretrain(recipe, SETTINGS, rooms_of(), seed=1, folder=tmp_path, log=quiet)
    assert math.isfinite(done.history[-1]["loss"])
    assert "mi_bound" not in done.history[-1]
    assert pretrain(recipe, SETTINGS, rooms_of(), seed=1, folder=tmp_path, log=quiet).history == done.history
    torch.manual_seed(0)
    untrained = replace(methods.get("cmc/scenes_random"), views=recipe.views.single())
    start = pretrain(untrained, SETTINGS, rooms_of(), seed=1)
    for stream in range(len(recipe.views.names)):
        ours, theirs = (made.encoders[stream].backbone.parameters() for made in (done, start))
        assert not any(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_adam_is_that_of_torch() -> None:
    recipe, items = methods.get("cmc/views_1"), rooms_of(8)
    settings = SETTINGS.override(optimiser={"betas": (0.5, 0.9)}, weight_decay=0.0)
    done = pretrain(recipe, settings, items, seed=1, log=quiet)
    slow = pretrain(replace(recipe, keys=None), settings, items, seed=1)
    state = Learner(recipe, settings, images=8, classes=3, seed=1, encoders=slow.encoders.train())
    optimiser = torch.optim.Adam(state.network.parameters(), lr=1e-3, betas=(0.5, 0.9))
    order = torch.arange(8)[torch.randperm(8, generator=seeds.generator(1, "order", 0))]
    for step in range(2):
        batch = items.items[order[4 * step : 4 * step + 4]]
        views = recipe.views.make(batch, CROPS, seeds.generator(1, "views/0", step))
        loss = state.loss(views, torch.arange(4), torch.arange(4), BatchRandom(torch.Generator()), step, 2).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    for mine, wanted in zip(done.encoders.parameters(), state.network.encoders.parameters(), strict=True):
        torch.testing.assert_close(mine, wanted, rtol=1e-4, atol=1e-6)
