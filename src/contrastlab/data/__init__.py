"""A name becomes labelled items: generated, bundled, published, or the user's own.

>>> splits = load("shapes", n_train=100, n_test=20)
>>> splits.train.images.shape
torch.Size([100, 3, 32, 32])
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.metadata import entry_points
from pathlib import Path
from types import MappingProxyType

from contrastlab.data.annotated import AnnotatedSplits
from contrastlab.data.annotated_sources import ANNOTATED, load_annotated, load_own
from contrastlab.data.clips.sets import ClipSplits
from contrastlab.data.clips.sources import VIDEOS, load_videos
from contrastlab.data.images.div2k import load_div2k
from contrastlab.data.images.sets import ImageSet, Splits, StreamedImages
from contrastlab.data.images.sources import (
    PUBLISHED,
    load_digits,
    load_folder,
    load_imagenet,
    load_published,
    load_tinyimagenet,
)
from contrastlab.data.images.tables import load_parquet
from contrastlab.data.images.transfer import TARGETS, load_target
from contrastlab.data.limits import cache_folder, own_path
from contrastlab.data.scenes.sources import NAMES as SCENES
from contrastlab.data.scenes.sources import load_scenes
from contrastlab.data.speech.sources import SPEECH, load_waves
from contrastlab.data.text.sources import TEXTS, load_sentences
from contrastlab.errors import ContrastLabError, CorruptFileError, MissingDataError, reject, unknown, unreadable

__all__ = [
    "OWN",
    "SOURCES",
    "ImageSet",
    "Request",
    "Source",
    "Splits",
    "StreamedImages",
    "data_root",
    "load",
    "modality_of",
    "names",
]


@dataclass(frozen=True)
class Request:
    """What is asked of a source; the arguments of :func:`load`, checked, with its folder resolved."""

    name: str
    root: Path
    download: bool
    n_train: int | None
    n_test: int | None
    seed: int

    @property
    def path(self) -> str:
        """What stands behind the colon of a user's own data."""
        return self.name.partition(":")[2]

    def limit(self, splits: Splits) -> Splits:
        """A whole data set, cut to the sizes asked for."""
        cut = splits.limited if isinstance(splits, AnnotatedSplits) else partial(_limit, splits)
        return cut(self.n_train, self.n_test, self.seed)


@dataclass(frozen=True)
class Source:
    """Where data of one name come from.

    Args:
        modality: see :mod:`contrastlab.data.modalities`.
        read: makes the splits, cut to the sizes asked for.
    """

    modality: str
    read: Callable[[Request], Splits]


def _whole(modality: str, read: Callable[[Request], Splits]) -> Source:
    return Source(modality, lambda asked: asked.limit(read(asked)))


_PICTURES = {
    "digits": lambda asked: load_digits(),
    **dict.fromkeys(PUBLISHED, lambda asked: load_published(asked.name, asked.root, asked.download)),
    **dict.fromkeys(TARGETS, lambda asked: load_target(asked.name, asked.root)),
    "tinyimagenet": lambda asked: load_tinyimagenet(asked.root),
    "div2k": lambda asked: load_div2k(asked.root),
    **dict.fromkeys(("imagenet", "imagenet100"), lambda asked: load_imagenet(asked.name, asked.root)),
    **dict.fromkeys(ANNOTATED, lambda asked: load_annotated(asked.name, asked.root)),
}

SOURCES: Mapping[str, Source] = MappingProxyType({
    **{name: _whole("image", read) for name, read in _PICTURES.items()},
    **dict.fromkeys(VIDEOS, _whole("clip", lambda asked: load_videos(asked.name, asked.root))),
    **dict.fromkeys(SCENES, Source("scene", lambda a: load_scenes(a.name, a.root, a.n_train, a.n_test, a.seed))),
    **dict.fromkeys(TEXTS, _whole("sentence", lambda asked: TEXTS[asked.name](asked.root))),
    **dict.fromkeys(SPEECH, _whole("waveform", lambda asked: SPEECH[asked.name](asked.root))),
})  # fmt: skip
"""Name of a data set to its source, of the package's own; see :func:`names`."""

OWN: Mapping[str, Source] = MappingProxyType({
    "folder": _whole("image", lambda asked: load_folder(asked.name, asked.path)),
    "parquet": _whole("image", lambda asked: load_parquet(asked.name, asked.path)),
    "annotated": _whole("image", lambda asked: load_own(asked.name, own_path(asked.name, asked.path))),
    "sentences": _whole("sentence", lambda asked: load_sentences(asked.name, asked.path)),
    "waves": _whole("waveform", lambda asked: load_waves(asked.name, asked.path)),
})  # fmt: skip
"""Kind of a user's own data, ``<kind>:<path>``, to its source."""


