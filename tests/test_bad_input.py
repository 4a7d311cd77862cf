"""Bad input gets one line that names it, or a stated meaning: every row of ``bad_input.toml``."""

import ast
import io
import json
import os
import queue
import resource
import sys
import threading
import time
import tomllib
from dataclasses import replace
from pathlib import Path
from pkgutil import resolve_name
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from pydantic import ValidationError

from bad_files import coco, made, picture, voc
from contrastlab import __main__, data, methods, papers
from contrastlab.domains import sets
from contrastlab.pictures.domain import modality
from contrastlab.settings import Settings
from contrastlab.support import errors
from contrastlab.tables import expand, notebook, pool

TABLE = tomllib.loads((Path(__file__).parent / "bad_input.toml").read_text(encoding="utf-8"))
CALLS = [
    {"entry": entry, "arguments": arguments, "names": [named] if isinstance(named, str) else named}
    | ({"error": kind[0]} if kind else {})
    for entry, arguments, named, *kind in TABLE["calls"]
]
ROWS = TABLE["row"] + CALLS
KEYS = {
    "about", "entry", "arguments", "plan", "files", "links", "coco", "voc", "paths", "variables", "names", "error",
    "accepted", "value",
}  # fmt: skip
NO_UTF8 = "\ue000"  # stands for the byte FF in the name of a file


def title(row: dict[str, Any]) -> str:
    given = row.get("arguments") or row.get("plan") or row.get("coco") or row.get("voc") or "nothing"
    return f"{ROWS.index(row)} {row['entry']} {row.get('about') or row.get('accepted') or given}"


def filled(value: Any, folder: Path) -> Any:
    if isinstance(value, str):
        return value.replace("{tmp}", str(folder))
    if isinstance(value, list):
        return [filled(each, folder) for each in value]
    if not isinstance(value, dict):
        return value
    value = {k: filled(v, folder) for k, v in value.items()}
    match value:
        case {"zeros": shape}:
            return torch.zeros(shape)
        case {"literal": text}:
            return ast.literal_eval(text)
        case {"call": name, "with": arguments}:
            return called(name, arguments)
        case {"call": name}:
            return known(name)
    return value


def known(name: str) -> Any:
    """What has this name, below contrastlab unless it begins with another package."""
    return resolve_name(name if name.split(".")[0] in ("contrastbook", "pathlib", "torch") else f"contrastlab.{name}")


def called(name: str, arguments: Any) -> Any:
    return known(name)(**arguments) if isinstance(arguments, dict) else known(name)(*arguments)


def write(row: dict[str, Any], folder: Path) -> None:
    contents = {name: made(spec) for name, spec in row.get("files", {}).items()}
    if "coco" in row:
        same = {key: row["coco"][key] for key in ("ids", "joints") if key in row["coco"]}
        contents |= {"train.json": coco(**row["coco"]), "test.json": coco(**same), "a.png": picture()}
    if "voc" in row:
        changes = dict(row["voc"])
        listed = changes.pop("listed", "a").encode()
        contents |= {"ImageSets/Main/trainval.txt": listed, "ImageSets/Main/test.txt": listed}
        contents |= {"Annotations/a.xml": voc(**changes), "JPEGImages/a.jpg": picture(form="JPEG")}
    for name, content in contents.items():
        path = os.fsencode(folder / name).replace(NO_UTF8.encode(), b"\xff")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        try:
            with open(path, "wb") as file:
                file.truncate(content) if isinstance(content, int) else file.write(content)
        except OSError:
            if NO_UTF8 not in name:  # macOS has no such names, so nobody can meet one there
                raise
            pytest.skip(f"this file system has no file called {name!r}")
    for name, target in row.get("links", {}).items():
        (folder / name).symlink_to(folder / target, target_is_directory=True)


def load(**arguments: Any) -> dict[str, Any]:
    """A data set, read to its last item, in a few words."""
    splits = data.load(arguments.pop("name"), download=False, **arguments)
    parts = [splits.train, splits.test] if splits.labelled else [splits.pretrain]
    source = splits.pretrain
    items = [part[k] if hasattr(part, "__getitem__") else part.items[k] for part in parts for k in range(len(part))]
    known: dict[str, Any] = {"items": len(items), "classes": list(source.classes)}
    first = items[0]
    if source.modality == "image":
        known |= {"channels": len(first), "size": list(first.shape[1:]), "pixel": first[:, 0, 0].tolist()}
    elif source.modality == "waveform":
        view = modality(source).augmentation(Settings()).plain(source.items[:1])
        known |= {"length": len(first), "sample": int(first[-1]), "finite": bool(view.isfinite().all())}
    elif source.modality == "sentence":
        view = modality(source).augmentation(Settings()).random(source.items, torch.Generator())
        known |= {"texts": items, "tokens": view.shape[1]}
    else:
        masks = source.annotations.masks
        known |= {"items": len(source), "labels": source.target(0, masks=masks)["labels"].tolist()}
    return known


