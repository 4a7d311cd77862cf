"""Networks that were trained elsewhere on our tasks, each beside the same architecture untrained."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn

from contrastlab import encoders, tasks, views
from contrastlab.pictures import items
from contrastlab.pictures.domain import modality
from contrastlab.pictures.items import Splits
from contrastlab.settings import LinearProbe, Settings
from contrastlab.support import files
from contrastlab.support.errors import NotApplicableError, reject
from contrastlab.support.seeds import derive, fixed
from contrastlab.support.tensors import frozen
from contrastlab.tables import results
from contrastlab.tables.results import FOREIGN, UNTRAINED, Result

SETTINGS = Settings(linear=LinearProbe(solver="lbfgs", features="pooled"))
"""How a network is scored unless said otherwise: images of 224 pixels, one fit of its features."""


class Scored(NamedTuple):
    """Results of one task: of a network as it was given, and of its floor; ``half_widths`` are their intervals."""

    encoder: Result
    untrained: Result

    def __repr__(self) -> str:
        lines = []
        for name in self.encoder.metrics:
            trained, untrained = (f"{result.metrics[name]:.2f} ± {result.half_widths[name]:.2f}" for result in self)
            lines.append(f"{tasks.metric(name).label}: {trained}, untrained {untrained}")
        return "\n".join(lines)


def score(
    module: nn.Module,
    task: str,
    data: Splits,
    *,
    untrained: nn.Module | None = None,
    name: str = "",
    settings: Settings | None = None,
    profile: str = "foreign",
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> Scored:
    """What a task says of any network, with intervals, provenance and hashes; ``results.save`` keeps either result.

    Args:
        module: from normalised views ``[B, C, H, W]`` to features ``[B, F]`` or a map ``[B, F, h, w]``; it is copied.
        task: key of :data:`contrastlab.tasks.TASKS`.
        data: what is seen, see :func:`contrastlab.data.load`.
        untrained: the same network before training. ``None`` copies ``module`` and lets each layer draw itself anew.
        name: that its results carry, by default that of its class.
        settings: size of the views and how the task scores; by default :data:`SETTINGS`.
        profile: that its results carry; a table shows them beside those of its profile that were scored alike.
        seed: of the floor's weights and of what the task draws.
        device: where to compute.
    """
    if not isinstance(module, nn.Module) or not isinstance(data, Splits):
        raise reject("module, data", (type(module).__name__, data), "a torch.nn.Module, and what data.load gives")
    class_name = f"{type(module).__module__}.{type(module).__qualname__}"
    settings = settings or SETTINGS.override(arch=class_name)
    name = name or class_name
    question = Question(task, data, settings, profile, seed, device)
    if untrained is None:
        floor = redrawn(module, seed)
        weights = UNTRAINED  # the seed says which were drawn
    else:
        floor = untrained
        weights = f"{UNTRAINED} {files.fingerprint(floor.state_dict(), {})}"
    encoder = result_of(module, question, name)
    untrained_result = result_of(floor, question, name, weights=weights)
    return Scored(encoder, untrained_result)


@dataclass(frozen=True)
class Question:
    """What is asked of a network and its floor alike; see :func:`score`."""

    task: str
    data: Splits
    settings: Settings
    profile: str
    seed: int
    device: torch.device | str

    def evaluation(self) -> tasks.Evaluation:
        """What the task is given beside the network."""
        augmentation = modality(self.data.train).augmentation(self.settings)
        probe_seed = derive(self.seed, "probe") % 2**31
        return tasks.Evaluation(views.Augmented(1), augmentation, self.data, probe_seed, self.device)


def result_of(module: nn.Module, question: Question, name: str, *, weights: str = "") -> Result:
    """One of the two results of :func:`score`; ``weights`` says of a floor what it is."""
    data, settings = question.data, question.settings
    clock = results.Clock(question.device)
    task = tasks.get(question.task, settings)
    network = copy.deepcopy(module)
    task.check(data)
    recipe = {"weights": weights or files.fingerprint(network.state_dict(), {})}
    if not isinstance(network, encoders.Encoder):
        recipe["network"] = results.digest({"text": repr(module)})
        network = encoders.Encoder(network, 0, "none", 0, data.test.channels)
    _try(network.to(question.device), settings, data.test.channels)
    evaluation = question.evaluation()
    measured = task.score(nn.ModuleList([network]), evaluation)
    method = f"{FOREIGN}{name}"
    if weights:
        method += f" {UNTRAINED}"
    return Result(
        table=FOREIGN.rstrip("/"),
        dataset=data.name,
        method=method,
        seed=question.seed,
        profile=question.profile,
        recipe={"foreign": recipe},
        **_with_all_intervals(task.record(measured, evaluation, settings)),
        provenance=clock.read(data_fingerprint=items.fingerprint(data), data_note=data.note),
    )


def _with_all_intervals(record: dict[str, Any]) -> dict[str, Any]:
    """A task's record with the half-width of every metric, also of those whose interval follows from the value."""
    half_widths = dict(record["half_widths"])
    for name, value in record["metrics"].items():
        half_width = tasks.metric(name).half_width(value, record["items"], half_widths.get(name))
        if half_width is not None:
            half_widths[name] = half_width
    return {**record, "half_widths": half_widths}


def redrawn(module: nn.Module, seed: int) -> nn.Module:
    """A copy whose layers have drawn their weights anew, each by its own ``reset_parameters``."""
    fresh = copy.deepcopy(module)
    with fixed(seed):
        for name, layer in fresh.named_modules():
            reset = getattr(layer, "reset_parameters", None) or getattr(layer, "_reset_parameters", None)
            if reset is not None:
                reset()
                continue
            parameters = [key for key, _ in layer.named_parameters(prefix=name, recurse=False)]
            if parameters:
                undrawn = ", ".join(parameters)
                raise reject("untrained", None, f"the network untrained, as nothing here draws {undrawn} anew")
    return fresh


def _try(encoder: encoders.Encoder, settings: Settings, channels: int) -> None:
    """Refuse a network that does not take the views, or gives anything but features or a map, by name."""
    seen = torch.zeros(2, channels, settings.image_size, settings.image_size)
    try:
        with frozen(encoder):
            out = encoder.backbone(seen.to(next(encoder.parameters(), seen).device))
        problem = "" if out.dim() in (2, 4) else f"it gives {list(out.shape)}"
    except (RuntimeError, ValueError, AssertionError, TypeError, LookupError, AttributeError) as error:
        problem = (str(error) or type(error).__name__).splitlines()[0]
    if problem:
        wanted = f"a network from {list(seen.shape)} to features [B, F] or a map [B, F, h, w]"
        raise NotApplicableError(f"{settings.arch} is not scored: expected {wanted} ({problem})")
