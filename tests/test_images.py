"""Images: the generated set, subsets and splits, and what is read from disk."""

import builtins
import errno
import hashlib
import math
import os
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader

from contrastbook.made import shapes
from contrastlab import data
from contrastlab.data import ImageSet, Splits, StreamedImages
from contrastlab.domains import sets
from contrastlab.pictures import parquet
from contrastlab.pictures import readers as image_readers
from contrastlab.pictures.items import balanced_subset, hold_out
from contrastlab.pictures.sets import decode, square
from contrastlab.support import errors
from contrastlab.support.errors import ArgumentError, CorruptFileError, MissingDataError, NotApplicableError
from contrastlab.support.paths import cache_folder
from made_files import encoded, write_parquet
from made_runs import generator


def digest(image: Tensor) -> str:
    return hashlib.sha256(image.numpy().tobytes()).hexdigest()[:16]


def picture(size: tuple[int, int] = (12, 10), value: int = 0, mode: str = "RGB") -> Image.Image:
    """A picture whose pixels tell ``value`` and their column, so that a crop or a mix-up shows."""
    width, height = size
    rows = np.tile(np.arange(width, dtype=np.uint8) * 5 + value, (height, 1))
    return Image.fromarray(rows if mode == "L" else np.stack([rows, rows // 2, 255 - rows], -1))


def write_folder(path: Path, count: int, *, start: int = 0, mode: str = "RGB") -> None:
    path.mkdir(parents=True, exist_ok=True)
    for k in range(count):
        picture((12, 10), start + k, mode).save(path / f"{k:03d}.png")


def toy(labels: list[int], classes: int = 3) -> ImageSet:
    count = len(labels)
    pixels = torch.arange(count, dtype=torch.uint8)[:, None, None, None].expand(count, 1, 2, 2).contiguous()
    names = tuple(f"c{k}" for k in range(classes))
    return ImageSet("toy/train", pixels, torch.tensor(labels), names, {"index": torch.arange(count)})


PINNED = {
    "shapes": (
        shapes.RANGES,
        ["a4a2c20f0595568d", "e353568dc440a73c", "d36a2973eb32b68e", "6c15c8470b05aa4a", "271788733ef23c24"],
    ),
    "plain_shapes": (
        shapes.PLAIN,
        ["c9cd045c629f34d9", "a4c84a5909da9e34", "81af3c5a743ae28e", "e008c811ea98598a", "f419762d2040fefa"],
    ),
}


@pytest.mark.parametrize("name", PINNED)
def test_shapes_bytes_are_pinned(name: str) -> None:
    ranges, bytes_ = PINNED[name]
    rendered, labels, _ = shapes.render(torch.tensor([0, 1, 2, 12345, shapes.TEST_OFFSET]), ranges=ranges)
    assert [digest(image) for image in rendered] == bytes_
    assert torch.equal(rendered[:3], data.load(name, n_train=3, n_test=1).train.images)
    assert labels.tolist() == [0, 1, 2, 5, 0]


def test_a_shape_depends_on_its_seed_and_index_alone() -> None:
    index = torch.randperm(600, generator=generator(1))  # spans several chunks
    rendered, labels, factors = shapes.render(index)
    for position in (0, 255, 256, 599):
        alone, label, own = shapes.render(index[position : position + 1])
        assert torch.equal(alone[0], rendered[position])
        assert label[0] == labels[position]
        assert all(own[name][0] == factors[name][position] for name in factors)
    first, _, _ = shapes.render(torch.arange(50), 0)
    second, _, _ = shapes.render(torch.arange(50), 1)
    assert len({digest(image) for image in torch.cat([first, second])}) == 100


def test_shapes_load_is_balanced_disjoint_and_sized() -> None:
    splits = data.load("shapes")
    assert (len(splits.train), len(splits.test)) == (10_000, 2_000)
    assert splits.pretrain is splits.train
    assert splits.train.labels.bincount().tolist() == [1000] * 10
    assert splits.test.labels.bincount().tolist() == [200] * 10
    pixels = [{row.tobytes() for row in part.images.flatten(1).numpy()} for part in (splits.train, splits.test)]
    assert [len(part) for part in pixels] == [10_000, 2_000]
    assert not pixels[0] & pixels[1]
    small = data.load("shapes", n_train=25, n_test=15)
    assert torch.equal(small.train.images, splits.train.images[:25])
    assert small.train.labels.bincount().max() - small.train.labels.bincount().min() == 1
    assert len(small.test) == 15


@pytest.mark.parametrize("name", PINNED)
def test_shapes_factors_are_uniform_and_independent_of_class_and_each_other(name: str) -> None:
    train = data.load(name).train
    table = torch.stack([train.factors[name] for name in shapes.RANGES]).double()
    for values, (low, high) in zip(table, PINNED[name][0].values(), strict=True):
        uniform = (values - low) / (high - low)
        assert uniform.min() >= -1e-6
        assert uniform.max() <= 1 + 1e-6
        # five standard errors of the mean and of the variance of 10,000 uniforms
        assert abs(uniform.mean() - 1 / 2) < 5 * math.sqrt(1 / 12 / 10_000)
        assert abs(uniform.var() - 1 / 12) < 5 * math.sqrt(1 / 180 / 10_000)
    classes = torch.nn.functional.one_hot(train.labels).double().T
    correlation = torch.corrcoef(torch.cat([table, classes[1:]]))
    off_diagonal = correlation[: len(table)] - torch.eye(*correlation.shape)[: len(table)]
    assert off_diagonal.abs().max() < 0.05


def test_plain_shapes_are_shapes_with_less_beside_the_shape() -> None:
    full, plain = (data.load(name, n_train=500).train for name in PINNED)
    assert torch.equal(full.labels, plain.labels)
    for name, (low, high) in shapes.RANGES.items():
        narrow, wide = shapes.PLAIN[name][1] - shapes.PLAIN[name][0], high - low
        assert narrow <= wide
        # the draws are the same, and stretched
        parts = zip((full, plain), PINNED.values(), strict=True)
        a, b = (part.factors[name] - ranges[name][0] for part, (ranges, _) in parts)
        torch.testing.assert_close(a / wide, b / narrow, atol=1e-5, rtol=0)


def test_shapes_factors_say_what_is_in_the_image() -> None:
    # the brightest pixels are the foreground: their mean position is the centroid, their number the area
    index = torch.arange(0, 4000, 10)  # discs
    rendered, _, factors = shapes.render(index)
    axis = torch.arange(32) - 15.5
    mask = (rendered.amax(1) > 160).double()
    area = mask.sum((1, 2))
    x = (mask * axis).sum((1, 2)) / area
    y = (mask * axis[:, None]).sum((1, 2)) / area
    clear = factors["light"] < 0.2
    assert clear.sum() > 100
    assert (x - factors["x"])[clear].abs().max() < 0.6
    assert (y - factors["y"])[clear].abs().max() < 0.6
    assert ((area / math.pi).sqrt() - factors["scale"])[clear].abs().max() < 0.5


@pytest.mark.parametrize("name", shapes.CLASSES)
def test_silhouettes_have_unit_area_and_centroid_at_zero(name: str) -> None:
    axis = (torch.arange(800, dtype=torch.float64) + 0.5) / 200 - 2
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    covered = (0.5 - shapes.silhouette(name, x, y) * 200).clamp(0, 1)  # of each cell, as the renderer has it
    area = covered.sum()
    assert float(area) / 200**2 == pytest.approx(math.pi, rel=1e-3)  # FRAMES was measured on a grid
    assert (covered * x).sum().abs() / area < 1e-3
    assert (covered * y).sum().abs() / area < 1e-3
    assert (x**2 + y**2)[covered > 0].max().sqrt() < 1.9


def test_no_rotation_turns_one_silhouette_into_another() -> None:
    axis = (torch.arange(80, dtype=torch.float64) + 0.5) / 20 - 2
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    turned = {
        name: torch.stack([
            (shapes.silhouette(name, c * x + s * y, c * y - s * x) < 0).flatten()
            for c, s in ((math.cos(a), math.sin(a)) for a in torch.arange(0, 2 * math.pi, math.pi / 36).tolist())
        ]).double()
        for name in shapes.CLASSES
    }  # fmt: skip
    for a in shapes.CLASSES:
        for b in shapes.CLASSES[: shapes.CLASSES.index(a)]:
            shared = turned[a][:1] @ turned[b].T
            union = turned[a][:1].sum() + turned[b].sum(1) - shared
            assert (shared / union).max() < 0.95, (a, b)


def test_pixels_alone_do_not_tell_the_shape() -> None:
    splits = data.load("shapes")
    train, test = (part.take(n) for part, n in ((splits.train, 10_000), (splits.test, 500)))
    a, b = (part.images.flatten(1).float() for part in (train, test))
    nearest = torch.cdist(b, a).argmin(1)
    accuracy = (train.labels[nearest] == test.labels).double().mean()
    assert 0.1 < accuracy < 0.4


def test_take_is_as_balanced_as_the_labels_allow() -> None:
    labels = [0] * 50 + [1] * 30 + [2] * 4
    taken = toy(labels).take(31)
    counts = taken.labels.bincount().tolist()
    assert counts[2] == 4
    assert sorted(counts[:2]) == [13, 14]
    assert (taken.factors["index"].diff() > 0).all()
    assert torch.equal(taken.images[:, 0, 0, 0].long(), taken.factors["index"])  # pixels, labels, factors stay together
    assert torch.equal(torch.tensor(labels)[taken.factors["index"]], taken.labels)


def test_take_is_deterministic_nested_and_uniform_where_labels_are_missing() -> None:
    whole = toy([0, 1, 2] * 30)
    picks = {n: set(whole.take(n, seed=3).factors["index"].tolist()) for n in (5, 20, 60)}
    assert picks[5] < picks[20] < picks[60]
    assert picks[20] == set(whole.take(20, seed=3).factors["index"].tolist())
    assert picks[20] != set(whole.take(20, seed=4).factors["index"].tolist())
    assert whole.take(None) is whole
    assert len(whole.take(90)) == 90
    # as a class of its own, "unlabelled" would be a quarter of the draw; it is nine tenths of the images
    labels = torch.tensor([0, 1, 2] * 10 + [-1] * 270)
    assert (labels[balanced_subset(labels, 100, 0)] < 0).sum() > 80


def test_fingerprint_sees_pixels_labels_shape_and_nothing_else() -> None:
    base = toy([0, 1, 2])
    pixels = base.images.clone()
    pixels[1, 0, 0, 0] ^= 1
    same = ImageSet("other name", base.images.clone(), base.labels.clone(), ("x", "y", "z"))
    flat = ImageSet("flat", base.images.reshape(3, 1, 1, 4), base.labels, base.classes)
    others = [ImageSet("toy", pixels, base.labels, base.classes), toy([0, 2, 1]), flat]
    assert same.fingerprint == base.fingerprint
    assert len({base.fingerprint, *(other.fingerprint for other in others)}) == 4
    assert len(base.fingerprint) == 16
    assert int(base.fingerprint, 16) >= 0
    assert base.to("cpu").fingerprint == base.fingerprint
    # a tensor that is not contiguous holds the same pixels
    turned = ImageSet("t", base.images.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2), base.labels, base.classes)
    assert turned.fingerprint == base.fingerprint


def test_sets_describe_themselves_and_refuse_unlabelled_images_in_probe_parts() -> None:
    base = toy([0, 1, -1])
    assert (len(base), base.channels, base.resident) == (3, 1, True)
    assert torch.equal(base[2], base.images[2])
    good, bad, none = toy([0, 1, 2]), toy([0, -1, 2]), toy([0]).subset(torch.arange(0))
    assert Splits("toy", bad, good, good, "").labelled
    for train, test, argument in ((bad, good, "train"), (good, bad, "test"), (none, good, "train")):
        with pytest.raises(ArgumentError, match=argument):
            Splits("toy", bad, train, test, "")


def test_hold_out_is_stratified_disjoint_and_leaves_unlabelled_images_alone() -> None:
    labels = torch.tensor([0] * 50 + [1] * 10 + [2] * 2 + [-1] * 7)
    held = hold_out(labels)
    assert labels[held].bincount().tolist() == [10, 2, 1]
    assert labels[~held & (labels >= 0)].bincount().tolist() == [40, 8, 1]
    assert torch.equal(held, hold_out(labels))


def test_data_root_is_argument_else_environment_else_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CONTRASTLAB_DATA", str(tmp_path / "env"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data.data_root(tmp_path) == tmp_path
    assert data.data_root() == tmp_path / "env"
    monkeypatch.delenv("CONTRASTLAB_DATA")
    assert data.data_root() == cache_folder() == tmp_path / "cache" / "contrastlab"
    monkeypatch.setenv("XDG_CACHE_HOME", "~/made")
    assert cache_folder() == Path.home() / "made" / "contrastlab"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert data.data_root() == Path.home() / ".cache" / "contrastlab"


def test_missing_data_says_where_it_looked_and_what_to_do(tmp_path: Path) -> None:
    for name, (_, _, layout) in image_readers.TORCHVISION.items():
        with pytest.raises(MissingDataError) as caught:
            data.load(name, tmp_path, download=False)
        for part in (str(tmp_path / name), str(tmp_path / layout), "CONTRASTLAB_DATA", "download=True"):
            assert part in str(caught.value)


@pytest.mark.parametrize("name", ["mnist", "fashionmnist"])
def test_a_failed_download_says_why(name, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr("torchvision.datasets.mnist.download_and_extract_archive", refuse)
    with pytest.raises(MissingDataError, match="download failed: no network"):
        data.load(name, tmp_path)


def test_digits_are_grey_stratified_always_split_the_same_and_limited_by_size() -> None:
    splits, again = data.load("digits"), data.load("digits", seed=5)
    assert splits.train[0].shape == (1, 8, 8)
    assert len(splits.train) + len(splits.test) == 1797
    assert splits.train.images.max() == 255
    share = splits.test.labels.bincount() / (splits.train.labels.bincount() + splits.test.labels.bincount())
    assert (share - 0.2).abs().max() < 0.01
    assert splits.test.fingerprint == again.test.fingerprint
    assert splits.test.fingerprint == "37aaa104533e8c41"
    splits = data.load("digits", n_train=100, n_test=20)
    assert splits.pretrain is splits.train
    assert splits.train.labels.bincount().tolist() == [10] * 10
    assert splits.test.labels.bincount().tolist() == [2] * 10


def test_parquet_keeps_pixels_order_labels_and_names(tmp_path: Path) -> None:
    pictures = [picture((12, 10), k % 200) for k in range(300)]  # more than one block of the thread pool
    contents, labels = [encoded(p) for p in pictures], [k % 2 for k in range(300)]
    write_parquet(tmp_path / "train-00000-of-00001.parquet", contents, labels, names=["cat", "dog"])
    write_parquet(tmp_path / "test-00000-of-00001.parquet", contents[:4], labels[:4], names=["cat", "dog"])
    splits = data.load(f"parquet:{tmp_path}")
    assert splits.train.classes == ("cat", "dog")
    assert splits.train.labels.tolist() == labels
    assert (len(splits.train), len(splits.test)) == (300, 4)
    assert splits.test.name == f"parquet:{tmp_path}/test"
    wanted = torch.stack([torch.from_numpy(np.asarray(p).copy()).permute(2, 0, 1) for p in pictures])
    assert torch.equal(splits.train.images, wanted)


def test_parquet_files_that_are_not_read_are_told(tmp_path: Path) -> None:
    for part, name in enumerate(("train", "test", "val", "more")):
        contents = [encoded(picture(value=10 * part + k, mode="L")) for k in range(6)]
        write_parquet(tmp_path / f"{name}.parquet", contents, ["b", "a"] * 3)
    assert data.load(f"parquet:{tmp_path}").note.endswith("; more.parquet left out; val.parquet left out")


def test_parquet_file_is_held_out_from(tmp_path: Path) -> None:
    path = tmp_path / "mine.parquet"
    write_parquet(path, [encoded(picture(value=k, mode="L")) for k in range(20)], ["b", "a"] * 10)
    splits = data.load(f"parquet:{path}")
    assert splits.train.channels == 1
    assert splits.train.classes == ("a", "b")
    assert splits.train.labels.bincount().tolist() == [8, 8]
    assert splits.test.labels.bincount().tolist() == [2, 2]
    assert not {digest(x) for x in splits.train.images} & {digest(x) for x in splits.test.images}
    # string labels: picture k is class "b" for even k
    assert ((splits.train.images[:, 0, 0, 0] % 2 == 0) == (splits.train.labels == 1)).all()


def test_parquet_of_fine_labels_several_shards_and_subfolders(tmp_path: Path) -> None:
    contents = [encoded(picture(value=k)) for k in range(8)]
    for shard in range(2):
        rows = slice(4 * shard, 4 * shard + 4)
        write_parquet(tmp_path / f"cifar100/data/train-0000{shard}-of-00002.parquet", contents[rows],
                      list(range(8))[rows], label="fine_label")  # fmt: skip
    write_parquet(tmp_path / "cifar100/data/test-00000-of-00001.parquet", contents[:2], [0, 1], label="fine_label")
    splits = data.load("cifar100", tmp_path, download=False)
    assert splits.train.labels.tolist() == list(range(8))
    assert splits.train.images[:, 0, 0, 0].tolist() == list(range(8))
    assert (splits.pretrain.name, splits.test.name) == ("cifar100/train", "cifar100/test")
    assert splits.note == "CIFAR-100, parquet"


def test_parquet_is_decoded_once_until_the_file_changes(tmp_path: Path) -> None:
    path = tmp_path / "train.parquet"
    write_parquet(path, [encoded(picture(value=k)) for k in range(4)], [0, 0, 1, 1])
    first = parquet.read_parquet([path]).images
    assert parquet.read_parquet([path]).images.images is first.images
    write_parquet(path, [encoded(picture(value=k + 9)) for k in range(4)], [0, 0, 1, 1])
    os.utime(path, ns=(1, 1))
    assert parquet.read_parquet([path]).images.images[0, 0, 0, 0] == 9


def test_parquet_of_mixed_sizes_is_squared_and_jpeg_of_a_lossless_set_noted(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write_parquet(path, [encoded(picture((20, 16))), encoded(picture((14, 30))), encoded(picture((14, 14), mode="L"))])
    table = parquet.read_parquet([path]).images
    assert table.images.shape == (3, 3, 14, 14)
    assert table.labels.tolist() == [-1, -1, -1]
    contents = [encoded(picture(value=k), "JPEG") for k in range(2)]
    for split in ("train", "test"):
        write_parquet(tmp_path / f"cifar10/{split}-0.parquet", contents, [0, 1])
    assert "JPEG-compressed once more" in data.load("cifar10", tmp_path, download=False).note


def test_parquet_unlabelled_test_part_gives_way_to_validation(tmp_path: Path) -> None:
    contents = [encoded(picture(value=k)) for k in range(4)]
    write_parquet(tmp_path / "train-0.parquet", contents, [0, 0, 1, 1])
    write_parquet(tmp_path / "validation-0.parquet", contents[:2], [1, 1])
    write_parquet(tmp_path / "test-0.parquet", contents, [-1] * 4)
    assert data.load(f"parquet:{tmp_path}").test.labels.tolist() == [1, 1]


def fake_stl10(root: Path, monkeypatch: pytest.MonkeyPatch, labelled: int = 20, unlabelled: int = 30) -> None:
    base = root / "stl10_binary"
    base.mkdir(parents=True)
    generator = np.random.default_rng(0)
    for part, count in (("train", labelled), ("test", 10), ("unlabeled", unlabelled)):
        generator.integers(0, 256, (count, 3, 96, 96), dtype=np.uint8).tofile(base / f"{part}_X.bin")
        if part != "unlabeled":
            (np.arange(count) % 10 + 1).astype(np.uint8).tofile(base / f"{part}_y.bin")
    (base / "class_names.txt").write_text("\n".join(f"class{k}" for k in range(10)))
    monkeypatch.setattr("torchvision.datasets.STL10._check_integrity", lambda self: True)  # sums of the real files


def test_stl10_unlabelled_images_never_reach_a_probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_stl10(tmp_path, monkeypatch)
    for sizes in ({}, {"n_train": 30}):
        splits = data.load("stl10", tmp_path, download=False, **sizes)
        assert len(splits.pretrain) == sizes.get("n_train", 50)
        assert (splits.pretrain.labels < 0).any()
        assert (len(splits.train), len(splits.test)) == (20, 10)
        assert splits.train.labels.min() >= 0
        assert splits.test.labels.min() >= 0
    assert splits.train[0].shape == (3, 96, 96)
    assert splits.train.labels.tolist() == [k % 10 for k in range(20)]
    assert splits.train.classes == tuple(f"class{k}" for k in range(10))


def test_cifar_and_fashion_are_read_from_torchvisions_layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = tmp_path / "cifar-10-batches-py"
    base.mkdir()
    for k, name in enumerate([*(f"data_batch_{j}" for j in range(1, 6)), "test_batch"]):
        pixels = np.arange(2 * 3072, dtype=np.int64).reshape(2, 3072) % 251 + k
        (base / name).write_bytes(pickle.dumps({"data": pixels.astype(np.uint8), "labels": [0, k]}))
    (base / "batches.meta").write_bytes(pickle.dumps({"label_names": [f"c{k}" for k in range(10)]}))
    for method in ("CIFAR10._check_integrity", "CIFAR10._load_meta"):
        monkeypatch.setattr(f"torchvision.datasets.{method}", lambda self: setattr(self, "classes", ["a"] * 10) or True)
    splits = data.load("cifar10", tmp_path, download=False)
    assert splits.train.images.shape == (10, 3, 32, 32)
    assert splits.train.images[0].flatten().tolist() == (np.arange(3072) % 251).tolist()  # plane by plane, as stored
    assert splits.train.labels.tolist() == [0, 0, 0, 1, 0, 2, 0, 3, 0, 4]
    assert len(splits.test) == 2


def test_folder_with_train_and_val_streams_or_stays(tmp_path: Path) -> None:
    for split, count in (("train", 6), ("val", 2)):
        for k, name in enumerate(("ant", "bee")):
            write_folder(tmp_path / split / name, count, start=10 * k)
    splits = data.load(f"folder:{tmp_path}")
    assert isinstance(splits.train, ImageSet)
    assert splits.train.classes == ("ant", "bee")
    assert splits.train.labels.tolist() == [0] * 6 + [1] * 6
    assert splits.train.images[:, 0, 0, 0].tolist() == [0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15]
    assert splits.train[0].shape[1:] == (10, 12)
    assert len(splits.test) == 4

    picture((40, 20)).save(tmp_path / "train/ant/odd.png")  # a second size: streamed
    streamed = data.load(f"folder:{tmp_path}")
    assert isinstance(streamed.train, StreamedImages)
    assert not streamed.train.resident
    assert len(streamed.train) == 13
    assert streamed.train[6].shape == (3, 256, 256)
    assert streamed.train[6].dtype == torch.uint8


def test_folder_of_classes_is_split_once_and_for_all(tmp_path: Path) -> None:
    write_folder(tmp_path / "ant", 10)
    write_folder(tmp_path / "bee" / "nested", 5, start=100)
    write_folder(tmp_path / ".hidden", 5, start=200)
    (tmp_path / "ant" / "notes.txt").write_text("not an image")
    splits, again = (data.load(f"folder:{tmp_path}", seed=seed) for seed in (0, 7))
    assert splits.train.labels.bincount().tolist() == [8, 4]
    assert splits.test.labels.bincount().tolist() == [2, 1]
    assert splits.test.fingerprint == again.test.fingerprint
    seen = [int(x[0, 0, 0]) for part in (splits.train, splits.test) for x in part.images]
    assert sorted(seen) == [*range(10), *range(100, 105)]


def test_folder_images_beside_the_classes_are_for_pretraining_only(tmp_path: Path) -> None:
    write_folder(tmp_path / "ant", 5)
    write_folder(tmp_path / "bee", 5, start=50)
    write_folder(tmp_path, 3, start=200)
    splits = data.load(f"folder:{tmp_path}")
    assert (len(splits.pretrain), len(splits.train), len(splits.test)) == (11, 8, 2)
    assert (splits.pretrain.labels < 0).sum() == 3
    tested = {digest(x) for x in splits.test.images}
    assert not tested & {digest(x) for x in splits.pretrain.images}


def test_flat_folder_can_be_pretrained_on_and_refuses_to_be_probed(tmp_path: Path) -> None:
    write_folder(tmp_path, 6, mode="L")
    for splits in (data.load(f"folder:{tmp_path}"), data.load(f"folder:{tmp_path}", n_train=6)):
        assert not splits.labelled
        assert splits.pretrain.labels.tolist() == [-1] * 6
        assert splits.pretrain.channels == 1
        assert "pretrain" in repr(splits)
        for part in ("train", "test"):
            with pytest.raises(NotApplicableError, match=f"no '{part}' split.*subfolder"):
                getattr(splits, part)


@pytest.mark.parametrize("denied", ["bee", "bee/nested", "."])
def test_a_folder_that_may_not_be_read_is_no_missing_class(denied: str, tmp_path: Path, deny) -> None:
    write_folder(tmp_path / "ant", 5)
    write_folder(tmp_path / "bee" / "nested", 5, start=50)
    deny("scandir", tmp_path / denied)
    with pytest.raises(errors.StorageError) as caught:
        data.load(f"folder:{tmp_path}")
    said = str(caught.value)
    assert said.startswith(f"folder:{tmp_path}: {tmp_path / denied} may not be read (Permission denied)"), said


@pytest.mark.parametrize("width", [12, 13], ids=["resident", "streamed"])
def test_a_file_that_may_not_be_read_is_not_called_corrupt(width: int, tmp_path: Path, deny) -> None:
    write_folder(tmp_path / "ant", 5)
    picture((width, 10)).save(tmp_path / "ant" / "z.png")
    deny("open", tmp_path / "ant" / "z.png", builtins)
    with pytest.raises(errors.StorageError, match=r"^\S+z\.png may not be read \(Permission denied\)"):
        data.load(f"folder:{tmp_path}")


def test_what_is_not_there_or_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(tmp_path / "test" / "ant", 2)
    with pytest.raises(MissingDataError, match="train does not"):
        data.load(f"folder:{tmp_path}")

    def failed(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(tmp_path / "a"))

    write_folder(tmp_path / "mine" / "ant", 5)
    monkeypatch.setattr(image_readers, "_fits", failed)
    with pytest.raises(CorruptFileError, match=f"folder:{tmp_path / 'mine'}: .*{tmp_path / 'a'}"):
        data.load(f"folder:{tmp_path / 'mine'}")


def test_streamed_images_survive_workers_and_match_pillow(tmp_path: Path) -> None:
    sizes = [(40, 20), (20, 50), (33, 33), (16, 64)]
    for k, size in enumerate(sizes):
        picture(size, k).save(tmp_path / f"{k}.png")
    paths = tuple(f"{k}.png" for k in range(4))
    streamed = StreamedImages("mine/train", tmp_path, paths, torch.tensor([0, 1, 0, 1]), ("a", "b"), resize=16)
    assert len(pickle.loads(pickle.dumps(streamed))) == 4
    assert (len(streamed), streamed.channels) == (4, 3)
    [batch] = DataLoader(streamed, batch_size=4, num_workers=1)  # type: ignore[arg-type]
    assert batch.shape == (4, 3, 16, 16)
    for k, size in enumerate(sizes):
        short = min(size)
        resized = picture(size, k).resize((size[0] * 16 // short, size[1] * 16 // short), Image.Resampling.BILINEAR)
        left, top = (resized.width - 16) // 2, (resized.height - 16) // 2
        wanted = np.asarray(resized.crop((left, top, left + 16, top + 16))).transpose(2, 0, 1)
        assert np.array_equal(batch[k].numpy(), wanted)
    taken = streamed.take(2, seed=1)
    assert sorted(taken.labels.tolist()) == [0, 1]
    assert streamed.fingerprint != taken.fingerprint
    before = streamed.fingerprint
    picture((80, 20)).save(tmp_path / "0.png")
    assert replace(streamed).fingerprint != before


@pytest.mark.parametrize("size", [(7, 7), (7, 9), (101, 13), (13, 101), (256, 257)])
def test_square_gives_the_side_asked_for(size: tuple[int, int]) -> None:
    for side in (5, 7, 13):
        assert square(picture(size), side).size == (side, side)


def test_decode_keeps_grey_and_turns_the_rest_to_rgb() -> None:
    for mode, wanted in (("L", "L"), ("1", "L"), ("RGB", "RGB"), ("P", "RGB"), ("RGBA", "RGB")):
        assert decode(encoded(picture().convert(mode))).mode == wanted


def test_imagenet100_takes_its_synsets_from_the_imagenet_folders(tmp_path: Path) -> None:
    synsets = [*image_readers.imagenet100_synsets(), "n99999999"]
    for split in ("train", "val"):
        for synset in synsets:
            folder = tmp_path / "imagenet" / split / synset
            folder.mkdir(parents=True)
            for k in range(2):
                (folder / f"{k}.JPEG").write_bytes(encoded(picture((20, 30)), "JPEG"))
    splits = data.load("imagenet100", tmp_path)
    assert isinstance(splits.train, StreamedImages)
    assert splits.train.classes == image_readers.imagenet100_synsets()
    assert len(splits.train) == len(splits.test) == 200
    assert splits.train[0].shape == (3, 256, 256)
    assert len(data.load("imagenet100", tmp_path, n_train=100).train.labels.unique()) == 100
    with pytest.raises(MissingDataError, match="101 of the 1000 synset folders"):
        data.load("imagenet", tmp_path)
    synsets = image_readers.imagenet100_synsets()
    assert len(set(synsets)) == 100
    assert list(synsets) == sorted(synsets)
    assert {"n02869837", "n01749939", "n02090622", "n02123045"} <= set(synsets)


def tiny_imagenet(root: Path, synsets: tuple[str, ...] = ("n01", "n02")) -> Path:
    base = root / "tiny-imagenet-200"
    lines = []
    for k, synset in enumerate(synsets):
        folder = base / "train" / synset / "images"
        folder.mkdir(parents=True)
        for i in range(3):
            mode = "L" if i == 2 else "RGB"
            (folder / f"{synset}_{i}.JPEG").write_bytes(encoded(picture((64, 64)).convert(mode), "JPEG"))
        held = base / "val" / "images"
        held.mkdir(parents=True, exist_ok=True)
        (held / f"val_{k}.JPEG").write_bytes(encoded(picture((64, 64)), "JPEG"))
        lines.append(f"val_{k}.JPEG\t{synsets[-1 - k]}\t0\t0\t62\t62")
    (base / "val" / "val_annotations.txt").write_text("\n".join(lines) + "\n")
    return base


def test_tinyimagenet_is_read_as_its_authors_pack_it(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match=r"tiny-imagenet-200.train does not exist. Unpack"):
        data.load("tinyimagenet", tmp_path)
    base = tiny_imagenet(tmp_path)
    splits = data.load("tinyimagenet", tmp_path)
    assert isinstance(splits.train, ImageSet)
    assert splits.train.images.shape == (6, 3, 64, 64)  # the grey ones too
    assert splits.train.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert splits.test.labels.tolist() == [1, 0]  # by the annotations, not by the order of the files
    assert splits.train.classes == ("n01", "n02")
    (base / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn77\n")
    sets._read_row.cache_clear()
    with pytest.raises(MissingDataError, match="lacks the synset n77"):
        data.load("tinyimagenet", tmp_path)


@pytest.mark.skipif(
    not (Path(os.environ.get("CONTRASTLAB_DATA", "/nonexistent")) / "cifar10").is_dir(),
    reason="CONTRASTLAB_DATA does not name a folder with cifar10 in it",
)
@pytest.mark.parametrize(
    ("name", "shape", "first"),
    [
        pytest.param("cifar10", (50_000, 3, 32, 32), "airplane", marks=pytest.mark.nightly),
        ("fashionmnist", (60_000, 1, 28, 28), "T-shirt/top"),
    ],
)
def test_real_sets(name: str, shape: tuple[int, ...], first: str) -> None:
    splits = data.load(name, download=False)
    assert splits.train.images.shape == shape
    assert splits.train.labels.bincount().tolist() == [shape[0] // 10] * 10
    assert splits.test.labels.bincount().tolist() == [1000] * 10
    assert splits.train.classes[0] == first
