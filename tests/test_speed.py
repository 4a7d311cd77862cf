"""Switches of speed change no loss, and no step of a GPU, where there is one, makes the host wait."""

import dataclasses
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning_fabric import Fabric
from torch import Tensor
from torch._dynamo.utils import counters

from contrastlab import __main__ as command
from contrastlab import methods, tables
from contrastlab.data import ImageSet
from contrastlab.pictures import loading
from contrastlab.support.errors import ArgumentError
from contrastlab.tables import results
from contrastlab.train import Speed, loop, pretrain
from contrastlab.train.learner import Learner
from made_runs import LOCAL, quiet
from test_pretrain import Streamed

PLAIN = Speed(channels_last=False, fused=False, compile=False, workers=0)
FAST = Speed(channels_last=True, fused=True, compile=True, workers=2)
COMPILE = torch.compile
COMPILER = next((name for name in ("g++", "clang++") if shutil.which(name)), None)
gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")


@pytest.fixture
def curve(pictures, tiny, shrink, monkeypatch) -> Iterator[Callable[..., Tensor]]:
    """``curve(recipe, speed)``: the loss of each of nine steps; ``curve.run`` is the run."""
    loss, start = Learner.loss, loop._Loop.__init__

    def train(
        name: str, speed: Speed, *, backend: str = "aot_eager", images: Any = None, device: str = "cpu"
    ) -> Tensor:
        losses: list[Tensor] = []

        def watch(self, *args):
            out = loss(self, *args)
            losses.append(out.loss.detach())
            return out

        def keep(self, *args):
            train.run = self
            start(self, *args)

        monkeypatch.setattr(Learner, "loss", watch)
        monkeypatch.setattr(loop._Loop, "__init__", keep)
        monkeypatch.setattr(torch, "compile", partial(COMPILE, backend=backend))
        torch.compiler.reset()
        counters.clear()
        fabric = Fabric(accelerator=device, devices=1)
        settings = tiny.override(epochs=3)
        pretrain(shrink(methods.get(name)), settings, images or pictures(48), fabric=fabric, speed=speed, log=quiet)
        assert len(losses) == 9
        return torch.stack(losses).cpu()

    yield train
    torch.compiler.reset()


def is_on(switch: str, run: loop._Loop) -> bool:
    """Whether the run does what the switch says, not only whether it was told to."""
    if switch == "channels_last":
        [*_, weight] = [p for p in run.learner.network.parameters() if p.dim() == 4]
        return weight.is_contiguous(memory_format=torch.channels_last) and not weight.is_contiguous()
    if switch == "fused":
        return bool(run.optimiser.defaults["fused"])
    return counters["stats"]["unique_graphs"] > 0


SWITCHES = [f.name for f in dataclasses.fields(Speed)]


@pytest.mark.parametrize("name", ["ring/mocoring", "ring/cmc", "ring/simclr"])
@pytest.mark.parametrize("switch", ["channels_last", "fused", pytest.param("compile", marks=pytest.mark.nightly)])
def test_a_switch_changes_no_loss(switch: str, name: str, curve) -> None:
    plain = curve(name, PLAIN)
    assert not any(is_on(s, curve.run) for s in ("channels_last", "fused", "compile"))
    fast = curve(name, dataclasses.replace(PLAIN, **{switch: True}))
    assert [s for s in ("channels_last", "fused", "compile") if is_on(s, curve.run)] == [switch]
    torch.testing.assert_close(fast, plain, rtol=1e-5, atol=0)
    assert len(set(plain.tolist())) == 9


@pytest.mark.parametrize("asked", [True, False])
def test_cudnn_tries_kernels_on_a_gpu_alone_and_where_it_is_asked_to(asked: bool) -> None:
    speed = Speed(cudnn_benchmark=asked)
    assert Speed().cudnn_benchmark
    with torch.backends.cudnn.flags(enabled=True, benchmark=not asked):
        loop.choose_kernels(torch.device("cpu"), speed)
        assert torch.backends.cudnn.benchmark is not asked
        loop.choose_kernels(torch.device("cuda"), speed)
        assert torch.backends.cudnn.benchmark is asked


@pytest.mark.nightly
@pytest.mark.skipif(COMPILER is None, reason="inductor needs a C++ compiler, and none is here")
def test_compiling_to_machine_code_changes_no_loss(curve) -> None:
    plain = curve("ring/mocoring", PLAIN)
    torch.testing.assert_close(curve("ring/mocoring", FAST, backend="inductor"), plain, rtol=1e-5, atol=0)


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_reading_from_a_stream_changes_no_loss(workers: int, curve, pictures) -> None:
    resident = curve("ring/mocoring", PLAIN)
    speed = dataclasses.replace(PLAIN, workers=workers)
    assert torch.equal(curve("ring/mocoring", speed, images=Streamed(pictures(48))), resident)


