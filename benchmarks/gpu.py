"""Every row of speed that wants a GPU, and one of accuracy, in parts of a few minutes.

    PYTHONPATH=src python benchmarks/gpu.py --list
    PYTHONPATH=src python benchmarks/gpu.py PART [PART ...] --out DIR

Each part writes ``DIR/<part>.json``, whole or not at all, after every row. A row that is there is not measured again,
so an interrupted call (Ctrl-C) is repeated until it exits with 0; training keeps its checkpoint in ``--scratch`` and
continues there. ``all`` is every part that is left, most telling first. To measure anew, take another ``DIR``.

A step is timed inside ``contrastlab.pretrain``, between the ends of two optimiser steps, with events of the device:
data, augmentation, loss, backward, update and storing of keys are all in it. Speed is measured on random images
of CIFAR-10's size and number; accuracy on CIFAR-10 itself, looked for under ``--data`` as ``cifar10/*.parquet``.
Tables are no part of it: ``python -m contrastlab run ring/table1 --profile paper --accelerator cuda`` makes them.
Exit status: 0 all asked for is measured, 1 a row failed, 2 nothing could start.

``--toy`` makes everything small enough for a CPU: it shows that the script runs, and its numbers mean nothing.
It is one long file because it is carried alone, beside ``src``, to machines that are lent for an hour.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import statistics
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import cache, cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import nn
from torch.nn import functional as F
from torch.optim.optimizer import register_optimizer_step_post_hook

from contrastlab import data, files, methods, papers, results, tasks
from contrastlab.candidates import Stored
from contrastlab.data.augmentations import augmentation
from contrastlab.errors import ArgumentError, ContrastLabError, MissingDataError, reject, unknown
from contrastlab.methods import Recipe
from contrastlab.negatives import BatchRandom, Every, Negatives, Ring, Uniform
from contrastlab.objectives import info_nce
from contrastlab.pretrain import Speed, pretrain
from contrastlab.settings import Settings

CIFAR, IMAGENET = 50_000, 1_281_167
PACKAGE = Path(methods.__file__).parent
COMPILED, EAGER = Speed(compile=True), Speed()


class Enough(Exception):
    """Ends a training run whose steps have been seen."""


# -- where and how long ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Lab:
    """The machine and the folders."""

    device: str
    out: Path
    scratch: Path
    data: Path
    toy: bool
    commit: str | None

    @property
    def cuda(self) -> bool:
        """Whether the device is a GPU."""
        return self.device == "cuda"

    def full(self, value: Any, toy: Any) -> Any:
        """The real size, or that of a toy."""
        return toy if self.toy else value

    @cached_property
    def machine(self) -> dict[str, Any]:
        """What each row says of code and machine."""
        known = results.provenance(self.device)
        return {
            "commit": self.commit or known["git_commit"], "dirty": known["git_dirty"],
            "device": known["gpu"] or known["cpu"], "driver": known["driver"], "torch": torch.__version__,
            "cuda": known["cuda"], "python": platform.python_version(), "cores": known["cores"],
            "float32_matmul": torch.get_float32_matmul_precision(),
        }  # fmt: skip

    def mark(self) -> Any:
        """A point in time on the device's own clock."""
        if not self.cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between(self, first: Any, last: Any) -> float:
        """Seconds from mark to mark."""
        if not self.cuda:
            return float(last - first)
        last.synchronize()
        return float(first.elapsed_time(last)) / 1000

    def reset_peak(self) -> None:
        """Forget how much memory was held."""
        if self.cuda:
            torch.cuda.reset_peak_memory_stats()

    def peak(self) -> int | None:
        """Bytes held at most since the last reset; unknown on a CPU."""
        return torch.cuda.max_memory_allocated() if self.cuda else None


