"""The first run on a GPU: does it compute what a CPU computes, how fast is a step, and what does a step wait for?

    PYTHONPATH=src python benchmarks/gpu.py agree steps waits kernels compiled --out benchmarks/results/gpu.jsonl
    PYTHONPATH=src python benchmarks/gpu.py simclr --out benchmarks/results/gpu.jsonl

Every measurement is one JSON line, appended when it ends, with the machine, the packages and the commit. A part ends
within eight minutes; what runs eagerly comes first, since compilation takes most of the time of the rest. Steps are
those of ``contrastlab.train`` itself, between two optimiser steps: data, views, loss, backward, update, storing.

The machine needs torch, torchvision, numpy, scipy, pandas, pillow, pyarrow, filelock, rich, safetensors and tqdm, and
as wheels pydantic, pydantic-core, annotated-types, typing-inspection and lightning-fabric with lightning-utilities.

Speed is measured on random pictures of CIFAR-10's size and number. Part ``simclr`` trains on CIFAR-10 itself.
``--device cpu --toy`` makes everything small, to see that the script runs; its numbers mean nothing.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.overrides import TorchFunctionMode

import contrastlab
from contrastlab import data, methods, papers, tasks
from contrastlab.methods import Recipe
from contrastlab.negatives import Ball, Cave, Ring
from contrastlab.pictures.augmentations import augmentation
from contrastlab.settings import Settings
from contrastlab.support import seeds
from contrastlab.support.provenance import provenance
from contrastlab.train import Speed, Trained, loop, pretrain

PACKAGE = Path(contrastlab.__file__).parent
PICTURES = 50_000
SMALL = {"image_size": 32, "stem": "cifar"}


class Enough(Exception):
    """Ends a training run once the steps that were wanted have been taken."""


@dataclass(frozen=True)
class Case:
    """A method under the ``paper`` protocol of a table, with some settings and parts changed."""

    name: str
    table: tuple[str, str]
    method: str
    settings: dict[str, Any] = field(default_factory=dict)
    parts: dict[str, Any] = field(default_factory=dict)


CASES = (
    Case("SimCLR, ResNet-18, 32 px", ("fmicl", "2"), "fmicl/simclr"),
    Case("IR, ResNet-18, 32 px", ("ring", "1"), "ring/ir", SMALL),
    Case("IRing, ResNet-18, 32 px", ("ring", "1"), "ring/iring", SMALL, {"negatives.outer": 10}),
    Case("MoCoRing, ResNet-18, 32 px", ("ring", "1"), "ring/mocoring", SMALL, {"negatives.outer": 10}),
    Case("MoCo, ResNet-18, 224 px", ("ring", "1"), "ring/moco"),
    Case("MoCo v2, ResNet-50, 224 px", ("jcl", "1"), "jcl/moco_v2", {"batch_size": 256}),
)
COMPILED = ("SimCLR, ResNet-18, 32 px", "MoCo, ResNet-18, 224 px")
AGREE = (
    "ring/ir",
    "ring/iring",
    "ring/moco",
    "ring/mocoring",
    "ring/cmc",
    "vince/ir",
    "vince/ball_sneigh",
    "jcl/jcl",
    "fmicl/kl",
    "fmicl/simclr",
)


class Bench:
    """A device and the file that measurements are appended to."""

    def __init__(self, device: str, out: Path, toy: bool, eager: bool = False, processes: int = 1) -> None:
        self.device, self.out, self.toy = device, out, toy
        self.eager, self.processes = eager, processes
        self.machine = provenance(device) | {"toy": toy, "cudnn": torch.backends.cudnn.version()}

    def append(self, part: str, case: str, **values: Any) -> None:
        """Write one line and print what it says."""
        line = {"part": part, "case": case, **values, "measured": datetime.now(UTC).isoformat(timespec="seconds")}
        self.out.parent.mkdir(parents=True, exist_ok=True)
        with self.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**line, "machine": self.machine}) + "\n")
        shown = {name: value for name, value in line.items() if name not in ("measured", "kernels")}
        print(json.dumps(shown), flush=True)

    def mark(self) -> Any:
        """A point in time on the device's own clock."""
        if self.device == "cpu":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def milliseconds(self, first: Any, last: Any) -> float:
        """Milliseconds between two marks."""
        if self.device == "cpu":
            return 1000 * float(last - first)
        last.synchronize()
        return float(first.elapsed_time(last))


