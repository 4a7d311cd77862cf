"""benchmarks/gpu.py at toy size on a CPU: every part runs, and goes on where it stopped."""

import importlib.metadata
import importlib.util
import itertools
import json
import math
import sys
import warnings
from collections import Counter
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "gpu.py"
FIELDS = {
    "name", "value", "unit", "bar", "met", "repetitions", "warmup_s", "precision", "compile", "channels_last", "batch",
    "images", "profile", "protocol", "peak_memory_bytes", "commit", "device", "driver", "torch", "cuda", "measured",
}  # fmt: skip


no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
spec = importlib.util.spec_from_file_location("gpu_script", SCRIPT)
gpu = importlib.util.module_from_spec(spec)
sys.modules["gpu_script"] = gpu  # dataclasses look their module up
spec.loader.exec_module(gpu)


def toy(out: Path, *parts: str) -> int:
    options = ("--toy", "--device", "cpu", "--out", str(out), "--scratch", f"{out}-scratch")
    return gpu.main([*parts, *options])


def stored(out: Path, part: str) -> dict:
    return json.loads((out / f"{part}.json").read_text())


def lab(out: Path = Path()) -> object:
    return gpu.Lab("cpu", out, out, out, True, None)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """All parts, once."""
    out = tmp_path_factory.mktemp("gpu") / "out"
    toy(out, "all")
    return out


@pytest.mark.parametrize("part", [part.name for part in gpu.PARTS])
def test_a_part_measures_all_its_rows(part, whole):
    file = stored(whole, part)
    assert (file["part"], file["toy"], file["left"], file["failed"]) == (part, True, [], {})
    wanted = next(p for p in gpu.PARTS if p.name == part).rows(lab())
    assert [row["name"] for row in file["rows"]] == [row.name for row in wanted]
    for row in file["rows"]:
        assert row.keys() >= FIELDS
        assert math.isfinite(row["value"])
        assert row["met"] is None, "a toy keeps no bar"
        if row["repetitions"] is not None:
            assert row["repetitions"]["min"] <= row["value"] <= row["repetitions"]["max"]


def test_a_second_call_measures_nothing(whole, monkeypatch, capsys):
    before = stored(whole, "epoch"), stored(whole, "simclr")
    for name in ("pretrain", "record"):
        monkeypatch.setattr(gpu, name, lambda *a, **k: pytest.fail("measured again"))
    assert toy(whole, "epoch", "simclr") == 0
    assert (stored(whole, "epoch"), stored(whole, "simclr")) == before
    assert "all measured" in capsys.readouterr().out


def test_an_interrupted_call_keeps_its_rows_and_is_continued(tmp_path, monkeypatch, capsys):
    real = gpu.views

    def interrupted(lab, sheet, *, name, size, batch):
        if (name, size) == ("mocov2", 32):
            raise KeyboardInterrupt
        return real(lab, sheet, name=name, size=size, batch=batch)

    with monkeypatch.context() as patch:
        patch.setattr(gpu, "views", interrupted)
        assert toy(tmp_path, "views") == 130
    first = stored(tmp_path, "views")
    assert (len(first["rows"]), len(first["left"])) == (2, 4)
    assert toy(tmp_path, "views") == 0
    assert stored(tmp_path, "views")["rows"][:2] == first["rows"]
    assert stored(tmp_path, "views")["left"] == []


def test_a_row_that_fails_leaves_the_others(tmp_path, monkeypatch):
    real = gpu.augmentation
    with monkeypatch.context() as patch:
        patch.setattr(gpu, "augmentation", lambda name, size: 1 / 0 if name == "mocov2" else real(name, size))
        assert toy(tmp_path, "views") == 1
    file = stored(tmp_path, "views")
    assert len(file["rows"]) == 4
    assert list(file["failed"]) == file["left"] == ["mocov2, 32 px to 32 px", "mocov2, 32 px to 224 px"]
    assert "ZeroDivisionError" in file["failed"]["mocov2, 32 px to 32 px"]
    assert toy(tmp_path, "views") == 0
    assert stored(tmp_path, "views")["failed"] == {}