@dataclass
class Sheet:
    """``DIR/<part>.json`` in memory."""

    path: Path
    part: str
    toy: bool
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)

    @classmethod
    def open(cls, lab: Lab, part: str) -> Sheet:
        """What earlier calls measured; an empty sheet if there is none.

        Raises:
            ArgumentError: the file is not one of this script's, or holds toy rows beside which real ones are asked for.
        """
        sheet = cls(lab.out / f"{part}.json", part, lab.toy)
        if sheet.path.exists():
            try:
                raw = json.loads(sheet.path.read_text(encoding="utf-8"))
                sheet.rows = {row["name"]: row for row in raw["rows"]}
                sheet.failed, there = raw["failed"], raw["toy"]
            except (ValueError, KeyError, TypeError) as error:
                raise ArgumentError(f"{sheet.path} is no file of this script ({error}); take another --out") from error
            if there != lab.toy:
                raise ArgumentError(f"{sheet.path} was measured {'with' if there else 'without'} --toy: another --out")
        return sheet

    def save(self) -> None:
        """Write the file, whole or not at all."""
        whole = {
            "part": self.part, "toy": self.toy, "rows": list(self.rows.values()), "left": self.left,
            "failed": self.failed,
        }  # fmt: skip
        files.write_whole(self.path, json.dumps(whole, indent=1, ensure_ascii=False) + "\n")


Measure = Callable[[Lab, Sheet], dict[str, Any] | None]


@dataclass(frozen=True)
class Row:
    """One number.

    Args:
        name: of the row; measured once per file.
        unit: of the value.
        seconds: it may take, an estimate.
        measure: gives ``value`` and what else is to be known; ``None`` if other rows must come first.
        bar: what the value should be, such as ``"<= 2.0"``.
    """

    name: str
    unit: str
    seconds: float
    measure: Measure
    bar: str | None = None


@dataclass(frozen=True)
class Part:
    """Rows that belong together."""

    name: str
    what: str
    rows: Callable[[Lab], list[Row]]
    data: bool = False


def met(value: float, bar: str | None) -> bool | None:
    """Whether ``value`` keeps the bar."""
    if bar is None:
        return None
    sense, _, limit = bar.partition(" ")
    return value <= float(limit) if sense == "<=" else value >= float(limit)


def repeated(values: Sequence[float]) -> dict[str, float]:
    """Median, extremes and spread (their distance over the median) of repetitions."""
    middle, low, high = statistics.median(values), min(values), max(values)
    return {"count": len(values), "median": middle, "min": low, "max": high, "spread": (high - low) / middle}


def run_part(lab: Lab, part: Part) -> Sheet:
    """Measure what is missing of a part."""
    sheet = Sheet.open(lab, part.name)
    rows = part.rows(lab)
    sheet.left = [row.name for row in rows if row.name not in sheet.rows]
    sheet.save()
    for row in rows:
        if row.name in sheet.rows:
            continue
        try:
            found = row.measure(lab, sheet)
        except MissingDataError:
            raise
        except Exception as error:  # one row that fails on a lent machine must not take the others with it
            where = "".join(traceback.format_tb(error.__traceback__)[-2:])
            sheet.failed[row.name] = f"{type(error).__name__}: {error}\n{where}"[:4000]
            print(f"{part.name}: {row.name} FAILED: {type(error).__name__}: {error}", flush=True)
            found = None
        if found is not None:
            sheet.rows[row.name] = record(lab, row, found)
            sheet.left.remove(row.name)
            sheet.failed.pop(row.name, None)
            bar = f" (bar {row.bar})" if row.bar else ""
            print(f"{part.name}: {row.name}: {found['value']:.4g} {row.unit}{bar}", flush=True)
        sheet.save()
        tidy(lab)
    return sheet


PLAIN = (
    "repetitions", "warmup_s", "precision", "compile", "channels_last", "fused", "batch", "images", "profile",
    "protocol", "peak_memory_bytes",
)  # fmt: skip
"""Fields that every row has; ``None`` where they say nothing."""


def record(lab: Lab, row: Row, found: dict[str, Any]) -> dict[str, Any]:
    """A row as it is stored."""
    return {
        "name": row.name, "value": found["value"], "unit": row.unit, "bar": row.bar,
        "met": None if lab.toy else met(found["value"], row.bar), **dict.fromkeys(PLAIN), **found, **lab.machine,
        "measured": datetime.now(UTC).isoformat(timespec="seconds"),
    }  # fmt: skip


def tidy(lab: Lab) -> None:
    """Give back what a row held of the GPU."""
    if lab.cuda:
        gc.collect()
        torch.cuda.empty_cache()


