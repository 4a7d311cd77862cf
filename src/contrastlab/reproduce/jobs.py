"""Many cells at a time: processes of one thread each on this machine, or jobs of a cluster.

A cell is written by one process at a time (a lock that ends with the process that holds it), so that two tables started
side by side share runs. Every process stops in good order on SIGTERM and can be resumed.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import torch
from tqdm.auto import tqdm

from contrastlab import papers
from contrastlab.errors import ContrastLabError, DeviceError, import_extra, reject
from contrastlab.pretrain import Speed
from contrastlab.pretrain.loop import Log
from contrastlab.report import Unavailable
from contrastlab.reproduce.cells import BusyError, Cell, one_thread
from contrastlab.reproduce.where import Where
from contrastlab.results import Result

JOBS_VARIABLE, VISIBLE = "CONTRASTLAB_JOBS", "CUDA_VISIBLE_DEVICES"
Key = tuple[str, str, str, str, int, str]  # paper, table, column or data set, method, seed, profile


@dataclass(frozen=True)
class Cluster:
    """A cluster that takes one job for each missing cell, through ``submitit``.

    Args:
        name: ``slurm``; ``local`` (processes of this machine) and ``debug`` (this process) are for trying it out.
        options: of submitit's executor, such as ``slurm_partition``, ``gpus_per_node``, ``cpus_per_task`` (by default a
            core for each process that decodes and one more); SLURM needs ``timeout_min``.
        wait: for the jobs to end; else they are left to run, and a later call collects what is stored.
    """

    name: str = "slurm"
    options: Mapping[str, Any] = field(default_factory=dict)
    wait: bool = True

    def __post_init__(self) -> None:
        if self.name not in ("slurm", "local", "debug"):
            raise reject("cluster", self.name, "slurm, local or debug")
        if self.name == "slurm" and "timeout_min" not in self.options:
            raise reject("timeout_min", None, "minutes of a job (--time); submitit's own five end before a cell does")


def workers(jobs: int | str, where: Where, count: int) -> int:
    """How many cells run at a time.

    Args:
        jobs: a number, or ``auto``: what ``CONTRASTLAB_JOBS`` says, else one a core, or a GPU where there are any.
        where: a cell that takes several devices runs alone.
        count: cells in all.

    Raises:
        ArgumentError: not a number of at least 1.
    """
    argument, asked = "jobs", jobs
    if jobs == "auto" and os.environ.get(JOBS_VARIABLE):
        argument, asked = JOBS_VARIABLE, os.environ[JOBS_VARIABLE]
    if asked == "auto":
        gpus = torch.cuda.device_count() if where.accelerator != "cpu" else 0
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        asked = gpus or cores
    if not re.fullmatch("[0-9]{1,6}", str(asked)) or int(asked) < 1:
        raise reject(argument, asked, "a number of at least 1, or 'auto'")
    return max(1, min(int(asked), count)) if where.alone else 1


def run(
    missing: Sequence[Cell], where: Where, *, workers: int, cluster: Cluster | None = None, log: Log
) -> dict[Cell, Result | Unavailable]:
    """Run cells, some at a time.

    Args:
        missing: cells; those of one run are computed one after the other by one process.
        where: folders, devices and so on.
        workers: cells at a time.
        cluster: hands them to a cluster instead.
        log: takes lines of progress.

    Raises:
        ContrastLabError: what the first failing cell says; the others are stopped in good order.
        KeyboardInterrupt: after Ctrl-C, with the state of every running cell stored.
    """
    if cluster is not None and not where.alone:
        asked = f"{where.devices} on {where.num_nodes} machines"
        raise reject("devices", asked, "1 on one machine with a cluster: a job computes a cell on one device")
    if not where.alone:
        missing = _agreed(missing, where)
    if not missing:
        return {}
    if cluster is not None:
        return _submit(missing, where, cluster, log)
    groups = _groups(missing)
    if workers == 1 or len(groups) < 2:
        done: dict[Cell, Result | Unavailable] = {}
        waiting = list(missing)
        for cell in missing:  # what another process computes comes last
            with suppress(BusyError):
                done[cell] = cell.run(where, wait=False, log=log)
                waiting.remove(cell)
        return done | {cell: cell.run(where, wait=True, log=log) for cell in waiting}
    return _local(groups, where, min(workers, len(groups)), log)


def _agreed(missing: Sequence[Cell], where: Where) -> list[Cell]:
    """What the first of several processes misses: each looks at the stored results at another moment."""
    if not missing and "LOCAL_RANK" not in os.environ:  # nobody else was started
        return []
    mine = {_key(cell): cell for cell in missing}
    return [mine.get(key) or _cell(key) for key in where.fabric().broadcast(list(mine))]


def _groups(missing: Sequence[Cell]) -> list[list[Cell]]:
    groups: dict[tuple[str, int, str], list[Cell]] = {}
    for cell in missing:
        groups.setdefault((cell.method, cell.seed, cell.column.data), []).append(cell)
    return list(groups.values())


# -- processes of this machine ---------------------------------------------------------------------


def _local(groups: list[list[Cell]], where: Where, count: int, log: Log) -> dict[Cell, Result | Unavailable]:
    # a server that has imported torch once is forked for each worker; before any thread or device is in use
    method = "forkserver" if sys.platform == "linux" else "spawn"
    context = multiprocessing.get_context(method)
    if method == "forkserver":
        context.set_forkserver_preload(["contrastlab.reproduce"])
        with _deaf_to_interrupts():  # the server would begin to ignore them only when it has imported
            forkserver.ensure_running()
    lines = context.SimpleQueue()
    numbers = context.SimpleQueue()
    for number in range(count):
        numbers.put(number)
    done: dict[Cell, Result | Unavailable] = {}
    stopping = context.Event()
    setting = (lines, numbers, where, visible_devices(where), stopping)
    with (
        _progress(lines, sum(map(len, groups)), count, log) as finished,
        ProcessPoolExecutor(count, mp_context=context, initializer=_begin, initargs=setting) as pool,
    ):
        pending: dict[Future[list[Result | Unavailable] | None], list[Cell]] = {}
        try:
            for group in groups:
                pending[pool.submit(_work, [_key(cell) for cell in group], False)] = group
            while pending:
                ready, _ = wait(pending, return_when=FIRST_COMPLETED)
                for future in ready:
                    group = pending.pop(future)
                    answers = future.result()
                    if answers is None:  # another process has it: ask again, behind all others, and wait
                        pending[pool.submit(_work, [_key(cell) for cell in group], True)] = group
                        continue
                    done |= dict(zip(group, answers, strict=True))
                    finished(len(group))
        except _Stopped as stop:
            raise KeyboardInterrupt(*stop.args) from None
        except BrokenProcessPool as error:
            raise DeviceError("a worker process was killed (out of memory?); run again to continue") from error
        finally:
            if pending:  # futures are not cancelled: up to Python 3.12.0 a thread of the pool would die of that, aloud
                stopping.set()
                for process in list((pool._processes or {}).values()):
                    with suppress(ProcessLookupError):
                        os.kill(process.pid or 0, signal.SIGTERM)
    return done


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Processes that are started within ignore Ctrl-C, which reaches every process of a terminal."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def visible_devices(where: Where) -> list[str]:
    """The GPUs of this process as ``CUDA_VISIBLE_DEVICES`` names them; none on a CPU."""
    if where.accelerator == "cpu":
        return []
    named = [name.strip() for name in os.environ.get(VISIBLE, "").split(",") if name.strip()]
    count = torch.cuda.device_count()
    return named[:count] or [str(number) for number in range(count)]


_STATE: dict[str, Any] = {}


class _Stopped(ContrastLabError):
    """A worker was asked to stop, or its minutes are over: the first process is told as by Ctrl-C."""


def _begin(lines: Any, numbers: Any, where: Where, devices: Sequence[str], stopping: Any) -> None:
    """Of each worker: its number, its device, and that it ends with the process it works for."""
    number = numbers.get()
    if devices:  # before anything asks CUDA, which reads this once
        os.environ[VISIBLE] = devices[number % len(devices)]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process of a terminal; the first one decides
    _STATE.update(lines=lines, number=number, where=where, stopping=stopping)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: Any) -> None:
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


def _work(keys: Sequence[Key], wait: bool) -> list[Result | Unavailable] | None:
    """The cells of one run, or ``None`` where another process computes it."""

    def log(line: str) -> None:
        _STATE["lines"].put((_STATE["number"], line))

    if _STATE.get("stopped"):  # cells that were handed out before the stop
        raise _Stopped
    one_thread(keys[0][-1])
    try:
        return [_cell(key).run(_STATE["where"], wait=wait, log=log) for key in keys]
    except BusyError:
        return None
    except KeyboardInterrupt as stop:
        if _STATE["stopping"].is_set():
            os._exit(0)  # the pool is ending: another worker may have been killed with its queue's lock in hand
        _STATE["stopped"] = True
        raise _Stopped(*stop.args) from None


def _key(cell: Cell) -> Key:
    return cell.plan.paper, cell.plan.table, f"{cell.column.data}\n{cell.name}", cell.method, cell.seed, cell.profile


def _cell(key: Key) -> Cell:
    paper, table, place, method, seed, profile = key
    dataset, _, name = place.partition("\n")
    plan = papers.plan(paper, table)
    return Cell(plan, name, plan.select(dataset, [name])[name], method, seed, profile)


@contextmanager
def _progress(lines: Any, total: int, count: int, log: Log) -> Iterator[Callable[[int], None]]:
    """A line for each worker and one in all in a terminal; else the workers' lines as they come."""
    terminal = sys.stderr.isatty()
    bars = [tqdm(total=0, position=k + 1, bar_format="{desc}", leave=False) for k in range(count)] if terminal else []
    every = tqdm(total=total, position=0, unit="cell", disable=not terminal)

    def read() -> None:
        while (item := lines.get()) is not None:
            number, line = item
            if terminal and (" epoch " in line or " step " in line):
                bars[number].set_description_str(line)
            else:
                with tqdm.external_write_mode():
                    log(line)

    def finished(count: int) -> None:
        every.update(count)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        yield finished
    finally:
        lines.put(None)
        reader.join(timeout=5)
        for bar in (*bars, every):
            bar.close()


