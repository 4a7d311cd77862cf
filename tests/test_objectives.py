"""Objectives against slow twins written as the formula reads, and what must hold of any loss."""

import dataclasses
import math
from collections.abc import Callable
from itertools import combinations, permutations, product
from statistics import fmean

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

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
    Objective,
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


def in_short(value: object) -> str:
    """A precision or a temperature in the id of a test."""
    return str(value).replace("torch.", "")


def class_name(part: object) -> str:
    return type(part).__name__


grid = pytest.mark.parametrize(("dtype", "temperature"), list(product(DTYPES, TEMPERATURES)), ids=in_short)


def draw(
    dtype: torch.dtype, temperature: float, *, rows: int = 5, keys: int = 7, near: int = 3, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """Logits of the positive ``[rows]``, of negatives ``[rows, keys]`` and of neighbours ``[rows, near]``.

    They are cosines over a temperature, rounded to ``dtype`` so that the twin reads the same numbers.
    """
    generator = torch.Generator().manual_seed(seed)
    logits = []
    for shape in ((rows,), (rows, keys), (rows, near)):
        cosines = torch.rand(shape, generator=generator, dtype=torch.float64) * 2 - 1
        logits.append((cosines / temperature).to(dtype))
    own, negatives, neighbours = logits
    return own, negatives, neighbours


def log_sum_exp(values: list[float]) -> float:
    top = max(values)
    return top + math.log(math.fsum(math.exp(v - top) for v in values))


def softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def present(row: Tensor) -> list[float]:
    """The logits of a row that are not absent."""
    return [v for v in row.double().tolist() if v > ABSENT / 2]


def twin_info_nce(own: Tensor, negatives: Tensor, neighbours: Tensor | None, with_own: bool) -> list[float]:
    """The loss of each query; with ``with_own`` the positive is in the denominator, too."""
    losses = []
    for b, positive in enumerate(own.tolist()):
        numerator = [positive]
        if neighbours is not None:
            numerator += present(neighbours[b])
        denominator = present(negatives[b])
        if with_own:
            denominator.append(positive)
        losses.append(log_sum_exp(denominator) - log_sum_exp(numerator))
    return losses


def twin_binary_nce(own: Tensor, negatives: Tensor, offset: float) -> list[float]:
    losses = []
    for positive, row in zip(own.tolist(), negatives, strict=True):
        of_negatives = [softplus(s - offset) for s in present(row)]
        losses.append(softplus(offset - positive) + math.fsum(of_negatives))
    return losses


def twin_local_aggregation(members: Tensor, background: Tensor, floor: float) -> list[float]:
    losses = []
    for inside, outside in zip(members, background, strict=True):
        close = present(inside)
        ratio = 0.0
        if close:
            ratio = math.exp(log_sum_exp(close) - log_sum_exp(present(outside)))
        losses.append(-math.log(ratio + floor))
    return losses


def agree(losses: Tensor, twin: list[float], largest: float, slack: float = 0.0) -> None:
    """Losses are those of the twin up to rounding and ``slack``, where no logit is above ``largest``."""
    expected = torch.tensor(twin, dtype=torch.float64)
    # every operation rounds numbers up to the largest logit or the result; a handful of them are chained
    rounding = 3 * torch.finfo(losses.dtype).eps * (1 + largest + expected.abs())
    difference = (losses.double() - expected).abs()
    assert bool((difference <= rounding + slack).all()), (losses.tolist(), twin, rounding.tolist())


@grid
@pytest.mark.parametrize("with_own", [True, False])
@pytest.mark.parametrize("with_neighbours", [True, False])
def test_info_nce_equals_its_loop(dtype, temperature, with_own, with_neighbours) -> None:
    own, negatives, neighbours = draw(dtype, temperature)
    if not with_neighbours:
        neighbours = None
    losses = info_nce(own, negatives, neighbours, positive_in_denominator=with_own)
    assert losses.dtype == dtype
    agree(losses, twin_info_nce(own, negatives, neighbours, with_own), 1 / temperature)


@grid
def test_binary_nce_equals_its_loop(dtype: torch.dtype, temperature: float) -> None:
    own, negatives, _ = draw(dtype, temperature)
    offset = math.log(KAPPA * negatives.shape[1])
    offset = torch.tensor(offset).to(dtype).item()  # rounded as the logits are
    twin = twin_binary_nce(own, negatives, offset)
    # torch's softplus is the identity above 20, which leaves out up to exp(-20) = 2.1e-9 a term
    agree(binary_nce(own, negatives, offset), twin, 1 / temperature, slack=8 * 2.1e-9)


@grid
def test_local_aggregation_equals_its_loop(dtype: torch.dtype, temperature: float) -> None:
    _, background, _ = draw(dtype, temperature)
    members = background.clone()
    members[:, ::2] = ABSENT
    losses = local_aggregation(members, background)
    agree(losses, twin_local_aggregation(members, background, 1e-7), 1 / temperature)


@grid
def test_absent_entries_count_for_nothing_and_leave_gradients_finite(dtype: torch.dtype, temperature: float) -> None:
    """Query 0 has no negatives and no neighbours, query 1 has two negatives, query 2 misses a neighbour."""
    own, negatives, neighbours = draw(dtype, temperature)
    no_negative = torch.zeros(negatives.shape, dtype=torch.bool)
    no_negative[0] = True
    no_negative[1, 2:] = True
    no_neighbour = torch.zeros(neighbours.shape, dtype=torch.bool)
    no_neighbour[0] = True
    no_neighbour[2, 0] = True
    negatives[no_negative] = ABSENT
    neighbours[no_neighbour] = ABSENT
    twin = twin_info_nce(own, negatives, neighbours, with_own=True)

    logits = (own.requires_grad_(), negatives.requires_grad_(), neighbours.requires_grad_())
    losses = info_nce(own, negatives, neighbours)
    agree(losses.detach(), twin, 1 / temperature)
    without_neighbours = info_nce(own, negatives)
    assert without_neighbours[0] == 0
    aggregation = local_aggregation(neighbours, negatives)
    for each in (losses, without_neighbours, binary_nce(own, negatives, 3.0), aggregation[1:]):
        slopes = torch.autograd.grad(each.sum(), logits, materialize_grads=True, retain_graph=True)
        of_own, of_negatives, of_neighbours = slopes
        assert bool(of_own.isfinite().all())
        assert bool(of_negatives.isfinite().all())
        assert bool(of_neighbours.isfinite().all())
        assert not of_negatives[no_negative].any()
        assert not of_neighbours[no_neighbour].any()
    # LA has no query without background neighbours. Such a one has a finite slope all the same.
    for slope in torch.autograd.grad(aggregation[0], (negatives, neighbours)):
        assert bool(slope.isfinite().all())


@pytest.mark.parametrize("with_own", [True, False])
def test_a_query_without_negatives_costs_nothing_and_moves_nothing(with_own: bool) -> None:
    """Query 1 has none; the others pull their positive and push their negatives."""
    own, negatives, _ = draw(torch.float32, 0.07)
    negatives[1] = ABSENT
    own.requires_grad_()
    negatives.requires_grad_()
    losses = info_nce(own, negatives, positive_in_denominator=with_own)
    assert losses[1] == 0
    losses.sum().backward()
    assert own.grad is not None
    assert negatives.grad is not None
    assert own.grad[1] == 0
    assert not negatives.grad[1].any()
    others = [0, 2, 3, 4]
    assert bool((own.grad[others] < 0).all())
    assert bool((negatives.grad[others] >= 0).all())


def without_own(own: Tensor, negatives: Tensor) -> Tensor:
    """InfoNCE with the positive left out of the denominator."""
    return info_nce(own, negatives, positive_in_denominator=False)


def logistic(own: Tensor, negatives: Tensor) -> Tensor:
    """Binary NCE with some offset."""
    return binary_nce(own, negatives, 2.0)


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_gradients_are_the_derivatives(temperature: float) -> None:
    own, negatives, neighbours = (logits.requires_grad_() for logits in draw(torch.float64, temperature, rows=3))
    assert torch.autograd.gradcheck(info_nce, (own, negatives, neighbours))
    assert torch.autograd.gradcheck(without_own, (own, negatives))
    assert torch.autograd.gradcheck(logistic, (own, negatives))
    assert torch.autograd.gradcheck(local_aggregation, (neighbours, negatives))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("keys", [1, 16, 4095])
def test_equal_embeddings_give_the_logarithm_of_the_number_of_terms(dtype: torch.dtype, keys: int) -> None:
    same = torch.full((3, keys), 1 / 0.07, dtype=dtype)
    loss = info_nce(same[:, 0], same)
    expected = torch.full((3,), math.log(keys + 1), dtype=torch.float64)
    assert_close(loss.double(), expected, rtol=0, atol=4 * torch.finfo(dtype).eps / 0.07)


def test_the_order_of_the_keys_does_not_matter_and_parts_call_their_functions() -> None:
    own, negatives, neighbours = draw(torch.float64, 0.07)
    order = torch.randperm(7, generator=torch.Generator().manual_seed(1))
    shuffled = negatives[:, order]
    reversed_neighbours = neighbours.flip(1)
    assert_close(info_nce(own, shuffled, reversed_neighbours), info_nce(own, negatives, neighbours))
    assert_close(binary_nce(own, shuffled, 1.0), binary_nce(own, negatives, 1.0))
    assert_close(local_aggregation(reversed_neighbours, shuffled), local_aggregation(neighbours, negatives))

    scores = Scores(own, negatives, neighbours)
    assert_close(InfoNCE()(scores), info_nce(own, negatives, neighbours))
    without = info_nce(own, negatives, neighbours, positive_in_denominator=False)
    assert_close(InfoNCE(positive_in_denominator=False)(scores), without)
    assert_close(LocalAggregation(1e-3)(scores), local_aggregation(neighbours, negatives, 1e-3))
    assert_close(BinaryNCE(2.0)(scores), binary_nce(own, negatives, math.log(14.0)))  # κ = 2, seven negatives


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_losses_are_not_negative(temperature: float) -> None:
    own, negatives, _ = draw(torch.float64, temperature, rows=200, seed=3)
    assert bool((info_nce(own, negatives) >= 0).all())
    assert bool((binary_nce(own, negatives, math.log(7 * KAPPA)) >= 0).all())
    # LA^nce: the neighbours, every third key here, are among the terms of the denominator
    is_far = torch.arange(7) % 3 > 0
    members = negatives.masked_fill(is_far, ABSENT)
    assert bool((info_nce(own, negatives, members) >= 0).all())
    assert bool((local_aggregation(members, negatives) >= -1.1e-7).all())


def test_without_the_positive_below_or_a_neighbour_above_the_loss_can_be_negative() -> None:
    own = torch.tensor([5.0])
    negatives = torch.tensor([[0.0]])
    neighbours = torch.tensor([[9.0]])
    assert info_nce(own, negatives, positive_in_denominator=False).item() == pytest.approx(-5)
    assert info_nce(own, negatives, neighbours).item() < 0


def released_nce(positive: float, negatives: list[float], images: int) -> float:
    """NCE as the released code writes it: each score is a probability under the model, told from that of the noise.

    The model has the partition function κ · images, and the noise is uniform over the images.
    """
    partition = KAPPA * images
    noise = len(negatives) / images
    model = math.exp(positive) / partition
    loss = -math.log(model / (model + noise))
    for score in negatives:
        model = math.exp(score) / partition
        loss -= math.log(noise / (model + noise))
    return loss


@pytest.mark.parametrize("images", [50_000, 1_281_167])
@pytest.mark.parametrize("temperature", [1.0, 0.07])
def test_original_ir_is_the_logistic_form_of_the_released_noise_contrastive_formula(images, temperature) -> None:
    own, negatives, _ = draw(torch.float64, temperature, keys=64)
    expected = []
    for positive, row in zip(own.tolist(), negatives.tolist(), strict=True):
        expected.append(released_nce(positive, row, images))
    losses = BinaryNCE()(Scores(own, negatives))
    assert_close(losses, torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=1e-9)


def twin_offset(scores: list[float], negatives: int) -> float:
    """log K κ with κ the mean exponential of ``scores``, positives included."""
    return math.log(negatives * fmean(math.exp(s) for s in scores))


def test_offset_of_cmc_is_the_mean_exponential_of_the_first_batch_with_its_positives() -> None:
    own, negatives, _ = draw(torch.float64, 0.07)
    expected = twin_offset([*own.tolist(), *negatives.flatten().tolist()], 7)
    objective = BinaryNCE(kappa=None)
    assert objective.needs_whole_batch
    assert not BinaryNCE().needs_whole_batch
    of_given_kappa = BinaryNCE().offset(Scores(torch.zeros(1), torch.zeros(1, 4096)))
    assert of_given_kappa.item() == pytest.approx(9.127, abs=5e-4)
    assert not objective.offset(Scores(own.clone().requires_grad_(), negatives)).requires_grad
    assert objective.offset(Scores(own, negatives)).item() == pytest.approx(expected, rel=1e-12)

    # Of a run, the offset of the first batch of each direction is kept.
    module = FirstOffset(2)
    module.values[1] = 1.5
    kept = objective(Scores(own, negatives), Context(direction=1, module=module))
    assert_close(kept, binary_nce(own, negatives, 1.5))
    first = objective(Scores(own, negatives), Context(module=module))
    assert_close(first, binary_nce(own, negatives, expected), rtol=1e-6, atol=1e-6)
    later = objective(Scores(own, negatives + 2), Context(module=module))
    assert_close(later, binary_nce(own, negatives + 2, expected), rtol=1e-6, atol=1e-6)

    # The mean is over the keys that are there.
    own = torch.tensor([0.5, -1.0], dtype=torch.float64)
    negatives = torch.tensor([[1.0, ABSENT, 0.25], [2.0, -0.5, 0.75]], dtype=torch.float64)
    expected = twin_offset([0.5, -1.0, 1.0, 0.25, 2.0, -0.5, 0.75], 3)
    assert objective.offset(Scores(own, negatives)).item() == pytest.approx(expected, rel=1e-12)


def test_no_close_neighbour_and_a_row_of_minus_infinity_move_nothing() -> None:
    _, background, _ = draw(torch.float32, 0.07)
    background.requires_grad_()
    is_far = torch.ones_like(background, dtype=torch.bool)
    members = background.masked_fill(is_far, ABSENT)
    losses = LocalAggregation()(Scores(background[:, 0], background, members))
    assert_close(losses, torch.full((5,), -math.log(1e-7)))
    (slope,) = torch.autograd.grad(losses.sum(), background)
    assert not slope.any()

    no_columns = torch.zeros(3, 0)
    losses = local_aggregation(no_columns, torch.zeros(3, 2), 1e-3)
    assert losses.tolist() == pytest.approx([math.log(1e3)] * 3)

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

Function = Callable[[float], float]

SLOPES: dict[str, Function] = {  # f′(u)
    "kl": lambda u: math.log(u) + 1,
    "js": lambda u: math.log(2 * u / (1 + u)),
    "pearson": lambda u: 2 * (u - 1),
    "hellinger": lambda u: 1 - u**-0.5,
    "vincze_le_cam": lambda u: 1 - 4 / (u + 1) ** 2,
    "vincze_le_cam_printed": lambda u: 1 - 4 / (u + 1) ** 2,
    "reverse_kl": lambda u: -1 / u,
    "neyman": lambda u: 1 - u**-2,
    "jeffrey": lambda u: math.log(u) + 1 - 1 / u,
}
COMPOSITIONS: dict[str, Function] = {  # f*(f′(u)) = u f′(u) − f(u), but for the printed one
    "kl": lambda u: u,
    "js": lambda u: math.log((1 + u) / 2),
    "pearson": lambda u: u * u - 1,
    "hellinger": lambda u: u**0.5 - 1,
    "vincze_le_cam": lambda u: (u - 1) * (3 * u + 1) / (u + 1) ** 2,
    "vincze_le_cam_printed": lambda u: 3 - 4 / (u + 1),
    "reverse_kl": lambda u: math.log(u) - 1,
    "neyman": lambda u: 2 - 2 / u,
    "jeffrey": lambda u: u - 1 + math.log(u),
}


def twin_divergence(name: str, order: float | None) -> tuple[Function, Function]:
    """f′ and f* ∘ f′ as functions of u, derived by hand; ``order`` is that of Tsallis."""
    if name != "tsallis":
        return SLOPES[name], COMPOSITIONS[name]

    def slope(u: float) -> float:
        return order / (order - 1) * u ** (order - 1)

    def composition(u: float) -> float:
        return u**order + 1 / (order - 1)

    return slope, composition


def unit(rows: int, seed: int, dim: int = 6) -> Tensor:
    """Random unit vectors ``[rows, dim]``."""
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(rows, dim, generator=generator, dtype=torch.float64), dim=1)