@pytest.mark.parametrize(("arguments", "said"), [
    (["veiws", "--device", "cpu", "--out", "x"], "unknown part 'veiws'; did you mean views?"),
    (["simclr", "views", "--device", "cpu", "--out", "x", "--data", "/nowhere"], "/nowhere/cifar10"),
    (["views", "--device", "cpu"], "--out"),
    (["--device", "cpu", "--out", "x"], "PART"),
    pytest.param(["views", "--out", "."], "--device='cuda'", marks=no_gpu),
])  # fmt: skip
def test_refused_before_any_work(arguments, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert gpu.main(arguments) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", ["{", "[]", '{"rows": []}'])
def test_a_strange_file_is_named(content, tmp_path, capsys):
    (tmp_path / "views.json").write_text(content)
    assert toy(tmp_path, "views") == 2
    assert "views.json" in capsys.readouterr().err
    assert (tmp_path / "views.json").read_text() == content


def test_toy_rows_stay_apart_from_real_ones_and_the_list_needs_no_gpu(whole, capsys):
    assert gpu.main(["views", "--device", "cpu", "--out", str(whole)]) == 2
    assert "measured with --toy" in capsys.readouterr().err
    assert gpu.main(["--list"]) == 0
    text = capsys.readouterr().out
    assert "an estimate from the bars" in text
    assert all(part.name in text for part in gpu.PARTS)


def test_seconds_per_epoch_are_those_of_blocks_or_of_whole_epochs(monkeypatch):
    # a second passes between marks, which are two steps apart; the toy's epoch has four steps
    tick = itertools.count()
    monkeypatch.setattr(gpu.Lab, "mark", lambda self: float(next(tick)))
    found = gpu.timed(lab(), None, case=gpu.IR, precision="32-true", speed=gpu.EAGER)
    assert (found["value"], found["step_ms"], found["repetitions"]["spread"]) == (2.0, 500.0, 0.0)
    assert next(tick) == 3
    # whole epochs are whole
    found = gpu.timed(lab(), None, case=gpu.SIMCLR, precision="32-true", speed=gpu.EAGER, whole=True)
    assert (found["value"], found["steps"]) == (1.0, 8)


def test_ratio_of_two_rows():
    def row(value, low, high):
        return {**dict.fromkeys(gpu.PLAIN), "value": value, "batch": 8, "repetitions": gpu.repeated([low, value, high])}

    sheet = gpu.Sheet(Path(), "epoch", True, {"a": row(3.0, 2.0, 4.0), "b": row(2.0, 1.0, 2.5)})
    found = gpu.ratio(lab(), sheet, over="a", under="b")
    assert (found["value"], found["repetitions"]["min"], found["repetitions"]["max"]) == (1.5, 2.0 / 2.5, 4.0)
    assert gpu.ratio(lab(), sheet, over="a", under="c") is None


def test_bars():
    bars = ((2.0, "<= 2.0"), (2.1, "<= 2.0"), (84, ">= 84"), (83, ">= 84"), (83, None))
    assert [gpu.met(*each) for each in bars] == [True, False, True, False, None]


def test_waits_are_counted_by_the_line_that_waits():
    found: Counter[str] = Counter()
    wait = "import warnings\nwarnings.warn('called a synchronizing CUDA operation')"
    with gpu.listening(found):
        for _ in range(3):
            exec(compile(wait, str(gpu.PACKAGE / "learner.py"), "exec"))
        warnings.warn("called a synchronizing CUDA operation", stacklevel=1)
        warnings.warn("something else", stacklevel=1)
    lines = {line.partition(" ")[0]: count for line, count in found.items()}
    assert lines == {"learner.py:2": 3, "outside": 1}
