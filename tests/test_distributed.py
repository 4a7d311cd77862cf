"""Two processes hold and compute what one process with the same global batch does."""

import copy
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules import batchnorm
from torments import processes
from torments.processes import BATCH, FEW, IMAGES, STEPS

from contrastlab import keys, methods, negatives, positives
from contrastlab.keys import stored
from contrastlab.methods import Recipe
from contrastlab.support import collectives, host
from contrastlab.support.errors import ArgumentError
from contrastlab.train import pretrain
from contrastlab.views import Augmented, Jigsaw, Split
from made_views import Sensors


def made(base: str, name: str, **parts: Any) -> Recipe:
    return replace(methods.get(base), name=f"x/{name}", **parts).override(FEW)


BATCH_KEYS, QUEUE, EVERY = keys.InBatch(), keys.Queue(), negatives.Every()
RECIPES = {
    recipe.name: recipe
    for recipe in (
        *(methods.get(n).override(FEW) for n in (
            "ring/ir", "ring/iring", "ring/cmcring", "ring/moco", "ring/mocoring", "ring/la", "vince/cmc",
            "vince/cave_anneal", "ours/supervised", "fmicl/kl", "fmicl/au", "fmicl/moco_v3", "jcl/vanilla",
            "supcon/out", "decoupled/dclw", "facenet/semi_hard", "barlow/barlow", "vicreg/vicreg", "byol/byol",
        )),
        made("ring/moco", "simclr", keys=BATCH_KEYS),
        made("ring/moco", "simclr_uniform", keys=BATCH_KEYS, negatives=negatives.Uniform(5)),
        made("ring/moco", "simclr_ring", keys=BATCH_KEYS, negatives=negatives.Ring(10, 70, k=None)),
        made("ring/cmc", "cmc_batch", keys=BATCH_KEYS, negatives=EVERY),
        made("ring/cmc", "cmc_queue", keys=QUEUE, negatives=EVERY),
        made("ring/cmc", "cmc_further", views=Split("lab", 2), keys=keys.Queue(further_view=True), negatives=EVERY),
        made("ring/moco", "pirl_queue", views=Jigsaw(count=2)),
        made("ring/cmc", "cmc_pirl", views=Jigsaw("lab", weight=0.3)),
        made("jcl/jcl", "cmc_jcl", views=Split("lab", 6)),
        made("ring/ir", "three_bank", views=Sensors(3, "core")),
        made("ring/iring", "five_bank", views=Sensors(5, "full")),
        made("ring/moco", "three_batch", keys=BATCH_KEYS, views=Sensors(3, "core")),
        made("ring/moco", "five_batch", keys=BATCH_KEYS, views=Sensors(5, "full")),
        made("ring/moco", "three_places", views=Sensors(3, "core"), keys=keys.Locations("map"),
             positives=positives.Each()),
        made("ring/moco", "three_queue", views=Sensors(3, "full")),
        made("jcl/jcl", "five_queue", views=Sensors(5, "core", 6)),
        *(made(f"ring/{base}", f"{base}_synced", **parts) for base, parts in (
            ("moco", {"keys": BATCH_KEYS}), ("cmc", {"keys": BATCH_KEYS, "negatives": EVERY}), ("mocoring", {}),
        )),
        made("fmicl/moco_v3", "v3_synced"),
        *(replace(recipe, keys=keys.Queue(21, 0.8, shuffle_groups=2)) for recipe in (
            made("ring/mocoring", "moco_shuffled"), made("jcl/jcl", "jcl_shuffled"),
            made("ring/moco", "pirl_shuffled", views=Jigsaw(count=2)),
        )),
    )
}  # fmt: skip

CHUNKS = " in chunks"


def in_chunks() -> list[str]:
    """A recipe of each type of keys and of objective whose batch-norm, of which a process has one group, allows it."""
    first = {
        (type(recipe.keys), type(recipe.objective)): name + CHUNKS
        for name, recipe in reversed(RECIPES.items())
        if not name.endswith(("shuffled", "_synced"))
    }
    return list(first.values())


CHUNKED = in_chunks()


def trained(name: str, rank: int, world: int) -> list[dict[str, Any]]:
    recipe, chunks = RECIPES[name.removesuffix(CHUNKS)], 1 + name.endswith(CHUNKS)
    return processes.train(recipe, rank, world, synced="_synced" in name, chunks=chunks)


