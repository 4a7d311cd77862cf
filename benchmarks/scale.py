"""Step time and memory against size: bank, queue, batch and number of keys of an image.

    python benchmarks/scale.py                # all points, or those that are not in the file yet
    python benchmarks/scale.py --quick        # the small ones
    python benchmarks/scale.py --again bank   # measure the points of a curve anew

A point is a process of its own, on one thread. It makes the stored keys, notes how much memory it holds, and takes
steps: :meth:`Learner.loss` with encoders that pass embeddings through, backward, :meth:`Learner.commit`. Memory is
the largest resident set the operating system saw, less what was held before the first step. Keys are made up (uniform
on the sphere), and so are the images of the decoding rate; nothing else is simulated. A bank for which there is too
little memory is asked by fewer queries, as the row's ``batch`` says; ``asked`` is the batch that was meant.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

DIM, BATCH, QUEUE, BANK = 128, 256, 65_536, 50_000
OUT = Path(__file__).parent / "results" / "scale.json"
Point = dict[str, Any]


def points() -> Iterator[Point]:
    """What is measured; ``quick`` marks the small ones."""
    for curve in ("product", "decode"):
        yield {"curve": curve, "quick": True}
    for size in (50_000, 200_000, 500_000, 1_281_167, 10_000_000):
        for method in ("ring/ir", "ring/iring", "vince/ball"):
            yield {"curve": "bank", "method": method, "keys": size, "batch": BATCH, "quick": size < 100_000}
    for size in (4_096, 16_384, 65_536, 262_144):
        for method in ("ring/moco", "ring/mocoring"):
            yield {"curve": "queue", "method": method, "keys": size, "batch": BATCH, "quick": size < 10_000}
    for batch in (32, 128, 256, 512, 1024):
        for method, size in (("ring/iring", BANK), ("ring/moco", QUEUE)):
            yield {"curve": "batch", "method": method, "keys": size, "batch": batch, "quick": batch == 32}
    for count in (2, 4, 8, 16):
        yield {
            "curve": "views",
            "method": "jcl/jcl",
            "keys": QUEUE,
            "batch": BATCH,
            "count": count,
            "quick": count == 2,
        }
    for launch in ("one process", "--devices 2", "torchrun"):
        yield {"curve": "launch", "launch": launch, "quick": False}


def name(point: Point) -> str:
    """What tells points apart."""
    return "/".join(str(point[key]) for key in ("curve", "method", "keys", "batch", "count", "launch") if key in point)


# -- one point, in its own process --------------------------------------------------------------------------------


def peak() -> int:
    """Largest resident set of this process so far, bytes."""
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def timed(step: Any, budget: float = 1.5, most: int = 9, long: float = 8.0) -> dict[str, Any]:
    """Medians of CPU and wall seconds. The first step warms up, unless it is so long that it is the only one."""
    found: list[tuple[float, float]] = []
    while len(found) < 2 or (len(found) <= most and sum(cpu for _, cpu in found[1:]) < budget):
        wall, cpu = time.perf_counter(), time.process_time()
        step()
        found.append((time.perf_counter() - wall, time.process_time() - cpu))
        if found[0][1] > long:
            break
    found = found[1:] or found
    wall, cpu = (statistics.median(column) for column in zip(*found, strict=True))
    return {"wall_s": wall, "cpu_s": cpu, "repetitions": len(found)}


def unit(rows: int, seed: int) -> Any:
    """``[rows, DIM]`` on the sphere, made in place: the largest are not held twice."""
    import torch

    out = torch.empty(rows, DIM)
    generator = torch.Generator().manual_seed(seed)
    for piece in out.split(4096):
        piece.normal_(generator=generator)
        piece /= piece.norm(dim=1, keepdim=True)
    return out


def step_of(point: Point) -> dict[str, Any]:
    """One point of a curve."""
    from dataclasses import replace

    import torch
    from torch import nn

    from contrastlab.methods import get
    from contrastlab.negatives import BatchRandom
    from contrastlab.settings import Settings
    from contrastlab.train.learner import Learner

    class Through(nn.Module):
        """An encoder of embeddings; the momentum update wants a parameter."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(1))

        def forward(self, x: Any) -> Any:
            return x

    def stepper(keys: int, batch: int) -> Any:
        recipe = get(point["method"]).override({"keys.size": 1, "keys.shuffle_groups": 1})
        if "count" in point:
            many = replace(recipe.positives, count=point["count"])
            recipe = replace(recipe, views=replace(recipe.views, count=1 + point["count"]), positives=many)
        settings = Settings(arch="tiny", stem="cifar", dim=DIM)
        learner = Learner(recipe, settings, images=2, classes=2, seed=0, encoders=nn.ModuleList([Through()]))
        learner.keys.stores[0].rows = unit(keys, 1)
        learner.bind(lambda *views: list(views))
        views = [unit(batch, 2 + i) for i in range(recipe.views.count)]
        views[0].requires_grad_()
        rows, labels = torch.arange(batch), torch.zeros(0, dtype=torch.int64)
        draws = BatchRandom(torch.Generator().manual_seed(0))

        def step() -> None:
            views[0].grad = None
            done = learner.loss(tuple(views), rows, labels, draws, 1, 1)
            done.loss.backward()
            learner.commit(rows, done)

        return step

    stepper(512, 4)()  # libraries are loaded and small buffers made
    step = stepper(point["keys"], point["batch"])
    before = peak()
    return {**timed(step), "peak_bytes": peak() - before, "stored_bytes": point["keys"] * DIM * 4}


