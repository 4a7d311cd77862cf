"""The first page of a bug report says what is there, what is missing, and how to get it."""

import json
import os
import platform
import pwd
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
import torch

from contrastlab import __main__, data
from contrastlab.support import doctor
from contrastlab.support.errors import MissingDataError
from contrastlab.train.schedule import precision


def report(*given: object, **more: object) -> str:
    return "\n".join(doctor.lines(*given, **more))


def lines(text: str) -> dict[str, str]:
    return {line.split("  ")[0]: line.partition("  ")[2].strip() for line in text.splitlines()}


def test_versions_device_and_folders_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cifar10").mkdir()
    monkeypatch.setenv("CONTRASTLAB_DATA", str(tmp_path))
    said = lines(report(tmp_path / "runs" / "deep"))
    assert said["torch"] == version("torch")
    assert said["python"] == platform.python_version()
    assert said["system"].startswith(platform.platform())
    assert f"{os.cpu_count()} cores" in said["processor"]
    assert said["instructions"] == torch.backends.cpu.get_cpu_capability()
    assert said["precision auto"] == precision("auto")
    assert said["data root"] == f"{tmp_path} (CONTRASTLAB_DATA), cifar10"
    assert "can be written" in said["results"]
    assert "GiB free" in said["results"]
    assert not (tmp_path / "runs").exists()


def test_the_report_is_json_for_programs(tmp_path: Path, capsys) -> None:
    assert __main__.main(["doctor", "--json", "--data-root", str(tmp_path), "--out", str(tmp_path)]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["python"] == platform.python_version()
    assert said["data root"] == f"{tmp_path} (given), empty or not there"
    for line in doctor.lines(tmp_path, tmp_path):
        name, _, value = line.partition("  ")
        assert not name or said[name].split(",")[0] == value.strip().split(",")[0]


def test_a_user_without_a_home_has_a_report_and_a_cache_where_it_works(tmp_path, monkeypatch) -> None:
    def nobody(user: int) -> None:  # as in a container
        raise KeyError(user)

    for name in ("HOME", "XDG_CACHE_HOME", "CONTRASTLAB_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    monkeypatch.chdir(tmp_path)
    assert lines(report(tmp_path))["data root"] == ".cache/contrastlab (default), empty or not there"


def test_extras_that_are_missing_are_named(monkeypatch, tmp_path) -> None:
    def without(name: str) -> str:
        if name == "timm":
            raise PackageNotFoundError(name)
        return version(name)

    assert lines(report(tmp_path))["extra vit"] == "installed"
    monkeypatch.setattr(doctor, "version", without)
    assert lines(report(tmp_path))["extra vit"] == "missing timm: pip install 'contrastlab[vit]'"


def test_every_data_set_is_read_on_request_and_its_line_comes_before_the_next(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(data, "names", lambda: ("digits", "dtd10"))
    assert __main__.main(["doctor", "--data", "--data-root", str(tmp_path), "--out", str(tmp_path)]) == 0
    said = lines(capsys.readouterr().out)
    assert said["data digits"] == f"{len(data.load('digits').pretrain)} items to train on"
    assert said["data dtd10"].startswith("missing: ")
    assert str(tmp_path / "dtd10") in said["data dtd10"]
    assert said["data root"].startswith(f"{tmp_path} (given)")
    read: list[str] = []

    def load(name: str, *_: object, **__: object) -> None:
        read.append(name)
        raise MissingDataError(name)

    monkeypatch.setattr(data, "names", lambda: ("digits", "tinyimagenet32"))
    monkeypatch.setattr(data, "load", load)
    begun = {line.split("  ")[0]: len(read) for line in doctor.lines(tmp_path, read_data=True)}
    assert [n for name, n in begun.items() if name.startswith("data ") and name != "data root"] == [1, 2]
    assert {n for name, n in begun.items() if not name.startswith("data ") or name == "data root"} == {0}
    assert read == ["digits", "tinyimagenet32"]
    said = report(tmp_path, read_data=True).splitlines()
    assert len({line.index("missing: ") for line in said if line.startswith("data ") and "missing: " in line}) == 1


# Each is a part or another form of what its authors distribute.
COPIES = (
    "coco200", "dtd10", "flowers17", "gtsrb32", "mnist_t10k", "omniglot_small", "tinyimagenet32", "camvid", "fsdd",
    "lsp",
)  # fmt: skip


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_that_is_missing_names_where_it_was_made_from(name: str, tmp_path: Path) -> None:
    made_from = r"\b[Mm]ake it from the GitHub repository [\w-]+/[\w.-]+ \(commit [0-9a-f]{7}\)"
    with pytest.raises(MissingDataError, match=made_from) as caught:
        data.load(name, tmp_path)
    assert f"{tmp_path}/{name}" in str(caught.value)
    assert "set CONTRASTLAB_DATA" in str(caught.value)


def test_a_set_that_torchvision_downloads_says_who_downloads_it(tmp_path: Path) -> None:
    for name in ("cifar10", "mnist", "stl10"):
        call = re.escape(f"contrastlab.data.load({name!r}, download=True)")
        with pytest.raises(MissingDataError, match=f"(?s)(?=.*contrastlab run downloads it).*{call}"):
            data.load(name, tmp_path, download=False)
