"""Objectives against slow twins written as the formula reads, and what must hold of any loss."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from contrastlab.errors import ArgumentError
from contrastlab.objectives import (
    ABSENT,
    KAPPA,
    BinaryNCE,
    InfoNCE,
    LocalAggregation,
    Scores,
    binary_nce,
    info_nce,
    local_aggregation,
)

DTYPES = [torch.float64, torch.float32, torch.bfloat16]
TEMPERATURES = [1.0, 0.07, 0.01]
grid = pytest.mark.parametrize(
    ("dtype", "temperature"), [(d, t) for d in DTYPES for t in TEMPERATURES], ids=lambda v: str(v).replace("torch.", "")
)


def draw(dtype: torch.dtype, temperature: float, *, rows: int = 5, keys: int = 7, near: int = 3, seed: int = 0):
    """Logits as cosines over a temperature, rounded to ``dtype`` so that the twin reads the same numbers."""
    generator = torch.Generator().manual_seed(seed)
    shapes = ((rows,), (rows, keys), (rows, near))
    return tuple(
        ((torch.rand(s, generator=generator, dtype=torch.float64) * 2 - 1) / temperature).to(dtype) for s in shapes
    )


def log_sum_exp(values: list[float]) -> float:
    top = max(values)
    return top + math.log(math.fsum(math.exp(v - top) for v in values))


def softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def present(row: Tensor) -> list[float]:
    return [v for v in row.double().tolist() if v > ABSENT / 2]


def twin_info_nce(own: Tensor, negatives: Tensor, neighbours: Tensor | None, with_own: bool) -> list[float]:
    out = []
    for b in range(len(own)):
        positive = float(own[b])
        numerator = [positive] if neighbours is None else [positive, *present(neighbours[b])]
        denominator = ([positive] if with_own else []) + present(negatives[b])
        out.append(log_sum_exp(denominator) - log_sum_exp(numerator))
    return out


def twin_binary_nce(own: Tensor, negatives: Tensor, offset: float) -> list[float]:
    return [
        softplus(offset - float(own[b])) + math.fsum(softplus(s - offset) for s in present(negatives[b]))
        for b in range(len(own))
    ]


def twin_local_aggregation(members: Tensor, background: Tensor, floor: float) -> list[float]:
    out = []
    for b in range(len(members)):
        inside, outside = present(members[b]), present(background[b])
        ratio = math.exp(log_sum_exp(inside) - log_sum_exp(outside)) if inside else 0.0
        out.append(-math.log(ratio + floor))
    return out


def agree(got: Tensor, expected: list[float], largest: float, exact: float = 0.0) -> None:
    # every operation rounds numbers up to the largest logit or the result; a handful of them are chained
    want = torch.tensor(expected, dtype=torch.float64)
    allowed = 3 * torch.finfo(got.dtype).eps * (1 + largest + want.abs()) + exact
    assert bool(((got.double() - want).abs() <= allowed).all()), (got.tolist(), expected, allowed.tolist())


@grid
@pytest.mark.parametrize("with_own", [True, False])
@pytest.mark.parametrize("with_neighbours", [True, False])
def test_info_nce_equals_its_loop(
    dtype: torch.dtype, temperature: float, with_own: bool, with_neighbours: bool
) -> None:
    own, negatives, neighbours = draw(dtype, temperature)
    near = neighbours if with_neighbours else None
    got = info_nce(own, negatives, near, positive_in_denominator=with_own)
    assert got.dtype == dtype
    agree(got, twin_info_nce(own, negatives, near, with_own), 1 / temperature)


@grid
def test_binary_nce_equals_its_loop(dtype: torch.dtype, temperature: float) -> None:
    own, negatives, _ = draw(dtype, temperature)
    offset = float(torch.tensor(math.log(KAPPA * negatives.shape[1])).to(dtype))
    # torch's softplus is the identity above 20, which leaves out up to exp(-20) = 2.1e-9 a term
    agree(binary_nce(own, negatives, offset), twin_binary_nce(own, negatives, offset), 1 / temperature, 8 * 2.1e-9)


@grid
def test_local_aggregation_equals_its_loop(dtype: torch.dtype, temperature: float) -> None:
    _, background, _ = draw(dtype, temperature)
    members = background.clone()
    members[:, ::2] = ABSENT
    got = local_aggregation(members, background)
    agree(got, twin_local_aggregation(members, background, 1e-7), 1 / temperature)


@grid
def test_absent_entries_count_for_nothing_and_leave_gradients_finite(dtype: torch.dtype, temperature: float) -> None:
    own, negatives, neighbours = (t.requires_grad_() for t in draw(dtype, temperature))
    gone = torch.zeros(negatives.shape, dtype=torch.bool)
    gone[0] = True  # a row without any negative
    gone[1, 2:] = True
    far = torch.zeros(neighbours.shape, dtype=torch.bool)
    far[0], far[2, 0] = True, True
    kept, near = negatives.masked_fill(gone, ABSENT), neighbours.masked_fill(far, ABSENT)
    loss = info_nce(own, kept, near)
    agree(loss.detach(), twin_info_nce(own.detach(), kept.detach(), near.detach(), True), 1 / temperature)
    for value in (loss, info_nce(own, kept), binary_nce(own, kept, 3.0), local_aggregation(near, kept)):
        grads = torch.autograd.grad(value.sum(), (own, negatives, neighbours), allow_unused=True, retain_graph=True)
        for name, grad in zip(("own", "negatives", "neighbours"), grads, strict=True):
            assert grad is None or bool(grad.isfinite().all()), name
        assert grads[1] is None or not grads[1][gone].any()
    assert info_nce(own, kept)[0] == 0


@pytest.mark.parametrize("with_own", [True, False])
def test_a_query_without_negatives_costs_nothing_and_moves_nothing(with_own: bool) -> None:
    own, negatives, _ = (t.requires_grad_() for t in draw(torch.float32, 0.07))
    gone = torch.zeros(negatives.shape, dtype=torch.bool)
    gone[1] = True
    loss = info_nce(own, negatives.masked_fill(gone, ABSENT), positive_in_denominator=with_own)
    assert loss[1] == 0
    loss.sum().backward()
    assert own.grad is not None
    assert negatives.grad is not None
    assert own.grad[1] == 0
    assert not negatives.grad[1].any()
    assert bool((own.grad[[0, 2, 3, 4]] < 0).all())
    assert bool((negatives.grad[[0, 2, 3, 4]] >= 0).all())


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_gradients_are_the_derivatives(temperature: float) -> None:
    own, negatives, neighbours = (t.requires_grad_() for t in draw(torch.float64, temperature, rows=3))
    check = torch.autograd.gradcheck
    assert check(info_nce, (own, negatives, neighbours))
    assert check(lambda o, n: info_nce(o, n, positive_in_denominator=False), (own, negatives))
    assert check(lambda o, n: binary_nce(o, n, 2.0), (own, negatives))
    assert check(local_aggregation, (neighbours, negatives))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("keys", [1, 16, 4095])
def test_equal_embeddings_give_the_logarithm_of_the_number_of_terms(dtype: torch.dtype, keys: int) -> None:
    same = torch.full((3, keys), 1 / 0.07, dtype=dtype)
    loss = info_nce(same[:, 0], same)
    expected = torch.full((3,), math.log(keys + 1), dtype=torch.float64)
    torch.testing.assert_close(loss.double(), expected, rtol=0, atol=4 * torch.finfo(dtype).eps / 0.07)


def test_the_order_of_the_keys_does_not_matter() -> None:
    own, negatives, neighbours = draw(torch.float64, 0.07)
    order = torch.randperm(7, generator=torch.Generator().manual_seed(1))
    turned = negatives[:, order]
    torch.testing.assert_close(info_nce(own, turned, neighbours.flip(1)), info_nce(own, negatives, neighbours))
    torch.testing.assert_close(binary_nce(own, turned, 1.0), binary_nce(own, negatives, 1.0))
    torch.testing.assert_close(local_aggregation(neighbours.flip(1), turned), local_aggregation(neighbours, negatives))


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_losses_are_not_negative(temperature: float) -> None:
    own, negatives, _ = draw(torch.float64, temperature, rows=200, seed=3)
    assert bool((info_nce(own, negatives) >= 0).all())
    assert bool((binary_nce(own, negatives, math.log(7 * KAPPA)) >= 0).all())
    # LA^nce: the neighbours are among the terms of the denominator
    members = negatives.masked_fill(torch.arange(7) % 3 > 0, ABSENT)
    assert bool((info_nce(own, negatives, members) >= 0).all())
    assert bool((local_aggregation(members, negatives) >= -1.1e-7).all())


def test_without_the_positive_below_or_a_neighbour_above_the_loss_can_be_negative() -> None:
    own, negatives, neighbours = torch.tensor([5.0]), torch.tensor([[0.0]]), torch.tensor([[9.0]])
    assert info_nce(own, negatives, positive_in_denominator=False).item() == pytest.approx(-5)
    assert info_nce(own, negatives, neighbours).item() < 0


@pytest.mark.parametrize("images", [50_000, 1_281_167])
@pytest.mark.parametrize("temperature", [1.0, 0.07])
def test_original_ir_is_the_logistic_form_of_the_released_noise_contrastive_formula(
    images: int, temperature: float
) -> None:
    own, negatives, _ = draw(torch.float64, temperature, keys=64)
    keys, partition = 64, KAPPA * images
    noise = keys / images
    expected = []
    for b in range(len(own)):
        model = math.exp(float(own[b])) / partition
        total = -math.log(model / (model + noise))
        for score in negatives[b].tolist():
            model = math.exp(score) / partition
            total -= math.log(noise / (model + noise))
        expected.append(total)
    got = BinaryNCE()(Scores(own, negatives))
    torch.testing.assert_close(got, torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=1e-9)


def test_offset_of_original_ir_is_the_logarithm_of_kappa_times_k() -> None:
    scores = Scores(torch.zeros(1), torch.zeros(1, 4096))
    assert BinaryNCE().offset(scores).item() == pytest.approx(9.127, abs=5e-4)


def test_offset_of_cmc_is_the_mean_exponential_of_the_first_batch_with_its_positives() -> None:
    own, negatives, _ = draw(torch.float64, 0.07)
    every = [math.exp(v) for v in [*own.tolist(), *negatives.flatten().tolist()]]
    expected = math.log(7 * math.fsum(every) / len(every))
    objective = BinaryNCE(kappa=None)
    assert objective.estimates_offset
    assert not BinaryNCE().estimates_offset
    assert objective.offset(Scores(own, negatives)).item() == pytest.approx(expected, rel=1e-12)
    stored = objective(Scores(own, negatives), torch.tensor(1.5, dtype=torch.float64))
    torch.testing.assert_close(stored, binary_nce(own, negatives, 1.5))


def test_cmc_offset_carries_no_gradient() -> None:
    own, negatives, _ = (t.requires_grad_() for t in draw(torch.float64, 0.07))
    assert not BinaryNCE(kappa=None).offset(Scores(own, negatives)).requires_grad


def test_no_close_neighbour_costs_minus_log_of_the_floor_and_moves_nothing() -> None:
    background = draw(torch.float32, 0.07)[1].requires_grad_()
    members = background.masked_fill(torch.ones_like(background, dtype=torch.bool), ABSENT)
    loss = LocalAggregation()(Scores(background[:, 0], background, members))
    torch.testing.assert_close(loss, torch.full((5,), -math.log(1e-7)))
    (grad,) = torch.autograd.grad(loss.sum(), background)
    assert not grad.any()


def test_parts_call_their_functions() -> None:
    own, negatives, neighbours = draw(torch.float64, 0.07)
    scores = Scores(own, negatives, neighbours)
    torch.testing.assert_close(InfoNCE()(scores), info_nce(own, negatives, neighbours))
    torch.testing.assert_close(
        InfoNCE(positive_in_denominator=False)(scores),
        info_nce(own, negatives, neighbours, positive_in_denominator=False),
    )
    torch.testing.assert_close(LocalAggregation(1e-3)(scores), local_aggregation(neighbours, negatives, 1e-3))
    torch.testing.assert_close(BinaryNCE(2.0)(scores), binary_nce(own, negatives, math.log(14.0)))


def test_only_info_nce_with_its_positive_bounds_the_information() -> None:
    assert InfoNCE().bound(1.5, 4096) == pytest.approx(math.log(4096) - 1.5)
    assert InfoNCE(positive_in_denominator=False).bound(1.5, 4096) is None
    assert BinaryNCE().bound(1.5, 4096) is None
    assert LocalAggregation().bound(1.5, 4096) is None


def test_bad_arguments_are_named() -> None:
    one, two = torch.zeros(2), torch.zeros(2, 3)
    with pytest.raises(ArgumentError, match="own"):
        Scores(two, two)
    with pytest.raises(ArgumentError, match="negatives"):
        Scores(one, torch.zeros(3, 3))
    with pytest.raises(ArgumentError, match="neighbours"):
        Scores(one, two, one)
    with pytest.raises(ArgumentError, match="negatives"):
        info_nce(one, torch.zeros(2, 0), positive_in_denominator=False)
    with pytest.raises(ArgumentError, match="neighbours"):
        LocalAggregation()(Scores(one, two))
    for kappa in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ArgumentError, match="kappa"):
            BinaryNCE(kappa)
    with pytest.raises(ArgumentError, match="floor"):
        LocalAggregation(0.0)


def test_no_negatives_at_all_is_no_loss() -> None:
    own = torch.randn(4, generator=torch.Generator().manual_seed(0))
    assert not info_nce(own, torch.zeros(4, 0)).any()


@pytest.mark.parametrize("with_own", [True, False])
def test_a_logit_that_is_not_a_number_shows_in_the_loss(with_own: bool) -> None:
    negatives = torch.tensor([[1.0, math.nan], [1.0, 2.0]])
    loss = info_nce(torch.zeros(2), negatives, positive_in_denominator=with_own)
    assert loss.isnan().tolist() == [True, False]
