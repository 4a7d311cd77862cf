"""Probes against loops; nothing a probe does changes an encoder."""

import math
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contrastlab import encoders, tasks
from contrastlab.data import ImageSet, Splits
from contrastlab.pictures import fitting, linear, representations
from contrastlab.pictures.augmentations import augmentation
from contrastlab.scores import ranks
from contrastlab.settings import LinearProbe, Settings
from contrastlab.support.errors import ArgumentError, NotApplicableError
from contrastlab.views import Augmented, Split
from made_runs import generator, spread_batch_norms, unchanged

VIEW = augmentation("none", 16)


def networks(part: Augmented | Split, channels: int = 3) -> nn.ModuleList:
    torch.manual_seed(0)
    out = encoders.build_for(part, channels, arch="tiny", stem="cifar", dim=16)
    spread_batch_norms(out, 1)
    return out


def coloured(count: int, seed: int) -> ImageSet:
    """Three classes, told apart by their colour."""
    labels = torch.arange(count) % 3
    noise = torch.randint(0, 60, (count, 3, 16, 16), generator=generator(seed))
    pixels = noise + 150 * F.one_hot(labels, 3)[:, :, None, None]
    return ImageSet(f"coloured/{seed}", pixels.to(torch.uint8), labels, ("red", "green", "blue"))


PROBE = LinearProbe(solver="sgd", features="pooled", epochs=6, batch_size=16, lr=0.5)
RUNS = {
    "linear, sgd": tasks.Linear(PROBE),
    "linear, lbfgs": tasks.Linear(LinearProbe(solver="lbfgs", features="map")),
    "neighbours": tasks.Neighbours(k=5),
}


def score(task: tasks.Task, nets: nn.ModuleList, part: Augmented | Split, train: ImageSet, test: ImageSet, **options):
    splits = Splits("coloured", train, train, test, "")
    return task.score(nets, tasks.Evaluation(part, VIEW, splits, **options))


def percent(right: Tensor) -> float:
    return 100 * float(right.double().mean())


@pytest.mark.parametrize("part", [Augmented(1), Augmented(2), Split("lab")], ids=["one view", "two views", "split"])
@pytest.mark.parametrize("name", RUNS)
def test_no_probe_changes_a_tensor_or_mode_of_the_encoder(name: str, part) -> None:
    nets = networks(part)
    nets.train()
    next(m for m in nets.modules() if isinstance(m, nn.BatchNorm2d)).eval()  # a mixture of modes is put back as it was
    assert len({m.training for m in nets.modules()}) == 2
    with unchanged(nets):
        measured = score(RUNS[name], nets, part, coloured(60, 0), coloured(30, 1))
    assert measured
    for name_, number in measured.items():
        assert 0 <= number.value <= 100, name_
        assert number.items == len(number.correct) == 30
        assert number.value == pytest.approx(percent(number.correct))
    assert all(p.requires_grad for p in nets.parameters())


def test_frozen_is_evaluation_without_gradient_and_is_undone_after_an_error() -> None:
    nets = networks(Augmented(1))
    nets.train()
    x = torch.randn(4, 3, 16, 16, generator=generator())
    before = {k: v.clone() for k, v in nets.state_dict().items()}

    def fail() -> None:
        with tasks.frozen(nets):
            assert not any(m.training for m in nets.modules())
            assert not nets[0](x).requires_grad
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        fail()
    assert all(m.training for m in nets.modules())
    assert torch.is_grad_enabled()
    nets[0](x)  # the check above can fail: in training mode the same pass changes the statistics
    assert any(not torch.equal(before[k], v) for k, v in nets.state_dict().items())


def test_representations_of_an_image_do_not_depend_on_its_batch() -> None:
    nets, images = networks(Split("lab")), coloured(20, 0)
    for kind in ("embedding", "pooled", "map"):
        whole, labels = tasks.encode(nets, Split("lab"), VIEW, images, kind=kind)
        parts, _ = tasks.encode(nets, Split("lab"), VIEW, images, kind=kind, batch_size=7)
        torch.testing.assert_close(parts, whole, rtol=1e-4, atol=1e-5)
        assert torch.equal(labels, images.labels)
    chosen = torch.tensor([5, 3, 19])
    some, labels = tasks.encode(nets, Split("lab"), VIEW, images, indices=chosen)
    embedded, _ = tasks.encode(nets, Split("lab"), VIEW, images)
    torch.testing.assert_close(some, embedded[chosen], rtol=1e-4, atol=1e-5)
    assert torch.equal(labels, images.labels[chosen])
    torch.testing.assert_close(embedded.norm(dim=1), torch.ones(20))


