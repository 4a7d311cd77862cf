"""Objectives against slow twins written as the formula reads, and what must hold of any loss."""

import dataclasses
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from contrastlab.objectives import (
    ABSENT,
    FMICL,
    KAPPA,
    AlignUniform,
    BinaryNCE,
    Context,
    FirstOffset,
    InfoNCE,
    LocalAggregation,
    Scores,
    Spectral,
    binary_nce,
    from_views,
    info_nce,
    local_aggregation,
    row_logsumexp,
)
from contrastlab.positives import Joint
from contrastlab.scores import divergences
from contrastlab.support.errors import ArgumentError

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
def test_info_nce_equals_its_loop(dtype, temperature, with_own, with_neighbours) -> None:
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


def test_the_order_of_the_keys_does_not_matter_and_parts_call_their_functions() -> None:
    own, negatives, neighbours = draw(torch.float64, 0.07)
    order = torch.randperm(7, generator=torch.Generator().manual_seed(1))
    turned = negatives[:, order]
    torch.testing.assert_close(info_nce(own, turned, neighbours.flip(1)), info_nce(own, negatives, neighbours))
    torch.testing.assert_close(binary_nce(own, turned, 1.0), binary_nce(own, negatives, 1.0))
    torch.testing.assert_close(local_aggregation(neighbours.flip(1), turned), local_aggregation(neighbours, negatives))
    scores = Scores(own, negatives, neighbours)
    torch.testing.assert_close(InfoNCE()(scores), info_nce(own, negatives, neighbours))
    without = info_nce(own, negatives, neighbours, positive_in_denominator=False)
    torch.testing.assert_close(InfoNCE(positive_in_denominator=False)(scores), without)
    torch.testing.assert_close(LocalAggregation(1e-3)(scores), local_aggregation(neighbours, negatives, 1e-3))
    torch.testing.assert_close(BinaryNCE(2.0)(scores), binary_nce(own, negatives, math.log(14.0)))


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
def test_original_ir_is_the_logistic_form_of_the_released_noise_contrastive_formula(images, temperature) -> None:
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


def test_offset_of_cmc_is_the_mean_exponential_of_the_first_batch_with_its_positives() -> None:
    own, negatives, _ = draw(torch.float64, 0.07)
    every = [math.exp(v) for v in [*own.tolist(), *negatives.flatten().tolist()]]
    expected = math.log(7 * math.fsum(every) / len(every))
    objective = BinaryNCE(kappa=None)
    assert objective.needs_whole_batch
    assert not BinaryNCE().needs_whole_batch
    assert BinaryNCE().offset(Scores(torch.zeros(1), torch.zeros(1, 4096))).item() == pytest.approx(9.127, abs=5e-4)
    assert not objective.offset(Scores(own.clone().requires_grad_(), negatives)).requires_grad
    assert objective.offset(Scores(own, negatives)).item() == pytest.approx(expected, rel=1e-12)
    # of a run: the offset of the first batch of each direction is kept
    module = FirstOffset(2)
    module.values[1] = 1.5
    kept = objective(Scores(own, negatives), Context(direction=1, module=module))
    torch.testing.assert_close(kept, binary_nce(own, negatives, 1.5))
    first = objective(Scores(own, negatives), Context(module=module))
    torch.testing.assert_close(first, binary_nce(own, negatives, expected), rtol=1e-6, atol=1e-6)
    later = objective(Scores(own, negatives + 2), Context(module=module))
    torch.testing.assert_close(later, binary_nce(own, negatives + 2, expected), rtol=1e-6, atol=1e-6)
    # the mean over the keys that are there
    own, negatives = torch.tensor([0.5, -1.0]), torch.tensor([[1.0, ABSENT, 0.25], [2.0, -0.5, 0.75]])
    present = [0.5, -1.0, 1.0, 0.25, 2.0, -0.5, 0.75]
    expected = math.log(3 * math.fsum(math.exp(v) for v in present) / 7)
    scores = Scores(own.double(), negatives.double())
    assert BinaryNCE(kappa=None).offset(scores).item() == pytest.approx(expected, rel=1e-12)


