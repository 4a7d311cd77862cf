"""(paper, table, data set, method, seed, profile) → one stored result.

A cell that is stored is read, one that was cut off is resumed, one that cannot exist says why. The notebooks
and the command line call :func:`table`; a cluster job calls :func:`cell` for its own row and seed.
"""

from __future__ import annotations

import hashlib
import os
import resource
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric

from contrastlab import data, methods, papers, report, results, tasks
from contrastlab.data.images.augmentations import augmentation
from contrastlab.data.loading import derive, subset_order
from contrastlab.errors import CorruptFileError, NotApplicableError, reject, unknown
from contrastlab.papers import REFERENCES, TablePlan
from contrastlab.pretrain import Speed, pretrain
from contrastlab.report import Report, Unavailable
from contrastlab.results import Result
from contrastlab.settings import Settings

Log = Callable[[str], None]

PROFILE_VARIABLE = "CONTRASTLAB_PROFILE"


def first_process() -> bool:
    """Whether this is the process that speaks, under torchrun and Fabric's launcher, too."""
    return all(os.environ.get(name, "0") == "0" for name in ("RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID"))


def _one_thread(profile: str) -> None:
    # The small profiles' networks are slower on two threads than on one, and their sums depend on the number.
    if profile != "paper" and not torch.cuda.is_available():
        torch.set_num_threads(1)


def _say(line: str) -> None:
    if first_process():
        print(line, flush=True)


def resolve_profile(plan: TablePlan, profile: str) -> str:
    """``auto`` is the paper's protocol where there is a GPU and ``laptop`` where there is none.

    The environment variable ``CONTRASTLAB_PROFILE`` says otherwise what ``auto`` is (CI: ``smoke``).

    Raises:
        UnknownNameError: with the profiles of this table.
    """
    if profile == "auto" and os.environ.get(PROFILE_VARIABLE):
        profile = os.environ[PROFILE_VARIABLE]
    if profile == "auto":
        return "paper" if torch.cuda.is_available() else "laptop"
    if profile not in plan.profiles:
        raise unknown("profile", profile, ("auto", *plan.profiles))
    return profile


PARAMETERS = ("dataset", "methods", "profile", "seeds", "devices", "data_root", "out_dir")
"""Parameters of a reproduction notebook."""


def check_parameters(namespace: Mapping[str, Any]) -> None:
    """Reject a mistyped notebook parameter, which papermill lets pass: ``-p datset cifar10``.

    Args:
        namespace: ``globals()`` of a notebook that has run its parameters and imports only.

    Raises:
        UnknownNameError: with near matches.
    """
    for name, value in namespace.items():
        plain = value is None or isinstance(value, bool | int | float | str | list | tuple)
        if plain and not name.startswith("_") and name not in ("In", *PARAMETERS):
            raise unknown("notebook parameter", name, PARAMETERS)


def parse_seeds(seeds: int | str | Iterable[int]) -> tuple[int, ...]:
    """Seeds from ``3``, ``"0,1,2"`` or a list, as papermill may pass them.

    Raises:
        ArgumentError: not non-negative integers.
    """
    try:
        asked = seeds.split(",") if isinstance(seeds, str) else [seeds] if isinstance(seeds, int) else list(seeds)
        found = tuple(dict.fromkeys(int(str(s)) for s in asked if str(s).strip()))
    except (TypeError, ValueError):
        found = ()
    if not found or min(found) < 0:
        raise reject("seeds", seeds, "non-negative integers: 3, '0,1,2' or [0, 1, 2]")
    return found


def fingerprint(splits: data.Splits) -> str:
    """Hash of the images and labels a cell is computed from."""
    parts = [getattr(s, "fingerprint", s.name) for s in (splits.pretrain, splits.train, splits.test)]
    return hashlib.sha256("/".join(parts).encode()).hexdigest()[:16]


def stored(
    plan: TablePlan, dataset: str, method: str, seed: int, profile: str, *, data: str, roots: Sequence[Path | str]
) -> Result | None:
    """The result of a cell in the first of ``roots`` that has it, computed with today's settings, recipe and data.

    Raises:
        CorruptFileError: the file is there and not a whole result.
    """
    settings = plan.settings(dataset, method, profile)
    recipe = methods.get(plan.resolve(method)).override(settings.parts)
    hash_ = results.config_hash(settings.model_dump(mode="json"), _plain(recipe.describe()), data)
    for root in roots:
        path = results.location(
            root, paper=plan.paper, table=plan.table, dataset=dataset, profile=profile,
            method=recipe.name, seed=seed, hash_=hash_,
        )  # fmt: skip
        if path.exists():
            return results.read(path)
    return None


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, list | tuple) else value


