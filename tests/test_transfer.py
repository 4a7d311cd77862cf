"""The transfer task against a slow twin, and ring Table 3, which shares its encoders with Table 1."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.linear_model import LogisticRegression
from torch import nn

from contrastlab import data, papers, tables, tasks
from contrastlab.data import ImageSet, Splits, StreamedImages
from contrastlab.pictures.augmentations import augmentation
from contrastlab.pictures.linear import adapt, channel_statistics
from contrastlab.settings import LinearProbe, TransferView
from contrastlab.support.errors import NotApplicableError
from contrastlab.tables import rows as report_rows
from contrastlab.views import Augmented, Split
from made_runs import LOCAL, generator, unchanged
from test_probes import networks

VIEW = augmentation("instdisc", 16)
TWO_VIEWS = Augmented(2)
PROBE = LinearProbe(solver="lbfgs", features="pooled", l2=0.01)
PLAN = papers.plan("ring", 3)


def images(count: int, seed: int, channels: int = 3, side: int = 16) -> ImageSet:
    """Dim pictures of three classes, which differ a little in their left half, under much noise."""
    labels = torch.arange(count) % 3
    noise = torch.randint(0, 50, (count, channels, side, side), generator=generator(seed))
    signal = 4 * labels[:, None, None, None] * (torch.arange(side) < side // 2)
    tint = 30 * torch.arange(channels)[None, :, None, None]
    return ImageSet(f"dim/{seed}", (noise + signal + tint).to(torch.uint8), labels, ("a", "b", "c"))


def splits(channels: int = 3, side: int = 16) -> Splits:
    train, test = images(120, 0, channels, side), images(90, 1, channels, side)
    return Splits("dim", train, train, test, "")


def evaluation(data_: Splits, part: Augmented | Split = TWO_VIEWS, **options) -> tasks.Evaluation:
    return tasks.Evaluation(part, VIEW, data_, **options)


def twin(nets: nn.ModuleList, target: Splits) -> list[bool]:
    """Scores from scikit-learn, of features of images that numpy normalised one pixel after the other."""
    pixels = target.train.images.double().numpy() / 255
    mean = [float(pixels[:, min(c, pixels.shape[1] - 1)].mean()) for c in range(3)]
    std = [float(pixels[:, min(c, pixels.shape[1] - 1)].std()) for c in range(3)]

    def features(part: ImageSet) -> np.ndarray:
        rows = []
        for image in part.images.numpy().astype(np.float64) / 255:
            colours = [(image[min(c, len(image) - 1)] - mean[c]) / std[c] for c in range(3)]
            x = torch.from_numpy(np.stack(colours)).float()[None]
            with torch.no_grad():
                rows.append(nets[0].eval().features(x, pooled=True)[0].double().numpy())
        return np.stack(rows)

    x, z = features(target.train), features(target.test)
    centre, scale = x.mean(0), np.maximum(x.std(0, ddof=1), 1e-6)
    # scikit-learn: sum of losses + ‖W‖²/(2C); here: mean of losses + l2/2 ‖W‖²
    fitted = LogisticRegression(C=1 / (PROBE.l2 * len(x)), max_iter=2000, tol=1e-8)
    fitted.fit((x - centre) / scale, target.train.labels.numpy())
    return [bool(b) for b in fitted.predict((z - centre) / scale) == target.test.labels.numpy()]


@pytest.mark.parametrize("channels", [1, 3], ids=["grey", "colour"])
def test_transfer_is_a_linear_classifier_on_images_normalised_by_their_own_statistics(channels) -> None:
    nets, target = networks(TWO_VIEWS), splits(channels)
    measured = tasks.Transfer(PROBE).score(nets, evaluation(target))["transfer"]
    expected = twin(nets, target)
    assert 40 < measured.value < 95  # an accuracy at which the two could differ
    agree = sum(a == b for a, b in zip(measured.correct.tolist(), expected, strict=True))
    assert agree >= len(expected) - 1  # a tie may fall either way
    plain = tasks.Transfer(PROBE, TransferView(normalise="pretraining")).score(nets, evaluation(target))["transfer"]
    assert sum(a == b for a, b in zip(plain.correct.tolist(), expected, strict=True)) < agree


@pytest.mark.parametrize("solver", ["sgd", "lbfgs"])
def test_it_is_the_linear_task_in_another_setting(solver) -> None:
    nets, target = networks(TWO_VIEWS), splits()
    probe = PROBE.model_copy(update={"solver": solver, "epochs": 3, "batch_size": 16})
    task = tasks.Transfer(probe, test_images=60)
    adapted = adapt(task, nets, evaluation(target))
    expected = tasks.Linear(probe, 60).score(nets, adapted)["linear"]
    measured = task.score(nets, evaluation(target))
    assert set(measured) == {"transfer"}
    assert measured["transfer"].items == 60
    assert torch.equal(measured["transfer"].correct, expected.correct)


@pytest.mark.parametrize("count", [None, 30])
def test_statistics_are_of_the_training_images_that_are_fitted_and_of_no_other(count) -> None:
    probe = PROBE.model_copy(update={"train_images": count})
    target, nets = splits(side=20), networks(TWO_VIEWS)

    def statistics(changed: Splits) -> tuple:
        shown = adapt(tasks.Transfer(probe), nets, evaluation(changed, seed=3)).augmentation
        return shown.mean, shown.std

    chosen = torch.randperm(120, generator=generator(3))[: count or 120]
    pixels = target.train.images[chosen].double() / 255
    mean, std = statistics(target)
    assert mean == pytest.approx(pixels.mean((0, 2, 3)).tolist(), abs=1e-12)
    assert std == pytest.approx(pixels.transpose(0, 1).flatten(1).std(1, correction=0).tolist(), abs=1e-12)
    other = replace(target.test, items=255 - target.test.images)
    assert statistics(replace(target, test=other, pretrain=other)) == (mean, std)
    spoilt = target.train.images.clone()
    unused = sorted(set(range(120)) - set(chosen.tolist()))
    spoilt[unused] = 255
    assert statistics(replace(target, train=replace(target.train, items=spoilt))) == (mean, std)
    spoilt[chosen[0]] = 255
    assert statistics(replace(target, train=replace(target.train, items=spoilt))) != (mean, std)


def test_statistics_of_a_streaming_set_and_of_a_constant_channel(tmp_path) -> None:
    part = images(10, 0)
    part.images[:, 2] = 7
    for k, image in enumerate(part.images):
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(tmp_path / f"{k}.png")
    files = StreamedImages(
        "files", tmp_path, tuple(f"{k}.png" for k in range(10)), part.labels, part.classes, resize=16
    )
    chosen = torch.tensor([1, 5, 6])
    own = channel_statistics(files, chosen)
    assert own == channel_statistics(part, chosen)
    assert (own[0][2], own[1][2]) == pytest.approx((7 / 255, 1 / 255))


@pytest.mark.parametrize("part", [Augmented(2), Split("lab")], ids=["two views", "split"])
@pytest.mark.parametrize("channels", [1, 3], ids=["grey", "colour"])
@pytest.mark.parametrize("solver", ["sgd", "lbfgs"])
def test_no_tensor_of_an_encoder_changes(solver, channels, part) -> None:
    nets = networks(part)
    nets.train()
    probe = PROBE.model_copy(update={"solver": solver, "epochs": 2, "batch_size": 16})
    with unchanged(nets):
        measured = tasks.Transfer(probe).score(nets, evaluation(splits(channels), part))
    assert 0 <= measured["transfer"].value <= 100


def test_the_train_view_is_that_of_pre_training_or_one_by_name() -> None:
    nets, here = networks(TWO_VIEWS), evaluation(splits())
    own = adapt(tasks.Transfer(PROBE), nets, here)
    assert own.augmentation == replace(VIEW, mean=own.augmentation.mean, std=own.augmentation.std)
    named = adapt(tasks.Transfer(PROBE, TransferView(augmentation="mocov2")), nets, here).augmentation
    assert named == replace(augmentation("mocov2", 16), mean=own.augmentation.mean, std=own.augmentation.std)
    kept = adapt(tasks.Transfer(PROBE, TransferView(normalise="pretraining")), nets, here)
    assert kept.augmentation == VIEW
    assert own.data.pretrain is here.data.pretrain
    assert tasks.Transfer(PROBE).protocol(here)["normalised_by"].startswith("mean and variance")
    grey = networks(Augmented(1), 1)
    measured = tasks.Transfer(PROBE).score(grey, evaluation(splits(1), Augmented(1)))
    assert measured["transfer"].items == 90
    with pytest.raises(NotApplicableError, match="grey images, and dim has colours"):
        tasks.Transfer(PROBE).score(grey, evaluation(splits(3), Augmented(1)))


def test_the_nine_columns_have_their_numbers_and_every_target_is_registered() -> None:
    printed = papers.published("ring", 3)
    assert set(PLAN.rows) == set(papers.plan("ring", 1).rows)
    assert len(printed[~printed["row"].str.contains("minus")]) == 63
    columns = {name: column for name, column in PLAN.columns.items() if column.published}
    assert {column.published for column in columns.values()} == set(printed["column"])
    assert all(PLAN.published_value(name, row) is not None for name, row in product(columns, PLAN.rows))
    assert PLAN.published_value("trafficsign", "ring/mocoring") == 99.3
    assert PLAN.published_difference("trafficsign", "ring/mocoring") == (2.0, "printed")
    assert PLAN.published_value("trafficsign_tracks", "ring/mocoring") is None
    assert {column.on for column in PLAN.columns.values()} <= set(data.names())
    assert {column.metric for column in PLAN.columns.values()} == {"transfer"}

    def note(name: str, method: str) -> str:
        rows, _ = report_rows.make(PLAN, name, PLAN.columns[name], [], "paper", {})
        return next(row.note for row in rows if row.kind == "difference" and row.method.startswith(f"{method} "))

    assert note("fashionmnist", "ring/iring") == "the two printed rows differ by −0.1"  # printed: +0.1
    assert note("fashionmnist", "ring/mocoring") == ""


@pytest.fixture
def few(monkeypatch, pictures) -> list[str]:
    """CIFAR-10 and textures are a few random pictures; other names are looked up, and written down."""
    looked: list[str] = []
    load = data.load

    def some(name: str, root=None) -> Splits:
        looked.append(name)
        if name not in ("cifar10", "dtd10"):
            return load(name, root)
        train, test = pictures(96, 3, 2 * len(name)), pictures(32, 3, 2 * len(name) + 1)
        return Splits(name, train, train, test, "random pictures")

    monkeypatch.setattr(data, "load", some)
    return looked


def test_columns_without_data_say_so_and_the_others_are_measured(few, tmp_path) -> None:
    lines: list[str] = []
    made = tables.table(
        "ring", 3, "cifar10", rows="random", columns="aircraft,dtd,dtd10", seeds="0,1", out_dir=tmp_path / "runs",
        data_root=tmp_path, log=lines.append, **LOCAL,
    )  # fmt: skip
    assert any("transfer accuracy on dtd10 " in line for line in lines)
    rows = {report.name: {row.method: row for row in report.rows} for report in made.reports}
    assert rows["dtd10"]["ours/random"].measured.seeds == 2
    for name, folder in (("aircraft", "fgvc-aircraft-2013b"), ("dtd", "dtd/dtd")):
        status = rows[name]["ours/random"].status
        assert status.startswith("n/a: needs data: ")
        assert f"CONTRASTLAB_DATA/{folder}" in status
        assert sum(f"[{name}] needs data" in line for line in lines) == 1
        assert few.count(name) == 1
