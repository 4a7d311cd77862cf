"""One call gathers the keys of all processes with their gradients: two processes have the loss of one."""

import os
import tempfile
from pathlib import Path
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from contrastlab.objectives import AlignUniform, InfoNCE, Objective, from_views
from contrastlab.papers.barlow.objective import BarlowTwins
from contrastlab.papers.supcon.objective import SupCon
from contrastlab.support.errors import ArgumentError

CASES: dict[str, tuple[Objective, bool]] = {
    "InfoNCE": (InfoNCE(), False),
    "SupCon": (SupCon(), True),
    "AlignUniform": (AlignUniform(), False),
    "BarlowTwins": (BarlowTwins(), False),
}
LABELS = torch.tensor([0, 1, 2, 0, 1, 0, -1, -1])


def views() -> Tensor:
    return torch.randn(2, 8, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def loss_and_slope(name: str, rows: slice, *, gather: bool) -> tuple[Tensor, Tensor]:
    objective, labelled = CASES[name]
    z = views()[:, rows].clone().requires_grad_()
    labels = LABELS[rows] if labelled else None
    loss = from_views(z[0], z[1], objective, temperature=0.3, labels=labels, gather=gather)
    loss.backward()
    return loss.detach(), z.grad


def process(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    own = slice(4 * rank, 4 * rank + 4)
    torch.save({name: loss_and_slope(name, own, gather=True) for name in CASES}, f"{folder}/rank{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def ranks() -> list[dict[str, tuple[Tensor, Tensor]]]:
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, {"OMP_NUM_THREADS": "1"}):
        torch.multiprocessing.start_processes(process, (folder,), nprocs=2, start_method="fork")
        return [torch.load(Path(folder) / f"rank{rank}.pt", weights_only=True) for rank in (0, 1)]


@pytest.mark.parametrize("name", CASES)
def test_two_processes_have_the_loss_and_the_gradient_of_one(name: str, ranks) -> None:
    expected, slope = loss_and_slope(name, slice(None), gather=False)
    losses = torch.stack([rank[name][0] for rank in ranks])
    torch.testing.assert_close(losses.mean(), expected)
    # data-parallel training takes the mean of what each process adds to its own parameters
    together = torch.cat([rank[name][1] for rank in ranks], 1) / 2
    torch.testing.assert_close(together, slope)
    alone, _ = loss_and_slope(name, slice(0, 4), gather=False)
    assert alone != expected


def test_it_is_refused_with_a_reason_where_there_is_no_group() -> None:
    z1, z2 = views()
    with pytest.raises(ArgumentError, match="^gather=True: expected False where torch.distributed has no process"):
        from_views(z1, z2, gather=True)
    with pytest.raises(ArgumentError, match="^gather=1"):
        from_views(z1, z2, gather=1)  # type: ignore[arg-type]
    group = mock.patch("contrastlab.support.collectives.initialised", return_value=True)
    with group, pytest.raises(ArgumentError, match="^gather=True: expected False with spared"):
        from_views(z1, z2, gather=True, spared=torch.zeros(8, 8, dtype=torch.bool))