def cell(
    plan: TablePlan,
    dataset: str,
    method: str,
    seed: int,
    profile: str,
    *,
    data_root: str | Path | None = None,
    out_dir: str | Path = "runs",
    read_also: Sequence[str | Path] = ("results",),
    accelerator: str = "auto",
    devices: int | str = 1,
    num_nodes: int = 1,
    strategy: str = "auto",
    resume: bool = True,
    max_minutes: float | None = None,
    speed: Speed | None = None,
    log: Log = _say,
) -> Result | Unavailable:
    """One cell of a table: read, resumed or run, and stored.

    Args:
        plan: of the table.
        dataset: name in :func:`contrastlab.data.names`, or ``folder:<path>``, ``parquet:<path>``.
        method: a row of the table or a reference row, in full or short.
        seed: of weights, order, augmentation, draws and probe.
        profile: ``smoke``, ``laptop`` or ``paper``.
        data_root: where data sets lie; by default ``CONTRASTLAB_DATA`` or the user's cache.
        out_dir: new results go there, and run folders with checkpoints under ``out_dir/cells``.
        read_also: further folders of stored results, such as the one in the repository.
        accelerator: as Lightning Fabric has it: ``auto``, ``cpu``, ``cuda``.
        devices: devices of this machine.
        num_nodes: machines.
        strategy: ``auto``, ``ddp``, …
        resume: use stored results and checkpoints; ``False`` computes anew.
        max_minutes: stop in good order after this time.
        speed: switches that change how long it takes and no number; see :class:`contrastlab.pretrain.Speed`.
        log: takes lines of progress.

    Returns:
        The stored result, or why the row cannot exist on this data set.

    Raises:
        UnknownNameError: unknown data set, method or profile.
        MissingDataError: the data set is not there; the message says where it was looked for.
        NonFiniteLossError: training diverged; nothing is stored.
    """
    name = plan.resolve(method)
    settings = plan.settings(dataset, name, profile)
    _one_thread(profile)
    recipe = methods.get(name).override(settings.parts)
    splits = data.load(dataset, data_root)
    try:
        recipe.views.channels(splits.pretrain.channels)
    except NotApplicableError as reason:
        return Unavailable(name, str(reason))
    print_ = fingerprint(splits)
    tag = f"[{name} seed {seed}]"
    if resume:
        there = stored(plan, dataset, name, seed, profile, data=print_, roots=(out_dir, *read_also))
        if there is not None:
            log(f"{tag} stored: {plan.metric} {there.metrics[plan.metric]:.2f}%")
            return there
    fabric = Fabric(accelerator=accelerator, devices=devices, num_nodes=num_nodes, strategy=strategy,
                    precision=settings.precision)  # fmt: skip
    fabric.launch()
    # matrix products of float32 on the tensor cores where there are any; convolutions do so by default
    torch.set_float32_matmul_precision("high")
    began, clock, cpu = datetime.now(UTC), time.monotonic(), time.process_time()
    splits = splits.to(fabric.device)
    test = splits.test.take(min(settings.test_images or len(splits.test), len(splits.test)))
    folder = results.location(
        Path(out_dir) / "cells", paper=plan.paper, table=plan.table, dataset=dataset, profile=profile, method=name,
        seed=seed, hash_=results.config_hash(settings.model_dump(mode="json"), _plain(recipe.describe()), print_),
    ).with_suffix("")  # fmt: skip
    if fabric.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(fabric.device)
    trained = pretrain(
        recipe, settings, splits.pretrain, test, seed=seed, folder=folder, fabric=fabric, resume=resume,
        max_minutes=max_minutes, speed=speed, log=log,
    )  # fmt: skip
    result: Result | None = None
    if fabric.is_global_zero:
        evaluated = _evaluate(recipe, settings, trained.encoders, splits, test, seed, fabric.device, log)
        last = {k: v for k, v in (trained.history[-1] if trained.history else {}).items() if k in ("loss", "mi_bound")}
        peak = (
            torch.cuda.max_memory_allocated(fabric.device)
            if fabric.device.type == "cuda"
            else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        )
        result = Result(
            paper=plan.paper, table=plan.table, dataset=dataset, method=name, seed=seed, profile=profile,
            protocol={
                **settings.linear.model_dump(mode="json"), "encoder": "frozen, evaluation mode", "arch": settings.arch,
                "stem": settings.stem, "image_size": settings.image_size, "which_epoch": "last",
                "split": f"{test.name}, {len(test)} images", "knn": "k=200, temperature=0.1, embeddings",
                "nn1": "embeddings of re-encoded training images",
            },
            test_images=len(test), settings=settings.model_dump(mode="json"), recipe=_plain(recipe.describe()),
            metrics={**evaluated, **last}, curve=trained.history,
            provenance=results.Provenance(
                **results.provenance(fabric.device), data_fingerprint=print_, data_note=splits.note, started=began,
                finished=datetime.now(UTC), wall_s=time.monotonic() - clock, cpu_s=time.process_time() - cpu,
                images_per_s=trained.images / trained.seconds if trained.seconds else None, peak_memory_bytes=peak,
            ),
        )  # fmt: skip
        results.save(result, out_dir)
        log(f"{tag} {plan.metric} {result.metrics[plan.metric]:.2f}% in {result.provenance.wall_s:.0f} s")
    fabric.barrier()
    done = result or stored(plan, dataset, name, seed, profile, data=print_, roots=(out_dir,))
    if done is None:
        raise CorruptFileError(f"{out_dir}: the first process stored no result; all processes need to see this folder")
    return done