def squared_distance(a: Tensor, b: Tensor) -> float:
    return float(((a - b) ** 2).sum())


def without_diagonal(scores: Tensor) -> Tensor:
    """The entries off the diagonal of a square, in one row."""
    is_diagonal = torch.eye(len(scores), dtype=torch.bool)
    return scores[~is_diagonal]


@pytest.mark.parametrize(("name", "order"), FMICL_ROWS)
@pytest.mark.parametrize("precision", [0.5, 1.0, 20.0])  # 1 / 2σ²: images 1, text 20
@pytest.mark.parametrize("mu", [1.0, 0.1])
def test_f_micl_is_the_formula(name, order, precision, mu) -> None:
    x = unit(5, 0)
    y = F.normalize(x + 0.3 * unit(5, 1), dim=1)
    slope, composition = twin_divergence(name, order)

    def similarity(a: Tensor, b: Tensor) -> float:
        return mu * math.exp(-precision * squared_distance(a, b))

    of_positives = [slope(similarity(a, b)) for a, b in zip(x, y, strict=True)]
    of_negatives = [composition(similarity(a, b)) for a, b in permutations(x, 2)]
    expected = 40 * fmean(of_negatives) - fmean(of_positives)

    objective = FMICL(name, order, mu=mu)
    highest = 2 * precision  # 1 / σ²
    own = highest * (x * y).sum(1)
    negatives = (highest * x @ x.T).fill_diagonal_(ABSENT)
    loss = objective(Scores(own, negatives, highest=highest)).mean()
    assert loss.item() == pytest.approx(expected, rel=1e-6)
    rounded = objective(Scores(own.float(), negatives.float(), highest=highest)).mean()
    assert rounded.item() == pytest.approx(expected, rel=2e-4)


