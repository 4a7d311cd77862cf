"""Banks and queues against loops, momentum against its formula, k-means on clear blobs."""

import copy
from collections import deque
from itertools import chain

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
from made_runs import equal, generator, quiet


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
    """Keys are unit vectors that depend on the seed alone, and each is alone in its cluster.

    Those of a bank are points of a cube, normalised: no coordinate stands out as it would among Gaussian ones.
    """
    for kind in (KeyQueue, MemoryBank):
        rows = kind(50, 8, generator(0)).rows
        torch.testing.assert_close(rows.norm(dim=1), torch.ones(50))
        assert torch.equal(rows, kind(50, 8, generator(0)).rows)
        assert not torch.equal(rows, kind(50, 8, generator(1)).rows)
    assert MemoryBank(5, 3, generator(), runs=2).labels.tolist() == [[0, 0], [1, 1], [2, 2], [3, 3], [4, 4]]
    assert MemoryBank(5, 3, generator()).labels.shape == (5, 0)

    rows = MemoryBank(4000, 128, generator()).rows
    assert abs(float(rows.mean())) < 1e-3
    largest = rows.abs().amax(1)
    root_mean_square = rows.square().mean(1).sqrt()
    of_a_cube = 3**0.5  # the largest coordinate of its points over their root mean square
    assert float((largest / root_mean_square).mean()) < 1.05 * of_a_cube


@pytest.mark.parametrize("rate", [0.0, 0.5, 0.9])
def test_bank_update_equals_its_loop(rate: float) -> None:
    bank = MemoryBank(10, 3, generator())
    items = [7, 0, 3, 9]
    embeddings = unit(4, 5)
    expected = bank.rows.double().clone()
    for item, embedding in zip(items, embeddings.double(), strict=True):
        moved = rate * expected[item] + (1 - rate) * embedding
        expected[item] = moved / moved.square().sum().sqrt()
    bank.update(torch.tensor(items), embeddings, rate)
    torch.testing.assert_close(bank.rows.double(), expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(bank.rows.norm(dim=1), torch.ones(10))


def test_an_image_twice_in_a_batch_keeps_its_last_embedding() -> None:
    bank = MemoryBank(6, 3, generator())
    before = bank.rows.clone()
    embeddings = unit(4, 5)
    bank.update(torch.tensor([2, 4, 2, 5]), embeddings, 0.5)
    of_the_last = embeddings[2]
    torch.testing.assert_close(bank.rows[2], F.normalize(before[2] + of_the_last, dim=0))


def test_state_dict_carries_rows_pointer_and_labels(tmp_path) -> None:
    queue = KeyQueue(7, 3, generator())
    bank = MemoryBank(7, 3, generator(), runs=2)
    queue.enqueue(unit(5, 1))
    bank.update(torch.tensor([1, 2]), unit(2, 2), 0.5)
    bank.labels.copy_(torch.randint(3, (7, 2), generator=generator(4)))
    torch.save({"queue": queue.state_dict(), "bank": bank.state_dict()}, tmp_path / "state.pt")
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    loaded_queue = KeyQueue(7, 3, generator(8))
    loaded_bank = MemoryBank(7, 3, generator(8), runs=2)
    loaded_queue.load_state_dict(state["queue"])
    loaded_bank.load_state_dict(state["bank"])
    assert int(loaded_queue.pointer) == 5
    queue.enqueue(unit(4, 9))
    loaded_queue.enqueue(unit(4, 9))
    assert equal(loaded_bank, bank)
    assert equal(loaded_queue, queue)


@pytest.mark.parametrize("momentum", [0.0, 0.9, 0.999, 1.0])
def test_momentum_update_equals_its_loop_and_leaves_statistics_alone(momentum: float) -> None:
    torch.manual_seed(0)

    def network() -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 2))

    slow = network()
    fast = network()
    with torch.no_grad():
        for parameter in chain(slow.parameters(), fast.parameters()):
            parameter.normal_(generator=generator(parameter.dim()))
        for parameter in fast.parameters():
            parameter.add_(0.5)
        fast.train()(torch.randn(8, 3, 4, 4, generator=generator(3)))  # fast has statistics of its own
    slow_before = copy.deepcopy(slow)
    fast_before = copy.deepcopy(fast)
    momentum_update(slow, fast, momentum)
    assert equal(fast, fast_before)
    for moved, old, new in zip(slow.parameters(), slow_before.parameters(), fast.parameters(), strict=True):
        expected = momentum * old.double() + (1 - momentum) * new.double()
        torch.testing.assert_close(moved.double(), expected, rtol=1e-6, atol=1e-7)
    for kept, old, other in zip(slow.buffers(), slow_before.buffers(), fast.buffers(), strict=True):
        assert torch.equal(kept, old)
        assert not torch.equal(kept, other)


