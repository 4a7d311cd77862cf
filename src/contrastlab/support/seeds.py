"""Random numbers that a seed, a purpose and a step decide."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def derive(seed: int, purpose: str, step: int = 0) -> int:
    """A seed for one purpose at one step; different purposes and steps are independent."""
    digest = hashlib.sha256(f"{seed}/{purpose}/{step}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator(seed: int, purpose: str, step: int = 0, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator seeded by :func:`derive`."""
    return torch.Generator(device=device).manual_seed(derive(seed, purpose, step))


@contextmanager
def fixed(seed: int, device: torch.device | str = "cpu") -> Iterator[None]:
    """PyTorch's global draws, on the CPU and ``device``, begin at ``seed`` within, and go on as if nothing was drawn.

    Weights of new layers and dropout take no generator of their own; this gives them one.
    """
    device = torch.device(device)
    gpus = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=gpus):
        torch.default_generator.manual_seed(seed)
        for gpu in gpus:
            with torch.cuda.device(gpu):
                torch.cuda.manual_seed(seed)
        yield
