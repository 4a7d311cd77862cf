"""Clips: generated ones with exact flow, TV-L1, eight bits, tracks, and video files in their published layout."""

import math
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from contrastbook.made import actions, shapes
from contrastlab import data, methods, tasks
from contrastlab.data import Splits
from contrastlab.domains import sets
from contrastlab.domains.clips import data as videos
from contrastlab.domains.clips import flow
from contrastlab.domains.clips.augmentation import ClipAugmentation
from contrastlab.domains.clips.data import ClipSet, VideoFiles
from contrastlab.pictures import loading
from contrastlab.pictures.augmentations import ViewDraws, augmentation
from contrastlab.pictures.domain import modality
from contrastlab.settings import Settings
from contrastlab.support.errors import ArgumentError, CorruptFileError, MissingDataError, NotApplicableError
from contrastlab.support.paths import cache_folder
from contrastlab.train import Speed, pretrain
from made_files import encoded, write_parquet
from made_runs import generator, quiet, refused


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    sets._read_row.cache_clear()


@pytest.fixture(scope="module")
def made() -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    return actions.render(torch.arange(64))


def test_a_clip_depends_on_its_index_and_the_seed_and_shows_its_actions_silhouette_at_the_stated_ceiling(made) -> None:
    clips, labels, _ = made
    alone, _, _ = actions.render(torch.tensor([37, 5]))
    assert torch.equal(alone, clips[[37, 5]])
    of_another_seed, _, _ = actions.render(torch.tensor([37]), seed=1)
    assert not torch.equal(of_another_seed[0], clips[37])
    assert labels.tolist() == [number % 8 for number in range(64)]

    parts = data.load("clips", n_train=16, n_test=16)
    assert torch.equal(parts.train.items, clips[:16])
    for clip in parts.test.items:
        assert not any(torch.equal(clip, other) for other in parts.train.items)

    index = torch.arange(4000)
    action = index % 8
    keys = shapes.mix(shapes.mix(shapes.seed_key(0)) + index)
    draws = shapes.draw_factors(keys, {"faithful": (0.0, 1.0), "other": (0.0, 8.0)})
    is_faithful = draws["faithful"] < actions.FAITHFUL
    silhouette = torch.where(is_faithful, action, draws["other"].long())
    _, _, factors = actions.render(index[:64])
    assert silhouette[:64].tolist() == factors["silhouette"].tolist()
    percent = 100 * float((silhouette == action).double().mean())
    error = 100 * math.sqrt(0.22 * 0.78 / 4000)
    assert abs(percent - actions.FRAME_CEILING) < 3 * error


def warp_error(frames: Tensor, moved: Tensor) -> float:
    """Squared difference of most pixels of each frame and the next one, looked up where the flow leads."""
    now = frames[:-1].double() / 255
    following = frames[1:].double() / 255
    side = frames.shape[-1]
    axis = torch.arange(side, dtype=torch.float64)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    target = torch.stack([x + moved[:, 0], y + moved[:, 1]], -1)
    from_minus_one_to_one = target * 2 / (side - 1) - 1
    seen = torch.nn.functional.grid_sample(
        following, from_minus_one_to_one, mode="bicubic", align_corners=True, padding_mode="border"
    )
    # the frame without its border, and without the edge of the sprite, which covers and uncovers ground
    error = (seen - now)[..., 5:-5, 5:-5].square()
    return float(error.quantile(0.8))


@pytest.mark.parametrize("action", range(8), ids=actions.ACTIONS)
def test_the_flow_leads_to_the_same_pixel_of_the_next_frame(action, monkeypatch) -> None:
    monkeypatch.setattr(actions, "_RANGES", {**actions._RANGES, "noise": (0.0, 0.0)})
    (clip,), _, _ = actions.render(torch.tensor([action + 8]))
    frames = clip[:, :3]
    moved = flow.restore(clip[:-1, 3:], actions.BOUND).double()
    at_rest = torch.zeros_like(moved)
    backwards = -moved
    with_y_first = moved.flip(1)
    error = warp_error(frames, moved)
    assert error < 0.5 * warp_error(frames, at_rest)
    assert error < 0.5 * warp_error(frames, backwards)
    assert error < 0.5 * warp_error(frames, with_y_first)