def unit(rows: int, seed: int) -> Tensor:
    return F.normalize(torch.randn(rows, 4, generator=generator(seed)), dim=1)


@pytest.mark.parametrize("k", [1, 5, 40, 200])
def test_neighbours_equal_their_loops(k: int, monkeypatch) -> None:
    train, test = unit(40, 0), unit(23, 1)
    labels = torch.randint(3, (40,), generator=generator(2))
    truth = torch.randint(3, (23,), generator=generator(3))
    for temperature in (0.1, 1.0):
        right = []
        for row in range(23):
            scores = sorted((float(test[row].double() @ train[j].double()), int(labels[j])) for j in range(40))[::-1]
            votes = [0.0] * 3
            for similarity, label in scores[:k]:
                votes[label] += math.exp(similarity / temperature)
            right.append(votes.index(max(votes)) == int(truth[row]))
        assert tasks.knn(train, labels, test, truth, k=k, temperature=temperature).tolist() == right
        with monkeypatch.context() as patch:
            patch.setattr(ranks, "KEPT_BYTES", 4 * 40 * 9)  # nine rows at a time
            assert tasks.knn(train, labels, test, truth, k=k, temperature=temperature).tolist() == right
            if k == 1:
                assert tasks.nearest_neighbour(train, labels, test, truth).tolist() == right
    if k == 1:
        assert tasks.nearest_neighbour(train, labels, test, truth).tolist() == right


@pytest.mark.parametrize(("percent", "k"), [(0.1, 1), (10, 4), (25, 10)])
def test_own_class_share_counts_what_a_loop_counts(percent: float, k: int) -> None:
    rows, labels = unit(40, 0), torch.randint(3, (40,), generator=generator(1))
    shares = []
    for i in range(7):
        others = sorted((j for j in range(40) if j != i), key=lambda j: -float(rows[i].double() @ rows[j].double()))
        shares.append(sum(int(labels[j]) == int(labels[i]) for j in others[:k]) / k)
    assert representations.own_class_share(rows, labels, percent=percent, queries=7) == pytest.approx(
        100 * sum(shares) / 7
    )


def ones(count: int) -> Tensor:
    return torch.ones(count, dtype=torch.int64)


@pytest.mark.parametrize(
    ("labels", "words"), [(torch.tensor([0, 1, -1, 0, 1, 0]), "^labels=-1"), (ones(5), "each of the 6 rows")]
)
def test_labels_that_do_not_fit_are_refused(labels: Tensor, words: str) -> None:
    for probe in (tasks.knn, tasks.nearest_neighbour, lambda x, y, z, _: tasks.linear_lbfgs(x, y, z)):
        with pytest.raises(ArgumentError, match=words):
            probe(unit(6, 0), labels, unit(4, 1), ones(4))


def test_unlabelled_images_cannot_vote() -> None:
    unlabelled = replace(coloured(30, 0), labels=torch.arange(30) % 3 - 1)
    for name in RUNS:
        evaluation = tasks.Evaluation(
            Augmented(1), VIEW, SimpleNamespace(name="coloured", train=unlabelled, test=coloured(30, 1))
        )
        with pytest.raises(ArgumentError, match="labels=-1"):
            RUNS[name].score(networks(Augmented(1)), evaluation)


def test_at_a_small_temperature_the_nearest_neighbour_decides() -> None:
    # in three dimensions of four, so that no row is closer than 0.6
    train = torch.tensor([[1.0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]])
    test = F.normalize(torch.tensor([[0.3, 0.6, 0.2, 0.7], [0.3, 0.2, 0.6, 0.7]]), dim=1)
    for temperature in (0.1, 0.005, 1e-3):
        assert tasks.knn(train, torch.arange(3), test, torch.tensor([1, 2]), temperature=temperature).all()


def test_lbfgs_separates_what_is_separable_and_reaches_the_minimum_of_its_loss() -> None:
    labels = torch.arange(120) % 3
    features = F.one_hot(labels, 3) + 0.1 * torch.randn(120, 3, generator=generator())
    scaled = features * torch.tensor([1e-3, 1.0, 1e3]) + torch.tensor([5.0, -3.0, 100.0])
    constant = torch.cat([scaled, torch.full((120, 1), 7.0)], 1)
    scores = tasks.linear_lbfgs(constant[:90], labels[:90], constant[90:])
    assert bool(tasks.correct(scores, labels[90:]).all())
    # a ridge so strong that the weights vanish leaves the bias alone: every image gets the commonest label
    labels = torch.tensor([0] * 10 + [1] * 5)
    x = F.one_hot(labels, 2).float() + torch.arange(15.0)[:, None] / 100
    assert tasks.linear_lbfgs(x, labels, x, l2=1e6).argmax(1).tolist() == [0] * 15
    assert tasks.linear_lbfgs(x, labels, x, l2=1e-4).argmax(1).tolist() == labels.tolist()


