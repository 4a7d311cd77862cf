"""benchmarks/gpu.py at toy size on a CPU: every part appends its lines, and a failed measurement stops no other."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "gpu.py"
STORED = SCRIPT.parent / "results" / "gpu.jsonl"

spec = importlib.util.spec_from_file_location("gpu_script", SCRIPT)
gpu = importlib.util.module_from_spec(spec)
sys.modules["gpu_script"] = gpu  # dataclasses look their module up
spec.loader.exec_module(gpu)


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def toy(out: Path, *arguments: str) -> list[dict]:
    assert gpu.main([*arguments, "--toy", "--device", "cpu", "--out", str(out)]) == 0
    return lines(out)


def test_recipes_are_compared_with_the_cpu(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "AGREE", gpu.AGREE[::3])
    measured = toy(tmp_path / "gpu.jsonl", "agree")
    assert [line["case"] for line in measured] == list(gpu.AGREE)
    for line in measured:
        assert line["relative_loss"] == line["relative_weights"] == 0
        assert line["machine"]["toy"] is True


def test_a_difference_between_devices_is_measured(tmp_path, monkeypatch):
    train = gpu.train_tiny
    runs = []

    def first_run_is_off(method, device):
        runs.append(train(method, device))
        if len(runs) == 1:
            runs[0].history[0]["loss"] *= 1.5
        return runs[-1]

    monkeypatch.setattr(gpu, "train_tiny", first_run_is_off)
    monkeypatch.setattr(gpu, "AGREE", ("ring/ir",))
    (line,) = toy(tmp_path / "gpu.jsonl", "agree")
    assert line["relative_loss"] == pytest.approx(0.5)
    assert line["relative_weights"] == 0


def test_no_random_number_is_left_to_the_device():
    generator = torch.Generator().manual_seed(0)
    with gpu.DrawnOnHost():
        drawn = torch.rand(3, generator=generator, device="meta")
        filled = torch.empty(3).uniform_(generator=generator)
    assert drawn.device.type == "meta"
    again = torch.Generator().manual_seed(0)
    torch.rand(3, generator=again)
    assert torch.equal(filled, torch.rand(3, generator=again))


def test_steps_waits_and_kernels_have_a_line_for_every_case(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "CASES", gpu.CASES[1:2])
    measured = toy(tmp_path / "gpu.jsonl", "steps", "waits", "kernels")
    assert not [line for line in measured if "failed" in line]
    names = [case.name for case in gpu.CASES]
    by_part = {part: [line["case"] for line in measured if line["part"] == part] for part in gpu.PARTS}
    assert by_part["steps"] == [*names, *names]
    assert by_part["waits"] == by_part["kernels"] == names
    for line in measured:
        if line["part"] == "steps":
            assert line["ms"] == sorted(line["blocks_ms"])[1] > 0
        if line["part"] == "kernels":
            assert len(line["kernels"]) == 15


def test_simclr_is_trained_and_scored(tmp_path):
    (line,) = toy(tmp_path / "gpu.jsonl", "simclr")
    assert "failed" not in line
    assert 0 <= line["knn"] <= 100
    assert line["epochs"] == 2


def test_a_measurement_that_fails_is_a_line_and_the_next_one_runs(tmp_path, monkeypatch):
    def fail(*_):
        raise ValueError("no kernel")

    monkeypatch.setattr(gpu, "CASES", gpu.CASES[1:2])
    monkeypatch.setattr(gpu, "time_steps", fail)
    measured = toy(tmp_path / "gpu.jsonl", "steps", "waits")
    assert [line.get("failed") for line in measured] == ["ValueError: no kernel"] * 2 + [None]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_nothing_is_written(tmp_path, capsys):
    assert gpu.main(["agree", "--out", str(tmp_path / "gpu.jsonl")]) == 2
    assert "no GPU here" in capsys.readouterr().err
    assert not (tmp_path / "gpu.jsonl").exists()


def test_the_stored_lines_are_of_a_gpu():
    stored = lines(STORED)
    assert {line["part"] for line in stored} >= {"agree", "steps", "waits", "kernels"}
    for line in stored:
        assert line["machine"]["gpu"]
        assert not line["machine"]["toy"]