# -- a cluster -------------------------------------------------------------------------------------


def _submit(missing: Sequence[Cell], where: Where, cluster: Cluster, log: Log) -> dict[Cell, Result | Unavailable]:
    submitit = import_extra("submitit", "cluster")
    folder = Path(where.out_dir) / "cluster"
    try:
        executor = submitit.AutoExecutor(folder=folder, cluster=cluster.name)
        cores = {"cpus_per_task": (where.speed or Speed()).workers + 1} if cluster.name == "slurm" else {}
        executor.update_parameters(**{**cores, **cluster.options})
    except (RuntimeError, AssertionError, TypeError, NameError) as error:
        raise DeviceError(
            f"cluster={cluster.name!r} with {dict(cluster.options)!r} cannot be used here: {error}"
        ) from error
    groups = _groups(missing)
    jobs = [executor.submit(Job(), [_key(cell) for cell in group], where) for group in groups]
    log(f"{len(jobs)} jobs handed to {cluster.name}; their logs are in {folder}")
    if not cluster.wait:
        return {}
    done: dict[Cell, Result | Unavailable] = {}
    for group, job in zip(groups, jobs, strict=True):
        done |= dict(zip(group, job.result(), strict=True))
        log(f"{len(done)} of {len(missing)} cells done")
    return done


class Job:
    """The cells of one run on a cluster; what its time limit cuts off is queued again and resumed."""

    def __call__(self, keys: Sequence[Key], where: Where) -> list[Result | Unavailable]:
        """Compute the cells."""
        one_thread(keys[0][-1])
        return [_cell(key).run(where, wait=True, log=print) for key in keys]

    def checkpoint(self, keys: Sequence[Key], where: Where) -> Any:
        """What submitit queues in place of a job that was cut off."""
        return import_extra("submitit", "cluster").helpers.DelayedSubmission(self, keys, where)