def product_of() -> dict[str, Any]:
    """Operations a second of the matrix product of queries and keys."""
    a, b = unit(BATCH, 0), unit(QUEUE, 1).T
    return {**timed(lambda: a @ b), "flops": 2 * BATCH * QUEUE * DIM}


def decode_of(count: int = 24) -> dict[str, Any]:
    """Decoding and resizing one JPEG of the usual size of ImageNet's, as the streaming path does; made-up content."""
    import numpy as np
    import torch
    from PIL import Image

    from contrastlab.data import StreamedImages

    height, width, draw = 375, 500, np.random.default_rng(0)
    # amplitudes that fall as one over the frequency, as in photographs
    away = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None])
    away[0, 0] = np.inf
    with tempfile.TemporaryDirectory() as folder:
        for i in range(count):
            noise = draw.standard_normal((3, *away.shape)) + 1j * draw.standard_normal((3, *away.shape))
            field = np.fft.irfft2(noise / away, s=(height, width))
            field = 128 + 48 * field / field.std(axis=(1, 2), keepdims=True)
            pixels = field.clip(0, 255).astype(np.uint8).transpose(1, 2, 0)
            Image.fromarray(np.ascontiguousarray(pixels)).save(f"{folder}/{i}.jpg", quality=90)
        size = statistics.mean(path.stat().st_size for path in Path(folder).iterdir())
        names = tuple(f"{i}.jpg" for i in range(count))
        images = StreamedImages("made up", Path(folder), names, torch.zeros(count, dtype=torch.int64), ("one",))
        row = timed(lambda: [images[i] for i in range(count)])
    return {**row, "images": count, "width": width, "height": height, "file_bytes": round(size)}


def launch_of(how: str) -> dict[str, Any]:
    """A smoke cell through the command line: the loss of each epoch, by one process and by two."""
    cell = "run ring/table1 --dataset shapes --method ir --profile smoke --accelerator cpu --no-references --fresh"
    python = [sys.executable, "-m"]
    with tempfile.TemporaryDirectory() as folder:
        run = {
            "one process": [*python, "contrastlab", *cell.split()],
            "--devices 2": [*python, "contrastlab", *cell.split(), "--devices", "2", "--strategy", "ddp"],
            "torchrun": [
                *python,
                "torch.distributed.run",
                "--nproc-per-node",
                "2",
                "-m",
                "contrastlab",
                *cell.split(),
                "--devices",
                "2",
                "--strategy",
                "ddp",
            ],
        }[how]
        subprocess.run([*run, "--out", folder], check=True, capture_output=True)
        found = [json.loads(p.read_text()) for p in Path(folder).glob("*_table*/**/*.json")]
    (stored,) = found
    return {"losses": [row["loss"] for row in stored["curve"]], "command": " ".join(["python", *run[1:]])}