def random_pictures(count: int, side: int = 32) -> data.ImageSet:
    """``count`` pictures of noise in ten classes."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (count, 3, side, side), generator=generator).to(torch.uint8)
    return data.ImageSet("random", pixels, torch.arange(count) % 10, tuple("0123456789"))


def recipe_and_settings(case: Case, precision: str, toy: bool) -> tuple[Recipe, Settings]:
    """What a case trains, and how."""
    settings = papers.plan(*case.table).settings("cifar10", case.method, "paper")
    settings = settings.override(**case.settings, precision=precision, knn_every=0)
    recipe = methods.get(case.method).override({**settings.overrides, **case.parts})
    if toy:
        settings = settings.override(arch="tiny", stem="cifar", image_size=16, batch_size=16, dim=16)
        recipe = recipe.override({"negatives.k": 15, "keys.size": 64, "keys.shuffle_groups": 2})
    return recipe, settings


def take_steps(bench: Bench, case: Case, precision: str, compiled: bool, after: Callable[[int], None]) -> Settings:
    """Train a case; ``after`` is called with 1, 2, … after each step and raises :class:`Enough` to end it."""
    recipe, settings = recipe_and_settings(case, precision, bench.toy)
    pictures = random_pictures(64 if bench.toy else PICTURES)
    steps = 0

    def count(*_: Any) -> None:
        nonlocal steps
        steps += 1
        after(steps)

    torch.compiler.reset()
    fabric = Fabric(accelerator=bench.device, devices=1, precision=precision)  # type: ignore[arg-type]
    handle = register_optimizer_step_post_hook(count)
    try:
        pretrain(recipe, settings, pictures, fabric=fabric, speed=Speed(compile=compiled), log=lambda line: None)
    except Enough:
        pass
    finally:
        handle.remove()
    return settings


# -- (a) the same numbers as on a CPU --------------------------------------------------------------


class DrawnOnHost(TorchFunctionMode):
    """Every random number comes from a generator of the CPU and is moved to where it was asked for.

    Generators of a CPU and of a GPU draw different numbers from one seed, and so no two runs could be compared.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if kwargs.get("generator") is None:
            return func(*args, **kwargs)
        devices = {argument.device for argument in args if isinstance(argument, Tensor)}
        if kwargs.get("device") is not None:
            devices.add(torch.device(kwargs["device"]))
            kwargs["device"] = "cpu"
        on_host = [argument.cpu() if isinstance(argument, Tensor) else argument for argument in args]
        drawn = func(*on_host, **kwargs)
        if not devices:
            return drawn
        (device,) = devices
        if func.__name__.endswith("_"):
            return args[0].copy_(drawn)
        return drawn.to(device)


def train_tiny(method: str, device: str) -> Trained:
    """Two epochs of three steps of a method with few keys, in float32, with draws of the CPU."""
    recipe = methods.get(method).override({"negatives.k": 16, "keys.size": 20, "keys.shuffle_groups": 2})
    if isinstance(recipe.negatives, Ball | Cave | Ring):
        # all of a region: a drawn position in it holds another key on another device
        recipe = recipe.override({"negatives.k": None})
    settings = Settings(
        image_size=16,
        arch="tiny",
        stem="cifar",
        dim=16,
        epochs=2,
        batch_size=16,
        milestones=(),
        knn_every=0,
        augmentation="mocov2",
    )
    fabric = Fabric(accelerator=device, devices=1, precision="32-true")
    on_device = loop.generator
    loop.generator = lambda seed, purpose, step=0, device="cpu": seeds.generator(seed, purpose, step)  # type: ignore[assignment]
    try:
        with DrawnOnHost():
            return pretrain(recipe, settings, random_pictures(48, 16), fabric=fabric, log=lambda line: None)
    finally:
        loop.generator = on_device


