"""Kernels that a training step starts and bytes that they move, counted on the device ``meta``, which has no data.

``python benchmarks/counts.py`` counts the last step of each of ``CASES``, when rings are at the end of their annealing,
and writes ``results/counts.json``. A test fails where a count has grown. The cost model takes from the counts how often
a step passes over its scores and over the pixels of its views.

An operation of PyTorch counts as one kernel. It moves what it reads and writes, each tensor once, but for a few that
are known to read more often (``READS``). All is float32 and nothing is compiled. The optimiser's step, one fused kernel
on a GPU, is left out.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import cost
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from contrastlab import methods, papers
from contrastlab.methods import Recipe
from contrastlab.settings import Settings
from contrastlab.train import Speed, loop
from contrastlab.train.learner import Learner
from contrastlab.train.progress import Course

STORED = Path(__file__).parent / "results" / "counts.json"
META = torch.device("meta")
PHASES = (
    "views",
    "encoder",
    "slow encoder",
    "objective",
    "backward of the objective",
    "backward of the encoder",
    "keys",
)

READS = {"topk": 6, "native_batch_norm": 2, "native_batch_norm_backward": 2}
"""How often an operation reads its inputs, where it is not once. ``topk`` selects by digits: its pass over the digits
of a float32 is four reads, and gathering what was found takes two more."""

GATHERS = {"gather", "index", "index_select"}
"""Operations that read of their first input as much as they write, not all of it."""

SCATTERS = {"index_copy_", "index_add_", "scatter_", "scatter_add_", "index_put_"}
"""Operations that write to their first input as much as they read of the others."""

FREE = {
    "empty",
    "empty_like",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "view",
    "_unsafe_view",
    "reshape",
    "expand",
    "permute",
    "transpose",
    "t",
    "slice",
    "select",
    "unsqueeze",
    "squeeze",
    "detach",
    "alias",
    "as_strided",
    "unbind",
    "split",
    "split_with_sizes",
    "chunk",
    "unfold",
    "diagonal",
    "lift_fresh",
    "scalar_tensor",
    "_reshape_alias",
    "real",
    "movedim",
}
"""Operations that start no kernel."""


@dataclass(frozen=True)
class Case:
    """A method with the settings that a table of a paper prints."""

    paper: str
    table: int
    method: str
    side: int  #: of a view, pixels
    images: int  #: of the set, and rows of a bank

    def recipe_and_settings(self) -> tuple[Recipe, Settings]:
        """The recipe, and the table's settings with views of ``side``."""
        dataset = "cifar10" if self.side < 64 else "imagenet"
        settings = papers.plan(self.paper, self.table).settings(dataset, self.method, "paper")
        stem = "cifar" if self.side < 64 else "imagenet"
        settings = settings.override(image_size=self.side, stem=stem)
        return methods.get(self.method).override(settings.overrides), settings


CASES: Mapping[str, Case] = {
    "MoCo, 224 px": Case("ring", 1, "ring/moco", 224, 50_000),
    "MoCoRing, 224 px": Case("ring", 1, "ring/mocoring", 224, 50_000),
    "MoCo v2, ResNet-50, 224 px": Case("jcl", 1, "jcl/moco_v2", 224, 50_000),
    "SimCLR, 32 px": Case("fmicl", 2, "fmicl/simclr", 32, 50_000),
    "f-MICL, 32 px": Case("fmicl", 2, "fmicl/kl", 32, 50_000),
    "IR of few keys, 32 px": Case("ring", 1, "ring/ir", 32, 30_000),
    "IR, 32 px": Case("ring", 1, "ring/ir", 32, 50_000),
    "IR of many keys, 32 px": Case("ring", 1, "ring/ir", 32, 1_281_167),
    "IRing, 32 px": Case("ring", 1, "ring/iring", 32, 50_000),
    "IRing of many keys, 32 px": Case("ring", 1, "ring/iring", 32, 1_281_167),
    "CMCRing, 32 px": Case("ring", 1, "ring/cmcring", 32, 50_000),
    "LA, 32 px": Case("ring", 1, "ring/la", 32, 50_000),
}


