"""Data sets to transfer to: each published layout in made files, the small copies, and what is said of damage."""

import gzip
import json
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import strategies as st
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
    pixels = np.empty((height, width, 3), np.uint8)
    pixels[:, :, 0] = np.arange(width)
    pixels[:, :, 1] = np.arange(height)[:, None]
    pixels[:, :, 2] = value
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encoded(pixels))  # PNG, without loss, whatever the ending says


def blues(part: StreamedImages) -> list[int]:
    return [int(part[index][2, 0, 0]) for index in range(len(part))]


def write(path: Path, *lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


# The published layouts: each function makes a few files, and gives one of those that say what is in the set -----------


def aircraft(root: Path) -> Path:
    base = root / "fgvc-aircraft-2013b" / "data"
    for k in range(4):
        picture(base / "images" / f"{k:07d}.jpg", 10 * k)
    write(base / "variants.txt", "707-320", "A300 B4")
    write(base / "images_variant_trainval.txt", "0000000 707-320", "0000001 A300 B4", "0000002 707-320")
    write(base / "images_variant_test.txt", "0000003 A300 B4")
    boxes = [f"{k:07d} {3 + k} 2 {12 + k} 11" for k in range(4)]
    write(base / "images_box.txt", *boxes)
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
    numbered = [f"{k + 1} {file}" for k, file in enumerate(files)]
    write(base / "images.txt", *numbered)
    write(base / "image_class_labels.txt", "1 1", "2 1", "3 2", "4 2")
    write(base / "train_test_split.txt", "1 1", "2 0", "3 0", "4 1")
    write(base / "classes.txt", "1 001.Albatross", "2 002.Jay")
    return base / "classes.txt"


def annotated(path: Path, names: list[str], marks: list[dict[str, object]], categories: list[tuple[int, str]]) -> None:
    """A file in the format of COCO; the pictures' numbers count from 100."""
    content = {
        "images": [{"id": 100 + k, "file_name": name, "width": 20, "height": 16} for k, name in enumerate(names)],
        "annotations": [{"id": k, **mark} for k, mark in enumerate(marks)],
        "categories": [{"id": k, "name": name} for k, name in categories],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


def fungi(root: Path) -> Path:
    base = root / "fungi"
    categories = [(7, "Boletus"), (2, "Amanita")]
    marks: list[dict[str, object]] = [{"image_id": 101, "category_id": 2}, {"image_id": 100, "category_id": 7}]
    blue = 0
    for part in ("train", "val"):
        names = [f"images/x/{part}0.JPG", f"images/x/{part}1.JPG"]
        for name in names:
            picture(base / name, blue)
            blue += 10
        annotated(base / f"{part}.json", names, marks, categories)
    return base / "val.json"


def vggflower(root: Path) -> Path:
    base = root / "flowers-102"
    for k in range(10):
        picture(base / "jpg" / f"image_{k + 1:05d}.jpg", 10 * k)
    savemat(base / "imagelabels.mat", {"labels": np.array([[1, 2] * 5], np.uint8)})
    return base / "imagelabels.mat"


def mscoco(root: Path) -> Path:
    base = root / "coco"
    categories = [(3, "car"), (90, "toothbrush")]
    marks: list[dict[str, object]] = [
        {"image_id": 100, "category_id": 90, "bbox": [5, 4, 5, 5], "iscrowd": 0},
        {"image_id": 100, "category_id": 3, "bbox": [0, 0, 20, 16], "iscrowd": 1},
        {"image_id": 100, "category_id": 3, "bbox": [15, 0, 5, 10]},
        {"image_id": 100, "category_id": 3, "bbox": [15, 0, 0, 10], "iscrowd": 0},
    ]
    for year, blue in (("train2017", 0), ("val2017", 10)):
        picture(base / year / "one.jpg", blue)
        annotated(base / "annotations" / f"instances_{year}.json", ["one.jpg"], marks, categories)
    return base / "annotations" / "instances_val2017.json"


MADE = {make.__name__: make for make in (aircraft, dtd, cubirds, fungi, vggflower, mscoco)}


@dataclass(frozen=True)
class Read:
    """Classes, and (blue, label) of each picture to train on and to test on."""

    classes: tuple[str, ...]
    train: list[tuple[int, int]]
    test: list[tuple[int, int]]


READ = {
    # the validation part of aircraft and textures is trained on, too
    "aircraft": Read(("707-320", "A300 B4"), train=[(0, 0), (10, 1), (20, 0)], test=[(30, 1)]),
    "dtd": Read(("banded", "woven"), train=[(0, 0), (10, 1), (30, 1), (0, 0)], test=[(20, 0), (10, 1)]),
    "cubirds": Read(("001.Albatross", "002.Jay"), train=[(0, 0), (30, 1)], test=[(10, 0), (20, 1)]),
    # numbers of categories have holes
    "fungi": Read(("Amanita", "Boletus"), train=[(10, 0), (0, 1)], test=[(30, 0), (20, 1)]),
    "mscoco": Read(("car", "toothbrush"), train=[(0, 1), (0, 0)], test=[(10, 1), (10, 0)]),
}


def rows(part: StreamedImages) -> list[tuple[int, int]]:
    return list(zip(blues(part), part.labels.tolist(), strict=True))


@pytest.mark.parametrize("name", READ)
def test_a_published_layout_is_read_as_its_authors_split_it(name, tmp_path) -> None:
    MADE[name](tmp_path)
    splits = data.load(name, tmp_path)
    expected = READ[name]
    assert splits.train.classes == expected.classes
    assert splits.test.classes == expected.classes
    assert rows(splits.train) == expected.train
    assert rows(splits.test) == expected.test


@pytest.mark.parametrize(("part", "index", "left"), [("train", 0, 2), ("train", 1, 3), ("test", 0, 5)])
def test_aircraft_are_cropped_to_their_boxes_which_count_from_one_and_hold_both_ends(
    part, index, left, tmp_path
) -> None:
    aircraft(tmp_path)
    splits = data.load("aircraft", tmp_path)
    pixels = np.asarray(getattr(splits, part).picture(index))
    columns, lines, _ = np.moveaxis(pixels, 2, 0)
    assert columns[0].tolist() == list(range(left, left + 10))
    assert lines[:, 0].tolist() == list(range(1, 11))


@pytest.mark.parametrize("part", ["train", "test"])
def test_objects_are_cropped_a_fifth_larger_within_the_picture_and_crowds_left_out(part, tmp_path) -> None:
    mscoco(tmp_path)
    splits = data.load("mscoco", tmp_path)
    in_the_middle = [4, 4, 6, 6]  # 5 x 5 about (7.5, 6.5)
    in_the_corner = [0, 14, 11, 6]  # 5 x 10 at the right border, cut at two borders
    assert getattr(splits, part).boxes.tolist() == [in_the_middle, in_the_corner]


POSITION = st.floats(0, 90)
LENGTH = st.floats(0.01, 100)
SIDE = st.integers(90, 200)


@hypothesis.given(POSITION, POSITION, LENGTH, LENGTH, SIDE, SIDE)
def test_a_grown_box_lies_in_the_picture_and_covers_the_object(left, top, wide, tall, width, height) -> None:
    right = min(left + wide, width)
    bottom = min(top + tall, height)
    y, x, grown_height, grown_width = scale_box((left, top, right - left, bottom - top), width, height)
    assert 0 <= x < x + grown_width <= width
    assert 0 <= y < y + grown_height <= height
    assert x <= left + 0.5
    assert y <= top + 0.5
    assert x + grown_width >= right - 0.5
    assert y + grown_height >= bottom - 0.5


def test_flowers_are_split_eighty_to_twenty_in_each_class(tmp_path) -> None:
    vggflower(tmp_path)
    splits = data.load("vggflower", tmp_path)
    assert splits.train.labels.bincount().tolist() == [4, 4]
    assert splits.test.labels.bincount().tolist() == [1, 1]
    assert sorted(blues(splits.train) + blues(splits.test)) == list(range(0, 100, 10))
    for blue, label in rows(splits.train) + rows(splits.test):
        assert label == blue // 10 % 2


def test_test_digits_are_split_eighty_to_twenty_in_each_class(tmp_path) -> None:
    folder = tmp_path / "mnist_t10k"
    folder.mkdir()
    levels = np.arange(50, dtype=np.uint8)
    pixels = np.broadcast_to(levels[:, None, None], (50, 28, 28))
    labels = levels % 10
    (folder / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(bytes(16) + pixels.tobytes()))
    (folder / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(bytes(8) + labels.tobytes()))
    splits = data.load("mnist_t10k", tmp_path)
    assert splits.train.labels.bincount().tolist() == [4] * 10
    assert splits.test.labels.bincount().tolist() == [1] * 10
    seen = []
    for part in (splits.train, splits.test):
        level = part.images[:, 0, 3, 3]
        assert (level % 10).tolist() == part.labels.tolist()
        seen += level.tolist()
    assert sorted(seen) == list(range(50))


# Signs: the frames of a track stay together ---------------------------------------------------------------------------


def signs(root: Path, tracks: dict[int, int]) -> None:
    """Six frames of each track, for the number of tracks of each class."""
    images = root / "gtsrb" / "GTSRB" / "Final_Training" / "Images"
    for label, count in tracks.items():
        for track in range(count):
            for frame in range(6):
                picture(images / f"{label:05d}" / f"{track:05d}_{frame:05d}.ppm", 10 * track)


def tracks_of(part: StreamedImages) -> set[str]:
    """``class/track`` of each picture."""
    return {path.rpartition("_")[0] for path in part.paths}


def test_signs_split_by_track_share_none(tmp_path) -> None:
    signs(tmp_path, {0: 5, 13: 10})
    splits = data.load("trafficsign_tracks", tmp_path)
    train = tracks_of(splits.train)
    test = tracks_of(splits.test)
    assert train.isdisjoint(test)
    assert len(train) == 4 + 8
    assert len(test) == 1 + 2
    assert len(splits.train) == 6 * 12
    assert len(splits.test) == 6 * 3


@pytest.mark.parametrize("name", ["trafficsign_tracks", "trafficsign"])
def test_the_class_of_a_sign_is_its_folder(name, tmp_path) -> None:
    signs(tmp_path, {0: 5, 13: 10})
    splits = data.load(name, tmp_path)
    for part in (splits.train, splits.test):
        assert part.classes == ("00000", "00013")
        folders = [path.split("/")[0] for path in part.paths]
        assert [part.classes[label] for label in part.labels.tolist()] == folders


def test_signs_split_by_image_share_nearly_all_tracks_and_say_so(tmp_path) -> None:
    signs(tmp_path, {0: 5, 13: 10})
    splits = data.load("trafficsign", tmp_path)
    assert len(tracks_of(splits.train) & tracks_of(splits.test)) > 10
    assert "leaks" in splits.note


def test_a_class_of_one_track_cannot_be_split() -> None:
    labels = torch.tensor([0, 0, 1, 1])
    tracks = torch.tensor([0, 1, 0, 0])
    with pytest.raises(NotApplicableError, match="signs: class 'stop' has one track: a split"):
        hold_out(labels, tracks, name="signs", classes=("yield", "stop"))


@hypothesis.given(st.lists(st.integers(2, 6), min_size=1, max_size=4), st.integers(1, 5), st.randoms())
def test_a_split_by_group_shares_no_group_and_has_all_classes_on_both_sides(groups, frames, random) -> None:
    items = []
    for label, count in enumerate(groups):
        for group in range(count):
            items += [(label, group)] * frames
    random.shuffle(items)
    labels, numbers = torch.tensor(items).T
    is_held_out = hold_out(labels, numbers)
    train = {item for item, held_out in zip(items, is_held_out, strict=True) if not held_out}
    test = {item for item, held_out in zip(items, is_held_out, strict=True) if held_out}
    classes = set(range(len(groups)))
    assert train.isdisjoint(test)
    assert {label for label, _ in train} == classes
    assert {label for label, _ in test} == classes


@pytest.mark.parametrize(("items", "held_out"), [(2, 1), (3, 1), (7, 1), (8, 2), (12, 2), (13, 3), (100, 20)])
def test_a_fifth_of_a_class_is_held_out_rounded_and_at_least_one(items, held_out) -> None:
    labels = torch.zeros(items, dtype=torch.int64)
    assert int(hold_out(labels).sum()) == held_out


def test_what_has_no_label_is_not_held_out() -> None:
    labels = torch.tensor([-1, 0, -1, 0, -1])
    is_held_out = hold_out(labels)
    assert int(is_held_out.sum()) == 1
    assert not bool(is_held_out[labels < 0].any())


# Small copies ---------------------------------------------------------------------------------------------------------


def plain(value: int) -> bytes:
    return encoded(np.full((8, 8, 3), value, np.uint8))


def parquet(path: Path, count: int, **columns: list[int]) -> None:
    """A table of pictures, whose labels alternate."""
    pictures = [plain(k) for k in range(count)]
    labels: list[object] = [k % 2 for k in range(count)]
    write_parquet(path, pictures, labels, **columns)


def copy_of_signs(root: Path) -> None:
    """80 pictures to train on, eight frames a track, and ten to test on."""
    tracks = [k // 8 for k in range(80)]
    frames = [k % 8 for k in range(80)]
    parquet(root / "gtsrb32" / "train.parquet", 80, track=tracks, frame=frames)
    parquet(root / "gtsrb32" / "test.parquet", 10)


def test_the_copy_of_the_signs_is_split_by_track_where_the_original_is_missing(tmp_path) -> None:
    copy_of_signs(tmp_path)
    splits = data.load("trafficsign_tracks", tmp_path)
    train, test = (
        set(zip(part.labels.tolist(), part.factors["track"].tolist(), strict=True))
        for part in (splits.train, splits.test)
    )
    assert train.isdisjoint(test)
    assert len(train | test) == 20  # ten tracks, each with pictures of both labels
    assert "32 px JPEG copy" in splits.note


def test_the_copy_of_the_signs_has_the_split_of_the_benchmark_under_its_own_name(tmp_path) -> None:
    copy_of_signs(tmp_path)
    splits = data.load("gtsrb32", tmp_path)
    assert len(splits.train) == 80
    assert len(splits.test) == 10
    assert "benchmark" in splits.note


@pytest.mark.parametrize("name", ["dtd10", "flowers17", "tinyimagenet32"])
def test_a_copy_in_parquet_says_what_it_is(name, tmp_path) -> None:
    parquet(tmp_path / name / "all.parquet", 20)
    splits = data.load(name, tmp_path)
    assert len(splits.train) == 16
    assert len(splits.test) == 4
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
    assert len(splits.train) == 48
    assert len(splits.test) == 12
    assert set(splits.train.factors["drawer"].tolist()) == set(range(1, 17))
    assert splits.test.images.unique().tolist() == [17, 18, 19, 20]
    assert splits.test.labels.bincount().tolist() == [4, 4, 4]


def test_crops_of_the_small_copy_lie_in_memory(tmp_path) -> None:
    mscoco(tmp_path)
    copy = tmp_path / "coco200"
    (tmp_path / "coco").rename(copy)
    for file in (copy / "annotations").iterdir():
        file.rename(copy / file.name)
    splits = data.load("coco200", tmp_path)
    assert splits.train.resident
    assert list(splits.train.images.shape) == [2, 3, 64, 64]
    assert splits.test.images[:, 2].unique().tolist() == [10]
    columns = splits.train.images[1, 0]  # the crop of 11 x 6 pixels from column 14: its middle square
    assert columns.min() == 14
    assert columns.max() == 19


# The stand-in ---------------------------------------------------------------------------------------------------------


def test_the_stand_in_has_the_classes_of_shapes_and_none_of_its_pictures() -> None:
    splits = data.load("shapes_recoloured")
    shapes = data.load("shapes", n_train=50, n_test=10)
    assert splits.train.classes == shapes.train.classes
    assert splits.train.labels.bincount().tolist() == [200] * 10
    assert splits.test.labels.bincount().tolist() == [100] * 10
    assert not torch.isin(splits.train.factors["x"], shapes.train.factors["x"]).any()


def test_the_stand_in_is_dark_on_bright() -> None:
    train = data.load("shapes_recoloured").train
    is_central = (train.factors["x"].abs() < 1) & (train.factors["y"].abs() < 1)
    darkest = train.images[is_central].float().amin(1)  # of the three colours
    figure = darkest[:, 11:13, 11:13].mean((1, 2))
    brightest_corner = darkest[:, ::23, ::23].amax((1, 2))
    assert (figure < brightest_corner).float().mean() > 0.95


# What is missing, damaged or impossible -------------------------------------------------------------------------------


def first_needed(name: str) -> str:
    """The path below the data root that is looked for first."""
    row = data.PUBLISHED[name]
    needed = row.get("needs", [row["folder"]])[0]
    if needed:
        return needed
    return "sts" if name == "sts" else "gtsrb32/train.parquet"


@pytest.mark.parametrize("name", data.PUBLISHED)
def test_a_set_that_is_not_there_says_where_it_was_looked_for_and_is_not_fetched(name, tmp_path) -> None:
    with pytest.raises(MissingDataError, match="CONTRASTLAB_DATA") as caught:
        data.load(name, tmp_path)
    assert str(tmp_path / first_needed(name)) in str(caught.value)
    assert "<root>" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", MADE)
def test_a_file_that_says_what_is_in_the_set_is_named_where_it_is_missing(name, tmp_path) -> None:
    file = MADE[name](tmp_path)
    file.unlink()
    with pytest.raises(MissingDataError, match=file.name):
        data.load(name, tmp_path)


@pytest.mark.parametrize("name", MADE)
def test_a_picture_is_named_where_it_is_missing(name, tmp_path) -> None:
    MADE[name](tmp_path)
    first, *_ = sorted(path for path in tmp_path.rglob("*") if path.suffix.lower() == ".jpg")
    first.unlink()
    with pytest.raises(MissingDataError, match=first.name):
        data.load(name, tmp_path)


@pytest.mark.parametrize("name", MADE)
def test_a_set_is_named_where_its_list_is_damaged(name, tmp_path) -> None:
    file = MADE[name](tmp_path)
    assert data.load(name, tmp_path).labelled
    file.write_bytes(b"5 x x\n")
    sets._read_row.cache_clear()
    with pytest.raises((CorruptFileError, MissingDataError), match=data.PUBLISHED[name]["folder"]):
        data.load(name, tmp_path)


# Pictures of which a box is used --------------------------------------------------------------------------------------


def boxed(tmp_path: Path) -> StreamedImages:
    picture(tmp_path / "a.png", 1)
    picture(tmp_path / "b.png", 2, (30, 30))
    boxes = torch.tensor([[2, 3, 4, 4], [10, 12, 8, 16]])
    labels = torch.tensor([0, 0])
    return StreamedImages("boxed", tmp_path, ("a.png", "b.png"), labels, ("one",), resize=4, boxes=boxes)


def test_evaluation_sees_the_box_only(tmp_path) -> None:
    view = boxed(tmp_path)[0]
    columns, lines, _ = view
    assert columns.tolist() == [[3, 4, 5, 6]] * 4
    assert lines[:, 0].tolist() == [2, 3, 4, 5]


def test_random_crops_are_cut_from_the_box_only(tmp_path) -> None:
    asked: list[tuple[int, int]] = []

    def whole(height: int, width: int) -> torch.Tensor:
        asked.append((height, width))
        return torch.tensor([[0, 0, height, width]])

    ((_, lines, _),) = boxed(tmp_path).crops(1, whole, 8)
    assert asked == [(8, 16)]
    assert lines[:, 0].tolist() == list(range(10, 18))


def test_a_part_of_a_set_keeps_its_boxes(tmp_path) -> None:
    whole = boxed(tmp_path)
    part = whole.subset(torch.tensor([1]))
    assert part.boxes.tolist() == [[10, 12, 8, 16]]
    assert torch.equal(part[0], whole[1])


def test_boxes_are_part_of_what_the_data_are(tmp_path) -> None:
    part = boxed(tmp_path)
    unboxed = replace(part, boxes=None)
    moved = replace(part, boxes=part.boxes + torch.tensor([1, 0, 0, 0]))
    assert replace(part).fingerprint == part.fingerprint
    assert len({part.fingerprint, unboxed.fingerprint, moved.fingerprint}) == 3


@pytest.mark.parametrize(
    "boxes",
    [
        pytest.param([[0, 0, 4, 4]], id="one box for two pictures"),
        pytest.param([[0.0, 0.0, 4.0, 4.0], [0.0, 0.0, 4.0, 4.0]], id="no whole pixels"),
        pytest.param([[0, 0, 4, 4], [0, 0, 4, 0]], id="no width"),
        pytest.param([[0, -1, 4, 4], [0, 0, 4, 4]], id="left of the picture"),
    ],
)
def test_impossible_boxes_are_refused(boxes, tmp_path) -> None:
    part = boxed(tmp_path)
    with pytest.raises(ArgumentError, match="^boxes="):
        replace(part, boxes=torch.tensor(boxes))


def test_a_box_larger_than_its_picture_is_refused_when_that_is_read(tmp_path) -> None:
    part = replace(boxed(tmp_path), boxes=torch.tensor([[2, 3, 4, 18], [0, 0, 4, 4]]))
    with pytest.raises(CorruptFileError, match=r"a\.png has 20x16 pixels"):
        part[0]
    assert part[1].shape == (3, 4, 4)