def agree(bench: Bench) -> None:
    """Losses and weights of ten recipes on the device beside those on the CPU, without TF32."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    for method in AGREE:
        there, here = train_tiny(method, bench.device), train_tiny(method, "cpu")
        losses = [(row["loss"], other["loss"]) for row, other in zip(there.history, here.history, strict=True)]
        distance, length = 0.0, 0.0
        for name, tensor in here.encoders.state_dict().items():
            other = there.encoders.state_dict()[name].cpu().double()
            distance += float((other - tensor.double()).square().sum())
            length += float(tensor.double().square().sum())
        worst = max(abs(a - b) / abs(b) for a, b in losses)
        bench.append(
            "agree",
            method,
            losses_there=[a for a, _ in losses],
            losses_cpu=[b for _, b in losses],
            relative_loss=worst,
            relative_weights=(distance / length) ** 0.5,
        )


# -- (b) milliseconds a step -----------------------------------------------------------------------


def time_steps(bench: Bench, case: Case, how: str, block: int = 15) -> None:
    """Milliseconds of a step, from three blocks of steps after a warm-up; ``how`` is tf32, bf16 or bf16 compiled."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    warm = 1 if bench.toy else 12
    block = 2 if bench.toy else block
    marks: list[Any] = []

    def after(step: int) -> None:
        if step >= warm and (step - warm) % block == 0:
            marks.append(bench.mark())
        if len(marks) > 3:
            raise Enough

    if bench.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    precision = "32-true" if how == "tf32" else "bf16-mixed"
    settings = take_steps(bench, case, precision, how.endswith("compiled"), after)
    blocks = [bench.milliseconds(first, last) / block for first, last in pairwise(marks)]
    peak = torch.cuda.max_memory_allocated() if bench.device == "cuda" else None
    step = statistics.median(blocks)
    bench.append(
        "steps",
        case.name,
        how=how,
        method=case.method,
        ms=step,
        blocks_ms=blocks,
        batch=settings.batch_size,
        image_size=settings.image_size,
        pictures_per_s=1000 * settings.batch_size / step,
        s_per_epoch=step * (PICTURES // settings.batch_size) / 1000,
        peak_bytes=peak,
        processes=bench.processes,
    )


def steps(bench: Bench) -> None:
    """Every case eagerly, in bfloat16 and in TF32."""
    for how in ("bf16", "tf32"):
        for case in CASES:
            attempt(bench, "steps", f"{case.name}, {how}", lambda c=case, h=how: time_steps(bench, c, h))


def compiled(bench: Bench) -> None:
    """Two cases in bfloat16, compiled; the first step takes up to a minute."""
    for case in CASES:
        if case.name in COMPILED:
            attempt(bench, "steps", f"{case.name}, compiled", lambda c=case: time_steps(bench, c, "bf16 compiled"))


def beside(bench: Bench, only: str) -> None:
    """One case in bfloat16 for many steps, while other processes use the device, too."""
    for case in CASES:
        if only in case.name:
            attempt(bench, "steps", case.name, lambda c=case: time_steps(bench, c, "bf16", block=200))


def attempt(bench: Bench, part: str, case: str, measure: Callable[[], None]) -> None:
    """Run a measurement; one that fails on a lent machine is a line with its error, and the others go on."""
    try:
        measure()
    except Exception as error:
        where = "".join(traceback.format_tb(error.__traceback__)[-3:])
        bench.append(part, case, failed=f"{type(error).__name__}: {error}"[:500], where=where[-1500:])
    if bench.device == "cuda":
        torch.cuda.empty_cache()


# -- (c) lines that wait, (d) the longest kernels --------------------------------------------------


@contextmanager
def count_waits(lines: Counter[str]) -> Iterator[None]:
    """Count PyTorch's warnings that the host waits for the device, by the line of contrastlab that caused them."""

    def show(message: Any, *_: Any, **__: Any) -> None:
        if "synchroniz" not in str(message):
            return
        frames = [frame for frame in traceback.extract_stack() if Path(frame.filename).is_relative_to(PACKAGE)]
        frame = frames[-1] if frames else None
        name = f"{Path(frame.filename).relative_to(PACKAGE)}:{frame.lineno} {frame.line}" if frame else "elsewhere"
        lines[name] += 1

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show
        yield


def waits(bench: Bench) -> None:
    """Waits of the host for the device in ten steps of every case, by line."""
    for case in CASES:
        lines: Counter[str] = Counter()

        def after(step: int, lines: Counter[str] = lines) -> None:
            if step == 5:
                lines.clear()
                if bench.device == "cuda":
                    torch.cuda.set_sync_debug_mode("warn")
            if step == 15:
                raise Enough

        def measure(case: Case = case, lines: Counter[str] = lines, after: Any = after) -> None:
            try:
                with count_waits(lines):
                    take_steps(bench, case, "bf16-mixed", False, after)
            finally:
                if bench.device == "cuda":
                    torch.cuda.set_sync_debug_mode("default")
            bench.append("waits", case.name, steps=10, waits=sum(lines.values()), lines=dict(lines.most_common()))

        attempt(bench, "waits", case.name, measure)


def kernels(bench: Bench) -> None:
    """The fifteen longest kernels of a step, and the share of the step in which the device computes."""
    kind = torch.profiler.ProfilerActivity.CUDA if bench.device == "cuda" else torch.profiler.ProfilerActivity.CPU
    for case in CASES:
        profiler = torch.profiler.profile(activities=[kind])
        marks: list[Any] = []

        def after(step: int, profiler: Any = profiler, marks: list[Any] = marks) -> None:
            if step in (10, 20):
                marks.append(bench.mark())
            if step == 20:
                profiler.start()
            if step == 30:
                if bench.device == "cuda":
                    torch.cuda.synchronize()
                profiler.stop()
                raise Enough

        def measure(case: Case = case, profiler: Any = profiler, marks: list[Any] = marks, after: Any = after) -> None:
            take_steps(bench, case, "bf16-mixed", False, after)
            spent: dict[str, tuple[float, float]] = {}
            for event in profiler.key_averages():
                total = event.self_device_time_total if bench.device == "cuda" else event.self_cpu_time_total
                spent[event.key] = (total / 1000 / 10, event.count / 10)
            longest = sorted(spent.items(), key=lambda item: -item[1][0])[:15]
            busy = sum(ms for ms, _ in spent.values())
            step = bench.milliseconds(*marks) / 10
            bench.append(
                "kernels",
                case.name,
                step_ms=step,
                busy_ms=busy,
                count=sum(count for _, count in spent.values()),
                kernels=[{"name": name[:120], "ms": ms, "calls": calls} for name, (ms, calls) in longest],
            )
            for name, (ms, calls) in longest[:6]:
                print(f"    {ms:7.3f} ms {calls:6.1f} × {name[:90]}", flush=True)

        attempt(bench, "kernels", case.name, measure)


# -- (e) accuracy ----------------------------------------------------------------------------------


def simclr(bench: Bench) -> None:
    """SimCLR on CIFAR-10 with the views, head of two layers and optimiser of lightly's benchmark.

    Its 84.8 % (200-NN) is the best of all epochs on test pictures; ours is that of the last epoch.
    """
    recipe, settings = recipe_and_settings(CASES[0], "bf16-mixed", bench.toy)
    changes = {"epochs": 200, "dim": 128, "head": "mlp", "augmentation": "simclr", "lr": 0.24, "weight_decay": 5e-4}
    if bench.toy:
        changes |= {"epochs": 2, "dim": 16}
    settings = settings.override(**changes)
    compiles = not (bench.toy or bench.eager)
    splits = data.load("shapes", n_train=64, n_test=32) if bench.toy else data.load("cifar10", download=False)
    fabric = Fabric(accelerator=bench.device, devices=1, precision="bf16-mixed")
    done = pretrain(recipe, settings, splits.pretrain, fabric=fabric, speed=Speed(compile=compiles))
    view = augmentation(settings.augmentation, settings.image_size)
    (rows, labels), (queries, truth) = (
        tasks.encode(done.encoders, recipe.views, view, part, kind="pooled", device=bench.device)
        for part in (splits.train, splits.test)
    )
    normalise = torch.nn.functional.normalize
    right = tasks.knn(normalise(rows, dim=1), labels, normalise(queries, dim=1), truth)
    bench.append(
        "simclr",
        CASES[0].name,
        epochs=settings.epochs,
        minutes=done.seconds / 60,
        compiled=compiles,
        processes=bench.processes,
        knn=tasks.Measured.share(right).value,
        loss=done.history[-1]["loss"],
        data_note=splits.note,
        settings=settings.model_dump(mode="json", exclude_defaults=True),
    )


PARTS: dict[str, Callable[[Bench], None]] = {
    "agree": agree,
    "steps": steps,
    "waits": waits,
    "kernels": kernels,
    "compiled": compiled,
    "simclr": simclr,
}


def main(arguments: list[str] | None = None) -> int:
    """Run the parts that are asked for, in the order they are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=(*PARTS, "beside"))
    parser.add_argument("--out", type=Path, required=True, help="file that JSON lines are appended to")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--only", default="", help="part beside: words in the name of the case")
    parser.add_argument("--processes", type=int, default=1, help="how many use the device, this one counted")
    parser.add_argument("--eager", action="store_true", help="part simclr: without torch.compile")
    parser.add_argument("--toy", action="store_true", help="everything tiny; the numbers mean nothing")
    asked = parser.parse_args(arguments)
    if asked.device == "cuda" and not torch.cuda.is_available():
        print("gpu.py: PyTorch sees no GPU here", file=sys.stderr)
        return 2
    bench = Bench(asked.device, asked.out, asked.toy, asked.eager, asked.processes)
    for name in asked.parts:
        if name == "beside":
            beside(bench, asked.only)
        else:
            attempt(bench, name, "whole part", lambda part=PARTS[name]: part(bench))
    return 0


if __name__ == "__main__":
    sys.exit(main())
