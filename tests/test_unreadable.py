"""Files that cannot be read: all are listed at once, and a run can leave them out, by its note and by its hash."""

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from contrastlab import __main__ as command
from contrastlab import data, tables
from contrastlab.pictures.items import fingerprint
from contrastlab.support import doctor
from contrastlab.support.errors import ArgumentError, CorruptFileError, MissingDataError
from made_runs import LOCAL, quiet, refused

BROKEN = ("cats/1.png", "dogs/0.png", "dogs/3.png")


def shade(level: int) -> bytes:
    content = io.BytesIO()
    Image.new("L", (16, 16), level).save(content, "PNG")
    return content.getvalue()


def animals(folder: Path, each: int = 10, broken: tuple[str, ...] = BROKEN) -> Path:
    for kind in ("cats", "dogs"):
        (folder / kind).mkdir(parents=True)
        for number in range(each):
            (folder / kind / f"{number}.png").write_bytes(shade(number))
    for name in broken:
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(whole[: len(whole) // 2])
    return folder


def wave_file(path: Path, content: bytes = b"\1\2" * 400) -> None:
    import wave

    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(content)


def rows(path: Path, images: list[bytes | None], labels: list[int]) -> Path:
    kind: Any = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    column = pa.array([{"bytes": content, "path": None} for content in images], type=kind)
    pq.write_table(pa.table({"image": column, "label": labels}), path)
    return path


def test_doctor_lists_every_picture_sound_and_row_that_cannot_be_read(tmp_path, capsys) -> None:
    animals(tmp_path / "pictures")
    wave_file(tmp_path / "sounds/whole.wav")
    (tmp_path / "sounds/broken.wav").write_bytes(b"RIFF")
    rows(tmp_path / "table.parquet", [shade(1), None, b"no picture"], [0, 1, 1])
    (tmp_path / "other.parquet").write_bytes(b"PAR1")
    assert command.main(["doctor", "--folder", str(tmp_path)]) == 2
    said = capsys.readouterr()
    lines = said.out.splitlines()
    expected = [f"pictures/{name}" for name in BROKEN]
    expected += ["other.parquet", "table.parquet: row 1", "table.parquet: row 2", "sounds/broken.wav"]
    assert len(lines) == len(expected)
    for line, name in zip(lines, expected, strict=True):
        assert line.startswith(str(tmp_path / name))
    assert f"7 of {20 + 1 + 3 + 2} files and rows cannot be read; contrastlab run --skip-unreadable" in said.err
    whole = animals(tmp_path / "whole", 2, ())
    assert list(doctor.unreadable(whole)) == [f"{whole}: 4 files and rows, all can be read"]
    with pytest.raises(ArgumentError, match="expected a folder"):
        list(doctor.unreadable(tmp_path / "absent"))


@pytest.mark.parametrize("kind", ["folder", "unlabelled"])
def test_skipped_pictures_are_counted_and_the_data_are_what_was_read(kind, tmp_path) -> None:
    damaged = animals(tmp_path / "a" / "animals")
    with pytest.raises(CorruptFileError, match=r"cats/1\.png"):
        data.load(f"{kind}:{damaged}")
    skipped = data.load(f"{kind}:{damaged}", skip_unreadable=True)
    assert "3 unreadable image files skipped" in skipped.note
    without = animals(tmp_path / "b" / "animals")
    for name in BROKEN:
        (without / name).unlink()
    plain = data.load(f"{kind}:{without}")
    assert len(plain.pretrain) == len(skipped.pretrain) == (13 if kind == "folder" else 17)
    assert fingerprint(plain) == fingerprint(skipped)
    whole = data.load(f"{kind}:{animals(tmp_path / 'c' / 'animals', broken=())}", skip_unreadable=True)
    assert "skipped" not in whole.note
    assert fingerprint(whole) != fingerprint(skipped)


def test_the_note_names_what_was_skipped_and_counts_classes_without_it(tmp_path) -> None:
    broken = (*(f"dogs/{number}.png" for number in range(10)), "cats/0.png")
    splits = data.load(f"folder:{animals(tmp_path, broken=broken)}", skip_unreadable=True)
    assert "cats 9" in splits.note
    assert "11 unreadable image files skipped: cats/0.png, dogs/0.png" in splits.note
    assert "and others" in splits.note
    assert splits.pretrain.classes == ("cats",)
    every = tuple(f"{kind}/{number}.png" for kind in ("cats", "dogs") for number in range(2))
    with pytest.raises(MissingDataError, match="no image that can be read"):
        data.load(f"folder:{animals(tmp_path / 'none', 2, every)}", skip_unreadable=True)


def test_sounds_and_rows_are_skipped_too(tmp_path) -> None:
    for number in range(6):
        wave_file(tmp_path / f"sounds/{'ab'[number % 2]}/{number}.wav")
    (tmp_path / "sounds/a/0.wav").write_bytes(b"RIFF")
    splits = data.load(f"waves:{tmp_path / 'sounds'}", skip_unreadable=True)
    assert len(splits.train) + len(splits.test) == 5
    assert "1 unreadable sound files skipped: a/0.wav" in splits.note
    path = rows(tmp_path / "t.parquet", [shade(k) for k in range(6)] + [None, b"no"], [0, 1] * 4)
    with pytest.raises(ArgumentError, match="row 6 of 8 has no image"):
        data.load(f"parquet:{path}")
    splits = data.load(f"parquet:{path}", skip_unreadable=True)
    assert len(splits.train) + len(splits.test) == 6
    assert "images stored as PNG; 2 unreadable images skipped" in splits.note


def test_a_run_skips_by_its_option_and_says_so(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    folder = animals(tmp_path / "animals", 40)
    what = ["run", "ring/table1", "--dataset", f"folder:{folder}", "--profile", "smoke", "--rows", "random"]
    what += ["--jobs", "1", "--no-references", "--set", "image_size=16"]
    assert command.main(what) == 2
    assert "cannot be decoded" in capsys.readouterr().err
    assert command.main([*what, "--skip-unreadable"]) == 0
    assert "3 unreadable image files skipped" in capsys.readouterr().out


def test_what_has_no_files_of_ones_own_is_not_skipped(tmp_path) -> None:
    (tmp_path / "s.txt").write_text("a b\nc d\n", encoding="utf-8")
    options = {**LOCAL, "out_dir": tmp_path, "log": quiet, "skip_unreadable": True}
    refused(
        (lambda: data.load("digits", skip_unreadable=True), ArgumentError, "expected False with digits"),
        (
            lambda: data.load(f"sentences:{tmp_path}/s.txt", skip_unreadable=True),
            ArgumentError,
            "False with sentences:",
        ),
        (lambda: tables.table("ring", 1, "shapes", **options), ArgumentError, "expected False with shapes"),
    )
