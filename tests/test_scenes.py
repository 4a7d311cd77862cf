"""Sets of scenes and the readers of published ones, on made files of their layout."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from contrastbook.made import rooms
from contrastlab import data
from contrastlab.domains import sets
from contrastlab.domains.scenes import data as scene_sets
from contrastlab.domains.scenes.data import SceneSet, StreamedScenes
from contrastlab.domains.scenes.views import Channels, labels
from contrastlab.pictures.domain import modality
from contrastlab.pictures.loading import batches
from contrastlab.settings import Settings
from contrastlab.support.errors import ArgumentError, CorruptFileError, MissingDataError, MissingExtraError
from made_files import encoded, write_parquet
from made_runs import refused


def few(count: int = 12) -> SceneSet:
    items, kinds = rooms.render(torch.arange(count), height=16, width=24)
    return SceneSet("few", items, kinds, rooms.KINDS, rooms.CLASSES)


def test_a_set_of_scenes_is_a_source() -> None:
    made = few()
    assert (len(made), made.channels, made.resident, made.modality) == (12, 8, True, "scene")
    assert torch.equal(made[3], made.items[3])
    assert modality(made).name == "scene"
    order = torch.tensor([4, 1, 9])
    ((index, items),) = batches(made, order, 3, "cpu", drop_last=True)
    assert torch.equal(index, order)
    assert torch.equal(items, made.items[order])
    taken = few(30).take(6, seed=1)
    assert int(taken.labels.bincount(minlength=3).max() - taken.labels.bincount(minlength=3).min()) <= 1
    assert taken.fingerprint != made.fingerprint == replace(made, name="other").fingerprint
    assert made.take(None) is made
    encoders = modality(made).encoders(Channels(("L", "normal")), made, Settings(arch="scene", width=0.1, dim=16))
    assert [encoder.in_channels for encoder in encoders] == [1, 3]


def test_fingerprints_of_generated_scenes_do_not_depend_on_rounding() -> None:
    made = replace(few(), origin="rooms version 1")
    nudged = replace(made, items=made.items + torch.tensor(1e-3, dtype=torch.float16))
    assert made.fingerprint == nudged.fingerprint
    assert few().fingerprint != replace(nudged, origin="").fingerprint
    assert made.fingerprint != replace(made, origin="rooms version 2").fingerprint
    assert made.subset(torch.tensor([0, 1])).fingerprint != made.subset(torch.tensor([0, 2])).fingerprint
    made = few()
    outside = made.labels.index_fill(0, torch.tensor([0, 1]), 9).clamp(min=0)
    refused(
        (lambda: replace(made, items=made.items.float()), ArgumentError, r"items='torch\.float32"),
        (lambda: replace(made, items=made.items[:, :7]), ArgumentError, "channels=7"),
        (lambda: replace(made, labels=outside), ArgumentError, r"labels=\(0, 9\)"),
        (lambda: replace(made, labels=made.labels[:3]), ArgumentError, "labels='torch.int64 of shape"),
    )


def camvid(folder: Path, masks: list[np.ndarray]) -> None:
    pictures = [encoded(np.full((18, 24, 3), (10 * k, 50, 60), np.uint8)) for k in range(len(masks))]
    more = {"mask": [encoded(mask) for mask in masks], "name": [f"{k}" for k in range(len(masks))]}
    for part in ("train", "val", "test"):
        write_parquet(folder / f"{part}.parquet", pictures, **more)


def test_camvid_is_read_with_its_void_and_damage_is_named(tmp_path) -> None:
    mask = (np.arange(18 * 24) % 12).astype(np.uint8).reshape(18, 24)
    camvid(tmp_path / "camvid", [mask, np.full_like(mask, 3)])
    splits = data.load("camvid", tmp_path)
    assert (len(splits.train), splits.train.channels, splits.train[0].shape[1:]) == (2, 4, (18, 24))
    assert len(splits.test.pixel_classes) == 11
    classes = labels(splits.test.items)
    assert torch.equal(classes[0], torch.where(torch.from_numpy(mask) == 11, -1, torch.from_numpy(mask).long()))
    assert splits.test.items[1, :3, 0, 0].tolist() == [10, 50, 60]
    assert data.load("camvid", tmp_path, n_train=1, n_test=1).train.items.shape[0] == 1
    with pytest.raises(ArgumentError, match="n_test=3: .*2 items"):
        data.load("camvid", tmp_path, n_test=3)
    for shape, value, words in (((18, 24), 12, "values to 12"), ((9, 24), 0, r"shape \(9, 24\)")):
        camvid(tmp_path / "camvid", [np.full(shape, value, np.uint8)])
        sets._read_row.cache_clear()
        with pytest.raises(CorruptFileError, match=words):
            data.load("camvid", tmp_path)
    (tmp_path / "camvid" / "train.parquet").write_bytes(b"PAR1 nothing")
    with pytest.raises(CorruptFileError, match="cannot be read"):
        data.load("camvid", tmp_path)


def nyu(folder: Path, count: int = 4, shape: tuple[int, int] = (640, 480)) -> dict[str, np.ndarray]:
    """A file of the authors' layout: MATLAB 7.3, so every array is written column by column."""
    import h5py
    from scipy.io import savemat

    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    images = np.zeros((count, 3, *shape), np.uint8)
    images[:] = rng.integers(0, 256, (count, 3, 1, 1))
    images[:, 0, 5, 7] = 200  # column 5, row 7
    depths = np.full((count, *shape), 2.0, np.float32)
    depths[:, 5, 7] = 0.0
    classes = np.tile(np.arange(shape[0])[:, None] % 6, (count, 1, shape[1])).astype(np.uint16)
    with h5py.File(folder / scene_sets.NYU_FILE, "w") as file:
        for name, values in (("images", images), ("depths", depths), ("labels", classes)):
            file.create_dataset(name, data=values, compression="gzip", compression_opts=1)

        def strings(name: str, words: list[str]) -> None:
            refs = np.empty((1, len(words)), h5py.ref_dtype)
            for k, word in enumerate(words):
                refs[0, k] = file.create_dataset(
                    f"#refs#/{name}{k}", data=np.array([[ord(c)] for c in word], np.uint16)
                ).ref
            file.create_dataset(name, data=refs)

        strings("names", ["wall", "floor", "bed", "chair", "lamp"])
        strings("sceneTypes", ["kitchen", "bedroom", "kitchen", "office"][:count])
    savemat(folder / "splits.mat", {"trainNdxs": np.array([[1], [3], [4]]), "testNdxs": np.array([[2]])})
    return {"images": images, "depths": depths, "labels": classes}