def test_the_flow_of_a_similarity_is_that_of_its_points() -> None:
    """A sprite turns by a quarter about (2, 0) and doubles, so (3, 0) goes to (2, 2). The ground drifts."""
    x_of_centre = [2.0, 2.0]
    y_of_centre = [0.0, 0.0]
    turn = [0.3, 0.3 + math.pi / 2]
    scale = [5.0, 10.0]
    of_two_frames = (x_of_centre, y_of_centre, turn, scale)
    pose = actions.Pose(*(torch.tensor([values], dtype=torch.float64) for values in of_two_frames))
    owner = torch.zeros(1, 2, 32, 32, dtype=torch.bool)
    owner[:, 0, 15:17, 18:20] = True
    owner[:, 1, 3:5, 4:6] = True  # where the sprite comes to lie has no part in it
    drift = torch.tensor([[0.25, -0.5]], dtype=torch.float64)
    moved = actions.exact_flow(pose, owner, drift)
    # the pixel in row 15, column 18, from the middle of the frame
    x = 18 - 15.5
    y = 15 - 15.5
    new_x = 2 - 2 * (y - 0)
    new_y = 0 + 2 * (x - 2)
    expected = [new_x - x, new_y - y]
    assert moved[0, 0, :, 15, 18].tolist() == pytest.approx(expected, abs=1e-6)
    assert moved[0, 0, :, 3, 4].tolist() == [0.25, -0.5]


def test_eight_bits_keep_rest_sign_and_half_a_step() -> None:
    field = torch.linspace(-4, 4, 4001)
    back = flow.restore(flow.quantise(field, 4.0), 4.0)
    assert float((back - field).abs().max()) <= 0.5 * 4 / 127 + 1e-6
    assert torch.equal(flow.restore(flow.quantise(-field, 4.0), 4.0), -back)
    assert flow.restore(flow.quantise(torch.zeros(1), 4.0)).item() == 0
    assert flow.restore(flow.quantise(torch.tensor([99.0]), 4.0), 4.0).item() == 4


def textured(shift: tuple[int, int]) -> Tensor:
    """Two frames of smoothed noise, the second of which is the first one moved by (x, y) pixels."""
    noise = torch.rand(1, 1, 80, 80, generator=generator(0))
    smooth = torch.nn.functional.avg_pool2d(noise, 5, 1, 2)[0, 0]
    smooth = (smooth - smooth.min()) / (smooth.max() - smooth.min())
    x, y = shift
    frames = [smooth[16:64, 16:64], smooth[16 - y : 64 - y, 16 - x : 64 - x]]
    return (torch.stack(frames)[:, None] * 255).to(torch.uint8).expand(-1, 3, -1, -1)


@pytest.mark.parametrize("shift", [(2, 0), (0, 2), (-1, 2)])
def test_tvl1_finds_a_shift_with_x_first(shift) -> None:
    (moved,) = flow.tvl1(textured(shift))
    mean = moved[:, 8:-8, 8:-8].mean((1, 2))
    assert mean.tolist() == pytest.approx(shift, abs=0.05)


def test_tvl1_against_the_exact_flow_of_the_generator(made) -> None:
    """Every third flow of eight clips is nearer to the exact one than no motion is, or than x and y exchanged."""
    clips, _, _ = made
    estimates = []
    exact_flows = []
    for clip in clips[:8]:
        for time in range(0, 15, 3):
            estimates.append(flow.tvl1(clip[time : time + 2, :3]))
            exact_flows.append(flow.restore(clip[time : time + 1, 3:], actions.BOUND))
    estimate = torch.cat(estimates)
    exact = torch.cat(exact_flows)
    error = (estimate - exact).norm(dim=1)
    error_exchanged = (estimate.flip(1) - exact).norm(dim=1)
    error_at_rest = exact.norm(dim=1)
    assert error.median() < 0.35 * error_at_rest.median()
    assert error.mean() < 0.6 * error_exchanged.mean()
    assert error.mean() < 0.6 * error_at_rest.mean()