def gathered(rank: int) -> dict[str, Tensor]:
    """What the collective functions give, on values that name their process."""
    mine = (torch.arange(4.0).reshape(2, 2) + 10 * rank).requires_grad_()
    both = collectives.gather_with_gradient(mine)
    ((both * torch.arange(1.0, 5.0)[:, None]).sum() * (rank + 1)).backward()
    assert mine.grad is not None
    return {
        "both": both.detach(),
        "grad": mine.grad,
        "plain": collectives.gather(mine),
        "world": torch.tensor(collectives.world()),
    }


def scattered_sum(output: Tensor, every: Tensor) -> None:
    """``dist.reduce_scatter_tensor``, which gloo has not in every version."""
    assert output.is_contiguous()
    assert every.is_contiguous()
    assert every.shape == (2 * output.shape[0], *output.shape[1:])
    total = every.clone()
    dist.all_reduce(total)
    output.copy_(total[dist.get_rank() * len(output) :][: len(output)])


def gathered_as_on_gpus(rank: int) -> dict[str, Tensor]:
    """The same by the collectives of GPUs."""
    alone = mock.patch.object(dist, "all_gather", side_effect=AssertionError("a list of tensors is gathered"))
    with mock.patch.object(host, "TYPE", "none"), mock.patch.object(dist, "reduce_scatter_tensor", scattered_sum):
        mine = (torch.arange(4.0).reshape(2, 2) + 10 * rank).requires_grad_()
        with alone:
            both = collectives.gather_with_gradient(mine.T.T)
            (both.T * torch.arange(1.0, 5.0) * (rank + 1)).sum().backward()
    assert mine.grad is not None
    return {"both": both.detach(), "grad": mine.grad}


class OnGpu(Tensor):
    """A CPU tensor that says it lies on a GPU."""

    device = property(lambda self: torch.device("cuda", 0))


class OneBatchNorm:
    """What PyTorch's batch-norm of several GPUs computes: that of the gathered batch, on one process."""

    calls = 0

    @staticmethod
    def apply(x, weight, bias, mean, variance, eps, momentum, group, count) -> Tensor:
        OneBatchNorm.calls += 1
        assert count == 2
        assert group is dist.group.WORLD
        every = collectives.gather_with_gradient(x.as_subclass(Tensor))
        out = F.batch_norm(every, mean, variance, weight, bias, True, momentum, eps)
        return out.chunk(2)[dist.get_rank()]


def synchronised(rank: int, norm: nn.Module, kind: type[Tensor]) -> dict[str, Tensor]:
    """Outputs, gradients and statistics of a batch-norm of both processes in training, and its outputs after it."""
    torch.manual_seed(rank)
    x = torch.randn(6, 3, 2, 2).requires_grad_()
    keys.synchronise(norm)
    out = norm(x.as_subclass(kind)).as_subclass(Tensor)
    (out * torch.arange(4.0).view(2, 2)).square().sum().backward()
    norm.eval()
    rest = norm(x.as_subclass(kind)).as_subclass(Tensor)
    gradients = {f"gradient of {name}": p.grad for name, p in norm.named_parameters()}
    return {"out": out.detach(), "x": x.grad, "rest": rest.detach(), **norm.state_dict(), **gradients}


def batch_norms(rank: int) -> dict[str, dict[str, Tensor]]:
    """The same norm by the code for CPUs and by PyTorch's for GPUs."""
    torch.manual_seed(5)
    cpu = nn.BatchNorm2d(3, momentum=0.3)
    nn.init.normal_(cpu.weight)
    gpu = copy.deepcopy(cpu)
    found = {"cpu": synchronised(rank, cpu, Tensor)}
    with mock.patch.object(batchnorm, "sync_batch_norm", OneBatchNorm):
        found["gpu"] = synchronised(rank, gpu, OnGpu)
    assert OneBatchNorm.calls == 1
    return found


def clustered(rank: int) -> dict[str, Tensor]:
    """Seeds of the runs of k-means that this process computed, and the labels that it then has of all five runs."""
    seeds = []

    def kmeans(rows: Tensor, clusters: int, *, seed: int) -> Tensor:
        seeds.append(seed)
        return torch.full((len(rows), 1), 100 * rank + seed)

    setup = keys.Setup(nn.ModuleList([nn.Identity()]), Augmented(), 4, 2, 3, torch.Generator(), k_means=(2, 5))
    state = keys.BankState(setup, 0.5)
    with mock.patch.object(stored, "kmeans", kmeans):
        state.cluster(seed=10)
    return {"seeds": torch.tensor(seeds), "labels": state.stores[0].labels}


