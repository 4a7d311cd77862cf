"""Clips: generated ones with exact flow, TV-L1, eight bits, tracks, and video files in their published layout."""

import math
import wave
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from contrastbook.figures import pictures as draw
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
from made_runs import generator, quiet


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


class CountedEstimates:
    """TV-L1 that counts the clips it is asked for, and is interrupted at one of them."""

    def __init__(self, interrupted_at: int | None = None) -> None:
        self.tvl1 = flow.tvl1
        self.interrupted_at = interrupted_at
        self.asked = 0

    def __call__(self, clip: Tensor) -> Tensor:
        self.asked += 1
        if self.asked == self.interrupted_at:
            raise KeyboardInterrupt
        return self.tvl1(clip)


@pytest.fixture
def five(made) -> Tensor:
    """Three frames of each of five clips."""
    clips, _, _ = made
    return clips[:5, :3, :3]


def estimates_file() -> Path:
    (path,) = (cache_folder() / "flow").iterdir()
    return path


def test_kept_estimates_are_those_of_each_clip_and_the_last_frame_is_at_rest(five) -> None:
    estimates = flow.cached_tvl1(five, 5.0)
    expected = torch.stack([flow.quantise(flow.tvl1(clip), 5.0) for clip in five])
    assert torch.equal(estimates[:, :-1], expected)
    assert bool((estimates[:, -1] == flow.ZERO).all())


def test_an_estimate_that_was_cut_off_goes_on_behind_the_clips_that_were_kept(five, monkeypatch) -> None:
    monkeypatch.setattr(flow, "_KEEP_EVERY", 2)
    whole = flow.cached_tvl1(five, 5.0)
    estimates_file().unlink()

    until_the_fourth = CountedEstimates(interrupted_at=4)
    monkeypatch.setattr(flow, "tvl1", until_the_fourth)
    with pytest.raises(KeyboardInterrupt):
        flow.cached_tvl1(five, 5.0)
    assert estimates_file().suffix == ".safetensors"

    rest = CountedEstimates()
    rest.tvl1 = until_the_fourth.tvl1
    monkeypatch.setattr(flow, "tvl1", rest)
    assert torch.equal(flow.cached_tvl1(five, 5.0), whole)
    assert rest.asked == 3  # the first two were kept


def test_flow_is_estimated_once_for_each_bound(five, monkeypatch) -> None:
    counted = CountedEstimates()
    monkeypatch.setattr(flow, "tvl1", counted)
    first = flow.cached_tvl1(five, 5.0)
    assert counted.asked == 5
    assert torch.equal(flow.cached_tvl1(five, 5.0), first)
    assert counted.asked == 5
    flow.cached_tvl1(five, 4.0)
    assert counted.asked == 10


def test_a_damaged_file_of_estimates_is_named(five) -> None:
    flow.cached_tvl1(five, 5.0)
    path = estimates_file()
    path.write_bytes(b"damaged")
    with pytest.raises(CorruptFileError, match=path.name):
        flow.cached_tvl1(five, 5.0)


def test_a_clip_of_one_frame_has_no_flow() -> None:
    assert flow.tvl1(torch.zeros(1, 3, 8, 8, dtype=torch.uint8)).shape == (0, 2, 8, 8)


def test_directions_are_shown_as_colours() -> None:
    field = torch.zeros(2, 1, 4)  # at rest, to the right, half as fast to the left, down
    field[0, 0, 1] = 2.0
    field[0, 0, 2] = -1.0
    field[1, 0, 3] = 2.0
    (colours,) = torch.as_tensor(draw.flow_colours(field, 2.0))
    white, red, half_cyan, down = [1, 1, 1], [1, 0, 0], [0.5, 1, 1], [0.5, 1, 0]
    torch.testing.assert_close(colours, colours.new_tensor([white, red, half_cyan, down]))


