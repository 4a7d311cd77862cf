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
        """Note what the layer gives, in the order in which layers are called."""

        def note(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            outputs.append((row, layer, output.shape))

        layer.register_forward_hook(note)

    for name, child in _children(network):
        inner_layers = [layer for layer in child.modules() if isinstance(layer, _LAYERS)]
        for number, inner_layer in enumerate(inner_layers):
            is_behind_another = number > 0
            row = name.replace("conv", "pool") if is_behind_another else name
            watch(row, inner_layer)
    with torch.no_grad():
        network.eval()(x)
    side = x.shape[-1]
    sizes: dict[str, list[float]] = {}
    for name, layer, shape in outputs:
        window = _window(layer, side)
        is_map = len(shape) == 4
        side = shape[2] if is_map else 1
        channels = shape[1]
        sizes[name] = [float(value) for value in (side, channels, *window)]
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
    values: list[Any] = []
    for name in ("kernel_size", "stride", "padding"):
        value = getattr(layer, name, None)
        if isinstance(value, tuple):
            value = value[0]
        values.append(value)
    return tuple(values)


def beside_published(paper: str, table: int | str, layers: pd.DataFrame) -> pd.DataFrame:
    """The printed rows and those of :func:`rows`, ``printed`` and ``code`` under each column, a dash where none is."""
    published = papers.published(paper, table)
    printed = published.pivot_table(index="row", columns="column", values="value", sort=False)
    both: dict[tuple[str, str], pd.Series[float]] = {}
    for column in COLUMNS:
        if column in printed:
            both[column, "printed"] = printed[column]
            both[column, "code"] = layers[column]
    every_row = list(dict.fromkeys((*printed.index, *layers.index)))
    frame = pd.DataFrame(both).reindex(every_row)
    whole_numbers = frame.astype("Int64").astype(object)
    return whole_numbers.where(frame.notna(), "–")
