"""A user's own folder: one rule, for pictures and sounds, tells parts from classes and counts what is left out."""

import shutil
from pathlib import Path

import pytest

from bad_files import picture, wav
from contrastlab import data
from contrastlab.pictures.sets import AVIF, StreamedImages
from contrastlab.support.errors import ArgumentError, MissingDataError, UnknownNameError
from made_runs import refused


def of_kind(kind: str, folder: Path, *names: str) -> data.Splits:
    """The set of files of these names, one pixel or sample each its own; ``kind`` is that of the set."""
    for number, name in enumerate(names):
        path = folder / f"{name}.{'png' if kind == 'folder' else 'wav'}"
        path.parent.mkdir(parents=True, exist_ok=True)
        content = picture(colour=number, mode="L") if kind == "folder" else wav(40, values=[number])
        path.write_bytes(content)
    return data.load(f"{kind}:{folder}")


def in_classes(folder: str, count: int = 3) -> list[str]:
    return [f"{folder}/{label}/{k}" for label in ("cat", "dog") for k in range(count)]


both = pytest.mark.parametrize("kind", ["folder", "waves"])


@both
@pytest.mark.parametrize(("train", "test"), [
    ("Training", "Testing"), ("Train", "Test"), ("seg_train", "seg_test"), ("seg_train/seg_train", "seg_test/seg_test"),
    ("train2017", "val2017"), ("TRAIN", "valid"), ("training", "Validation"),
])  # fmt: skip
def test_parts_of_a_folder_are_known_by_their_names_in_any_case(train, test, kind, tmp_path) -> None:
    splits = of_kind(kind, tmp_path, *in_classes(train), *in_classes(test, 2))
    assert (splits.train.classes, len(splits.train), len(splits.test)) == (("cat", "dog"), 6, 4)


@both
def test_folders_called_like_parts_of_which_none_can_be_told_are_refused(kind, tmp_path) -> None:
    refused((lambda: of_kind(kind, tmp_path, *in_classes("train_a"), *in_classes("train_b")), MissingDataError,
             "the folders train_a, train_b are called like parts of a set: expected one folder train"))  # fmt: skip


@both
def test_a_flat_test_part_gives_way_to_validation_with_labels(kind, tmp_path) -> None:
    splits = of_kind(kind, tmp_path, *in_classes("train"), *in_classes("val", 2), "test/1", "test/2", "test/3")
    assert (len(splits.train), len(splits.test)) == (6, 4)
    assert f"test left out, with 3 {'images' if kind == 'folder' else 'sounds'}" in splits.note


@both
def test_a_flat_test_part_alone_is_left_out_and_a_fifth_held_out(kind, tmp_path) -> None:
    splits = of_kind(kind, tmp_path, *in_classes("train", 5), "test/1", "test/2")
    assert (len(splits.train), len(splits.test)) == (8, 2)
    assert "cat 5, dog 5; test left out, with 2" in splits.note
    assert "2 of 10 held out" in splits.note


@both
def test_loose_files_beside_classes_are_unlabelled_ones(kind, tmp_path) -> None:
    splits = of_kind(kind, tmp_path, *(f"{label}/{k}" for label in "ab" for k in range(5)), "loose1", "loose2")
    assert (len(splits.pretrain), len(splits.train), len(splits.test)) == (10, 8, 2)
    assert "a 5, b 5; 2 without a class" in splits.note


@both
def test_of_one_class_nothing_is_held_out(kind, tmp_path) -> None:
    splits = of_kind(kind, tmp_path, *(f"images/{k}" for k in range(20)))
    assert (splits.labelled, len(splits.pretrain)) == (False, 20)
    assert "one class, 'images': taken as unlabelled, nothing is held out" in splits.note


@both
def test_a_folder_beside_the_parts_is_left_out_and_told(kind, tmp_path) -> None:
    splits = of_kind(kind, tmp_path, *in_classes("train"), *in_classes("test"), "extra/1", "extra/2")
    assert (len(splits.train), len(splits.test)) == (6, 6)
    assert "extra left out, with 2" in splits.note


@both
def test_what_is_in_training_and_test_is_counted(kind, tmp_path) -> None:
    splits = of_kind(kind, tmp_path, *in_classes("train"), *in_classes("test"))
    assert "also in training" not in splits.note
    shutil.copy(next((tmp_path / "train" / "dog").iterdir()), next((tmp_path / "test" / "cat").iterdir()))
    assert "; 1 of 6 test items are also in training" in data.load(f"{kind}:{tmp_path}").note
    shutil.rmtree(tmp_path / "test")
    (tmp_path / "test").symlink_to(tmp_path / "train", target_is_directory=True)
    assert "; 6 of 6 test items are also in training" in data.load(f"{kind}:{tmp_path}").note


def test_a_file_of_a_streamed_set_that_is_in_training_and_test_is_counted(tmp_path) -> None:
    of_kind("folder", tmp_path, *in_classes("train"), *in_classes("test"))
    (tmp_path / "train" / "cat" / "0.png").write_bytes(picture(size=(9, 7)))  # of another size: files stay files
    again = tmp_path / "test" / "dog" / "2.png"
    again.unlink()
    again.symlink_to(tmp_path / "train" / "cat" / "0.png")
    splits = data.load(f"folder:{tmp_path}")
    assert isinstance(splits.test, StreamedImages)
    assert "; 1 of 6 test items are also in training" in splits.note


def test_what_is_no_picture_is_counted_and_further_endings_are_read(tmp_path) -> None:
    for ending in ("jfif", "jpe", "jpg_large", "JPG", *(["avif"] if AVIF else [])):
        (tmp_path / f"a.{ending}").write_bytes(picture(size=(16, 16), form="AVIF" if ending == "avif" else "JPEG"))
    for name in ("b.heic", "c.heic", "notes.txt", ".hidden.txt"):
        (tmp_path / name).write_bytes(b"x")
    splits = data.load(f"folder:{tmp_path}")
    assert len(splits.pretrain) == 4 + len(AVIF)
    assert "other files left out: 2 .heic, 1 .txt" in splits.note


def test_classes_of_which_only_folders_are_known_are_told(tmp_path) -> None:
    splits = of_kind("folder", tmp_path, *(f"animals/cat/{k}" for k in range(3)), *(f"cars/bus/{k}" for k in range(3)))
    assert "class folders hold only folders, such as animals/cat, whose names are not read" in splits.note


def test_all_pictures_below_a_folder_are_a_set_without_labels_in_the_order_of_their_names(tmp_path) -> None:
    names = [*in_classes("train", 2), *in_classes("test", 2), "loose", "z/deep/er"]
    of_kind("folder", tmp_path, *names)
    splits = data.load(f"unlabelled:{tmp_path}")
    assert data.pictures_in(tmp_path) == tuple(sorted(f"{name}.png" for name in names))
    pixels = [names.index(name.removesuffix(".png")) for name in data.pictures_in(tmp_path)]
    assert splits.pretrain.images[:, 0, -1, -1].tolist() == pixels
    assert not splits.labelled
    refused(
        (lambda: data.load(str(tmp_path)), UnknownNameError, f"folder:{tmp_path}"),
        (lambda: data.pictures_in(tmp_path / "loose.png"), ArgumentError, "folder='.*loose.png': expected a folder"),
        (lambda: data.pictures_in(tmp_path / "none"), ArgumentError, "folder='.*none': expected a folder"),
    )