def test_no_close_neighbour_and_a_row_of_minus_infinity_move_nothing() -> None:
    background = draw(torch.float32, 0.07)[1].requires_grad_()
    members = background.masked_fill(torch.ones_like(background, dtype=torch.bool), ABSENT)
    loss = LocalAggregation()(Scores(background[:, 0], background, members))
    torch.testing.assert_close(loss, torch.full((5,), -math.log(1e-7)))
    (grad,) = torch.autograd.grad(loss.sum(), background)
    assert not grad.any()
    assert local_aggregation(torch.zeros(3, 0), torch.zeros(3, 2), 1e-3).tolist() == pytest.approx([math.log(1e3)] * 3)
    logits = torch.tensor([[-math.inf, -math.inf], [0.0, 0.0]], requires_grad=True)
    (slope,) = torch.autograd.grad(row_logsumexp(logits).sum(), logits)
    assert slope.tolist() == [[0.0, 0.0], [0.5, 0.5]]


def test_only_info_nce_with_its_positive_bounds_the_information() -> None:
    assert InfoNCE().bound(1.5, 4096) == pytest.approx(math.log(4096) - 1.5)
    for other in (InfoNCE(positive_in_denominator=False), BinaryNCE(), LocalAggregation()):
        assert other.bound(1.5, 4096) is None


@pytest.mark.parametrize("with_own", [True, False])
def test_a_logit_that_is_not_a_number_shows_in_the_loss(with_own: bool) -> None:
    negatives = torch.tensor([[1.0, math.nan], [1.0, 2.0]])
    loss = info_nce(torch.zeros(2), negatives, positive_in_denominator=with_own)
    assert loss.isnan().tolist() == [True, False]


# pairs: f-MICL, alignment and uniformity, spectral; several keys

FMICL_ROWS = [(name, None) for name in divergences.names() if name != "tsallis"] + [("tsallis", 3.0), ("tsallis", 1.5)]


def twin_divergence(name: str, order: float | None) -> tuple[Callable[[float], float], Callable[[float], float]]:
    """f′ and f* ∘ f′ as functions of u, from f alone: numerically differentiated where it is not written here."""
    f = {
        "kl": (lambda u: math.log(u) + 1, lambda u: u),
        "js": (lambda u: math.log(2 * u / (1 + u)), lambda u: math.log((1 + u) / 2)),
        "pearson": (lambda u: 2 * (u - 1), lambda u: u * u - 1),
        "hellinger": (lambda u: 1 - u**-0.5, lambda u: u**0.5 - 1),
        "tsallis": (lambda u: order / (order - 1) * u ** (order - 1), lambda u: u**order + 1 / (order - 1)),
        "vincze_le_cam": (lambda u: 1 - 4 / (u + 1) ** 2, lambda u: (u - 1) * (3 * u + 1) / (u + 1) ** 2),
        "vincze_le_cam_printed": (lambda u: 1 - 4 / (u + 1) ** 2, lambda u: 3 - 4 / (u + 1)),
        "reverse_kl": (lambda u: -1 / u, lambda u: math.log(u) - 1),
        "neyman": (lambda u: 1 - u**-2, lambda u: 2 - 2 / u),
        "jeffrey": (lambda u: math.log(u) + 1 - 1 / u, lambda u: u - 1 + math.log(u)),
    }
    return f[name]


def unit(rows: int, seed: int, dim: int = 6) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(rows, dim, generator=generator, dtype=torch.float64), dim=1)


@pytest.mark.parametrize(("name", "order"), FMICL_ROWS)
@pytest.mark.parametrize("precision", [0.5, 1.0, 20.0])  # 1 / 2σ²: images 1, text 20
@pytest.mark.parametrize("mu", [1.0, 0.1])
def test_f_micl_is_the_formula(name, order, precision, mu) -> None:
    x, y = unit(5, 0), F.normalize(unit(5, 0) + 0.3 * unit(5, 1), dim=1)
    temperature = 1 / (2 * precision)
    slope, composed = twin_divergence(name, order)

    def similarity(a: Tensor, b: Tensor) -> float:
        return mu * math.exp(-precision * float(((a - b) ** 2).sum()))

    expected = -math.fsum(slope(similarity(x[i], y[i])) for i in range(5)) / 5
    pairs = [composed(similarity(x[i], x[j])) for i in range(5) for j in range(5) if i != j]
    expected += 40 * math.fsum(pairs) / 20

    objective = FMICL(name, order, mu=mu)
    logits = x @ x.T / temperature
    scores = Scores((x * y).sum(1) / temperature, logits.fill_diagonal_(ABSENT), highest=1 / temperature)
    assert objective(scores).mean().item() == pytest.approx(expected, rel=1e-6)
    single = Scores(scores.own.float(), scores.negatives.float(), highest=1 / temperature)
    assert objective(single).mean().item() == pytest.approx(expected, rel=2e-4)


