"""Doors: what is not finite or not there becomes no number, and precision and autograd are those of PyTorch."""

import math
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
from made_runs import generator, refused

OF_NEGATIVES = [Debiased(), Debiased(0.0), HardWeighted(), RINCE(), Triplet(), Sigmoid(), LearntTemperature(), SupCon(),
                SupCon("inside"), DecoupledWeighted()]  # fmt: skip
"""Objectives of later papers that read scores of negatives."""
REGIONS = [
    Ring(5, 50, k=None), Ring(5, 50, k=8), Ring(2, 98, k=None), Ball(50, k=None), Ball(50, k=8),
    Ball(nearest=12, k=None), Ball(nearest=12, k=8),
]  # fmt: skip


def unit(rows: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return F.normalize(torch.randn(rows, 6, generator=generator(seed), dtype=torch.float64), dim=1).to(dtype)


def read(pool: Pool, part: negatives.Negatives) -> Tensor:
    return pool.read(part.select(pool, BatchRandom(generator()), 0, 1))


def infinite_where(values: Tensor) -> list[bool]:
    loss = InfoNCE()(Scores(torch.zeros(len(values), dtype=values.dtype), values))
    return (~loss.isfinite()).tolist()


# What is not finite ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("part", REGIONS, ids=repr)
def test_a_score_that_is_not_finite_makes_its_loss_so_and_changes_no_other_query(part, bad) -> None:
    scores, own = unit(4, 0) @ unit(40, 1).T, torch.arange(4)
    expected = read(Candidates(scores, own), part)
    scores[2, 30] = bad
    got = read(Candidates(scores, own), part)
    assert infinite_where(got) == [False, False, True, False]
    assert not bool((got[2] == scores[2, 2]).any())  # its own key is no negative
    for query in (0, 1, 3):
        kept, wanted = (values[query][values[query] > ABSENT].sort().values for values in (got, expected))
        assert torch.equal(kept, wanted)


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("part", REGIONS, ids=repr)
def test_a_stored_key_that_is_not_finite_shows_in_every_loss_but_not_as_an_excluded_one(part, dense) -> None:
    queries, rows, own = unit(4, 0), unit(40, 1), torch.arange(4)
    rows[30] = math.nan
    assert infinite_where(read(Stored(queries, rows, own, dense=dense), part)) == [True] * 4
    banned = torch.full((4, 1), 30)
    assert infinite_where(read(Stored(queries, rows, own, None, banned, dense), part)) == [False] * 4


@pytest.mark.parametrize("objective", [InfoNCE(), InfoNCE(False), BinaryNCE(), BinaryNCE(None), FMICL(), Spectral(),
                                       AlignUniform(), *OF_NEGATIVES], ids=repr)  # fmt: skip
def test_a_negative_that_is_not_a_number_makes_the_loss_none(objective) -> None:
    scores = Scores(torch.zeros(2), torch.tensor([[0.0, math.nan], [0.0, 0.5]]), highest=1.0)
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
    z, scale = torch.tensor([[1.0, 0.0], [-1.0, 0.0]]), Scale(-10.0)
    assert from_views(z, z, Sigmoid(), module=scale).isfinite()
    scale.log_factor.data.fill_(200.0)
    assert not from_views(z, z, Sigmoid(), module=scale).isfinite()


def test_an_infinite_score_is_no_perfect_one() -> None:
    infinite, missing = torch.tensor([math.inf, 0.0]), torch.tensor([math.nan, 0.0])
    none = torch.full((2, 3), ABSENT)
    losses = [
        BinaryNCE()(Scores(infinite, torch.zeros(2, 3))),
        objectives.local_aggregation(torch.zeros(2, 1), torch.stack([infinite, infinite], 1)),
        InfoNCE(False)(Scores(missing, none)),
    ]
    for loss in losses:
        assert loss.isfinite().tolist() == [False, True]
    assert float(losses[-1][1]) == 0


def test_what_may_not_be_stored_is_refused_and_nothing_is_stored() -> None:
    queue, bank = keys.KeyQueue(8, 6, generator()), keys.MemoryBank(8, 6, generator())
    before, rows, at = queue.rows.clone(), bank.rows.clone(), torch.arange(2)
    good = unit(2, 3, torch.float32)
    bad = torch.stack([good[0], torch.full((6,), math.nan)])
    refused(
        (lambda: queue.enqueue(bad), ArgumentError, "keys='nan or inf in 1 of 2 rows': expected finite"),
        (lambda: queue.enqueue(good * 50), ArgumentError, "keys='a row of length 50'.*divided by their length"),
        (lambda: queue.enqueue(good[:, :5]), ArgumentError, r"keys=\(2, 5\).*\[B, 6\]"),
        (lambda: queue.enqueue(good.long()), ArgumentError, "keys=torch.int64"),
        (lambda: queue.enqueue(good.tolist()), ArgumentError, "keys='list'"),
        (lambda: queue.enqueue(good.to("meta")), ArgumentError, "keys='meta'.*the queue's cpu"),
        (lambda: bank.update(at, bad, 0.5), ArgumentError, "embeddings='nan or inf in 1 of 2 rows'"),
        (lambda: bank.update(at, good, 1.5), ArgumentError, "rate=1.5"),
        (lambda: keys.KeyQueue(0, 6, generator()), ArgumentError, "size=0"),
        (lambda: keys.MemoryBank(0, 6, generator()), ArgumentError, "size=0"),
    )
    assert torch.equal(queue.rows, before)
    assert torch.equal(bank.rows, rows)
    queue.enqueue(good.bfloat16())
    assert int(queue.pointer) == 2


def test_features_that_are_not_finite_are_never_scored() -> None:
    train, labels, test = unit(20, 0, torch.float32), torch.arange(20) % 2, unit(10, 1, torch.float32)
    truth, broken = torch.arange(10) % 2, test.clone()
    broken[3, 2] = math.inf
    scorers = {
        "nearest": lambda x, y: tasks.nearest_neighbour(x, labels, y, truth),
        "knn": lambda x, y: tasks.knn(x, labels, y, truth, k=5),
        "lbfgs": lambda x, y: tasks.linear_lbfgs(x, labels, y),
    }
    for score in scorers.values():
        score(train, test)
        refused(
            (lambda score=score: score(train, broken), ArgumentError, "test='nan or inf in 1 of 10 rows'"),
            (lambda score=score: score(train * math.nan, test), ArgumentError, "train='nan or inf in 20 of 20 rows'"),
            (lambda score=score: score(train[:0], test), ArgumentError, r"train=\(0, 6\)"),
            (lambda score=score: score(train, test[:, :4]), ArgumentError, r"test=\(10, 4\)"),
            (lambda score=score: score(train.long(), test), ArgumentError, "train=torch.int64"),
            (lambda score=score: score(train * 1e38, test * 1e38), ArgumentError, "(train|products)='"),
        )
    refused(
        (lambda: tasks.nearest_neighbour(train, labels, test, truth[:5]), ArgumentError, r"test_labels=\(5,\)"),
        (lambda: tasks.knn(train, labels, test, truth[:5]), ArgumentError, r"test_labels=\(5,\)"),
        (lambda: tasks.linear_lbfgs(train, labels.float(), test), ArgumentError, "labels=torch.float32"),
        (lambda: tasks.linear_lbfgs(train, labels.tolist(), test), ArgumentError, "labels='list'"),
    )
    refused((lambda: tasks.correct(broken, truth), ArgumentError, "scores='nan or inf in 1 of 10 rows'"))


# What is not there ----------------------------------------------------------------------------------------------------


def test_a_key_that_is_excluded_twice_counts_once() -> None:
    own, banned = torch.arange(3), torch.tensor([[0, 7], [1, 8], [2, 9]])
    pool = Candidates(unit(3, 0) @ unit(12, 1).T, own, None, banned)
    assert pool.left("excluded") == pool.left("ranked") == 10
    chosen = Every().select(pool, BatchRandom(generator()), 0, 1)
    assert chosen.count(12) == int((pool.read(chosen) > ABSENT).sum(1)[0]) == 10
    drawn = Uniform(500).select(pool, BatchRandom(generator()), 0, 1).indices
    assert [len(set(row)) for row in drawn.tolist()] == [10] * 3


@pytest.mark.parametrize("part", [Every(), Uniform(4), Ball(nearest=2, k=None), Ball(nearest=2, k=4), Ring(0, 100),
                                  Ball(100, k=None)], ids=repr)  # fmt: skip
@pytest.mark.parametrize("case", ["all are banned", "more are banned than there are", "no keys", "the own one alone"])
def test_keys_that_do_not_suffice_are_refused(part, case) -> None:
    own, banned, count = None, None, 3
    if case == "all are banned":
        banned = torch.arange(3).repeat(2, 1)
    elif case == "more are banned than there are":
        banned = torch.tensor([[0, 1, 2, 1, 0]] * 2)
    elif case == "no keys":
        count = 0
    else:
        own, count = torch.zeros(2, dtype=torch.int64), 1
    pool = Candidates(torch.zeros(2, count), own, None, banned)
    refused((lambda: part.select(pool, BatchRandom(generator()), 0, 1), ArgumentError, f"keys={count}: expected"))


def test_losses_of_nothing_are_refused() -> None:
    none = torch.zeros(0)
    refused(
        (lambda: objectives.info_nce(none, torch.zeros(0, 3)), ArgumentError, r"own=\(0,\)"),
        (lambda: objectives.multi_key_info_nce(torch.zeros(2, 0), torch.zeros(2, 3)), ArgumentError, r"own=\(2, 0\)"),
        (lambda: Scores(none, torch.zeros(0, 3)), ArgumentError, r"own=\(0,\)"),
        (lambda: Candidates(torch.zeros(0, 3)), ArgumentError, "queries=0"),
        (lambda: from_views(torch.zeros(2, 0), torch.zeros(2, 0)), ArgumentError, "D > 0"),
    )


# Theory ---------------------------------------------------------------------------------------------------------------


def test_bounds_of_nothing_or_of_integers_are_refused() -> None:
    some, none, whole = torch.zeros(3), torch.zeros(0), torch.arange(3)
    every = bounds.nwj, bounds.donsker_varadhan, bounds.Mine(), partial(bounds.f_information, divergence=divergences.KL)
    for bound in every:
        refused(
            (lambda bound=bound: bound(some, none), ArgumentError, r"independents=\(0,\)"),
            (lambda bound=bound: bound(none, some), ArgumentError, r"positives=\(0,\)"),
            (lambda bound=bound: bound(whole, some), ArgumentError, "positives=torch.int64"),
            (lambda bound=bound: bound(some, whole), ArgumentError, "independents=torch.int64"),
        )
    refused(
        (lambda: bounds.Mine(rate=0), ArgumentError, "rate=0"),
        (lambda: bounds.pairs(whole.repeat(3, 1)), ArgumentError, "scores=torch.int64"),
        (lambda: toys.JointGaussian.with_information(-1), ArgumentError, "nats=-1"),
        (lambda: toys.JointGaussian.with_information(40), ArgumentError, "nats=40"),
        (lambda: toys.JointGaussian.with_information(1, 0), ArgumentError, "dimension=0"),
        (lambda: toys.JointGaussian.correlated(0.5, 0), ArgumentError, "dimension=0"),
        (lambda: exact.info_nce(exact.Joint.of(np.eye(2)), np.zeros((2, 2)), 2.5), ArgumentError, "draws=1.5"),
        (lambda: critics.mlp([]), ArgumentError, r"sizes=\[\]"),
        (lambda: critics.mlp([3]), ArgumentError, r"sizes=\[3\]"),
        (lambda: critics.mlp(3), ArgumentError, "sizes=3"),
    )


@pytest.mark.parametrize("make", [
    lambda x: x.numpy().astype(np.float64), lambda x: x.double(), lambda x: critics.normal_scores(x)(x),
    lambda x: (100 * x).long(), lambda x: (100 * x).long().numpy(), lambda x: x.bfloat16(),
], ids=["numpy", "float64", "normal scores", "integers", "integers of numpy", "bfloat16"])  # fmt: skip
def test_a_critic_is_fitted_to_samples_of_any_precision(make) -> None:
    x, y = toys.JointGaussian.with_information(1.0).sample(300, generator())
    critic = critics.Separable(critics.mlp([1, 4]))
    done = critics.fit(critic, lambda s: bounds.info_nce(*bounds.pairs(s)), make(x), make(y), batch=32, epochs=2)
    assert math.isfinite(done.value)


def test_samples_that_a_critic_cannot_be_fitted_to_are_named() -> None:
    x, critic = torch.randn(300, 1, generator=generator()), critics.Separable(critics.mlp([1, 4]))
    missing = x.clone()
    missing[7] = math.nan

    def fit(*pairs: object) -> object:
        return critics.fit(critic, lambda s: bounds.info_nce(*bounds.pairs(s)), *pairs, batch=32, epochs=1)

    refused(
        (lambda: fit(missing, x), ArgumentError, "x='nan or inf in 1 of 300 rows'"),
        (lambda: fit(x, missing), ArgumentError, "y='nan or inf in 1 of 300 rows'"),
        (lambda: fit(x[:, 0], x), ArgumentError, r"x=\(300,\).*x\[:, None\]"),
        (lambda: fit(x.tolist(), x), ArgumentError, "x='list'"),
        (lambda: fit(np.array([["a"]] * 300), x), ArgumentError, "x='<U1'"),
        (lambda: fit(x.to("meta"), x), ArgumentError, "x='meta'"),
        (lambda: fit(x.to(torch.complex64), x), ArgumentError, "x=torch.complex64"),
        (lambda: critics.normal_scores(x[:, 0]), ArgumentError, r"samples=\(300,\)"),
        (lambda: critics.normal_scores(missing), ArgumentError, "samples='nan or inf in 1 of 300 rows'"),
        (lambda: critics.evaluate(critic, lambda s: s.mean(), x, x, 500), ArgumentError, "batch=500"),
    )


# Precision and autograd -----------------------------------------------------------------------------------------------


def twin(z1: Tensor, z2: Tensor, temperature: float = 0.1) -> float:
    """SimCLR's loss, pair by pair in Python's numbers."""
    z = [[v / math.hypot(*row) for v in row] for row in (*z1.tolist(), *z2.tolist())]
    batch, losses = len(z1), []
    for i, row in enumerate(z):
        scores = [sum(a * b for a, b in zip(row, other, strict=True)) / temperature for other in z]
        others = [s for j, s in enumerate(scores) if j != i]
        losses.append(math.log(math.fsum(math.exp(s - 1 / temperature) for s in others)) + 1 / temperature
                      - scores[(i + batch) % (2 * batch)])  # fmt: skip
    return math.fsum(losses) / len(losses)


def test_two_views_keep_double_precision_and_any_length() -> None:
    z1, z2 = torch.randn(2, 5, 7, generator=generator(3), dtype=torch.float64)
    expected = twin(z1, z2)
    for scale in (1.0, 1e200, 1e-200):
        loss = from_views(z1 * scale, z2 * scale)
        assert loss.dtype == torch.float64
        assert loss.item() == pytest.approx(expected, rel=1e-14)
    for scale in (1e30, 1e-30):
        assert from_views((z1 * scale).float(), z2.float()).item() == pytest.approx(expected, rel=1e-5)
    for dtype in (torch.bfloat16, torch.float16):
        low = from_views(z1.to(dtype), z2.to(dtype))
        assert low.dtype == torch.float32
        assert low.item() == pytest.approx(twin(z1.to(dtype).double(), z2.to(dtype).double()), rel=1e-5)


@pytest.mark.parametrize(("objective", "labels"), [
    (HardWeighted(0.0), None), (SupCon("inside"), torch.zeros(6, dtype=torch.int64)),
], ids=repr)  # fmt: skip
def test_counts_of_keys_have_double_precision_too(objective, labels) -> None:
    same = torch.ones(6, 4, dtype=torch.float64)
    assert from_views(same, same, objective, labels=labels).item() == pytest.approx(math.log(11), rel=1e-14)


@pytest.mark.parametrize("q", [1e-5, 1e-8, 1e-20])
def test_a_small_power_keeps_its_digits(q) -> None:
    z = torch.randn(2, 6, 4, generator=generator(3))
    expected = from_views(z[0], z[1], temperature=0.5) + math.log(0.2)
    assert from_views(z[0], z[1], RINCE(q, 0.2), temperature=0.5).item() == pytest.approx(float(expected), abs=1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_loss_of_two_views_is_float32_inside_autocast(dtype) -> None:
    z = torch.randn(2, 6, 8, generator=generator(1)).requires_grad_()

    def loss() -> Tensor:
        return from_views(z[0], z[0] + 0.01 * z[1], temperature=0.05)

    expected = loss()
    with torch.autocast("cpu", dtype=dtype):
        got = loss()
    assert torch.equal(got, expected)
    assert torch.equal(*(torch.autograd.grad(each, z)[0] for each in (got, expected)))


@pytest.mark.parametrize("part", [Every(), Uniform(3), Ring(5, 60, k=None), Ball(50, k=4)], ids=repr)
@pytest.mark.parametrize("dense", [True, False])
def test_scores_of_stored_keys_are_float32_inside_autocast(part, dense) -> None:
    queries, rows = unit(4, 0, torch.float32), unit(40, 1, torch.float32)
    expected = read(Stored(queries, rows, torch.arange(4), dense=dense), part)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = read(Stored(queries, rows, torch.arange(4), dense=dense), part)
    assert torch.equal(got, expected)


@pytest.mark.parametrize("objective", [InfoNCE(), FMICL(), AlignUniform(), BinaryNCE(None)], ids=repr)
def test_the_loss_of_two_views_has_a_shape_on_a_device_without_numbers(objective) -> None:
    z = torch.zeros(4, 3, device="meta")
    assert from_views(z, z, objective, temperature=0.5).shape == ()


def test_views_that_are_no_two_dense_real_tensors_are_named() -> None:
    z = torch.randn(4, 3, generator=generator())
    refused(
        (lambda: from_views(z.to(torch.complex64), z), ArgumentError, "z1=torch.complex64"),
        (lambda: from_views(z, z.long()), ArgumentError, "z2=torch.int64"),
        (lambda: from_views(z.numpy(), z), ArgumentError, "z1='ndarray'"),
        (lambda: from_views(torch.nested.nested_tensor([z[0]]), z), ArgumentError, "z1='torch.float32, nested'"),
        (lambda: from_views(z.to_sparse(), z), ArgumentError, "z1='torch.float32, torch.sparse_coo'"),
        (lambda: from_views(z, z.to("meta")), ArgumentError, "z1, z2='cpu, meta': expected tensors of one device"),
        (lambda: from_views(z, z, "infonce"), ArgumentError, r"objective='infonce'.*objectives.InfoNCE\(\)"),
        (lambda: from_views(z, z, InfoNCE), ArgumentError, "objective='InfoNCE, a class'"),
        (lambda: from_views(z, z, temperature=1e-31), ArgumentError, "temperature=1e-31: .*at least 1e-28"),
        (lambda: from_views(z, z, temperature=torch.ones((), device="meta")), NotApplicableError, "no value"),
        (lambda: torch.vmap(lambda t: from_views(z, z, temperature=t))(torch.ones(2)), NotApplicableError, "no value"),
        (lambda: Stored(z, z.double()), ArgumentError, "queries, keys='torch.float32, torch.float64'"),
        (lambda: Stored(z, z.to("meta")), ArgumentError, "'cpu, meta': expected tensors of one device"),
        (lambda: Candidates(z.to("meta"), torch.arange(4) % 3), ArgumentError, "logits, own='meta, cpu'"),
    )


def test_a_module_that_the_objective_does_not_train_is_named() -> None:
    z, scale = torch.randn(4, 3, generator=generator()), Scale(-1.0)
    refused(
        (lambda: from_views(z, z, module=scale), ArgumentError, "module='Scale': .*InfoNCE.*which trains nothing"),
        (lambda: from_views(z, z, Sigmoid(), module="x"), ArgumentError, "module='str': .*torch.nn.Module"),
        (lambda: from_views(z, z, Sigmoid(), module=Scale), ArgumentError, "module='Scale, a class'"),
        (lambda: from_views(z, z, Sigmoid(), module=nn.Linear(2, 2)), ArgumentError, "'Linear': .* a Scale with Sigm"),
        (lambda: from_views(z, z, BinaryNCE(None), module=scale), ArgumentError, "'Scale': .*FirstOffset with Binary"),
        (lambda: from_views(z, z, Sigmoid(), module=Scale()), ArgumentError, "a Scale with a bias"),
        (lambda: from_views(z, z, Sigmoid(), module=Scale(-1.0).to("meta")), ArgumentError, "embeddings='meta, cpu'"),
    )


def test_a_negative_label_is_no_class_and_labels_of_any_width_are_integers() -> None:
    z, labels = torch.randn(2, 4, 3, generator=generator(4)), torch.tensor([0, -1, -1, 0])
    alone = from_views(z[0], z[1], SupCon(), labels=torch.tensor([0, 1, 2, 0]))
    assert torch.equal(from_views(z[0], z[1], SupCon(), labels=labels), alone)
    whole = torch.tensor([0, 1, 2, 0])
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.uint16, torch.uint32, torch.uint64):
        assert torch.equal(from_views(z[0], z[1], SupCon(), labels=whole.to(dtype)), alone)
    quantised = torch.quantize_per_tensor(whole.float(), 1.0, 0, torch.quint8)
    for other, words in (
        (whole.to_sparse(), "'torch.int64, torch.sparse_coo'"), (quantised, "torch.quint8"),
        (torch.nested.nested_tensor([whole]), "'torch.int64, nested'"), (whole.to("meta"), "'meta, cpu'"),
    ):  # fmt: skip
        with pytest.raises(ArgumentError, match=f"^labels.*={words}"):
            from_views(z[0], z[1], SupCon(), labels=other)


@pytest.mark.parametrize("around", [torch.no_grad, torch.inference_mode, lambda: torch.device("meta")])
def test_a_recipe_with_f_micl_can_be_made_anywhere(around) -> None:
    objectives._overflows.cache_clear()
    with around():
        FMICL("jeffrey").check(0.5)
        FMICL("kl", similarity="cosine").check(0.5)
        refused((lambda: FMICL("neyman").check(0.01), ArgumentError, "temperature=0.01"))


EVERY_OBJECTIVE = [InfoNCE(), InfoNCE(False), BinaryNCE(), FMICL(), FMICL("jeffrey", similarity="cosine", weight=1.0),
                   AlignUniform(), Spectral(), HardWeighted(), RINCE(), Triplet(), Sigmoid(), SupCon(),
                   DecoupledWeighted(), BarlowTwins(), VICReg()]  # fmt: skip


@pytest.mark.parametrize("objective", EVERY_OBJECTIVE, ids=repr)
def test_gradients_of_any_order_and_transforms_of_the_loss_of_two_views(objective) -> None:
    z = torch.randn(3, 4, 3, generator=generator(2), dtype=torch.float64)

    def loss(one: Tensor, other: Tensor) -> Tensor:
        return from_views(one, other, objective, temperature=2.0)

    inputs = [z[0].clone().requires_grad_(), z[1].clone().requires_grad_()]
    assert gradcheck(loss, inputs, check_forward_ad=True)
    assert gradgradcheck(loss, inputs)
    (gradient,) = torch.autograd.grad(loss(*inputs), inputs[:1])
    torch.testing.assert_close(torch.func.grad(loss)(z[0], z[1]), gradient)
    _, tangent = torch.func.jvp(lambda one: loss(one, z[1]), (z[0],), (z[2],))
    torch.testing.assert_close(tangent, (gradient * z[2]).sum())
    each = torch.vmap(loss, in_dims=(0, None))(z, z[1])
    torch.testing.assert_close(each, torch.stack([loss(one, z[1]) for one in z]))
    slopes = torch.vmap(torch.func.grad(loss), in_dims=(0, None))(z, z[1])
    torch.testing.assert_close(slopes, torch.stack([torch.func.grad(loss)(one, z[1]) for one in z]))


OTHERS = AlignUniform(), Spectral(), BinaryNCE()


@pytest.mark.parametrize("objective", [
    InfoNCE(), FMICL(), *(pytest.param(each, marks=pytest.mark.nightly) for each in OTHERS),
], ids=repr)  # fmt: skip
def test_the_loss_of_two_views_compiles_as_one_graph(objective) -> None:
    z = torch.randn(2, 6, 4, generator=generator(5))

    def loss(both: Tensor) -> Tensor:
        return from_views(both[0], both[1], objective, temperature=0.5)

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    plain, whole = (z.clone().requires_grad_() for _ in range(2))
    torch.testing.assert_close(compiled(whole), loss(plain))
    compiled(whole).backward()
    loss(plain).backward()
    torch.testing.assert_close(whole.grad, plain.grad)


def test_labels_and_a_learnt_temperature_compile_as_one_graph() -> None:
    z, labels, scale = torch.randn(2, 6, 4, generator=generator(5)), torch.arange(6) % 3, Scale()

    def loss(both: Tensor) -> Tensor:
        learnt = from_views(both[0], both[1], LearntTemperature(), module=scale)
        return learnt + from_views(both[0], both[1], SupCon(), labels=labels)

    torch.testing.assert_close(torch.compile(loss, fullgraph=True, backend="aot_eager")(z), loss(z))


@pytest.mark.parametrize(
    "part", [Every(), Ring(5, 60, k=None), Ring(0, 90, k=None), Ball(50, k=None), Ball(20, k=None)], ids=repr
)
@pytest.mark.parametrize("way", ["all scores", "stored", "a stream"])
def test_gradients_of_any_order_through_a_selection(part, way) -> None:
    queries, rows, own = unit(3, 0), unit(20, 1), torch.arange(3)

    def loss(q: Tensor) -> Tensor:
        pool = Candidates(q @ rows.T, own) if way == "all scores" else Stored(q, rows, own, dense=way == "stored")
        return InfoNCE()(Scores((q * rows[:3]).sum(1), read(pool, part))).sum()

    inputs = [queries.clone().requires_grad_()]
    assert gradcheck(loss, inputs, check_forward_ad=True)
    assert gradgradcheck(loss, inputs)
    (gradient,) = torch.autograd.grad(loss(*inputs), inputs)
    torch.testing.assert_close(torch.func.grad(loss)(queries), gradient)
    many = torch.stack([queries, queries.flip(0)])
    if way == "all scores":
        expected = torch.stack([loss(q) for q in many])
        torch.testing.assert_close(torch.vmap(loss)(many), expected)
    elif isinstance(part, Ball) or part == Ring(5, 60, k=None):  # few keys, whose scores are computed one by one
        refused((lambda: torch.vmap(loss)(many), NotApplicableError, "vmap over Stored keys: expected Candidates"))