def test_an_estimate_is_kept_whole_and_goes_on_where_it_was_cut_off(tmp_path, monkeypatch, made) -> None:
    frames = made[0][:5, :3, :3]
    direct = torch.stack([flow.quantise(flow.tvl1(clip), 5.0) for clip in frames])
    monkeypatch.setattr(flow, "_KEEP_EVERY", 2)
    real, asked = flow.tvl1, []

    def counted(clip: Tensor) -> Tensor:
        asked.append(clip)
        if len(asked) == 4:
            raise KeyboardInterrupt
        return real(clip)

    monkeypatch.setattr(flow, "tvl1", counted)
    with pytest.raises(KeyboardInterrupt):
        flow.cached_tvl1(frames, 5.0)
    (path,) = (cache_folder() / "flow").iterdir()
    assert path.suffix == ".safetensors"
    again = flow.cached_tvl1(frames, 5.0)
    assert torch.equal(again[:, :-1], direct)
    assert (again[:, -1] == flow.ZERO).all()
    assert len(asked) == 4 + 3  # clips 2, 3 and 4: the first two were kept
    assert torch.equal(flow.cached_tvl1(frames, 5.0), again)
    assert len(asked) == 7
    flow.cached_tvl1(frames, 4.0)
    assert len(asked) == 12  # another bound, another file
    path.write_bytes(b"damaged")
    with pytest.raises(CorruptFileError, match=path.name):
        flow.cached_tvl1(frames, 5.0)


def test_a_strip_shows_directions_as_colours_at_one_scale() -> None:
    from contrastbook.figures import pictures as draw

    field = torch.zeros(2, 1, 4)
    field[0, 0, 1:] = torch.tensor([2.0, -1.0, 0.0])
    field[1, 0, 3] = 2.0
    colours = torch.as_tensor(draw.flow_colours(field, 2.0)[0])
    assert torch.allclose(colours, colours.new_tensor([[1, 1, 1], [1, 0, 0], [0.5, 1, 1], [0.5, 1, 0]]))
    frames = torch.zeros(3, 3, 4, 4, dtype=torch.uint8)
    flows = {"slow": torch.ones(3, 2, 4, 4), "fast": 2 * torch.ones(3, 2, 4, 4)}
    figure = draw.strip(frames, flows, [0, 2], title="t")
    pictures = [axes.images[0].get_array() for axes in figure.axes if axes.images]
    assert len(pictures) == 2 + 2 + 2 + 1
    assert [axes.get_title() for axes in figure.axes[:2]] == ["t = 0", "t = 2"]
    assert 1 - pictures[2].min() == pytest.approx((1 - pictures[4].min()) / 2)


def test_a_set_of_clips_checks_takes_and_spreads(made) -> None:
    clips, labels, _ = made
    whole = ClipSet("made", clips, labels, actions.ACTIONS, 5.0, {"rate": torch.rand(64)})
    part = whole.take(24, seed=1)
    assert len(part) == len(part.factors["rate"]) == 24
    assert part.labels.bincount().tolist() == [3] * 8
    assert part.fingerprint != whole.fingerprint == ClipSet("b", clips, labels, actions.ACTIONS, 5.0).fingerprint
    assert videos.spread(16, 4).tolist() == [2, 6, 10, 14]
    assert videos.spread(3, 5).tolist() == [0, 0, 1, 2, 2]
    assert torch.equal(whole.spread(4)[7], clips[7][[2, 6, 10, 14]])
    assert flow.tvl1(torch.zeros(1, 3, 8, 8, dtype=torch.uint8)).shape == (0, 2, 8, 8)
    pictures = torch.zeros(3, 2, 8, 8, dtype=torch.uint8)
    seen = ClipAugmentation(augmentation("cmc", 8))
    refused(
        (lambda: whole.spread(0), ArgumentError, "frames=0"),
        (lambda: replace(whole, items=clips[:, :, :3]), ArgumentError, r"items=.*uint8 of shape \[N, T, 5, H, W\]"),
        (lambda: replace(whole, labels=labels[1:]), ArgumentError, "labels="),
        (lambda: seen.random(pictures), NotApplicableError, "views are of clips"),
    )


