"""A network as papers print one: a row for each layer, read from the module itself."""

from __future__ import annotations

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
    parts = (module.backbone, module.head) if isinstance(module, Encoder) else (module,)
    named = [(name, child) for part in parts for name, child in part.named_children()]
    sizes: dict[str, list[float]] = {}
    handles, side = [], [float(x.shape[-1])]
    for name, child in named:
        layers = [layer for layer in child.modules() if isinstance(layer, _LAYERS)]
        for k, layer in enumerate(layers):
            hook = _recorder(name.replace("conv", "pool") if k else name, sizes, side)
            handles.append(layer.register_forward_hook(hook))
    training = module.training
    try:
        with torch.no_grad():
            module.eval()(x)
    finally:
        module.train(training)
        for handle in handles:
            handle.remove()
    return pd.DataFrame.from_dict(sizes, orient="index", columns=list(COLUMNS))


def _recorder(name: str, sizes: dict[str, list[float]], side: list[float]) -> Any:
    def record(layer: nn.Module, _: Any, out: Tensor) -> None:
        how = [side[0], 1.0, 0.0]
        if not isinstance(layer, nn.Linear):
            values = (getattr(layer, key) for key in ("kernel_size", "stride", "padding"))
            how = [float(value[0] if isinstance(value, tuple) else value) for value in values]
        side[0] = float(out.shape[2]) if out.dim() == 4 else 1.0
        sizes[name] = [side[0], float(out.shape[1]), *how]

    return record


def beside_published(paper: str, table: int | str, made: pd.DataFrame) -> pd.DataFrame:
    """The printed rows and those of :func:`rows`, ``printed`` and ``code`` under each column, a dash where none is."""
    printed = papers.published(paper, table).pivot_table(index="row", columns="column", values="value", sort=False)
    columns = [column for column in COLUMNS if column in printed]
    which = {"printed": printed, "code": made}
    both = {(column, name): frame[column] for column in columns for name, frame in which.items()}
    frame = pd.DataFrame(both).reindex(list(dict.fromkeys((*printed.index, *made.index))))
    return frame.astype("Int64").astype(object).where(frame.notna(), "–")
