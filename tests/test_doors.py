"""Doors: what is not finite or not there becomes no number, and precision and autograd are those of PyTorch."""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck
from torch.nn import functional as F

from contrastlab import keys, negatives, objectives, tasks
from contrastlab.information import bounds, critics, exact, toys
from contrastlab.negatives import Ball, BatchRandom, Every, Ring, Uniform
from contrastlab.objectives import ABSENT, FMICL, AlignUniform, BinaryNCE, InfoNCE, Scores, Spectral, from_views
from contrastlab.papers.barlow.objective import BarlowTwins
from contrastlab.papers.byol.parts import Follow
from contrastlab.papers.debiased.objective import Debiased
from contrastlab.papers.decoupled.objective import DecoupledWeighted
from contrastlab.papers.facenet.parts import Triplet
from contrastlab.papers.hard.objective import HardWeighted
from contrastlab.papers.rince.objective import RINCE
from contrastlab.papers.siglip.objective import LearntTemperature, Scale, Sigmoid
from contrastlab.papers.supcon.objective import SupCon
from contrastlab.papers.vicreg.objective import VICReg
from contrastlab.scores import divergences
from contrastlab.scores.candidates import Candidates, Pool, Stored
from contrastlab.support.errors import ArgumentError, NotApplicableError
from made_runs import generator

OF_NEGATIVES = [
    Debiased(),
    Debiased(0.0),
    HardWeighted(),
    RINCE(),
    Triplet(),
    Sigmoid(),
    LearntTemperature(),
    SupCon(),
    SupCon("inside"),
    DecoupledWeighted(),
]
"""Objectives of later papers that read scores of negatives."""
REGIONS = [
    Ring(5, 50, k=None),
    Ring(5, 50, k=8),
    Ring(2, 98, k=None),
    Ball(50, k=None),
    Ball(50, k=8),
    Ball(nearest=12, k=None),
    Ball(nearest=12, k=8),
]


def refuses(words: str, call: Callable[..., object], *arguments: object, **options: object) -> None:
    """The call ends with an error that names an argument in these words."""
    with pytest.raises(ArgumentError, match=words):
        call(*arguments, **options)


