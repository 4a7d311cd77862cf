"""The first page of a bug report says what is there, what is missing, and how to get it."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
import torch

from contrastlab import __main__, data, doctor
from contrastlab.pretrain.schedule import precision


def lines(text: str) -> dict[str, str]:
    return {line.split("  ")[0]: line.partition("  ")[2].strip() for line in text.splitlines()}


def test_versions_device_and_folders_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cifar10").mkdir()
    monkeypatch.setenv("CONTRASTLAB_DATA", str(tmp_path))
    said = lines(doctor.report(tmp_path / "runs" / "deep"))
    assert said["torch"] == version("torch")
    assert said["python"] == platform.python_version()
    assert said["system"].startswith(platform.platform())
    assert f"{os.cpu_count()} cores" in said["processor"]
    assert said["instructions"].split(", ")[0] == torch.backends.cpu.get_cpu_capability()
    assert said["precision auto"] == precision("auto")
    assert said["data root"] == f"{tmp_path} (CONTRASTLAB_DATA), cifar10"
    assert "can be written" in said["results"]
    assert "GiB free" in said["results"]
    assert not (tmp_path / "runs").exists()


def test_an_extra_that_is_not_installed_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = doctor.version

    def without(name: str) -> str:
        if name == "timm":
            raise PackageNotFoundError(name)
        return real(name)

    assert lines(doctor.report(tmp_path))["extra vit"] == "installed"
    monkeypatch.setattr(doctor, "version", without)
    assert lines(doctor.report(tmp_path))["extra vit"] == "missing timm: pip install 'contrastlab[vit]'"


def test_every_data_set_is_read_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(data, "names", lambda: ("digits", "dtd10"))
    assert __main__.main(["doctor", "--data", "--data-root", str(tmp_path), "--out", str(tmp_path)]) == 0
    said = lines(capsys.readouterr().out)
    assert said["data digits"] == f"{len(data.load('digits').pretrain)} items to train on"
    assert said["data dtd10"].startswith("missing: ")
    assert str(tmp_path / "dtd10") in said["data dtd10"]
    assert said["data root"].startswith(f"{tmp_path} (given)")


def test_instructions_that_the_processor_has_are_named_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for ask in doctor._BEYOND_VECTORS.values():
        monkeypatch.setattr(torch.cpu, ask, lambda: False, raising=False)
    assert lines(doctor.report(tmp_path))["instructions"] == torch.backends.cpu.get_cpu_capability()
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True)
    assert lines(doctor.report(tmp_path))["instructions"].endswith(", AMX")
    monkeypatch.delattr(torch.cpu, "_is_vnni_supported")
    assert "VNNI" not in lines(doctor.report(tmp_path))["instructions"]