# -- steps of the real loop ------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A method under the protocol of a table, with some settings and parts changed."""

    label: str
    table: tuple[str, str]
    method: str
    changes: dict[str, Any] = field(default_factory=dict)
    parts: dict[str, Any] = field(default_factory=dict)

    def make(self, lab: Lab, precision: str) -> tuple[Recipe, Settings]:
        """Recipe and settings."""
        settings = papers.plan(*self.table).settings("cifar10", self.method)
        settings = settings.override(**self.changes, precision=precision, knn_every=0)
        recipe = methods.get(self.method).override({**settings.overrides, **self.parts})
        if lab.toy:
            settings = settings.override(arch="tiny", stem="cifar", image_size=16, batch_size=16, dim=16)
            recipe = recipe.override({"negatives.k": 15, "keys.size": 64})
        return recipe, settings

    @property
    def protocol(self) -> str:
        """Such as ``ring/table1``."""
        return f"{self.table[0]}/table{self.table[1]}"


RING = ("ring", "1")
SMALL = {"image_size": 32, "stem": "cifar"}
# IRing and MoCoRing shrink their ring from all keys to a tenth of them: the two ends of their schedule
SIMCLR = Case("SimCLR 32 px", ("fmicl", "2"), "fmicl/simclr")
IR_SMALL = Case("IR 32 px", RING, "ring/ir", SMALL)
IR = Case("IR 224 px", RING, "ring/ir")
IRING = Case("IRing 224 px, ring to 10 %", RING, "ring/iring", parts={"negatives.outer": 10})
IRING_WIDE = Case("IRing 224 px, ring to 100 %", RING, "ring/iring", parts={"negatives.outer": 100})
MOCO = Case("MoCo 224 px", RING, "ring/moco")
MOCORING = Case("MoCoRing 224 px, ring to 10 %", RING, "ring/mocoring", parts={"negatives.outer": 10})
MOCORING_WIDE = Case("MoCoRing 224 px, ring to 100 %", RING, "ring/mocoring", parts={"negatives.outer": 100})
BARS = {SIMCLR.label: "<= 2.0", IR.label: "<= 4", MOCO.label: "<= 6"}


@cache
def random_images(count: int) -> data.ImageSet:
    """``count`` random pictures of 32 px; of a very large set all rows are one picture, which takes no memory."""
    distinct = count if count <= CIFAR else 1
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (distinct, 3, 32, 32), generator=generator, dtype=torch.uint8)
    return data.ImageSet("random", pixels.expand(count, -1, -1, -1), torch.arange(count) % 10, tuple("0123456789"))


def train(
    lab: Lab, case: Case, precision: str, speed: Speed, seen: Callable[[int], None], count: int = CIFAR
) -> dict[str, Any]:
    """Train until ``seen``, called with 1, 2, … after each optimiser step, raises :class:`Enough`.

    Returns:
        What a row says of the run.
    """
    recipe, settings = case.make(lab, precision)
    source = random_images(lab.full(count, 256 if count > CIFAR else 64))
    done = 0

    def hook(*_: Any) -> None:
        nonlocal done
        done += 1
        seen(done)

    torch.compiler.reset()  # compiled code of one case must not count towards the limit of another
    fabric = Fabric(accelerator=lab.device, devices=1, precision=settings.precision)
    handle = register_optimizer_step_post_hook(hook)
    try:
        pretrain(recipe, settings, source, fabric=fabric, speed=speed, log=lambda line: None)
    except Enough:
        pass
    finally:
        handle.remove()
    return {
        "precision": precision, **switches(speed), "batch": settings.batch_size, "images": len(source),
        "profile": "toy" if lab.toy else "paper", "protocol": case.protocol, "image_size": settings.image_size,
        "method": case.method,
    }  # fmt: skip


def switches(speed: Speed) -> dict[str, Any]:
    """The switches of speed, as a row has them."""
    return {name: on for name, on in asdict(speed).items() if name != "workers"}


