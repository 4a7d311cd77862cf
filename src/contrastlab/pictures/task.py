"""What every task is, and what its numbers mean; imported without torch, for lists and hashes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from contrastlab.settings import Settings
from contrastlab.support.errors import NotApplicableError, check, reject

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from contrastlab.views import Augmentation, Views

Log = Callable[[str], None]

FROZEN = {"encoder": "frozen, evaluation mode"}
LAST = {"which_epoch": "last"}
"""Words of protocols that several tasks share."""

_NORMAL_QUANTILE = 1.959963984540054  # 97.5 % of the normal distribution


def from_settings(name: str) -> Any:
    """A field of a task that is the part of that name of :class:`contrastlab.settings.Settings`."""

    def default() -> Any:
        return getattr(Settings(), name)

    return field(default_factory=default, metadata={"settings": name})


@dataclass(frozen=True)
class Metric:
    """What a number of a task means; ``label`` is without the unit.

    The sampling error over test items comes from the value (``binomial``), from the task, which draws test items anew
    (``bootstrap``), or not at all. Differences count in ``gap``; ``absent`` is why a task may lack such a number.
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

        ``stored`` is the half-width that the task estimated by bootstrap.
        """
        if not self.low <= value <= self.high:
            raise reject(self.name, value, f"a number from {self.low:g} to {self.high:g} {self.unit}")
        check(items >= 1, "items", items, "at least 1")
        if self.error == "bootstrap":
            return stored
        if self.error == "none":
            return None
        if value in (self.low, self.high):
            # how far off the truth may be for all items to agree, exactly (binomial)
            return (self.high - self.low) * (1 - math.pow(0.025, 1 / items))
        variance = (value - self.low) * (self.high - value) / items
        return _NORMAL_QUANTILE * math.sqrt(variance)


@dataclass(frozen=True)
class Measured:
    """One number of a task, in the metric's unit, over so many test items.

    ``half_width`` (95 %) is given where the metric's error is ``bootstrap``. Boolean ``correct`` ``[items]`` says which
    test items were right, where that is defined.
    """

    value: float
    items: int
    half_width: float | None = None
    correct: Tensor | None = None

    @classmethod
    def share(cls, correct: Tensor) -> Measured:
        """Percent of ``True`` in a boolean ``[N]``."""
        check(len(correct), "items", len(correct), "at least 1")
        return cls(100 * float(correct.double().mean()), len(correct), correct=correct.cpu())


@dataclass(frozen=True)
class Evaluation:
    """One evaluation of encoders, as a task is given it: how their inputs are made, the data, and where to compute.

    The recipe's views say which encoder sees what; ``data`` has ``train`` and ``test``. What a task trains itself is
    kept in ``folder``, so that it resumes.
    """

    views: Views
    augmentation: Augmentation
    data: Any
    seed: int = 0
    device: torch.device | str = "cpu"
    log: Log = lambda line: None
    folder: Path | None = None


class Task:
    """A frozen dataclass; its fields are all that decides its numbers beside encoders, data and seed."""

    name: ClassVar[str]  #: key in :data:`contrastlab.tasks.TASKS`
    metrics: ClassVar[tuple[Metric, ...]]
    #: of the data that it can score; by default those whose items have one label each
    modalities: ClassVar[tuple[str, ...]] = ("image", "clip", "scene", "waveform", "sentence", "feature vector")
    compares_classes: ClassVar[bool] = False  #: whether the score is the share of items whose class is predicted
    scorer: ClassVar[str]  #: ``module:function``, imported when needed; it takes the task, encoders and an evaluation

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """The task as ``settings`` has it: a field there has the same name, or that in the field's metadata."""
        sources = type(settings).model_fields
        values = {}
        for each in fields(cls):  # type: ignore[arg-type]
            source = each.metadata.get("settings", each.name)
            if source in sources:
                values[each.name] = getattr(settings, source)
        return cls(**values)

    def identity(self) -> dict[str, Any]:
        """Fields that are not at their default, as plain values."""
        default = vars(type(self)())
        changed = {}
        for name, value in vars(self).items():
            if value == default[name]:
                continue
            if hasattr(value, "model_dump"):
                value = value.model_dump(mode="json", exclude_defaults=True)
            changed[name] = value
        return changed

    def check(self, data: Any) -> None:
        """Refuse splits that the task cannot be scored on, before anything is trained for it.

        A ``NotApplicableError`` names the data and says why: another modality, or one class.
        """
        # of one class nothing is held out, so that there is no test part to look at
        if self.compares_classes and not getattr(data, "labelled", True):
            self._check_classes(data.name, data.pretrain)
        if data.test.modality not in self.modalities:
            *others, last = [f"{modality}s" for modality in self.modalities]
            accepted = last
            if others:
                accepted = f"{', '.join(others)} and {last}"
            raise NotApplicableError(f"{self.name} is a task for {accepted}; {data.name} has {data.test.modality}s")
        if self.compares_classes:
            self._check_classes(data.name, data.train)

    def _check_classes(self, name: str, part: Any) -> None:
        labels = part.labels[part.labels >= 0]
        if len(labels.unique()) == 1:
            only = part.classes[int(labels[0])]
            reason = f"{self.name} tells classes apart and needs at least two"
            raise NotApplicableError(f"{name} has one class, {only!r}: {reason}")

    def score(self, encoders: nn.ModuleList, evaluation: Evaluation) -> dict[str, Measured]:
        """Every metric by name; a ``NotApplicableError`` says why the task does not fit the data or the encoders."""
        self.check(evaluation.data)
        module, _, function = self.scorer.partition(":")
        scorer = getattr(import_module(module), function)
        return scorer(self, encoders, evaluation)

    def protocol(self, evaluation: Evaluation) -> dict[str, Any]:
        """How the metrics were taken, for a reader."""
        raise NotImplementedError

    def record(self, measured: dict[str, Measured], evaluation: Evaluation, settings: Settings) -> dict[str, Any]:
        """What was asked and answered: fields of a :class:`contrastlab.tables.results.Result`."""
        from contrastlab.tables.results import pack  # needs NumPy

        items = max(number.items for number in measured.values())
        protocol = {
            **self.protocol(evaluation),
            "arch": settings.arch,
            "stem": settings.stem,
            "image_size": settings.image_size,
            "split": f"{evaluation.data.test.name}, {items} test items",
        }
        values = {}
        half_widths = {}
        correct = {}
        for name, number in measured.items():
            values[name] = number.value
            if number.half_width is not None:
                half_widths[name] = number.half_width
            if number.correct is not None:
                correct[name] = pack(number.correct)
        return {
            "task": self.name,
            "task_config": self.identity(),
            "items": items,
            "protocol": protocol,
            "settings": settings.model_dump(mode="json"),
            "metrics": values,
            "half_widths": half_widths,
            "correct": correct,
        }