@pytest.mark.parametrize("features", ["pooled", "map"])
@pytest.mark.parametrize("solver", ["sgd", "lbfgs"])
@pytest.mark.parametrize("part", [Augmented(2), Split("lab")], ids=["two views", "split"])
def test_linear_probes_solve_an_easy_task(solver, features, part) -> None:
    # at a constant rate the classifier swings to the end, and where it stops depends on the processor's rounding
    how = {"solver": solver, "features": features, "lr": 0.02, "epochs": 40, "milestones": (30,)}
    probe = PROBE.model_copy(update=how)
    measured = score(tasks.Linear(probe), networks(part), part, coloured(90, 0), coloured(60, 1))
    assert set(measured) == {"linear"}  # of three classes every label is among the best five
    assert measured["linear"].value >= 98


def test_linear_sgd_scores_its_last_epoch_not_its_best() -> None:
    nets, part = networks(Augmented(1)), Augmented(1)
    # labels that mean nothing, so that accuracy goes up and down
    sets = (coloured(48, 0), coloured(60, 1))
    train, test = (replace(s, labels=torch.randint(3, (len(s),), generator=generator(9))) for s in sets)
    x, y = tasks.encode(nets, part, VIEW, train, kind="pooled")
    test_x, truth = tasks.encode(nets, part, VIEW, test, kind="pooled")
    probe = PROBE.model_copy(update={"lr": 30.0, "momentum": 0.9, "milestones": (4,), "weight_decay": 0.01})

    def twin(seed: int) -> list[float]:
        # with fixed features, the same initial weights and the same order of images
        torch.manual_seed(seed)
        classifier = nn.Linear(x.shape[1], 3)
        optimiser = torch.optim.SGD(classifier.parameters(), lr=30.0, momentum=0.9, weight_decay=0.01)
        order, scores = generator(seed), []
        for epoch in range(6):
            if epoch == 4:
                optimiser.param_groups[0]["lr"] = 3.0
            for rows in torch.randperm(48, generator=order).split(16):
                optimiser.zero_grad()
                F.cross_entropy(classifier(x[rows]), y[rows]).backward()
                optimiser.step()
            scores.append(100 * float((classifier(test_x).argmax(1) == truth).float().mean()))
        return scores

    runs = [(seed, twin(seed)) for seed in range(12)]
    telling = [(seed, scores) for seed, scores in runs if scores[-1] < max(scores)]
    assert telling
    for seed, scores in telling[:3]:
        evaluation = tasks.Evaluation(part, VIEW, Splits("coloured", train, train, test, ""), seed=seed)
        got = tasks.linear_sgd(nets, evaluation, test, probe)
        assert percent(tasks.correct(got, truth)) == pytest.approx(scores[-1], abs=0.01)


def test_linear_sgd_depends_on_its_seed_only() -> None:
    nets, part = networks(Augmented(1)), Augmented(1)
    crops, lines = augmentation("instdisc", 16), ([], [], [])
    for seed, log in zip((0, 0, 1), lines, strict=True):
        torch.manual_seed(len(lines[0]) + seed)  # the global generator does not matter
        splits = Splits("coloured", coloured(48, 0), coloured(48, 0), coloured(30, 1), "")
        tasks.linear_sgd(nets, tasks.Evaluation(part, crops, splits, seed, log=log.append), splits.test, PROBE)
    assert lines[0] == lines[1]
    assert lines[0] != lines[2]
    assert len(lines[0]) == 6


def test_a_probe_uses_as_many_labelled_images_as_it_is_told(monkeypatch) -> None:
    seen: set[int] = set()
    batches = representations.batches

    def watch(source, order, *args, **options):
        if source.name == "coloured/0":
            seen.update(order.tolist())
        return batches(source, order, *args, **options)

    for module in (fitting, linear, representations):
        monkeypatch.setattr(module, "batches", watch)
    for solver in ("sgd", "lbfgs"):
        seen.clear()
        probe = PROBE.model_copy(update={"solver": solver, "train_images": 20})
        score(tasks.Linear(probe), networks(Augmented(1)), Augmented(1), coloured(60, 0), coloured(30, 1))
        assert len(seen) == 20


