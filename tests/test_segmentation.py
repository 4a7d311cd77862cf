"""Classes of pixels: counts and means by hand, a decoder that learns, an encoder that does not change."""

import math

import pytest
import torch
from torch import nn

from contrastbook.made import rooms
from contrastlab import encoders, tasks
from contrastlab.data import ImageSet, Splits
from contrastlab.domains.scenes.augmentation import FLIPS, SceneAugmentation
from contrastlab.domains.scenes.data import SceneSet
from contrastlab.domains.scenes.task import Segmenter, predict, segment
from contrastlab.domains.scenes.views import Channels
from contrastlab.pictures.augmentations import augmentation
from contrastlab.settings import SegmentationProbe, Settings
from contrastlab.support.errors import NotApplicableError
from made_runs import generator, unchanged

PROBE = SegmentationProbe(epochs=4, batch_size=8, width=4, lr=3e-3)


def part(name: str, first: int, count: int) -> SceneSet:
    items, kinds = rooms.render(torch.arange(first, first + count), height=40, width=48)
    return SceneSet(name, items, kinds, rooms.KINDS, rooms.CLASSES)


@pytest.fixture(scope="module")
def splits() -> Splits:
    train = part("train", 0, 24)
    return Splits("few", train, train, part("test", 500, 10), "few rooms")


def evaluation_of(splits: Splits, names=("L", "depth")) -> tasks.Evaluation:
    return tasks.Evaluation(Channels(names), SceneAugmentation("crop", 32), splits, seed=3)


def encoders_of(names=("L", "depth"), seed: int = 0) -> nn.ModuleList:
    torch.manual_seed(seed)
    return encoders.build_for(Channels(names), 8, arch="scene", width=0.0625, dim=16).eval()


def grid(*rows: str) -> torch.Tensor:
    """``"01-"``: classes, void as a dash; one picture of each row."""
    return torch.tensor([[[-1 if c == "-" else int(c) for c in row]] for row in rows])


def test_confusion_counts_pixels_by_truth_and_prediction() -> None:
    counts = tasks.confusion(grid("0012", "2220"), grid("0-11", "22-0"), 3)
    assert counts.tolist() == [
        [[1, 0, 0], [0, 1, 1], [0, 0, 0]],  # the second pixel is void
        [[1, 0, 0], [0, 0, 0], [0, 0, 2]],
    ]


HAND = {
    # prediction, truth, classes, mean IoU, pixel accuracy
    "perfect": ("0123", "0123", 4, 100.0, 100.0),
    "an absent class is left out": ("0011", "0011", 5, 100.0, 100.0),
    "half": ("0011", "0001", 2, 100 * (2 / 3 + 1 / 2) / 2, 75.0),
    "predicted only": ("0002", "0000", 3, 100 * (3 / 4 + 0) / 2, 75.0),
    "missed altogether": ("0000", "0001", 2, 100 * (3 / 4 + 0) / 2, 75.0),
    "void is nobody's": ("0110", "01--", 2, 100.0, 100.0),
    "a class that is predicted in void only": ("0001", "000-", 2, 100.0, 100.0),
    "all wrong": ("10", "01", 2, 0.0, 0.0),
}


@pytest.mark.parametrize("name", HAND)
def test_means_by_hand(name: str) -> None:
    predicted, truth, classes, iou, pixels = HAND[name]
    counts = tasks.confusion(grid(predicted), grid(truth), classes).sum(0)
    assert tasks.mean_iou(counts) == pytest.approx(iou)
    assert tasks.pixel_accuracy(counts) == pytest.approx(pixels)


def test_means_of_many_pictures_are_those_of_all_their_pixels() -> None:
    draws = generator()
    truth, predicted = (torch.randint(0, 4, (7, 5, 6), generator=draws) for _ in range(2))
    truth[truth == 3] = -1
    counts = tasks.confusion(predicted, truth, 4).sum(0)
    ious = []
    for c in range(4):  # the slow twin: sets of pixels
        told = enumerate(zip(predicted.flatten(), truth.flatten(), strict=True))
        mine = {i for i, (p, t) in told if t >= 0 and p == c}
        real = {i for i, t in enumerate(truth.flatten()) if t == c}
        if mine | real:
            ious.append(len(mine & real) / len(mine | real))
    assert tasks.mean_iou(counts) == pytest.approx(100 * sum(ious) / len(ious))


@pytest.mark.parametrize("view", ["L", "depth"])
def test_a_frozen_encoder_does_not_change_and_its_decoder_learns(view: str, splits: Splits) -> None:
    made = encoders_of()
    task = tasks.get(f"segmentation_{view}", Settings(segmentation=PROBE.model_dump()))
    with unchanged(made):
        measured = task.score(made, evaluation_of(splits))
    assert set(measured) == {f"miou_{view}", f"pixels_{view}"}
    short = segment(
        made[("L", "depth").index(view)], view, evaluation_of(splits), PROBE.model_copy(update={"epochs": 1})
    )
    predicted, truth = predict(short, view, evaluation_of(splits), splits.test)
    early = tasks.pixel_accuracy(tasks.confusion(predicted, truth, 5).sum(0))
    assert early < measured[f"pixels_{view}"].value
    assert all(m.items == 10 and m.half_width is not None and m.half_width > 0 for m in measured.values())
    again = task.score(made, evaluation_of(splits))
    assert {k: m.value for k, m in again.items()} == {k: m.value for k, m in measured.items()}


