"""Networks that were trained elsewhere on our tasks, each beside the same architecture untrained."""

from __future__ import annotations

import copy
from typing import NamedTuple

import torch
from torch import nn

from contrastlab import files, results, tasks
from contrastlab.data import Splits
from contrastlab.data.items import fingerprint
from contrastlab.data.modalities import modality
from contrastlab.encoders import Encoder
from contrastlab.errors import NotApplicableError, reject
from contrastlab.results import FOREIGN, UNTRAINED, Result
from contrastlab.seeds import derive, fixed
from contrastlab.settings import LinearProbe, Settings
from contrastlab.tasks.base import Setting
from contrastlab.tasks.representations import frozen
from contrastlab.views import Augmented

SETTINGS = Settings(linear=LinearProbe(solver="lbfgs", features="pooled"))
"""How a network is scored unless said otherwise: images of 224 pixels, one fit of its features."""


class Scored(NamedTuple):
    """Two results of one task: of a network as it was given, and of its floor."""

    encoder: Result
    untrained: Result

    def __repr__(self) -> str:
        lines = []
        for name in self.encoder.metrics:
            metric = tasks.metric(name)
            texts = []
            for each in self:
                half = metric.half_width(each.metrics[name], each.items, each.half_widths.get(name))
                texts.append(f"{each.metrics[name]:.2f}" + ("" if half is None else f" (± {half:.2f})"))
            lines.append(f"{metric.label}: {texts[0]} {metric.unit}, untrained {texts[1]}")
        return "\n".join(lines)


def score(
    module: nn.Module, task: str, data: Splits, *, untrained: nn.Module | None = None, name: str = "",
    settings: Settings | None = None, profile: str = "foreign", seed: int = 0, device: torch.device | str = "cpu",
) -> Scored:  # fmt: skip
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
    if not isinstance(module, nn.Module):
        raise reject("module", type(module).__name__, "a torch.nn.Module")
    if not isinstance(data, Splits):
        raise reject("data", data, "what contrastlab.data.load gives")
    settings = settings or SETTINGS.override(arch=f"{type(module).__module__}.{type(module).__qualname__}")
    given = (name or settings.arch, settings, profile, seed, device)
    floor, weights = untrained, UNTRAINED
    if floor is None:  # the seed says which
        floor = redrawn(module, seed)
    else:
        weights = f"{UNTRAINED} {files.fingerprint(floor.state_dict(), {})}"
    return Scored(one(module, task, data, *given), one(floor, task, data, *given, weights=weights))


def one(
    module: nn.Module, task: str, data: Splits, name: str, settings: Settings, profile: str, seed: int,
    device: torch.device | str, *, weights: str = "",
) -> Result:  # fmt: skip
    """One of the two results of :func:`score`, whose arguments these are; ``weights`` says of a floor what it is."""
    clock, asked = results.Clock(device), tasks.get(task, settings)
    asked.check(data)
    network = copy.deepcopy(module)
    known = weights or files.fingerprint(network.state_dict(), {})
    own = {} if isinstance(module, Encoder) else {"network": results.digest({"text": repr(module)})}
    encoder = network if isinstance(network, Encoder) else Encoder(network, 0, "none", 0, data.test.channels)
    setting = Setting(
        Augmented(1), modality(data.train).augmentation(settings), data, derive(seed, "probe") % 2**31, device
    )
    _try(encoder.to(device), settings, data.test.channels)
    measured = asked.score(nn.ModuleList([encoder]), setting)
    return Result(
        table=FOREIGN.rstrip("/"), dataset=data.name, method=f"{FOREIGN}{name}" + f" {UNTRAINED}" * bool(weights),
        seed=seed, profile=profile, recipe={"foreign": {**own, "weights": known}},
        provenance=clock.read(data_fingerprint=fingerprint(data), data_note=data.note),
        **asked.record(measured, setting, settings),
    )  # fmt: skip


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


def _try(encoder: Encoder, settings: Settings, channels: int) -> None:
    """Refuse a network that does not take the views, or gives anything but features or a map, by name."""
    size = settings.image_size
    views = torch.zeros(2, channels, size, size, device=next(encoder.parameters(), torch.zeros(())).device)
    try:
        with frozen(encoder):
            out = encoder.backbone(views)
        problem = "" if isinstance(out, torch.Tensor) and out.dim() in (2, 4) else f"it gives {_form(out)}"
    except (RuntimeError, ValueError, AssertionError, TypeError, IndexError) as error:
        problem = (str(error) or type(error).__name__).splitlines()[0]
    if problem:
        wanted = f"a network from {list(views.shape)} to features [B, F] or a map [B, F, h, w]"
        raise NotApplicableError(f"{settings.arch} is not scored: accepted is {wanted} ({problem})")


def _form(out: object) -> str:
    return str(list(out.shape)) if isinstance(out, torch.Tensor) else type(out).__name__