def moving_ramp() -> Tensor:
    """One clip of a picture that moves by 2 pixels right and 1 down, and has no motion in its left half's flow."""
    clip = torch.zeros(1, 4, 5, 24, 24, dtype=torch.uint8)
    axis = torch.arange(24)
    for t in range(4):
        clip[0, t, :3] = (4 * axis[None, :] + 2 * axis[:, None] + 5 * t).to(torch.uint8)
        moved = torch.stack([torch.full((24, 24), 2.0), torch.full((24, 24), 1.0)])
        moved[:, :, :12] = 0
        clip[0, t, 3:] = flow.quantise(moved, 4.0)
    return clip


def drawn(box: list[int], flip: bool) -> ViewDraws:
    draws = ClipAugmentation(augmentation("cmc", 8)).draw(moving_ramp(), generator(0))
    return replace(draws, boxes=torch.tensor([box]), flip=torch.tensor([flip]))


def test_a_flip_turns_the_sign_of_x_and_a_resized_crop_scales_the_flow() -> None:
    clip, at = moving_ramp(), torch.tensor([2])
    seen = ClipAugmentation(augmentation("cmc", 8), centred=False)
    straight = seen.flow(clip, at, 2, drawn([4, 8, 16, 8], flip=False))
    mirrored = seen.flow(clip, at, 2, drawn([4, 8, 16, 8], flip=True))
    assert straight.shape == (1, 4, 8, 8)
    assert torch.allclose(mirrored[:, 0::2], -straight[:, 0::2].flip(-1))
    assert torch.allclose(mirrored[:, 1::2], straight[:, 1::2].flip(-1))
    assert float(straight[0, 0, :, -1].mean()) > 0 > float(mirrored[0, 0, :, 0].mean())
    # 16 rows become 8, 8 columns stay 8: displacements in pixels of the view, as fractions of the bound of 4
    assert straight[0, :2, 4, -1].tolist() == pytest.approx([2 / 4, 1 / 2 / 4], abs=0.01)
    assert straight[0, :2, 4, 0].tolist() == pytest.approx([0, 0], abs=1e-6)
    assert ClipAugmentation(augmentation("cmc", 8)).flow(clip, at, 2, None).mean((2, 3)).abs().max() < 1e-6


def test_frames_and_flow_of_a_view_are_cropped_alike_and_a_stack_is_centred() -> None:
    clip = moving_ramp()
    clip[0, 1, 3] = 40 + clip[0, 1, 0] // 2  # a flow that looks like the frame
    seen = ClipAugmentation(augmentation("cmc", 8), centred=False)
    for seed in range(6):
        draws = seen.draw(clip, generator(seed))
        frame = 255 * seen.frame(clip, torch.tensor([1]), draws)[0, 0]
        moved = seen.flow(clip, torch.tensor([1]), 1, draws)[0, 0]
        sign = -1 if draws.flip[0] else 1
        levels = sign * moved * 127 / (8 / draws.boxes[0, 3]) + 128
        assert torch.allclose(levels, 40 + frame / 2, atol=1.0)
    clip = torch.zeros(1, 9, 5, 8, 8, dtype=torch.uint8)
    clip[0, :, 3] = flow.ZERO + torch.arange(9, dtype=torch.uint8)[:, None, None]
    clip[0, :, 4] = flow.ZERO
    seen = ClipAugmentation(augmentation("none", 8), centred=False)
    stack = seen.flow(clip, torch.tensor([4]), 4, None)
    assert (stack[0, ::2, 0, 0] * 127).round().tolist() == [2, 3, 4, 5]
    assert (stack[0, 1::2] == 0).all()
    assert (seen.flow(clip, torch.tensor([4]), 3, None)[0, ::2, 0, 0] * 127).round().tolist() == [3, 4, 5]