@pytest.mark.parametrize("name", ["kl", "pearson", "tsallis"])
def test_f_micl_with_cosine_similarity_puts_the_score_into_the_conjugate(name) -> None:
    x = unit(4, 2)
    y = unit(4, 3)
    own = (x * y).sum(1)
    cosines = x @ x.T
    objective = FMICL(name, similarity="cosine", weight=3.0)
    loss = objective(Scores(own, cosines.clone().fill_diagonal_(ABSENT))).mean()
    of_negatives = objective.f.conjugate(without_diagonal(cosines)).mean()
    expected = 3 * of_negatives - own.mean()
    assert loss.item() == pytest.approx(expected.item(), abs=1e-12)
    for inside, temperature in (("vincze_le_cam", 1.01), ("js", 1.5), ("kl", 0.02)):
        FMICL(inside, similarity="cosine").check(temperature)


@pytest.mark.parametrize("t", [2.0, 0.5])
def test_alignment_and_uniformity_is_the_formula(t) -> None:
    x = unit(5, 4)
    y = unit(5, 5)
    of_positives = [squared_distance(a, b) for a, b in zip(x, y, strict=True)]
    of_negatives = [squared_distance(a, b) for a, b in combinations(x, 2)]
    uniformity = math.log(fmean(math.exp(-t * d) for d in of_negatives))
    expected = 1.5 * fmean(of_positives) + 0.7 * uniformity
    objective = AlignUniform(align=1.5, uniform=0.7, t=t)
    for temperature in (1.0, 0.01):
        own = (x * y).sum(1) / temperature
        negatives = (x @ x.T / temperature).fill_diagonal_(ABSENT)
        rows = objective(Scores(own, negatives, highest=1 / temperature))
        assert rows.shape == (5, 3)
        assert objective.reduce(rows).item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("objective", [FMICL("kl"), AlignUniform()])
