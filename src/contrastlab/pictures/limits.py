"""How much one file may ask for once it is decoded.

A small file can ask for any amount of memory, so its size is read from its header and refused before it is decoded.
The limits are far above the largest item of any published set.
"""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

from contrastlab.support.errors import TooLargeError

MAX_PIXELS = 2**26  #: Of a picture: 8192×8192, 200 MB as RGB. Pillow's own limit is higher, and only a warning.
MAX_SET_PIXELS = 2**31  #: Of all pictures of a set that is decoded into memory: 6.4 GB as RGB, above Imagenette's.
MAX_SAMPLES = 2**26  #: Of a sound, all channels, as stored and as resampled: 70 minutes at 16,000 a second.
RATES = (1_000, 768_000)  #: Samples a second of a sound: what is resampled from others takes any amount of memory.
MAX_ROWS = 2**24  #: Of a parquet file: a thousand bytes can stand for any number.
MAX_FRAMES = 10_000  #: Of a video: six minutes; decoded, 2.6 GB.
MAX_BYTES = 2**28  #: Of a file in an archive, unpacked, and of a sound file.
MAX_CLASSES = 100_000  #: Of a data set: five times those of the largest published one.


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
