"""CMC on videos: views of a clip, one network for two frames, CaffeNet, negatives of other videos, actions."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contrastlab import data, encoders, keys, methods, papers, tables, tasks
from contrastlab.data import Splits
from contrastlab.domains.clips import task as action
from contrastlab.domains.clips.augmentation import clip_augmentation
from contrastlab.domains.clips.data import ClipSet
from contrastlab.domains.clips.views import Flow, Frames
from contrastlab.encoders import Shared, build
from contrastlab.negatives import BatchRandom
from contrastlab.pictures import fitting
from contrastlab.pictures.domain import modality
from contrastlab.pictures.networks import CaffeNet
from contrastlab.settings import ActionRecognition, Settings
from contrastlab.support import files
from contrastlab.support.errors import ArgumentError, NotApplicableError
from contrastlab.train import pretrain
from contrastlab.train.learner import Learner
from contrastlab.views import Augmented
from made_runs import equal, generator, quiet, refused, resumed, unchanged

SETTINGS = Settings(
    image_size=32, augmentation="cmc", arch="caffenet", stem="cifar", width=0.03, dim=16, epochs=2, batch_size=16,
    milestones=(), knn_every=0,
)  # fmt: skip
SMALL = {"views.stack": 4, "views.k": 3}
KINDS = {"V": Frames(3), "D": Flow(4), "V+D": Flow(4, 3)}


def clips(count: int = 48, seed: int = 0) -> ClipSet:
    """Random frames; the flow of frame t is t everywhere, and the red of frame t is ten t."""
    pixels = torch.randint(0, 256, (count, 12, 5, 32, 32), generator=generator(seed)).to(torch.uint8)
    times = torch.arange(12, dtype=torch.uint8)[None, :, None, None]
    pixels[:, :, 0] = 10 * times
    pixels[:, :, 3], pixels[:, :, 4] = 128 + times, 128 - times
    return ClipSet(f"made/{seed}", pixels, torch.arange(count) % 3, ("a", "b", "c"), 4.0)


@pytest.mark.parametrize("kind", KINDS)
def test_views_state_streams_pairs_and_channels(kind) -> None:
    part, streams = KINDS[kind], {"V": 2, "D": 2, "V+D": 3}[kind]
    assert len(part.streams) == streams == len(part.channels(3))
    assert set(part.pairs) == {pair for k in range(1, streams) for pair in ((0, k), (k, 0))}
    assert part.channels(3) == {"V": (3, 3), "D": (3, 8), "V+D": (3, 3, 8)}[kind]
    made = part.make(clips(6).items, clip_augmentation(SETTINGS), generator(0))
    plain = part.plain(clips(6).items, clip_augmentation(SETTINGS))
    assert [tuple(v.shape[1:]) for v in made] == [tuple(v.shape[1:]) for v in plain]
    assert [v.shape[1] for v in made] == list(part.channels(3))
    again = part.make(clips(6).items, clip_augmentation(SETTINGS), generator(0))
    assert all(torch.equal(a, b) for a, b in zip(made, again, strict=True))


class Watch:
    """An augmentation that gives the numbers of the frames it is asked for."""

    def draw(self, batch: Tensor, rng: torch.Generator | None = None) -> str:
        return "the draws of one view"

    def frame(self, batch: Tensor, at: Tensor, draws: str) -> Tensor:
        assert draws == "the draws of one view"
        return at

    def flow(self, batch: Tensor, at: Tensor, stack: int, draws: str) -> Tensor:
        assert draws == "the draws of one view"
        return torch.stack([at - stack // 2, at + stack - stack // 2 - 1], 1)

    def normalise(self, view: Tensor) -> Tensor:
        return view


@pytest.mark.parametrize(("stack", "k"), [(4, 3), (4, 6), (1, 1), (3, 2), (10, 1)])
def test_all_frames_and_flows_of_a_view_are_inside_the_clip_and_every_time_occurs(stack, k) -> None:
    batch = torch.zeros(3000, 12, 5, 1, 1, dtype=torch.uint8)
    first, later = Frames(k).make(batch, Watch(), generator(0))
    assert set(first.tolist()) == set(range(12 - k))
    assert torch.equal(later, first + k)
    now, later, span = Flow(stack, k).make(batch, Watch(), generator(0))
    assert torch.equal(later, now + k)
    assert later.max() <= 11
    assert span.min() == 0
    assert span.max() <= 10  # the last frame has no flow
    assert now.max() == min(11 - k, 11 - (stack - stack // 2))
    assert set(now.tolist()) == set(range(int(now.min()), int(now.max()) + 1))


def test_other_views_see_frames_and_items_that_are_no_clips_are_refused() -> None:
    views = Augmented(2).make(clips(4).items, clip_augmentation(SETTINGS), generator(0))
    assert [v.shape for v in views] == [(4, 3, 32, 32)] * 2
    seen, short = clip_augmentation(SETTINGS), torch.zeros(2, 10, 5, 8, 8, dtype=torch.uint8)
    picture = torch.zeros(2, 3, 8, 8, dtype=torch.uint8)
    grey = nn.ModuleList([build("tiny", in_channels=1, stem="cifar")])
    refused(
        (lambda: Flow(10).make(short, seen, generator(0)), ArgumentError, "1 frames more are wanted"),
        (lambda: Frames(10).make(short, seen, generator(0)), ArgumentError, "1 frames more are wanted"),
        (lambda: Frames(1).make(picture, seen), NotApplicableError, "is of clips; given: items of shape"),
        (lambda: Flow(2).channels(1), NotApplicableError, "3 channels; given: 1"),
        (lambda: tasks.Action(HOW).score(grey, evaluation(splits())), NotApplicableError, "reads colour frames"),
    )  # fmt: skip


# Networks

# conv1 to conv5, fc6: output channels, kernel, stride, padding, groups (Caffe's bvlc_reference_caffenet)
CAFFENET = [
    (96, 11, 4, 0, 1), (256, 5, 1, 2, 2), (384, 3, 1, 1, 1), (384, 3, 1, 1, 2), (256, 3, 1, 1, 2), (4096, 6, 1, 0, 1),
]  # fmt: skip


@pytest.mark.parametrize("channels", [3, 20])
def test_caffenet_has_the_published_layers(channels) -> None:
    network = CaffeNet(channels, "imagenet", 1.0)
    layers = [m for m in network.modules() if isinstance(m, nn.Conv2d)]
    found = [(m.out_channels, m.kernel_size[0], m.stride[0], m.padding[0], m.groups) for m in layers]
    assert found == CAFFENET
    assert layers[0].in_channels == channels
    pools = [m for m in network.modules() if isinstance(m, nn.MaxPool2d)]
    assert [(m.kernel_size, m.stride, m.ceil_mode) for m in pools] == [(3, 2, True)] * 3
    assert [m.p for m in network.modules() if isinstance(m, nn.Dropout)] == [0.5]
    narrow = CaffeNet(channels, "cifar", 0.25)
    widths = [m.out_channels for m in narrow.modules() if isinstance(m, nn.Conv2d)]
    assert widths == [24, 64, 96, 96, 64, 1024]


def test_caffenets_maps_have_the_published_sides() -> None:
    network = CaffeNet(3, "imagenet", 0.05).eval()
    for side, conv1 in ((227, 55), (224, 54)):
        sides, x = [], torch.zeros(1, 3, side, side)
        for layer in network.convolutions:
            x = layer(x)
            if isinstance(layer, nn.Conv2d | nn.MaxPool2d):
                sides.append(x.shape[-1])
        assert sides == [conv1, 27, 27, 13, 13, 13, 13, 6]
        assert network.fc6(x).shape[2:] == (1, 1)
    small = CaffeNet(3, "cifar", 0.05).eval()
    assert small.convolutions(torch.zeros(1, 3, 32, 32)).shape[2:] == (4, 4)
    assert small(torch.zeros(1, 3, 32, 32)).shape[2:] == (1, 1)


def test_two_frames_are_seen_by_one_network_that_is_stored_once(tmp_path) -> None:
    source = clips(8)
    nets = modality(source).encoders(KINDS["V+D"], source, SETTINGS).eval()
    frame, later, flow = nets
    assert isinstance(later, Shared)
    assert later.encoder is frame
    x = torch.rand(2, 3, 32, 32, generator=generator(0))
    assert torch.equal(later.features(x), frame.features(x))
    assert {id(p) for p in nets.parameters()} == {id(p) for p in (*frame.parameters(), *flow.parameters())}
    assert not any(name.startswith("1.") for name in nets.state_dict())
    slow = copy.deepcopy(nets)
    assert slow[1].encoder is slow[0] is not frame
    path = encoders.save(nets, tmp_path, KINDS["V+D"].streams, modality(source).build(SETTINGS))
    assert not any(name.startswith("later") for name in files.read_tensors(path)[0])
    loaded = encoders.load(tmp_path)
    assert loaded[1].encoder is loaded[0]
    assert torch.equal(loaded[1](x), frame(x))
    apart = modality(source).encoders(Frames(3, shared=False), source, SETTINGS)
    assert not isinstance(apart[1], Shared)
    encoders.save(apart, tmp_path / "apart", Frames(3, shared=False).streams, modality(source).build(SETTINGS))
    assert equal(apart, encoders.load(tmp_path / "apart"))


def learner(kind: str) -> Learner:
    recipe = methods.get({"V": "cmc/video_v", "D": "cmc/video_d", "V+D": "cmc/video_vd"}[kind]).override(SMALL)
    source = clips()
    torch.manual_seed(0)
    nets = modality(source).encoders(recipe.views, source, SETTINGS).eval()  # no dropout: a twin must see the same
    return Learner(recipe, SETTINGS, images=48, classes=3, seed=0, encoders=nets)


def nats(query: Tensor, key: Tensor) -> Tensor:
    """InfoNCE of each row of one view against the rows of another, by loops in float64."""
    q, k, losses = query.detach().double(), key.detach().double(), []
    for i in range(len(q)):
        scores = [float(q[i] @ k[j]) / 0.07 for j in range(len(k))]
        top = max(scores)
        losses.append(top + sum(torch.tensor(s - top, dtype=torch.float64).exp() for s in scores).log() - scores[i])
    return torch.stack(losses).mean()


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_is_the_sum_over_pairs_against_all_other_videos(kind) -> None:
    model = learner(kind).eval()
    batch = clips().items[:16]
    views = model.recipe.views.make(batch, clip_augmentation(SETTINGS), generator(1))
    rows = torch.arange(16)
    step = model.loss(views, rows, rows % 3, BatchRandom(generator(0)), 0, 10)
    assert step.terms == 16  # the positive and 15 negatives: 127 in a batch of 128
    embedded = [network(view) for network, view in zip(model.network.encoders, views, strict=True)]
    expected = sum(nats(embedded[q], embedded[k]) for q, k in model.recipe.views.pairs)
    assert step.loss.item() == pytest.approx(float(expected), rel=1e-5)
    step.loss.backward()  # flow reaches the encoder of frames through its pairs
    for network in model.network.encoders:
        assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in network.parameters())


@pytest.mark.parametrize("kind", KINDS)
def test_no_negative_is_of_the_same_video_and_127_are_of_others(kind) -> None:
    model = learner(kind)
    views = tuple(torch.zeros(128, 1) for _ in model.recipe.views.streams)

    def embed(*seen: Tensor) -> list[Tensor]:
        return [F.normalize(torch.rand(128, 16, generator=generator(k)), dim=1) for k in range(len(seen))]

    batch = keys.base.Batch(views, torch.arange(128), torch.zeros(128), generator(0))
    directions, _ = model.keys.ask(batch, embed, model.network)
    assert len(directions) == len(model.recipe.views.pairs)
    for direction in directions:
        candidates = model._candidates(direction.query, direction, torch.zeros(128), BatchRandom(generator(0)))
        chosen = model.recipe.negatives.select(candidates, BatchRandom(generator(0)), 0, 1)
        assert chosen.count(128) == 127
        assert torch.equal(chosen.columns[:, 0], torch.arange(128))  # the key of the query's own video


def test_a_run_with_dropout_resumes_to_the_same_bits(tmp_path) -> None:
    recipe, source = methods.get("cmc/video_vd").override(SMALL), clips()
    torch.manual_seed(1)
    whole = pretrain(recipe, SETTINGS, source, seed=3, log=quiet)

    def go_on():
        torch.manual_seed(2)  # no draw of the run comes from here
        return pretrain(recipe, SETTINGS, source, seed=3, folder=tmp_path, max_minutes=0, log=quiet)

    assert equal(whole.encoders, resumed(go_on)[0].encoders)


HOW = ActionRecognition(epochs=3, batch_size=8, lr=0.02, frames=4, dropout=0.3)


def splits(folds: int = 1) -> Splits:
    further = tuple((clips(24, seed=10 + k), clips(9, seed=20 + k)) for k in range(1, folds))
    return Splits("made", clips(24, 10), clips(24, 10), clips(9, 20), "", further)


def evaluation(parts: Splits, **options) -> tasks.Evaluation:
    return tasks.Evaluation(Frames(3), clip_augmentation(SETTINGS), parts, **options)


def frame_encoder(arch: str = "caffenet") -> nn.ModuleList:
    torch.manual_seed(0)
    return nn.ModuleList([build(arch, stem="cifar", dim=16, width=0.03 if arch == "caffenet" else 1.0)])


@pytest.mark.parametrize("arch", ["caffenet", "tiny"])
def test_fine_tuning_starts_from_the_convolutions_and_leaves_the_encoder_as_it_is(arch) -> None:
    nets = frame_encoder(arch)
    network = action.spatial_network(nets[0], 3, 0.5, seed=1)
    kept = nets[0].backbone.convolutions if arch == "caffenet" else nets[0].backbone
    assert all(torch.equal(a, b) for a, b in zip(network[0].parameters(), kept.parameters(), strict=True))
    if arch == "caffenet":
        new = [m.weight for m in network[1] if isinstance(m, nn.Conv2d)]
        assert not torch.equal(new[0], nets[0].backbone.fc6[0].weight)
        linear = [(m.in_features, m.out_features) for m in network.modules() if isinstance(m, nn.Linear)]
        assert linear == [(123, 123), (123, 3)]
        assert [m.p for m in network.modules() if isinstance(m, nn.Dropout)] == [0.5, 0.5]
    with unchanged(nets):
        tasks.Action(HOW).score(nets, evaluation(splits()))


def test_the_score_is_the_mean_probability_of_equally_spaced_frames(monkeypatch) -> None:
    nets, parts, fitted = frame_encoder(), splits(), []
    real = action.FineTuning.scores

    def keep(self, test):
        scores = real(self, test)
        fitted.append((self.network, scores))
        return scores

    monkeypatch.setattr(action.FineTuning, "scores", keep)
    measured = tasks.Action(HOW).score(nets, evaluation(parts))["action"]
    network, scores = fitted[0]
    seen, right = clip_augmentation(SETTINGS), []
    for clip, label, ours in zip(parts.test.items, parts.test.labels, scores, strict=True):
        total = torch.zeros(3)
        for t in (1, 4, 7, 10):  # the middles of four equal parts of twelve frames
            frame = clip[t, :3].float() / 255 - torch.tensor(seen.image.mean)[:, None, None]
            frame = frame / torch.tensor(seen.image.std)[:, None, None]
            with torch.no_grad():
                total += network(frame[None]).softmax(1)[0]
        assert torch.allclose(total / 4, ours, atol=1e-5)
        right.append(bool(total.argmax() == label))
    assert measured.correct.tolist() == right
    assert measured.value == pytest.approx(100 * sum(right) / 9)
    assert measured.items == 9


def test_ten_crops_are_four_corners_and_the_middle_mirrored_too() -> None:
    view = replace(clip_augmentation(SETTINGS).image, size=16, resize=24)
    tuned = object.__new__(action.FineTuning)
    tuned.how, tuned.evaluation = HOW.model_copy(update={"crops": 10}), evaluation(splits())
    tuned.evaluation = replace(tuned.evaluation, augmentation=replace(clip_augmentation(SETTINGS), image=view))
    frames = clips(2).items[:, 0, :3]
    ten = tuned._crops(frames)
    square = F.interpolate(frames.float(), size=(24, 24), mode="bilinear", antialias=True) / 255
    corners = [(0, 0), (0, 8), (8, 0), (8, 8), (4, 4)]
    for k, (top, left) in enumerate(corners):
        cut = square[:, :, top : top + 16, left : left + 16]
        assert torch.allclose(ten[2 * k : 2 * k + 2], cut, atol=1e-4)
        mirrored = [1, 0, 3, 2, 4].index(k)  # left corners of the mirrored frame are right corners of the frame
        assert torch.allclose(ten[10 + 2 * mirrored : 12 + 2 * mirrored], cut.flip(-1), atol=1e-4)


def test_a_fine_tuning_learns_from_labels_and_a_mean_is_over_splits() -> None:
    parts = splits(2)
    for part in (parts.train, parts.test, *parts.further[0]):
        part.items[:, :, :3] //= 4  # dark, and one colour an action
        for label in range(3):
            part.items[part.labels == label, :, label] += 120
    spoilt = parts.further[0][1]
    wrong = replace(spoilt, labels=(spoilt.labels + 1) % 3)
    parts = replace(parts, further=((parts.further[0][0], wrong),))
    how = HOW.model_copy(update={"epochs": 12})
    measured = tasks.Action(how, test_images=6).score(frame_encoder(), evaluation(parts))["action"]
    assert measured.correct.tolist() == [True] * 6 + [False] * 6
    assert measured.value == 50
    assert measured.items == 12
    assert measured.half_width == 0  # each split is sampled for itself: none of its clips differs from the others
    few = HOW.model_copy(update={"train_clips": 6})
    chosen = [
        action.FineTuning(few, frame_encoder()[0], clips(24, 10), evaluation(splits(), seed=seed)).train
        for seed in (0, 0, 1)
    ]
    assert [len(part) for part in chosen] == [6, 6, 6]
    assert chosen[0].labels.bincount().tolist() == [2, 2, 2]
    assert torch.equal(chosen[0].items, chosen[1].items)
    assert not torch.equal(chosen[0].items, chosen[2].items)
    correct = torch.tensor([True, True, True, False, True, False])
    assert action.mean_over_folds(correct, torch.tensor([0, 0, 0, 0, 1, 1])) == pytest.approx((75 + 50) / 2)
    assert action.mean_over_folds(correct[:2], torch.tensor([1, 1])) == 100


def test_a_fine_tuning_that_was_cut_off_goes_on_to_the_same_bits(tmp_path, monkeypatch) -> None:
    parts, task = splits(2), tasks.Action(HOW)
    whole = task.score(frame_encoder(), evaluation(parts, seed=5))["action"]
    assert torch.equal(whole.correct, task.score(frame_encoder(), evaluation(parts, seed=5))["action"].correct)
    monkeypatch.setattr(fitting, "SAVE_EVERY_S", -1.0)
    real, epochs, networks = action.FineTuning._epochs, [], []

    def one_epoch(self, first: int):
        epochs.append(first)
        networks.append(self.network)
        yield next(real(self, first))
        if first < 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(action.FineTuning, "_epochs", one_epoch)
    torch.manual_seed(99)
    pieces, _ = resumed(lambda: task.score(frame_encoder(), evaluation(parts, seed=5, folder=tmp_path))["action"])
    assert epochs == [0, 1, 2, 0, 1, 2]
    assert torch.equal(pieces.correct, whole.correct)
    assert pieces.half_width == whole.half_width
    # to the same bits: the last network of the first split, trained in one go
    alone = action.FineTuning(HOW, frame_encoder()[0], parts.train, evaluation(parts, seed=5))
    torch.manual_seed(7)  # no draw comes from here
    monkeypatch.setattr(action.FineTuning, "_epochs", real)
    alone.scores(parts.test.take(2))
    assert equal(networks[2], alone.network)


def test_the_table_is_the_papers_protocol() -> None:
    plan = papers.plan("cmc", 2)
    settings = plan.settings("ucf101", "video_vd", "paper")
    assert (settings.arch, settings.batch_size) == ("caffenet", 128)
    assert methods.get("cmc/video_vd").views == Flow(10, 5)
    assert (plan.published_value("ucf101", "video_vd"), plan.published_value("ucf101", "random")) == (59.1, 48.2)


def test_a_cell_of_clips_is_run_stored_and_found_again(tmp_path, monkeypatch) -> None:
    whole = splits()
    monkeypatch.setattr(data, "load", lambda name, root=None: whole)
    plan = papers.plan("cmc", 2)
    real = type(plan).settings
    small = {
        "epochs": 1, "batch_size": 8, "width": 0.03, "test_images": None, "overrides": SMALL,
        "action": {"epochs": 1, "train_clips": None, "batch_size": 8},
    }  # fmt: skip
    monkeypatch.setattr(type(plan), "settings", lambda *a, **k: real(*a, **k).override(**small))
    given = {"rows": "random,video_d", "profile": "smoke", "jobs": 1, "out_dir": tmp_path, "accelerator": "cpu"}
    lines: list[str] = []
    report = tables.table("cmc", 2, "clips", **given, read_also=(), log=lines.append)
    measured = {row.method: row.measured for row in report.rows if row.measured}
    assert {"ours/random", "cmc/video_d", "ours/supervised"} <= set(measured)
    assert "ours/random_lab" not in {row.method for row in report.rows}
    again = tables.table("cmc", 2, "clips", **given, read_also=(), log=lines.append)
    assert {row.method: row.measured for row in again.rows if row.measured} == measured
    assert sum("stored:" in line for line in lines) or "0 to run" in "".join(lines)
