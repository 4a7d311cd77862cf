"""The counts that every part of the torture gives."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from contrastlab import methods

Log = Callable[[str], None]


@dataclass
class Figures:
    """How often something was tried, and how each try ended; every try is in one of the four last counts.

    Args:
        tried: how often.
        identical: the work went on and ended with the same numbers and tensors.
        refused: an error of this package named the file or the argument.
        unchanged: what is read is what was stored.
        failed: none of these.
        of: tries by phase, kind of file or case.
        failures: what happened, a line for each failure.
        skipped: what this machine cannot try, with the reason.
    """

    tried: int = 0
    identical: int = 0
    refused: int = 0
    unchanged: int = 0
    failed: int = 0
    of: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def count(self, outcome: str, of: str, line: str = "") -> None:
        """One try: ``outcome`` is the name of a count, ``of`` what was tried, ``line`` why it failed."""
        self.tried += 1
        setattr(self, outcome, getattr(self, outcome) + 1)
        self.of[of] = self.of.get(of, 0) + 1
        if outcome == "failed":
            self.failures.append(f"{of}: {line}")


def recipes(count: int, seed: int, names: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Names of recipes with keys: those given, else ``count`` drawn by ``seed``, 0 is all."""
    every = [name for name in methods.names() if methods.get(name).keys is not None]
    return names or tuple(random.Random(seed).sample(every, count) if count else every)