def test_distances_are_not_read_from_logits_of_an_unknown_temperature(objective) -> None:
    scores = Scores(torch.zeros(3), torch.zeros(3, 4))
    with pytest.raises(ArgumentError, match=f"highest=None: expected 1/τ with {type(objective).__name__}"):
        objective(scores)
    assert objective(dataclasses.replace(scores, highest=2.0)).isfinite().all()
    assert FMICL("kl", similarity="cosine")(scores).isfinite().all()  # reads the scores themselves


def test_spectral_is_the_formula_and_pearsons_up_to_one() -> None:
    x = unit(5, 6)
    y = unit(5, 7)
    own = (x * y).sum(1) / 0.3
    logits = x @ x.T / 0.3
    others = without_diagonal(logits)
    loss = Spectral()(Scores(own, logits.clone().fill_diagonal_(ABSENT))).mean().item()
    expected = others.square().mean() - 2 * own.mean()
    assert loss == pytest.approx(expected.item(), abs=1e-12)
    # Pearson's objective at u = score, to be maximised: 2E u − E u² − 1 (the paper prints −3)
    pearson = 2 * (own - 1).mean() - (others.square() - 1).mean()
    assert -loss - 1 == pytest.approx(pearson.item(), abs=1e-12)


@pytest.mark.parametrize("temperature", [0.2, 0.01])
def test_jcl_equals_the_explicit_covariance(temperature) -> None:
    """jcl Eq. 8 with λ = 4 and the d × d covariance of five keys of each of four queries."""
    queries = unit(4, 8, 16)
    noise = unit(20, 9, 16).view(4, 5, 16)
    keys = F.normalize(queries[:, None] + 0.5 * noise, dim=2)  # [4, 5, 16]
    negatives = queries @ unit(30, 10, 16).T / temperature

    mean = keys.mean(1)
    centred = keys - mean[:, None]
    covariance = centred.transpose(1, 2) @ centred / 5  # [4, 16, 16]
    of_mean = (queries * mean).sum(1) / temperature
    variance = (queries[:, None] @ covariance @ queries[:, :, None]).flatten()
    in_denominator = of_mean + 4.0 / (2 * temperature**2) * variance
    terms = torch.cat([in_denominator[:, None], negatives], 1)
    expected = torch.logsumexp(terms, 1) - of_mean

    of_keys = (keys @ queries[:, :, None]).squeeze(2) / temperature
    own, lift = Joint(5, 4.0).pair(of_keys, 0, 1)
    losses = InfoNCE()(Scores(own, negatives, lift=lift))
    assert_close(losses, expected, rtol=1e-9, atol=1e-9)
    rounded = InfoNCE()(Scores(own.float(), negatives.float(), lift=lift.float()))
    assert_close(rounded.double(), expected, rtol=1e-5, atol=1e-5)


