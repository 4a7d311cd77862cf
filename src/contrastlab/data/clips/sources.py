"""Where real clips come from: tracks of traffic signs, and the video files of UCF101 and HMDB51 as distributed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

import numpy as np
import torch

from contrastlab.data.clips.flow import cached_tvl1
from contrastlab.data.clips.sets import ClipSet, ClipSplits
from contrastlab.data.clips.videos import VideoFiles
from contrastlab.data.images.subsets import hold_out
from contrastlab.data.images.tables import read_parquet
from contrastlab.errors import CorruptFileError, MissingDataError, unknown

TRACK = 15
"""Frames of a traffic sign's clip: every second one of the thirty that were taken of it."""

_TRACK_BOUND = 4.0


def _tracks(name: str, root: Path) -> ClipSplits:
    import pyarrow.parquet as pq

    path = root / "gtsrb32" / "train.parquet"
    if not path.exists():
        raise MissingDataError(
            f"traffic signs as clips: {path} does not exist; the data set gtsrb32 says what it is made from. Set"
            " CONTRASTLAB_DATA (or root=) to the folder that has it."
        )
    table = read_parquet([path])
    known = pq.read_table(path, columns=["track", "frame"])
    track, frame = (torch.from_numpy(known[column].to_numpy().astype(np.int64)) for column in ("track", "frame"))
    groups, of_row = torch.unique(torch.stack([table.labels, track]), dim=1, return_inverse=True)
    numbers = torch.arange(TRACK) * 2
    rows = []
    for group in range(groups.shape[1]):
        mine = (of_row == group).nonzero().flatten()
        mine = mine[frame[mine].argsort()]
        # one track is a frame short: its last frame stands twice
        rows.append(mine[numbers.clamp(max=len(mine) - 1)])
    frames = table.images[torch.stack(rows)]
    flow = cached_tvl1(frames, _TRACK_BOUND)
    whole = ClipSet(name, torch.cat([frames, flow], 2), groups[0], table.classes, _TRACK_BOUND)
    kept, held = hold_out(whole.labels, name=name, classes=table.classes, item="track")
    train, test = whole.subset(kept), whole.subset(held)
    note = (
        "GTSRB, training frames, 32 px JPEG copy; each track is a clip of every second frame, TV-L1 flow; 80/20 split"
    )
    return ClipSplits(name, train, train, test, note)


@dataclass(frozen=True)
class _Listed:
    """Videos of one official split: paths below the folder, and their labels."""

    train: list[tuple[str, int]]
    test: list[tuple[str, int]]


def _lines(path: Path) -> Iterable[str]:
    return (line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip())


def _ucf(lists: Path) -> tuple[tuple[str, ...], list[_Listed]]:
    number = {}
    for line in _lines(lists / "classInd.txt"):
        label, action = line.split()
        number[action] = int(label) - 1  # counted from 1
    splits = []
    for k in (1, 2, 3):
        # training lists say the label, too; test lists do not, and the folder of a video is its action in both
        parts = [
            [(path, number[path.split("/")[0]]) for path in (line.split()[0] for line in _lines(lists / file))]
            for file in (f"trainlist{k:02d}.txt", f"testlist{k:02d}.txt")
        ]
        splits.append(_Listed(*parts))
    return tuple(sorted(number, key=lambda action: number[action])), splits


def _hmdb(lists: Path) -> tuple[tuple[str, ...], list[_Listed]]:
    ending = "_test_split1.txt"
    classes = tuple(sorted(file.name.removesuffix(ending) for file in lists.glob(f"*{ending}")))
    if not classes:
        raise FileNotFoundError(2, "no list", str(lists / f"*{ending}"))
    splits = []
    for k in (1, 2, 3):
        split = _Listed([], [])
        for label, action in enumerate(classes):
            for line in _lines(lists / f"{action}_test_split{k}.txt"):
                video, part = line.split()
                # 1 trains, 2 tests, 0 is in neither part
                if part not in ("0", "1", "2"):
                    raise ValueError(f"{action}_test_split{k}.txt: {line!r} is not a video and 0, 1 or 2")
                if part != "0":
                    (split.train if part == "1" else split.test).append((f"{action}/{video}", label))
        splits.append(split)
    return classes, splits


@dataclass(frozen=True)
class Videos:
    """A set of video files with three official splits.

    Args:
        title: in words.
        videos: folder of one folder an action, below the data root.
        lists: folder of the official splits, below the data root.
        read: the folder of lists to class names and splits.
        source: how to get it.
    """

    title: str
    videos: str
    lists: str
    read: Callable[[Path], tuple[tuple[str, ...], list[_Listed]]]
    source: str


_FILES: Mapping[str, Videos] = MappingProxyType(
    {
        "ucf101": Videos(
            "UCF101", "ucf101/UCF-101", "ucf101/ucfTrainTestlist", _ucf,
            "Unpack UCF101.rar and UCF101TrainTestSplits-RecognitionTask.zip into <root>/ucf101",
        ),
        "hmdb51": Videos(
            "HMDB51", "hmdb51/hmdb51_org", "hmdb51/testTrainMulti_7030_splits", _hmdb,
            "Unpack hmdb51_org.rar, the archive of each action in it, and test_train_splits.rar into <root>/hmdb51",
        ),
    }
)  # fmt: skip

VIDEOS: tuple[str, ...] = ("gtsrb32_clips", *_FILES)
"""Names of the sets of real clips."""


def _from_files(name: str, entry: Videos, root: Path) -> ClipSplits:
    videos, lists = root / entry.videos, root / entry.lists
    hint = f"{entry.source}, or set CONTRASTLAB_DATA (or root=) to the folder that has it".replace("<root>", str(root))
    for folder in (videos, lists):
        if not folder.is_dir():
            raise MissingDataError(f"{entry.title}: {folder} does not exist. {hint}.")
    try:
        classes, splits = entry.read(lists)
    except FileNotFoundError as absent:
        raise MissingDataError(f"{entry.title}: {absent.filename} does not exist. {hint}.") from absent
    except (ValueError, LookupError) as error:
        raise CorruptFileError(f"{entry.title}: a list under {lists} cannot be read: {error!r}") from error
    folds = []
    for k, split in enumerate(splits, 1):
        parts = []
        for part, listed in (("train", split.train), ("test", split.test)):
            if not listed:
                raise CorruptFileError(f"{entry.title}: split {k} under {lists} has no video in its {part} part")
            for path, _ in listed:
                if not (videos / path).is_file():
                    raise MissingDataError(f"{entry.title}: {videos / path} is listed and does not exist. {hint}.")
            labels = torch.tensor([label for _, label in listed])
            parts.append(VideoFiles(f"{name}/{part}{k}", videos, tuple(path for path, _ in listed), labels, classes))
        folds.append((parts[0], parts[1]))
    (train, test), *further = folds
    note = f"{entry.title}, three official splits; pre-training sees the training part of the first; TV-L1 flow"
    return ClipSplits(name, train, train, test, note, tuple(further))


@lru_cache(maxsize=len(VIDEOS))
def load_videos(name: str, root: Path) -> ClipSplits:
    """Splits of one of :data:`VIDEOS`.

    Raises:
        UnknownNameError: no set has that name.
        MissingDataError: a file of it is not there; the message says which and how to get it.
        CorruptFileError: a list of it is not what its authors publish.
    """
    if name == "gtsrb32_clips":
        return _tracks(name, root)
    if name not in _FILES:
        raise unknown("set of videos", name, VIDEOS)
    return _from_files(name, _FILES[name], root)