@pytest.mark.parametrize("name", ["kl", "pearson", "tsallis"])
def test_f_micl_with_cosine_similarity_puts_the_score_into_the_conjugate(name) -> None:
    x, y = unit(4, 2), unit(4, 3)
    objective = FMICL(name, similarity="cosine", weight=3.0)
    scores = Scores((x * y).sum(1), (x @ x.T).fill_diagonal_(ABSENT))
    others = objective.f.conjugate((x @ x.T)[~torch.eye(4, dtype=torch.bool)]).mean()
    assert objective(scores).mean().item() == pytest.approx(float(3 * others - scores.own.mean()), abs=1e-12)
    for inside, temperature in (("vincze_le_cam", 1.01), ("js", 1.5), ("kl", 0.02)):
        FMICL(inside, similarity="cosine").check(temperature)


@pytest.mark.parametrize("t", [2.0, 0.5])
def test_alignment_and_uniformity_is_the_formula(t) -> None:
    x, y = unit(5, 4), unit(5, 5)
    for temperature in (1.0, 0.01):
        objective = AlignUniform(align=1.5, uniform=0.7, t=t)
        logits = (x @ x.T / temperature).fill_diagonal_(ABSENT)
        rows = objective(Scores((x * y).sum(1) / temperature, logits, highest=1 / temperature))
        assert rows.shape == (5, 3)
        align = math.fsum(float(((a - b) ** 2).sum()) for a, b in zip(x, y, strict=True)) / 5
        pairs = [math.exp(-t * float(((x[i] - x[j]) ** 2).sum())) for i in range(5) for j in range(i)]
        expected = 1.5 * align + 0.7 * math.log(math.fsum(pairs) / len(pairs))
        assert objective.reduce(rows).item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("objective", [FMICL("kl"), AlignUniform()])
def test_distances_are_not_read_from_logits_of_an_unknown_temperature(objective) -> None:
    scores = Scores(torch.zeros(3), torch.zeros(3, 4))
    with pytest.raises(ArgumentError, match=f"highest=None: expected 1/τ with {type(objective).__name__}"):
        objective(scores)
    assert objective(dataclasses.replace(scores, highest=2.0)).isfinite().all()
    assert FMICL("kl", similarity="cosine")(scores).isfinite().all()  # reads the scores themselves


def test_spectral_is_the_formula_and_pearsons_up_to_one() -> None:
    x, y = unit(5, 6), unit(5, 7)
    logits = (x @ x.T / 0.3).fill_diagonal_(ABSENT)
    own = (x * y).sum(1) / 0.3
    expected = -2 * own.mean() + (x @ x.T / 0.3)[~torch.eye(5, dtype=torch.bool)].square().mean()
    assert Spectral()(Scores(own, logits)).mean().item() == pytest.approx(float(expected), abs=1e-12)
    # Pearson's objective at u = score, to be maximised: 2E u − E u² − 1 (the paper prints −3)
    pearson = 2 * (own - 1).mean() - (logits[logits > ABSENT / 2] ** 2 - 1).mean()
    assert -Spectral()(Scores(own, logits)).mean().item() - 1 == pytest.approx(float(pearson), abs=1e-12)


