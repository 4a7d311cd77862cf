"""Data sets to transfer to: each published layout in made files, the small copies, and what is said of damage."""

import gzip
import json
import zipfile
from dataclasses import replace
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from PIL import Image
from scipy.io import savemat

from contrastlab import data
from contrastlab.data import StreamedImages
from contrastlab.domains import sets
from contrastlab.domains.detection.crops import scale_box
from contrastlab.pictures.items import hold_out
from contrastlab.support.errors import ArgumentError, CorruptFileError, MissingDataError, NotApplicableError
from made_files import encoded, write_parquet


def picture(path: Path, value: int, size: tuple[int, int] = (20, 16)) -> None:
    """A picture whose red is its column, green its row and blue ``value``."""
    width, height = size
    row, column = np.mgrid[:height, :width].astype(np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.stack([column, row, np.full_like(row, value)], -1)).save(path.with_suffix(".png"))
    path.with_suffix(".png").rename(path)  # pixels without loss, whatever the ending says


def blues(part: StreamedImages) -> list[int]:
    return [int(part[index][2, 0, 0]) for index in range(len(part))]


def write(path: Path, *lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def aircraft(root: Path) -> Path:
    base = root / "fgvc-aircraft-2013b" / "data"
    for k in range(4):
        picture(base / "images" / f"{k:07d}.jpg", 10 * k)
    write(base / "variants.txt", "707-320", "A300 B4")
    write(base / "images_variant_trainval.txt", "0000000 707-320", "0000001 A300 B4", "0000002 707-320")
    write(base / "images_variant_test.txt", "0000003 A300 B4")
    write(base / "images_box.txt", *(f"{k:07d} {3 + k} 2 {12 + k} 11" for k in range(4)))
    return base / "images_box.txt"


def dtd(root: Path) -> Path:
    base = root / "dtd" / "dtd"
    for k, name in enumerate(("banded", "woven", "banded", "woven")):
        picture(base / "images" / name / f"{name}_{k}.jpg", 10 * k)
    write(base / "labels" / "train1.txt", "banded/banded_0.jpg", "woven/woven_1.jpg")
    write(base / "labels" / "val1.txt", "woven/woven_3.jpg", "banded/banded_0.jpg")
    write(base / "labels" / "test1.txt", "banded/banded_2.jpg", "woven/woven_1.jpg")
    return base / "labels" / "test1.txt"


def cubirds(root: Path) -> Path:
    base = root / "CUB_200_2011"
    files = ["001.Albatross/a.jpg", "001.Albatross/b.jpg", "002.Jay/c.jpg", "002.Jay/d.jpg"]
    for k, file in enumerate(files):
        picture(base / "images" / file, 10 * k)
    write(base / "images.txt", *(f"{k + 1} {file}" for k, file in enumerate(files)))
    write(base / "image_class_labels.txt", "1 1", "2 1", "3 2", "4 2")
    write(base / "train_test_split.txt", "1 1", "2 0", "3 0", "4 1")
    write(base / "classes.txt", "1 001.Albatross", "2 002.Jay")
    return base / "classes.txt"


def annotated(path: Path, names: list[str], marks: list[dict[str, object]], categories: list[tuple[int, str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    images = [{"id": 100 + k, "file_name": name, "width": 20, "height": 16} for k, name in enumerate(names)]
    annotations = [{"id": k, **mark} for k, mark in enumerate(marks)]
    kinds = [{"id": k, "name": name} for k, name in categories]
    path.write_text(json.dumps({"images": images, "annotations": annotations, "categories": kinds}), encoding="utf-8")


def fungi(root: Path) -> Path:
    base, kinds = root / "fungi", [(7, "Boletus"), (2, "Amanita")]
    for part, k in (("train", 0), ("val", 2)):
        names = [f"images/x/{part}{i}.JPG" for i in range(2)]
        for i, name in enumerate(names):
            picture(base / name, 10 * (k + i))
        marks = [{"image_id": 101, "category_id": 2}, {"image_id": 100, "category_id": 7}]
        annotated(base / f"{part}.json", names, marks, kinds)
    return base / "val.json"


def vggflower(root: Path) -> Path:
    base = root / "flowers-102"
    for k in range(10):
        picture(base / "jpg" / f"image_{k + 1:05d}.jpg", 10 * k)
    savemat(base / "imagelabels.mat", {"labels": np.array([[1, 2] * 5], np.uint8)})
    return base / "imagelabels.mat"


def mscoco(root: Path) -> Path:
    base = root / "coco"
    for year, k in (("train2017", 0), ("val2017", 1)):
        picture(base / year / "one.jpg", 10 * k)
        marks = [
            {"image_id": 100, "category_id": 90, "bbox": [5, 4, 5, 5], "iscrowd": 0},
            {"image_id": 100, "category_id": 3, "bbox": [0, 0, 20, 16], "iscrowd": 1},
            {"image_id": 100, "category_id": 3, "bbox": [15, 0, 5, 10]},
            {"image_id": 100, "category_id": 3, "bbox": [15, 0, 0, 10], "iscrowd": 0},
        ]
        annotated(base / "annotations" / f"instances_{year}.json", ["one.jpg"], marks, [(3, "car"), (90, "toothbrush")])
    return base / "annotations" / "instances_val2017.json"


MADE = {make.__name__: make for make in (aircraft, dtd, cubirds, fungi, vggflower, mscoco)}

READ = {
    # classes, and the blue and the label of each picture to train on and to test on
    "aircraft": (("707-320", "A300 B4"), [(0, 0), (10, 1), (20, 0)], [(30, 1)]),
    "dtd": (("banded", "woven"), [(0, 0), (10, 1), (30, 1), (0, 0)], [(20, 0), (10, 1)]),
    "cubirds": (("001.Albatross", "002.Jay"), [(0, 0), (30, 1)], [(10, 0), (20, 1)]),
    "fungi": (("Amanita", "Boletus"), [(10, 0), (0, 1)], [(30, 0), (20, 1)]),
    "mscoco": (("car", "toothbrush"), [(0, 1), (0, 0)], [(10, 1), (10, 0)]),
}


@pytest.mark.parametrize("name", READ)
def test_a_published_layout_is_read_as_its_authors_split_it(name, tmp_path) -> None:
    """Aircraft and textures train on the validation part, too; numbers of fungi's categories have holes."""
    MADE[name](tmp_path)
    splits = data.load(name, tmp_path)
    classes, *parts = READ[name]
    for part, rows in zip((splits.train, splits.test), parts, strict=True):
        assert part.classes == classes
        assert list(zip(blues(part), part.labels.tolist(), strict=True)) == rows


def test_aircraft_are_cropped_to_their_boxes_and_objects_a_fifth_larger_without_crowds(tmp_path) -> None:
    aircraft(tmp_path)
    splits = data.load("aircraft", tmp_path)
    for index, part, left in ((0, splits.train, 2), (1, splits.train, 3), (0, splits.test, 5)):
        pixels = np.asarray(part.picture(index))  # the box counts from 1 and holds both ends
        assert pixels.shape == (10, 10, 3)
        assert (pixels[0, 0, 0], pixels[0, 0, 1]) == (left, 1)
        assert (pixels[-1, -1, 0], pixels[-1, -1, 1]) == (left + 9, 10)
    mscoco(tmp_path)
    splits = data.load("mscoco", tmp_path)
    for part in (splits.train, splits.test):
        assert part.boxes.tolist() == [[4, 4, 6, 6], [0, 14, 11, 6]]  # 5 x 5 about (7.5, 6.5); cut at two borders


def test_flowers_and_test_digits_are_split_eighty_to_twenty_in_each_class(tmp_path) -> None:
    vggflower(tmp_path)
    splits = data.load("vggflower", tmp_path)
    assert sorted(blues(splits.train) + blues(splits.test)) == list(range(0, 100, 10))
    assert splits.train.labels.bincount().tolist() == [4, 4]
    assert splits.test.labels.bincount().tolist() == [1, 1]
    for part in (splits.train, splits.test):
        assert [blue // 10 % 2 for blue in blues(part)] == part.labels.tolist()
    folder = tmp_path / "mnist_t10k"
    folder.mkdir()
    pixels = np.arange(50, dtype=np.uint8)[:, None, None].repeat(28, 1).repeat(28, 2)
    (folder / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(bytes(16) + pixels.tobytes()))
    (folder / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(bytes(8) + bytes(k % 10 for k in range(50))))
    splits = data.load("mnist_t10k", tmp_path)
    assert splits.train.labels.bincount().tolist() == [4] * 10
    assert splits.test.labels.bincount().tolist() == [1] * 10
    for part in (splits.train, splits.test):
        assert (part.images[:, 0, 3, 3] % 10).tolist() == part.labels.tolist()


@hypothesis.given(*[st.floats(0, 90)] * 2, *[st.floats(0.01, 100)] * 2, *[st.integers(90, 200)] * 2)
def test_a_grown_box_lies_in_the_picture_and_covers_the_object(left, top, wide, tall, width, height) -> None:
    wide, tall = min(wide, width - left), min(tall, height - top)
    y, x, h, w = scale_box((left, top, wide, tall), width, height)
    for first, length, start, extent, side in ((x, w, left, wide, width), (y, h, top, tall, height)):
        assert 0 <= first < first + length <= side
        assert first <= start + 0.5
        assert first + length >= min(start + extent, side) - 0.5


def signs(root: Path, tracks: dict[int, int], frames: int = 6) -> None:
    for label, count in tracks.items():
        for track in range(count):
            for frame in range(frames):
                folder = root / "gtsrb" / "GTSRB" / "Final_Training" / "Images" / f"{label:05d}"
                picture(folder / f"{track:05d}_{frame:05d}.ppm", 10 * track)


def sides(splits: data.Splits) -> tuple[set[str], set[str]]:
    """The tracks on both sides, with their class."""
    train, test = ({path.rpartition("_")[0] for path in part.paths} for part in (splits.train, splits.test))
    return train, test


def test_signs_split_by_track_share_none_and_split_by_image_share_nearly_all(tmp_path) -> None:
    signs(tmp_path, {0: 5, 13: 10})
    apart, mixed = data.load("trafficsign_tracks", tmp_path), data.load("trafficsign", tmp_path)
    train, test = sides(apart)
    assert (len(train & test), len(train | test)) == (0, 15)
    assert (len(apart.train), len(apart.test)) == (72, 18)  # 4 + 8 tracks of 6 frames, and 1 + 2
    for part in (apart.train, apart.test):
        assert part.classes == ("00000", "00013")
        assert [int(path.split("/")[0] == "00013") for path in part.paths] == part.labels.tolist()
    train, test = sides(mixed)
    assert len(train & test) > 10
    assert "leaks" in mixed.note
    labels, tracks = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 0])
    with pytest.raises(NotApplicableError, match="signs: class 'stop' has one track: a split"):
        hold_out(labels, tracks, name="signs", classes=("yield", "stop"))


@hypothesis.given(st.lists(st.integers(2, 6), min_size=1, max_size=4), st.integers(1, 5), st.randoms())
def test_a_split_by_group_shares_no_group(groups, frames, random) -> None:
    pairs = [(label, g) for label, count in enumerate(groups) for g in range(count) for _ in range(frames)]
    random.shuffle(pairs)
    labels, of = (torch.tensor(column) for column in zip(*pairs, strict=True))
    held = hold_out(labels, of)
    kept, tested = ({pairs[k] for k in torch.where(rows)[0].tolist()} for rows in (~held, held))
    assert not kept & tested
    for rows in (~held, held):
        assert set(labels[rows].tolist()) == set(range(len(groups)))


def plain(value: int) -> bytes:
    return encoded(np.full((8, 8, 3), value, np.uint8))


def parquet(path: Path, count: int, **columns: list[int]) -> None:
    write_parquet(path, [plain(k) for k in range(count)], [k % 2 for k in range(count)], **columns)


def test_the_copy_of_the_signs_is_read_with_its_tracks(tmp_path) -> None:
    tracks = [k // 8 for k in range(80)]
    parquet(tmp_path / "gtsrb32" / "train.parquet", 80, track=tracks, frame=[k % 8 for k in range(80)])
    parquet(tmp_path / "gtsrb32" / "test.parquet", 10)
    apart = data.load("trafficsign_tracks", tmp_path)
    parts = (apart.train, apart.test)
    train, test = (set(zip(p.labels.tolist(), p.factors["track"].tolist(), strict=True)) for p in parts)
    assert (len(train & test), len(train | test)) == (0, 20)
    assert "32 px JPEG copy" in apart.note
    own = data.load("gtsrb32", tmp_path)
    assert (len(own.train), len(own.test)) == (80, 10)
    assert "benchmark" in own.note


@pytest.mark.parametrize("name", ["dtd10", "flowers17", "tinyimagenet32"])
def test_a_copy_in_parquet_says_what_it_is(name, tmp_path) -> None:
    parquet(tmp_path / name / "all.parquet", 20)
    splits = data.load(name, tmp_path)
    assert (len(splits.train), len(splits.test)) == (16, 4)
    assert splits.note.startswith(data.PUBLISHED[name]["note"])


def test_drawings_are_split_by_who_drew_them_and_shared_alphabets_count_once(tmp_path) -> None:
    folder = tmp_path / "omniglot_small"
    folder.mkdir()
    for archive, alphabets in (("one", ("Greek", "Latin")), ("two", ("Latin", "Tagalog"))):
        with zipfile.ZipFile(folder / f"{archive}.zip", "w") as packed:
            for alphabet in alphabets:
                for drawer in range(1, 21):
                    packed.writestr(f"{archive}/{alphabet}/character01/0001_{drawer:02d}.png", plain(drawer))
    splits = data.load("omniglot_small", tmp_path)
    assert splits.train.classes == ("Greek/character01", "Latin/character01", "Tagalog/character01")
    assert (len(splits.train), len(splits.test)) == (48, 12)
    assert set(splits.train.factors["drawer"].tolist()) == set(range(1, 17))
    assert set(splits.test.images.unique().tolist()) == {17, 18, 19, 20}
    assert splits.test.labels.bincount().tolist() == [4, 4, 4]


def test_crops_of_the_small_copy_lie_in_memory(tmp_path) -> None:
    mscoco(tmp_path)
    (tmp_path / "coco").rename(tmp_path / "coco200")
    for file in (tmp_path / "coco200" / "annotations").iterdir():
        file.rename(tmp_path / "coco200" / file.name)
    splits = data.load("coco200", tmp_path)
    assert splits.train.resident
    assert list(splits.train.images.shape) == [2, 3, 64, 64]
    assert set(splits.test.images[:, 2].unique().tolist()) == {10}
    columns = splits.train.images[1, 0]  # the crop of 11 x 6 pixels from column 14: its middle square
    assert (int(columns.min()), int(columns.max())) == (14, 19)


def test_the_stand_in_has_the_classes_of_shapes_and_none_of_its_pictures() -> None:
    splits, base = data.load("shapes_recoloured"), data.load("shapes", n_train=50, n_test=10)
    assert splits.train.classes == base.train.classes
    assert splits.train.labels.bincount().tolist() == [200] * 10
    assert splits.test.labels.bincount().tolist() == [100] * 10
    factors = splits.train.factors
    assert not torch.isin(factors["x"], base.train.factors["x"]).any()
    middle = (factors["x"].abs() < 1) & (factors["y"].abs() < 1)  # a figure in the middle, dark on bright
    pixels = splits.train.images[middle].float().amin(1)
    assert (pixels[:, 11:13, 11:13].mean((1, 2)) < pixels[:, ::23, ::23].amax((1, 2))).float().mean() > 0.95


def test_a_set_that_is_not_there_says_where_it_was_looked_for_and_is_not_fetched(tmp_path) -> None:
    for name, row in data.PUBLISHED.items():
        with pytest.raises(MissingDataError, match="CONTRASTLAB_DATA") as caught:
            data.load(name, tmp_path)
        needed = row.get("needs", [row["folder"]])[0] or {"sts": "sts"}.get(name, "gtsrb32/train.parquet")
        assert str(tmp_path / needed) in str(caught.value)
        assert "<root>" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", MADE)
def test_what_is_missing_or_damaged_is_named(name, tmp_path) -> None:
    file = MADE[name](tmp_path)
    picture = sorted(path for path in tmp_path.rglob("*") if path.suffix.lower() == ".jpg")[0]
    for gone in (file, picture):
        content = gone.read_bytes()
        gone.unlink()
        with pytest.raises(MissingDataError, match=gone.name):
            data.load(name, tmp_path)
        gone.write_bytes(content)
    assert data.load(name, tmp_path).labelled
    file.write_bytes(b"5 x x\n")
    sets._read_row.cache_clear()
    with pytest.raises((CorruptFileError, MissingDataError), match=data.PUBLISHED[name]["folder"]):
        data.load(name, tmp_path)


def boxed(tmp_path: Path) -> StreamedImages:
    picture(tmp_path / "a.png", 1)
    picture(tmp_path / "b.png", 2, (30, 30))
    boxes = torch.tensor([[2, 3, 4, 4], [10, 12, 8, 16]])
    labels = torch.tensor([0, 0])
    return StreamedImages("boxed", tmp_path, ("a.png", "b.png"), labels, ("one",), resize=4, boxes=boxes)


def test_evaluation_and_crops_see_the_box_only(tmp_path) -> None:
    part = boxed(tmp_path)
    assert part[0][0].tolist() == [[3, 4, 5, 6]] * 4
    assert part[0][1, :, 0].tolist() == [2, 3, 4, 5]
    sizes = []

    def whole(height: int, width: int) -> torch.Tensor:
        sizes.append((height, width))
        return torch.tensor([[0, 0, height, width]])

    crop = part.crops(1, whole, 8)
    assert sizes == [(8, 16)]
    assert crop[0, 1, :, 0].tolist() == list(range(10, 18))
    assert part.subset(torch.tensor([1])).boxes.tolist() == [[10, 12, 8, 16]]
    assert part.subset(torch.tensor([1]))[0].equal(part[1])


def test_boxes_are_part_of_what_the_data_are_and_impossible_ones_refused(tmp_path) -> None:
    part = boxed(tmp_path)
    whole = replace(part, boxes=None)
    moved = replace(part, boxes=part.boxes + torch.tensor([1, 0, 0, 0]))
    assert len({part.fingerprint, whole.fingerprint, moved.fingerprint}) == 3
    assert replace(part).fingerprint == part.fingerprint
    for boxes in ([[0, 0, 4, 4]], [[0.0] * 4] * 2, [[0, 0, 4, 4], [0, 0, 4, 0]], [[0, -1, 4, 4], [0, 0, 4, 4]]):
        with pytest.raises(ArgumentError, match="^boxes="):
            replace(boxed(tmp_path), boxes=torch.tensor(boxes))
    part = replace(boxed(tmp_path), boxes=torch.tensor([[2, 3, 4, 18], [0, 0, 4, 4]]))
    with pytest.raises(CorruptFileError, match=r"a\.png has 20x16 pixels"):
        part[0]
    assert part[1].shape == (3, 4, 4)