def unit(rows: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return F.normalize(torch.randn(rows, 6, generator=generator(seed), dtype=torch.float64), dim=1).to(dtype)


def read(pool: Pool, part: negatives.Negatives) -> Tensor:
    return pool.read(part.select(pool, BatchRandom(generator()), 0, 1))


def losses_are_finite(negatives: Tensor) -> list[bool]:
    """Of InfoNCE, for each query and its scores of negatives ``[B, N]``."""
    positive = torch.zeros(len(negatives), dtype=negatives.dtype)
    loss = InfoNCE()(Scores(positive, negatives))
    return loss.isfinite().tolist()


# What is not finite ---------------------------------------------------------------------------------------------------


def chosen(scores: Tensor) -> Tensor:
    """The scores of what was chosen for a query, in order."""
    return scores[scores > ABSENT].sort().values


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("part", REGIONS, ids=repr)
def test_a_score_that_is_not_finite_makes_its_loss_so_and_changes_no_other_query(part, bad) -> None:
    scores = unit(4, 0) @ unit(40, 1).T
    own = torch.arange(4)
    expected = read(Candidates(scores, own), part)
    scores[2, 30] = bad
    got = read(Candidates(scores, own), part)
    assert losses_are_finite(got) == [True, True, False, True]
    assert not bool((got[2] == scores[2, 2]).any())  # its own key is no negative
    for query in (0, 1, 3):
        assert torch.equal(chosen(got[query]), chosen(expected[query]))


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("part", REGIONS, ids=repr)
def test_a_stored_key_that_is_not_finite_shows_in_every_loss(part, dense) -> None:
    rows = unit(40, 1)
    rows[30] = math.nan
    pool = Stored(unit(4, 0), rows, torch.arange(4), dense=dense)
    assert losses_are_finite(read(pool, part)) == [False] * 4


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("part", REGIONS, ids=repr)
def test_a_stored_key_that_is_excluded_may_be_anything(part, dense) -> None:
    rows = unit(40, 1)
    rows[30] = math.nan
    banned = torch.full((4, 1), 30)
    pool = Stored(unit(4, 0), rows, torch.arange(4), banned=banned, dense=dense)
    assert losses_are_finite(read(pool, part)) == [True] * 4


OF_ALL_NEGATIVES = [
    InfoNCE(),
    InfoNCE(False),
    BinaryNCE(),
    BinaryNCE(None),
    FMICL(),
    Spectral(),
    AlignUniform(),
    *OF_NEGATIVES,
]


@pytest.mark.parametrize("objective", OF_ALL_NEGATIVES, ids=repr)
def test_a_negative_that_is_not_a_number_makes_the_loss_none(objective) -> None:
    negatives = torch.tensor([[0.0, math.nan], [0.0, 0.5]])
    scores = Scores(torch.zeros(2), negatives, highest=1.0)
    assert bool(objective.reduce(objective(scores)).isnan())


@pytest.mark.parametrize("negatives", [0.5, ABSENT])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("objective", [*OF_NEGATIVES, Follow()], ids=repr)
def test_a_positive_that_is_not_finite_makes_the_loss_none(objective, bad, negatives) -> None:
    scores = Scores(torch.tensor([0.0, bad]), torch.full((2, 3), negatives), highest=1.0)
    assert not objective.reduce(objective(scores)).isfinite()


@pytest.mark.parametrize("objective", [BarlowTwins(), VICReg()], ids=repr)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_an_embedding_that_is_not_finite_makes_the_loss_none(objective, bad) -> None:
    z = torch.randn(2, 4, 3, generator=generator(7))
    z[1, 2, 0] = bad
    assert not from_views(z[0], z[1], objective).isfinite()


def test_a_scale_that_has_overflowed_makes_the_loss_none() -> None:
    z = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    scale = Scale(-10.0)
    assert from_views(z, z, Sigmoid(), module=scale).isfinite()
    scale.log_factor.data.fill_(200.0)
    assert not from_views(z, z, Sigmoid(), module=scale).isfinite()


INFINITE_THEN_GOOD = torch.tensor([math.inf, 0.0])


def test_an_infinite_score_of_the_positive_is_no_perfect_one_of_binary_nce() -> None:
    loss = BinaryNCE()(Scores(INFINITE_THEN_GOOD, torch.zeros(2, 3)))
    assert loss.isfinite().tolist() == [False, True]


def test_infinite_scores_of_neighbours_are_no_perfect_ones_of_local_aggregation() -> None:
    background = torch.stack([INFINITE_THEN_GOOD, INFINITE_THEN_GOOD], dim=1)
    loss = objectives.local_aggregation(torch.zeros(2, 1), background)
    assert loss.isfinite().tolist() == [False, True]


def test_a_positive_that_is_no_number_has_no_loss_where_there_are_no_negatives() -> None:
    loss = InfoNCE(False)(Scores(torch.tensor([math.nan, 0.0]), torch.full((2, 3), ABSENT)))
    assert loss.isfinite().tolist() == [False, True]
    assert loss[1] == 0


def test_what_may_not_be_enqueued_is_refused_and_nothing_is_stored() -> None:
    queue = keys.KeyQueue(8, 6, generator())
    before = queue.rows.clone()
    good = unit(2, 3, torch.float32)
    bad = torch.stack([good[0], torch.full((6,), math.nan)])
    refuses("keys='nan or inf in 1 of 2 rows': expected finite", queue.enqueue, bad)
    refuses("keys='a row of length 50'.*divided by their length", queue.enqueue, good * 50)
    refuses(r"keys=\(2, 5\).*\[B, 6\]", queue.enqueue, good[:, :5])
    refuses("keys=torch.int64", queue.enqueue, good.long())
    refuses("keys='list'", queue.enqueue, good.tolist())
    refuses("keys='meta'.*the queue's cpu", queue.enqueue, good.to("meta"))
    assert torch.equal(queue.rows, before)
    assert int(queue.pointer) == 0


def test_what_may_not_enter_a_bank_is_refused_and_nothing_is_stored() -> None:
    bank = keys.MemoryBank(8, 6, generator())
    before = bank.rows.clone()
    items = torch.arange(2)
    good = unit(2, 3, torch.float32)
    bad = torch.stack([good[0], torch.full((6,), math.nan)])
    refuses("embeddings='nan or inf in 1 of 2 rows'", bank.update, items, bad, 0.5)
    refuses("rate=1.5", bank.update, items, good, 1.5)
    assert torch.equal(bank.rows, before)


def test_stores_without_room_are_refused() -> None:
    refuses("size=0", keys.KeyQueue, 0, 6, generator())
    refuses("size=0", keys.MemoryBank, 0, 6, generator())


def test_keys_of_low_precision_may_be_enqueued() -> None:
    queue = keys.KeyQueue(8, 6, generator())
    good = unit(2, 3, torch.bfloat16)
    queue.enqueue(good)
    assert int(queue.pointer) == 2
    assert torch.equal(queue.rows[:2], good.float())


TRAIN_LABELS = torch.arange(20) % 2
TEST_LABELS = torch.arange(10) % 2


def nearest(train: Tensor, test: Tensor) -> object:
    return tasks.nearest_neighbour(train, TRAIN_LABELS, test, TEST_LABELS)


def five_nearest(train: Tensor, test: Tensor) -> object:
    return tasks.knn(train, TRAIN_LABELS, test, TEST_LABELS, k=5)


def linear(train: Tensor, test: Tensor) -> object:
    return tasks.linear_lbfgs(train, TRAIN_LABELS, test)


@pytest.mark.parametrize("score", [nearest, five_nearest, linear])
def test_features_that_are_not_finite_are_never_scored(score) -> None:
    train = unit(20, 0, torch.float32)
    test = unit(10, 1, torch.float32)
    broken = test.clone()
    broken[3, 2] = math.inf
    score(train, test)
    refuses("test='nan or inf in 1 of 10 rows'", score, train, broken)
    refuses("train='nan or inf in 20 of 20 rows'", score, train * math.nan, test)
    refuses("(train|products)='", score, train * 1e38, test * 1e38)  # products overflow


@pytest.mark.parametrize("score", [nearest, five_nearest, linear])
def test_features_of_other_shapes_or_types_are_never_scored(score) -> None:
    train = unit(20, 0, torch.float32)
    test = unit(10, 1, torch.float32)
    refuses(r"train=\(0, 6\)", score, train[:0], test)
    refuses(r"test=\(10, 4\)", score, train, test[:, :4])
    refuses("train=torch.int64", score, train.long(), test)


def test_labels_that_do_not_fit_are_never_scored() -> None:
    train = unit(20, 0, torch.float32)
    test = unit(10, 1, torch.float32)
    refuses(r"test_labels=\(5,\)", tasks.nearest_neighbour, train, TRAIN_LABELS, test, TEST_LABELS[:5])
    refuses(r"test_labels=\(5,\)", tasks.knn, train, TRAIN_LABELS, test, TEST_LABELS[:5])
    refuses("labels=torch.float32", tasks.linear_lbfgs, train, TRAIN_LABELS.float(), test)
    refuses("labels='list'", tasks.linear_lbfgs, train, TRAIN_LABELS.tolist(), test)


def test_scores_of_classes_that_are_not_finite_are_never_counted() -> None:
    scores = unit(10, 1, torch.float32)
    scores[3, 2] = math.inf
    refuses("scores='nan or inf in 1 of 10 rows'", tasks.correct, scores, TEST_LABELS)


# What is not there ----------------------------------------------------------------------------------------------------


def test_a_key_that_is_excluded_twice_counts_once() -> None:
    own = torch.arange(3)
    banned = torch.tensor([[0, 7], [1, 8], [2, 9]])  # the own key, and another
    pool = Candidates(unit(3, 0) @ unit(12, 1).T, own, None, banned)
    assert pool.left("excluded") == 10
    assert pool.left("ranked") == 10
    every = Every().select(pool, BatchRandom(generator()), 0, 1)
    assert every.count(12) == 10
    assert (pool.read(every) > ABSENT).sum(1).tolist() == [10, 10, 10]
    drawn = Uniform(500).select(pool, BatchRandom(generator()), 0, 1).indices
    for query, row in enumerate(drawn.tolist()):
        assert set(row) == set(range(12)) - set(banned[query].tolist())


SELECTIONS = [Every(), Uniform(4), Ball(nearest=2, k=None), Ball(nearest=2, k=4), Ring(0, 100), Ball(100, k=None)]
OWN_AND_NO_OTHER = Candidates(torch.zeros(2, 1), torch.zeros(2, dtype=torch.int64))
TOO_FEW = {
    "all are banned": Candidates(torch.zeros(2, 3), None, None, torch.tensor([[0, 1, 2]] * 2)),
    "more are banned than there are": Candidates(torch.zeros(2, 3), None, None, torch.tensor([[0, 1, 2, 1, 0]] * 2)),
    "no keys": Candidates(torch.zeros(2, 0)),
    "the own one alone": OWN_AND_NO_OTHER,
}


@pytest.mark.parametrize("part", SELECTIONS, ids=repr)
@pytest.mark.parametrize("case", TOO_FEW)
def test_keys_that_do_not_suffice_are_refused(part, case) -> None:
    pool = TOO_FEW[case]
    refuses(f"keys={pool.shape[1]}: expected", part.select, pool, BatchRandom(generator()), 0, 1)


def test_losses_of_nothing_are_refused() -> None:
    none = torch.zeros(0)
    refuses(r"own=\(0,\)", objectives.info_nce, none, torch.zeros(0, 3))
    refuses(r"own=\(2, 0\)", objectives.multi_key_info_nce, torch.zeros(2, 0), torch.zeros(2, 3))
    refuses(r"own=\(0,\)", Scores, none, torch.zeros(0, 3))
    refuses("queries=0", Candidates, torch.zeros(0, 3))
    refuses("D > 0", from_views, torch.zeros(2, 0), torch.zeros(2, 0))


# Theory ---------------------------------------------------------------------------------------------------------------


f_information = partial(bounds.f_information, divergence=divergences.KL)


@pytest.mark.parametrize("bound", [bounds.nwj, bounds.donsker_varadhan, bounds.Mine(), f_information])
def test_bounds_of_nothing_or_of_integers_are_refused(bound) -> None:
    some = torch.zeros(3)
    none = torch.zeros(0)
    whole = torch.arange(3)
    refuses(r"independents=\(0,\)", bound, some, none)
    refuses(r"positives=\(0,\)", bound, none, some)
    refuses("positives=torch.int64", bound, whole, some)
    refuses("independents=torch.int64", bound, some, whole)


def test_parameters_of_the_theory_that_are_impossible_are_named() -> None:
    refuses("rate=0", bounds.Mine, rate=0)
    refuses("scores=torch.int64", bounds.pairs, torch.arange(9).view(3, 3))
    refuses("nats=-1", toys.JointGaussian.with_information, -1)
    refuses("nats=40", toys.JointGaussian.with_information, 40)
    refuses("dimension=0", toys.JointGaussian.with_information, 1, 0)
    refuses("dimension=0", toys.JointGaussian.correlated, 0.5, 0)
    refuses("draws=1.5", exact.info_nce, exact.Joint.of(np.eye(2)), np.zeros((2, 2)), 2.5)
    refuses(r"sizes=\[\]", critics.mlp, [])
    refuses(r"sizes=\[3\]", critics.mlp, [3])
    refuses("sizes=3", critics.mlp, 3)


def info_nce_of(scores: Tensor) -> Tensor:
    return bounds.info_nce(*bounds.pairs(scores))


def in_precision(samples: Tensor, precision: str) -> Tensor | np.ndarray:
    match precision:
        case "numpy":
            return samples.numpy().astype(np.float64)
        case "float64":
            return samples.double()
        case "bfloat16":
            return samples.bfloat16()
        case "normal scores":
            return critics.normal_scores(samples)(samples)
        case "integers":
            return (100 * samples).long()
        case "integers of numpy":
            return (100 * samples).long().numpy()
    raise AssertionError(precision)


PRECISIONS = ["numpy", "float64", "bfloat16", "normal scores", "integers", "integers of numpy"]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_critic_is_fitted_to_samples_of_any_precision(precision) -> None:
    x, y = toys.JointGaussian.with_information(1.0).sample(300, generator())
    critic = critics.Separable(critics.mlp([1, 4]))
    done = critics.fit(critic, info_nce_of, in_precision(x, precision), in_precision(y, precision), batch=32, epochs=2)
    assert math.isfinite(done.value)


def test_samples_that_a_critic_cannot_be_fitted_to_are_named() -> None:
    x = torch.randn(300, 1, generator=generator())
    missing = x.clone()
    missing[7] = math.nan
    words = np.array([["a"]] * 300)
    fit = partial(critics.fit, critics.Separable(critics.mlp([1, 4])), info_nce_of, batch=32, epochs=1)
    refuses("x='nan or inf in 1 of 300 rows'", fit, missing, x)
    refuses("y='nan or inf in 1 of 300 rows'", fit, x, missing)
    refuses(r"x=\(300,\).*x\[:, None\]", fit, x[:, 0], x)
    refuses("x='list'", fit, x.tolist(), x)
    refuses("x='<U1'", fit, words, x)
    refuses("x='meta'", fit, x.to("meta"), x)
    refuses("x=torch.complex64", fit, x.to(torch.complex64), x)


def test_samples_without_normal_scores_are_named() -> None:
    x = torch.randn(300, 1, generator=generator())
    missing = x.clone()
    missing[7] = math.nan
    refuses(r"samples=\(300,\)", critics.normal_scores, x[:, 0])
    refuses("samples='nan or inf in 1 of 300 rows'", critics.normal_scores, missing)


def test_a_critic_is_not_evaluated_on_batches_larger_than_the_sample() -> None:
    x = torch.randn(300, 1, generator=generator())
    critic = critics.Separable(critics.mlp([1, 4]))
    refuses("batch=500", critics.evaluate, critic, torch.mean, x, x, 500)


# Precision and autograd -----------------------------------------------------------------------------------------------


def simclr_by_loops(z1: Tensor, z2: Tensor, temperature: float = 0.1) -> float:
    """SimCLR's loss, pair by pair in Python's numbers."""
    units = []
    for row in (*z1.tolist(), *z2.tolist()):
        length = math.hypot(*row)
        units.append([value / length for value in row])
    batch = len(z1)
    losses = []
    for i, unit_i in enumerate(units):
        scores = [math.fsum(a * b for a, b in zip(unit_i, other, strict=True)) / temperature for other in units]
        positive = scores[(i + batch) % (2 * batch)]
        del scores[i]
        highest = max(scores)
        denominator = math.fsum(math.exp(score - highest) for score in scores)
        losses.append(math.log(denominator) + highest - positive)
    return math.fsum(losses) / len(losses)


TWO_VIEWS = torch.randn(2, 5, 7, generator=generator(3), dtype=torch.float64)


@pytest.mark.parametrize("length", [1.0, 1e200, 1e-200])
def test_the_loss_of_two_views_keeps_double_precision_at_any_length(length) -> None:
    z1, z2 = TWO_VIEWS
    loss = from_views(z1 * length, z2 * length)
    assert loss.dtype == torch.float64
    assert loss.item() == pytest.approx(simclr_by_loops(z1, z2), rel=1e-14)


@pytest.mark.parametrize("length", [1e30, 1e-30])
def test_the_loss_of_two_views_in_single_precision_does_not_depend_on_their_length(length) -> None:
    z1, z2 = TWO_VIEWS
    loss = from_views((z1 * length).float(), z2.float())
    assert loss.item() == pytest.approx(simclr_by_loops(z1, z2), rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_loss_of_two_views_in_half_precision_is_computed_in_single(dtype) -> None:
    z1, z2 = TWO_VIEWS.to(dtype)
    loss = from_views(z1, z2)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(simclr_by_loops(z1.double(), z2.double()), rel=1e-5)


ONE_CLASS = torch.zeros(6, dtype=torch.int64)


@pytest.mark.parametrize(("objective", "labels"), [(HardWeighted(0.0), None), (SupCon("inside"), ONE_CLASS)], ids=repr)
def test_counts_of_keys_have_double_precision_too(objective, labels) -> None:
    same = torch.ones(6, 4, dtype=torch.float64)
    loss = from_views(same, same, objective, labels=labels)
    assert loss.item() == pytest.approx(math.log(11), rel=1e-14)  # 11 others, all alike


@pytest.mark.parametrize("q", [1e-5, 1e-8, 1e-20])
def test_a_small_power_keeps_its_digits(q) -> None:
    z1, z2 = torch.randn(2, 6, 4, generator=generator(3))
    limit = from_views(z1, z2, temperature=0.5) + math.log(0.2)
    loss = from_views(z1, z2, RINCE(q, 0.2), temperature=0.5)
    assert loss.item() == pytest.approx(limit.item(), abs=1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_loss_of_two_views_is_float32_inside_autocast(dtype) -> None:
    z = torch.randn(2, 6, 8, generator=generator(1)).requires_grad_()

    def loss() -> Tensor:
        return from_views(z[0], z[0] + 0.01 * z[1], temperature=0.05)

    expected = loss()
    with torch.autocast("cpu", dtype=dtype):
        got = loss()
    (gradient,) = torch.autograd.grad(got, z)
    (expected_gradient,) = torch.autograd.grad(expected, z)
    assert got.dtype == torch.float32
    assert torch.equal(got, expected)
    assert torch.equal(gradient, expected_gradient)


@pytest.mark.parametrize("part", [Every(), Uniform(3), Ring(5, 60, k=None), Ball(50, k=4)], ids=repr)
@pytest.mark.parametrize("dense", [True, False])
def test_scores_of_stored_keys_are_float32_inside_autocast(part, dense) -> None:
    queries = unit(4, 0, torch.float32)
    rows = unit(40, 1, torch.float32)
    expected = read(Stored(queries, rows, torch.arange(4), dense=dense), part)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = read(Stored(queries, rows, torch.arange(4), dense=dense), part)
    assert got.dtype == torch.float32
    assert torch.equal(got, expected)


@pytest.mark.parametrize("objective", [InfoNCE(), FMICL(), AlignUniform(), BinaryNCE(None)], ids=repr)
def test_the_loss_of_two_views_has_a_shape_on_a_device_without_numbers(objective) -> None:
    z = torch.zeros(4, 3, device="meta")
    assert from_views(z, z, objective, temperature=0.5).shape == ()


def test_views_that_are_no_two_dense_real_tensors_are_named() -> None:
    z = torch.randn(4, 3, generator=generator())
    nested = torch.nested.nested_tensor([z[0]])
    refuses("z1=torch.complex64", from_views, z.to(torch.complex64), z)
    refuses("z2=torch.int64", from_views, z, z.long())
    refuses("z1='ndarray'", from_views, z.numpy(), z)
    refuses("z1='torch.float32, nested'", from_views, nested, z)
    refuses("z1='torch.float32, torch.sparse_coo'", from_views, z.to_sparse(), z)
    refuses("z1, z2='cpu, meta': expected tensors of one device", from_views, z, z.to("meta"))


def test_what_is_no_objective_is_named() -> None:
    z = torch.randn(4, 3, generator=generator())
    refuses(r"objective='infonce'.*objectives.InfoNCE\(\)", from_views, z, z, "infonce")
    refuses("objective='InfoNCE, a class'", from_views, z, z, InfoNCE)


def test_a_temperature_near_zero_or_without_a_value_is_refused() -> None:
    z = torch.randn(4, 3, generator=generator())

    def at(temperature: Tensor) -> Tensor:
        return from_views(z, z, temperature=temperature)

    refuses("temperature=1e-31: .*at least 1e-28", from_views, z, z, temperature=1e-31)
    with pytest.raises(NotApplicableError, match="no value"):
        at(torch.ones((), device="meta"))
    with pytest.raises(NotApplicableError, match="no value"):
        torch.vmap(at)(torch.ones(2))


def test_pools_of_two_precisions_or_devices_are_refused() -> None:
    z = torch.randn(4, 3, generator=generator())
    refuses("queries, keys='torch.float32, torch.float64'", Stored, z, z.double())
    refuses("'cpu, meta': expected tensors of one device", Stored, z, z.to("meta"))
    refuses("logits, own='meta, cpu'", Candidates, z.to("meta"), torch.arange(4) % 3)


def test_a_module_that_the_objective_does_not_train_is_named() -> None:
    z = torch.randn(4, 3, generator=generator())
    scale = Scale(-1.0)
    refuses("module='Scale': .*InfoNCE.*which trains nothing", from_views, z, z, module=scale)
    refuses("'Scale': .*FirstOffset with Binary", from_views, z, z, BinaryNCE(None), module=scale)
    sigmoid = partial(from_views, z, z, Sigmoid())
    refuses("module='str': .*torch.nn.Module", sigmoid, module="x")
    refuses("module='Scale, a class'", sigmoid, module=Scale)
    refuses("'Linear': .* a Scale with Sigm", sigmoid, module=nn.Linear(2, 2))
    refuses("a Scale with a bias", sigmoid, module=Scale())
    refuses("embeddings='meta, cpu'", sigmoid, module=Scale(-1.0).to("meta"))


LABELS = torch.tensor([0, 1, 2, 0])


def supervised(labels: Tensor) -> Tensor:
    z1, z2 = torch.randn(2, 4, 3, generator=generator(4))
    return from_views(z1, z2, SupCon(), labels=labels)


def test_a_negative_label_is_no_class() -> None:
    unknown = torch.tensor([0, -1, -1, 0])
    assert torch.equal(supervised(unknown), supervised(LABELS))
    assert not torch.equal(supervised(unknown), supervised(torch.tensor([0, 1, 1, 0])))


NARROW = [torch.uint8, torch.int8, torch.int16, torch.uint16, torch.uint32, torch.uint64]


@pytest.mark.parametrize("dtype", NARROW)
def test_labels_may_be_integers_of_any_width(dtype) -> None:
    assert torch.equal(supervised(LABELS.to(dtype)), supervised(LABELS))


def test_labels_that_are_no_dense_integers_of_the_views_device_are_named() -> None:
    refuses("^labels.*='torch.int64, torch.sparse_coo'", supervised, LABELS.to_sparse())
    refuses("^labels.*=torch.quint8", supervised, torch.quantize_per_tensor(LABELS.float(), 1.0, 0, torch.quint8))
    refuses("^labels.*='torch.int64, nested'", supervised, torch.nested.nested_tensor([LABELS]))
    refuses("^labels.*='meta, cpu'", supervised, LABELS.to("meta"))


@pytest.mark.parametrize("around", [torch.no_grad, torch.inference_mode, partial(torch.device, "meta")])
def test_a_recipe_with_f_micl_can_be_made_anywhere(around) -> None:
    objectives._overflows.cache_clear()
    with around():
        FMICL("jeffrey").check(0.5)
        FMICL("kl", similarity="cosine").check(0.5)
        refuses("temperature=0.01", FMICL("neyman").check, 0.01)


EVERY_OBJECTIVE = [
    InfoNCE(),
    InfoNCE(False),
    BinaryNCE(),
    FMICL(),
    FMICL("jeffrey", similarity="cosine", weight=1.0),
    AlignUniform(),
    Spectral(),
    HardWeighted(),
    RINCE(),
    Triplet(),
    Sigmoid(),
    SupCon(),
    DecoupledWeighted(),
    BarlowTwins(),
    VICReg(),
]
Z = torch.randn(3, 4, 3, generator=generator(2), dtype=torch.float64)
"""Two views, and one more of either."""


@pytest.mark.parametrize("objective", EVERY_OBJECTIVE, ids=repr)
def test_the_loss_of_two_views_has_gradients_of_any_order(objective) -> None:
    loss = partial(from_views, objective=objective, temperature=2.0)
    inputs = [Z[0].clone().requires_grad_(), Z[1].clone().requires_grad_()]
    assert gradcheck(loss, inputs, check_forward_ad=True)
    assert gradgradcheck(loss, inputs)


@pytest.mark.parametrize("objective", EVERY_OBJECTIVE, ids=repr)
def test_the_loss_of_two_views_may_be_transformed(objective) -> None:
    loss = partial(from_views, objective=objective, temperature=2.0)
    first = Z[0].clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(first, Z[1]), first)

    torch.testing.assert_close(torch.func.grad(loss)(Z[0], Z[1]), gradient)
    _, tangent = torch.func.jvp(lambda z1: loss(z1, Z[1]), (Z[0],), (Z[2],))
    torch.testing.assert_close(tangent, (gradient * Z[2]).sum())

    losses = torch.stack([loss(z1, Z[1]) for z1 in Z])
    torch.testing.assert_close(torch.vmap(loss, in_dims=(0, None))(Z, Z[1]), losses)
    gradients = torch.stack([torch.func.grad(loss)(z1, Z[1]) for z1 in Z])
    torch.testing.assert_close(torch.vmap(torch.func.grad(loss), in_dims=(0, None))(Z, Z[1]), gradients)


@pytest.mark.parametrize(
    "objective",
    [
        InfoNCE(),
        FMICL(),
        pytest.param(AlignUniform(), marks=pytest.mark.nightly),
        pytest.param(Spectral(), marks=pytest.mark.nightly),
        pytest.param(BinaryNCE(), marks=pytest.mark.nightly),
    ],
    ids=repr,
)
def test_the_loss_of_two_views_compiles_as_one_graph(objective) -> None:
    def loss(both: Tensor) -> Tensor:
        return from_views(both[0], both[1], objective, temperature=0.5)

    z = torch.randn(2, 6, 4, generator=generator(5))
    plain = z.clone().requires_grad_()
    watched = z.clone().requires_grad_()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")(watched)
    compiled.backward()
    loss(plain).backward()
    torch.testing.assert_close(compiled, loss(plain))
    torch.testing.assert_close(watched.grad, plain.grad)


def test_labels_and_a_learnt_temperature_compile_as_one_graph() -> None:
    labels = torch.arange(6) % 3
    scale = Scale()

    def loss(both: Tensor) -> Tensor:
        learnt = from_views(both[0], both[1], LearntTemperature(), module=scale)
        return learnt + from_views(both[0], both[1], SupCon(), labels=labels)

    z = torch.randn(2, 6, 4, generator=generator(5))
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(z), loss(z))


RANKED = [Ring(5, 60, k=None), Ball(50, k=None), Ball(20, k=None)]  # few keys, whose scores are computed one by one
QUERIES = unit(3, 0)
ROWS = unit(20, 1)


def loss_from(part: negatives.Negatives, pool: Pool, queries: Tensor) -> Tensor:
    """InfoNCE of queries whose positives are the first rows."""
    own = (queries * ROWS[:3]).sum(1)
    return InfoNCE()(Scores(own, read(pool, part))).sum()


def from_all_scores(part: negatives.Negatives, queries: Tensor) -> Tensor:
    return loss_from(part, Candidates(queries @ ROWS.T, torch.arange(3)), queries)


def from_stored_keys(part: negatives.Negatives, queries: Tensor) -> Tensor:
    return loss_from(part, Stored(queries, ROWS, torch.arange(3), dense=True), queries)


def from_a_stream(part: negatives.Negatives, queries: Tensor) -> Tensor:
    return loss_from(part, Stored(queries, ROWS, torch.arange(3), dense=False), queries)


@pytest.mark.parametrize("part", [Every(), Ring(0, 90, k=None), *RANKED], ids=repr)
@pytest.mark.parametrize("way", [from_all_scores, from_stored_keys, from_a_stream])
def test_a_loss_through_a_selection_has_gradients_of_any_order(part, way) -> None:
    loss = partial(way, part)
    queries = QUERIES.clone().requires_grad_()
    assert gradcheck(loss, [queries], check_forward_ad=True)
    assert gradgradcheck(loss, [queries])
    (gradient,) = torch.autograd.grad(loss(queries), queries)
    torch.testing.assert_close(torch.func.grad(loss)(QUERIES), gradient)


BATCHES = torch.stack([QUERIES, QUERIES.flip(0)])


@pytest.mark.parametrize("part", [Every(), Ring(0, 90, k=None), *RANKED], ids=repr)
def test_a_loss_through_a_selection_from_all_scores_may_be_mapped_over_batches(part) -> None:
    loss = partial(from_all_scores, part)
    expected = torch.stack([loss(queries) for queries in BATCHES])
    torch.testing.assert_close(torch.vmap(loss)(BATCHES), expected)


@pytest.mark.parametrize("part", RANKED, ids=repr)
@pytest.mark.parametrize("way", [from_stored_keys, from_a_stream])
def test_a_loss_through_few_stored_keys_says_that_it_cannot_be_mapped(part, way) -> None:
    with pytest.raises(NotApplicableError, match="vmap over Stored keys: expected Candidates"):
        torch.vmap(partial(way, part))(BATCHES)