def test_a_strip_shows_all_flows_at_one_scale() -> None:
    frames = torch.zeros(3, 3, 4, 4, dtype=torch.uint8)
    slow = torch.ones(3, 2, 4, 4)
    figure = draw.strip(frames, {"slow": slow, "fast": 2 * slow}, [0, 2], title="t")
    pictures = [axes.images[0].get_array() for axes in figure.axes if axes.images]
    _, _, slow_at_0, _, fast_at_0, _, _ = pictures  # two frames, two flows of each, and the legend
    assert [axes.get_title() for axes in figure.axes[:2]] == ["t = 0", "t = 2"]
    assert 1 - slow_at_0.min() == pytest.approx((1 - fast_at_0.min()) / 2)


# Sets of clips --------------------------------------------------------------------------------------------------------


@pytest.fixture
def whole(made) -> ClipSet:
    clips, labels, _ = made
    return ClipSet("made", clips, labels, actions.ACTIONS, 5.0, {"rate": torch.rand(64, generator=generator())})


def test_a_part_of_a_set_of_clips_has_as_many_of_each_class_and_their_factors(whole) -> None:
    part = whole.take(24, seed=1)
    assert len(part) == 24
    assert part.labels.bincount().tolist() == [3] * 8
    assert len(part.factors["rate"]) == 24
    numbers = [whole.factors["rate"].tolist().index(rate) for rate in part.factors["rate"].tolist()]
    assert torch.equal(part.items, whole.items[numbers])


def test_a_set_of_clips_is_known_by_its_clips_and_not_by_its_name(whole) -> None:
    renamed = ClipSet("another", whole.items, whole.labels, actions.ACTIONS, 5.0)
    assert renamed.fingerprint == whole.fingerprint
    assert whole.take(24, seed=1).fingerprint != whole.fingerprint
    assert replace(whole, bound=4.0).fingerprint != whole.fingerprint


@pytest.mark.parametrize(("length", "count", "frames"), [(16, 4, [2, 6, 10, 14]), (3, 5, [0, 0, 1, 2, 2]), (5, 1, [2])])
def test_frames_are_spread_over_the_middles_of_equal_parts(length, count, frames) -> None:
    assert videos.spread(length, count).tolist() == frames


def test_spread_clips_have_those_frames_only(whole) -> None:
    assert torch.equal(whole.spread(4)[7], whole.items[7][[2, 6, 10, 14]])
    with pytest.raises(ArgumentError, match="frames=0"):
        whole.spread(0)


def test_what_are_no_clips_is_refused(whole) -> None:
    with pytest.raises(ArgumentError, match=r"items=.*uint8 of shape \[N, T, 5, H, W\]"):
        replace(whole, items=whole.items[:, :, :3])
    with pytest.raises(ArgumentError, match="labels="):
        replace(whole, labels=whole.labels[1:])


def test_views_of_clips_are_not_of_pictures() -> None:
    pictures = torch.zeros(3, 2, 8, 8, dtype=torch.uint8)
    with pytest.raises(NotApplicableError, match="views are of clips"):
        ClipAugmentation(augmentation("cmc", 8)).random(pictures)


# Views of clips -------------------------------------------------------------------------------------------------------


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


def drawn(flip: bool) -> ViewDraws:
    """A crop of 16 rows and 8 columns."""
    draws = ClipAugmentation(augmentation("cmc", 8)).draw(moving_ramp(), generator(0))
    return replace(draws, boxes=torch.tensor([[4, 8, 16, 8]]), flip=torch.tensor([flip]))


UNCENTRED = ClipAugmentation(augmentation("cmc", 8), centred=False)
AT_TWO = torch.tensor([2])


def test_a_flip_mirrors_the_flow_and_turns_the_sign_of_x() -> None:
    straight = UNCENTRED.flow(moving_ramp(), AT_TWO, 2, drawn(flip=False))
    mirrored = UNCENTRED.flow(moving_ramp(), AT_TWO, 2, drawn(flip=True))
    assert straight.shape == (1, 4, 8, 8)
    torch.testing.assert_close(mirrored[:, 0::2], -straight[:, 0::2].flip(-1))
    torch.testing.assert_close(mirrored[:, 1::2], straight[:, 1::2].flip(-1))
    assert straight[0, 0, :, -1].mean() > 0.4


