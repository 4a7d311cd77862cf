"""Pictures and tables of pictures as files, written for readers to read."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image


def encoded(picture: Image.Image | np.ndarray, kind: str = "PNG", **save: Any) -> bytes:
    """The bytes of a file that shows a picture, or an array of ``[H, W]`` or ``[H, W, 3]``."""
    stream = io.BytesIO()
    (picture if isinstance(picture, Image.Image) else Image.fromarray(picture)).save(stream, kind, **save)
    return stream.getvalue()


def write_parquet(
    path: Path, pictures: list[bytes], labels: list[object] | None = None, *, image: str = "image",
    label: str = "label", names: list[str] | None = None, **more: list[object],
) -> None:  # fmt: skip
    """A table as Hugging Face stores pictures; bytes in further columns are pictures, too."""
    columns = {image: pictures, **({} if labels is None else {label: labels}), **more}
    table = pa.table({
        name: [{"bytes": value, "path": None} if isinstance(value, bytes) else value for value in values]
        for name, values in columns.items()
    })  # fmt: skip
    if names is not None:
        features = {image: {"_type": "Image"}, label: {"names": names, "_type": "ClassLabel"}}
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)
