"""Stored results: whole or absent, unaltered, and found again."""

import json
import os
import re
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError, create_model

from contrastlab.settings import LinearProbe, Settings
from contrastlab.support import cache, checksums, shipped
from contrastlab.support.errors import ArgumentError, CorruptFileError, StorageError
from contrastlab.tables import results

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def make(**changes) -> results.Result:
    times = {"started": NOW, "finished": NOW + timedelta(seconds=7), "wall_s": 7.0}
    provenance = results.Provenance(**results.provenance("cpu"), data_fingerprint="abc", **times)
    fields = {
        "table": "ring/table1", "dataset": "shapes", "method": "ring/ir", "seed": 0, "profile": "smoke",
        "task": "linear", "task_config": {"probe": {"l2": 0.5}}, "protocol": {"solver": "lbfgs"}, "items": 512,
        "settings": Settings().model_dump(), "recipe": {"name": "ring/ir", "keys": {"type": "Bank"}},
        "metrics": {"linear": 31.25}, "curve": [{"loss": 5.5}], "provenance": provenance,
    }  # fmt: skip
    return results.Result(**{**fields, **changes})


def test_a_result_comes_back_from_its_place_which_a_finished_file_takes_by_renaming(
    tmp_path: Path, monkeypatch
) -> None:
    result = make()
    path = results.save(result, tmp_path)
    assert path.relative_to(tmp_path).as_posix() == (
        f"cells/shapes/smoke/ring-ir-seed0-linear-{result.config_hash[:8]}.json"
    )
    assert results.read(path) == result
    assert json.loads(path.read_text())["schema"] == 2
    assert results.save(result, tmp_path) == path
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    seen = []
    replace = os.replace

    def watch(source: Path, target: Path) -> None:
        seen.append((Path(target).exists(), json.loads(Path(source).read_text())["seed"]))
        replace(source, target)

    monkeypatch.setattr(os, "replace", watch)
    results.save(make(seed=4), tmp_path)
    assert seen == [(False, 4)]


def test_hash_depends_on_settings_recipe_task_data_and_processes_only() -> None:
    base = make()
    assert make(seed=3, metrics={"linear": 1.0}, profile="laptop", method="x/y").config_hash == base.config_hash
    assert make(settings=Settings(epochs=299).model_dump()).config_hash != base.config_hash
    assert make(recipe={"name": "ring/iring", "keys": {"type": "Queue"}}).config_hash != base.config_hash
    assert make(recipe={"name": "other/name", "keys": {"type": "Bank"}}).config_hash == base.config_hash
    assert make(task_config={}).config_hash != base.config_hash
    assert make(task="neighbours").config_hash != base.config_hash
    # how encoders are scored is told by the task, and how a recipe is changed by the recipe
    scored = Settings(test_images=3, knn_every=7, linear=LinearProbe(l2=1), overrides={"negatives.k": 5})
    assert make(settings=scored.model_dump()).config_hash == base.config_hash
    for other in ({"data_fingerprint": "abd"}, {"processes": 2}):
        assert make(provenance=base.provenance.model_copy(update=other)).config_hash != base.config_hash
    shuffled = dict(reversed(base.settings.items()))
    assert make(settings=shuffled).config_hash == base.config_hash


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failure_while_writing_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, step) -> None:
    path = results.save(make(), tmp_path)
    before = path.read_bytes()

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(StorageError, match=f"{path}: No space left"):
        results.save(make(metrics={"linear": 99.0}), tmp_path)
    with pytest.raises(StorageError, match="No space left"):
        results.save(make(seed=1), tmp_path)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


