"""Features of a frozen network: written part by part, read with their fingerprint, and trained on by two layers."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contrastlab import data, domains, methods, papers, tasks
from contrastlab.data import ImageSet, Splits
from contrastlab.domains.features import data as stored
from contrastlab.domains.features.modality import WrittenViews
from contrastlab.domains.features.network import build
from contrastlab.domains.features.write import write_features
from contrastlab.pictures.augmentations import Augmentation
from contrastlab.pictures.domain import modality
from contrastlab.settings import LinearProbe, Settings
from contrastlab.support.errors import ArgumentError, CorruptFileError, MissingDataError, NotApplicableError
from contrastlab.tables import Run
from contrastlab.tasks import Evaluation
from contrastlab.views import Split
from made_runs import equal, generator, quiet, refused

VIEWS = Augmentation("half", 8, scale=(0.25, 1.0), resize=8)
SETTINGS = Settings(epochs=2, batch_size=16, dim=8, width=1 / 32, knn_every=0, milestones=())


def network(seed: int = 0, *, as_map: bool = False) -> nn.Module:
    torch.manual_seed(seed)
    layers = [nn.Conv2d(3, 6, 3, 2), nn.BatchNorm2d(6), nn.ReLU()]
    if not as_map:
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers)


def pictures(count: int = 40, seed: int = 0) -> Splits:
    images = torch.randint(0, 256, (count, 3, 10, 10), generator=generator(seed)).to(torch.uint8)
    labels = torch.arange(count) % 2
    every = ImageSet("made", images, labels, ("even", "odd"))
    return Splits.of("made", every.subset(torch.arange(count - 8)), every.subset(torch.arange(count - 8, count)), "")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Features of 32 pictures in parts of ten, and of eight test pictures."""
    monkeypatch.setattr(stored, "PART_ITEMS", 10)
    monkeypatch.setattr("contrastlab.domains.features.write.PART_ITEMS", 10)
    return write_features(network(), pictures(), tmp_path / "features", VIEWS, views=3, log=quiet)


def test_plain_features_are_those_of_one_picture_after_the_other(folder: Path) -> None:
    read = data.load(f"features:{folder}")
    assert read.train.items.shape == (32, 4, 6)
    assert read.test.items.shape == (8, 1, 6)
    frozen = network().eval()

    def rows_of(source: ImageSet) -> Tensor:
        with torch.no_grad():
            rows = [frozen(VIEWS.normalise(VIEWS.plain(picture[None])))[0] for picture in source.items]
        return torch.stack(rows).double()

    training = rows_of(pictures().train)
    for split, source in ((read.train, pictures().train), (read.test, pictures().test)):
        assert split.labels.tolist() == source.labels.tolist()
        expected = (rows_of(source) - training.mean(0)) / training.std(0)
        torch.testing.assert_close(split.items[:, 0].double(), expected, rtol=1e-2, atol=1e-2)


def test_random_features_are_of_different_crops_that_the_seed_decides(folder: Path, tmp_path: Path) -> None:
    items = data.load(f"features:{folder}").train.items
    for first in range(4):
        for second in range(first):
            coincide = (items[:, first] == items[:, second]).all(1)
            assert int(coincide.sum()) <= 3  # small pictures have few crops
    again = write_features(network(), pictures(), tmp_path / "again", VIEWS, views=3, log=quiet)
    assert torch.equal(data.load(f"features:{again}").train.items, items)
    other = write_features(network(), pictures(), tmp_path / "other", VIEWS, views=3, seed=1, log=quiet)
    assert torch.equal(data.load(f"features:{other}").train.items[:, 0], items[:, 0])
    coincide = (data.load(f"features:{other}").train.items[:, 1] == items[:, 1]).all(1)
    assert int(coincide.sum()) <= 3


def test_a_map_is_averaged_over_its_positions(folder: Path, tmp_path: Path) -> None:
    by_map = write_features(network(as_map=True), pictures(), tmp_path / "map", VIEWS, views=3, log=quiet)
    torch.testing.assert_close(
        data.load(f"features:{by_map}").train.items, data.load(f"features:{folder}").train.items, rtol=1e-2, atol=1e-2
    )


