"""Made pairs against their densities, the line through averages, and what a flow says of a known law."""

import math
from typing import get_args

import numpy as np
import pytest
import torch
from scipy.special import betainc
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

from contrastbook.studies import fmicl_figure1 as study


def uniform(count: int, dim: int, seed: int) -> Tensor:
    return F.normalize(torch.randn(count, dim, generator=torch.Generator().manual_seed(seed)), dim=1)


def squared_distance(pairs: study.Pairs) -> Tensor:
    first, second = pairs
    return (first - second).square().sum(1)


def correlation(first: Tensor, second: Tensor) -> float:
    return float(torch.corrcoef(torch.stack([first, second]))[0, 1])


@pytest.mark.parametrize("kind", ["kernel", "two widths", "clusters"])
def test_the_density_of_made_pairs_is_that_of_the_draws(kind: study.Kind) -> None:
    """The mean of 1/p over the pairs is 1, and less where draws miss the places of the smallest p."""
    (x, y), log_p = study.control(kind, 20_000, 5, 0)
    assert_close(x.norm(dim=1), torch.ones(20_000))
    assert_close(y.norm(dim=1), torch.ones(20_000))
    (_, same_y), same_log_p = study.control(kind, 20_000, 5, 0)
    assert torch.equal(same_y, y)
    assert torch.equal(same_log_p, log_p)
    mean = float((-log_p).exp().mean())
    # p varies over orders of magnitude, so the tolerance is that of a heavy tail
    assert mean < 1.1
    if kind == "kernel":
        assert mean > 0.9


def cap(cosine: float, dim: int) -> float:
    """The share of the unit sphere whose points have at least this cosine, above 0, to a given one."""
    return 0.5 * float(betainc((dim - 1) / 2, 0.5, 1 - cosine**2))


@pytest.mark.parametrize("kind", ["kernel", "two widths", "clusters"])
def test_the_density_of_made_pairs_where_there_are_many(kind: study.Kind) -> None:
    """The mean of 1/p over the pairs of a region is its size: x near one of the five axes, and y near x."""
    count = 100_000
    (x, y), log_p = study.control(kind, count, 5, 0)
    is_near_axis = (x > 0.72).any(1)  # caps that do not meet
    is_near_x = (x * y).sum(1) > 0.9
    inverse = (-log_p).exp() * is_near_axis * is_near_x
    error = float(inverse.std()) / math.sqrt(count)
    size = 5 * cap(0.72, 5) * cap(0.9, 5)
    assert error < 0.03 * size
    assert float(inverse.mean()) == pytest.approx(size, abs=4 * error)


def test_only_the_kernel_is_a_line_of_the_known_slope() -> None:
    made = {kind: study.control(kind, 4000, 8, 2) for kind in get_args(study.Kind)}
    slope, _, r2 = study.straight(study.averages(*made["kernel"]))
    assert slope == pytest.approx(-3, abs=0.01)  # −κ/2
    assert r2 > 0.9999
    _, _, r2 = study.straight(study.averages(*made["two widths"]))
    assert r2 < 0.9
    kernel = study.judged(*made["kernel"])
    assert kernel["σ² of slope"] == pytest.approx(1 / 6, rel=0.01)
    assert kernel["explained by distance"] > 0.9999
    pairs, log_p = made["clusters"]
    distance = squared_distance(pairs)
    slope, offset = np.polyfit(distance, log_p, 1)
    rest = log_p - offset - slope * distance
    explained = study.judged(pairs, log_p)["explained by distance"]
    assert explained < 0.9
    assert explained == pytest.approx(1 - float(rest.var() / log_p.var()), abs=1e-4)


def test_averages_are_those_of_a_loop_and_uniform_features_have_none() -> None:
    """Averages by intervals of distance; and of uniform features a mean length of 0 and all dimensions."""
    pairs = (uniform(500, 4, 0), uniform(500, 4, 1))
    log_p = torch.arange(500.0)
    distance = squared_distance(pairs)
    low = distance.quantile(0.005)
    high = distance.quantile(0.995)
    width = (high - low) / 3
    averages = study.averages(pairs, log_p, bins=3, least=0)
    assert len(averages) == 3
    for number, row in averages.iterrows():
        start = low + number * width
        inside = log_p[(distance > start) & (distance <= start + width)]
        assert row["pairs"] == pytest.approx(len(inside), abs=1)
        assert row["log p"] == pytest.approx(float(inside.mean()), rel=0.02)
        assert row["low"] == pytest.approx(float(inside.quantile(0.25)), rel=0.03)
        assert row["high"] == pytest.approx(float(inside.quantile(0.75)), rel=0.03)
    sizes = averages["pairs"]
    fewest = int(sizes.min())
    assert len(study.averages(pairs, log_p, bins=3, least=fewest)) == 3
    without_fewest = study.averages(pairs, log_p, bins=3, least=fewest + 1)
    assert without_fewest["pairs"].tolist() == sizes[sizes > fewest].tolist()

    pairs = (uniform(20_000, 6, 0), uniform(20_000, 6, 1))
    falling = study.judged(pairs, 2 - squared_distance(pairs))
    assert falling["mean length"] < 0.02
    assert falling["dimensions"] == pytest.approx(6, abs=0.02)
    assert falling["R² of averages"] == pytest.approx(1)
    one_point = torch.tensor([[1.0, 0]]).expand(2000, -1)
    pairs = (one_point, uniform(2000, 2, 0))
    rising = study.judged(pairs, squared_distance(pairs))
    assert math.isnan(rising["σ² of slope"])


@pytest.mark.nightly  # the notebook of Figure 1 asserts that the flow tells the controls apart
def test_a_flow_finds_the_density_of_a_kernel() -> None:
    fitted, _ = study.control("kernel", 8000, 5, 0)
    stopping, _ = study.control("kernel", 2000, 5, 1)
    scored, exact = study.control("kernel", 2000, 5, 2)
    parts = [fitted, stopping, scored]
    found = study.estimate(parts, epochs=30)
    divergence = float((exact - found).mean())  # of the flow from the law, nats
    assert divergence == pytest.approx(0, abs=0.25)
    assert correlation(exact, found) > 0.8
    in_space = study.estimate(parts, epochs=1, space=True)
    assert bool(in_space.isfinite().all())