def test_a_track_is_a_clip_and_stays_on_one_side(tmp_path) -> None:
    rows = []
    for label in (0, 1):
        for track in range(5):
            for frame in range(30 if (label, track) != (1, 2) else 29):
                shown = Image.new("RGB", (32, 32), (100 * label, 20 * track, 5 * frame))
                rows.append((encoded(shown), label, track, frame))
    images, labels, tracks, frames = map(list, zip(*rows[::-1], strict=True))  # neither tracks nor frames in order
    write_parquet(tmp_path / "gtsrb32" / "train.parquet", images, labels, track=tracks, frame=frames)
    splits = data.load("gtsrb32_clips", tmp_path)
    assert (len(splits.train), len(splits.test)) == (8, 2)
    for part in (splits.train, splits.test):
        assert part.items.shape[1:] == (15, 5, 32, 32)
        for clip, label in zip(part.items, part.labels, strict=True):
            assert (clip[:, 0] == 100 * label).all()
            assert len(clip[:, 1].unique()) == 1  # frames of one track
            times = clip[:, 2, 0, 0].tolist()
            short = label == 1 and clip[0, 1, 0, 0] == 40
            assert times == [5 * min(2 * t, 28 if short else 29) for t in range(15)]
    everyone = torch.cat([splits.train.items, splits.test.items])
    assert len({(int(c[0, 0, 0, 0]), int(c[0, 1, 0, 0])) for c in everyone}) == 10
    with pytest.raises(MissingDataError, match=r"gtsrb32.*does not exist"):
        data.load("gtsrb32_clips", tmp_path / "elsewhere")


def write_video(path: Path, count: int, brightness: int = 0) -> None:
    """An AVI of ``count`` frames of 64x48 pixels that get brighter by ten from one to the next."""
    av = pytest.importorskip("av")
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=25)
        stream.width, stream.height, stream.pix_fmt, stream.bit_rate = 64, 48, "yuv420p", 4_000_000
        for t in range(count):
            pixels = np.full((48, 64, 3), brightness + 10 * t, np.uint8)
            for packet in stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)


def write_ucf(root: Path, frames: int = 14) -> None:
    """Two actions in the layout of UCF101; split k tests group k."""
    names = ("Archery", "Biking")
    lists = root / "ucf101" / "ucfTrainTestlist"
    lists.mkdir(parents=True)
    (lists / "classInd.txt").write_text("".join(f"{k} {name}\r\n" for k, name in enumerate(names, 1)))
    every = [f"{name}/v_{name}_g{g:02d}_c01.avi" for name in names for g in (1, 2, 3)]
    for k, video in enumerate(every):
        write_video(root / "ucf101" / "UCF-101" / video, frames, brightness=5 * k)
    for split in (1, 2, 3):
        test = [v for v in every if f"_g{split:02d}_" in v]
        train = [f"{v} {1 + names.index(v.split('/')[0])}" for v in every if v not in test]
        (lists / f"trainlist{split:02d}.txt").write_text("\n".join(train) + "\n")
        (lists / f"testlist{split:02d}.txt").write_text("\n".join(test) + "\n")


@pytest.fixture
def small_frames(monkeypatch) -> None:
    monkeypatch.setattr(videos, "HEIGHT", 24)
    monkeypatch.setattr(videos, "WIDTH", 32)


@pytest.fixture
def ucf(tmp_path, small_frames) -> Splits:
    write_ucf(tmp_path)
    return data.load("ucf101", tmp_path)


