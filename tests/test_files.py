"""Files are whole or absent, carry a checksum, and leave nothing of a killed writer."""

import fcntl
import json
import os

import pytest
import torch
from safetensors.torch import load_file, save_file

from contrastlab.support import checksums, files
from contrastlab.support.errors import CorruptFileError, StorageError
from contrastlab.train.checkpoint import Artefact

TENSORS = {"a": torch.arange(6.0).view(2, 3), "b": torch.tensor([1, 2])}
VALUES = {"step": 3, "text": "checksum", "nested": {"checksum": "0" * 64}}


def test_tensors_and_values_come_back_and_each_of_them_counts_in_the_fingerprint(tmp_path) -> None:
    path = files.write_tensors(tmp_path / "x.safetensors", TENSORS, VALUES)
    tensors, values = files.read_tensors(path)
    assert values == VALUES
    assert {name: t.tolist() for name, t in tensors.items()} == {name: t.tolist() for name, t in TENSORS.items()}
    assert torch.equal(load_file(path)["a"], TENSORS["a"])
    again = files.write_tensors(tmp_path / "y.safetensors", TENSORS, VALUES)
    assert path.read_bytes() == again.read_bytes()
    assert files.tensors_checksum(path) == files.tensors_checksum(again)
    base = files.fingerprint(TENSORS, {"seed": 0})
    assert base == files.fingerprint(dict(TENSORS), {"seed": 0})
    changed = {**TENSORS, "b": torch.tensor([1, 3])}
    others = [files.fingerprint(changed, {"seed": 0}), files.fingerprint(TENSORS, {"seed": 1}),
              files.fingerprint({"a": TENSORS["a"], "c": TENSORS["b"]}, {"seed": 0}),
              files.fingerprint({**TENSORS, "a": TENSORS["a"].view(3, 2)}, {"seed": 0})]  # fmt: skip
    assert len({base, *others}) == 5


def test_every_single_byte_of_a_tensor_file_counts(tmp_path) -> None:
    path = files.write_tensors(tmp_path / "x.safetensors", TENSORS, {"step": 3})
    whole = path.read_bytes()
    name = whole.index(b"checksum")
    for place in range(len(whole)):
        if name <= place < name + len("checksum"):
            continue  # without the word it is a file of an older version, whose tensors and values are these
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        with pytest.raises(CorruptFileError, match=str(path)):
            files.read_tensors(path)


def test_what_has_no_checksum_is_read_and_what_has_one_is_verified(tmp_path) -> None:
    path = tmp_path / "old.safetensors"
    save_file(TENSORS, path, {"values": json.dumps({"step": 3})})
    assert files.read_tensors(path)[1] == {"step": 3}
    assert files.tensors_checksum(path) is None
    record = checksums.with_checksum({"x": 1.5, "counts": {10: 1, 9: 2}, "text": "ü"})
    raw = json.loads(json.dumps(record))
    assert checksums.verified(raw) == {"x": 1.5, "counts": {"10": 1, "9": 2}, "text": "ü"}
    assert checksums.verified({"x": 2}) == {"x": 2}
    with pytest.raises(ValueError, match="altered"):
        checksums.verified({**raw, "x": 1.25})


def test_what_a_killed_writer_left_is_removed_and_what_a_living_one_holds_is_not(tmp_path) -> None:
    path = tmp_path / "run[1].json"
    (tmp_path / "run[1].jsonabc.tmp").write_text("half")
    (tmp_path / "run1.jsonabc.tmp").write_text("of another file")
    with (tmp_path / "run[1].jsonxyz.tmp").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        files.write_whole(path, "whole")
    assert path.read_text() == "whole"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run1.jsonabc.tmp", "run[1].json", "run[1].jsonxyz.tmp"]


def test_a_checkpoint_that_cannot_be_removed_is_named_once_the_record_is_there(tmp_path) -> None:
    stored = Artefact(tmp_path, "x.safetensors", "run.json")
    (tmp_path / "checkpoint.safetensors").mkdir()  # unlink refuses it
    stored.write_record({})
    with pytest.raises(StorageError, match=r"cannot remove .*checkpoint\.safetensors: .*; run again"):
        stored.remove_checkpoint()
    assert stored.read_record() == {"schema": 1}
    stored.remove_checkpoint(may_stay=True)


def test_a_file_may_be_read_by_whom_the_umask_admits(tmp_path) -> None:
    before = os.umask(0o027)
    try:
        path = files.write_whole(tmp_path / "x.json", "whole")
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_writer_keeps_its_file_from_others_until_it_is_in_place(tmp_path, monkeypatch) -> None:
    path, sync = tmp_path / "x.json", os.fsync
    depth = []

    def meanwhile(number: int) -> None:
        sync(number)
        if not depth:
            depth.append(1)
            files.write_whole(path, "second")

    monkeypatch.setattr(os, "fsync", meanwhile)
    files.write_whole(path, "first")
    assert path.read_text() == "first"
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"]
