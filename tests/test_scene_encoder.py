"""The encoder of cmc Table 12 against the printed table."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from contrastbook.figures import architecture
from contrastlab import encoders, papers
from contrastlab.views import Channels

PRINTED = papers.published("cmc", 12).pivot_table(index="row", columns="column", values="value", sort=False)


@pytest.mark.parametrize(("view", "channels"), [("L", 1), ("ab", 2), ("depth", 1), ("normal", 3), ("label", 1)])
def test_every_row_is_printed_so(view: str, channels: int) -> None:
    (encoder,) = encoders.build_for(Channels((view,)), 8, arch="scene", dim=256)
    assert encoder.in_channels == channels
    rows = architecture.rows(encoder, torch.zeros(2, channels, 128, 128))
    assert list(rows.index) == [name for name in PRINTED.index if name != "data"]
    for name in rows.index:
        for column in ("X (spatial)", "C (channels)", "K (kernel)", "S (stride)", "P (padding)"):
            assert rows.loc[name, column] == PRINTED.loc[name, column], (name, column)
    assert PRINTED.loc["data", "X (spatial)"] == 128


def test_other_sizes_and_widths() -> None:
    for size in (64, 96, 33):
        half = encoders.build("scene", in_channels=1, width=0.5, dim=128).eval()
        assert half(torch.zeros(2, 1, size, size)).shape == (2, 128)
        assert half.stages(torch.zeros(1, 1, size, size))["conv4"].shape[1] == half.dim
    whole = encoders.build("scene", in_channels=3, dim=256).eval()
    view = torch.randn(2, 3, 128, 128)
    stages = whole.stages(view)
    assert torch.equal(stages["conv5"], whole.features(view, pooled=False))
    embedded, seen = whole.embed_with_map(view, "conv4")
    assert torch.equal(embedded, whole(view))
    assert torch.equal(seen, stages["conv4"])
    torch.testing.assert_close(embedded.norm(dim=1), torch.ones(2))


def test_it_is_read_back_from_its_file(tmp_path) -> None:
    build = {"arch": "scene", "stem": "imagenet", "head": "linear", "dim": 32, "width": 0.125}
    made = encoders.build_for(Channels(("L", "normal")), 8, **build).eval()  # type: ignore[arg-type]
    encoders.save(made, tmp_path, ("L", "normal"), build)
    read = encoders.load(tmp_path)
    views = (torch.randn(2, 1, 64, 64), torch.randn(2, 3, 64, 64))
    for a, b, view in zip(made, read, views, strict=True):
        assert torch.equal(a(view), b(view))


def test_rows_of_any_module() -> None:
    net = nn.Sequential()
    net.add_module("one", nn.Sequential(nn.Conv2d(2, 5, 3, 2, 1), nn.ReLU()))
    net.add_module("pool", nn.MaxPool2d(3, 1))
    net.add_module("fc", nn.Sequential(nn.Flatten(), nn.Linear(20, 7)))
    rows = architecture.rows(net, torch.zeros(1, 2, 8, 8))
    assert rows.loc["one"].tolist() == [4, 5, 3, 2, 1]
    assert rows.loc["pool"].tolist() == [2, 5, 3, 1, 0]
    assert rows.loc["fc"].tolist() == [1, 7, 2, 1, 0]
