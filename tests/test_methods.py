"""Recipes: every published row has one, each says what it is and trains, impossible ones say why."""

import importlib
import math
import sys
from dataclasses import dataclass, replace

import pytest
import torch
from torch.nn import functional as F

from contrastlab import keys, methods, negatives, objectives, papers, positives, views
from contrastlab.recipe import foreign_code
from contrastlab.scores.choices import Part
from contrastlab.scores.schedules import Linear
from contrastlab.support.errors import ArgumentError, NotApplicableError
from contrastlab.tables import results
from contrastlab.train import pretrain
from contrastlab.train.learner import Learner
from contrastlab.views import Augmented, Split
from made_runs import generator, quiet

TABLES = [("ring", "1"), ("ring", "2"), ("vince", "1"), ("cmc", "1")]
SIMCLR = replace(methods.get("ring/moco"), name="x/simclr", keys=keys.InBatch())


@pytest.mark.parametrize(("paper", "table"), TABLES)
def test_every_published_row_has_a_recipe(paper: str, table: str) -> None:
    printed = papers.published(paper, table)
    rows = [row for row in printed["row"].unique() if "minus base" not in row]
    plan = papers.plan(paper, table)
    assert set(rows) == set(plan.rows.values()) - {""}  # a row may be printed by no paper
    assert all(methods.get(method).name in methods.names() for method in plan.rows)


def test_a_part_that_is_no_dataclass_is_refused_by_name() -> None:
    class Plain(objectives.InfoNCE):
        weight: float = 0.5  # no field, as the author forgot the decorator

    with pytest.raises(ArgumentError, match=r"objective='Plain': expected .*@dataclass\(frozen=True\) stands above"):
        replace(methods.get("ring/moco"), name="x/plain", objective=Plain())
    with pytest.raises(NotImplementedError, match="Part has no latex"):
        _ = Part().latex


def test_a_recipe_shows_and_describes_its_equation_and_every_choice() -> None:
    for recipe in map(methods.get, methods.names()):
        shown = recipe._repr_markdown_()
        assert recipe.equation
        assert recipe.equation.count("{") == recipe.equation.count("}")
        for piece in (recipe.equation, recipe.note, *(f"| {part} |" for part in methods.CHOICES)):
            assert piece in shown
    assert len(methods.names("vince")) == 26
    sources = ("ours", *papers.PAPERS)
    assert sorted(methods.names()) == sorted(n for p in sources for n in methods.names(p))
    described = [str(methods.get(name).describe()) for name in methods.names()]
    assert len(set(described)) == len(described)
    ring = methods.get("ring/iring").describe()
    assert ring["temperature"] == 0.07
    assert ring["negatives"]["type"] == "Ring"
    assert ring["negatives"]["outer"] == {"type": "Linear", "start": 100, "end": 10}


def test_different_recipes_have_different_equations_or_views() -> None:
    seen: dict[tuple[str, str, object], str] = {}
    for name in methods.names():
        # the same as vince/la, by its note; RandAugment and the number of blocks are settings
        if name in ("ring/la", "cmc/ydbdr_ra", "cmc/cmc_moco_pirl_ra", "fmicl/moco_v3_six_blocks"):
            continue
        recipe = methods.get(name)
        if recipe.keys is None:  # what is trained then is up to the task
            continue
        key = (recipe.name.split("/")[0], recipe.equation, recipe.views)
        assert key not in seen, (name, seen[key])
        seen[key] = name


def test_get_takes_short_names() -> None:
    assert methods.get("iring", "ring") is methods.get("ring/iring")
    assert methods.get("random") is methods.get("ours/random")


def test_override_changes_fields_that_exist() -> None:
    changes = {"negatives.k": 99, "keys.size": 77, "positives.clusters": 5, "temperature": 0.2}
    ir, moco_ring, la = (methods.get(n).override(changes) for n in ("ring/ir", "ring/mocoring", "vince/la"))
    assert ir == replace(methods.get("ring/ir"), negatives=negatives.Uniform(99), temperature=0.2)
    assert moco_ring.negatives == methods.get("ring/mocoring").negatives  # k=None, the whole ring, stays
    assert moco_ring.keys == keys.Queue(77, 0.999)
    assert la.positives == positives.SameCluster(5, 10)
    assert la.negatives == methods.get("vince/la").negatives
    assert methods.get("random").override(changes).keys is None
    assert methods.get("ring/ir").negatives.k == 4095  # the registered recipe is as it was


def base(**parts) -> methods.Recipe:
    return methods.Recipe("x/y", "Y", **parts)


