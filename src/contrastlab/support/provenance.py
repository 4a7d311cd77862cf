"""Where a number comes from: code, packages, machine, data and time."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import time
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import contrastlab.support.lab  # noqa: F401

from pydantic import Field, field_validator

from contrastlab import __version__
from contrastlab.settings import FrozenModel

if TYPE_CHECKING:  # results are read without torch
    import torch

_PACKAGES = (
    "torch",
    "torchvision",
    "numpy",
    "scikit-learn",
    "scipy",
    "pandas",
    "lightning-fabric",
    "faiss-cpu",
    "safetensors",
)


COMMIT_VARIABLE = "CONTRASTLAB_COMMIT"
"""Environment variable that names the commit where the package runs from a copy without its repository."""


class Provenance(FrozenModel):
    """Where a number comes from. :func:`provenance` fills in code and machine; the run adds the rest."""

    git_commit: str | None = Field(
        description="commit of this package's checkout, or as the environment says; else None"
    )
    git_dirty: bool | None = Field(description="whether tracked files differed from that commit")
    package: str = Field(description="version of contrastlab")
    versions: dict[str, str] = Field(description="python and the packages that compute")
    cpu: str
    capability: str | None = Field(None, description="instructions torch computes with on it, such as AVX512")
    cores: int = Field(description="logical cores of the machine")
    threads: int = Field(description="threads torch computes with")
    device: str
    gpu: str | None
    driver: str | None
    cuda: str | None
    processes: int = Field(1, ge=1, description="that trained together, each with own views and batch-norm statistics")
    # what a GPU computes float32 with: factors of 10 bits in place of 23 (TF32), and kernels that were tried out
    tf32_products: bool | None = Field(None, description="whether matrix products may be TF32")
    tf32_convolutions: bool | None = Field(None, description="whether convolutions may be TF32")
    cudnn_benchmark: bool | None = Field(None, description="whether cuDNN tries which of its kernels is fastest")
    deterministic: bool = Field(description="torch.are_deterministic_algorithms_enabled()")
    data_fingerprint: str = Field(description="hash of the data used")
    data_note: str = Field("", description="what to know about this copy of the data, such as a lossy re-encoding")
    started: datetime = Field(description="UTC")
    finished: datetime = Field(description="UTC")
    wall_s: float = Field(ge=0, description="seconds, training and evaluation")
    cpu_s: float | None = Field(None, ge=0, description="processor seconds of this process")
    images_per_s: float | None = Field(None, ge=0, description="training images a second, over all processes")
    peak_memory_bytes: int | None = Field(None, ge=0, description="of the GPU if there is one, else of the process")

    @field_validator("started", "finished")
    @classmethod
    def _utc(cls, value: datetime) -> datetime:
        if value.utcoffset() is None or value.utcoffset():
            raise ValueError("expected a time in UTC with its zone, as datetime.now(UTC) gives it")
        return value


def provenance(device: torch.device | str = "cpu") -> dict[str, Any]:
    """Code and machine of a run on ``device``: the fields of :class:`Provenance` up to ``deterministic``."""
    import torch

    from contrastlab.support import collectives

    commit, dirty = _git()
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    _, processes = collectives.world()
    return {
        "git_commit": commit,
        "git_dirty": dirty,
        "package": __version__,
        "versions": versions,
        "cpu": _cpu(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
        "device": str(torch.device(device)),
        "processes": processes,
        **_gpu(torch.device(device)),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


def _gpu(device: torch.device) -> dict[str, Any]:
    """What a GPU is and what it computes float32 with; ``None`` everywhere for another device."""
    import torch

    names = ("gpu", "driver", "cuda", "tf32_products", "tf32_convolutions", "cudnn_benchmark")
    if device.type != "cuda":
        return dict.fromkeys(names)
    values = (
        torch.cuda.get_device_name(device),
        _driver(),
        torch.version.cuda,
        torch.backends.cuda.matmul.allow_tf32,
        torch.backends.cudnn.allow_tf32,
        torch.backends.cudnn.benchmark,
    )
    return dict(zip(names, values, strict=True))


class Clock:
    """What computing a number takes from now on."""

    def __init__(self, device: torch.device | str) -> None:
        import torch

        self.device = torch.device(device)
        self.started = datetime.now(UTC)
        self.wall = time.monotonic()
        self.cpu = time.process_time()
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)

    def read(self, **further: Any) -> Provenance:
        """Code, machine, times and memory; ``further`` are the data's fields, and the speed of training."""
        return Provenance(
            **provenance(self.device),
            **further,
            started=self.started,
            finished=datetime.now(UTC),
            wall_s=time.monotonic() - self.wall,
            cpu_s=time.process_time() - self.cpu,
            peak_memory_bytes=self._peak_memory(),
        )

    def _peak_memory(self) -> int:
        """Bytes, of the GPU if there is one, else of the process."""
        import torch

        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device)
        kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return kib * 1024


def _output(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)  # noqa: S603 - ours
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _git() -> tuple[str | None, bool | None]:
    """The commit of this package's checkout, and whether its files differ from it; ``None`` for what is not known."""
    here = Path(__file__).resolve()
    git = ("git", "-C", str(here.parent))
    # A virtual environment may lie inside somebody else's repository: only our own, tracked file counts.
    if _output(*git, "ls-files", "--error-unmatch", here.name) is None:
        return os.environ.get(COMMIT_VARIABLE), None
    commit = _output(*git, "rev-parse", "HEAD")
    changes = _output(*git, "status", "--porcelain", "--untracked-files=no")
    if changes is None:
        return commit, None
    return commit, bool(changes)


def _cpu() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _driver() -> str | None:
    output = _output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    if not output:
        return None
    return output.splitlines()[0].strip()
