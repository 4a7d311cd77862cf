"""Files that people have, changed field by field: whatever stands in them, an error of this package says so.

Each try changes one or two fields of a valid file (another type, a number out of range, NaN, a text, nothing at all,
or no such field), with a checksum that fits, and lets what reads such files in a command read it. What is read is a
number, or a refusal that a command ends with in status 2; anything else would be "a fault of contrastlab".
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import json
import math
import random
import shutil
import struct
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image

from contrastlab import __main__, data, encoders, tables
from contrastlab.pictures import foreign_networks as foreign
from contrastlab.support.checksums import with_checksum
from contrastlab.tables import embed, exchange, results
from torments.cells import job, where
from torments.figures import Figures, Log

STRANGE = (
    None,
    True,
    False,
    -1,
    0,
    7,
    2**70,
    1e308,
    -0.5,
    math.nan,
    math.inf,
    "",
    "x",
    "\0",
    "../..",
    "x" * 5000,
    [],
    {},
    [None],
    [[1, 2]],
    {"a": 1},
    "NaN",
    "1",
)


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where a field is in nested mappings and lists, outermost first."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = [at] if at else []
    for name, each in inner:
        found += places(each, (*at, name))
    return found


def changed(whole: Any, draw: random.Random, strange: tuple[Any, ...] = STRANGE) -> tuple[Any, str]:
    """A copy with one or two fields changed or left out, and what was done, in words."""
    other, said = copy.deepcopy(whole), []
    for _ in range(draw.choice((1, 1, 1, 2))):
        every = places(other)
        if not every:
            break
        *path, last = draw.choice(every)
        inside = other
        for name in path:
            inside = inside[name]
        value = draw.choice(strange)
        if draw.randrange(5) == 0:
            del inside[last]
            said.append(f"without {(*path, last)}")
        else:
            inside[last] = value
            said.append(f"{(*path, last)} = {str(value)[:30]!r}")
    return other, ", ".join(said)


class Files:
    """A valid file of each kind in a folder; a method changes one by ``draw``, reads it, and says what it changed."""

    def __init__(self, folder: Path) -> None:
        tables.run(job("queue, linear"), where(folder / "runs"), log=lambda line: None)
        (self.run,) = (path.parent for path in folder.glob("runs/encoders/*/run.json"))
        (self.result,) = folder.glob("runs/cells/*/*/*.json")
        self.root, self.folder = folder / "runs", folder
        self.record = json.loads((self.run / "run.json").read_text(encoding="utf-8"))
        self.scored = json.loads(self.result.read_text(encoding="utf-8"))
        self.backbone = encoders.build("resnet18", width=0.05).backbone
        self.tries = {
            "run": self.change_run,
            "result": self.change_result,
            "annotations": self.change_annotations,
            "table": self.change_table,
            "sound": self.change_sound,
            "weights": self.change_weights,
        }

    def change_run(self, draw: random.Random) -> str:
        """The record of a run, read by a list of runs, an export, and what embeds pictures."""
        other, said = changed(self.record, draw)
        (self.run / "run.json").write_text(json.dumps(_signed(other)), encoding="utf-8")
        out = self.folder / "exported"
        shutil.rmtree(out, ignore_errors=True)
        reader = draw.randrange(3)
        if reader == 0:
            __main__._encoders(argparse.Namespace(out=[str(self.root)], form=draw.choice(("json", "csv", None))))
        elif reader == 1:
            exchange.export(self.run, "hub-folder", out)
        else:
            embed(self.run, torch.zeros(1, 3, 32, 32, dtype=torch.uint8))
        return said

    def change_result(self, draw: random.Random) -> str:
        """A result, read from its folder."""
        other, said = changed(self.scored, draw)
        self.result.write_text(json.dumps(_signed(other)), encoding="utf-8")
        results.find(self.root)
        return said

    def change_annotations(self, draw: random.Random) -> str:
        """A set in COCO's form, read to its last object."""
        place = self.folder / "annotated"
        place.mkdir(exist_ok=True)
        Image.new("RGB", (16, 16)).save(place / "a.png")
        thing = {
            "id": 1,
            "image_id": 1,
            "category_id": 1,
            "bbox": [1, 1, 9, 9],
            "iscrowd": 0,
            "area": 81,
            "segmentation": [[1, 1, 9, 1, 9, 9]],
            "keypoints": [2, 3, 2],
        }
        whole = {
            "images": [{"id": 1, "file_name": "a.png", "width": 16, "height": 16}],
            "annotations": [thing],
            "categories": [{"id": 1, "name": "cell", "keypoints": ["tip"]}],
        }
        other, said = changed(whole, draw)
        (place / "train.json").write_text(json.dumps(other), encoding="utf-8")
        (place / "test.json").write_text(json.dumps(whole), encoding="utf-8")
        train = data.load(f"annotated:{place}").train
        for k in range(len(train)):
            train[k], train.target(k, masks=True)
        return said

    def change_table(self, draw: random.Random) -> str:
        """Pictures in parquet."""
        content = io.BytesIO()
        Image.new("RGB", (8, 8)).save(content, "PNG")
        pictures = [{"bytes": content.getvalue(), "path": "a.png"} for _ in range(4)]
        other, said = changed({"image": pictures, "label": [0, 1, 0, 1]}, draw, (*STRANGE, b"", b"x"))
        try:
            pq.write_table(pa.table(other), self.folder / "a.parquet")
        except (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError):
            return f"no table: {said}"  # Arrow itself cannot hold it
        data.load(f"parquet:{self.folder / 'a.parquet'}")
        return said

    def change_sound(self, draw: random.Random) -> str:
        """A WAV file, any two bytes of whose header are other ones."""
        head = b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, 16_000, 32_000, 2, 16) + b"data" + struct.pack("<I", 80)
        content = bytearray(b"RIFF" + struct.pack("<I", len(head) + 80) + head + bytes(80))
        at = draw.randrange(len(content) - 80)
        content[at : at + 2] = draw.randbytes(2)
        place = self.folder / "sounds"
        for name in ("a/1.wav", "a/2.wav", "b/1.wav", "b/2.wav"):
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(content)
        data.load(f"waves:{place}")
        return f"bytes {at} to {at + 1}"

    def change_weights(self, draw: random.Random) -> str:
        """A checkpoint of another trainer."""
        state = self.backbone.state_dict()
        name = draw.choice(list(state))
        value = state[name]
        tensors = (
            value * math.nan,
            -value.double() - 1,
            value.to(torch.int8),
            value.to(torch.complex64),
            value > 0,
            value.flatten()[:0],
            value.to("meta"),
            value.to_sparse(),
            value.half(),
            value.flatten(),
            value.bfloat16() * 1e38,
        )
        state = {**state, name: draw.choice((*tensors, *STRANGE))}
        whole, said = changed({"epoch": 3, "args": {"lr": 0.1}, "best": torch.ones(1)}, draw)
        torch.save({**whole, draw.choice(("state_dict", "net", "model", "weights", "x")): state}, self.folder / "w.pth")
        foreign.fill(self.backbone, self.folder / "w.pth", "resnet18")
        return f"{name}, {said}"


def _signed(record: Any) -> Any:
    """A record with the checksum of what it says now; without it where that is no record any more."""
    try:
        return with_checksum(record) if isinstance(record, dict) else record
    except (ValueError, TypeError):
        return record


def run(count: int, seed: int, folder: Path, log: Log) -> Figures:
    """``count`` changes, spread over kinds of files.

    Args:
        count: of changes.
        seed: of the draws.
        folder: for the files.
        log: takes lines of progress.
    """
    figures, files, state = Figures(), Files(folder), random.Random(seed)
    kinds = list(files.tries)
    for number in range(count):
        kind, draw_seed = kinds[number % len(kinds)], state.randrange(2**32)
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            try:
                files.tries[kind](random.Random(draw_seed))
                figures.count("unchanged", kind)
            except Exception as error:  # whatever is raised is what is looked for
                status, line = __main__._explain(error)
                outcome = "failed" if status == __main__.FAULT else "refused"
                figures.count(outcome, kind, f"draw {draw_seed}: {line}")
        if number % 200 == 199:
            log(f"fields: {number + 1}/{count}, {figures.failed} failed")
    return figures