def names() -> tuple[str, ...]:
    """Names that :func:`load` knows, ascending; ``<kind>:<path>`` of :data:`OWN` comes on top.

    They are those of :data:`SOURCES`, and of the mappings like it that installed packages register in the entry point
    group ``contrastlab.data``.
    """
    return tuple(sorted(_sources()))


@cache
def _sources() -> Mapping[str, Source]:
    added = [entry.load() for entry in entry_points(group="contrastlab.data")]
    return {name: source for sources in (*added, SOURCES) for name, source in sources.items()}


def _source(name: str) -> Source | None:
    kind, _, location = name.partition(":")
    return OWN.get(kind) if location else _sources().get(name)


def modality_of(name: str) -> str:
    """The modality of a data set by its name, without loading it; ``image`` for a name that is none."""
    source = _source(name)
    return source.modality if source else "image"


def data_root(root: str | Path | None = None) -> Path:
    """Where published data sets are looked for.

    ``root`` if given, else the environment variable ``CONTRASTLAB_DATA``, else ``contrastlab`` in the user's cache
    folder (``XDG_CACHE_HOME``, by default ``~/.cache``).
    """
    if root is None:
        root = os.environ.get("CONTRASTLAB_DATA") or cache_folder()
    return own_path("data root", root)


def load(
    name: str, root: str | Path | None = None, *, download: bool = True, n_train: int | None = None,
    n_test: int | None = None, seed: int = 0,
) -> Splits:  # fmt: skip
    """Loads a data set by name.

    - ``shapes``: generated, 3×32×32, 10 silhouettes, 10,000 / 2,000 unless sizes are given
    - ``plain_shapes``: the same, larger and all in warm colours on cold ones, see ``contrastbook.made.shapes.PLAIN``
    - ``digits``: bundled with scikit-learn, 1×8×8, 10 classes, stratified 80/20 split
    - ``cifar10``, ``cifar100``, ``fashionmnist``, ``mnist``: published splits, 32×32 RGB and 28×28 grey
    - ``stl10``: 3×96×96; ``pretrain`` is train and the 100,000 unlabelled images (label −1)
    - ``tinyimagenet``: 3×64×64, 200 synsets, from ``tiny-imagenet-200``; ``test`` is its validation part
    - ``div2k``: large pictures without labels, streamed, from ``DIV2K/DIV2K_train_HR``
    - ``imagenet``: ILSVRC 2012 image folders, streamed; ``test`` is its validation part
    - ``imagenet100``: the 100 synsets of CMC's Table 6 from the same folders
    - ``aircraft``, ``cubirds``, ``dtd``, ``fungi``, ``mscoco``, ``trafficsign``, ``vggflower``: of ring Table 3, files
    - ``trafficsign_tracks``: the same signs, split so that no physical sign is on both sides
    - ``dtd10``, ``flowers17``, ``gtsrb32``, ``mnist_t10k``, ``omniglot_small``, ``coco200``, ``tinyimagenet32``: copies
    - ``shapes_recoloured``: generated, 3×24×24: ``shapes`` in complementary colours, magnified
    - ``clips``: generated, 16 frames of 3×32×32 and exact flow, 8 actions, 1,000 / 400 unless sizes are given
    - ``gtsrb32_clips``: tracks of traffic signs as clips, 15 frames of 3×32×32 and TV-L1 flow, split by track
    - ``ucf101``, ``hmdb51``: video files with three official splits; frames and TV-L1 flow are kept in the user's cache
    - ``rooms``: generated scenes with depth, normals and classes of pixels, see :mod:`contrastbook.made.rooms`;
      ``rooms_validation`` scores on others, to choose settings by
    - ``camvid``: street frames with classes of pixels
    - ``nyu_depth_v2``: the labelled frames with depth, normals computed from it, and classes of pixels, streamed
    - ``wikipedia``, ``wikisplit``, ``grammar``: sentences; ``sts``, ``grammar_pairs``: scored pairs of sentences
    - ``librispeech``, ``fsdd``, ``voices`` and more: speech, see :mod:`contrastlab.data.speech.sources`
    - ``waves:<folder>``: sound files, see :func:`contrastlab.data.speech.sources.load_waves`
    - ``sentences:<file>``: a sentence a line, see :func:`contrastlab.data.text.sources.load_sentences`
    - ``folder:<path>``: image files, see :func:`contrastlab.data.images.sources.load_folder`
    - ``parquet:<path>``: Hugging Face parquet, see :func:`contrastlab.data.images.tables.load_parquet`
    - annotated pictures, for detection: ``coco_instances``, ``coco_keypoints``, ``voc07``, ``lvis``, ``bccd`` and
      ``bccd_val``, ``lsp``, ``coco200_persons``, ``coco200_things``; generated are ``silhouettes`` (also
      ``_keypoints``, ``_lvis``, ``_1200``)
    - ``annotated:<path>``: COCO's, LVIS's or VOC's form, see :func:`contrastlab.data.annotated_sources.load_own`

    Published sets are read from ``<root>/<name>/`` if parquet files with ``train`` and ``test`` in their names lie
    there, else from torchvision's layout under ``<root>``. Decoded parquet is kept in memory between calls.

    Args:
        name: see the list.
        root: folder of the published sets, see :func:`data_root`.
        download: whether torchvision may fetch one of the sets of 28 to 96 pixels into ``root``, if it is not there.
        n_train: images in ``pretrain``, and at most so many in ``train``; None is all. Generated sets have any number.
        n_test: images in ``test``; None is all.
        seed: of the random subset, and of the generated sets. It does not change a held-out split.

    Returns:
        The three splits. ``pretrain`` and ``train`` are one object unless some images are unlabelled.

    Raises:
        UnknownNameError: no data set has that name; near matches are listed.
        MissingDataError: the data are not where they were looked for; the message says where and what to do.
        ArgumentError: ``n_train``, ``n_test`` or ``seed`` is out of range.
        CorruptFileError: a stored image or table cannot be read.
        StorageError: a file or folder that may not be read.
        TooLargeError: a file would take too much memory, see :mod:`contrastlab.data.limits`.
    """
    if not isinstance(name, str) or (not name.isascii() and not _writable(name)):
        raise reject("name", name, "a text in UTF-8, see contrastlab.data.names()")
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise reject("seed", seed, "an integer in [0, 2**32)")
    for argument, value in (("n_train", n_train), ("n_test", n_test)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise reject(argument, value, "an integer of at least 1, or None for all")
    source = _source(name)
    if source is None:
        raise unknown("data set", name, (*names(), *(f"{kind}:<path>" for kind in OWN)))
    with _named(name):
        return source.read(Request(name, data_root(root), download, n_train, n_test, seed))


@contextmanager
def _named(name: str) -> Iterator[None]:
    """What a reader raises on damaged files, as an error that names the data set."""
    try:
        yield
    except ContrastLabError:
        raise
    except FileNotFoundError as error:
        raise MissingDataError(f"{name}: {error.filename} does not exist") from error
    except PermissionError as error:
        raise unreadable(f"{name}: {error.filename or 'a file'}", error) from error
    except (OSError, EOFError, ValueError, LookupError, csv.Error) as error:
        raise CorruptFileError(f"{name}: its files cannot be read: {_told(error)}") from error


def _told(error: Exception) -> str:
    """The kind of an error and what it says: ``repr`` of an OSError leaves out the path."""
    return f"{type(error).__name__}: {error}" if isinstance(error, OSError) else repr(error)


def _writable(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:  # a byte of the command line that is no UTF-8
        return False
    return True


def _limit(splits: Splits, n_train: int | None, n_test: int | None, seed: int) -> Splits:
    if n_train is not None and n_train > len(splits.pretrain):
        raise reject("n_train", n_train, f"at most the {len(splits.pretrain)} training images of {splits.name}")
    if n_train is not None and isinstance(splits, ClipSplits):
        splits = replace(splits, further=())  # a subset of the first official split is none of the others
    if n_train is not None:
        pretrain = splits.pretrain.take(n_train, seed)
        if not splits.labelled:
            return type(splits)(splits.name, pretrain, note=splits.note)  # type: ignore[call-arg]
        shared = splits.train is splits.pretrain
        train = pretrain if shared else splits.train.take(min(n_train, len(splits.train)), seed)
        splits = replace(splits, pretrain=pretrain, train=train)
    if n_test is not None:
        if n_test > len(splits.test):
            raise reject("n_test", n_test, f"at most the {len(splits.test)} test images of {splits.name}")
        splits = replace(splits, test=splits.test.take(n_test, seed))
    return splits
