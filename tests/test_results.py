"""Stored results: whole or absent, unaltered, and found again."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from contrastlab import results
from contrastlab.errors import ArgumentError, CorruptFileError
from contrastlab.settings import Settings

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def make(**changes) -> results.Result:
    provenance = results.Provenance(
        **results.provenance("cpu"),
        data_fingerprint="abc",
        started=NOW,
        finished=NOW + timedelta(seconds=7),
        wall_s=7.0,
    )
    fields = {
        "paper": "ring", "table": "1", "dataset": "shapes", "method": "ring/ir", "seed": 0, "profile": "smoke",
        "protocol": {"solver": "lbfgs"}, "test_images": 512, "settings": Settings().model_dump(),
        "recipe": {"name": "ring/ir"}, "metrics": {"linear": 31.25}, "curve": [{"loss": 5.5}],
        "provenance": provenance,
    }  # fmt: skip
    return results.Result(**{**fields, **changes})


def test_round_trip_and_place(tmp_path: Path) -> None:
    result = make()
    path = results.save(result, tmp_path)
    assert path.relative_to(tmp_path).as_posix() == (
        f"ring_table1/shapes/smoke/ring-ir-seed0-{result.config_hash[:8]}.json"
    )
    assert results.read(path) == result
    assert json.loads(path.read_text())["schema"] == 1
    assert results.save(result, tmp_path) == path
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_hash_depends_on_settings_recipe_and_data_only() -> None:
    base = make()
    assert make(seed=3, metrics={"linear": 1.0}, profile="laptop").config_hash == base.config_hash
    assert make(settings=Settings(epochs=299).model_dump()).config_hash != base.config_hash
    assert make(recipe={"name": "ring/iring"}).config_hash != base.config_hash
    other = base.provenance.model_copy(update={"data_fingerprint": "abd"})
    assert make(provenance=other).config_hash != base.config_hash
    shuffled = dict(reversed(base.settings.items()))
    assert make(settings=shuffled).config_hash == base.config_hash


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failure_while_writing_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = results.save(make(), tmp_path)
    before = path.read_bytes()

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="disk full"):
        results.save(make(metrics={"linear": 99.0}), tmp_path)
    with pytest.raises(OSError, match="disk full"):
        results.save(make(seed=1), tmp_path)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_the_target_appears_only_by_renaming_a_finished_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    replace = os.replace

    def watch(source: Path, target: Path) -> None:
        seen.append((Path(target).exists(), json.loads(Path(source).read_text())["seed"]))
        replace(source, target)

    monkeypatch.setattr(os, "replace", watch)
    results.save(make(seed=4), tmp_path)
    assert seen == [(False, 4)]


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


def test_an_altered_setting_is_noticed(tmp_path: Path) -> None:
    path = results.save(make(), tmp_path)
    raw = json.loads(path.read_text())
    raw["settings"]["epochs"] = 1
    path.write_text(json.dumps(raw))
    with pytest.raises(CorruptFileError, match="altered"):
        results.find(tmp_path)


def test_a_missing_file_is_not_a_corrupt_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        results.read(tmp_path / "none.json")


def test_find_filters_and_ignores_what_is_not_a_result(tmp_path: Path) -> None:
    for change in ({}, {"seed": 1}, {"method": "ring/iring"}, {"dataset": "folder:/a/b"}, {"dataset": "folder:/a-b"},
                   {"profile": "laptop"}, {"table": "2"}, {"table": "11"}, {"paper": "vince"}):  # fmt: skip
        results.save(make(**change), tmp_path)
    (tmp_path / "speed.json").write_text("{}")
    assert len(results.find(tmp_path)) == 9
    assert len(results.find(tmp_path, paper="ring", table=1)) == 6
    assert len(results.find(tmp_path, paper="ring", table="1", dataset="shapes", profile="smoke")) == 3
    assert len(results.find(tmp_path, method="ring/iring")) == 1
    assert [r.dataset for r in results.find(tmp_path, dataset="folder:/a/b")] == ["folder:/a/b"]
    assert [r.seed for r in results.find(tmp_path, seed=1)] == [1]
    assert results.find(tmp_path / "none") == []
    with pytest.raises(ArgumentError, match="root="):
        results.find(tmp_path / "speed.json")


def test_results_never_leave_the_root(tmp_path: Path) -> None:
    path = results.save(make(dataset="folder:../../etc", profile="../x"), tmp_path / "root")
    assert (tmp_path / "root").resolve() in path.resolve().parents


@pytest.mark.parametrize("bad", [{"metrics": {"linear": float("nan")}}, {"curve": [{"loss": float("inf")}]}])
def test_a_non_finite_number_is_not_stored(bad: dict) -> None:
    with pytest.raises(ValidationError, match="finite"):
        make(**bad)


def test_times_are_utc() -> None:
    provenance = make().provenance.model_dump()
    for wrong in (NOW.replace(tzinfo=None), NOW.astimezone(timezone(timedelta(hours=1)))):
        with pytest.raises(ValidationError, match="UTC"):
            results.Provenance(**{**provenance, "started": wrong})


def test_provenance_names_code_and_machine() -> None:
    found = results.provenance("cpu")
    assert set(found) <= set(results.Provenance.model_fields)
    assert {"python", "torch", "torchvision", "numpy"} <= set(found["versions"])
    assert found["cpu"]
    assert found["threads"] >= 1
    assert found["gpu"] is None


def test_provenance_without_git(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    found = results.provenance("cpu")
    assert (found["git_commit"], found["git_dirty"]) == (None, None)
