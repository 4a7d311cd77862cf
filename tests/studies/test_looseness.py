"""Exact values against sampling and brute force; batched training against a plain one; what a reading reports."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from scipy.special import ndtr
from scipy.stats import norm
from sklearn.isotonic import IsotonicRegression
from torch import Tensor, nn

from contrastlab.errors import ArgumentError, UnknownNameError
from contrastlab.studies import Study, looseness
from contrastlab.studies.looseness import PATIENT, THEOREM, WRITTEN, Profile, Reading
from contrastlab.theory.toys import JointGaussian

MI = looseness.information()


# --- exact values


def test_all_of_y_as_negatives_gives_the_mutual_information() -> None:
    gaussian = JointGaussian(np.array(looseness.COVARIANCE), 1)
    assert pytest.approx(gaussian.mutual_information, abs=1e-12) == MI
    assert looseness.population(100).value == pytest.approx(MI, abs=1e-6)
    assert looseness.largest(100).value == pytest.approx(MI, abs=1e-12)


def test_the_optimal_critic_has_the_best_scale_only_without_hard_negatives() -> None:
    step = 1e-4
    slope = (looseness.population(100, scale=1 + step).value - looseness.population(100, scale=1 - step).value) / step
    assert abs(slope) < 1e-6
    assert looseness.population(100).best_scale == pytest.approx(1, abs=1e-6)
    assert 0 < looseness.population(90).best_scale < 0.5


@pytest.mark.parametrize("rho", [0.2, -0.2, 0.6])
def test_harder_negatives_lower_every_value(rho: float) -> None:
    percents = [100, 95, 90, 75, 50, 25, 10, 5, 1]
    values = [looseness.population(p, rho=rho) for p in percents]
    critics = [looseness.largest(p, rho=rho) for p in percents]
    most = [critic.value for critic in critics]
    assert all(np.diff([v.value for v in values]) < 0)
    assert all(np.diff(most) < 0)
    for value, top in zip(values, most, strict=True):
        assert max(value.value, 0) <= value.best + 1e-12 <= top + 1e-9 <= looseness.information(rho) + 2e-9
    # negatives from everywhere are easier
    assert all(critic.value <= critic.infonce + 1e-12 <= looseness.information(rho) + 2e-12 for critic in critics)


def test_the_sign_of_the_correlation_does_not_matter() -> None:
    ours, theirs = looseness.population(75, scale=0.7, rho=0.4), looseness.population(75, scale=0.7, rho=-0.4)
    assert ours.value == pytest.approx(theirs.value, abs=1e-12)


@pytest.mark.parametrize("percent", [100.0, 90.0, 50.0, 5.0])
@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_quadrature_against_draws(percent: float, scale: float) -> None:
    value, error = looseness.simulated(percent, scale=scale, count=10_000, seed=1)
    # K = 100 rather than ∞ moves the value by about var(exp f) / 2K
    assert abs(value - looseness.population(percent, scale=scale).value) < 4 * error + 5e-4


def test_share_of_x_that_meets_the_hypothesis_against_ranks() -> None:
    generator = np.random.default_rng(0)
    x, y = generator.standard_normal((4000, 1)), norm.ppf((np.arange(4001) + 0.5) / 4001)
    log_c = 0.0  # the mean of exp f* over y is 1
    f = MI - 0.5 * (y - 0.2 * x) ** 2 / (1 - 0.04) + 0.5 * y**2
    threshold = np.quantile(f, 0.5, axis=1)
    share = (threshold > log_c).mean()
    assert abs(share - looseness.population(50).share) < 4 * math.sqrt(share * (1 - share) / len(x))
    assert looseness.population(90).share == 0
    assert looseness.population(5).share > 0.999


def test_scale_zero_is_a_constant_critic() -> None:
    assert looseness.population(30, scale=0).value == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("percent", [95.0, 75.0, 50.0])
def test_the_supremum_against_monotone_regression(percent: float) -> None:
    # the majorant's slope is the decreasing fit to the positives' mass over cells of equal rank, the last cell
    # holding everybody beyond p; sklearn's fit knows nothing of the closed forms
    cells, rho = 2000, 0.2
    x, weight = np.polynomial.hermite_e.hermegauss(50)
    total = infonce = 0.0
    for at, w in zip(x, weight / weight.sum(), strict=True):
        low, high = np.zeros(cells), np.full(cells, abs(at / rho) + 40)
        rank = np.arange(1, cells + 1) / cells * percent / 100
        for _ in range(50):
            half = 0.5 * (low + high)
            enough = ndtr(at / rho + half) - ndtr(at / rho - half) >= rank
            low, high = np.where(enough, low, half), np.where(enough, half, high)
        spread = math.sqrt(1 - rho**2)
        reached = ndtr((at / rho + high - rho * at) / spread) - ndtr((at / rho - high - rho * at) / spread)
        mass = np.diff(reached, prepend=0)
        mass[-1] += 1 - reached[-1]
        fit = IsotonicRegression(increasing=False).fit_transform(np.arange(cells), mass)
        each = float(fit @ np.log(np.maximum(fit, 1e-300) * cells))
        total += w * each
        infonce += w * (each - math.log(percent / 100 + (1 - percent / 100) * fit[-1] * cells))
    found = looseness.largest(percent)
    assert found.value == pytest.approx(total, rel=0.01, abs=2e-6)
    assert found.infonce == pytest.approx(infonce, rel=0.01, abs=2e-6)


def test_the_supremum_is_what_a_monotone_critic_attains_and_not_less() -> None:
    # at one x, many decreasing critics of the rank: none passes the sum for its x
    generator = np.random.default_rng(0)
    cells, part = 400, 0.75
    inside = round(cells * part)
    density = np.sort(generator.gamma(2.0, size=cells))[::-1]
    density /= density.sum()
    mass = density[:inside].copy()
    mass[-1] += density[inside:].sum()
    fit = IsotonicRegression(increasing=False).fit_transform(np.arange(inside), mass)
    most = float(fit @ np.log(fit * inside))
    for _ in range(500):
        critic = np.sort(generator.normal(scale=generator.uniform(0, 2), size=cells))[::-1]
        assert density @ critic - math.log(np.exp(critic[:inside]).mean()) <= most + 1e-12
    best = np.append(np.log(fit), np.full(cells - inside, np.log(fit[-1])))
    assert density @ best - math.log(np.exp(best[:inside]).mean()) == pytest.approx(most, abs=1e-12)


@pytest.mark.parametrize("percent", [99.0, 90.0, 75.0, 50.0, 10.0, 5.0])
def test_information_between_independent_variables(percent: float) -> None:
    value, error = looseness.independent_simulated(percent, negatives=4000, height=12, count=40_000)
    closed = looseness.independent_value(percent)
    # finite H and K cost a little
    assert abs(value - closed) < 4 * error + 0.01 * closed
    shares = np.linspace(1e-4, 1 - percent / 100, 2000)
    assert closed == pytest.approx(np.max(shares * np.log(percent / 100 / shares)), abs=1e-4)


def test_without_hard_negatives_independent_variables_give_nothing() -> None:
    assert looseness.independent_value(100) == 0
    assert looseness.independent_simulated(100) == (0, 0)


def test_redrawing_the_data_moves_the_plug_in_estimate() -> None:
    estimates = looseness.plug_in_simulated(samples=1000)
    assert estimates.shape == (1000,)
    # the standard error of a standard deviation is sd/√(2n); the delta method leaves out terms of order 1/N
    assert abs(estimates.std() - looseness.plug_in_deviation()) < 4 * estimates.std() / math.sqrt(2000) + 1e-4


# --- training


def test_selection_is_exactly_the_highest_share() -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(6, 201, generator=generator)
    own = torch.arange(6)
    for percent in (5.0, 50.0, 90.0, 100.0):
        count = round(200 * percent / 100)
        draws = (torch.arange(count, dtype=torch.float64) / count + 1e-9).expand(6, -1)
        found = looseness.choose(scores.clone(), own, percent, draws)
        without = scores.clone().scatter_(1, own[:, None], -math.inf)
        expected = without.sort(1, descending=True).indices[:, :count]
        assert torch.equal(found.sort(1).values, expected.sort(1).values)


@pytest.fixture
def double() -> Iterator[None]:
    # no loss sees a constant added to all g(y): in float32 Adam turns the rounding of that gradient into whole steps
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def _plain(reading: Reading, percent: float, seed: int, chosen: list[Tensor], points: int, batch: int) -> list[Tensor]:
    # one model: torch modules, autograd throughout; the draws are given and checked to lie in the set
    def network(salt: int) -> nn.Sequential:
        layers: list[nn.Module] = []
        parameters = iter(looseness.Nets([seed], salt).parameters)
        for depth in range(looseness.LAYERS):
            layer = nn.Linear(1 if depth == 0 else looseness.WIDTH, looseness.WIDTH)
            layer.weight.data = next(parameters).detach()[0].T.clone()
            layer.bias.data = next(parameters).detach()[0, 0].clone()
            layers += [layer, nn.ReLU()]
        return nn.Sequential(*layers[:-1])

    net_x = network(1)
    net_y = net_x if reading.encoders == "shared" else network(2)
    x, y = looseness.sample(seed if reading.data == "redrawn" else 0, points)
    both = list(net_x.parameters()) + ([] if net_y is net_x else list(net_y.parameters()))
    optimizer = torch.optim.Adam(both, lr=reading.rate)

    def codes(net: nn.Module, inputs: Tensor) -> Tensor:
        out = net(inputs)
        return out if reading.output == "plane" else out / out.norm(dim=1, keepdim=True) / looseness.TEMPERATURE**0.5

    memory = codes(net_y, y).detach()
    count = round((points - 1) * percent / 100)
    order = looseness.Order(seed, points, chosen[0].shape[1]).epoch(batch)
    for (own, _), indices in zip(order, chosen, strict=True):
        anchors, fresh = codes(net_x, x[own]), codes(net_y, y)
        bank = memory if reading.bank == "memory" else fresh
        positives = fresh[own]
        scores = anchors @ bank.T
        middle = anchors if reading.nearest == "x" else positives
        far = (middle[:, None] - bank[None]).square().sum(2)
        ranking = (scores if reading.nearest == "critic" else -far).detach().clone()
        ranking[torch.arange(len(own)), own] = -math.inf
        threshold = ranking.sort(1, descending=True).values[:, count - 1 : count]
        assert not (indices == own[:, None]).any()
        assert (ranking.gather(1, indices) >= threshold - 1e-6 * (1 + threshold.abs())).all()
        below = scores.gather(1, indices)
        positive = (anchors * positives).sum(1)
        below = torch.cat([positive[:, None], below], 1) if reading.positive else below
        loss = -(positive - below.exp().mean(1).log()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        memory = memory.index_put((own,), positives.detach())
    return [part.detach() for part in both]


@pytest.mark.parametrize(
    "reading",
    [
        WRITTEN,
        THEOREM,
        Reading(nearest="x", encoders="shared"),
        Reading(output="sphere", positive=False),
        Reading(nearest="critic", bank="memory", data="redrawn"),
    ],
    ids=lambda reading: reading.name,
)
@pytest.mark.usefixtures("double")
def test_all_models_at_once_train_as_each_alone(reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    points, batch, k = 60, 24, 8
    drawn: list[Tensor] = []
    rounded = looseness.sample
    monkeypatch.setattr(looseness, "sample", lambda *arguments: tuple(part.double() for part in rounded(*arguments)))

    def choose(*arguments: Tensor) -> Tensor:
        drawn.append(original(*arguments))
        return drawn[-1]

    original = looseness.choose
    monkeypatch.setattr(looseness, "choose", choose)
    fitted = looseness.fit(reading, (100.0, 60.0), (3, 4), epochs=1, points=points, negatives=k, batch=batch)
    for model, (percent, seed) in enumerate(fitted.models):
        alone = _plain(reading, percent, seed, drawn[model :: len(fitted.models)], points, batch)
        nets = fitted.x.parameters + ([] if fitted.y is fitted.x else fitted.y.parameters)
        for ours, theirs in zip(nets, alone, strict=True):
            mine = ours.detach()[model]
            torch.testing.assert_close(mine.T if theirs.ndim == 2 else mine[0], theirs, rtol=0, atol=1e-8)


def test_a_seed_gives_the_same_numbers_alone_or_among_others() -> None:
    few = {"epochs": 1, "points": 300}
    among = looseness.train(PATIENT, (100.0, 75.0), (0, 1), **few)
    again = looseness.train(PATIENT, (100.0, 75.0), (0, 1), **few)
    assert among == again
    alone = looseness.train(PATIENT, (75.0,), (1,), **few)[0]
    twin = among[3]
    assert (twin["percent"], twin["seed"]) == (75.0, 1)
    for name in ("train", "held_out", "population", "infonce", "last_epoch", "spread"):
        assert alone[name] == pytest.approx(twin[name], rel=1e-3, abs=1e-5)


def test_expectation_of_the_optimal_critic_on_the_grid_is_the_closed_form() -> None:
    x, y = looseness._GRID_X[:, None] / math.sqrt(2), looseness._GRID_Y[:, None] / math.sqrt(2)
    # f* = (x, y)-products of rank 3: ρxy/(1−ρ²) − ½ρ²x²/(1−ρ²) − ½ρ²y²/(1−ρ²)
    bend = 0.04 / 0.96
    left = torch.cat([x * 0.2 / 0.96, -0.5 * bend * x**2, torch.ones_like(x)], 1)
    right = torch.cat([y, torch.ones_like(y), -0.5 * bend * y**2], 1)
    for percent in (100.0, 90.0, 50.0, 10.0):
        found = looseness._expectation(left, right, percent, "critic")
        assert found == pytest.approx(looseness.population(percent).value, abs=2e-4)


def test_expectation_stays_finite_where_the_negatives_lie_far_below() -> None:
    x, y = looseness._GRID_X[:, None] * 500, looseness._GRID_Y[:, None]
    for nearest in ("x", "critic"):
        assert math.isfinite(looseness._expectation(x, y, 25.0, nearest))


def test_infonce_of_a_sample_leaves_the_positive_out_even_where_it_dwarfs_the_others() -> None:
    scores = torch.zeros(3, 3, dtype=torch.float64)
    scores[0, 1] = 1.0
    expected = -(math.log((math.e + 1) / 2) + 0 + 0) / 3
    assert looseness._against_others(scores) == pytest.approx(expected, abs=1e-12)
    assert looseness._against_others(scores + 1e4 * torch.eye(3)) == pytest.approx(1e4 + expected, abs=1e-8)


def test_what_the_written_rule_reports_is_no_lower_bound() -> None:
    row = looseness.train(WRITTEN, (90.0,), (0,), epochs=6)[0]
    assert row["status"] == "trained"
    assert row["held_out"] > 2 * MI


def test_a_model_that_diverges_is_reported_without_numbers() -> None:
    rows = looseness.train(Reading(nearest="critic", rate=1e12), (100.0, 90.0), (0,), epochs=1, points=300)
    for row in rows:
        assert row["status"] == "diverged"
        assert row["train"] is None
        assert "epoch 1" in str(row["reason"])
    json.dumps(rows, allow_nan=False)


def test_a_constant_critic_is_reported_as_collapsed() -> None:
    row = looseness.train(THEOREM, (25.0,), (0,), epochs=15, points=400)[0]
    assert row["status"] == "collapsed"
    assert abs(row["train"]) < 1e-3


def test_stored_rows_are_read_back(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = {"tiny": Profile((WRITTEN, PATIENT), percents=(100.0,), seeds=(0,), epochs=1, points=200)}
    monkeypatch.setattr(looseness, "PROFILES", tiny)
    lines: list[str] = []
    assert looseness.stored("tiny", [tmp_path]) == {}
    first = looseness.study("tiny", tmp_path, log=lines.append)
    monkeypatch.setattr(looseness, "train", lambda *args, **kwargs: pytest.fail("trained again"))
    assert looseness.study("tiny", tmp_path / "elsewhere", [tmp_path]) == first
    assert looseness.stored("tiny", [tmp_path / "elsewhere", tmp_path]) == first
    assert len(lines) == len(first) == 2


def test_summary_counts_what_has_no_number() -> None:
    rows = [
        {"percent": 90.0, "status": "trained", "train": 1.0},
        {"percent": 90.0, "status": "diverged", "train": None},
    ]
    rows += [
        {"percent": 50.0, "status": "collapsed", "train": 0.5},
        {"percent": 50.0, "status": "trained", "train": 1.5},
    ]
    lines = looseness.summary(Study(study="x", profile="x", config={}, rows=rows, provenance={}))
    assert lines.index.tolist() == [90.0, 50.0]
    assert lines["mean"].tolist() == [1.0, 1.0]
    assert lines["n"].tolist() == [1, 2]
    assert lines["diverged"].tolist() == [1, 0]
    assert lines["collapsed"].tolist() == [0, 1]
    assert lines.loc[50.0, "sd"] == pytest.approx(0.5**0.5)
    with pytest.raises(UnknownNameError):
        looseness.summary(Study(study="x", profile="x", config={}, rows=rows, provenance={}), "held")


def test_profiles_differ_in_nothing_but_plain_data() -> None:
    for profile in looseness.PROFILES.values():
        names = [reading.name for reading in profile.readings]
        assert len(set(names)) == len(names)
        assert 100.0 in profile.percents
    with pytest.raises(UnknownNameError):
        looseness.study("papr", "nowhere")


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: looseness.population(0), "percent"),
        (lambda: looseness.population(101), "percent"),
        (lambda: looseness.population(float("nan")), "percent"),
        (lambda: looseness.population(50, scale=-1), "scale"),
        (lambda: looseness.population(50, rho=0), "rho"),
        (lambda: looseness.largest(50, rho=1), "rho"),
        (lambda: looseness.independent_value(-5), "percent"),
        (lambda: looseness.plug_in_deviation(2), "count"),
        (lambda: Reading(nearest="y2"), "nearest"),
        (lambda: Reading(output="torus"), "output"),
        (lambda: Reading(rate=0), "rate"),
        (lambda: looseness.train(WRITTEN, (), (0,), epochs=1), "percents"),
        (lambda: looseness.train(WRITTEN, (50.0,), (0,), epochs=0), "epochs"),
        (lambda: looseness.train(WRITTEN, (50.0,), (0,), epochs=1, batch=0), "batch"),
        (lambda: looseness.train(WRITTEN, (150.0,), (0,), epochs=1), "percent"),
    ],
)
def test_bad_arguments_are_named(call, named: str) -> None:
    with pytest.raises(ArgumentError, match=named):
        call()
