"""Two and three processes hold and compute what one process with the same global batch does, for any recipe.

Encoders are one linear layer, views are vectors, and everything a step leaves is compared: loss, gradients, offsets,
and the stored keys with their pointers and labels. Batch statistics are the same for one process or many only where a
queue asks for as many groups as there are processes, or batch-norm is synchronised, so only there an encoder has any.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from contrastlab import data, keys, methods
from contrastlab.methods import Recipe
from contrastlab.negatives import BatchRandom
from contrastlab.settings import Settings
from contrastlab.support import collectives
from contrastlab.support.errors import ContrastLabError
from contrastlab.train import pretrain
from contrastlab.train.learner import Learner
from torments.figures import Figures, Log, recipes

IMAGES, BATCH, STEPS, DIM, FEATURES = 30, 8, 5, 8, 12
FEW = {
    "negatives.k": 5,
    "negatives.nearest": 9,
    "keys.size": 21,
    "keys.momentum": 0.8,
    "negatives.clusters": 3,
    "positives.clusters": 3,
    "negatives.runs": 2,
    "positives.runs": 2,
    "keys.shuffle_groups": 1,
    "keys.predictor": None,  # its batch-norm sees one process only, as all batch-norm here
}
"""Changes that make a recipe small enough for a few items."""


class Plain(nn.Module):
    """An encoder of vectors without running statistics; without any of the batch unless ``normed``."""

    def __init__(self, normed: bool = False, dim: int = DIM, *, centred: bool = False) -> None:
        super().__init__()
        # a bias before batch-norm, or before a loss of centred embeddings, has no gradient but rounding
        self.linear = nn.Linear(FEATURES, dim, bias=not normed and not centred)
        # batch statistics too are the same where the batch has as many parts as there are processes
        self.norm = nn.BatchNorm1d(dim, track_running_stats=False) if normed else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Unit embeddings ``[B, dim]``."""
        return F.normalize(self.project(x), dim=1)

    def project(self, x: Tensor) -> Tensor:
        """Embeddings ``[B, dim]`` of no set length."""
        projected: Tensor = self.norm(self.linear(x.flatten(1)))
        return projected

    def embed_with_map(self, x: Tensor, block: str) -> tuple[Tensor, Tensor]:
        """A map of two locations."""
        return self(x), torch.stack([self.linear(x), self.linear(x.roll(1, 1))], 2)[..., None]

    def stages(self, x: Tensor) -> list[Tensor]:
        """One map."""
        return [self.linear(x.flatten(1))]

    def decoder(self, channels: int, width: int, skips: bool) -> Decoder:
        """Pixels from the map."""
        return Decoder(channels, self.linear.out_features)


class Decoder(nn.Module):
    """Pixels ``[B, channels, 3, 4]`` from a map of one place."""

    def __init__(self, channels: int, dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, channels * FEATURES)

    def forward(self, maps: list[Tensor], size: tuple[int, int]) -> Tensor:
        """``[B, channels, *size]``."""
        return self.linear(maps[-1]).view(len(maps[-1]), -1, *size)


def encoders(recipe: Recipe, normed: bool = False, dim: int = DIM) -> nn.ModuleList:
    """One for each stream."""
    centred = isinstance(recipe.keys, keys.Pairs)
    return nn.ModuleList(Plain(normed, dim, centred=centred) for _ in recipe.views.streams)


def vectors(recipe: Recipe, batch: int, generator: torch.Generator) -> list[Tensor]:
    """Views of a batch: vectors ``[B, 12]``; where pixels are predicted, a picture ``[B, 1, 3, 4]`` and its targets."""
    if isinstance(recipe.keys, keys.Pixels):
        shapes: list[tuple[int, ...]] = [(c, 3, 4) for c in (1, *recipe.views.target_channels)]  # type: ignore[attr-defined]
    else:
        shapes = [(FEATURES,)] * (
            (recipe.views.count + len(recipe.views.query_weights) - 1) * len(recipe.views.streams)
        )
    return [torch.randn(batch, *shape, generator=generator) for shape in shapes]