@given(st.data())
def test_any_cut_off_file_is_called_corrupt(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = results.save(make(), tmp_path_factory.getbasetemp())
    whole = path.read_bytes().rstrip()
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(CorruptFileError, match="run the cell again") as error:
        results.read(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("text", ["[]", "null", "{}", '"x"', "\udcff", "[" * 100_000])
def test_other_content_is_called_corrupt(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(CorruptFileError, match=r"x\.json"):
        results.read(path)
    with pytest.raises(FileNotFoundError):  # which is not corrupt
        results.read(tmp_path / "none.json")


def test_find_filters_and_ignores_what_is_not_a_result(tmp_path: Path) -> None:
    for change in ({}, {"seed": 1}, {"method": "ring/iring"}, {"dataset": "folder:/a/b"}, {"dataset": "folder:/a-b"},
                   {"profile": "laptop"}, {"task": "neighbours", "table": "ring/table2"}):  # fmt: skip
        results.save(make(**change), tmp_path)
    (tmp_path / "speed.json").write_text("{}")
    assert len(results.find(tmp_path)) == 7
    assert len(results.find([tmp_path, tmp_path])) == 7
    assert len(results.find(tmp_path, table="ring/table1")) == 6
    assert len(results.find(tmp_path, table="ring/table1", dataset="shapes", profile="smoke")) == 3
    assert len(results.find(tmp_path, task="neighbours")) == 1
    assert len(results.find(tmp_path, method="ring/iring")) == 1
    assert [r.dataset for r in results.find(tmp_path, dataset="folder:/a/b")] == ["folder:/a/b"]
    assert [r.seed for r in results.find(tmp_path, seed=1)] == [1]
    assert results.find(tmp_path / "none") == []
    with pytest.raises(ArgumentError, match="root="):
        results.find(tmp_path / "speed.json")


def test_a_folder_that_may_not_be_read_is_not_taken_for_an_empty_one(tmp_path, monkeypatch) -> None:
    closed, read = results.save(make(), tmp_path).parent, os.listdir

    def refuse(folder: Path) -> list[str]:  # root may read every folder
        if Path(folder) == closed:
            raise PermissionError(13, "Permission denied", str(folder))
        return read(folder)

    monkeypatch.setattr(os, "listdir", refuse)
    with pytest.raises(StorageError, match=f"^{closed} may not be read"):
        results.find(tmp_path)


def test_results_never_leave_the_root(tmp_path: Path) -> None:
    path = results.save(make(dataset="folder:../../etc", profile="../x"), tmp_path / "root")
    assert (tmp_path / "root").resolve() in path.resolve().parents


def test_numbers_are_finite_and_times_utc() -> None:
    for bad in ({"metrics": {"linear": float("nan")}}, {"curve": [{"loss": float("inf")}]}):
        with pytest.raises(ValidationError, match="finite"):
            make(**bad)
    provenance = make().provenance.model_dump()
    for wrong in (NOW.replace(tzinfo=None), NOW.astimezone(timezone(timedelta(hours=1)))):
        with pytest.raises(ValidationError, match="UTC"):
            results.Provenance(**{**provenance, "started": wrong})


def test_provenance_names_code_and_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    found = results.provenance("cpu")
    assert set(found) <= set(results.Provenance.model_fields)
    assert {"python", "torch", "torchvision", "numpy"} <= set(found["versions"])
    assert found["cpu"]
    assert found["threads"] >= 1
    assert found["gpu"] is None
    monkeypatch.setenv("PATH", "")
    bare = results.provenance("cpu")
    assert (bare["git_commit"], bare["git_dirty"]) == (None, None)


def test_provenance_of_a_gpu_says_what_float32_means_there(monkeypatch: pytest.MonkeyPatch) -> None:
    switches = ("tf32_products", "tf32_convolutions", "cudnn_benchmark")
    assert [results.provenance("cpu")[name] for name in switches] == [None] * 3
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "pretended")
    matmul = torch.backends.cuda.matmul.allow_tf32
    try:
        torch.backends.cuda.matmul.allow_tf32 = True
        with torch.backends.cudnn.flags(enabled=True, benchmark=False, allow_tf32=False):
            assert [results.provenance("cuda")[name] for name in switches] == [True, False, False]
        torch.backends.cuda.matmul.allow_tf32 = False
        with torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=True):
            assert [results.provenance("cuda")[name] for name in switches] == [False, True, True]
    finally:
        torch.backends.cuda.matmul.allow_tf32 = matmul


def test_a_hash_leaves_out_what_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings(knn_every=3).identity() == Settings().identity()
    assert Settings(knn_every=3, schedule="plateau").identity() != Settings(schedule="plateau").identity()
    random = {"name": "ours/random", "keys": None}
    base = make(recipe=random, provenance=make().provenance.model_copy(update={"processes": 2}))
    assert make(recipe=random, settings=Settings(lr=9.0, epochs=3).model_dump()).config_hash == base.config_hash
    assert make(recipe=random, settings=Settings(arch="tiny").model_dump()).config_hash != base.config_hash
    base = make(settings=Settings(epochs=7).model_dump())
    longer = create_model("Settings", __base__=Settings, newest=(int, 3))
    monkeypatch.setattr(results, "Settings", longer)
    assert make(settings=longer(epochs=7).model_dump()).config_hash == base.config_hash
    assert make(settings=longer(epochs=7, newest=4).model_dump()).config_hash != base.config_hash


def test_which_items_were_right_takes_a_bit_each() -> None:
    for count in (1, 8, 1001):
        right = torch.rand(count, generator=torch.Generator().manual_seed(count)) < 0.5
        assert torch.equal(torch.from_numpy(results.bits(results.pack(right))), right)
    assert len(results.pack(torch.ones(10_000, dtype=torch.bool))) < 1700


def test_every_stored_result_of_the_project_is_read() -> None:
    root = Path(__file__).parents[1] / "results"
    files_ = list(root.rglob("*-seed*-*.json"))
    stored = results.find(root)
    assert len(stored) >= len(files_) > 40
    assert not [
        r.protocol["split"] for r in stored if str(r.protocol.get("split", "")).startswith("/")
    ]  # no machine's path


def settle(path: Path) -> None:
    """Make a file look as if it had been there for a while."""
    past = path.stat().st_mtime - 60
    os.utime(path, (past, past))


def as_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what this process has read."""
    monkeypatch.setattr(results, "_READ", {})


def test_what_was_found_whole_is_checked_again_when_it_has_changed(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = tmp_path / "results"
    path = results.save(make(), root)
    settle(path)
    verified, real = [], checksums.verified
    monkeypatch.setattr(checksums, "verified", lambda raw: verified.append("settings" in raw) or real(raw))
    first = results.find(root)
    assert results.find(root)[0] is first[0]  # a process reads a file once
    as_another_process(monkeypatch)
    assert results.find(root) == first == [make()]
    as_another_process(monkeypatch)
    assert results.find(root)[0].setup_hash == first[0].setup_hash
    assert sum(verified) == 1
    assert results.read(path) == first[0]
    assert sum(verified) == 2
    # a change is seen, although the file is as long as it was
    path.write_text(path.read_text().replace("31.25", "91.25"))
    for _ in "ab":
        with pytest.raises(CorruptFileError, match="altered after it was written"):
            results.find(root)
        settle(path)


def test_headings_are_those_of_the_results_and_read_only_what_has_changed(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = tmp_path / "results"
    paths = [results.save(make(seed=seed), root) for seed in (0, 1)]
    for path in paths:
        settle(path)
    expected = [each.heading for each in results.find(root)]
    assert [heading.seed for heading in expected] == [0, 1]
    as_another_process(monkeypatch)
    opened, read = [], results._json
    monkeypatch.setattr(results, "_json", lambda path: opened.append(path) or read(path))
    assert results.headings([root, root]) == expected
    assert opened == []
    paths[0].write_text(paths[0].read_text().replace("31.25", "91.25"))
    with pytest.raises(CorruptFileError, match="altered after it was written"):
        results.headings(root)
    assert opened == paths[:1]


@pytest.mark.parametrize("content", ["", "[]", '{"code": 1}', '{"values": {"a": 1}, "checksum": "x"}', "\udcff"])
def test_a_damaged_index_or_one_that_cannot_be_written_changes_nothing(content, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    settle(results.save(make(), tmp_path / "results"))
    assert results.find(tmp_path / "results") == [make()]
    (index,) = (tmp_path / "cache").rglob("*.json")
    index.write_bytes(content.encode("utf-8", "surrogateescape"))
    as_another_process(monkeypatch)
    assert results.find(tmp_path / "results") == [make()]
    assert "values" in json.loads(index.read_text())  # made anew
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    as_another_process(monkeypatch)
    assert results.find(tmp_path / "results") == [make()]


def test_what_other_code_kept_is_not_read(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kept = cache.Cache("x")
    kept.put("a", [1, "b"])
    kept.save()
    assert cache.Cache("x").get("a") == [1, "b"]
    assert cache.Cache("y").get("a") is None
    monkeypatch.setattr(cache, "code", lambda: "another")
    assert cache.Cache("x").get("a") is None


def test_results_of_a_wheel_are_read_from_one_file(tmp_path: Path) -> None:
    made = [make(seed=seed) for seed in range(3)]
    paths = [results.save(each, tmp_path / "apart") for each in made]
    (tmp_path / "packed").mkdir()
    archive = tmp_path / "packed" / shipped.ARCHIVE
    archive.write_bytes(shipped.pack(tmp_path / "apart"))
    light = [each.model_copy(update={"correct": {}}) for each in made]
    assert (results.find(tmp_path / "apart"), results.find(tmp_path / "packed")) == (made, light)
    assert results.find(tmp_path / "packed", dataset="shapes", profile="smoke", seed=1) == [light[1]]
    assert results.find(tmp_path / "packed", dataset="digits") == []
    place = {"dataset": "shapes", "profile": "smoke", "method": "ring/ir", "task": "linear"}
    for root, kept in (("apart", made[2]), ("packed", light[2])):
        assert results.look_up([tmp_path / root], **place, seed=2, hash_=made[2].config_hash) == kept
        assert results.look_up([tmp_path / root], **place, seed=2, hash_="0" * 64) is None
        # the same recipe has another name in another paper
        other = results.look_up([tmp_path / root], **place | {"method": "vince/ir"}, seed=2, hash_=made[2].config_hash)
        assert other == kept
    raw = json.loads(paths[0].read_text())
    paths[0].write_text(json.dumps({**raw, "metrics": {"linear": 91.25}}))
    archive.write_bytes(shipped.pack(tmp_path / "apart"))
    with pytest.raises(CorruptFileError, match="altered after it was written"):
        results.find(tmp_path / "packed")
    archive.write_bytes(archive.read_bytes()[:-20])
    with pytest.raises(CorruptFileError, match="Install the package again"):
        results.find(tmp_path / "packed")


def test_headings_of_a_wheel_are_known_without_unpacking_its_results(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for seed in range(3):
        results.save(make(seed=seed), tmp_path / "apart")
    root = tmp_path / "packed"
    root.mkdir()
    archive = root / shipped.ARCHIVE
    archive.write_bytes(shipped.pack(tmp_path / "apart"))
    settle(archive)
    expected = results.headings(root)
    assert [heading.seed for heading in expected] == [0, 1, 2]
    as_another_process(monkeypatch)
    shipped._records.cache_clear()
    assert results.headings(root) == expected
    assert shipped._records.cache_info().misses == 0
    results.save(make(seed=3), tmp_path / "apart")
    archive.write_bytes(shipped.pack(tmp_path / "apart"))
    settle(archive)
    assert [heading.seed for heading in results.headings(root)] == [0, 1, 2, 3]


def test_an_altered_file_is_noticed_a_newer_named_and_an_older_has_no_checksum(tmp_path: Path) -> None:
    path = results.save(make(), tmp_path)
    raw = json.loads(path.read_text())
    for change in ({"metrics": {"linear": 91.25}}, {"settings": {**raw["settings"], "epochs": 1}}):
        path.write_text(json.dumps({**raw, **change}))
        with pytest.raises(CorruptFileError, match=f"{path}.*altered after it was written"):
            results.read(path)
    path.write_text(json.dumps({name: value for name, value in raw.items() if name != "checksum"}))
    assert results.read(path) == make()
    later = make().provenance.model_copy(update={"finished": NOW + timedelta(days=365)})
    path = results.save(make(provenance=later), tmp_path)
    path.write_text(re.sub(r',\s*"checksum": "\w+"', "", path.read_text()))
    with pytest.raises(CorruptFileError, match=f"{path}.*its checksum is missing"):
        results.read(path)
    path = results.save(make(), tmp_path)
    path.write_text(path.read_text().replace('"schema": 2', '"schema": 3'))
    with pytest.raises(CorruptFileError, match="schema=3: expected 2; a newer version"):
        results.read(path)


def test_all_damaged_or_exchanged_files_of_a_folder_are_named_at_once(tmp_path: Path) -> None:
    paths = [results.save(make(seed=seed), tmp_path) for seed in range(3)]
    for path in paths[:2]:
        path.write_text(path.read_text()[:50])
    with pytest.raises(CorruptFileError, match="^2 damaged results: ") as error:
        results.find(tmp_path)
    assert [str(path) in str(error.value) for path in paths] == [True, True, False]
    paths[0].unlink()
    with pytest.raises(CorruptFileError, match=f"^{paths[1]} is not a stored result"):
        results.find(tmp_path)
    paths[1].unlink()
    aside = tmp_path / "cells" / "shapes" / "laptop" / paths[2].name
    aside.parent.mkdir()
    paths[2].rename(aside)
    with pytest.raises(CorruptFileError, match=f"{aside} was moved: it is a result of {paths[2].parent}"):
        results.find(tmp_path, profile="laptop")
    aside.unlink()
    zero, one = (results.save(make(seed=seed), tmp_path) for seed in (0, 1))
    zero.write_bytes(one.read_bytes())
    with pytest.raises(CorruptFileError, match=f"{zero} was renamed or exchanged: what it holds is {one.name}"):
        results.find(tmp_path)