@pytest.mark.parametrize("temperature", [0.2, 0.01])
def test_jcl_equals_the_explicit_covariance(temperature) -> None:
    q = unit(4, 8, 16)
    keys = F.normalize(q[:, None] + 0.5 * unit(20, 9, 16).view(4, 5, 16), dim=2)
    negatives = q @ unit(30, 10, 16).T / temperature
    own, lift = Joint(5, 4.0).pair((keys @ q[:, :, None]).squeeze(2) / temperature, 0, 1)
    mu = keys.mean(1)
    centred = keys - mu[:, None]
    sigma = centred.transpose(1, 2) @ centred / 5
    plus = (q * mu).sum(1) / temperature
    variance = (q[:, None] @ sigma @ q[:, :, None]).flatten()
    top = plus + 4.0 / (2 * temperature**2) * variance
    expected = torch.logsumexp(torch.cat([top[:, None], negatives], 1), 1) - plus
    got = InfoNCE()(Scores(own, negatives, lift=lift))
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9)
    single = InfoNCE()(Scores(own.float(), negatives.float(), lift=lift.float()))
    torch.testing.assert_close(single.double(), expected, rtol=1e-5, atol=1e-5)


def test_keys_of_strength_zero_are_their_mean_and_several_keys_the_mean_of_as_many_losses() -> None:
    own, negatives = torch.randn(3, 5), torch.randn(3, 9)
    mean, lift = Joint(5, 0.0).pair(own, 0, 1)
    assert lift is None
    torch.testing.assert_close(InfoNCE()(Scores(mean, negatives)), info_nce(own.mean(1), negatives))
    own, negatives = torch.randn(3, 4, dtype=torch.float64), torch.randn(3, 9, dtype=torch.float64)
    expected = torch.stack([info_nce(own[:, m], negatives) for m in range(4)]).mean(0)
    torch.testing.assert_close(InfoNCE()(Scores(own, negatives)), expected)
    one = FMICL("js")
    expected = torch.stack([one(Scores(own[:, m], negatives, highest=1.0)) for m in range(4)]).mean(0)
    torch.testing.assert_close(one(Scores(own, negatives, highest=1.0)), expected)


@pytest.mark.parametrize("name", divergences.names())
def test_f_micl_gradients_are_finite_at_equal_and_opposite_embeddings(name) -> None:
    own = torch.tensor([2.0, -2.0], requires_grad=True)
    negatives = torch.tensor([[2.0, -2.0, ABSENT], [-2.0, 2.0, 0.0]], requires_grad=True)
    FMICL(name)(Scores(own, negatives, highest=2.0)).sum().backward()
    assert own.grad.isfinite().all()
    assert negatives.grad.isfinite().all()
    assert negatives.grad[0, 2] == 0


@pytest.mark.parametrize("objective", [FMICL(), AlignUniform(), Spectral()], ids=lambda o: type(o).__name__)
def test_several_keys_are_averaged(objective) -> None:
    own, negatives, _ = draw(torch.float64, 1.0)
    many = torch.stack([own, 0.5 * own], 1)
    together = objective(Scores(many, negatives, highest=1.0))
    apart = [objective(Scores(many[:, m], negatives, highest=1.0)) for m in (0, 1)]
    assert torch.allclose(together, (apart[0] + apart[1]) / 2, rtol=0, atol=1e-12)


def test_uniformity_is_a_mean_over_pairs_however_many_each_query_has() -> None:
    objective, negatives = AlignUniform(), torch.randn(2, 4, generator=torch.Generator().manual_seed(0)).double()
    negatives[0, 1:] = ABSENT
    scores = Scores(torch.zeros(2, dtype=torch.float64), negatives, highest=5.0)
    assert objective.reduce(objective(scores)).item() == pytest.approx(twin_of_pairs(objective, scores), rel=1e-12)