def test_keys_of_strength_zero_are_their_mean_and_several_keys_the_mean_of_as_many_losses() -> None:
    generator = torch.Generator().manual_seed(0)
    of_keys = torch.randn(3, 4, generator=generator, dtype=torch.float64)
    negatives = torch.randn(3, 9, generator=generator, dtype=torch.float64)
    mean, lift = Joint(4, 0.0).pair(of_keys, 0, 1)
    assert lift is None
    assert_close(InfoNCE()(Scores(mean, negatives)), info_nce(of_keys.mean(1), negatives))

    each = [info_nce(own, negatives) for own in of_keys.T]
    assert_close(InfoNCE()(Scores(of_keys, negatives)), torch.stack(each).mean(0))
    objective = FMICL("js")
    each = [objective(Scores(own, negatives, highest=1.0)) for own in of_keys.T]
    assert_close(objective(Scores(of_keys, negatives, highest=1.0)), torch.stack(each).mean(0))


@pytest.mark.parametrize("name", divergences.names())
def test_f_micl_gradients_are_finite_at_equal_and_opposite_embeddings(name) -> None:
    own = torch.tensor([2.0, -2.0], requires_grad=True)
    negatives = torch.tensor([[2.0, -2.0, ABSENT], [-2.0, 2.0, 0.0]], requires_grad=True)
    FMICL(name)(Scores(own, negatives, highest=2.0)).sum().backward()
    assert own.grad.isfinite().all()
    assert negatives.grad.isfinite().all()
    assert negatives.grad[0, 2] == 0