COUNTED = {
    "every": "MoCo, 224 px",
    "uniform": "IR of few keys, 32 px",
    "region": "IRing, 32 px",
    "region, streamed": "IRing of many keys, 32 px",
    "views": "MoCo, 224 px",
}
"""The case whose counts stand for a kind of negatives, and for the views."""


class Traffic(TorchDispatchMode):
    """Counts kernels and bytes, by phase."""

    def __init__(self) -> None:
        super().__init__()
        self.phase = "views"
        self.kernels: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = operation(*args, **kwargs)
        name = operation.overloadpacket.__name__
        inputs, outputs = moved((args, kwargs)), moved(out)
        if name not in FREE and (inputs or outputs):
            read = READS.get(name, 1) * sum(inputs)
            written = sum(outputs)
            if name in GATHERS:
                read = written + sum(inputs[1:])
            elif name in ("_embedding_bag", "_embedding_bag_forward_only"):
                table, indices = args[:2]
                read = indices.numel() * table.shape[1] * table.element_size() + sum(inputs[1:])
            elif name in SCATTERS:
                read = written = sum(inputs[1:])
            self.kernels[self.phase] += 1
            self.bytes[self.phase] += read + written
        return out

    @contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """Count as of this phase within."""
        before, self.phase = self.phase, phase
        try:
            yield
        finally:
            self.phase = before


def moved(tree: Any) -> list[int]:
    """Bytes of each tensor of the device; a tensor that is expanded has those of its memory."""
    sizes = []
    for x in tree_leaves(tree):
        if isinstance(x, Tensor) and x.device == META:
            sizes.append(min(x.numel() * x.element_size(), x.untyped_storage().nbytes()))
    return sizes