def test_ucf101_as_its_authors_publish_it(ucf) -> None:
    assert ucf.train.classes == ("Archery", "Biking")
    assert len(ucf.folds()) == 3
    for k, (train, test) in enumerate(ucf.folds(), 1):
        assert (len(train), len(test)) == (4, 2)
        assert not set(train.paths) & set(test.paths)
        assert all(f"_g{k:02d}_" in path for path in test.paths)
        assert test.labels.tolist() == [0, 1]
        assert train.labels.tolist() == [0, 0, 1, 1]
    assert ucf.pretrain is ucf.train
    first = 5 * sorted(p for f in ucf.folds() for p in f[1].paths).index(ucf.train.paths[0])

    def shown(clip: Tensor) -> list[float]:
        """Which frames these are, by their brightness."""
        return ((clip[:, :3].float().mean((1, 2, 3)) - first) / 10).tolist()

    # a window of twelve of the fourteen frames: the middle one, and one that starts anywhere
    assert ucf.train[0].shape == (12, 5, 24, 32)
    assert shown(ucf.train[0]) == pytest.approx(range(1, 13), abs=0.4)
    assert {round(shown(ucf.train.window(0, generator(seed)))[0]) for seed in range(20)} == {0, 1, 2}
    few = ucf.train.spread(7)[0]
    assert shown(few) == pytest.approx(range(1, 14, 2), abs=0.4)
    assert (few[:, 3:] == flow.ZERO).all()
    assert ucf.train.still()[0].shape == (1, 5, 24, 32)


def test_a_video_is_decoded_once_and_a_kept_file_is_whole(tmp_path, ucf, monkeypatch) -> None:
    part = ucf.train
    real, calls = videos.decode, []
    monkeypatch.setattr(videos, "decode", lambda path: calls.append(path) or real(path))
    first = part[0]
    assert torch.equal(part[0], first)
    assert len(calls) == 1
    part.spread(3)[0]
    assert len(calls) == 1  # the file with flow serves frames, too
    part.spread(3)[1]
    part[1]
    assert len(calls) == 3  # frames alone were kept, then flow was asked for
    kept = sorted((tmp_path / "cache" / "contrastlab" / "videos").iterdir())
    assert not [path for path in kept if path.suffix == ".tmp"]
    for path in kept:
        path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(CorruptFileError, match="delete it to decode its video anew"):
        part[0]


def test_flow_of_a_video_is_that_of_its_frames(tmp_path, small_frames) -> None:
    frames = textured((1, 0)).repeat(1, 1, 1, 1)[:, :, :24, :32]
    packed = tmp_path / "made.flow.zip"
    packed.write_bytes(videos._pack(frames, 20.0))
    with zipfile.ZipFile(packed) as opened:
        item = VideoFiles("x", tmp_path, (), torch.zeros(0, dtype=torch.int64), ("a",))._read(opened, [0, 1])
    assert float((flow.restore(item[0, 3:], 20.0) - flow.tvl1(frames)[0]).abs().mean()) < 0.2
    assert float(flow.restore(item[0, 3:], 20.0)[0].mean()) > 0.5
    assert (item[1, 3:] == flow.ZERO).all()


def test_a_video_without_frames_is_named(tmp_path, ucf) -> None:
    path = ucf.train.folder / ucf.train.paths[0]
    for frames, words in ((None, path.name), (0, f"{path.name}: no frame"), (5, f"{path.name} has 5 frames")):
        path.write_bytes(b"RIFF....AVI nothing") if frames is None else write_video(path, frames)
        with pytest.raises(CorruptFileError, match=words):
            ucf.train[0]
    assert not list((tmp_path / "cache").rglob("*.tmp"))