def test_an_interrupted_call_is_continued_to_the_same_bits(folder: Path) -> None:
    before = data.load(f"features:{folder}").train.items
    lost = stored.part_path(folder, "train", 10)
    kept = stored.part_path(folder, "train", 20)
    written = kept.stat().st_mtime_ns
    lost.unlink()
    with pytest.raises(MissingDataError, match="train-0000010.safetensors does not exist.*not written to the end"):
        data.load(f"features:{folder}")
    lines: list[str] = []
    write_features(network(), pictures(), folder, VIEWS, views=3, log=lines.append)
    assert lines == ["train-0000010.safetensors: 10 of 32 items"]
    assert kept.stat().st_mtime_ns == written
    assert torch.equal(data.load(f"features:{folder}").train.items, before)


def test_a_part_that_another_process_writes_is_left_to_it(folder: Path) -> None:
    lost = stored.part_path(folder, "train", 10)
    lost.unlink()
    held = stored.files.lock(lost.with_suffix(".lock"))
    assert held is not None
    write_features(network(), pictures(), folder, VIEWS, views=3, log=quiet)
    assert not lost.exists()
    held.release()
    write_features(network(), pictures(), folder, VIEWS, views=3, log=quiet)
    assert lost.exists()


def test_features_of_something_else_are_refused(folder: Path, tmp_path: Path) -> None:
    def write(net: nn.Module, splits: Splits, views: int = 3, seed: int = 0, of: Augmentation = VIEWS) -> object:
        return write_features(net, splits, folder, of, views=views, seed=seed, log=quiet)

    narrow = replace(VIEWS, scale=(0.5, 1.0))
    refused(
        (lambda: write(network(1), pictures()), ArgumentError, "^folder: .* has features that differ in network;"),
        (lambda: write(network(), pictures(seed=1)), ArgumentError, "differ in data;"),
        (lambda: write(network(), pictures(), views=4), ArgumentError, "differ in views;"),
        (lambda: write(network(), pictures(), seed=2), ArgumentError, "differ in seed;"),
        (lambda: write(network(), pictures(), of=narrow), ArgumentError, "differ in augmentation;"),
        (lambda: write(network(), pictures(), views=0), ArgumentError, "^views=0: expected an integer"),
        (lambda: data.load(f"features:{tmp_path}"), MissingDataError, "features.json does not exist"),
    )
    other = write_features(network(1), pictures(), tmp_path / "other", VIEWS, views=3, log=quiet)
    stored.part_path(folder, "test", 0).write_bytes(stored.part_path(other, "test", 0).read_bytes())
    with pytest.raises(CorruptFileError, match="of other features"):
        data.load(f"features:{folder}")
    record = folder / stored.RECORD
    record.write_text(record.read_text().replace('"views": 3', '"views": 4'))
    with pytest.raises(CorruptFileError, match=r"features.json cannot be read \(its content was altered"):
        data.load(f"features:{folder}")
    with pytest.raises(CorruptFileError, match=r"features.json cannot be read \(its content was altered"):
        write(network(), pictures())


def test_a_network_that_gives_no_numbers_is_refused(tmp_path: Path) -> None:
    class Broken(nn.Module):
        def __init__(self, gives: Tensor) -> None:
            super().__init__()
            self.weight = nn.Parameter(gives)

        def forward(self, views: Tensor) -> Tensor:
            return self.weight.expand(len(views), *self.weight.shape)

    refused(
        (
            lambda: write_features(Broken(torch.full((3,), 1e6)), pictures(), tmp_path / "a", VIEWS, log=quiet),
            ArgumentError,
            "^features='nan or inf in 32 of 32 rows'",
        ),
        (
            lambda: write_features(Broken(torch.ones(3, 4)), pictures(), tmp_path / "b", VIEWS, log=quiet),
            ArgumentError,
            r"^network=\(32, 3, 4\): expected features \[B, F\]",
        ),
    )