def test_a_resized_crop_scales_the_flow_to_pixels_of_the_view() -> None:
    view = UNCENTRED.flow(moving_ramp(), AT_TWO, 2, drawn(flip=False))
    x = 2 * 8 / 8  # 8 columns stay 8
    y = 1 * 8 / 16  # 16 rows become 8
    bound = 4
    assert view[0, :2, 4, -1].tolist() == pytest.approx([x / bound, y / bound], abs=0.01)
    assert view[0, :2, 4, 0].tolist() == pytest.approx([0, 0], abs=1e-6)  # at rest


def test_the_mean_of_each_field_is_subtracted_unless_it_is_to_stay() -> None:
    centred = ClipAugmentation(augmentation("cmc", 8))
    clip = moving_ramp()
    expected = UNCENTRED.flow(clip, AT_TWO, 2, None)
    expected = expected - expected.mean((2, 3), keepdim=True)
    torch.testing.assert_close(centred.flow(clip, AT_TWO, 2, None), expected)


@pytest.mark.parametrize("seed", range(6))
def test_frames_and_flow_of_a_view_are_cropped_alike(seed: int) -> None:
    clip = moving_ramp()
    clip[0, 1, 3] = 40 + clip[0, 1, 0] // 2  # a flow that looks like the frame
    draws = UNCENTRED.draw(clip, generator(seed))
    at = torch.tensor([1])
    red = 255 * UNCENTRED.frame(clip, at, draws)[0, 0]
    to_the_right = UNCENTRED.flow(clip, at, 1, draws)[0, 0]
    width_of_crop = draws.boxes[0, 3]
    growth = 8 / width_of_crop
    if draws.flip[0]:
        growth = -growth
    levels = to_the_right / growth * 127 + flow.ZERO
    torch.testing.assert_close(levels, 40 + red / 2, atol=1.0, rtol=0)


@pytest.mark.parametrize(("stack", "numbers"), [(4, [2, 3, 4, 5]), (3, [3, 4, 5]), (1, [4])])
def test_a_stack_of_flows_is_around_its_frame(stack: int, numbers: list[int]) -> None:
    numbered = torch.zeros(1, 9, 5, 8, 8, dtype=torch.uint8)
    for t in range(9):
        numbered[0, t, 3] = flow.ZERO + t
        numbered[0, t, 4] = flow.ZERO
    whole_picture = ClipAugmentation(augmentation("none", 8), centred=False)
    view = whole_picture.flow(numbered, torch.tensor([4]), stack, None)
    assert (view[0, 0::2, 0, 0] * 127).round().tolist() == numbers
    assert not view[0, 1::2].any()


# Tracks of signs ------------------------------------------------------------------------------------------------------

SHORT = (1, 2)  # class and track that lacks a frame


def write_tracks(root: Path) -> None:
    """Five tracks of each of two classes; red tells the class, green the track and blue the frame."""
    rows = []
    for label in (0, 1):
        for track in range(5):
            frames = 29 if (label, track) == SHORT else 30
            for frame in range(frames):
                shown = Image.new("RGB", (32, 32), (100 * label, 20 * track, 5 * frame))
                rows.append((encoded(shown), label, track, frame))
    rows.reverse()  # neither tracks nor frames in order
    images, labels, tracks, frames = map(list, zip(*rows, strict=True))
    write_parquet(root / "gtsrb32" / "train.parquet", images, labels, track=tracks, frame=frames)


@pytest.fixture
def tracks(tmp_path) -> Splits:
    write_tracks(tmp_path)
    return data.load("gtsrb32_clips", tmp_path)


def class_and_track(clip: Tensor) -> tuple[int, int]:
    """What its colours tell, the same in all frames."""
    (red,) = clip[:, 0].unique().tolist()
    (green,) = clip[:, 1].unique().tolist()
    return red // 100, green // 20