def test_accuracy_counts_the_largest_scores_and_five_where_they_can_be_wrong() -> None:
    scores = torch.tensor([[0.1, 0.5, 0.4], [0.7, 0.2, 0.1], [0.2, 0.3, 0.5], [0.3, 0.6, 0.1]])
    truth = torch.tensor([1, 1, 2, 2])
    assert tasks.correct(scores, truth).tolist() == [True, False, True, False]
    assert tasks.correct(scores, truth, top=2).tolist() == [True, True, True, False]
    labels = torch.arange(70) % 7
    seven = replace(coloured(70, 0), labels=labels, classes=tuple("abcdefg"))
    measured = score(RUNS["linear, lbfgs"], networks(Augmented(1)), Augmented(1), seven, seven)
    assert measured["linear5"].value >= measured["linear"].value


def test_a_task_says_which_kinds_of_data_it_scores() -> None:
    kinds = {"annotated image", "captioned image", "clip", "feature vector", "image", "scene", "sentence", "waveform"}
    some = coloured(6, 0)
    for name, task in tasks.TASKS.items():
        assert set(task.modalities) <= kinds, name
        made = tasks.get(name, Settings())
        for kind in kinds:  # annotated pictures have no labels: what is asked of them would be an AttributeError
            part = SimpleNamespace(modality=kind, **({"labels": some.labels} if kind != "annotated image" else {}))
            splits = SimpleNamespace(name="some", train=part, test=part)
            if kind in task.modalities:
                made.check(splits)
                continue
            with pytest.raises(NotApplicableError, match=f"{name} is a task for .*s; some has {kind}s$"):
                made.check(splits)
            with pytest.raises(NotApplicableError, match=f"some has {kind}s$"):
                made.score(nn.ModuleList(), tasks.Evaluation(Augmented(1), VIEW, splits))


def test_tasks_and_metrics_are_known_without_torch() -> None:
    code = (
        "import sys; from contrastlab import settings, tasks\n"
        "assert all(tasks.get(name, settings.Settings()).identity() == {} for name in tasks.TASKS)\n"
        "assert tasks.task_of('linear_L') == 'one_view' and {'encode', 'knn'} < set(dir(tasks))\n"
        "assert not {'torch', 'torchvision', 'scipy', 'sklearn', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="no attribute 'encoder'"):
        tasks.encoder  # noqa: B018


def test_every_metric_has_one_task_that_is_known_by_its_fields() -> None:
    names = [metric.name for task in tasks.TASKS.values() for metric in task.metrics]
    assert len(set(names)) == len(names)
    for name in names:
        metric = tasks.metric(name)
        assert name in {m.name for m in tasks.TASKS[tasks.task_of(name)].metrics}
        assert metric.low < metric.high
    assert tasks.Neighbours().identity() == tasks.Linear().identity() == {}
    assert tasks.Neighbours(k=7).identity() == {"k": 7}
    settings = Settings(test_images=9, train_images=5, linear=LinearProbe(l2=0.5))
    assert tasks.get("linear", settings).identity() == {"probe": {"l2": 0.5}, "test_images": 9}
    assert tasks.get("neighbours", settings).identity() == {"train_images": 5, "test_images": 9}


def test_a_binomial_error_is_that_of_a_share() -> None:
    metric = tasks.Metric("x", "x")
    share, n = 0.3, 400
    draws = torch.distributions.Binomial(n, torch.tensor(share, dtype=torch.float64)).sample((200_000,)) / n * 100
    assert metric.half_width(30.0, n) == pytest.approx(1.96 * float(draws.std()), rel=0.01)
    unit_interval = tasks.Metric("x", "x", unit="Spearman", low=0, high=1)
    assert unit_interval.half_width(0.3, n) == pytest.approx(metric.half_width(30.0, n) / 100)
    for value in (0.0, 100.0):  # Clopper and Pearson: all of 36 right is what a truth of 90.3 % does once in forty
        assert (1 - metric.half_width(value, 36) / 100) ** 36 == pytest.approx(0.025)
    assert tasks.Metric("x", "x", error="none").half_width(30.0, n) is None
    assert tasks.Metric("x", "x", error="bootstrap").half_width(30.0, n, 1.5) == 1.5


def test_the_bootstrap_of_a_mean_is_its_standard_error() -> None:
    values = torch.randn(500, generator=generator(), dtype=torch.float64)
    mean, half = tasks.bootstrap(lambda rows: float(values[rows].mean()), 500, draws=4000)
    assert mean == pytest.approx(float(values.mean()))
    assert half == pytest.approx(1.96 * float(values.std()) / 500**0.5, rel=0.08)
    few = [tasks.bootstrap(lambda rows: float(values[rows].mean()), 500, draws=50, seed=seed) for seed in (4, 4, 5)]
    assert few[0] == few[1] != few[2]
    assert few[0][0] == few[2][0]