@pytest.mark.parametrize("objective", [FMICL(), AlignUniform(), Spectral()], ids=class_name)
def test_several_keys_are_averaged(objective) -> None:
    own, negatives, _ = draw(torch.float64, 1.0)
    second = 0.5 * own
    together = objective(Scores(torch.stack([own, second], 1), negatives, highest=1.0))
    of_first = objective(Scores(own, negatives, highest=1.0))
    of_second = objective(Scores(second, negatives, highest=1.0))
    assert torch.allclose(together, (of_first + of_second) / 2, rtol=0, atol=1e-12)


def test_uniformity_is_a_mean_over_pairs_however_many_each_query_has() -> None:
    """One query has one negative, the other four: five pairs."""
    objective = AlignUniform()
    negatives = torch.randn(2, 4, generator=torch.Generator().manual_seed(0)).double()
    negatives[0, 1:] = ABSENT
    scores = Scores(torch.zeros(2, dtype=torch.float64), negatives, highest=5.0)
    loss = objective.reduce(objective(scores))
    assert loss.item() == pytest.approx(twin_of_pairs(objective, scores), rel=1e-12)


def twin_of_pairs(objective: Objective, scores: Scores) -> float:
    """The loss of a batch, entry by entry: a query without negatives has the term of its positive alone."""
    if isinstance(objective, AlignUniform):
        return twin_align_uniform(objective, scores)
    if isinstance(objective, Spectral):
        return twin_of_queries(scores, lambda s: 2 * s, lambda s: s * s)
    slope, composition = twin_divergence("kl", None)  # of FMICL(), whose weight is 40

    def similarity(s: float) -> float:
        return math.exp(s - scores.highest)

    return twin_of_queries(scores, lambda s: slope(similarity(s)), lambda s: 40 * composition(similarity(s)))