class WithoutDraws(TorchFunctionMode):
    """Takes generators away: there are none on ``meta``, and nothing is drawn there."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        place = kwargs.get("device")
        if place is not None and torch.device(place) == META:
            kwargs.pop("generator", None)
        return function(*args, **kwargs)


class Nothing(SimpleNamespace):
    """A set of pictures on ``meta``, of which nobody can look at a label."""

    domain, modality = "contrastlab.pictures.domain", "image"
    name, resident, whole, classes, channels = "nothing", True, True, ("a", "b"), 3

    def __len__(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device) -> Nothing:
        """The same: it is there."""
        return self


def made_loop(recipe: Recipe, settings: Settings, images: int, side: int) -> Any:
    """A training on ``meta``, before its first step."""
    pixels = torch.empty(images, 3, side, side, dtype=torch.uint8, device=META)
    labels = torch.zeros(images, dtype=torch.int64)
    data = Nothing(items=pixels, labels=labels)
    with META:
        learner = Learner(recipe, settings, images=images, classes=2, seed=0)
    optimiser = SimpleNamespace(step=lambda: None, zero_grad=lambda: None)
    fabric = SimpleNamespace(
        device=META,
        autocast=nullcontext,
        setup=lambda network, _: (network, optimiser),
        backward=lambda loss: loss.backward(),
    )
    course = Course(
        recipe,
        settings,
        seed=0,
        steps=images // settings.batch_size,
        rank=0,
        world=1,
        device=META,
        checkpoint=None,
        images="nothing",
        fingerprint="",
    )
    items = loop._Data.on(META, data, None, torch.arange(images))
    run = loop._Loop(course, learner, items, fabric, Speed(fused=False, workers=0), lambda line: None)  # type: ignore[arg-type]
    run.learner.train()
    return run


def follow(run: Any, traffic: Traffic) -> None:
    """Let a training tell which phase it is in."""
    learner, backward = run.learner, run.fabric.backward
    views, forward, loss, commit = run.recipe.views, learner._forward, learner.loss, learner.commit

    def embed(*given: Tensor) -> Any:
        with traffic.during("encoder"):
            embeddings = forward(*given)
        for embedding in embeddings:
            if embedding.requires_grad:
                embedding.register_hook(reached_encoder)
        return embeddings

    def reached_encoder(gradient: Tensor) -> None:
        traffic.phase = "backward of the encoder"

    def with_phase(function: Any, phase: str) -> Any:
        def call(*args: Any) -> Any:
            with traffic.during(phase):
                return function(*args)

        return call

    for encoder in learner.keys.slow or ():
        encoder.forward = with_phase(encoder.forward, "slow encoder")
    learner.bind(embed)
    learner.loss = with_phase(loss, "objective")
    learner.commit = with_phase(commit, "keys")
    run.recipe = SimpleNamespace(views=SimpleNamespace(make=with_phase(views.make, "views")))
    run.fabric.backward = with_phase(backward, "backward of the objective")


def count(case: Case) -> dict[str, dict[str, int]]:
    """Kernels and bytes of the last step, by phase."""
    recipe, settings = case.recipe_and_settings()
    traffic = Traffic()
    with (
        mock.patch.object(torch, "autocast", autocast),
        mock.patch.object(loop, "generator", generator),
        WithoutDraws(),
    ):
        run = made_loop(recipe, settings, case.images, case.side)
        stream = run.batches()
        run.train_step(*next(stream))  # the first one estimates offsets
        batch = next(stream)
        run.progress.step = run.course.all_steps - 1
        follow(run, traffic)
        with traffic:
            run.train_step(*batch)
    return {
        phase: {"kernels": traffic.kernels[phase], "bytes": traffic.bytes[phase]}
        for phase in PHASES
        if traffic.kernels[phase]
    }


AUTOCAST, GENERATOR = torch.autocast, loop.generator


def autocast(device_type: str, *args: Any, **kwargs: Any) -> Any:
    """``torch.autocast``, which knows no ``meta``."""
    return nullcontext() if device_type == META.type else AUTOCAST(device_type, *args, **kwargs)


def generator(seed: int, purpose: str, step: int = 0, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator on the CPU, whatever the device."""
    return GENERATOR(seed, purpose, step)


def stored() -> dict[str, dict[str, dict[str, int]]]:
    """The counts in ``results/counts.json``."""
    counts: dict[str, dict[str, dict[str, int]]] = json.loads(STORED.read_text(encoding="utf-8"))
    return counts


def passes() -> dict[str, cost.Rate]:
    """How often a step reads or writes all its scores, by kind, and all pixels of its views, from the stored counts.

    What is moved for the drawn keys is taken off: :func:`cost.epoch` adds it.
    """
    counts, found = stored(), {"uniform, few": cost.Rate(0, "passes", "exact: scores of other keys are never computed")}
    for kind, name in COUNTED.items():
        phases, (recipe, settings) = counts[name], CASES[name].recipe_and_settings()
        work = cost.work(recipe, settings, CASES[name].images)
        if kind == "views":
            number = phases["views"]["bytes"] / (cost.FLOAT * work.views)
        else:
            moved_in_all = phases["objective"]["bytes"] + phases["backward of the objective"]["bytes"]
            number = (moved_in_all - work.drawn_bytes) / (cost.FLOAT * work.scores)
        found[kind] = cost.Rate(number, "passes", f"counted by benchmarks/counts.py, {name}")
    return found


def main() -> None:
    """Count all cases and store them."""
    counts = {}
    for name, case in CASES.items():
        counts[name] = count(case)
        total = {unit: sum(phase[unit] for phase in counts[name].values()) for unit in ("kernels", "bytes")}
        print(f"{name}: {total['kernels']:,} kernels, {total['bytes'] / 1e9:,.1f} GB a step")
    STORED.write_text(json.dumps(counts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