def test_end_to_end_trains_a_copy(splits: Splits) -> None:
    made = encoders_of()
    with unchanged(made):
        model = segment(made[0], "L", evaluation_of(splits), PROBE.model_copy(update={"end_to_end": True, "epochs": 1}))
    pairs = zip(model.encoder.backbone.parameters(), made[0].backbone.parameters(), strict=True)
    assert not any(torch.equal(a, b) for a, b in pairs)
    frozen = segment(made[0], "L", evaluation_of(splits), PROBE.model_copy(update={"epochs": 1}))
    assert frozen.encoder is made[0]


def test_only_the_view_is_read_and_the_test_part_never_fitted(splits: Splits) -> None:
    """Depth alone: other channels may be anything."""
    made, evaluation = encoders_of(), evaluation_of(splits)
    model = segment(made[1], "depth", evaluation, PROBE.model_copy(update={"epochs": 1}))
    predicted, truth = predict(model, "depth", evaluation, splits.test)
    test = splits.test
    items = test.items.clone()
    items[:, :3] = 7
    items[:, 5:8] = 0
    other = SceneSet("other", items, test.labels, test.classes, test.pixel_classes)
    assert all(map(torch.equal, predict(model, "depth", evaluation, other), (predicted, truth)))
    assert truth.shape == (10, 40, 48)
    void = test.items.clone()
    void[:, 3] = -1
    blind = Splits("blind", splits.train, splits.train,
                   SceneSet("t", void, test.labels, test.classes, test.pixel_classes), "")  # fmt: skip
    one, two = (
        segment(made[0], "L", evaluation_of(s), PROBE.model_copy(update={"epochs": 1})) for s in (splits, blind)
    )
    for a, b in zip(one.decoder.parameters(), two.decoder.parameters(), strict=True):
        assert torch.equal(a, b)


def test_skips_reach_every_map_and_names_say_what_they_are() -> None:
    made = encoders_of()
    model = Segmenter(made[0], 5, 4).eval()
    maps = {name: m.detach().requires_grad_() for name, m in made[0].stages(torch.randn(1, 1, 32, 32)).items()}
    model.decoder(maps, (32, 32)).sum().backward()
    assert all(m.grad is not None and bool(m.grad.any()) for m in maps.values())
    for view in ("L", "ab", "depth", "normal"):
        metric = tasks.metric(f"miou_{view}")
        assert (metric.unit, metric.error, metric.items) == ("percent", "bootstrap", "test scenes")
        assert tasks.task_of(f"pixels_{view}") == f"segmentation_{view}"
    for name, flip in FLIPS.items():
        assert augmentation(name, 32).flip == flip


def test_what_does_not_fit_says_why(splits: Splits) -> None:
    made = encoders_of(("L",))
    with pytest.raises(NotApplicableError, match="no encoder of 'ab'"):
        tasks.get("segmentation_ab", Settings()).score(made, evaluation_of(splits, ("L",)))
    torch.manual_seed(0)
    tiny = encoders.build_for(Channels(("L",)), 8, arch="tiny", dim=16)
    with pytest.raises(NotApplicableError, match="names no blocks"):
        tasks.get("segmentation_L", Settings(segmentation=PROBE.model_dump())).score(
            tiny, evaluation_of(splits, ("L",))
        )


def test_luminance_is_classified_on_pictures_and_on_scenes(pictures, splits: Splits) -> None:
    made = encoders_of()
    settings = Settings(linear={"solver": "lbfgs", "features": "pooled"})
    task = tasks.get("one_view", settings)
    train = pictures(64)
    parts = Splits("pictures", train, train, pictures(32, seed=1), "")
    images = tasks.Evaluation(Channels(("L", "depth")), augmentation("cmc", 32), parts, seed=3)
    on_pictures = task.score(made, images)["linear_L"]
    assert on_pictures.items == 32
    direct = tasks.Linear(settings.linear).score(
        nn.ModuleList([made[0]]), tasks.Evaluation(Channels(("L",)), images.augmentation, images.data, seed=3)
    )
    assert direct["linear"].value == on_pictures.value
    assert task.score(made, evaluation_of(splits))["linear_L"].items == 10
    grey = Splits("grey", pictures(16, 1), pictures(16, 1), pictures(16, 1, seed=2), "")
    with pytest.raises(NotApplicableError, match="grey"):
        task.score(made, tasks.Evaluation(Channels(("L",)), images.augmentation, grey, seed=3))


def test_the_reference_with_labels_trains_a_copy_and_learns() -> None:
    """Bright and dark pictures: a random encoder's classifier is not needed to tell them apart."""
    labels = torch.arange(60) % 2
    dark = torch.randint(0, 90, (60, 3, 32, 32), generator=generator())
    bright = dark + 120 * labels[:, None, None, None]
    images = ImageSet("bright", bright.to(torch.uint8), labels, ("dark", "bright"))
    made = encoders_of(("L",))
    training = {"end_to_end": True, "epochs": 8, "batch_size": 16, "lr": 3e-3}
    task = tasks.get("one_view", Settings(segmentation=training))
    evaluation = tasks.Evaluation(
        Channels(("L",)), augmentation("cmc", 32), Splits("b", images, images, images, ""), seed=0
    )
    with unchanged(made):
        assert task.score(made, evaluation)["linear_L"].value == 100
    assert task.identity() != tasks.get("one_view", Settings()).identity()
    # what only a decoder reads decides nothing here
    assert tasks.get("one_view", Settings(segmentation={"epochs": 9})).identity() == {}
    assert math.isfinite(task.score(made, evaluation)["linear_L"].value)
