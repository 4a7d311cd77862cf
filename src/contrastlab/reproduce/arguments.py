"""What is asked of a table, read and checked before PyTorch is imported or data are read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from contrastlab import papers
from contrastlab.errors import ArgumentError, reject, unknown
from contrastlab.results import slug

PROFILE_VARIABLE = "CONTRASTLAB_PROFILE"
"""Environment variable that says what the profile ``auto`` is."""


def choose_profile(profile: str, known: Sequence[str]) -> str:
    """One of ``known``; ``auto`` is ``CONTRASTLAB_PROFILE``, else ``paper`` where there is a GPU, else ``laptop``."""
    kind, stated = "profile", os.environ.get(PROFILE_VARIABLE)
    if profile == "auto" and stated:
        kind, profile = f"profile of the variable {PROFILE_VARIABLE}", stated
    elif profile == "auto":
        import torch

        profile = "paper" if torch.cuda.is_available() else "laptop"
    if profile not in known:
        raise unknown(kind, profile, ("auto", *known))
    return profile


def parse_seeds(seeds: int | str | Iterable[int]) -> tuple[int, ...]:
    """Seeds from ``3``, ``"0,1,2"`` or a list, as papermill may pass them."""
    parts = seeds.split(",") if isinstance(seeds, str) else seeds if isinstance(seeds, Iterable) else [seeds]
    try:
        numbers = tuple(dict.fromkeys(int(str(s)) for s in parts if str(s).strip()))
    except (TypeError, ValueError):
        numbers = ()
    if not numbers or min(numbers) < 0 or max(numbers) >= 2**32:
        raise reject("seeds", seeds, "non-negative integers below 2**32: 3, '0,1,2' or [0, 1, 2]")
    return numbers


def parse_target(target: str) -> tuple[str, str]:
    """``("ring", "1")`` from ``ring/table1``; an error names the notebook of what has no cells."""
    known = {f"{paper}/{slug(number)}": (paper, number) for paper, number in papers.plans()}
    if target in known:
        return known[target]
    for entry in papers.catalogue():
        if entry.name == target and entry.notebook:
            made = f"{target} is made by {entry.notebook} and has no cells to run or show"
            raise ArgumentError(f"{made}; contrastlab notebook {target} writes the notebook here")
    raise unknown("table", target, known)