def test_nyu_is_read_from_the_authors_file(tmp_path) -> None:
    made = nyu(tmp_path / "nyu_depth_v2")
    splits = data.load("nyu_depth_v2", tmp_path)
    assert isinstance(splits.train, StreamedScenes)
    assert (len(splits.train), len(splits.test), splits.train.channels) == (3, 1, 8)
    assert splits.train.indices.tolist() == [0, 2, 3]
    assert splits.train.classes == ("bedroom", "kitchen", "office")
    assert splits.train.labels.tolist() == [1, 1, 2]
    assert splits.test.pixel_classes == ("wall", "floor", "bed", "chair", "lamp")
    scene = splits.train[1]
    assert (scene.dtype, tuple(scene.shape)) == (torch.float16, (8, 480, 640))
    assert scene[0, 7, 5] == 200
    assert scene[0, 100, 100] == made["images"][2, 0, 100, 100]
    assert bool(scene[4, 7, 5].isnan())  # a depth of 0 is missing
    assert scene[4, 8, 5] == 2
    classes = labels(scene[None])[0]
    assert classes[0, :7].tolist() == [-1, 0, 1, 2, 3, 4, -1]  # 0 is unlabelled
    facing = scene[5:8, 240, 320].tolist()
    assert facing == pytest.approx([0, 0, -1], abs=1e-3)
    assert bool(scene[5:8, 7, 5].isnan().all())
    ((index, items),) = batches(splits.train, torch.tensor([2, 0]), 2, "cpu", drop_last=False, workers=0)
    assert index.tolist() == [2, 0]
    assert torch.equal(items[1].nan_to_num(9), splits.train[0].nan_to_num(9))
    assert "3 + 1 labelled frames, 5 classes" in splits.note
    assert data.load("nyu_depth_v2", tmp_path, n_train=2).train.indices.shape == (2,)


def test_nyu_in_forty_classes(tmp_path) -> None:
    from scipy.io import savemat

    nyu(tmp_path / "nyu_depth_v2", 4)
    mapping = {"mapClass": np.array([[2, 1, 1, 2, 2]]), "className": np.array(["low", "high"], object)}
    savemat(tmp_path / "nyu_depth_v2" / "classMapping40.mat", mapping)
    splits = data.load("nyu_depth_v2", tmp_path)
    assert splits.test.pixel_classes == ("low", "high")
    assert labels(splits.test[0][None])[0][0, :6].tolist() == [-1, 1, 0, 0, 1, 1]


def test_nyu_that_is_not_there_or_another_file_is_named(tmp_path, monkeypatch) -> None:
    folder = tmp_path / "nyu_depth_v2"
    with pytest.raises(MissingDataError, match=r"nyu_depth_v2_labeled\.mat does not exist.*2\.8 GB"):
        data.load("nyu_depth_v2", tmp_path)
    nyu(folder, 2, (20, 10))
    with pytest.raises(CorruptFileError, match=r"depths has the shape \(2, 20, 10\)"):
        data.load("nyu_depth_v2", tmp_path)
    (folder / scene_sets.NYU_FILE).write_bytes(b"MATLAB 5.0")
    with pytest.raises(CorruptFileError, match="nyu_depth_v2 cannot be read"):
        data.load("nyu_depth_v2", tmp_path)
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(MissingExtraError, match=r"contrastlab\[scenes\]"):
        data.load("nyu_depth_v2", tmp_path)


def test_normals_from_depth_are_those_of_the_planes() -> None:
    """Rooms know their normals exactly; away from edges and spheres the depth map gives them back."""
    height, width = 64, 96
    camera = (0.9 * width, 0.9 * width, (width - 1) / 2, (height - 1) / 2)
    for index in range(5):
        room = rooms.draw(0, np.array([index]))
        hits = rooms.cast(room, rooms.rays(height, width))
        exact = (room.turn[0].T @ hits.normal[0]).reshape(3, height, width)
        made = scene_sets.normals(hits.depth[0].reshape(height, width), *camera)
        assert np.isnan(made[:, :2]).all()
        normal = np.concatenate([exact, hits.surface[0].reshape(1, height, width)])
        flat = np.ones((height, width), bool)
        for down in range(-2, 3):
            for right in range(-2, 3):
                flat &= (np.abs(np.roll(normal, (down, right), (1, 2)) - normal) < 1e-4).all(0)
        flat[:2] = flat[-2:] = flat[:, :2] = flat[:, -2:] = False
        assert flat.sum() > 1000
        np.testing.assert_allclose(made[:, flat], exact[:, flat], atol=5e-3)
