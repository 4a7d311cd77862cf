"""The supervised contrastive losses against loops in float64, their printed gradients, and the labels they read."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from contrastlab import keys, methods, negatives, objectives, positives
from contrastlab.negatives import BatchRandom, Every
from contrastlab.objectives import FMICL, BinaryNCE, InfoNCE, Scores, Spectral
from contrastlab.papers.supcon.objective import SupCon
from contrastlab.scores.candidates import Candidates
from contrastlab.settings import Settings
from contrastlab.support.errors import ArgumentError, NotApplicableError
from contrastlab.train import pretrain
from contrastlab.train.learner import Learner
from made_runs import quiet
from made_scores import TEMPERATURES

LABELS = torch.tensor([0, 1, 0, 2, 1, 0])  # the item of class 2 has no other of its class
MEANS = ["outside", "inside"]


def views(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    draws = torch.Generator().manual_seed(5)
    z1, z2 = torch.randn(2, 6, 4, generator=draws, dtype=torch.float64).to(dtype)
    return z1, z2


def twin(z1: Tensor, z2: Tensor, labels: Tensor, mean: str, temperature: float) -> Tensor:
    """One anchor after the other, as Eq. 2 and 3 are printed: A(i) is all but i, P(i) what of it has i's label."""
    z = [row / row.norm() for row in (*z1, *z2)]
    both = [*labels.tolist(), *labels.tolist()]
    losses = []
    for i, anchor in enumerate(z):
        others = [j for j in range(len(z)) if j != i]
        same = [j for j in others if both[j] == both[i]]
        exponentials = {j: (anchor @ z[j] / temperature).exp() for j in others}
        total = sum(exponentials.values(), torch.zeros(()))
        shares = [exponentials[j] / total for j in same]
        if mean == "outside":
            losses.append(-sum((share.log() for share in shares), torch.zeros(())) / len(same))
        else:
            losses.append(-(sum(shares, torch.zeros(())) / len(same)).log())
    return torch.stack(losses).mean()


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("mean", MEANS)
def test_the_loss_of_two_views_and_its_gradients_are_those_of_the_printed_equation(mean, temperature) -> None:
    z1, z2 = (z.requires_grad_() for z in views())
    loss = objectives.from_views(z1, z2, SupCon(mean), temperature=temperature, labels=LABELS)
    expected = twin(z1, z2, LABELS, mean, temperature)
    torch.testing.assert_close(loss, expected)
    slopes = torch.autograd.grad(loss, (z1, z2))
    torch.testing.assert_close(slopes, torch.autograd.grad(expected, (z1, z2)))
    single = objectives.from_views(*views(torch.float32), SupCon(mean), temperature=temperature, labels=LABELS)
    torch.testing.assert_close(single.double(), expected.detach(), rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("mean", MEANS)
def test_the_learner_has_the_loss_of_two_views_whatever_the_number_of_chunks(mean: str) -> None:
    z1, z2 = (F.normalize(z, dim=1) for z in views(torch.float32))
    expected = twin(z1.double(), z2.double(), LABELS, mean, 0.1)
    recipe = methods.get("supcon/out" if mean == "outside" else "supcon/in")
    for chunks in (1, 3):
        settings = Settings(dim=4, accumulate=chunks)
        encoders = torch.nn.ModuleList([torch.nn.Identity()])
        learner = Learner(recipe, settings, images=6, classes=3, seed=0, encoders=encoders)
        draws = BatchRandom(torch.Generator())
        loss = learner.loss((z1.requires_grad_(), z2), torch.arange(6), LABELS, draws, 0, 1).loss
        assert loss.item() == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_the_mean_inside_the_logarithm_is_never_larger_and_one_positive_is_info_nce(temperature: float) -> None:
    """Section 3.2.2: Jensen's inequality; and with a label for each item both forms are SimCLR."""
    z1, z2 = views()
    inside, outside = (
        objectives.from_views(z1, z2, SupCon(mean), temperature=temperature, labels=LABELS)
        for mean in ("inside", "outside")
    )
    assert inside < outside
    simclr = objectives.from_views(z1, z2, temperature=temperature)
    for mean in MEANS:
        own = objectives.from_views(z1, z2, SupCon(mean), temperature=temperature, labels=torch.arange(6))
        torch.testing.assert_close(own, simclr)
        torch.testing.assert_close(objectives.from_views(z1, z2, SupCon(mean), temperature=temperature), simclr)


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("mean", MEANS)
def test_the_gradient_in_a_score_is_its_share_minus_that_among_the_positives(mean, temperature) -> None:
    """The paper's gradient: ``P_ip − X_ip``, with X uniform for ``out`` and the positives' own softmax for ``in``."""
    draws = torch.Generator().manual_seed(2)
    logits = ((torch.rand(5, 9, generator=draws, dtype=torch.float64) * 2 - 1) / temperature).requires_grad_()
    further = torch.rand(5, 8, generator=draws) < 0.4
    own, negatives = logits[:, 0], logits[:, 1:]
    scores = Scores(own, negatives, negatives.masked_fill(~further, -1e30))
    (slope,) = torch.autograd.grad(SupCon(mean)(scores).sum(), logits)
    is_positive = torch.cat([torch.ones(5, 1, dtype=torch.bool), further], 1)
    if mean == "outside":
        target = is_positive / is_positive.sum(1, keepdim=True)
    else:
        target = torch.softmax(logits.masked_fill(~is_positive, -math.inf), 1)
    torch.testing.assert_close(slope, (torch.softmax(logits, 1) - target).detach())


def test_info_nce_with_labels_sums_over_the_positives_in_its_numerator() -> None:
    z1, z2 = views()
    count = torch.tensor([(label == LABELS).sum() * 2 - 1 for label in LABELS]).double()
    inside = objectives.from_views(z1, z2, SupCon("inside"), labels=LABELS)
    plain = objectives.from_views(z1, z2, InfoNCE(), labels=LABELS)
    torch.testing.assert_close(inside - plain, count.log().mean())


def test_positives_of_the_same_label_are_those_of_a_loop() -> None:
    labels = torch.tensor([0, 1, 0, 2, 1, 0, 0])[:, None]
    own, banned = torch.tensor([0, 4, 3]), torch.tensor([[2], [5], [6]])
    pool = Candidates(torch.zeros(3, 7), own, labels, banned)
    chosen = positives.SameLabel().select(pool, Every().select(pool, BatchRandom(torch.Generator()), 0, 1),
                                          BatchRandom(torch.Generator()), 0, 1)  # fmt: skip
    assert chosen is not None
    assert chosen.absent is not None
    assert [(~row).nonzero().flatten().tolist() for row in chosen.absent] == [[5, 6], [1], []]
    with pytest.raises(ArgumentError, match="^labels=None: expected the classes of the keys"):
        positives.SameLabel().select(Candidates(torch.zeros(3, 7), own), chosen, BatchRandom(torch.Generator()), 0, 1)


@pytest.mark.parametrize(
    ("labels", "objective", "message"),
    [
        (LABELS[:5], SupCon(), r"^labels=\(5,\): expected None, or integers of shape \[6\]"),
        (LABELS.double(), SupCon(), "^labels=torch.float64: expected None, or integers"),
        (LABELS.tolist(), SupCon(), "^labels='list': expected None, or integers"),
        (LABELS, BinaryNCE(), "^labels=torch.int64: expected None here: BinaryNCE.* decides about one positive"),
        (LABELS, FMICL(), "^labels=torch.int64: expected None here: FMICL.*neighbours in a numerator"),
        (LABELS, Spectral(), "^labels=torch.int64: expected None here: Spectral"),
    ],
)
def test_labels_that_do_not_fit_are_refused(labels, objective, message) -> None:
    with pytest.raises(ArgumentError, match=message):
        objectives.from_views(*views(), objective, labels=labels)


def test_what_it_needs_is_refused_by_name(pictures, tiny) -> None:
    recipe = methods.get("supcon/out")
    with pytest.raises(NotApplicableError, match=r"SameLabel\(\) reads the classes of the keys, which a batch has"):
        replace(recipe, name="x/queue", keys=keys.Queue())
    with pytest.raises(NotApplicableError, match=r"SupCon\(mean='outside'\) has one key of the item"):
        replace(recipe, name="x/many", keys=keys.Queue(), views=methods.get("jcl/jcl").views,
                negatives=negatives.Every(), positives=positives.Many())  # fmt: skip
    with pytest.raises(ArgumentError, match="^mean='middle': expected outside or inside"):
        SupCon("middle")  # type: ignore[arg-type]
    unlabelled = pictures(48)
    unlabelled.labels[3] = -1
    with pytest.raises(NotApplicableError, match="supcon/out reads labels; this pre-training set has unlabelled"):
        pretrain(recipe, tiny, unlabelled, log=quiet)
    assert recipe.reads_labels
    assert not methods.get("ring/simclr").reads_labels
