"""Losses and gradients stay finite where a batch degenerates: every recipe, at a temperature of 0.01, in bfloat16.

A recipe's objective, keys, negatives and positives get embeddings of degenerate pictures: duplicates, one colour, one
picture only, two pictures, one picture many times, and fewer keys than the batch has items. Three steps are taken, so
that stored keys are those of a network that has moved. A try passes if loss, gradients and kept keys are finite after
every step (*unchanged*), or if an error of this package says what it does not accept (*refused*).
"""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from contrastlab import methods
from contrastlab.methods import Recipe
from contrastlab.negatives import BatchRandom
from contrastlab.settings import Settings
from contrastlab.support.errors import ContrastLabError, NonFiniteLossError
from contrastlab.train.learner import Learner
from torments.figures import Figures, Log, recipes
from torments.processes import FEW, encoders, vectors

STEPS, IMAGES, DIM, TAU = 3, 12, 8, 0.01
BATCHES = ("duplicates", "constant", "one image", "two images", "the same image", "fewer keys than the batch")


def cold(recipe: Recipe) -> Recipe:
    """The recipe with few keys, at a temperature of 0.01 wherever it has one."""
    small = recipe.override(FEW)
    if any(field.name == "temperature" for field in fields(small)):
        small = replace(small, temperature=TAU)
    return small


def degenerate(kind: str, recipe: Recipe, generator: torch.Generator) -> tuple[tuple[Tensor, ...], Tensor]:
    """Views of a degenerate batch, each the item itself, and the items' numbers ``[n]``.

    Args:
        kind: one of :data:`BATCHES`.
        recipe: says how many views of what shape there are.
        generator: of the items.
    """
    size = {"one image": 1, "two images": 2}.get(kind, 8)
    made = vectors(recipe, size, generator)
    if kind == "the same image":
        made = [view[:1].expand_as(view).clone() for view in made]
    elif kind == "constant":
        made = [torch.full_like(view, 0.5) for view in made]
    elif kind == "duplicates":
        made = [view[: size // 2].repeat(2, *[1] * (view.ndim - 1)) for view in made]
    # an augmentation that changes nothing: all views of one shape are one
    same = {view.shape: view for view in made}
    numbers = torch.full((size,), 3) if kind == "the same image" else torch.arange(size)
    return tuple(same[view.shape].clone() for view in made), numbers


def finite(recipe: Recipe, kind: str) -> str:
    """What is not finite after three steps on degenerate batches; empty if everything is.

    Args:
        recipe: any.
        kind: one of :data:`BATCHES`.

    Raises:
        ContrastLabError: the recipe refuses such a batch.
    """
    recipe = cold(recipe)
    if kind == "fewer keys than the batch":
        recipe = recipe.override({"keys.size": 5, "negatives.k": 2})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        networks = encoders(recipe)
    learner = Learner(recipe, Settings(dim=DIM), images=IMAGES, classes=3, seed=0, encoders=networks)
    optimiser = torch.optim.SGD(learner.network.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(1)
    for step in range(STEPS):
        views, numbers = degenerate(kind, recipe, generator)
        labels = numbers % 3
        draws = BatchRandom(torch.Generator().manual_seed(step), 0, len(numbers))
        if step == 1:
            learner.keys.cluster(seed=3)
        with torch.autocast("cpu", torch.bfloat16):
            done = learner.loss(views, numbers, labels, draws, step, STEPS)
        optimiser.zero_grad()
        done.loss.backward()
        wrong = _not_finite(learner, done.loss)
        if wrong:
            return f"{wrong} at step {step}"
        optimiser.step()
        learner.commit(numbers, done)
        kept = [name for name, kept in learner.keys.state_dict().items() if not bool(kept.float().isfinite().all())]
        if kept:
            return f"{kept[0]} after step {step}"
    return ""


def _not_finite(learner: Any, loss: Tensor) -> str:
    if not bool(loss.detach().isfinite()):
        return f"the loss is {float(loss.detach())}"
    named = learner.network.named_parameters()
    bad = [name for name, p in named if p.grad is not None and not bool(p.grad.isfinite().all())]
    return f"the gradient of {bad[0]} is not finite" if bad else ""


def run(count: int, seed: int, folder: Path, log: Log, names: tuple[str, ...] = ()) -> Figures:
    """Every recipe with keys and every degenerate batch; ``count`` bounds the recipes, 0 is all.

    Args:
        count: of recipes, drawn; 0 is all.
        seed: of that draw.
        folder: not used.
        log: takes lines of progress.
        names: of recipes, instead of a draw.
    """
    figures = Figures()
    chosen = recipes(count, seed, names)
    for name in chosen:
        for kind in BATCHES:
            try:
                wrong = finite(methods.get(name), kind)
                figures.count("failed" if wrong else "unchanged", kind, f"{name}: {wrong}")
            except NonFiniteLossError as error:
                figures.count("failed", kind, f"{name}: {error}")
            except ContrastLabError:
                figures.count("refused", kind)
            except Exception as error:  # whatever else is raised is what is looked for
                figures.count("failed", kind, f"{name}: {type(error).__name__}: {error}")
    log(f"finite: {len(chosen)} recipes, {figures.tried} tries, {figures.failed} failed")
    return figures