def test_hmdb51_as_its_authors_publish_it(tmp_path, small_frames) -> None:
    lists, folder = tmp_path / "hmdb51" / "testTrainMulti_7030_splits", tmp_path / "hmdb51" / "hmdb51_org"
    lists.mkdir(parents=True)
    for action in ("brush_hair", "cartwheel"):
        for k in range(4):
            write_video(folder / action / f"{action}_{k}.avi", 13)
        for split in (1, 2, 3):
            part = [1, 2, 0, 1] if split == 1 else [2, 1, 1, 0]
            lines = [f"{action}_{k}.avi {p} " for k, p in enumerate(part)]
            (lists / f"{action}_test_split{split}.txt").write_text("\n".join(lines) + "\n")
    (train, test), second, _ = data.load("hmdb51", tmp_path).folds()
    assert train.classes == ("brush_hair", "cartwheel")
    for part, numbers in ((train, "03"), (test, "1"), (second[0], "12")):
        assert [path.split("_")[-1] for path in part.paths] == [f"{k}.avi" for k in 2 * numbers]
    assert test.labels.tolist() == [0, 1]
    (lists / "cartwheel_test_split2.txt").write_text("cartwheel_0.avi 7\n")
    sets._read_row.cache_clear()
    with pytest.raises(CorruptFileError, match=r"cartwheel_test_split2.txt.*0, 1 or 2"):
        data.load("hmdb51", tmp_path)


def test_what_is_missing_of_a_set_of_videos_is_named(tmp_path, small_frames) -> None:
    with pytest.raises(MissingDataError, match=r"UCF-101 does not exist. Unpack UCF101.rar"):
        data.load("ucf101", tmp_path)
    write_ucf(tmp_path)
    (tmp_path / "ucf101" / "UCF-101" / "Biking" / "v_Biking_g03_c01.avi").unlink()
    with pytest.raises(MissingDataError, match=r"v_Biking_g03_c01.avi does not exist"):
        data.load("ucf101", tmp_path)
    (tmp_path / "ucf101" / "ucfTrainTestlist" / "testlist02.txt").unlink()
    with pytest.raises(MissingDataError, match=r"testlist02.txt does not exist"):
        data.load("ucf101", tmp_path)


def test_windows_of_files_are_the_same_for_any_number_of_workers(tmp_path, small_frames) -> None:
    write_ucf(tmp_path, frames=20)
    part = data.load("ucf101", tmp_path).train

    def windows(before: int, workers: int) -> Tensor:
        crop = loading.Crops(augmentation("cmc", 16), 1, seed=0, before=before)
        order = torch.tensor([3, 1, 0, 2])
        parts = loading.batches(part, order, 2, "cpu", drop_last=True, workers=workers, crop=crop)
        return torch.cat([items for _, items in parts])

    one = windows(0, 0)
    assert one.shape == (4, 12, 5, 24, 32)
    assert torch.equal(windows(0, 2), one)
    assert not torch.equal(windows(4, 0), one)  # another epoch, other windows


def test_rows_run_on_video_files_from_training_to_the_mean_of_three_splits(ucf) -> None:
    settings = Settings(
        image_size=16, augmentation="cmc", arch="tiny", stem="cifar", dim=16, epochs=2, batch_size=4, milestones=(),
        knn_every=0, action={"epochs": 1, "batch_size": 4, "frames": 3, "crops": 10},
    )  # fmt: skip
    recipe = methods.get("cmc/video_vd").override({"views.stack": 4, "views.k": 2})
    speed = Speed(workers=0)
    trained = pretrain(recipe, settings, ucf.pretrain, seed=0, speed=speed, log=quiet)
    assert [row["step"] for row in trained.history] == [1, 2]
    evaluation = tasks.Evaluation(recipe.views, modality(ucf.train).augmentation(settings), ucf)
    measured = tasks.Action.of(settings).score(trained.encoders, evaluation)["action"]
    assert measured.items == 6  # two test videos in each of three splits
    assert measured.value in {100 * k / 6 for k in range(7)}
    assert tasks.Action.of(settings).protocol(evaluation)["splits"] == 3
