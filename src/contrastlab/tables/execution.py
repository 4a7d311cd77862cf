"""Where and on what cells are computed: folders, devices, time, and the launch on them."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from contrastlab import data
from contrastlab.pictures.items import Splits
from contrastlab.support import escape, shipped
from contrastlab.support.errors import DeviceError, check, check_choice, check_flag, check_integer, is_integer
from contrastlab.support.paths import own_path
from contrastlab.train import Speed
from contrastlab.train.schedule import precision, warnings_only
from contrastlab.train.signals import signals

if TYPE_CHECKING:
    from lightning_fabric import Fabric


COLLECTIVE_TIMEOUT = timedelta(hours=3)
"""How long a process waits for another one within a collective, such as for its runs of k-means over a large bank.

What the first process does alone may take longer; the others then sleep, see :func:`collectives.by_first`.
"""


_LAUNCHED = (
    "RANK",
    "LOCAL_RANK",
    "NODE_RANK",
    "GROUP_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "MASTER_PORT",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_NODEID",
    "SLURM_NTASKS",
)
"""Variables by which a launcher tells a process which of several it is."""


def first_process() -> bool:
    """Whether this is the process that speaks, under torchrun and Fabric's launcher, too."""
    return all(os.environ.get(name, "0") == "0" for name in ("RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID"))


def say(line: str) -> None:
    """Print a line of progress, once however many processes there are."""
    if first_process():
        print(escape.line(line), flush=True)


def parse_devices(devices: int | str) -> int | str:
    """A number where the text is one, as a command line or papermill passes it; :class:`Execution` checks its range."""
    return int(devices) if re.fullmatch("-?[0-9]{1,6}", str(devices)) else devices


@dataclass(frozen=True)
class Execution:
    """Where and on what cells are computed; only processes for one cell change a number beyond float32 rounding."""

    data_root: str | Path | None = None  # of data sets; None: CONTRASTLAB_DATA, or the user's cache
    out_dir: str | Path = "runs"  # of new results; runs are under out_dir/encoders
    read_also: Sequence[str | Path] = shipped.RESULTS  # further folders of stored results
    accelerator: str = "auto"  # cpu, cuda, or auto: CUDA where there is a device. MPS lacks float64, which sums are
    devices: int | str = 1  # of this machine for one cell
    num_nodes: int = 1  # machines for one cell
    strategy: str = "auto"  # or ddp: banks, queues and momentum need whole weights in every process
    resume: bool = True  # False computes anew what is stored, encoders and checkpoints included
    max_minutes: float | None = None  # after which it stops in good order
    speed: Speed | None = None  # switches that change how long it takes and no number
    skip_unreadable: bool = False  # of a user's own pictures and sounds leave out what cannot be decoded

    def __post_init__(self) -> None:
        check_flag("resume", self.resume)
        check_flag("skip_unreadable", self.skip_unreadable)
        devices, minutes = self.devices, self.max_minutes
        check(devices == "auto" or is_integer(devices), "devices", devices, "a number of at least 1, or 'auto'")
        check_integer("num_nodes", self.num_nodes)
        check_choice("accelerator", self.accelerator, ("auto", "cpu", "cuda", "gpu"))
        if self.accelerator in ("cuda", "gpu") and not torch.cuda.is_available():
            raise DeviceError(f"accelerator={self.accelerator!r}: there is no CUDA device here; expected auto or cpu")
        check_choice("strategy", self.strategy, ("auto", "ddp"))
        check(not own_path("out_dir", self.out_dir).is_file(), "out_dir", str(self.out_dir), "a folder")
        check(minutes is None or minutes >= 0, "max_minutes", minutes, "None, or minutes of at least 0")
        for variable in _LAUNCHED:
            value = os.environ.get(variable, "0")
            check(value.isdecimal(), variable, value, "a whole number, as torchrun or a cluster sets it; else unset it")

    @property
    def one_process(self) -> bool:
        """Whether one process computes a cell."""
        return self.devices == 1 and self.num_nodes == 1 and "RANK" not in os.environ

    def load(self, dataset: str) -> Splits:
        """A data set by name; published and generated ones are whole or refused."""
        options = {"skip_unreadable": True} if self.skip_unreadable and ":" in dataset else {}
        return data.load(dataset, self.data_root, **options)

    def fabric(self, wanted: str = "32-true") -> Fabric:
        """Launched, in a precision of :class:`contrastlab.settings.Settings`; a ``DeviceError`` where it cannot be."""
        # takes seconds, which what trains nothing does without
        from lightning_fabric import Fabric
        from lightning_fabric.strategies.ddp import DDPStrategy
        from lightning_fabric.utilities.exceptions import MisconfigurationException

        kind = self.accelerator
        if kind == "auto" and not torch.cuda.is_available():
            kind = "cpu"
        options: dict[str, Any] = {
            "accelerator": "cuda" if kind in ("auto", "gpu") else kind,
            "devices": self.devices,
            "num_nodes": self.num_nodes,
            "precision": precision(wanted, kind),
        }
        try:
            with warnings_only():
                fabric = Fabric(strategy=self.strategy, **options)
                self._refuse_in_notebook(fabric)
                if isinstance(fabric.strategy, DDPStrategy):
                    # gradients lie where they are summed, and are not copied there and back
                    ddp = DDPStrategy(timeout=COLLECTIVE_TIMEOUT, gradient_as_bucket_view=True)
                    fabric = Fabric(strategy=ddp, **options)
                self._launch(fabric)
        except (ValueError, RuntimeError, ImportError, MisconfigurationException) as error:
            asked = f"accelerator={self.accelerator!r}, devices={self.devices!r}, strategy={self.strategy!r}"
            raise DeviceError(f"{asked} cannot be had here: {error}") from error
        return fabric

    def _refuse_in_notebook(self, fabric: Fabric) -> None:
        launcher: Any = fabric.strategy.launcher
        if launcher is not None and launcher.is_interactive_compatible:
            several = f"devices={self.devices!r}: several devices for one cell need processes of their own"
            here = "accepted here is 1, or contrastlab run … --devices in a terminal"
            raise DeviceError(f"{several}, which a notebook cannot start; {here}")

    def _launch(self, fabric: Fabric) -> None:
        """Start the other processes, if any, which end with this one."""
        if self.one_process:
            fabric.launch()
            return
        if os.environ.get("LOCAL_RANK", "0") != "0":
            end_with_parent()
        elif self.num_nodes > 1:
            first = os.environ.get("MASTER_ADDR", "this one, as MASTER_ADDR is not set")
            print(f"waits for all {self.num_nodes} machines (the first: {first}); run this on each", flush=True)
        # who waits for others in compiled code hears no handler
        with signals(signal.SIG_DFL, signal.SIGINT, signal.SIGTERM):
            fabric.launch()


@cache
def end_with_parent(every_s: float = 2.0) -> None:
    """End this process when the one that started it has ended; a process in a collective would not notice."""
    parent = os.getppid()

    def wait() -> None:
        while os.getppid() == parent:
            time.sleep(every_s)

    end_after(wait)


def end_after(wait: Callable[[], object], grace_s: float = 0.0) -> None:
    """End this process ``grace_s`` seconds after ``wait`` returns; until then it may end in good order."""

    def end() -> None:
        wait()
        if grace_s:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(grace_s)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=end, daemon=True).start()