def twin_of_pairs(objective, scores: Scores) -> float:
    """The loss of a batch, entry by entry: a query without negatives has the term of its positive alone."""
    rows = [present(row) for row in scores.negatives]
    own = scores.own.tolist()
    if isinstance(objective, AlignUniform):
        distances = [[2 - 2 * s / scores.highest for s in row] for row in rows if row]
        each = [math.exp(-objective.t * d) for row in distances for d in row]
        spread = math.log(math.fsum(each) / len(each)) if each else 0.0
        align = math.fsum(2 - 2 * s / scores.highest for s in own) / len(own)
        return objective.align * align + objective.uniform * spread
    if isinstance(objective, Spectral):
        pulls, push = [2 * s for s in own], (lambda s: s * s)
    else:
        slope, composed = twin_divergence("kl", None)
        pulls = [slope(math.exp(s - scores.highest)) for s in own]

        def push(s: float) -> float:
            return 40 * composed(math.exp(s - scores.highest))

    pushes = [math.fsum(map(push, row)) / max(len(row), 1) for row in rows]
    return math.fsum(b - a for a, b in zip(pulls, pushes, strict=True)) / len(own)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("temperature", [1.0, 0.5])
@pytest.mark.parametrize("gone", [[], [1], [0, 3], [0, 1, 2, 3, 4]], ids=str)
@pytest.mark.parametrize("objective", [FMICL(), AlignUniform(1.5, 0.7), Spectral()], ids=lambda o: type(o).__name__)
def test_a_query_without_negatives_is_pulled_and_not_pushed(objective, gone, temperature, dtype) -> None:
    x, y = unit(5, 8), unit(5, 9)
    own = ((x * y).sum(1) / temperature).to(dtype).requires_grad_()
    negatives = (x @ x.T / temperature).to(dtype).requires_grad_()
    absent = torch.eye(5, dtype=torch.bool)
    absent[gone] = True
    scores = Scores(own, negatives.masked_fill(absent, ABSENT), highest=1 / temperature)
    loss = objective.reduce(objective(scores))
    expected = twin_of_pairs(objective, scores)
    assert loss.dtype == dtype
    assert loss.item() == pytest.approx(expected, rel=1e-5 if dtype == torch.float32 else 1e-12)
    loss.backward()
    assert own.grad is not None
    assert negatives.grad is not None
    assert bool((own.grad < 0).all())
    assert bool(own.grad.isfinite().all())
    assert bool((negatives.grad != 0).equal(~absent))
    assert bool(negatives.grad.isfinite().all())


def test_two_views_give_the_loss_of_simclr_and_of_any_objective() -> None:
    z1, z2 = torch.randn(2, 5, 7, generator=torch.Generator().manual_seed(3)).double()
    z = [row / row.norm() for row in (*z1, *z2)]
    own = torch.stack([z[k] @ z[(k + 5) % 10] for k in range(10)]) / 0.5
    others = torch.stack([torch.stack([z[k] @ z[j] for j in range(10) if (j - k) % 5]) for k in range(10)]) / 0.5
    softmax = math.fsum(log_sum_exp([a, *row]) - a for a, row in zip(own.tolist(), others.tolist(), strict=True)) / 10
    assert from_views(z1, z2, temperature=0.5).item() == pytest.approx(softmax, rel=1e-5)
    for objective in (AlignUniform(), FMICL(), Spectral()):
        twin = twin_of_pairs(objective, Scores(own, others, highest=2.0))
        assert from_views(z1, z2, objective, temperature=0.5).item() == pytest.approx(twin, rel=1e-5)


def test_embeddings_of_scores_have_a_row_a_query_and_a_number_at_least() -> None:
    for shape in ((4, 2, 0), (3, 2, 8), (4, 1, 8), (4, 2)):
        with pytest.raises(ArgumentError, match=r"^embeddings=.*: expected a tensor of shape \[4, 2, d\]"):
            Scores(torch.zeros(4), torch.zeros(4, 3), embeddings=torch.zeros(shape))
    assert Scores(torch.zeros(4), torch.zeros(4, 3), embeddings=torch.zeros(4, 2, 1)).size == 3


def test_f_micl_refuses_a_temperature_only_where_float32_cannot_hold_the_loss() -> None:
    FMICL("neyman").check(0.025)
    with pytest.raises(ArgumentError, match="temperature=0.0232: expected a higher one"):
        FMICL("neyman").check(0.0232)  # the loss is finite there, and its slope in an embedding is not
    FMICL("kl", weight=1e38, mu=2.0).check(1.0)  # 2e38 for equal embeddings
    with pytest.raises(ArgumentError, match="temperature=1.0"):
        FMICL("kl", weight=1e38, mu=4.0).check(1.0)