def train(
    recipe: Recipe, rank: int, world: int, batch: int = BATCH, dim: int = DIM, *, synced: bool = False, chunks: int = 1
) -> list[dict[str, Any]]:
    """A few steps of this process's share of the global batches, and all that is kept after each.

    Args:
        recipe: small, see :data:`FEW`.
        rank: of this process.
        world: processes.
        batch: items of all of them.
        dim: of the embedding.
        synced: whether encoders have batch-norm that sees the global batch, and keeps running statistics.
        chunks: in which a process computes its share.
    """
    normed = synced or getattr(recipe.keys, "shuffle_groups", 1) > 1
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        networks = encoders(recipe, normed, dim)
    for encoder in networks if synced else ():
        encoder.norm = nn.BatchNorm1d(dim)
    settings = Settings(dim=dim, sync_batch_norm=synced, accumulate=chunks)
    learner = Learner(recipe, settings, images=IMAGES, classes=3, seed=0, encoders=networks)
    network: nn.Module = learner.network if chunks == 1 else keys.Chunked(learner.network, batch // world // chunks)
    learner.bind(DistributedDataParallel(network) if world > 1 else network)
    optimiser = torch.optim.SGD(learner.network.parameters(), lr=0.5)
    generator = torch.Generator().manual_seed(7)
    out = []
    for step in range(STEPS):
        views = vectors(recipe, batch, generator)
        indices = torch.randperm(IMAGES, generator=generator)[:batch]
        labels = torch.randint(3, (batch,), generator=generator)
        local = batch // world
        mine = slice(rank * local, (rank + 1) * local)
        draws = BatchRandom(torch.Generator().manual_seed(step), rank * local, batch)
        if step == 2:
            learner.keys.cluster(seed=3)
        done = learner.loss(tuple(v[mine] for v in views), indices[mine], labels[mine], draws, step, STEPS)
        optimiser.zero_grad()
        done.loss.backward()
        gradients = {n: p.grad.clone() for n, p in learner.network.named_parameters() if p.grad is not None}
        # an α of a million has slopes of a million: unbounded, a step would magnify the rounding of the one before
        torch.nn.utils.clip_grad_norm_(learner.network.parameters(), 1.0)
        optimiser.step()
        learner.commit(indices[mine], done)
        out.append(
            {
                "loss": collectives.gather(done.loss.detach()[None]).mean(),
                "terms": torch.tensor(done.terms),
                **{
                    f"part {n}": t.clone()
                    for n, t in learner.network.state_dict().items()
                    if not n.startswith("encoders")
                },
                **{f"gradient of {n}": gradient for n, gradient in gradients.items()},
                **{f"kept {n}": b.clone() for n, b in learner.keys.state_dict().items()},
                **{f"running {n}": b.clone() for n, b in learner.network.named_buffers()},
            }
        )
    return out


def small(name: str, world: int) -> Recipe:
    """A named recipe with few keys; a queue that shuffles its batch-norm has as many groups as there are processes."""
    named = methods.get(name)
    recipe = named.override(FEW)
    if getattr(named.keys, "shuffle_groups", 1) > 1:
        recipe = recipe.override({"keys.shuffle_groups": world})
    return recipe


def _process(rank: int, world: int, folder: str, names: tuple[str, ...], batch: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world)
    kept = {}
    for name in names:
        for step, each in enumerate(train(small(name, world), rank, world, batch)):
            kept |= {f"{name}\n{step}\n{key}": value.contiguous() for key, value in each.items()}
    refusals = [] if world == 2 else [name for name in names if _refused(name)]
    torch.save({"kept": kept, "refused": refusals}, f"{folder}/rank{rank}.pt")
    dist.destroy_process_group()


def _refused(name: str) -> bool:
    """Whether the loop names ``batch_size`` where a batch does not divide among the processes."""
    few = data.load("shapes", n_train=40, n_test=8)
    try:
        pretrain(methods.get(name), Settings(batch_size=8 * dist.get_world_size() + 1), few.pretrain)
    except ContrastLabError as error:
        return "batch_size" in str(error)
    return False


def together(world: int, names: tuple[str, ...], batch: int) -> list[dict[str, Any]]:
    """What each of ``world`` processes holds, by recipe, step and what it is."""
    with tempfile.TemporaryDirectory() as folder:
        before = os.environ.get("OMP_NUM_THREADS")
        os.environ["OMP_NUM_THREADS"] = "1"
        try:
            # a fork has imported everything; elsewhere than on Linux it is not safe
            method = "fork" if sys.platform == "linux" else "spawn"
            given = (world, folder, names, batch)
            torch.multiprocessing.start_processes(_process, given, nprocs=world, start_method=method)
        finally:
            os.environ.pop("OMP_NUM_THREADS") if before is None else os.environ.update(OMP_NUM_THREADS=before)
        return [torch.load(Path(folder) / f"rank{rank}.pt", weights_only=True) for rank in range(world)]


def other(one: list[dict[str, Any]], many: list[list[dict[str, Any]]]) -> str:
    """Where several processes differ from one beyond the order of sums; empty where nowhere.

    The order of float32 sums may change a tensor by 2e-4 of its largest entry.
    """
    for step, expected in enumerate(one):
        for rank, steps in enumerate(many):
            if steps[step].keys() != expected.keys():
                return f"step {step}, rank {rank}: other tensors"
            for key, value in expected.items():
                known = value.double()
                within = 2e-6 + 2e-4 * float(known.nan_to_num().abs().max()) if known.numel() else 0.0
                if not torch.allclose(steps[step][key].double(), known, rtol=0, atol=within, equal_nan=True):
                    return f"step {step}, rank {rank}, {key}"
    return ""


def run(count: int, seed: int, folder: Path, log: Log, names: tuple[str, ...] = ()) -> Figures:
    """Every recipe with keys on two processes, and on three; ``count`` bounds the recipes, 0 is all.

    Args:
        count: of recipes, drawn; 0 is all.
        seed: of that draw.
        folder: not used.
        log: takes lines of progress.
        names: of recipes, instead of a draw.
    """
    figures = Figures()
    chosen = recipes(count, seed, names)
    for world, batch in ((2, BATCH), (3, 9)):
        ranks = together(world, chosen, batch)
        for name in chosen:
            one = train(small(name, world), 0, 1, batch)
            many = [
                [{key: rank["kept"][f"{name}\n{step}\n{key}"] for key in each} for step, each in enumerate(one)]
                for rank in ranks
            ]
            wrong = other(one, many)
            figures.count("failed" if wrong else "identical", f"{world} processes", f"{name}: {wrong}")
            if world == 3:
                said = all(name in rank["refused"] for rank in ranks)
                line = "" if said else f"{name}: a batch that does not divide is not refused"
                figures.count("refused" if said else "failed", "3 processes, a batch that does not divide", line)
        log(f"processes: {world}, {len(chosen)} recipes, {figures.failed} failed")
    return figures


__all__ = ["FEW", "Plain", "encoders", "run", "together", "train", "vectors"]