def test_prototypes_are_learnt() -> None:
    """A vector for each class, of length one on average, so that the first steps turn it as fast as the embeddings."""

    def learnt(classes: int, dim: int) -> Tensor:
        setup = Setup(nn.ModuleList(), None, 9, classes, dim, generator())
        return Prototypes().module(setup).vectors

    vectors = learnt(4, 8)
    assert vectors.shape == (4, 8)
    assert vectors.requires_grad
    assert len(vectors.unique(dim=0)) == 4
    for dim in (8, 128):
        squared_lengths = learnt(2000, dim).square().sum(1)
        assert squared_lengths.mean().item() == pytest.approx(1, abs=0.05)


def blobs() -> tuple[Tensor, Tensor]:
    """Unit keys ``[120, 8]`` close to four directions in turn, and the number ``[120]`` of the direction of each."""
    truth = torch.arange(4).repeat(30)
    noise = torch.randn(120, 8, generator=generator(1)) * 0.05
    return F.normalize(torch.eye(8)[truth] + noise, dim=1), truth


@pytest.mark.parametrize("run", [clusters._faiss, clusters._lloyd])
def test_k_means_separates_clear_blobs_and_depends_on_its_seed_only(run) -> None:
    """Some starts find the four blobs; others may stop in a local optimum, which splits one and joins two.

    Where no blob is, every key is left with its closest centre.
    """
    keys, truth = blobs()
    found = [run(keys, 4, 20, seed) for seed in range(6)]
    separated = 0
    for labels in found:
        assert labels.dtype == torch.int64
        assert labels.shape == (120,)
        assert set(labels.tolist()) <= {0, 1, 2, 3}
        overlaps = torch.stack([labels, truth], 1).unique(dim=0)  # a row for each cluster and blob that share keys
        is_same_partition = len(overlaps) == len(labels.unique()) == 4
        separated += is_same_partition
    assert separated >= 2
    assert torch.equal(run(keys, 4, 20, 3), found[3])
    assert any(not torch.equal(found[0], other) for other in found[1:])

    keys = F.normalize(torch.randn(200, 4, generator=generator(2)), dim=1)
    labels = run(keys, 5, 50, 0)
    centres = torch.stack([keys[labels == cluster].mean(0) for cluster in range(5)])
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
        alone = clusters.kmeans(keys, 5, 1, seed=7 + run)
        assert torch.equal(labels[:, run], alone[:, 0])
    assert not torch.equal(labels[:, 0], labels[:, 1])

    a_cluster_each = clusters.kmeans(torch.eye(6), 6)
    assert sorted(a_cluster_each[:, 0].tolist()) == [0, 1, 2, 3, 4, 5]


def test_groups_are_normalised_apart_and_keep_their_order() -> None:
    """Each view is encoded with the mean of its group, and a seed draws which views share one."""
    views = torch.randn(12, 3, generator=generator(0))

    def centred(group: Tensor) -> Tensor:
        return group - group.mean(0)

    def unchanged(group: Tensor) -> Tensor:
        return group

    assert torch.equal(in_groups(centred, views, 1, torch.Generator()), centred(views))
    assert torch.equal(in_groups(unchanged, views, 4, generator(2)), views)
    encoded = in_groups(centred, views, 3, generator(1))
    assert torch.equal(in_groups(centred, views, 3, generator(1)), encoded)
    means = (views - encoded).round(decimals=5)
    assert len(means.unique(dim=0)) == 3
    not_shuffled = torch.cat([centred(group) for group in views.split(4)])
    assert not torch.allclose(encoded, not_shuffled)


def moco_in_groups(groups: int, items: int) -> tuple[Learner, tuple[Tensor, ...]]:
    """MoCo with shuffled batch-norm, and two views of each item of a batch; alike at every call."""
    recipe = methods.get("ring/moco").override({"keys.size": 20, "keys.shuffle_groups": groups})
    learner = Learner(recipe, Settings(arch="tiny", stem="cifar", dim=8, head="mlp3"), images=40, classes=2, seed=0)
    draws = generator(3)
    for parameter in learner.network.parameters():
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=draws)
    first = torch.rand(items, 3, 16, 16, generator=draws)
    second = torch.rand(items, 3, 16, 16, generator=draws)
    return learner.train(), (first, second)


def step_of(learner: Learner, views: tuple[Tensor, ...]) -> dict[str, Tensor]:
    """Loss, stored keys, gradients and statistics of a step."""
    items = torch.arange(len(views[0]))
    step = learner.loss(views, items, items, BatchRandom(generator(1)), 0, 1)
    step.loss.backward()
    found = {"loss": step.loss.detach(), "keys": step.store[0], **learner.state_dict()}
    for name, parameter in learner.network.named_parameters():
        found[f"gradient of {name}"] = parameter.grad
    return found


def kinds_of_batch_norm(network: nn.Module) -> list[type]:
    return [type(module) for module in network.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]