@pytest.mark.parametrize(("device", "backend"), [("cpu", "aot_eager"), pytest.param("cuda", "inductor", marks=gpu)])
def test_all_switches_together_change_no_loss(device: str, backend: str, curve, pictures) -> None:
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            plain = curve("ring/mocoring", PLAIN, device=device)
            fast = curve("ring/mocoring", FAST, backend=backend, images=Streamed(pictures(48)), device=device)
    finally:
        torch.set_float32_matmul_precision(precision)
    assert all(is_on(switch, curve.run) for switch in ("channels_last", "fused", "compile"))
    assert counters["stats"]["unique_graphs"] == 2  # the trained one and its slow twin, for one shape
    assert not counters["graph_break"]
    torch.testing.assert_close(fast, plain, rtol=1e-5 if device == "cpu" else 1e-3, atol=0)


def test_every_switch_is_tested_here_and_reached_from_the_command_line(monkeypatch) -> None:
    assert SWITCHES == ["channels_last", "fused", "cudnn_benchmark", "compile", "workers"]
    seen: list[Speed] = []

    def table(*args, speed: Speed, **options):
        seen.append(speed)
        raise ArgumentError("enough")

    monkeypatch.setattr(tables, "table", table)
    for given in ([], ["--compile", "--no-fused", "--no-channels-last", "--no-cudnn-benchmark", "--workers", "3"]):
        assert command.main(["run", "ring/table1", *given]) == 2
    assert seen == [Speed(), Speed(channels_last=False, fused=False, cudnn_benchmark=False, compile=True, workers=3)]


def test_the_command_line_chooses_the_precision(monkeypatch, capsys) -> None:
    seen: list[str | None] = []

    def table(*args, precision: str | None, **options):
        seen.append(precision)
        raise ArgumentError("enough")

    monkeypatch.setattr(tables, "table", table)
    for given in ([], ["--precision", "bf16-mixed"], ["--precision", "half"]):
        assert command.main(["run", "ring/table1", *given]) == 2
    assert seen == [None, "bf16-mixed"]
    assert "precision='half': expected None, 32-true, bf16-mixed or auto" in capsys.readouterr().err


@pytest.mark.usefixtures("few")
def test_a_table_in_another_precision_has_results_of_its_own(tmp_path) -> None:
    options = {**LOCAL, "rows": "ir", "out_dir": tmp_path, "log": quiet}
    for precision, expected in ((None, "32-true"), ("bf16-mixed", "bf16-mixed")):
        made = tables.table("ring", 1, "digits", precision=precision, **options)
        (row,) = [row for row in made.rows if row.measured]
        assert row.precision == expected
    assert {result.precision for result in results.find([tmp_path])} == {"32-true", "bf16-mixed"}


def test_a_command_imports_only_what_it_uses() -> None:
    """Importing these takes longer than the command itself."""
    code = """
import sys
from contrastlab.__main__ import main
for words, unused in (
    ("run --help", ("torch", "pandas")), ("run --sets cifar10", ("torch", "pandas")),
    ("show ring/table1", ("lightning_fabric", "scipy.signal")),
):
    try:
        main(words.split())
    except SystemExit:
        pass
    assert not [name for name in unused if name in sys.modules], words
import contrastlab.domains, contrastlab.methods, contrastlab.tasks
contrastlab.domains.rows()
extras = {"transformers", "tokenizers", "soundfile", "timm", "sentence_transformers", "torchaudio"}
assert not extras & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[1])
    assert done.returncode == 0, done.stderr


@contextmanager
def _sync(mode: str) -> Iterator[None]:
    torch.cuda.set_sync_debug_mode(mode)
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@gpu
@pytest.mark.parametrize("name", [
    "ring/iring", "ring/cmcring", "ring/mocoring", "ring/simclring", "vince/la_nce", "vince/cave_lab_anneal", "jcl/jcl",
    "fmicl/kl", "fmicl/au", "ours/supervised",
])  # fmt: skip
@pytest.mark.parametrize(("stream", "precision"), [(False, "32-true"), (True, "bf16-mixed")])
def test_no_step_waits_for_the_gpu(name, stream, precision, pictures, tiny, shrink, monkeypatch) -> None:
    step, read, strict = loop._Loop.train_step, loading.batches, []

    def watched(self, *args):
        with _sync("error" if self.progress.step > 1 else "default"):
            step(self, *args)
        strict.append(self.progress.step > 2)

    def reading(*args, **options):
        batches = read(*args, **options)
        for count in range(6):
            with _sync("error" if count > 1 else "default"):
                batch = next(batches)
            yield batch

    monkeypatch.setattr(loop._Loop, "train_step", watched)
    monkeypatch.setattr(loop, "batches", reading)
    whole: ImageSet = pictures(96)
    fabric = Fabric(accelerator="cuda", devices=1, precision=precision)
    images = Streamed(whole) if stream else whole
    settings = tiny.override(epochs=1, precision=precision)
    pretrain(shrink(methods.get(name)), settings, images, fabric=fabric, speed=Speed(workers=2), log=quiet)
    assert sum(strict) == 4