def test_the_fingerprint_is_of_what_was_embedded_and_not_of_the_last_bits(folder: Path) -> None:
    train = data.load(f"features:{folder}").train
    rounded = replace(train, items=train.items + 1e-3)
    assert rounded.fingerprint == train.fingerprint
    assert train.subset(torch.arange(5)).fingerprint != train.subset(torch.arange(1, 6)).fingerprint
    relabelled = replace(train, labels=1 - train.labels)
    assert relabelled.fingerprint != train.fingerprint
    assert replace(train, origin=train.origin.replace('"views":3', '"views":4')).fingerprint != train.fingerprint


def test_each_random_view_is_one_of_those_written_and_all_alike() -> None:
    items = torch.randn(32, 4, 6, generator=generator(0)).half()
    views = WrittenViews()
    assert torch.equal(views.plain(items)[:, :, 0, 0], items[:, 0].float())
    counts = torch.zeros(4)
    for draw in range(60):
        seen = views.random(items, generator(draw))[:, :, 0, 0]
        is_view = (items.float() == seen[:, None]).all(2)
        assert bool(is_view.any(1).all())
        counts += is_view.sum(0)
    assert counts[0] == 0
    expected = 60 * 32 / 3
    statistic = float(((counts[1:] - expected) ** 2 / expected).sum())
    assert statistic < 13.8  # chi-square with two degrees of freedom, p = 0.001
    refused(
        (
            lambda: views.random(items[:, :1]),
            ArgumentError,
            r"^batch=\(32, 1, 6\): expected .*at least one random view",
        ),
        (lambda: views.plain(items[0]), ArgumentError, r"^batch=.*features \[B, 1 \+ V, F\]"),
    )


def test_the_network_is_two_layers_and_probes_read_its_output() -> None:
    net = build(in_channels=6, hidden=5, dim=4)
    features = torch.randn(7, 6, generator=generator(0))
    first, last = net.backbone.hidden, net.backbone.output  # type: ignore[union-attr]
    hidden = (features @ first.weight.T + first.bias).clamp(min=0)  # type: ignore[operator, union-attr]
    output = hidden @ last.weight.T + last.bias  # type: ignore[operator, union-attr]
    torch.testing.assert_close(net.features(features[..., None, None]), output)
    torch.testing.assert_close(net(features[..., None, None]), F.normalize(output, dim=1))
    assert len(list(net.parameters())) == 4


def test_ring_trains_on_features_and_its_run_is_read_back(folder: Path, tmp_path: Path) -> None:
    splits = data.load(f"features:{folder}")
    recipe = methods.get("ring/iring").override({"negatives.k": 7})
    run = Run(recipe, SETTINGS, splits, 0, tmp_path)
    trained = run.train(log=quiet)
    assert len(trained.history) == 2
    assert trained.encoders[0].backbone.hidden.out_features == 16
    assert equal(run.encoders(), trained.encoders)
    evaluation = Evaluation(recipe.views, modality(splits.train).augmentation(SETTINGS), splits, seed=0)
    probe = Settings(linear=LinearProbe(solver="lbfgs", features="pooled"))
    accuracy = tasks.get("linear", probe).score(trained.encoders, evaluation)["linear"].value
    assert 0 <= accuracy <= 100
    with pytest.raises(ArgumentError, match="image_channels=6"):
        modality(splits.train).encoders(Split("lab"), splits.train, SETTINGS)


def test_features_fill_the_columns_of_a_table_of_pictures() -> None:
    assert data.modality_of("cifar10_lite0") == "feature vector"
    assert data.original_modality_of("cifar10_lite0") == "image"
    assert data.original_modality_of("shapes") == "image"
    (column,) = papers.plan("ring", "1").select("cifar10_lite0").values()
    assert (column.data, column.stands_for) == ("cifar10_lite0", "cifar10")
    with pytest.raises(NotApplicableError, match="no column for data of feature vectors, such as features:there"):
        papers.plan("cmc", "5").select("features:there")


def test_published_features_say_how_to_write_them(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match="benchmarks/features.py"):
        data.load("cifar10_lite0", tmp_path)
    assert "features" in domains.PACKAGES
