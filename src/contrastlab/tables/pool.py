"""Many jobs at a time: in processes of one thread each on this machine, or on a cluster.

One process at a time writes a run, so tables started side by side share runs. Every process stops in good order on
SIGTERM and can be resumed.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import resource
import signal
import sys
import tempfile
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

from contrastlab.support.errors import ContrastLabError, DeviceError, check_choice, import_extra, is_integer, reject
from contrastlab.tables.execution import Execution, end_after
from contrastlab.tables.job import Answer, Job, run
from contrastlab.tables.runs import BusyError
from contrastlab.train import Speed
from contrastlab.train.loop import Log
from contrastlab.train.signals import signals

JOBS_VARIABLE = "CONTRASTLAB_JOBS"
VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
LAST_STEP_S = 60.0
"""Seconds that a worker whose parent was killed has for the step in hand and a checkpoint."""

LEAST_FILES = 256


@dataclass(frozen=True)
class Cluster:
    """A cluster that takes the jobs that are left to run, through ``submitit``, which writes them as pickles.

    ``options`` are those of submitit's executor, such as ``slurm_partition``, ``gpus_per_node`` and ``cpus_per_task``
    (by default a core for each process that decodes and one more); SLURM needs ``timeout_min``.
    """

    name: str = "slurm"  # local (processes of this machine) and debug (this process) are for trying it out
    options: Mapping[str, Any] = field(default_factory=dict)
    wait: bool = True  # for the jobs to end; else a later call collects what they have stored

    def __post_init__(self) -> None:
        check_choice("cluster", self.name, ("slurm", "local", "debug"))
        if self.name == "slurm" and "timeout_min" not in self.options:
            raise reject("timeout_min", None, "minutes of a job (--time); submitit's own five end before a cell does")
        for name, least in (("timeout_min", 1), ("cpus_per_task", 1), ("gpus_per_node", 0)):
            if not is_integer(self.options.get(name, least), least):
                raise reject(name, self.options[name], f"a number of at least {least}")


def workers(jobs: int | str, execution: Execution, count: int) -> int:
    """How many of ``count`` cells run at a time; ``auto`` is ``CONTRASTLAB_JOBS``, else the number of GPUs or cores."""
    argument = "jobs"
    number = jobs
    if jobs == "auto" and os.environ.get(JOBS_VARIABLE):
        argument = JOBS_VARIABLE
        number = os.environ[JOBS_VARIABLE]
    if number == "auto":
        number = _devices_or_cores(execution)
    if not re.fullmatch("[0-9]{1,6}", str(number)) or int(number) < 1:
        raise reject(argument, number, "a number of at least 1, or 'auto'")
    if not execution.one_process:
        return 1
    return max(1, min(int(number), count))


def _devices_or_cores(execution: Execution) -> int:
    """The number of GPUs that an execution may use; where there are none, of cores."""
    gpus = 0
    if execution.accelerator != "cpu":
        gpus = torch.cuda.device_count()
    if gpus:
        return gpus
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_all(
    missing: Sequence[Job], execution: Execution, *, workers: int, cluster: Cluster | None = None, log: Log
) -> dict[Job, Answer]:
    """Run jobs, some at a time, those of one run by one process; where one fails, the others stop in good order."""
    if not execution.one_process:
        if cluster is not None:
            devices = f"{execution.devices} on {execution.num_nodes} machines"
            raise reject("devices", devices, "1 on one machine with a cluster: a job computes a cell on one device")
        if missing or "LOCAL_RANK" in os.environ:  # others were started, and looked at the results at another moment
            missing = execution.fabric().broadcast(list(missing))
    if not missing:
        return {}
    groups: dict[tuple[str, int, str], list[Job]] = {}
    for job in missing:
        groups.setdefault((job.method, job.seed, job.data), []).append(job)
    if cluster is not None:
        return _submit(list(groups.values()), execution, cluster, log)
    if workers > 1 and len(groups) > 1:
        return _local(list(groups.values()), execution, min(workers, len(groups)), log)
    return _one_by_one(missing, execution, log)


def _one_by_one(missing: Sequence[Job], execution: Execution, log: Log) -> dict[Job, Answer]:
    """The answers of jobs, one after the other in this process."""
    answers: dict[Job, Answer] = {}
    for job in missing:
        with suppress(BusyError):  # what another process computes comes last
            answers[job] = run(job, execution, wait=False, log=log)
    for job in missing:
        if job not in answers:
            answers[job] = run(job, execution, log=log)
    return answers


def _local(groups: list[list[Job]], execution: Execution, count: int, log: Log) -> dict[Job, Answer]:
    """The answers of groups of jobs, each group in one of ``count`` worker processes."""
    context = _worker_context(count)
    lines = context.SimpleQueue()
    numbers = context.SimpleQueue()
    stopping = context.Event()
    for number in range(count):
        numbers.put(number)
    state = (lines, numbers, execution, visible_devices(execution), stopping)
    total = sum(len(group) for group in groups)
    with (
        _progress(lines, total, count, log) as finished,
        ProcessPoolExecutor(count, mp_context=context, initializer=_begin, initargs=state) as pool,
    ):
        try:
            return _collect(pool, groups, finished)
        except BaseException as error:
            a_worker_has_begun = numbers.empty() or numbers.get() > 0  # it took the first number, 0
            _end_workers(pool, stopping)
            if isinstance(error, _Stopped):
                raise KeyboardInterrupt(*error.args) from None
            if isinstance(error, BrokenProcessPool):
                problem = _KILLED if a_worker_has_begun else _NOT_BEGUN
                raise DeviceError(problem) from error
            raise


def _worker_context(count: int) -> Any:
    """How worker processes are started."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= files < LEAST_FILES:  # a worker that may open no more ends without a word
        raise reject("jobs", count, f"1 where at most {files} files may be open (ulimit -n), not {LEAST_FILES}")
    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    # a server that has imported torch once is forked for each worker; before any thread or device is in use
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["contrastlab.tables"])
    # Ctrl-C reaches every process of a terminal; the server would begin to ignore it only when it has imported
    with signals(signal.SIG_IGN, signal.SIGINT):
        try:
            forkserver.ensure_running()
        except OSError as error:
            if "AF_UNIX" not in str(error):
                raise
            accepted = "a shorter path, since worker processes speak through files there; or --jobs 1"
            raise reject("TMPDIR", tempfile.gettempdir(), accepted) from error
    return context


