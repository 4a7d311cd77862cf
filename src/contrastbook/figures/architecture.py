"""A network as papers print one: a row for each layer, read from the module itself."""

from __future__ import annotations

import copy
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from contrastlab import papers
from contrastlab.encoders import Encoder

COLUMNS = ("X (spatial)", "C (channels)", "K (kernel)", "S (stride)", "P (padding)")
_LAYERS = (nn.Conv2d, nn.MaxPool2d, nn.AvgPool2d, nn.Linear)


def rows(module: nn.Module, x: Tensor) -> pd.DataFrame:
    """Size and channels of what each layer gives, and kernel, stride and padding of its convolution or pooling.

    A layer has the name of the network's child that it is in; an encoder's children are those of its backbone and its
    head. A pooling within a block, say ``conv1``, is ``pool1``; a linear map is a convolution as large as the map that
    it reads. ``x``: views ``[B, C, H, W]`` to send through. Returns the columns :data:`COLUMNS`, a row for each layer.
    """
    network = copy.deepcopy(module)  # which is left alone
    outputs: list[tuple[str, nn.Module, torch.Size]] = []

    def watch(row: str, layer: nn.Module) -> None:
        layer.register_forward_hook(lambda layer, inputs, output: outputs.append((row, layer, output.shape)))

    for name, child in _children(network):
        inner = [each for each in child.modules() if isinstance(each, _LAYERS)]
        for k, each in enumerate(inner):
            row = name
            if k:  # behind a convolution of that name its pooling
                row = name.replace("conv", "pool")
            watch(row, each)
    with torch.no_grad():
        network.eval()(x)
    side = x.shape[-1]
    sizes = {}
    for name, layer, shape in outputs:
        window = _window(layer, side)
        side = shape[2] if len(shape) == 4 else 1
        sizes[name] = [float(value) for value in (side, shape[1], *window)]
    return pd.DataFrame.from_dict(sizes, orient="index", columns=list(COLUMNS))


def _children(network: nn.Module) -> list[tuple[str, nn.Module]]:
    """The children of a network by name; an encoder's are those of its backbone and its head."""
    if isinstance(network, Encoder):
        return [*network.backbone.named_children(), *network.head.named_children()]
    return list(network.named_children())


def _window(layer: nn.Module, side: int) -> tuple[Any, ...]:
    """Kernel, stride and padding; a linear map reads all of a map with sides of ``side``."""
    if isinstance(layer, nn.Linear):
        return side, 1, 0
    values = []
    for name in ("kernel_size", "stride", "padding"):
        value = getattr(layer, name, None)
        if isinstance(value, tuple):
            value = value[0]
        values.append(value)
    return tuple(values)


def beside_published(paper: str, table: int | str, layers: pd.DataFrame) -> pd.DataFrame:
    """The printed rows and those of :func:`rows`, ``printed`` and ``code`` under each column, a dash where none is."""
    printed = papers.published(paper, table).pivot_table(index="row", columns="column", values="value", sort=False)
    both = {}
    for column in COLUMNS:
        if column in printed:
            both[column, "printed"] = printed[column]
            both[column, "code"] = layers[column]
    every_row = list(dict.fromkeys((*printed.index, *layers.index)))
    frame = pd.DataFrame(both).reindex(every_row)
    return frame.astype("Int64").astype(object).where(frame.notna(), "–")
