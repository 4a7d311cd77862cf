"""Banks and queues against loops, momentum against its formula, k-means on clear blobs."""

from collections import deque

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from contrastlab import keys, methods
from contrastlab.keys import KeyQueue, MemoryBank, Prototypes, Setup, momentum_update
from contrastlab.keys.stored import in_groups, local_groups
from contrastlab.negatives import BatchRandom
from contrastlab.scores import clusters
from contrastlab.settings import Settings
from contrastlab.support import collectives
from contrastlab.support.errors import ArgumentError
from contrastlab.train import loop
from contrastlab.train.learner import Learner
from made_runs import equal, generator


def unit(rows: int, seed: int, dim: int = 3) -> Tensor:
    return F.normalize(torch.randn(rows, dim, generator=generator(seed)), dim=1)


@given(st.integers(1, 9), st.lists(st.integers(1, 23), min_size=1, max_size=8))
def test_queue_holds_what_a_deque_holds(size: int, batches: list[int]) -> None:
    queue = KeyQueue(size, 3, generator())
    twin = deque(queue.rows.tolist(), maxlen=size)
    for number, count in enumerate(batches):
        keys = unit(count, number)
        queue.enqueue(keys)
        twin.extend(keys.tolist())
        assert 0 <= int(queue.pointer) < size
        assert queue.rows.roll(-int(queue.pointer), 0).tolist() == list(twin)  # from the oldest on


def test_queue_keeps_its_precision_and_takes_no_gradient() -> None:
    queue = KeyQueue(4, 3, generator())
    keys = unit(2, 1).to(torch.bfloat16).requires_grad_()
    queue.enqueue(keys)
    assert queue.rows.dtype == torch.float32
    assert not queue.rows.requires_grad
    assert torch.equal(queue.rows[:2], keys.detach().float())


def test_initial_keys_are_unit_of_the_seed_and_alone() -> None:
    for make in (lambda s: KeyQueue(50, 8, generator(s)).rows, lambda s: MemoryBank(50, 8, generator(s)).rows):
        torch.testing.assert_close(make(0).norm(dim=1), torch.ones(50))
        assert torch.equal(make(0), make(0))
        assert not torch.equal(make(0), make(1))
    assert MemoryBank(5, 3, generator(), runs=2).labels.tolist() == [[i, i] for i in range(5)]
    assert MemoryBank(5, 3, generator()).labels.shape == (5, 0)
    # normalised cubes: the largest coordinate of a row, in units of its norm, is below that of a Gaussian's
    rows = MemoryBank(4000, 128, generator()).rows
    assert abs(float(rows.mean())) < 1e-3
    assert float((rows.abs().amax(1) / rows.square().mean(1).sqrt()).mean()) < 3**0.5 * 1.05


