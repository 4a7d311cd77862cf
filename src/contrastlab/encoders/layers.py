"""The outputs of an encoder layer by layer, as probes of single layers read them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contrastlab.encoders.encoder import Encoder
from contrastlab.errors import NotApplicableError, reject


def named_layers(encoder: Encoder) -> Mapping[str, nn.Module]:
    """The layers of an encoder that can be probed, in order.

    A half AlexNet has conv1 … conv5 (each with its pooling), fc6 and fc7; a ResNet conv1 (its stem with the pooling)
    and its four stages conv2 … conv5; a plain sequence of blocks conv1, conv2, ….
    A backbone of another make, such as a transformer, is refused.
    """
    backbone = encoder.backbone
    stages = {name: module for name, module in backbone.named_children() if re.fullmatch(r"(conv|layer)\d", name)}
    if any(name.startswith("layer") for name in stages):
        layers = {"conv1": backbone.get_submodule("maxpool")}
        layers |= {f"conv{int(name[5:]) + 1}": module for name, module in stages.items() if name.startswith("layer")}
    elif stages:
        layers = stages
    elif not isinstance(backbone, nn.Sequential):
        raise NotApplicableError(f"{type(backbone).__name__} names no layers that could be probed")
    else:
        layers = {f"conv{k}": module for k, module in enumerate(backbone.children(), 1)}
    return layers | {name: module for name, module in encoder.head.named_children() if name in ("fc6", "fc7")}


def layer_outputs(encoder: Encoder, x: Tensor, names: Sequence[str]) -> dict[str, Tensor]:
    """What some of the :func:`named_layers` give: maps ``[B, C, h, w]`` or, of fully connected layers, ``[B, C]``."""
    layers, kept = named_layers(encoder), {}
    for name in names:
        if name not in layers:
            raise reject("layers", name, f"those of the encoder: {', '.join(layers)}")

    def keep(name: str) -> object:
        def hook(module: nn.Module, inputs: object, output: Tensor) -> None:
            kept[name] = output.clone()  # a ReLU behind may work in place

        return layers[name].register_forward_hook(hook)

    handles = [keep(name) for name in names]
    try:
        encoder(x)
    finally:
        for handle in handles:
            handle.remove()  # type: ignore[attr-defined]
    return {name: kept[name] for name in names}


def side_within(channels: int, side: int, limit: int) -> int:
    """The largest side of a map of ``channels`` with at most ``limit`` values, not more than ``side``, and at least 1.

    With 9,600 values it is 10, 6, 5, 5, 6 for the five layers of the two halves of an AlexNet, the sizes of CMC's code.
    """
    return max(1, min(side, math.isqrt(limit // channels) if channels <= limit else 1))


def pooled_layers(
    encoders: nn.ModuleList, views: tuple[Tensor, ...], names: Sequence[str], limit: int = 9600
) -> dict[str, Tensor]:
    """Features ``[B, F]`` of some layers, those of all streams side by side.

    A map is max-pooled to the largest square with at most ``limit`` values over all streams.
    """
    if len(views) != len(encoders):
        raise reject("views", f"{len(views)} tensors", f"{len(encoders)}, one per encoder")
    each = [layer_outputs(e, v, names) for e, v in zip(encoders, views, strict=True)]  # type: ignore[arg-type]
    out = {}
    for name in names:
        maps = [outputs[name].float() for outputs in each]
        if maps[0].dim() == 4:
            side = side_within(sum(m.shape[1] for m in maps), min(maps[0].shape[2:]), limit)
            maps = [F.adaptive_max_pool2d(m, side).flatten(1) for m in maps]
        out[name] = torch.cat(maps, 1)
    return out