MINIMAL = {"title": "t", "claim": "c", "columns": {"cifar10": "CIFAR10"}, "rows": {"ring/ir": "IR"}, "settings": {}}


def toml(value: Any) -> str:
    if not isinstance(value, dict):
        return json.dumps(value)
    return "{ " + ", ".join(f"{json.dumps(key)} = {toml(inner)}" for key, inner in value.items()) + " }"


def answer(row: dict[str, Any], folder: Path) -> Any:
    arguments = filled(row.get("arguments", {}), folder)
    if row.get("paths"):
        arguments = [Path(argument) for argument in arguments]
    if row["entry"] == "load":
        return load(**arguments)
    if row["entry"] == "notebook":
        return notebook.open("ring", 1, {"out_dir": "runs", **arguments}).run()
    if row["entry"] == "plan":
        lines = [f"{key} = {toml(value)}" for key, value in {**MINIMAL, **row.get("plan", {})}.items()]
        (text,) = arguments or ["\n".join(lines)]
        return papers.parse_plan(text, "ring/table1.toml").settings("cifar10", "ir")
    if row["entry"] == "changed":
        return replace(arguments.pop("part"), **arguments)
    return called(row["entry"], arguments)


@pytest.mark.parametrize("row", ROWS, ids=title)
def test_bad_input_is_named_or_means_something(row, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    for variable in ("CONTRASTLAB_DATA", "CONTRASTLAB_PROFILE", "CONTRASTLAB_JOBS", "XDG_CACHE_HOME", "RANK"):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in row.get("variables", {}).items():
        monkeypatch.setenv(variable, filled(value, tmp_path))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(methods, "_RECIPES", dict(methods._RECIPES))  # a row may register a recipe of its own
    sets._read_row.cache_clear()
    write(row, tmp_path)
    names = filled(row.get("names", []), tmp_path)
    if row["entry"] == "command":
        said = command(filled(row["arguments"], tmp_path), capsys)
        assert not [*tmp_path.glob("runs/cells"), *tmp_path.rglob("*.safetensors")]  # refused before anything runs
    elif "accepted" in row:
        got = answer(row, tmp_path)
        assert {key: got[key] for key in row["value"]} == row["value"], row["accepted"]
        return
    else:
        with pytest.raises((errors.ContrastLabError, ValidationError)) as caught:
            answer(row, tmp_path)
        said, kind = str(caught.value), type(caught.value).__name__
        assert kind == row.get("error", kind if isinstance(caught.value, errors.ContrastLabError) else "")
    assert names
    assert not [name for name in names if name not in said], said


def command(arguments: list[str], capsys: pytest.CaptureFixture[str], status: int = 2) -> str:
    """The one line of a command that is refused."""
    capsys.readouterr()
    try:
        found = __main__.main(arguments)
    except SystemExit as stop:  # argparse
        found = int(stop.code or 0)
    said = capsys.readouterr().err
    assert found == status, said
    (line,) = said.splitlines()
    assert line.startswith("contrastlab: ")
    assert line.isprintable()
    return line


class OutOfMindError(Exception):
    """Nobody foresaw it."""


def fail(monkeypatch: pytest.MonkeyPatch, verb: str, error: BaseException) -> None:
    _, options, help_ = __main__._COMMANDS[verb]
    monkeypatch.setitem(__main__._COMMANDS, verb, (Mock(side_effect=error), options, help_))


def test_what_nobody_foresaw_is_one_line_and_debug_shows_it(monkeypatch, capsys) -> None:
    fail(monkeypatch, "methods", OutOfMindError("a tensor\nof another library"))
    line = command(["methods"], capsys, status=__main__.FAULT)
    for words in (r"OutOfMindError: a tensor\nof another library", "a fault of contrastlab", "--debug", "doctor"):
        assert words in line
    for arguments in (["--debug", "methods"], ["methods", "--debug"]):
        with pytest.raises(OutOfMindError):
            __main__.main(arguments)
    with pytest.raises(errors.UnknownNameError):
        __main__.main(["show", "ring/tabel1", "--debug"])


@pytest.mark.parametrize(("error", "words"), [
    (PermissionError(13, "Permission denied", "/srv/a"), "Permission denied: '/srv/a'"),
    (MemoryError("9 GB"), "not enough memory (9 GB)"),
    (torch.OutOfMemoryError("CUDA 9 GB"), "not enough memory (CUDA 9 GB)"),
    (RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 GB"), "can't allocate memory: 9 GB); fewer --jobs"),
    (ImportError("libtorch.so: failed to map segment from shared object"), "fewer --jobs and a smaller profile"),
    (RuntimeError("[gloo/transport/tcp/pair.cc:5] Connection closed by peer"), "another process of this run has ended"),
    (OSError(24, "Too many open files"), "Too many open files"),
])  # fmt: skip
def test_what_the_machine_refuses_is_no_fault(error, words, monkeypatch, capsys) -> None:
    fail(monkeypatch, "methods", error)
    assert words in command(["methods"], capsys)
    with pytest.raises(type(error)):
        __main__.main(["methods", "--debug"])


@pytest.mark.parametrize(("arguments", "words", "line"), [
    (["run", "ring/table1"], (), "interrupted; run again to continue"),
    (["doctor"], (), "interrupted"),
    (["run", "ring/table1"], ("stopped at step 3",), "stopped at step 3"),
])  # fmt: skip
def test_ctrl_c_is_told_once_and_is_continued_by_run_alone(arguments, words, line, monkeypatch, capsys) -> None:
    fail(monkeypatch, arguments[0], KeyboardInterrupt(*words))
    assert command(arguments, capsys, status=130) == f"contrastlab: {line}"


def test_a_reader_who_leaves_ends_a_list_and_stops_a_run(monkeypatch, capsys) -> None:
    monkeypatch.setattr(os, "dup2", lambda *descriptors: None)
    monkeypatch.setattr(sys.stdout, "fileno", lambda: 1)
    for name in ("methods", "run"):
        fail(monkeypatch, name, BrokenPipeError())
    assert __main__.main(["methods"]) == 0
    assert "run again to continue" in command(["run", "ring/table1"], capsys)


def test_a_reader_who_leaves_stops_a_run_of_several_processes() -> None:
    def work(update: Any) -> None:
        for _ in range(1000):  # until the thread has read its line
            update(0)
            time.sleep(0.01)

    lines: queue.Queue[tuple[int, str]] = queue.Queue()
    lines.put((0, "ring/ir seed 0: begins"))
    with pool._progress(lines, 2, 1, Mock(side_effect=BrokenPipeError)) as update, pytest.raises(BrokenPipeError):
        work(update)


def test_a_terminal_without_greek_shows_a_number(monkeypatch) -> None:
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, encoding="ascii", write_through=True))
    assert __main__.main(["methods"]) == 0
    assert rb"\u03bb" in shown.getvalue()


