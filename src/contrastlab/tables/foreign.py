"""Networks that were trained elsewhere on our tasks, each beside the same architecture untrained."""

from __future__ import annotations

import copy
from typing import NamedTuple

import torch
from torch import nn

from contrastlab import encoders, tasks, views
from contrastlab.pictures import items
from contrastlab.pictures.domain import modality
from contrastlab.pictures.items import Splits
from contrastlab.pictures.representations import frozen
from contrastlab.settings import LinearProbe, Settings
from contrastlab.support import files
from contrastlab.support.errors import NotApplicableError, reject
from contrastlab.support.seeds import derive, fixed
from contrastlab.tables import results
from contrastlab.tables.results import FOREIGN, UNTRAINED, Result

SETTINGS = Settings(linear=LinearProbe(solver="lbfgs", features="pooled"))
"""How a network is scored unless said otherwise: images of 224 pixels, one fit of its features."""


class Scored(NamedTuple):
    """Results of one task: of a network as it was given, and of its floor; ``half_widths`` are their intervals."""

    encoder: Result
    untrained: Result

    def __repr__(self) -> str:
        cells = {name: [f"{r.metrics[name]:.2f} ± {r.half_widths[name]:.2f}" for r in self] for name in self[0].metrics}
        return "\n".join(f"{tasks.metric(m).label}: {one}, untrained {other}" for m, (one, other) in cells.items())


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
    given = (task, data, name or class_name, settings, profile, seed, device)
    floor = redrawn(module, seed) if untrained is None else untrained  # the seed says which was drawn
    weights = "" if untrained is None else f" {files.fingerprint(floor.state_dict(), {})}"
    return Scored(one(module, *given), one(floor, *given, weights=UNTRAINED + weights))


def one(
    module: nn.Module,
    task: str,
    data: Splits,
    name: str,
    settings: Settings,
    profile: str,
    seed: int,
    device: torch.device | str,
    *,
    weights: str = "",
) -> Result:
    """One of the two results of :func:`score`, whose arguments these are; ``weights`` says of a floor what it is."""
    clock, asked, network = results.Clock(device), tasks.get(task, settings), copy.deepcopy(module)
    asked.check(data)
    recipe = {"weights": weights or files.fingerprint(network.state_dict(), {})}
    if not isinstance(network, encoders.Encoder):
        recipe["network"] = results.digest({"text": repr(module)})
        network = encoders.Encoder(network, 0, "none", 0, data.test.channels)
    _try(network.to(device), settings, data.test.channels)
    shown = modality(data.train).augmentation(settings)
    setting = tasks.Setting(views.Augmented(1), shown, data, derive(seed, "probe") % 2**31, device)
    record = asked.record(asked.score(nn.ModuleList([network]), setting), setting, settings)
    for key, value in record["metrics"].items():  # every interval, also those that follow from the value
        half = tasks.metric(key).half_width(value, record["items"], record["half_widths"].get(key))
        record["half_widths"] |= {} if half is None else {key: half}
    return Result(
        table=FOREIGN.rstrip("/"),
        dataset=data.name,
        method=f"{FOREIGN}{name}" + f" {UNTRAINED}" * bool(weights),
        seed=seed,
        profile=profile,
        recipe={"foreign": recipe},
        **record,
        provenance=clock.read(data_fingerprint=items.fingerprint(data), data_note=data.note),
    )


def redrawn(module: nn.Module, seed: int) -> nn.Module:
    """A copy whose layers have drawn their weights anew, each by its own ``reset_parameters``."""
    fresh = copy.deepcopy(module)
    with fixed(seed):
        for name, layer in fresh.named_modules():
            reset = getattr(layer, "reset_parameters", None) or getattr(layer, "_reset_parameters", None)
            if reset is not None:
                reset()
            elif own := [key for key, _ in layer.named_parameters(prefix=name, recurse=False)]:
                raise reject("untrained", None, f"the network untrained, as nothing here draws {', '.join(own)} anew")
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
        raise NotApplicableError(f"{settings.arch} is not scored: accepted is {wanted} ({problem})")