def test_pictures_that_do_not_fit_a_recipe_are_refused(pictures, tiny) -> None:
    with pytest.raises(NotApplicableError, match=r"grey|gray|channel|colour"):
        pretrain(methods.get("ring/cmc"), tiny, pictures(48, 1), log=quiet)
    with pytest.raises(ArgumentError, match=r"clusters=300: .*48"):
        pretrain(methods.get("vince/cave"), tiny, pictures(48), log=quiet)


class Fixed(torch.nn.Module):
    """Gives back the rows it was handed as its views."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale


def learner(recipe: methods.Recipe, tiny, images: int = 30) -> Learner:
    encoders = torch.nn.ModuleList(Fixed() for _ in recipe.views.streams)
    return Learner(recipe, tiny, images=images, classes=2, seed=0, encoders=encoders)


def rows(count: int, seed: int) -> torch.Tensor:
    return F.normalize(torch.randn(count, 16, generator=generator(seed)), dim=1)


def draws(seed: int = 0) -> negatives.BatchRandom:
    return negatives.BatchRandom(generator(seed))


NO_LABELS, FIRST = torch.zeros(5, dtype=torch.int64), torch.arange(5)


def test_loss_against_a_bank_is_the_formula(tiny) -> None:
    state = learner(replace(methods.get("ring/ir"), negatives=negatives.Every()), tiny)
    q, indices = rows(5, 1), torch.tensor([3, 29, 0, 7, 8])
    step = state.loss((q,), indices, NO_LABELS, draws(), 0, 1)
    bank = state.keys.stores[0].rows.double()
    expected = 0.0
    for b, own in enumerate(indices.tolist()):
        scores = [math.exp(float(q[b].double() @ bank[j]) / 0.07) for j in range(30)]
        expected += -math.log(scores[own] / sum(scores)) / 5
    assert step.loss.item() == pytest.approx(expected, rel=1e-5)
    assert torch.equal(step.store[0], q)


def test_two_streams_are_compared_with_each_others_bank(tiny) -> None:
    recipe = replace(methods.get("ring/cmc"), negatives=negatives.Every())
    state = learner(recipe, tiny)
    q, indices = (rows(5, 1), rows(5, 2)), torch.tensor([3, 29, 0, 7, 8])
    step = state.loss(q, indices, NO_LABELS, draws(), 0, 1)
    expected = 0.0
    for stream in (0, 1):
        logits = q[stream] @ state.keys.stores[1 - stream].rows.T / 0.07
        expected += float(F.cross_entropy(logits, indices))
    assert step.loss.item() == pytest.approx(expected, rel=1e-5)
    state.commit(indices, step)
    for stream in (0, 1):  # rate 0: the row is the embedding
        torch.testing.assert_close(state.keys.stores[stream].rows[indices], q[stream])


def test_loss_against_a_queue_is_cross_entropy_with_the_second_view_first(tiny) -> None:
    state = learner(methods.get("ring/moco").override({"keys.size": 12}), tiny)
    q, k = rows(5, 1), rows(5, 2)
    queue = state.keys.stores[0].rows.clone()
    step = state.loss((q, k), FIRST, NO_LABELS, draws(), 0, 1)
    logits = torch.cat([(q * k).sum(1, keepdim=True), q @ queue.T], 1) / 0.07
    assert step.loss.item() == pytest.approx(float(F.cross_entropy(logits, NO_LABELS)), rel=1e-5)
    assert step.terms == 13
    assert torch.equal(state.keys.stores[0].rows, queue)  # the loss changes nothing, commit does
    state.commit(torch.arange(5), step)
    assert torch.equal(state.keys.stores[0].rows[:5], k)


def test_loss_in_a_batch_is_cross_entropy_over_both_views_of_all_other_images(tiny) -> None:
    state = learner(SIMCLR, tiny)
    a, b = rows(5, 1), rows(5, 2)
    both = torch.cat([a, b])
    logits = (both @ both.T / 0.07).fill_diagonal_(-math.inf)
    truth = torch.cat([torch.arange(5) + 5, torch.arange(5)])
    expected = float(F.cross_entropy(logits, truth))  # NT-Xent: the mean over both views
    step = state.loss((a, b), FIRST, NO_LABELS, draws(), 0, 1)
    assert step.loss.item() == pytest.approx(expected, rel=1e-5)


def test_the_supervised_reference_is_softmax_over_class_vectors(tiny) -> None:
    state = learner(methods.get("supervised"), tiny)
    q, labels = rows(5, 1), torch.tensor([0, 1, 1, 0, 1])
    logits = q @ F.normalize(state.network.keys_module.vectors, dim=1).T / 0.1
    step = state.loss((q,), torch.arange(5), labels, draws(), 0, 1)
    assert step.loss.item() == pytest.approx(F.cross_entropy(logits, labels).item(), rel=1e-5)


def test_cmc_keeps_the_offset_of_its_first_batch(tiny) -> None:
    state = learner(methods.get("vince/cmc").override({"negatives.k": 8}), tiny)
    assert bool(state.network.objective_module.values.isnan().all())
    state.loss((rows(5, 1), rows(5, 2)), FIRST, NO_LABELS, draws(), 0, 2)
    first = state.network.objective_module.values.clone()
    assert bool(first.isfinite().all() and first[0] != first[1])
    state.loss((rows(5, 3), rows(5, 4)), FIRST, NO_LABELS, draws(1), 1, 2)
    assert torch.equal(state.network.objective_module.values, first)
    assert torch.equal(state.state_dict()["network.objective_module.values"], first)


def test_neighbours_leave_a_ranked_own_row_among_the_negatives(tiny) -> None:
    recipe = base(negatives=negatives.Ball(100, k=None, own="ranked"), positives=positives.Neighbours(10))
    state = learner(recipe, tiny)
    q, indices = rows(5, 1), torch.tensor([3, 29, 0, 7, 8])
    logits = q @ state.keys.stores[0].rows.T / 0.07
    own = logits.gather(1, indices[:, None])
    others = logits.scatter(1, indices[:, None], -math.inf)
    near = others.topk(int(29 * 0.1), dim=1).values
    expected = torch.logsumexp(torch.cat([own, logits], 1), 1) - torch.logsumexp(torch.cat([own, near], 1), 1)
    step = state.loss((q,), indices, NO_LABELS, draws(), 0, 1)
    assert step.loss.item() == pytest.approx(float(expected.mean()), rel=1e-5)


@pytest.mark.parametrize("part", [negatives.Every(), negatives.Uniform(6), negatives.Ring(10, 80, k=None)])
def test_the_loss_is_float32_under_autocast(part, tiny) -> None:
    state = learner(replace(methods.get("ring/ir"), negatives=part), tiny)
    q, indices = rows(5, 1), torch.arange(5)
    plain = state.loss((q,), indices, NO_LABELS, draws(), 0, 1).loss
    with torch.autocast("cpu", torch.bfloat16):
        mixed = state.loss((q,), indices, NO_LABELS, draws(), 0, 1).loss
    assert mixed.dtype == torch.float32
    assert torch.equal(mixed, plain)


def test_published_choices_are_the_papers() -> None:
    iring, mocoring, la = (methods.get(f"ring/{n}") for n in ("iring", "mocoring", "la"))
    assert iring.negatives == negatives.Ring(1, Linear(100, 10, until=0.5), k=4095)
    assert iring.keys == keys.Bank(0.0)
    assert mocoring.negatives == negatives.Ring(1, Linear(100, 10, until=0.5), k=None)
    assert mocoring.keys == methods.get("ring/moco").keys
    assert la.negatives == negatives.Ball(nearest=4096, k=None, own="ranked")
    table1 = (*papers.plan("ring", 1).rows, *methods.names("vince"))
    assert {methods.get(n).temperature for n in table1} == {0.07}
    jcl = methods.get("jcl/jcl")
    assert (jcl.positives, jcl.temperature, jcl.views.count) == (positives.Joint(5, 4.0), 0.2, 6)
    assert jcl.keys == keys.Queue(65536, 0.999, shuffle_groups=8)
    fmicl = methods.get("fmicl/js")
    assert (fmicl.objective, fmicl.temperature) == (objectives.FMICL("js", weight=40.0, mu=1.0), 0.5)
    assert fmicl.keys == keys.InBatch("within", symmetric=False)
    assert {methods.get(n).keys for n in methods.names("vince")} == {keys.Bank(0.5)}


# several keys, pairs within a view, momentum in the batch, and the crosses nobody tried


def test_joint_keys_are_averaged_for_the_queue_and_spread_in_the_loss(tiny) -> None:
    changes = {"keys.size": 12, "keys.shuffle_groups": 1, "positives.count": 3, "views.count": 4}
    state = learner(methods.get("jcl/jcl").override(changes), tiny)
    q, ks = rows(5, 1), [rows(5, seed) for seed in (2, 3, 4)]
    queue = state.keys.stores[0].rows.clone()
    step = state.loss((q, *ks), FIRST, NO_LABELS, draws(), 0, 1)
    keys_ = torch.stack(ks, 1).double()
    own = (keys_ @ q.double()[:, :, None]).squeeze(2) / 0.2
    top = own.mean(1) + 4 / 2 * own.var(1, correction=0)
    logits = torch.cat([top[:, None], q.double() @ queue.double().T / 0.2], 1)
    expected = float((torch.logsumexp(logits, 1) - own.mean(1)).mean())
    assert step.loss.item() == pytest.approx(expected, rel=1e-5)
    state.commit(torch.arange(5), step)
    torch.testing.assert_close(state.keys.stores[0].rows[:5], keys_.mean(1).float())  # not re-normalised


def test_vanilla_keys_each_have_a_loss_and_the_first_is_queued(tiny) -> None:
    changes = {"keys.size": 12, "keys.shuffle_groups": 1, "positives.count": 2, "views.count": 3}
    state = learner(methods.get("jcl/vanilla").override(changes), tiny)
    q, ks = rows(5, 1), [rows(5, seed) for seed in (2, 3)]
    queue = state.keys.stores[0].rows.clone()
    step = state.loss((q, *ks), FIRST, NO_LABELS, draws(), 0, 1)
    losses = [F.cross_entropy(torch.cat([(q * k).sum(1, keepdim=True), q @ queue.T], 1) / 0.2, NO_LABELS) for k in ks]
    assert step.loss.item() == pytest.approx(float(sum(losses)) / 2, rel=1e-5)
    state.commit(torch.arange(5), step)
    assert torch.equal(state.keys.stores[0].rows[:5], ks[0])


def test_split_views_with_joint_keys_use_the_other_streams_further_views(tiny) -> None:
    recipe = replace(
        methods.get("jcl/jcl"), name="x/cmc_jcl", views=Split("lab", 3), positives=positives.Joint(2, 4.0),
        keys=keys.Queue(12, 0.9),
    )  # fmt: skip
    state = learner(recipe, tiny)
    views = tuple(rows(5, seed) for seed in range(6))  # L, ab; L, ab; L, ab
    queues = [store.rows.clone() for store in state.keys.stores]
    step = state.loss(views, FIRST, NO_LABELS, draws(), 0, 1)
    expected = 0.0
    for stream in (0, 1):
        q, other = views[stream], torch.stack([views[2 + 1 - stream], views[4 + 1 - stream]], 1)
        own = (other @ q[:, :, None]).squeeze(2) / 0.2
        top = own.mean(1) + 2 * own.var(1, correction=0)
        logits = torch.cat([top[:, None], q @ queues[1 - stream].T / 0.2], 1)
        expected += float((torch.logsumexp(logits, 1) - own.mean(1)).mean())
    assert step.loss.item() == pytest.approx(expected, rel=1e-5)


def test_pairs_within_a_view_are_the_papers_and_uniformity_sees_both_views(tiny) -> None:
    state = learner(methods.get("fmicl/kl"), tiny)
    x, y = rows(5, 1), rows(5, 2)
    step = state.loss((x, y), FIRST, NO_LABELS, draws(), 0, 1)
    gaussian = torch.exp(-(torch.cdist(x, x) ** 2))
    others = gaussian[~torch.eye(5, dtype=torch.bool)].mean()
    expected = -(1 - ((x - y) ** 2).sum(1)).mean() + 40 * others
    assert step.loss.item() == pytest.approx(float(expected), rel=1e-5)
    state = learner(methods.get("fmicl/au"), tiny)
    x, y = rows(5, 1), rows(5, 2)
    step = state.loss((x, y), FIRST, NO_LABELS, draws(), 0, 1)
    uniform = [torch.pdist(z).pow(2).mul(-2).exp().mean().log() for z in (x, y)]
    expected = ((x - y) ** 2).sum(1).mean() + (uniform[0] + uniform[1]) / 2
    assert step.loss.item() == pytest.approx(float(expected), rel=1e-5)


def test_keys_of_a_momentum_encoder_in_the_batch_carry_no_gradient(tiny) -> None:
    moco_v3 = methods.get("fmicl/moco_v3")
    state = learner(replace(moco_v3, keys=replace(moco_v3.keys, predictor=None)), tiny)
    a, b = (rows(5, seed).requires_grad_() for seed in (1, 2))
    step = state.loss((a, b), FIRST, NO_LABELS, draws(), 0, 1)
    expected = sum(F.cross_entropy(q @ k.detach().T / 0.2, torch.arange(5)) for q, k in ((a, b), (b, a))) / 2
    assert step.loss.item() == pytest.approx(float(expected.detach()), rel=1e-5)
    got = torch.autograd.grad(step.loss, (a, b))
    wanted = torch.autograd.grad(expected, (a, b))
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other)


ONE_BANK, SHORT = {"views": Augmented(1), "keys": keys.Bank(0.5)}, keys.Queue(32, 0.9)
CROSSES: dict[str, tuple[str, dict[str, object]]] = {
    "JCL x Ring": ("jcl/jcl", {"negatives": negatives.Ring(1, 50, k=None)}),
    "f-MICL x queue": ("fmicl/js", {"keys": SHORT}),
    "f-MICL x bank x Ball": ("fmicl/js", {**ONE_BANK, "negatives": negatives.Ball(50, k=8)}),
    "f-MICL x many keys": ("fmicl/js", {"views": Augmented(3), "keys": SHORT, "positives": positives.Many(2)}),
    "CMC x JCL": ("jcl/jcl", {"views": Split("lab", 6)}),
    "SimCLR x Ball": ("ring/simclr", {"negatives": negatives.Ball(50, k=None)}),
    "AU x queue": ("fmicl/au", {"keys": SHORT}),
    "spectral x bank x Ring": ("fmicl/spectral", {**ONE_BANK, "negatives": negatives.Ring(5, 50, k=8)}),
}


@pytest.mark.parametrize("name", CROSSES)
def test_a_cross_nobody_tried_trains_two_steps(name, pictures, tiny) -> None:
    changes = {"keys.size": 32, "keys.shuffle_groups": 1, "negatives.inner": 5}
    base_of, parts = CROSSES[name]
    recipe = replace(replace(methods.get(base_of), **parts).override(changes), name=f"x/{name}")
    done = pretrain(recipe, tiny.override(epochs=1), pictures(32), seed=1, log=quiet)
    assert done.history[-1]["step"] == 2
    assert math.isfinite(done.history[-1]["loss"])


@dataclass(frozen=True)
class Copies(views.Views):
    """The same picture several times: views of a user's own, with no line anywhere else."""

    n: int = 2

    @property
    def count(self) -> int:
        return self.n

    def single(self) -> views.Views:
        return Copies(1)

    def make(self, batch, augmentation, rng=None):
        return tuple(augmentation.normalise(augmentation.plain(batch)) for _ in range(self.n))

    def plain(self, batch, augmentation):
        return self.single().make(batch, augmentation)

    @property
    def latex(self) -> str:
        return "v=x"