def _collect(
    pool: ProcessPoolExecutor, groups: Sequence[list[Job]], finished: Callable[[int], object]
) -> dict[Job, Answer]:
    """The answers of all groups; a group that another program computes is asked again behind all others."""
    answers: dict[Job, Answer] = {}
    pending: dict[Future[list[Answer] | None], list[Job]] = {}
    for group in groups:
        pending[pool.submit(_work, group, False)] = group
    while pending:
        ready, _ = wait(pending, return_when=FIRST_COMPLETED)
        for future in ready:
            group = pending.pop(future)
            of_group = future.result()
            if of_group is None:
                pending[pool.submit(_work, group, True)] = group
            else:
                answers |= dict(zip(group, of_group, strict=True))
                finished(len(group))
    return answers


def _end_workers(pool: ProcessPoolExecutor, stopping: Any) -> None:
    """Ask every worker to end; futures are not cancelled, which up to Python 3.12.0 a thread of the pool dies of."""
    stopping.set()
    for process in list((pool._processes or {}).values()):
        with suppress(ProcessLookupError):
            os.kill(process.pid or 0, signal.SIGTERM)


_KILLED = "a worker process was killed (out of memory?); run again to continue"
_NOT_BEGUN = (
    "a worker process could not begin: it imports the script that starts it, whose calls stand below"
    " if __name__ == '__main__':; jobs=1 needs no worker"
)


