"""A user's own arrays: pictures of many channels and of 16 bits, with or without classes and a test part."""

from pathlib import Path

import numpy as np
import pytest
import torch

from contrastlab import data
from contrastlab.support.errors import CorruptFileError, MissingDataError


def write(folder: Path, part: str, count: int, *, labels: bool = True, channels: int = 5) -> np.ndarray:
    pixels = np.random.default_rng(0).integers(0, 65_536, (count, channels, 8, 8)).astype(np.uint16)
    np.save(folder / f"{part}.npy", pixels)
    if labels:
        np.save(folder / f"{part}_labels.npy", np.arange(count) % 2 * 7)
    return pixels


def test_arrays_with_a_test_part_are_read_as_they_are(tmp_path: Path) -> None:
    train, test = write(tmp_path, "train", 12), write(tmp_path, "test", 6)
    splits = data.load(f"arrays:{tmp_path}")
    assert splits.pretrain.channels == 5
    assert splits.train.classes == ("0", "7")
    assert splits.train.labels.tolist() == [0, 1] * 6
    assert torch.equal(splits.train.items, torch.from_numpy(train))
    assert torch.equal(splits.test.items, torch.from_numpy(test))
    assert "5 channels, torch.uint16" in splits.note


def test_a_fifth_is_held_out_and_without_classes_nothing_is(tmp_path: Path) -> None:
    write(tmp_path, "train", 20)
    assert len(data.load(f"arrays:{tmp_path}").test) == 4
    (tmp_path / "train_labels.npy").unlink()
    unlabelled = data.load(f"arrays:{tmp_path}")
    assert not unlabelled.labelled
    assert len(unlabelled.pretrain) == 20


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match=r"train.npy does not exist"):
        data.load(f"arrays:{tmp_path}")
    pixels = write(tmp_path, "train", 4)
    np.save(tmp_path / "train_labels.npy", np.zeros(3, int))
    with pytest.raises(CorruptFileError, match=r"int64 of shape \[3\]; accepted are integers of shape \[4\]"):
        data.load(f"arrays:{tmp_path}")
    np.save(tmp_path / "train.npy", pixels.astype(np.float32))
    with pytest.raises(CorruptFileError, match=r"float32 of shape \[4, 5, 8, 8\]; accepted are uint8 or uint16"):
        data.load(f"arrays:{tmp_path}")
    np.save(tmp_path / "train.npy", np.array([{"a": 1}]), allow_pickle=True)
    with pytest.raises(CorruptFileError, match="is no array of NumPy"):
        data.load(f"arrays:{tmp_path}")
    write(tmp_path, "train", 4)
    write(tmp_path, "test", 4, channels=3)
    with pytest.raises(CorruptFileError, match=r"test.npy has 3 channels, train.npy 5"):
        data.load(f"arrays:{tmp_path}")
