"""Sentences of a small grammar, with exact scores of similarity: two sentences are as alike as their meanings.

A meaning fills slots (who, does what, to what, where, how). A slot's filler can be said with several words, and a
meaning in several orders, so that equal meanings need not share a word. The score of a pair is the weighted share of
slots that agree, from 0 to 5 as in STS.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from contrastlab.errors import reject

SLOTS: Mapping[str, tuple[float, tuple[tuple[str, ...], ...]]] = MappingProxyType(
    {
        "agent": (0.3, (
            ("the boy", "a lad"), ("the girl", "a lass"), ("the doctor", "a physician"), ("the teacher", "a tutor"),
            ("the farmer", "a grower"), ("the thief", "a burglar"), ("the child", "a kid"), ("the cook", "a chef"),
        )),
        "action": (0.3, (
            ("carries", "bears"), ("buys", "purchases"), ("repairs", "mends"), ("hides", "conceals"),
            ("finds", "discovers"), ("throws", "tosses"), ("cleans", "washes"), ("draws", "sketches"),
        )),
        "object": (0.25, (
            ("the stone", "a rock"), ("the sofa", "a couch"), ("the gift", "a present"), ("the cup", "a mug"),
            ("the picture", "an image"), ("the rug", "a carpet"), ("the coat", "a jacket"), ("the boat", "a ship"),
        )),
        "place": (0.1, (
            ("in the garden", "in the yard"), ("at the shop", "at the store"), ("near the road", "near the street"),
            ("in the forest", "in the woods"), ("by the sea", "by the ocean"), ("at home", "in the house"),
        )),
        "manner": (0.05, (
            ("quickly", "rapidly"), ("quietly", "silently"), ("gladly", "happily"), ("slowly", "without haste"),
        )),
    }
)  # fmt: skip
"""Slot to its weight in the score, and its fillers, each with the words for it."""

_ORDERS = ("{agent} {manner} {action} {object} {place}", "{place} {agent} {action} {object} {manner}")


@dataclass(frozen=True)
class Sentence:
    """What is said, and how.

    Args:
        meaning: filler of each slot, in the order of :data:`SLOTS`.
        text: the words.
    """

    meaning: tuple[int, ...]
    text: str


def _meaning(rng: np.random.Generator) -> tuple[int, ...]:
    return tuple(int(rng.integers(len(fillers))) for _, fillers in SLOTS.values())


def say(meaning: tuple[int, ...], rng: np.random.Generator) -> Sentence:
    """One of the ways to say a meaning."""
    words = {
        slot: fillers[filler][int(rng.integers(len(fillers[filler])))]
        for (slot, (_, fillers)), filler in zip(SLOTS.items(), meaning, strict=True)
    }
    text = _ORDERS[int(rng.integers(len(_ORDERS)))].format(**words)
    return Sentence(meaning, f"{text[0].upper()}{text[1:]}.")


def similarity(first: tuple[int, ...], second: tuple[int, ...]) -> float:
    """5 times the weighted share of slots in which two meanings agree."""
    weights = (weight for weight, _ in SLOTS.values())
    return round(5 * sum(w for w, a, b in zip(weights, first, second, strict=True) if a == b), 6)


def sentences(count: int, seed: int) -> list[Sentence]:
    """Sentences of random meanings.

    Raises:
        ArgumentError: fewer than one.
    """
    if count < 1:
        raise reject("count", count, "at least 1")
    rng = np.random.default_rng(seed)
    return [say(_meaning(rng), rng) for _ in range(count)]


def pairs(count: int, seed: int) -> list[tuple[str, str, float]]:
    """Pairs whose number of equal slots is uniform from none to all, each with its exact score.

    Raises:
        ArgumentError: fewer than one.
    """
    if count < 1:
        raise reject("count", count, "at least 1")
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(count):
        first, other = _meaning(rng), _meaning(rng)
        same = rng.permutation(len(SLOTS))[: int(rng.integers(len(SLOTS) + 1))]
        second = tuple(a if k in same else b for k, (a, b) in enumerate(zip(first, other, strict=True)))
        out.append((say(first, rng).text, say(second, rng).text, similarity(first, second)))
    return out