def steps_of(lab: Lab, case: Case) -> int:
    """Steps of an epoch of CIFAR-10 (of the toy's images)."""
    return int(lab.full(CIFAR, 64) // case.make(lab, "32-true")[1].batch_size)


def timed(
    lab: Lab, sheet: Sheet, *, case: Case, precision: str, speed: Speed, whole: bool = False, count: int = CIFAR,
    per: str = "epoch",
) -> dict[str, Any]:  # fmt: skip
    """Seconds per epoch, or milliseconds per step, from blocks of consecutive steps.

    Blocks have 50 steps, since the loop reads its sums every 50; with ``whole`` they are real epochs.
    """
    steps = steps_of(lab, case)
    warm, block, blocks = (steps, steps, 2) if whole else lab.full((20, 50, 5), (1, 2, 2))
    marks: list[Any] = []
    began, warmup = time.monotonic(), 0.0

    def seen(step: int) -> None:
        nonlocal warmup
        if step == warm:
            warmup = time.monotonic() - began
            lab.reset_peak()
        if step >= warm and (step - warm) % block == 0:
            marks.append(lab.mark())
        if len(marks) > blocks:
            raise Enough

    about = train(lab, case, precision, speed, seen, count)
    each = [lab.between(a, b) / block for a, b in pairwise(marks)]
    scale = steps if per == "epoch" else 1000
    values = [scale * s for s in each]
    middle = statistics.median(each)
    return {
        **about, "value": statistics.median(values), "repetitions": repeated(values), "warmup_s": warmup,
        "steps": block * blocks, "step_ms": 1000 * middle, "images_per_s": about["batch"] / middle,
        "peak_memory_bytes": lab.peak(),
    }  # fmt: skip


def ratio(lab: Lab, sheet: Sheet, *, over: str, under: str) -> dict[str, Any] | None:
    """One row over another, with the least and largest the repetitions allow; nothing is run."""
    if over not in sheet.rows or under not in sheet.rows:
        return None
    a, b = sheet.rows[over], sheet.rows[under]
    first, second = a["repetitions"], b["repetitions"]
    low, high = first["min"] / second["max"], first["max"] / second["min"]
    value = a["value"] / b["value"]
    same = {name: a[name] for name in PLAIN if a[name] == b[name] and not name.startswith(("warmup", "peak"))}
    return {
        **same, "value": value, "over": over, "under": under,
        "repetitions": {
            "count": first["count"], "median": value, "min": low, "max": high, "spread": (high - low) / value,
        },
    }  # fmt: skip


def epoch_rows(precision: str, lab: Lab) -> list[Row]:
    """Parts ``epoch`` and ``float32``."""
    rows: list[Row] = []
    measure: Measure
    pairs = ((IRING, IR), (MOCORING, MOCO), (IRING_WIDE, IR), (MOCORING_WIDE, MOCO))
    for speed, seconds in ((COMPILED, 45), (EAGER, 15)):
        how = f"{precision}, {'compiled' if speed.compile else 'eager'}"
        for case in (SIMCLR, IR, IRING, MOCO, MOCORING, IR_SMALL, IRING_WIDE, MOCORING_WIDE):
            measure = partial(timed, case=case, precision=precision, speed=speed)
            rows.append(Row(f"{case.label}, {how}", "s/epoch", seconds, measure, BARS.get(case.label)))
        for ring, base in pairs:
            measure = partial(ratio, over=f"{ring.label}, {how}", under=f"{base.label}, {how}")
            rows.append(Row(f"{ring.label} / {base.label}, {how}", "1", 0, measure, "<= 1.05"))
    measure = partial(timed, case=SIMCLR, precision=precision, speed=COMPILED, whole=True)
    return [*rows, Row(f"{SIMCLR.label}, whole epochs, {precision}, compiled", "s/epoch", 45, measure, "<= 2.0")]


def switch_rows(lab: Lab) -> list[Row]:
    """One switch off at a time, to be read beside the compiled rows of ``epoch``."""
    off = {
        "weights contiguous": replace(COMPILED, channels_last=False),
        "optimiser not fused": replace(COMPILED, fused=False),
    }
    return [
        Row(f"{case.label}, {what}", "s/epoch", 45, partial(timed, case=case, precision="bf16-mixed", speed=speed))
        for case in (SIMCLR, MOCO) for what, speed in off.items()
    ]  # fmt: skip


# -- choosing negatives ----------------------------------------------------------------------------


def clock(lab: Lab, work: Callable[[], object], inner: int = 10, reps: int = 7) -> tuple[list[float], float]:
    """Seconds of one call of ``work``, once per repetition, and those of the first calls."""
    inner, reps = lab.full((inner, reps), (1, 2))
    began = time.monotonic()
    for _ in range(lab.full(3, 1)):
        work()
    if lab.cuda:
        torch.cuda.synchronize()
    warmup = time.monotonic() - began
    lab.reset_peak()
    found = []
    for _ in range(reps):
        first = lab.mark()
        for _ in range(inner):
            work()
        found.append(lab.between(first, lab.mark()) / inner)
    return found, warmup


def select(
    lab: Lab, sheet: Sheet, *, keys: int, queue: bool, negatives: Negatives | None, streamed: bool = False
) -> dict[str, Any]:
    """Milliseconds of scores, selection, loss and backward; of the scores alone for ``negatives=None``."""
    keys, batch, dim, tau = lab.full((keys, 256, 128, 0.07), (400, 16, 16, 0.07))
    generator = torch.Generator(lab.device).manual_seed(0)
    bank = F.normalize(torch.randn(keys, dim, generator=generator, device=lab.device), dim=1)
    query = F.normalize(torch.randn(batch, dim, generator=generator, device=lab.device), dim=1).requires_grad_()
    rows = torch.arange(batch, device=lab.device)
    own, positive, draws = None if queue else rows, bank[rows], BatchRandom(generator)

    def work() -> None:
        query.grad = None
        q = query / tau
        if negatives is None:
            q @ bank.T
        else:
            candidates = Stored(q, bank, own, dense=not streamed)
            chosen = negatives.select(candidates, draws, step=0, total=1)
            info_nce((q * positive).sum(1), candidates.read(chosen)).mean().backward()

    with torch.no_grad() if negatives is None else nullcontext():
        times, warmup = clock(lab, work)
    values = [1000 * s for s in times]
    return {
        "value": statistics.median(values), "repetitions": repeated(values), "warmup_s": warmup,
        "precision": "32-true", "compile": False, "batch": batch, "keys": keys, "dim": dim, "streamed": streamed,
        "negatives": repr(negatives), "peak_memory_bytes": lab.peak(), "bank_bytes": 4 * keys * dim,
    }  # fmt: skip


def selection_rows(lab: Lab) -> list[Row]:
    """Selection alone, then whole steps over the largest bank."""
    rows: list[Row] = []
    measure: Measure
    for what, keys, k in (("bank", CIFAR, 4095), ("queue", 65_536, None), ("bank", IMAGENET, 4095)):
        place, ring = f"{what} of {keys:,}", Ring(1, 10, k=k)
        ways: dict[str, tuple[Negatives | None, bool]] = {
            "scores alone": (None, False), "every key": (Every(), False), "uniform": (Uniform(4095), False),
            "ring": (ring, False), "uniform, streamed": (Uniform(4095), True), "ring, streamed": (ring, True),
        }  # fmt: skip
        for name, (part, streamed) in ways.items():
            measure = partial(select, keys=keys, queue=k is None, negatives=part, streamed=streamed)
            rows.append(Row(f"{place}, {name}", "ms", 10, measure))
        for over in ("ring", "ring, streamed"):
            for base in ("scores alone", "every key", "uniform"):
                measure = partial(ratio, over=f"{place}, {over}", under=f"{place}, {base}")
                rows.append(Row(f"{place}, {over} / {base}", "1", 0, measure))
    place = f"step at 224 px, bank of {IMAGENET:,}"
    for name, case in (("ring", IRING), ("uniform", IR)):
        measure = partial(timed, case=case, precision="bf16-mixed", speed=COMPILED, count=IMAGENET, per="step")
        rows.append(Row(f"{place}, {name}", "ms", 60, measure))
    measure = partial(ratio, over=f"{place}, ring", under=f"{place}, uniform")
    return [*rows, Row(f"{place}, ring / uniform", "1", 0, measure, "<= 1.1")]


# -- what a step waits for and what it spends its time on ------------------------------------------


def project_line() -> str:
    """The innermost line of contrastlab on the stack."""
    for frame in reversed(traceback.extract_stack()):
        path = Path(frame.filename)
        if path.is_relative_to(PACKAGE):
            return f"{path.relative_to(PACKAGE)}:{frame.lineno} {frame.line}"
    return "outside contrastlab"


@contextmanager
def listening(found: Counter[str]) -> Iterator[None]:
    """Count the warnings of PyTorch's synchronisation check by the line that caused them."""

    def show(message: Any, *_: Any, **__: Any) -> None:
        if "synchroniz" in str(message):
            found[project_line()] += 1

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show
        yield


def synchronisations(lab: Lab, sheet: Sheet, *, case: Case, count: int = CIFAR) -> dict[str, Any]:
    """Waits of the host for the device in a step, between two readings of the sums (every 50 steps)."""
    warm, steps = lab.full((5, 40), (1, 3))
    found: Counter[str] = Counter()

    def check(mode: str) -> None:
        if lab.cuda:
            torch.cuda.set_sync_debug_mode(mode)

    def seen(step: int) -> None:
        if step == warm:
            found.clear()
            check("warn")
        if step == warm + steps:
            raise Enough

    try:
        with listening(found):
            about = train(lab, case, "bf16-mixed", EAGER, seen, count)
    finally:
        check("default")
    return {**about, "value": sum(found.values()) / steps, "steps": steps, "lines": dict(found.most_common())}


def sync_rows(lab: Lab) -> list[Row]:
    """Every method, eager: compilation hides lines."""
    cases = [(c.label, c, CIFAR) for c in (SIMCLR, IR, IRING, MOCO, MOCORING)]
    cases.append((f"{IRING.label}, bank of {IMAGENET:,}", IRING, IMAGENET))
    return [
        Row(label, "synchronisations/step", 20, partial(synchronisations, case=case, count=count), "<= 0")
        for label, case, count in cases
    ]


def kernels(lab: Lab, sheet: Sheet, *, case: Case, speed: Speed) -> dict[str, Any]:
    """Milliseconds of kernels in a step and the kernels that take most of them."""
    warm, steps = lab.full((20, 20), (1, 2))
    kind = torch.profiler.ProfilerActivity.CUDA if lab.cuda else torch.profiler.ProfilerActivity.CPU
    profiler = torch.profiler.profile(activities=[kind])
    marks: list[Any] = []
    began, warmup = time.monotonic(), 0.0

    def seen(step: int) -> None:
        nonlocal warmup
        if step == warm:
            warmup = time.monotonic() - began
            marks.append(lab.mark())
        if step == warm + steps:
            marks.append(lab.mark())
            profiler.start()
        if step == warm + 2 * steps:
            if lab.cuda:
                torch.cuda.synchronize()
            profiler.stop()
            raise Enough

    about = train(lab, case, "bf16-mixed", speed, seen)
    spent = {
        e.key: ((e.self_device_time_total if lab.cuda else e.self_cpu_time_total) / 1000 / steps, e.count / steps)
        for e in profiler.key_averages()
    }
    total = sum(ms for ms, _ in spent.values())
    top = sorted(spent.items(), key=lambda item: -item[1][0])[:25]
    step_ms = 1000 * lab.between(*marks) / steps
    return {
        **about, "value": total, "warmup_s": warmup, "steps": steps, "step_ms": step_ms, "busy": total / step_ms,
        "kernels": [{"name": k[:160], "ms": ms, "calls": n, "share": ms / total} for k, (ms, n) in top],
    }  # fmt: skip


def kernel_rows(lab: Lab) -> list[Row]:
    """SimCLR and MoCo, compiled and eager."""
    return [
        Row(f"{case.label}, {how}", "ms of kernels/step", seconds, partial(kernels, case=case, speed=speed))
        for case in (SIMCLR, MOCO) for how, speed, seconds in (("compiled", COMPILED, 45), ("eager", EAGER, 20))
    ]  # fmt: skip


# -- augmentation and probes -----------------------------------------------------------------------


def views(lab: Lab, sheet: Sheet, *, name: str, size: int, batch: int) -> dict[str, Any]:
    """Views a second of uint8 images of 32 px that lie on the device."""
    batch, size = lab.full((batch, size), (16, 16))
    recipe, generator = augmentation(name, size), torch.Generator(lab.device).manual_seed(0)
    pixels = torch.randint(0, 256, (batch, 3, 32, 32), generator=generator, device=lab.device, dtype=torch.uint8)
    times, warmup = clock(lab, lambda: recipe.random(pixels, generator))
    values = [batch / s for s in times]
    return {
        "value": statistics.median(values), "repetitions": repeated(values), "warmup_s": warmup,
        "precision": "32-true", "compile": False, "batch": batch, "images": batch, "peak_memory_bytes": lab.peak(),
    }  # fmt: skip


def view_rows(lab: Lab) -> list[Row]:
    """Two recipes, to 32 px and to 224 px."""
    return [
        Row(f"{name}, 32 px to {size} px", "views/s", 10, partial(views, name=name, size=size, batch=batch))
        for name in ("instdisc", "mocov2", "simclr") for size, batch in ((32, 512), (224, 256))
    ]  # fmt: skip


def probe(lab: Lab, sheet: Sheet, *, name: str) -> dict[str, Any]:
    """Seconds of a probe on random rows about ten centres."""
    count, tests, dim = lab.full((CIFAR, 10_000, 512), (64, 32, 16))
    generator = torch.Generator(lab.device).manual_seed(0)
    centres = torch.randn(10, dim, generator=generator, device=lab.device)
    truth = torch.arange(count + tests, device=lab.device) % 10
    rows = centres[truth] + 4 * torch.randn(count + tests, dim, generator=generator, device=lab.device)
    rows = F.normalize(rows, dim=1)
    known, asked = (rows[:count], truth[:count], rows[count:]), truth[count:]
    work: dict[str, Callable[[], object]] = {
        "weighted 200-NN": lambda: tasks.knn(*known, asked),
        "1-NN": lambda: tasks.nearest_neighbour(*known, asked),
        "linear, L-BFGS": lambda: tasks.linear_lbfgs(*known),
    }
    times, warmup = clock(lab, work[name], inner=1, reps=3)
    return {
        "value": statistics.median(times), "repetitions": repeated(times), "warmup_s": warmup,
        "precision": "32-true", "compile": False, "images": count, "tests": tests, "dim": dim,
        "peak_memory_bytes": lab.peak(),
    }  # fmt: skip


def probe_rows(lab: Lab) -> list[Row]:
    """Neighbours and a linear classifier."""
    names = ("weighted 200-NN", "1-NN", "linear, L-BFGS")
    return [Row(f"{name}, 50,000 x 512", "s", 20, partial(probe, name=name)) for name in names]


# -- accuracy --------------------------------------------------------------------------------------


def cifar(lab: Lab) -> data.Splits:
    """CIFAR-10, or a few generated pictures.

    Raises:
        MissingDataError: it is not under the folder of data.
    """
    if lab.toy:
        return data.load("shapes", n_train=64, n_test=32)
    return data.load("cifar10", lab.data, download=False)


def simclr(lab: Lab, sheet: Sheet) -> dict[str, Any]:
    """SimCLR with f-MICL's encoder, and views, head and optimiser of lightly's benchmark, the number beside it."""
    splits = cifar(lab)
    recipe, settings = SIMCLR.make(lab, "bf16-mixed")
    settings = settings.override(
        epochs=lab.full(200, 2), dim=lab.full(128, 16), augmentation="simclr", lr=0.24, weight_decay=5e-4
    )
    fabric = Fabric(accelerator=lab.device, devices=1, precision=settings.precision)
    torch.compiler.reset()
    lab.reset_peak()
    done = pretrain(recipe, settings, splits.pretrain, folder=lab.scratch / "simclr", fabric=fabric, speed=COMPILED)
    found = {kind: neighbours(lab, done.encoders, recipe, settings, splits, kind) for kind in ("pooled", "embedding")}
    return {
        "value": found["pooled"], "embedding": found["embedding"], "minutes": done.seconds / 60,
        "precision": settings.precision,
        **switches(COMPILED), "batch": settings.batch_size, "images": len(splits.pretrain),
        "profile": "toy" if lab.toy else None, "epochs": settings.epochs, "settings": settings.model_dump(mode="json"),
        "s_per_epoch": done.seconds / settings.epochs, "curve": done.history, "data_note": splits.note,
        "peak_memory_bytes": lab.peak(),
    }  # fmt: skip


def neighbours(
    lab: Lab, encoders: nn.ModuleList, recipe: Recipe, settings: Settings, splits: data.Splits, kind: Any
) -> float:
    """Percent right of 200 weighted neighbours of the test images."""
    view = augmentation(settings.augmentation, settings.image_size)
    parts = (
        tasks.encode(encoders, recipe.views, view, part, kind=kind, device=lab.device)
        for part in (splits.train, splits.test)
    )
    (rows, labels), (queries, truth) = [(F.normalize(x, dim=1), y) for x, y in parts]
    return tasks.Measured.share(tasks.knn(rows, labels, queries, truth)).value


def copied(lab: Lab, sheet: Sheet, *, source: str, key: str) -> dict[str, Any] | None:
    """What another row found beside its value."""
    if source not in sheet.rows:
        return None
    row = sheet.rows[source]
    return {**{name: row[name] for name in PLAIN}, "value": row[key], "from": source}


def simclr_rows(lab: Lab) -> list[Row]:
    """Accuracy and minutes of one training."""
    main = "200-NN of pooled features"
    return [
        Row(main, "%", 500, simclr, ">= 84"),
        Row("200-NN of embeddings", "%", 0, partial(copied, source=main, key="embedding")),
        Row("minutes of 200 epochs", "min", 0, partial(copied, source=main, key="minutes"), "<= 8"),
    ]


PARTS = (
    Part("epoch", "seconds per epoch, bfloat16, compiled and eager; ring over base", partial(epoch_rows, "bf16-mixed")),
    Part("selection", "choosing negatives among 50 k, 65 k, 1.28 M keys; a step over the largest bank", selection_rows),
    Part("syncs", "waits of the host for the device in a step, by line", sync_rows),
    Part("profile", "kernels of a step of SimCLR and MoCo", kernel_rows),
    Part("views", "augmented views a second", view_rows),
    Part("probes", "neighbours and linear probe on 50,000 rows", probe_rows),
    Part("simclr", "SimCLR, 200 epochs of CIFAR-10: minutes and neighbours", simclr_rows, data=True),
    Part("float32", "seconds per epoch, float32, compiled and eager", partial(epoch_rows, "32-true")),
    Part("switches", "seconds per epoch with a switch of speed off", switch_rows),
)  # fmt: skip
"""Most telling first."""


# -- command line ----------------------------------------------------------------------------------


def listing(lab: Lab) -> str:
    """Parts, rows and bars; minutes are estimated from the bars."""
    lines = ["part        rows  minutes (an estimate from the bars)  what; bars"]
    for part in PARTS:
        rows = part.rows(lab)
        minutes = sum(row.seconds for row in rows) / 60
        lines.append(f"{part.name:10s} {len(rows):5d}  {minutes:7.0f}  {part.what}")
        lines += [f"{'':27s}{row.name}: {row.bar} {row.unit}" for row in rows if row.bar]
    return "\n".join(lines)


def chosen(names: Sequence[str]) -> list[Part]:
    """Parts by name, ``all`` for the others in their order.

    Raises:
        UnknownNameError: no such part.
    """
    known = {part.name: part for part in PARTS}
    for name in names:
        if name not in (*known, "all"):
            raise unknown("part", name, (*known, "all"))
    order = [n for name in names for n in (known if name == "all" else (name,))]
    return [known[name] for name in dict.fromkeys(order)]


def prepared(args: argparse.Namespace) -> Lab:
    """Folders and device as asked for."""
    scratch = Path(args.scratch) if args.scratch else Path(tempfile.gettempdir()) / "contrastlab-gpu"
    return Lab(args.device, Path(args.out or "."), scratch, data.data_root(args.data), args.toy, args.commit)


def check(lab: Lab, parts: Sequence[Part], out: str | None) -> None:
    """Refuse before any work what cannot be done.

    Raises:
        ArgumentError: no part, no folder, a device that is not there.
        MissingDataError: a part wants CIFAR-10 and its folder is not there.
    """
    if not parts:
        raise reject("PART", None, f"all, or some of {', '.join(part.name for part in PARTS)}")
    if out is None:
        raise reject("--out", None, "the folder for the results")
    if lab.cuda and not torch.cuda.is_available():
        raise reject("--device", "cuda", "'cpu': PyTorch sees no GPU here")
    place = lab.data / "cifar10"
    if not lab.toy and not any(place.glob("*.parquet")) and (wanting := [part.name for part in parts if part.data]):
        raise MissingDataError(f"{' and '.join(wanting)}: no parquet files of CIFAR-10 in {place}; name --data")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help="parts, or all")
    parser.add_argument("--list", action="store_true", help="say what there is to measure")
    parser.add_argument("--out", help="folder of the results")
    parser.add_argument("--data", help="folder with cifar10/*.parquet; default CONTRASTLAB_DATA")
    parser.add_argument("--scratch", help="folder for checkpoints; default a temporary one of this machine")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--commit", help="commit to record where the copy has no .git")
    parser.add_argument("--toy", action="store_true", help="everything tiny; the numbers mean nothing")
    args = parser.parse_args(arguments)
    lab = prepared(args)
    if args.list:
        print(listing(lab))
        return 0
    try:
        parts = chosen(args.parts)
        check(lab, parts, args.out)
        with torch.compiler.set_stance("force_eager" if lab.toy else "default"):
            sheets = [run_part(lab, part) for part in parts]
    except ContrastLabError as error:
        print(f"gpu.py: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("gpu.py: interrupted; run again to continue", file=sys.stderr)
        return 130
    left = {sheet.part: len(sheet.left) for sheet in sheets if sheet.left}
    print("all measured" if not left else "left: " + ", ".join(f"{part} {count}" for part, count in left.items()))
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