@pytest.mark.parametrize("rate", [0.0, 0.5, 0.9])
def test_bank_update_equals_its_loop(rate: float) -> None:
    bank = MemoryBank(10, 3, generator())
    before = bank.rows.double().clone()
    indices, embeddings = torch.tensor([7, 0, 3, 9]), unit(4, 5)
    bank.update(indices, embeddings, rate)
    for row in range(10):
        expected = before[row]
        for position, i in enumerate(indices.tolist()):
            if i == row:
                moved = [rate * float(a) + (1 - rate) * float(b) for a, b in zip(before[row], embeddings[position])]  # noqa: B905
                length = sum(v * v for v in moved) ** 0.5
                expected = torch.tensor([v / length for v in moved], dtype=torch.float64)
        torch.testing.assert_close(bank.rows[row].double(), expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(bank.rows.norm(dim=1), torch.ones(10))


def test_an_image_twice_in_a_batch_keeps_its_last_embedding() -> None:
    bank = MemoryBank(6, 3, generator())
    before, embeddings = bank.rows.clone(), unit(4, 5)
    bank.update(torch.tensor([2, 4, 2, 5]), embeddings, 0.5)
    torch.testing.assert_close(bank.rows[2], F.normalize(before[2] + embeddings[2], dim=0))


def test_state_dict_carries_rows_pointer_and_labels(tmp_path) -> None:
    queue, bank = KeyQueue(7, 3, generator()), MemoryBank(7, 3, generator(), runs=2)
    queue.enqueue(unit(5, 1))
    bank.update(torch.tensor([1, 2]), unit(2, 2), 0.5)
    bank.labels.copy_(torch.randint(3, (7, 2), generator=generator(4)))
    torch.save({"queue": queue.state_dict(), "bank": bank.state_dict()}, tmp_path / "state.pt")
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    again, other = KeyQueue(7, 3, generator(8)), MemoryBank(7, 3, generator(8), runs=2)
    again.load_state_dict(state["queue"])
    other.load_state_dict(state["bank"])
    assert int(again.pointer) == 5
    for q in (queue, again):
        q.enqueue(unit(4, 9))
    assert equal(other, bank)
    assert equal(again, queue)


@pytest.mark.parametrize("momentum", [0.0, 0.9, 0.999, 1.0])
def test_momentum_update_equals_its_loop_and_leaves_statistics_alone(momentum: float) -> None:
    torch.manual_seed(0)

    def network() -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 2))

    slow, fast = network(), network()
    with torch.no_grad():
        for net in (slow, fast):
            for parameter in net.parameters():
                parameter.normal_(generator=generator(len(parameter.shape)))
                parameter.add_(0.5 * (net is fast))
        fast.train()(torch.randn(8, 3, 4, 4, generator=generator(3)))  # fast has statistics of its own
    before, goal = [p.double().clone() for p in slow.parameters()], [p.double().clone() for p in fast.parameters()]
    buffers = [b.clone() for b in slow.buffers()]
    momentum_update(slow, fast, momentum)
    for got, old, new, kept in zip(slow.parameters(), before, goal, fast.parameters(), strict=True):
        expected = momentum * old + (1 - momentum) * new
        torch.testing.assert_close(got.double(), expected, rtol=1e-6, atol=1e-7)
        assert torch.equal(kept.double(), new)
    assert all(torch.equal(a, b) for a, b in zip(slow.buffers(), buffers, strict=True))
    assert not torch.equal(next(iter(fast.buffers())), next(iter(slow.buffers())))


def test_prototypes_are_learnt() -> None:
    def learnt(classes: int, dim: int) -> Tensor:
        return Prototypes().module(Setup(nn.ModuleList(), None, 9, classes, dim, generator())).vectors

    vectors = learnt(4, 8)
    assert vectors.shape == (4, 8)
    assert vectors.requires_grad
    assert len({tuple(v) for v in vectors.tolist()}) == 4
    for dim in (8, 128):  # of length one on average, so that the first steps turn them as fast as the embeddings
        assert learnt(2000, dim).square().sum(1).mean().item() == pytest.approx(1, abs=0.05)


def blobs() -> tuple[Tensor, Tensor]:
    """Four clear directions in eight dimensions, 30 keys each, shuffled."""
    truth = torch.arange(4).repeat(30)
    noise = torch.randn(120, 8, generator=generator(1)) * 0.05
    return F.normalize(torch.eye(8)[truth] + noise, dim=1), truth


@pytest.mark.parametrize("run", [clusters._faiss, clusters._lloyd])
def test_k_means_separates_clear_blobs_and_depends_on_its_seed_only(run) -> None:
    keys, truth = blobs()
    found = [run(keys, 4, 20, seed) for seed in range(6)]
    for labels in found:
        assert labels.dtype == torch.int64
        assert labels.shape == (120,)
        assert set(labels.tolist()) <= {0, 1, 2, 3}
    # Lloyd may stop in a local optimum that splits one blob: most starts must not
    joint = [set(zip(labels.tolist(), truth.tolist(), strict=True)) for labels in found]
    assert sum(len(pairs) == len(truth.unique()) for pairs in joint) >= 2  # the same partition
    assert torch.equal(run(keys, 4, 20, 3), found[3])
    assert any(not torch.equal(found[0], other) for other in found[1:])
    # every key is left with its closest centre
    keys = F.normalize(torch.randn(200, 4, generator=generator(2)), dim=1)
    labels = run(keys, 5, 50, 0)
    centres = torch.stack([keys[labels == c].mean(0) for c in range(5)])
    assert torch.equal(torch.cdist(keys, centres).argmin(1), labels)


