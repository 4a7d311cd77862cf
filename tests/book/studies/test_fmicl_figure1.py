"""Made pairs against their densities, the line through averages, and what a flow says of a known law."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from contrastbook.studies import fmicl_figure1 as study


def uniform(count: int, dim: int, seed: int) -> Tensor:
    return F.normalize(torch.randn(count, dim, generator=torch.Generator().manual_seed(seed)), dim=1)


@pytest.mark.parametrize("kind", ["kernel", "two widths", "clusters"])
def test_the_density_of_made_pairs_is_that_of_the_draws(kind: study.Kind) -> None:
    # E over the pairs of 1/p is 1; p varies over orders of magnitude, so the tolerance is that of a heavy tail
    (x, y), log_p = study.control(kind, 20_000, 5, 0)
    torch.testing.assert_close(torch.stack([x, y]).norm(dim=2), torch.ones(2, len(x)))
    again, same = study.control(kind, 20_000, 5, 0)
    assert torch.equal(again[1], y)
    assert torch.equal(same, log_p)
    mean = float((-log_p).exp().mean())
    assert mean == pytest.approx(1, abs=0.1) if kind == "kernel" else mean < 1.1


def test_only_the_kernel_is_a_line_of_the_known_slope() -> None:
    made = {kind: study.control(kind, 4000, 8, 2) for kind in ("kernel", "two widths", "clusters")}
    found = {kind: study.straight(study.averages(*both)) for kind, both in made.items()}
    assert found["kernel"][0] == pytest.approx(-3, abs=0.01)  # −κ/2
    assert found["kernel"][2] > 0.9999
    assert found["two widths"][2] < 0.9
    kernel, clusters = (study.judged(*made[kind]) for kind in ("kernel", "clusters"))
    assert kernel["σ² of slope"] == pytest.approx(1 / 6, rel=0.01)
    assert kernel["explained by distance"] > 0.9999 > 0.9 > clusters["explained by distance"]


def test_averages_are_those_of_a_loop_and_uniform_features_have_none() -> None:
    pairs, log_p = (uniform(500, 4, 0), uniform(500, 4, 1)), torch.arange(500.0)
    found = study.averages(pairs, log_p, bins=3, least=100)
    distance = (pairs[0] - pairs[1]).square().sum(1)
    low, high = distance.quantile(0.005), distance.quantile(0.995)
    for number, row in enumerate(study.averages(pairs, log_p, bins=3, least=0).itertuples()):
        edges = low + (high - low) * torch.tensor([number, number + 1]) / 3
        inside = log_p[(distance > edges[0]) & (distance <= edges[1])]
        assert row.pairs == pytest.approx(len(inside), abs=1)
        assert row._2 == pytest.approx(float(inside.mean()), rel=0.02)
        assert row.low == pytest.approx(float(inside.quantile(0.25)), rel=0.03)
    assert (found["pairs"] >= 100).all()
    pairs = uniform(20_000, 6, 0), uniform(20_000, 6, 1)
    found = study.judged(pairs, 2 - (pairs[0] - pairs[1]).square().sum(1))
    assert found["mean length"] < 0.02
    assert found["dimensions"] == pytest.approx(6, abs=0.02)
    assert found["R² of averages"] == pytest.approx(1)
    line = torch.tensor([[1.0, 0]]).expand(2000, -1), uniform(2000, 2, 0)
    assert math.isnan(study.judged(line, (line[0] - line[1]).square().sum(1))["σ² of slope"])


@pytest.mark.nightly  # the notebook of Figure 1 asserts that the flow tells the controls apart
def test_a_flow_finds_the_density_of_a_kernel() -> None:
    made = [study.control("kernel", count, 5, seed) for seed, count in enumerate((8000, 2000, 2000))]
    parts = [pairs for pairs, _ in made]
    found = study.estimate(parts, epochs=30)
    exact = made[2][1]
    assert float((exact - found).mean()) == pytest.approx(0, abs=0.25)  # nats, the divergence of the flow from the law
    assert float(torch.corrcoef(torch.stack([exact, found]))[0, 1]) > 0.8
    assert bool(study.estimate(parts, epochs=1, space=True).isfinite().all())