def _evaluate(
    recipe: methods.Recipe, settings: Settings, encoders: torch.nn.ModuleList, splits: data.Splits, test: Any,
    seed: int, device: torch.device, log: Log,
) -> dict[str, float]:  # fmt: skip
    view = augmentation(settings.augmentation, settings.image_size)
    chosen = subset_order(splits.train.labels, settings.train_images, seed=0)
    rows, labels = tasks.encode(encoders, recipe.views, view, splits.train, device=device, indices=chosen)
    queries, truth = tasks.encode(encoders, recipe.views, view, test, device=device)
    score = tasks.linear_probe(
        encoders, recipe.views, view, splits.train, test, settings.linear, seed=derive(seed, "probe") % 2**31,
        device=device, log=log,
    )  # fmt: skip
    return {
        "linear": score,
        "knn200": tasks.knn(rows, labels, queries, truth),
        "nn1": tasks.nearest_neighbour(rows, labels, queries, truth),
    }


def estimate(plan: TablePlan, dataset: str, method: str, profile: str, *, data_root: str | Path | None = None) -> float:
    """Seconds of pre-training a cell will take here, from two timed steps on a few images.

    A rough figure: probes are not in it, and a step of a full batch is more efficient.
    """
    settings = plan.settings(dataset, method, profile)
    recipe = methods.get(plan.resolve(method)).override(settings.parts)
    if recipe.keys is None:
        return 0.0
    _one_thread(profile)
    splits = data.load(dataset, data_root)
    count = len(splits.pretrain) if settings.train_images is None else settings.train_images
    fits = 128 if settings.image_size <= 64 else settings.batch_size if torch.cuda.is_available() else 16
    size = min(fits, settings.batch_size, count)
    small = settings.override(
        batch_size=size, epochs=3, train_images=max(size, min(4 * size, count)), knn_every=0,
        parts={"positives.clusters": 2, "negatives.clusters": 2, "positives.runs": 1, "negatives.runs": 1},
    )  # fmt: skip
    fabric = Fabric(accelerator="auto", devices=1, precision=small.precision)
    done = pretrain(recipe.override(small.parts), small, splits.pretrain, fabric=fabric, log=lambda line: None)
    first, last = done.history[0], done.history[-1]
    speed = 2 * (done.images / 3) / max(last["seconds"] - first["seconds"], 1e-9)
    return settings.epochs * (count // settings.batch_size) * settings.batch_size / speed


def announce(
    plan: TablePlan, dataset: str, profile: str, names: Sequence[str], seeds: Sequence[int], asked: str,
    *, data_root: str | Path | None, roots: Sequence[Path | str], timing: bool, log: Log,
) -> None:  # fmt: skip
    """Say what will be run, what is stored already, how long the rest will take and how to choose otherwise."""
    splits = data.load(dataset, data_root)
    print_ = fingerprint(splits)
    missing: list[tuple[str, int]] = []
    for name in names:
        try:
            methods.get(name).views.channels(splits.pretrain.channels)
        except NotApplicableError:
            continue
        missing += [(name, s) for s in seeds if not stored(plan, dataset, name, s, profile, data=print_, roots=roots)]
    total = len(names) * len(seeds)
    gpu = torch.cuda.is_available()
    reason = f"{PROFILE_VARIABLE} says so" if os.environ.get(PROFILE_VARIABLE) else f"{'a' if gpu else 'no'} GPU here"
    why = f" (auto: {reason})" if asked == "auto" else ""
    log(f"{plan.paper} {plan.heading.lower()}, {dataset}, profile {profile}{why}, seeds {', '.join(map(str, seeds))}")
    log(f"data: {splits.note or splits.name}")
    log(f"{total - len(missing)} of {total} cells need no run; {len(missing)} to run")
    if missing and timing:
        known = results.find(roots[0], paper=plan.paper, table=plan.table, dataset=dataset, profile=profile)
        seconds = 0.0
        for name in dict.fromkeys(n for n, _ in missing):
            same = [r.provenance.wall_s for r in known if r.method == name]
            each = statistics.median(same) if same else estimate(plan, dataset, name, profile, data_root=data_root)
            seconds += each * sum(n == name for n, _ in missing)
        log(f"about {_duration(seconds)} of pre-training on this machine, probes not counted (a rough estimate)")
    others = [p for p in plan.profiles if p != profile]
    log(f"another profile: -p profile {' or '.join(others)}; stop with Ctrl-C and run again to continue")


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def table(
    paper: str,
    number: int | str,
    dataset: str,
    *,
    methods_: str | Iterable[str] = "all",
    profile: str = "auto",
    seeds: int | str | Iterable[int] = 0,
    references: bool = True,
    data_root: str | Path | None = None,
    out_dir: str | Path = "runs",
    read_also: Sequence[str | Path] = ("results",),
    log: Log = _say,
    **options: Any,
) -> Report:
    """Run what is missing of a table and give it published beside measured.

    Args:
        paper: short name, such as ``ring``.
        number: of the table.
        dataset: see :func:`cell`.
        methods_: ``"all"``, ``"ir,iring"`` or a list of rows.
        profile: ``auto``, ``smoke``, ``laptop`` or ``paper``.
        seeds: ``0``, ``"0,1"`` or a list.
        references: run the random and (small profiles) the supervised reference rows, too.
        data_root: see :func:`cell`.
        out_dir: see :func:`cell`.
        read_also: see :func:`cell`.
        log: takes lines of progress.
        options: passed to :func:`cell` (``devices``, ``strategy``, ``max_minutes``, …).
    """
    plan = papers.plan(paper, number)
    chosen = resolve_profile(plan, profile)
    names = list(plan.resolve_all(methods_))
    which = parse_seeds(seeds)
    dataset = plan.dataset_key(dataset)
    if references:
        names += [name for name in _references(names, chosen) if name not in names]
    roots = (out_dir, *read_also)
    announce(plan, dataset, chosen, names, which, profile, data_root=data_root, roots=roots,
             timing=chosen != "smoke", log=log)  # fmt: skip
    found: list[Result] = []
    gone: dict[str, Unavailable] = {}
    for seed in which:
        for name in names:
            if name in gone:
                continue
            done = cell(plan, dataset, name, seed, chosen, data_root=data_root, out_dir=out_dir,
                        read_also=read_also, log=log, **options)  # fmt: skip
            if isinstance(done, Unavailable):
                log(f"[{name}] n/a: {done.reason}")
                gone[name] = done
            else:
                found.append(done)
    return report.table(plan, found, dataset, chosen, unavailable=gone.values())


def _references(names: Sequence[str], profile: str) -> list[str]:
    # two encoders see more than one: a two-stream method is read against two random encoders
    streams = {len(methods.get(name).views.streams) for name in names}
    random, random_lab, supervised = REFERENCES
    return [random] + [random_lab] * (2 in streams) + [supervised] * (profile != "paper")


def parse_target(target: str) -> tuple[str, str]:
    """``("ring", "1")`` from ``ring/table1``.

    Raises:
        UnknownNameError: not a table with a protocol; with near matches.
    """
    known = {f"{paper}/{results.slug(number)}": (paper, number) for paper, number in papers.plans()}
    if target not in known:
        raise unknown("table", target, known)
    return known[target]