def slow_k_means(keys: Tensor, clusters: int, iterations: int, seed: int) -> list[int]:
    """Lloyd's algorithm key by key; a centre that has lost all its keys stays where it is."""
    start = torch.randperm(len(keys), generator=generator(seed))[:clusters]
    centres = [keys[i] for i in start.tolist()]
    labels: list[int] = []
    for _ in range(iterations + 1):
        labels = []
        for key in keys:
            distances = [float((key - centre).square().sum()) for centre in centres]
            labels.append(distances.index(min(distances)))
        for cluster in range(clusters):
            own = [key for key, label in zip(keys, labels, strict=True) if label == cluster]
            if own:
                centres[cluster] = torch.stack(own).mean(0)
    return labels


@pytest.mark.parametrize("seed", range(3))
def test_k_means_on_a_device_is_that_of_loops(seed: int) -> None:
    # more clusters than there are groups of keys: some have a single key, and where keys repeat some have none
    keys = torch.randn(12, 3, generator=generator(4))
    keys = torch.cat([keys, keys[:8]])
    for count in (2, 5, 16):
        assert clusters._lloyd(keys, count, 3, seed).tolist() == slow_k_means(keys, count, 3, seed)


def test_runs_are_columns_with_seeds_and_clusters_may_be_as_many_as_keys() -> None:
    keys = F.normalize(torch.randn(100, 4, generator=generator(3)), dim=1)
    labels = clusters.kmeans(keys, 5, 3, seed=7)
    assert labels.shape == (100, 3)
    for run in range(3):
        assert torch.equal(labels[:, run], clusters.kmeans(keys, 5, 1, seed=7 + run)[:, 0])
    assert not torch.equal(labels[:, 0], labels[:, 1])
    keys = torch.eye(6)
    assert sorted(clusters.kmeans(keys, 6)[:, 0].tolist()) == list(range(6))


def test_groups_are_normalised_apart_and_keep_their_order() -> None:
    views = torch.randn(12, 3, generator=generator(0))

    def encode(piece: Tensor) -> Tensor:
        return piece - piece.mean(0)

    assert torch.equal(in_groups(encode, views, 1, torch.Generator()), encode(views))
    # each row is one of its own view, but with the mean of drawn company
    in_order = torch.cat([encode(piece) for piece in views.split(4)])
    first, again = (in_groups(encode, views, 3, generator(1)) for _ in "ab")
    assert torch.equal(first, again)
    assert not torch.allclose(first, in_order)
    shifts = (views - first).round(decimals=5)
    assert len(shifts.unique(dim=0)) == 3
    assert torch.equal(in_groups(lambda piece: piece, views, 4, torch.Generator().manual_seed(2)), views)


def moco_in_groups(groups: int, items: int) -> tuple[Learner, tuple[Tensor, ...]]:
    """MoCo with shuffled batch-norm, and the views of a batch, alike at every call."""
    recipe = methods.get("ring/moco").override({"keys.size": 20, "keys.shuffle_groups": groups})
    learner = Learner(recipe, Settings(arch="tiny", stem="cifar", dim=8, head="mlp3"), images=40, classes=2, seed=0)
    draws = generator(3)
    for parameter in learner.network.parameters():
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=draws)
    return learner.train(), tuple(torch.rand(items, 3, 16, 16, generator=draws) for _ in range(2))


def step_of(learner: Learner, views: tuple[Tensor, ...]) -> dict[str, Tensor]:
    """Loss, stored keys, gradients and statistics of a step."""
    numbers = torch.arange(len(views[0]))
    step = learner.loss(views, numbers, numbers, BatchRandom(generator(1)), 0, 1)
    step.loss.backward()
    gradients = {f"gradient of {name}": p.grad for name, p in learner.network.named_parameters()}
    return {"loss": step.loss.detach(), "keys": step.store[0], **learner.state_dict(), **gradients}