def refuse_in_worker() -> None:
    """End a worker that imports a script without a ``__main__`` guard; its parent says why (``_NOT_BEGUN``)."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        sys.exit(1)


def visible_devices(execution: Execution) -> list[str]:
    """The GPUs of this process as ``CUDA_VISIBLE_DEVICES`` names them; none on a CPU."""
    if execution.accelerator == "cpu":
        return []
    count = torch.cuda.device_count()
    names = [name.strip() for name in os.environ.get(VISIBLE_DEVICES, "").split(",")]
    names = [name for name in names if name]
    return names[:count] or [str(number) for number in range(count)]


_STATE: dict[str, Any] = {}


class _Stopped(ContrastLabError):
    """A worker was asked to stop, or its minutes are over: the first process is told as by Ctrl-C."""


def _begin(lines: Any, numbers: Any, execution: Execution, devices: Sequence[str], stopping: Any) -> None:
    """Of each worker: its number, its device, and that it ends with the process it works for."""
    number = numbers.get()
    if devices:  # before anything asks CUDA, which reads this once
        os.environ[VISIBLE_DEVICES] = devices[number % len(devices)]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process of a terminal; the first one decides
    _STATE.update(lines=lines, number=number, execution=execution, stopping=stopping)
    parent = multiprocessing.parent_process()
    if parent is not None:
        end_after(parent.join, LAST_STEP_S)


def _work(group: Sequence[Job], wait: bool) -> list[Answer] | None:
    """The jobs of one run, or ``None`` where another process computes it."""

    def log(line: str) -> None:
        _STATE["lines"].put((_STATE["number"], line))

    if _STATE.get("stopped"):  # jobs that were handed out before the stop
        raise _Stopped
    try:
        return [run(job, _STATE["execution"], wait=wait, log=log) for job in group]
    except BusyError:
        return None
    except KeyboardInterrupt as stop:
        parent = multiprocessing.parent_process()
        if _STATE["stopping"].is_set() or (parent is not None and not parent.is_alive()):
            os._exit(0)  # the pool is ending: another worker may have been killed with its queue's lock in hand
        _STATE["stopped"] = True
        raise _Stopped(*stop.args) from None


def _moves_on(line: str) -> bool:
    """Whether a line of a worker takes the place of the one before; what happens once in a run stays."""
    return (" epoch " in line or " step " in line) and "checkpoint" not in line


@contextmanager
def _progress(lines: Any, total: int, count: int, log: Log) -> Iterator[Callable[[int], object]]:
    """A line for each worker and one in all in a terminal; else the workers' lines as they come."""
    terminal = sys.stderr.isatty()
    bars = [tqdm(total=0, position=k + 1, bar_format="{desc}", leave=False) for k in range(count)] if terminal else []
    every = tqdm(total=total, position=0, unit="cell", disable=not terminal)

    unread: list[BrokenPipeError] = []

    def read() -> None:
        try:
            while True:
                item = lines.get()
                if item is None:
                    return
                number, line = item
                if terminal and _moves_on(line):
                    bars[number].set_description_str(line)
                else:
                    with tqdm.external_write_mode():
                        log(line)
        except BrokenPipeError as error:
            unread.append(error)

    def update(cells: int) -> None:
        every.update(cells)
        if unread:  # the thread cannot end the run
            raise unread[0]

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        yield update
    finally:
        lines.put(None)
        reader.join(timeout=5)
        for bar in (*bars, every):
            bar.close()


def _submit(groups: list[list[Job]], execution: Execution, cluster: Cluster, log: Log) -> dict[Job, Answer]:
    """The answers of groups of jobs, each group a job of a cluster; none where the cluster is not waited for."""
    folder = Path(execution.out_dir) / "cluster"
    executor = _executor(folder, execution, cluster)
    submitted = [executor.submit(ClusterJob(), group, execution) for group in groups]
    log(f"{len(submitted)} jobs handed to {cluster.name}; their logs are in {folder}")
    answers: dict[Job, Answer] = {}
    if not cluster.wait:
        return answers
    total = sum(len(group) for group in groups)
    for group, cluster_job in zip(groups, submitted, strict=True):
        answers |= dict(zip(group, cluster_job.result(), strict=True))
        log(f"{len(answers)} of {total} cells done")
    return answers


def _executor(folder: Path, execution: Execution, cluster: Cluster) -> Any:
    """What hands jobs to a cluster; a ``DeviceError`` where it cannot."""
    submitit = import_extra("submitit", "cluster")
    options = dict(cluster.options)
    if cluster.name == "slurm":
        speed = execution.speed or Speed()
        options.setdefault("cpus_per_task", speed.workers + 1)
    try:
        executor = submitit.AutoExecutor(folder=folder, cluster=cluster.name)
        executor.update_parameters(**options)
    except (RuntimeError, AssertionError, TypeError, NameError) as error:
        request = f"cluster={cluster.name!r} with {dict(cluster.options)!r}"
        raise DeviceError(f"{request} cannot be used here: {error}") from error
    return executor


class ClusterJob:
    """The jobs of one run on a cluster; what its time limit cuts off is queued again and resumed."""

    def __call__(self, group: Sequence[Job], execution: Execution) -> list[Answer]:  # noqa: D102
        return [run(job, execution, log=print) for job in group]

    def checkpoint(self, group: Sequence[Job], execution: Execution) -> Any:
        """What submitit queues in place of a job that was cut off."""
        return import_extra("submitit", "cluster").helpers.DelayedSubmission(self, group, execution)