def test_views_from_outside_are_a_part_as_any_other(pictures, tiny) -> None:
    recipe = replace(methods.get("ring/simclr"), name="x/copies", views=Copies())
    assert recipe.override({"views.n": 2}) == recipe
    assert recipe.describe()["views"] == {"type": "Copies"}
    assert recipe.bounds_information
    done = pretrain(recipe, tiny, pictures(32), seed=0, log=lambda line: None)
    assert math.isfinite(done.history[-1]["loss"])
    with pytest.raises(NotApplicableError, match=r"needs two views of each image; given: Copies\(n=3\)"):
        recipe.override({"views.n": 3})


def test_a_part_from_outside_is_another_run_once_its_code_is_another(tmp_path, monkeypatch) -> None:
    """The hashes of a run and of a result have the source of what this package cannot know."""
    code = "from dataclasses import dataclass\nfrom contrastlab import negatives\n\n@dataclass(frozen=True)\n"
    code += "class OddPart(negatives.Every):\n    def select(self, *given, **named):\n        return {}\n"
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "odd_part", raising=False)
    seen, setups = [], []
    for returned in ("None", "given[0]", "(None)  # as at first"):
        (tmp_path / "odd_part.py").write_text(code.format(returned))
        module = importlib.reload(importlib.import_module("odd_part"))
        recipe = replace(methods.get("ring/ir"), negatives=module.OddPart())
        seen.append(recipe.identity()["code"])
        assert recipe.describe()["negatives"] == {"type": "OddPart"}
        setups.append(results.setup_hash(recipe.describe(), {}, "linear", {}))
    assert seen[0] == seen[2] != seen[1]
    assert setups[0] == setups[2] != setups[1]
    assert "code" not in methods.get("ring/ir").identity()


def test_the_code_of_a_part_typed_at_a_prompt_counts_too() -> None:
    seen = []
    for value in (1, 2, 1):
        space = {"__name__": "prompt", "Every": negatives.Every}
        exec(f"class Typed(Every):\n    def select(self, *given):\n        return {value}", space)
        seen.append(foreign_code(space["Typed"]()))
    assert seen[0] == seen[2] != seen[1]