@pytest.mark.parametrize(("groups", "items"), [(2, 12), (4, 8), (3, 13)])
def test_groups_in_one_pass_are_those_one_after_the_other(groups: int, items: int) -> None:
    learner, views = moco_in_groups(groups, items)
    expected = step_of(learner, views)
    at_once, _ = moco_in_groups(groups, items)
    at_once.keys.norm_in_one_pass(at_once.network.encoders)
    passes = []
    at_once.network.encoders[0].register_forward_hook(lambda *_: passes.append(1))
    found = step_of(at_once, views)
    assert len(passes) == 1
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=2e-5, atol=2e-6, msg=lambda words, name=name: name + words)
    whole, _ = moco_in_groups(1, items)
    assert not torch.allclose(step_of(whole, views)["keys"], expected["keys"], atol=1e-3)
    norms = [type(m) for m in learner.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    for network in (at_once.network, at_once.keys):
        keys.norm_plainly(network)
    assert [type(m) for m in at_once.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)] == norms


def test_groups_are_one_after_the_other_where_a_norm_is_of_another_kind() -> None:
    class Other(nn.BatchNorm2d): ...

    learner, views = moco_in_groups(2, 8)
    expected = step_of(learner, views)
    other, _ = moco_in_groups(2, 8)
    for network in (other.network, other.keys):
        next(m for m in network.modules() if isinstance(m, nn.BatchNorm2d)).__class__ = Other
    other.keys.norm_in_one_pass(other.network.encoders)
    found = step_of(other, views)
    assert all(torch.equal(found[name], value) for name, value in expected.items())


def test_groups_that_cannot_be_shared_out_and_a_batch_of_one_are_refused(monkeypatch) -> None:
    recipe = methods.get("ring/simclr")
    learner = Learner(recipe, Settings(arch="tiny", dim=8), images=4, classes=2, seed=0)
    views = tuple(torch.rand(1, 3, 16, 16, generator=generator()) for _ in range(2))
    with pytest.raises(ArgumentError, match="batch=1: expected at least two items"):
        learner.loss(views, torch.tensor([0]), torch.tensor([0]), BatchRandom(generator()), 0, 1)
    monkeypatch.setattr(collectives, "world", lambda: (0, 2))
    assert [local_groups(groups) for groups in (1, 2, 6)] == [1, 1, 3]
    with pytest.raises(ArgumentError, match=r"shuffle_groups=3: expected 1, or a multiple of .*processes, 2"):
        local_groups(3)


def test_a_run_is_watched_against_its_bank_where_it_has_one(pictures, tiny, shrink, monkeypatch) -> None:
    made: list[Learner] = []
    seen: list[Tensor] = []
    measure = loop.representations.nearest_neighbour

    def learner(*args, **options) -> Learner:
        made.append(Learner(*args, **options))
        return made[-1]

    def nearest(rows: Tensor, *others: Tensor) -> float:
        seen.append(rows.clone())
        return measure(rows, *others)

    monkeypatch.setattr(loop, "Learner", learner)
    monkeypatch.setattr(loop.representations, "nearest_neighbour", nearest)
    for name in ("ring/cmc", "ring/moco"):
        recipe = shrink(methods.get(name))
        loop.pretrain(recipe, tiny.override(knn_every=1, epochs=1), pictures(48), pictures(16), log=lambda line: None)
    banks = torch.cat([made[0].keys.stored(stream) for stream in (0, 1)], 1)
    torch.testing.assert_close(seen[0], F.normalize(banks, dim=1))
    assert len(seen[1]) == 48  # a queue holds no row for each image: all are encoded again
    assert len(made[1].keys.stored(0)) == 20


@pytest.mark.parametrize(("rows", "embeddings", "rate", "words"), [
    ([0, 1], (1, 3), 0.5, r"^embeddings=\(1, 3\): .*\[2, 3\]"),
    ([0, 1], (2, 4), 0.5, r"^embeddings=\(2, 4\): "),
    *(([3, bad], (2, 3), 0.5, rf"indices={bad}: .*0 to 4") for bad in (-1, 5, 10**6)),
])  # fmt: skip
def test_an_update_of_a_bank_that_does_not_fit_is_refused_and_nothing_is_written(rows, embeddings, rate, words) -> None:
    bank = MemoryBank(5, 3, generator())
    before = bank.rows.clone()
    with pytest.raises(ArgumentError, match=words):
        bank.update(torch.tensor(rows), torch.ones(embeddings), rate)
    assert torch.equal(bank.rows, before)