def twin_align_uniform(objective: AlignUniform, scores: Scores) -> float:
    """Distances of unit vectors by their logits, ‖x − y‖² = 2 − 2 s / highest."""
    alignment = fmean(2 - 2 * s / scores.highest for s in scores.own.tolist())
    negatives = present(scores.negatives.flatten())
    if not negatives:
        return objective.align * alignment
    distances = [2 - 2 * s / scores.highest for s in negatives]
    uniformity = math.log(fmean(math.exp(-objective.t * d) for d in distances))
    return objective.align * alignment + objective.uniform * uniformity


def twin_of_queries(scores: Scores, pull: Function, push: Function) -> float:
    """The mean over queries of the mean push of the negatives, if there are any, less the pull of the positive."""
    losses = []
    for positive, row in zip(scores.own.tolist(), scores.negatives, strict=True):
        negatives = present(row)
        pushed = fmean(map(push, negatives)) if negatives else 0.0
        losses.append(pushed - pull(positive))
    return fmean(losses)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("temperature", [1.0, 0.5])
@pytest.mark.parametrize("gone", [[], [1], [0, 3], [0, 1, 2, 3, 4]], ids=str)
@pytest.mark.parametrize("objective", [FMICL(), AlignUniform(1.5, 0.7), Spectral()], ids=class_name)
def test_a_query_without_negatives_is_pulled_and_not_pushed(objective, gone, temperature, dtype) -> None:
    x = unit(5, 8)
    y = unit(5, 9)
    absent = torch.eye(5, dtype=torch.bool)
    absent[gone] = True
    own = ((x * y).sum(1) / temperature).to(dtype).requires_grad_()
    negatives = (x @ x.T / temperature).to(dtype).masked_fill(absent, ABSENT).requires_grad_()
    scores = Scores(own, negatives, highest=1 / temperature)
    loss = objective.reduce(objective(scores))
    tolerance = {torch.float32: 1e-5, torch.float64: 1e-12}[dtype]
    assert loss.dtype == dtype
    assert loss.item() == pytest.approx(twin_of_pairs(objective, scores), rel=tolerance)
    loss.backward()
    assert own.grad is not None
    assert negatives.grad is not None
    assert bool((own.grad < 0).all())
    assert bool(own.grad.isfinite().all())
    assert bool((negatives.grad != 0).equal(~absent))
    assert bool(negatives.grad.isfinite().all())


def test_two_views_give_the_loss_of_simclr_and_of_any_objective() -> None:
    """Each of ten embeddings has the other view of its item as positive, and the eight of other items as negatives."""
    z1, z2 = torch.randn(2, 5, 7, generator=torch.Generator().manual_seed(3)).double()
    z = torch.stack([row / row.norm() for row in (*z1, *z2)])
    own = []
    negatives = []
    for k in range(10):
        item = k % 5
        of_other_items = [j for j in range(10) if j % 5 != item]
        own.append(z[(k + 5) % 10] @ z[k] / 0.5)
        negatives.append(z[of_other_items] @ z[k] / 0.5)
    scores = Scores(torch.stack(own), torch.stack(negatives), highest=2.0)

    softmax = fmean(twin_info_nce(scores.own, scores.negatives, None, with_own=True))
    assert from_views(z1, z2, temperature=0.5).item() == pytest.approx(softmax, rel=1e-5)
    for objective in (AlignUniform(), FMICL(), Spectral()):
        loss = from_views(z1, z2, objective, temperature=0.5)
        assert loss.item() == pytest.approx(twin_of_pairs(objective, scores), rel=1e-5)


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