def process(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    every = {name: trained(name, rank, 2) for name in [*RECIPES, *CHUNKED]}
    every |= {"gathered": gathered(rank), "gathered as on GPUs": gathered_as_on_gpus(rank)}
    every |= {"batch norms": batch_norms(rank), "clustered": clustered(rank)}
    torch.save(every, f"{folder}/rank{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def ranks() -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, {"OMP_NUM_THREADS": "1"}):
        torch.multiprocessing.start_processes(process, (folder,), nprocs=2, start_method="fork")
        return [torch.load(Path(folder) / f"rank{r}.pt", weights_only=True) for r in (0, 1)]


def assert_summed_alike(got: Tensor, expected: Tensor, step: int, where: str) -> None:
    """Equal up to the order of sums, the longest of which is over the keys: so many units in the last place a step."""
    within = 0.0
    if expected.is_floating_point() and expected.numel():
        within = torch.finfo(expected.dtype).eps * IMAGES * (step + 1) * float(expected.nan_to_num().abs().max())
    torch.testing.assert_close(got, expected, rtol=0, atol=within, equal_nan=True, msg=lambda m: f"{where}: {m}")


@pytest.mark.parametrize("name", [*RECIPES, *CHUNKED])
def test_two_processes_compute_and_hold_what_one_does(name: str, ranks) -> None:
    one, both = trained(name.removesuffix(CHUNKS), 0, 1), (ranks[0][name], ranks[1][name])
    assert len(one) == STEPS
    assert any(k.startswith("gradient") for k in one[0])
    for step, expected in enumerate(one):
        for rank in (0, 1):
            got = both[rank][step]
            assert got.keys() == expected.keys()
            for key, value in expected.items():
                assert_summed_alike(got[key], value, step, f"step {step}, rank {rank}, {key}")
        for key, value in both[0][step].items():
            torch.testing.assert_close(both[1][step][key], value, rtol=0, atol=0, equal_nan=True)


def test_these_runs_can_tell_a_difference(ranks) -> None:
    for name in RECIPES:
        first, last = ranks[0][name][0], ranks[0][name][-1]
        changed = [k for k in first if k.startswith("gradient") and not torch.equal(first[k], last[k])]
        assert changed
        assert all(bool(last[k].any()) for k in changed)
        stored = [k for k in first if k.startswith("kept") and k.endswith("rows")]
        assert all(not torch.equal(first[k], last[k]) for k in stored)
    labels = ranks[0]["vince/cave_anneal"][-1]["kept stores.0.labels"]
    assert int(labels.max()) < 3 <= len(labels)
    assert int(ranks[0]["ring/moco"][-1]["kept stores.0.pointer"]) == (STEPS * BATCH) % 21


def test_gathering_is_in_rank_order_and_gradients_return_summed(ranks) -> None:
    expected = torch.cat([torch.arange(4.0).reshape(2, 2), torch.arange(4.0).reshape(2, 2) + 10])
    for rank, other in enumerate(ranks):
        got = other["gathered"]
        assert got["world"].tolist() == [rank, 2]
        assert torch.equal(got["both"], expected)
        assert torch.equal(got["plain"], expected)
        # each process weighs row i by (i + 1) times its own (rank + 1): 1 + 2 in all
        gradient = (3 * (torch.tensor([[1.0], [2.0]]) + 2 * rank)).expand(2, 2)
        assert torch.equal(got["grad"], gradient)
        assert torch.equal(other["gathered as on GPUs"]["both"], expected)
        assert torch.equal(other["gathered as on GPUs"]["grad"], gradient)


def test_each_process_clusters_its_share_of_the_runs_for_all(ranks) -> None:
    assert [other["clustered"]["seeds"].tolist() for other in ranks] == [[10, 12, 14], [11, 13]]
    for other in ranks:
        assert other["clustered"]["labels"].tolist() == [[10, 111, 12, 113, 14]] * 4


def test_on_gpus_batch_norm_of_all_processes_is_that_of_pytorch(ranks) -> None:
    for other in ranks:
        cpu, gpu = (other["batch norms"][place] for place in ("cpu", "gpu"))
        assert cpu.keys() == gpu.keys()
        assert int(gpu["num_batches_tracked"]) == 1
        for name, value in cpu.items():
            torch.testing.assert_close(gpu[name], value, rtol=1e-4, atol=1e-5, msg=lambda m, name=name: f"{name}: {m}")
    one, two = (other["batch norms"]["gpu"] for other in ranks)
    assert torch.equal(one["running_mean"], two["running_mean"])
    assert not torch.equal(one["out"], two["out"])


def test_a_batch_that_does_not_divide_among_the_processes_is_refused(pictures, tiny, monkeypatch) -> None:
    monkeypatch.setattr(collectives, "world", lambda: (0, 3))
    with pytest.raises(ArgumentError, match="batch_size=16: .*processes, 3"):
        pretrain(methods.get("ring/ir"), tiny, pictures(48))
