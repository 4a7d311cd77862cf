"""How much one file may ask for once it is decoded, which files a folder has, and where files may lie.

A small file can ask for any amount of memory, so its size is read from its header and refused before it is decoded.
The limits are far above the largest item of any published set.
"""

from __future__ import annotations

import gzip
import os
import re
import zipfile
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NoReturn

from contrastlab.support import cache
from contrastlab.support.errors import TooLargeError, check, reject
from contrastlab.support.files import check_regular as check_regular

MAX_PIXELS = 2**26  #: Of a picture: 8192×8192, 200 MB as RGB. Pillow's own limit is higher, and only a warning.
MAX_SET_PIXELS = 2**31  #: Of all pictures of a set that is decoded into memory: 6.4 GB as RGB, above Imagenette's.
MAX_SAMPLES = 2**26  #: Of a sound, all channels, as stored and as resampled: 70 minutes at 16,000 a second.
RATES = (1_000, 768_000)  #: Samples a second of a sound: what is resampled from others takes any amount of memory.
MAX_ROWS = 2**24  #: Of a parquet file: a thousand bytes can stand for any number.
MAX_FRAMES = 10_000  #: Of a video: six minutes; decoded, 2.6 GB.
MAX_BYTES = 2**28  #: Of a file in an archive, unpacked, and of a sound file.
MAX_CLASSES = 100_000  #: Of a data set: five times those of the largest published one.

_ROOTS = r"|\\|^[A-Za-z]:" if os.name == "nt" else ""  # of Windows
_OUTSIDE = re.compile(r"(^|/)\.\.(/|$)|^/|\0" + _ROOTS)
NO_UTF8 = re.compile("[\ud800-\udfff]")  # how Python shows the bytes of a name that are no UTF-8


def check_pixels(width: int, height: int, where: object) -> None:
    """Refuse a picture, or a frame of a video, of more than :data:`MAX_PIXELS`, by a ``TooLargeError``."""
    if width * height > MAX_PIXELS:
        raise TooLargeError(f"{where} has {width}x{height} pixels: accepted are at most {MAX_PIXELS}; make it smaller")


def check_count(count: int, most: int, what: str, where: object) -> None:
    """Refuse more than ``most`` of ``what`` (samples, frames, bytes) in a file, by a ``TooLargeError``."""
    if count > most:
        raise TooLargeError(f"{where} has {count} {what}: accepted are at most {most}; cut it into several files")


def unpacked(archive: zipfile.ZipFile, name: str) -> bytes:
    """A file of a zip archive, of at most :data:`MAX_BYTES`."""
    check_count(archive.getinfo(name).file_size, MAX_BYTES, "bytes", f"{name} in {archive.filename}")
    return archive.read(name)


def gunzipped(path: Path) -> bytes:
    """The content of a gzip file; no more than :data:`MAX_BYTES` are unpacked, more are refused."""
    with gzip.open(path) as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise TooLargeError(f"{path} unpacks to more than the {MAX_BYTES} bytes that are accepted")
    return content


def check_inside(argument: str, paths: Iterable[str]) -> None:
    """Refuse a path that leads out of the folder it is relative to, or that is no UTF-8."""
    for path in paths:
        inside = not _OUTSIDE.search(path)
        check(inside, argument, path, "a path inside the folder of the data, without a root or '..'")
        check(not NO_UTF8.search(path), argument, path, "a file name in UTF-8; rename the file")


def files_below(folder: Path, suffixes: Collection[str]) -> list[Path]:
    """Files anywhere below a folder, links followed, whose ending in lower case is one of ``suffixes``; sorted.

    Names that begin with a dot are left out, and a folder that a link leads back to. A folder that may not be listed
    is an ``OSError``: all files of a folder are read, never those that happen to be readable.
    """
    paths = [path for path in _every_file(folder) if path.suffix.lower() in suffixes]
    for path in paths:
        check_regular(path)
    return paths


def other_files(folder: Path, suffixes: Collection[str]) -> Counter[str]:
    """How many files below a folder have which other ending, in lower case; those without one are called files."""
    counts: Counter[str] = Counter()
    for path in _every_file(folder):
        suffix = path.suffix.lower()
        if suffix not in suffixes:
            counts[suffix or "files"] += 1
    return counts


def _every_file(folder: Path) -> list[Path]:
    """Files anywhere below a folder, as :func:`files_below` walks."""

    def refuse(error: OSError) -> NoReturn:
        raise error  # os.walk would leave out a folder that it cannot list

    paths: list[Path] = []
    seen = set()
    for parent, subfolders, names in os.walk(folder, onerror=refuse, followlinks=True):
        place = os.path.realpath(parent)
        if place in seen:
            subfolders.clear()
            continue
        seen.add(place)
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        paths += [Path(parent, name) for name in sorted(names) if not name.startswith(".")]
    return paths


def matching(folder: Path, pattern: str) -> list[Path]:
    """Files of a folder that match a ``glob`` pattern, sorted; raises ``FileNotFoundError`` if there are none."""
    paths = sorted(folder.glob(pattern))
    if not paths:
        raise FileNotFoundError(2, "no file", str(folder / pattern))
    return paths


def words(path: Path) -> list[list[str]]:
    """The words of each line of a text file that is not blank."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line.split() for line in lines if line.strip()]


def own_path(argument: str, path: str | Path) -> Path:
    """A path that the user gives, ``~`` taken for a home folder; it may lead anywhere."""
    check("\0" not in str(path), argument, str(path), "a path without a zero byte")
    check(str(path), argument, "", "a path; . is the working folder")
    try:
        expanded = Path(path).expanduser()
        expanded.resolve()
    except RuntimeError as error:  # no such home, or links in a circle
        raise reject(argument, str(path), f"a path ({error})") from error
    check_regular(expanded)
    return expanded


def cache_folder() -> Path:
    """``contrastlab`` in the user's cache folder, see :func:`contrastlab.support.cache.root`."""
    return own_path("XDG_CACHE_HOME", cache.root()) / "contrastlab"


def data_root(root: str | Path | None = None) -> Path:
    """Where published sets are looked for: ``root``, else ``CONTRASTLAB_DATA``, else a folder in the user's cache."""
    if root is None:
        root = os.environ.get("CONTRASTLAB_DATA") or cache_folder()
    return own_path("data root", root)
