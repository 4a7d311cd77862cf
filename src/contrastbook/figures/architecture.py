"""A network as papers print one: a row for each layer, read from the module itself."""

from __future__ import annotations

import copy

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
    parts = (network.backbone, network.head) if isinstance(network, Encoder) else (network,)
    named = [(name, child) for part in parts for name, child in part.named_children()]
    seen: list[tuple[str, nn.Module, torch.Size]] = []
    for name, child in named:
        for k, inner in enumerate(inner for inner in child.modules() if isinstance(inner, _LAYERS)):
            row = name.replace("conv", "pool") if k else name
            inner.register_forward_hook(lambda layer, _, out, row=row: seen.append((row, layer, out.shape)))
    with torch.no_grad():
        network.eval()(x)
    side, sizes = x.shape[-1], {}
    for name, layer, shape in seen:
        values = [getattr(layer, key, None) for key in ("kernel_size", "stride", "padding")]
        how = [side, 1, 0] if isinstance(layer, nn.Linear) else [v[0] if isinstance(v, tuple) else v for v in values]
        side = shape[2] if len(shape) == 4 else 1
        sizes[name] = [float(value) for value in (side, shape[1], *how)]
    return pd.DataFrame.from_dict(sizes, orient="index", columns=list(COLUMNS))


def beside_published(paper: str, table: int | str, made: pd.DataFrame) -> pd.DataFrame:
    """The printed rows and those of :func:`rows`, ``printed`` and ``code`` under each column, a dash where none is."""
    printed = papers.published(paper, table).pivot_table(index="row", columns="column", values="value", sort=False)
    columns = [column for column in COLUMNS if column in printed]
    which = {"printed": printed, "code": made}
    both = {(column, name): frame[column] for column in columns for name, frame in which.items()}
    frame = pd.DataFrame(both).reindex(list(dict.fromkeys((*printed.index, *made.index))))
    return frame.astype("Int64").astype(object).where(frame.notna(), "–")