@pytest.mark.parametrize(("groups", "items"), [(2, 12), (4, 8), (3, 13)])
def test_groups_in_one_pass_are_those_one_after_the_other(groups: int, items: int) -> None:
    """A step has the same results, which those of a single group are not. Batch-norm is plain again if asked for."""
    learner, views = moco_in_groups(groups, items)
    expected = step_of(learner, views)
    at_once, _ = moco_in_groups(groups, items)
    at_once.keys.norm_in_one_pass(at_once.network.encoders)
    passes = []

    def count_pass(*of_hook: object) -> None:
        passes.append(of_hook)

    at_once.network.encoders[0].register_forward_hook(count_pass)
    found = step_of(at_once, views)
    assert len(passes) == 1
    torch.testing.assert_close(found, expected, rtol=2e-5, atol=2e-6)

    single, _ = moco_in_groups(1, items)
    assert not torch.allclose(step_of(single, views)["keys"], expected["keys"], atol=1e-3)

    keys.norm_plainly(at_once.network)
    keys.norm_plainly(at_once.keys)
    assert kinds_of_batch_norm(at_once) == kinds_of_batch_norm(learner)


def test_groups_are_one_after_the_other_where_a_norm_is_of_another_kind() -> None:
    class Other(nn.BatchNorm2d): ...

    learner, views = moco_in_groups(2, 8)
    expected = step_of(learner, views)
    other, _ = moco_in_groups(2, 8)
    for network in (other.network, other.keys):
        first_norm = next(module for module in network.modules() if isinstance(module, nn.BatchNorm2d))
        first_norm.__class__ = Other
    other.keys.norm_in_one_pass(other.network.encoders)
    found = step_of(other, views)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_groups_that_cannot_be_shared_out_and_a_batch_of_one_are_refused(monkeypatch) -> None:
    recipe = methods.get("ring/simclr")
    learner = Learner(recipe, Settings(arch="tiny", dim=8), images=4, classes=2, seed=0)
    view = torch.rand(1, 3, 16, 16, generator=generator())
    item = torch.tensor([0])
    with pytest.raises(ArgumentError, match="batch=1: expected at least two items"):
        learner.loss((view, view), item, item, BatchRandom(generator()), 0, 1)
    monkeypatch.setattr(collectives, "world", lambda: (0, 2))
    assert [local_groups(groups) for groups in (1, 2, 6)] == [1, 1, 3]
    with pytest.raises(ArgumentError, match=r"shuffle_groups=3: expected 1, or a multiple of .*processes, 2"):
        local_groups(3)


def test_a_run_is_watched_against_its_bank_where_it_has_one(pictures, tiny, shrink, monkeypatch) -> None:
    """The neighbours are those among the stored keys, of both streams side by side.

    A queue has no key of each image, so all images are encoded again.
    """
    learners: list[Learner] = []
    watched: list[Tensor] = []
    nearest_neighbour = loop.representations.nearest_neighbour

    def learner(*arguments, **options) -> Learner:
        learners.append(Learner(*arguments, **options))
        return learners[-1]

    def watch(rows: Tensor, *others: Tensor) -> float:
        watched.append(rows.clone())
        return nearest_neighbour(rows, *others)

    monkeypatch.setattr(loop, "Learner", learner)
    monkeypatch.setattr(loop.representations, "nearest_neighbour", watch)
    settings = tiny.override(knn_every=1, epochs=1)
    for name in ("ring/cmc", "ring/moco"):
        loop.pretrain(shrink(methods.get(name)), settings, pictures(48), pictures(16), log=quiet)
    of_cmc, of_moco = learners
    both_banks = torch.cat([of_cmc.keys.stored(0), of_cmc.keys.stored(1)], 1)
    rows_of_cmc, rows_of_moco = watched
    torch.testing.assert_close(rows_of_cmc, F.normalize(both_banks, dim=1))
    assert len(rows_of_moco) == 48
    assert len(of_moco.keys.stored(0)) == 20


@pytest.mark.parametrize(
    ("rows", "embeddings", "rate", "words"),
    [
        ([0, 1], (1, 3), 0.5, r"^embeddings=\(1, 3\): .*\[2, 3\]"),
        ([0, 1], (2, 4), 0.5, r"^embeddings=\(2, 4\): "),
        ([3, -1], (2, 3), 0.5, r"indices=-1: .*0 to 4"),
        ([3, 5], (2, 3), 0.5, r"indices=5: .*0 to 4"),
        ([3, 1_000_000], (2, 3), 0.5, r"indices=1000000: .*0 to 4"),
    ],
)
def test_an_update_of_a_bank_that_does_not_fit_is_refused_and_nothing_is_written(rows, embeddings, rate, words) -> None:
    bank = MemoryBank(5, 3, generator())
    before = bank.rows.clone()
    with pytest.raises(ArgumentError, match=words):
        bank.update(torch.tensor(rows), torch.ones(embeddings), rate)
    assert torch.equal(bank.rows, before)