def test_a_long_path_of_temporary_files_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool.sys, "platform", "linux")
    monkeypatch.setattr(pool.forkserver, "ensure_running", Mock(side_effect=OSError("AF_UNIX path too long")))
    with pytest.raises(errors.ArgumentError, match="TMPDIR='.*': expected a shorter path"):
        pool._worker_context(2)


def test_a_low_limit_of_addresses_is_told_before_anything_aborts(monkeypatch, capsys) -> None:
    for limit, words in ((3 * 2**30, "ulimit -v=3145728: "), (8 * 2**30, ""), (resource.RLIM_INFINITY, "")):
        monkeypatch.setattr(resource, "getrlimit", lambda _, limit=limit: (limit, limit))
        __main__._warn_of_an_address_limit()
        said = capsys.readouterr().err
        assert said.startswith(f"contrastlab: {words}") if words else not said


def test_a_worker_that_was_stopped_begins_no_further_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, stopping = Mock(side_effect=KeyboardInterrupt("stopped")), threading.Event()
    monkeypatch.setattr(pool, "_STATE", {"execution": None, "stopping": stopping})
    monkeypatch.setattr(pool, "run", begun)
    plan = papers.plan("ring", 1)
    (job,) = expand(plan, "digits", ["ring/ir"], [0], "smoke")
    for words in (("stopped",), ()):
        with pytest.raises(pool._Stopped) as stopped:
            pool._work([job], False)
        assert stopped.value.args == words
    assert begun.call_count == 1
    # of a pool that is ending it asks for nothing more: the queue may be locked by a worker that was killed
    stopping.set()
    pool._STATE.pop("stopped")
    monkeypatch.setattr(pool.os, "_exit", sys.exit)
    with pytest.raises(SystemExit):
        pool._work([job], False)


def test_the_table_has_rows_of_every_kind() -> None:
    assert len(ROWS) >= 80
    texts = [str(row) for row in ROWS]  # nan is not equal to itself
    assert len(set(texts)) == len(texts)
    for row in ROWS:
        assert row.keys() <= KEYS, row
        assert ("names" in row) != ("accepted" in row), row
        assert ("accepted" in row) == ("value" in row), row
    assert {"command", "load", "notebook", "plan"} < {row["entry"] for row in ROWS}
