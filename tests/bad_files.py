"""Makers of the files that ``tests/bad_input.toml`` names: a maker's name, and its arguments, to bytes."""

import io
import json
import struct
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from made_files import encoded


def text(content: str = "", repeat: int = 1, encoding: str = "utf-8") -> bytes:
    return (content * repeat).encode(encoding)


def cut(of: dict[str, Any], share: float) -> bytes:
    """The first part of another file."""
    whole = made(of)
    return whole[: int(share * len(whole))]


def sparse(size: int) -> int:
    """A number in place of bytes: a file of that size, all holes, that takes no space."""
    return size


def picture(
    mode: str = "RGB", size: tuple[int, int] = (8, 8), colour: Any = 0, form: str = "PNG", **save: Any
) -> bytes:
    """One colour all over; the upper left pixel of a picture larger than one is left black."""
    image = Image.new(mode, tuple(size), tuple(colour) if isinstance(colour, list) else colour)
    if "orientation" in save:
        exif = Image.Exif()
        exif[0x0112] = save.pop("orientation")
        save["exif"] = exif
    return encoded(image, form, **save)


def sixteen_bit(value: int, size: int = 8, form: str = "PNG") -> bytes:
    return encoded(np.full((size, size), value, np.uint16), form)


def palette(colour: list[int], transparent: bool = False) -> bytes:
    image = Image.new("P", (8, 8), 1)
    image.putpalette([0, 0, 0, *colour])
    return encoded(image, "PNG", **({"transparency": bytes([255, 0])} if transparent else {}))


def animation(colours: list[list[int]]) -> bytes:
    frames = [Image.new("RGB", (8, 8), tuple(colour)) for colour in colours]
    return encoded(frames[0], "GIF", save_all=True, append_images=frames[1:], duration=100)


def bomb(width: int, height: int) -> bytes:
    """A whole PNG of one bit a pixel: a few dozen kilobytes for any size."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    rows = zlib.compressobj(9)
    row = bytes(1 + (width + 7) // 8)
    pixels = b"".join(rows.compress(row) for _ in range(height)) + rows.flush()
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def parquet(
    images: list[dict[str, Any] | None] | None = None, labels: list[Any] | None = None, copies: int = 1,
    column: str = "label", as_text: bool = False, metadata: str | None = None,
) -> bytes:  # fmt: skip
    """Hugging Face's form; an empty image is null, and without ``images`` a column of numbers is in their place."""
    fields: dict[str, Any] = {}
    if images is None:
        fields["number"] = pa.array([1, 2, 3])
    else:
        rows = [made(each) if each else None for each in images * copies]
        kind = pa.struct([("bytes", pa.string() if as_text else pa.binary()), ("path", pa.string())])
        values = [{"bytes": row.decode("latin-1") if as_text and row else row, "path": "a.png"} for row in rows]
        fields["image"] = pa.array(values, kind)
    if labels is not None:
        fields[column] = pa.array(labels * copies)
    table = pa.table(fields)
    if metadata is not None:
        table = table.replace_schema_metadata({"huggingface": metadata})
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()


def wav(
    frames: int = 1600, rate: int = 16_000, channels: int = 1, bits: int = 16, values: list[int] | None = None,
    declared: int | None = None, form: int = 1,
) -> bytes:  # fmt: skip
    """PCM, or by ``form`` 3 floats by their bits; every frame has ``values``, one a channel, by default silence."""
    silence = 128 if bits == 8 else 0
    own = values or [silence] * channels
    frame = b"".join(v.to_bytes(bits // 8, "little", signed=bits > 8) for v in own)
    content = frame * frames
    align = channels * bits // 8
    layout = struct.pack("<HHIIHH", form, channels, rate, (rate * align) % 2**32, align, bits)
    size = len(content) if declared is None else declared
    body = b"WAVEfmt " + struct.pack("<I", len(layout)) + layout + b"data" + struct.pack("<I", size) + content
    return b"RIFF" + struct.pack("<I", len(body)) + body


def flac(samples: int) -> bytes:
    """A tenth of a second whose header says that it has ``samples``."""
    import soundfile

    buffer = io.BytesIO()
    soundfile.write(buffer, np.zeros(1600), 16_000, format="FLAC")
    content = bytearray(buffer.getvalue())
    # STREAMINFO begins 8 bytes in; its last 36 bits before the checksum count the samples
    content[8 + 13] = (content[8 + 13] & 0xF0) | (samples >> 32)
    content[8 + 14 : 8 + 18] = (samples & 0xFFFFFFFF).to_bytes(4, "big")
    return bytes(content)


def coco(
    image: Mapping[str, Any] | None = None, item: Mapping[str, Any] | None = None, leave: list[str] | None = None,
    ids: list[int] | None = None, joints: list[str] | None = None,
) -> bytes:  # fmt: skip
    """COCO's form of one picture with one object, with changes."""
    first, category = ids or [1, 1]
    whole = {"id": first, "file_name": "a.png", "width": 8, "height": 8, **(image or {})}
    thing = {"id": 1, "image_id": first, "category_id": category, "bbox": [1, 1, 4, 4], **(item or {})}
    kind = {"id": category, "name": "cell", **({"keypoints": joints} if joints else {})}
    file = {"images": [whole], "annotations": [thing], "categories": [kind]}
    return json.dumps({key: value for key, value in file.items() if key not in (leave or [])}).encode()


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


def voc(corners: list[str] | None = None, name: str = "cell", head: str = "", leave_size: bool = False) -> bytes:
    """VOC's form of one picture with one object; ``head`` comes before the first element."""
    size = "" if leave_size else "<size><width>8</width><height>8</height></size>"
    sides = zip(("xmin", "ymin", "xmax", "ymax"), corners or ["1", "1", "5", "5"], strict=True)
    box = "".join(f"<{side}>{value}</{side}>" for side, value in sides)
    thing = f"<object><name>{name}</name><bndbox>{box}</bndbox></object>"
    return f"{head}<annotation>{size}{thing}</annotation>".encode()


MAKERS: Mapping[str, Callable[..., bytes | int]] = {
    maker.__name__: maker
    for maker in (
        text, cut, sparse, picture, sixteen_bit, palette, animation, bomb, parquet, wav, flac, coco, nested, voc,
    )
}  # fmt: skip


def made(spec: Mapping[str, Any]) -> Any:
    """What a table of the TOML file describes: ``make`` names the maker, the rest are its arguments."""
    return MAKERS[spec["make"]](**{name: value for name, value in spec.items() if name != "make"})