def test_each_track_is_a_clip_and_stays_on_one_side(tracks) -> None:
    train = [class_and_track(clip) for clip in tracks.train.items]
    test = [class_and_track(clip) for clip in tracks.test.items]
    assert len(train) == 8
    assert len(test) == 2
    assert sorted(train + test) == [(label, track) for label in (0, 1) for track in range(5)]
    assert [label for label, _ in train] == tracks.train.labels.tolist()
    assert [label for label, _ in test] == tracks.test.labels.tolist()


def test_a_clip_of_a_track_has_every_second_frame_in_order(tracks) -> None:
    for clip in torch.cat([tracks.train.items, tracks.test.items]):
        assert clip.shape == (15, 5, 32, 32)
        frames = (clip[:, 2, 0, 0] // 5).tolist()
        assert frames == list(range(0, 30, 2))  # the last one of 29 is number 28, too


def test_tracks_that_are_not_there_are_named(tmp_path) -> None:
    with pytest.raises(MissingDataError, match=r"gtsrb32.*does not exist"):
        data.load("gtsrb32_clips", tmp_path)


# Video files ----------------------------------------------------------------------------------------------------------


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
    """Two actions in the layout of UCF101; split k tests group k. The videos differ in their first brightness."""
    lists = root / "ucf101" / "ucfTrainTestlist"
    lists.mkdir(parents=True)
    (lists / "classInd.txt").write_text("1 Archery\r\n2 Biking\r\n")
    for number, video in enumerate(UCF):
        write_video(root / "ucf101" / "UCF-101" / video, frames, brightness=5 * number)
    for split in (1, 2, 3):
        train = []
        test = []
        for video, label in UCF.items():
            if f"_g0{split}_" in video:
                test.append(video)
            else:
                train.append(f"{video} {label}")
        (lists / f"trainlist0{split}.txt").write_text("\n".join(train) + "\n")
        (lists / f"testlist0{split}.txt").write_text("\n".join(test) + "\n")


UCF = {  # labels count from 1
    "Archery/v_Archery_g01_c01.avi": 1,
    "Archery/v_Archery_g02_c01.avi": 1,
    "Archery/v_Archery_g03_c01.avi": 1,
    "Biking/v_Biking_g01_c01.avi": 2,
    "Biking/v_Biking_g02_c01.avi": 2,
    "Biking/v_Biking_g03_c01.avi": 2,
}


@pytest.fixture
def small_frames(monkeypatch) -> None:
    monkeypatch.setattr(videos, "HEIGHT", 24)
    monkeypatch.setattr(videos, "WIDTH", 32)


@pytest.fixture
def ucf(tmp_path, small_frames) -> Splits:
    write_ucf(tmp_path)
    return data.load("ucf101", tmp_path)


def frame_numbers(part: VideoFiles, index: int, clip: Tensor) -> list[float]:
    """Which frames of a video of UCF101 these are, by their brightness."""
    first = 5 * list(UCF).index(part.paths[index])
    brightness = clip[:, :3].float().mean((1, 2, 3))
    return ((brightness - first) / 10).tolist()


def test_ucf101_has_the_three_splits_of_its_authors(ucf) -> None:
    folds = ucf.folds()
    assert len(folds) == 3
    for split, (train, test) in enumerate(folds, 1):
        assert train.classes == test.classes == ("Archery", "Biking")
        assert set(test.paths) == {video for video in UCF if f"_g0{split}_" in video}
        assert set(train.paths) == set(UCF) - set(test.paths)
        for part in (train, test):
            assert [1 + label for label in part.labels.tolist()] == [UCF[path] for path in part.paths]


def test_pre_training_sees_the_training_part_of_the_first_split(ucf) -> None:
    assert ucf.pretrain is ucf.train
    assert ucf.train is ucf.folds()[0][0]


def test_an_item_is_the_window_of_twelve_frames_in_the_middle_of_its_video(ucf) -> None:
    clip = ucf.train[0]
    assert clip.shape == (12, 5, 24, 32)
    assert frame_numbers(ucf.train, 0, clip) == pytest.approx(range(1, 13), abs=0.4)  # of 14


def test_a_window_to_train_on_starts_anywhere(ucf) -> None:
    starts = set()
    for seed in range(20):
        start, *_ = frame_numbers(ucf.train, 0, ucf.train.window(0, generator(seed)))
        starts.add(round(start))
    assert starts == {0, 1, 2}


def test_spread_frames_are_those_of_the_whole_video_without_flow(ucf) -> None:
    clip = ucf.train.spread(7)[0]
    assert frame_numbers(ucf.train, 0, clip) == pytest.approx(range(1, 14, 2), abs=0.4)
    assert bool((clip[:, 3:] == flow.ZERO).all())


def test_a_still_is_one_frame_without_flow(ucf) -> None:
    clip = ucf.train.still()[0]
    assert clip.shape == (1, 5, 24, 32)
    assert bool((clip[:, 3:] == flow.ZERO).all())


def test_no_flow_is_estimated_where_none_is_asked_for(ucf, monkeypatch) -> None:
    def refuse(frames: Tensor) -> Tensor:
        raise AssertionError("flow was estimated")

    monkeypatch.setattr(videos, "tvl1", refuse)
    ucf.train.still()[0]
    ucf.train.spread(3)[0]


@pytest.fixture
def decoded(monkeypatch) -> list[Path]:
    """The videos that were decoded, one after the other."""
    paths: list[Path] = []
    decode = videos.decode

    def watched(path: Path) -> Tensor:
        paths.append(path)
        return decode(path)

    monkeypatch.setattr(videos, "decode", watched)
    return paths


def test_a_video_is_decoded_once_and_its_frames_are_those_that_were_kept_with_flow(ucf, decoded) -> None:
    part = ucf.train
    first = part[0]
    assert torch.equal(part[0], first)
    part.spread(3)[0]
    assert decoded == [part.path(0)]


def test_a_video_of_which_frames_alone_were_kept_is_decoded_again_where_flow_is_asked_for(ucf, decoded) -> None:
    part = ucf.train
    part.spread(3)[1]
    part.spread(3)[1]
    assert decoded == [part.path(1)]
    part[1]
    assert decoded == [part.path(1), part.path(1)]


def test_a_kept_file_that_is_damaged_says_what_to_do(tmp_path, ucf) -> None:
    ucf.train[0]
    (kept,) = (tmp_path / "cache" / "contrastlab" / "videos").iterdir()
    assert kept.name.endswith(".flow.zip")
    kept.write_bytes(kept.read_bytes()[:100])
    with pytest.raises(CorruptFileError, match="delete it to decode its video anew"):
        ucf.train[0]


def test_flow_of_a_video_is_that_of_its_frames(tmp_path, small_frames) -> None:
    frames = textured((1, 0))[:, :, :24, :32]
    path = tmp_path / "made.flow.zip"
    path.write_bytes(videos._pack(frames, 20.0))
    part = VideoFiles("x", tmp_path, (), torch.zeros(0, dtype=torch.int64), ("a",))
    with zipfile.ZipFile(path) as packed:
        first, last = part._read(packed, [0, 1])
    kept = flow.restore(first[3:], 20.0)
    assert (kept - flow.tvl1(frames)[0]).abs().mean() < 0.2
    assert kept[0].mean() > 0.5  # to the right
    assert bool((last[3:] == flow.ZERO).all())


def test_a_video_that_is_none_is_named_and_nothing_is_kept(tmp_path, ucf) -> None:
    path = ucf.train.path(0)
    path.write_bytes(b"RIFF....AVI nothing")
    with pytest.raises(CorruptFileError, match=f"{path.name}: no frame can be decoded"):
        ucf.train[0]
    assert not [file for file in (tmp_path / "cache").rglob("*") if file.is_file()]


def test_a_file_without_pictures_is_named(ucf) -> None:
    path = ucf.train.path(0)
    with wave.open(str(path), "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        sound.writeframes(bytes(1600))
    with pytest.raises(CorruptFileError, match=f"{path.name}: no frame can be decoded: it has no video stream"):
        ucf.train[0]


def test_a_video_that_is_shorter_than_a_window_is_named(ucf) -> None:
    path = ucf.train.path(0)
    write_video(path, 5)
    with pytest.raises(CorruptFileError, match=f"{path.name} has 5 frames: a window of 12 is wanted"):
        ucf.train[0]


def write_hmdb(root: Path) -> Path:
    """Two actions of four videos in the layout of HMDB51, and the folder of the lists: 1 trains, 2 tests, 0 neither."""
    lists = root / "hmdb51" / "testTrainMulti_7030_splits"
    lists.mkdir(parents=True)
    parts_of_split = {1: (1, 2, 0, 1), 2: (2, 1, 1, 0), 3: (2, 1, 1, 0)}
    for action in ("brush_hair", "cartwheel"):
        for number in range(4):
            write_video(root / "hmdb51" / "hmdb51_org" / action / f"{action}_{number}.avi", 13)
        for split, parts in parts_of_split.items():
            lines = [f"{action}_{number}.avi {part} \n" for number, part in enumerate(parts)]
            (lists / f"{action}_test_split{split}.txt").write_text("".join(lines))
    return lists


def of_both_actions(*numbers: int) -> list[str]:
    """The paths of videos of HMDB51."""
    paths = [f"brush_hair/brush_hair_{number}.avi" for number in numbers]
    return paths + [f"cartwheel/cartwheel_{number}.avi" for number in numbers]


def test_hmdb51_has_the_splits_of_its_authors(tmp_path, small_frames) -> None:
    write_hmdb(tmp_path)
    (train, test), (second_train, second_test), _ = data.load("hmdb51", tmp_path).folds()
    assert train.classes == ("brush_hair", "cartwheel")
    assert list(train.paths) == of_both_actions(0, 3)
    assert list(test.paths) == of_both_actions(1)
    assert list(second_train.paths) == of_both_actions(1, 2)
    assert list(second_test.paths) == of_both_actions(0)
    assert train.labels.tolist() == [0, 0, 1, 1]
    assert test.labels.tolist() == [0, 1]


def test_a_list_of_hmdb51_with_another_part_is_named(tmp_path, small_frames) -> None:
    lists = write_hmdb(tmp_path)
    (lists / "cartwheel_test_split2.txt").write_text("cartwheel_0.avi 7\n")
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


def test_windows_of_files_are_the_same_for_any_number_of_workers_and_others_in_another_epoch(
    tmp_path, small_frames
) -> None:
    write_ucf(tmp_path, frames=20)
    part = data.load("ucf101", tmp_path).train

    def windows(items_before: int, workers: int) -> Tensor:
        crop = loading.Crops(augmentation("cmc", 16), 1, seed=0, before=items_before)
        order = torch.tensor([3, 1, 0, 2])
        batches = loading.batches(part, order, 2, "cpu", drop_last=True, workers=workers, crop=crop)
        return torch.cat([items for _, items in batches])

    first_epoch = windows(0, 0)
    assert first_epoch.shape == (4, 12, 5, 24, 32)
    assert torch.equal(windows(0, 2), first_epoch)
    assert not torch.equal(windows(4, 0), first_epoch)


SETTINGS = Settings(
    image_size=16,
    augmentation="cmc",
    arch="tiny",
    stem="cifar",
    dim=16,
    epochs=2,
    batch_size=4,
    milestones=(),
    knn_every=0,
    action={"epochs": 1, "batch_size": 4, "frames": 3, "crops": 10},
)


def test_rows_run_on_video_files_from_training_to_the_mean_of_three_splits(ucf) -> None:
    recipe = methods.get("cmc/video_vd").override({"views.stack": 4, "views.k": 2})
    trained = pretrain(recipe, SETTINGS, ucf.pretrain, seed=0, speed=Speed(workers=0), log=quiet)
    assert [row["step"] for row in trained.history] == [1, 2]
    task = tasks.Action.of(SETTINGS)
    evaluation = tasks.Evaluation(recipe.views, modality(ucf.train).augmentation(SETTINGS), ucf)
    measured = task.score(trained.encoders, evaluation)["action"]
    assert measured.items == 6  # two test videos in each of three splits
    assert measured.value in [100 * hits / 6 for hits in range(7)]
    assert task.protocol(evaluation)["splits"] == 3
