"""What every task is: a frozen dataclass that scores encoders, and metrics that say what their numbers mean."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, Self

import torch
from scipy import stats
from torch import Tensor, nn

from contrastlab.errors import NotApplicableError, reject
from contrastlab.settings import Settings
from contrastlab.views import Augmentation, Views

Log = Callable[[str], None]
_Z = float(stats.norm.ppf(0.975))


@dataclass(frozen=True)
class Metric:
    """What a number of a task means.

    Args:
        name: key in a result's metrics.
        label: in words, without the unit.
        unit: of the value: ``percent``, ``AP``, ``mIoU``, ``Spearman``, ``seconds``, ``nats``.
        low: smallest possible value.
        high: largest possible value.
        higher_is_better: direction.
        error: how the sampling error over test items comes: from the value (``binomial``), from the task, which draws
            test items anew (``bootstrap``), or not at all (``none``).
        items: what the test items are, plural.
        gap: what differences are counted in.
        absent: why a task may give no such number.
    """

    name: str
    label: str
    unit: str = "percent"
    low: float = 0.0
    high: float = 100.0
    higher_is_better: bool = True
    error: Literal["binomial", "bootstrap", "none"] = "binomial"
    items: str = "test images"
    gap: str = "points"
    absent: str = ""

    def half_width(self, value: float, items: int, stored: float | None = None) -> float | None:
        """95 % half-width of the sampling error of ``value`` over ``items`` test items; ``None`` where there is none.

        Args:
            value: in the metric's unit.
            items: how many the value was taken on, at least 1.
            stored: half-width that the task found by bootstrap.

        Raises:
            ArgumentError: ``value`` is outside the metric's range, or there are no items.
        """
        if not self.low <= value <= self.high:
            raise reject(self.name, value, f"a number from {self.low:g} to {self.high:g} {self.unit}")
        if items < 1:
            raise reject("items", items, "at least 1")
        if self.error == "bootstrap":
            return stored
        if self.error == "none":
            return None
        if value in (self.low, self.high):  # how far off the truth may be for all items to agree, exactly (binomial)
            return (self.high - self.low) * (1 - math.pow(0.025, 1 / items))
        return _Z * math.sqrt((value - self.low) * (self.high - value) / items)


@dataclass(frozen=True)
class Measured:
    """One number of a task.

    Args:
        value: in the metric's unit.
        items: test items it was taken on.
        half_width: 95 %, of the sampling error, where the metric's error is ``bootstrap``.
        correct: boolean ``[items]``, which test items were right, where that is defined.
    """

    value: float
    items: int
    half_width: float | None = None
    correct: Tensor | None = None

    @classmethod
    def share(cls, correct: Tensor) -> Measured:
        """Percent of ``True`` in a boolean ``[N]``."""
        return cls(100 * float(correct.double().mean()), len(correct), correct=correct.cpu())


def bootstrap(
    statistic: Callable[[Tensor], float], items: int, *, draws: int = 1000, seed: int = 0
) -> tuple[float, float]:
    """A statistic of test items and the 95 % half-width of its sampling error.

    Args:
        statistic: of item numbers ``[items]``, which may repeat.
        items: how many there are.
        draws: samples with replacement.
        seed: of the draws.

    Returns:
        The statistic of all items, and half the distance of the 2.5 % and 97.5 % quantiles over the draws.
    """
    generator = torch.Generator().manual_seed(seed)
    values = torch.tensor(
        [statistic(torch.randint(items, (items,), generator=generator)) for _ in range(draws)], dtype=torch.float64
    )
    low, high = values.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return statistic(torch.arange(items)), (high - low) / 2


@dataclass(frozen=True)
class Setting:
    """What a task is given beside the encoders: how their inputs are made, the data, and where to compute.

    Args:
        views: of the recipe; they say which encoder sees what.
        augmentation: of the modality at hand.
        data: with ``train`` and ``test``.
        seed: of everything random in a task.
        device: where the encoders are.
        log: takes lines of progress.
        folder: of what a task trains itself, so that it resumes; ``None`` keeps nothing.
    """

    views: Views
    augmentation: Augmentation
    data: Any
    seed: int = 0
    device: torch.device | str = "cpu"
    log: Log = lambda line: None
    folder: Path | None = None


class Task(Protocol):
    """A frozen dataclass; its fields are all that decides its numbers beside encoders, data and seed."""

    name: ClassVar[str]
    metrics: ClassVar[tuple[Metric, ...]]
    modality: ClassVar[str]

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """The task as ``settings`` has it."""

    def identity(self) -> dict[str, Any]:
        """Fields that are not at their default, as plain values."""

    def check(self, data: Any) -> None:
        """Refuse splits that the task cannot be scored on, before anything is trained for it.

        Raises:
            NotApplicableError: naming the data and the reason.
        """

    def score(self, encoders: nn.ModuleList, setting: Setting) -> dict[str, Measured]:
        """Every metric of the task, by name.

        Raises:
            NotApplicableError: the task does not fit the data or the encoders, with the reason.
        """

    def protocol(self, setting: Setting) -> dict[str, Any]:
        """How the metrics were taken, for a reader."""


class Described:
    """``identity`` of a frozen dataclass, and which data fit its class."""

    name: ClassVar[str]
    modality: ClassVar[str]
    tells_classes_apart: ClassVar[bool] = False
    """Whether the score is the share of items whose class is found, so that one class leaves nothing to find."""

    def check(self, data: Any) -> None:
        """Refuse splits that the task cannot be scored on, before anything is trained for it.

        Raises:
            NotApplicableError: another modality, no labels, or one class; the message names the data.
        """
        if self.modality not in ("any", data.test.modality):
            raise NotApplicableError(
                f"{self.name} is a task for {self.modality}s; {data.name} has {data.test.modality}s"
            )
        if self.tells_classes_apart and len(data.train.labels.unique()) < 2:
            only = data.train.classes[int(data.train.labels[0])]
            raise NotApplicableError(
                f"{data.name} has one class, {only!r}: {self.name} tells classes apart and needs at least two"
            )

    def identity(self) -> dict[str, Any]:
        """Fields that are not at their default, as plain values."""
        out: dict[str, Any] = {}
        for each in fields(self):  # type: ignore[arg-type]
            value = getattr(self, each.name)
            default = each.default if each.default_factory is MISSING else each.default_factory()
            if value != default:
                out[each.name] = value.model_dump(mode="json", exclude_defaults=True) if _is_model(value) else value
        return out


def _is_model(value: Any) -> bool:
    return hasattr(value, "model_dump")