def child(point: Point) -> dict[str, Any]:
    """The row of a point, with the code and machine it comes from."""
    import torch

    from contrastlab.tables.results import provenance

    torch.set_num_threads(1)
    if sys.platform == "linux":
        import resource

        # too large a point shall fail here, not take the memory of its neighbours
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                free = int(line.split()[1]) * 1024
        resource.setrlimit(resource.RLIMIT_DATA, (int(0.9 * free), resource.RLIM_INFINITY))
    others = {"product": product_of, "decode": decode_of}
    if point["curve"] == "launch":
        row = launch_of(point["launch"])
    elif point["curve"] in others:
        row = others[point["curve"]]()
    else:
        row = step_of(point)
    where = provenance()
    commit = where.pop("git_commit")
    return {"row": {**row, "commit": commit, "dirty": where.pop("git_dirty")}, "machine": where}


# -- all points ---------------------------------------------------------------------------------------------------


def measure(point: Point) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Row and machine; with a quarter of the queries as long as memory is short."""
    asked = {key: value for key, value in point.items() if key != "quick"}
    now = dict(asked)
    while True:
        run = subprocess.run(
            [sys.executable, __file__, "--point", json.dumps(now)],
            capture_output=True,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        if run.returncode == 0:
            done = json.loads(run.stdout.splitlines()[-1])
            date = datetime.now(UTC).isoformat(timespec="seconds")
            return {**now, "asked": asked.get("batch"), **done["row"], "date": date}, done["machine"]
        short = any(word in run.stderr for word in ("MemoryError", "not enough memory", "allocate memory", "bad_alloc"))
        if not (short and now.get("batch", 0) >= 16):
            return {**now, "failed": (run.stderr.strip().splitlines() or [f"ended with {run.returncode}"])[-1]}, None
        now["batch"] //= 4


def main() -> int:
    """Measure what is missing and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--quick", action="store_true", help="the small points only")
    parser.add_argument("--again", nargs="*", metavar="CURVE", help="measure anew, all or these curves")
    parser.add_argument("--point", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.point:
        print(json.dumps(child(json.loads(args.point))))
        return 0
    began = time.monotonic()
    stored = json.loads(args.out.read_text()) if args.out.exists() else {"machine": None, "rows": {}}
    asked = [p for p in points() if p["quick"] or not args.quick]
    for point in asked:
        there = stored["rows"].get(name(point))
        anew = args.again is not None and (not args.again or point["curve"] in args.again)
        if there and "failed" not in there and not anew:
            continue
        row, machine = measure(point)
        if machine and stored["machine"] not in (None, machine):
            print("another machine or other versions: the stored rows are dropped", flush=True)
            stored["rows"] = {}
        stored["machine"] = machine or stored["machine"]
        stored["rows"][name(point)] = row
        args.out.parent.mkdir(parents=True, exist_ok=True)
        part = args.out.with_suffix(".part")
        part.write_text(json.dumps(stored, indent=1) + "\n")
        os.replace(part, args.out)
        cost = f"{row['wall_s']:9.4f} s wall {row['cpu_s']:9.4f} s CPU" if "wall_s" in row else ""
        more = f"{row['peak_bytes'] / 2**20:9.1f} MiB" if "peak_bytes" in row else ""
        print(f"{name(point):40s}{cost}{more} {row.get('failed', '')} batch {row.get('batch', '-')}", flush=True)
    failed = [key for key, row in stored["rows"].items() if "failed" in row]
    print(
        f"{len(asked)} points, {time.monotonic() - began:.0f} s, in {args.out}; failed: {', '.join(failed) or 'none'}"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
