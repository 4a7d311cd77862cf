"""Training: the loop, a recipe made concrete, saved state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from contrastlab.support import doors

if TYPE_CHECKING:
    from contrastlab.train.loop import Speed, Trained, pretrain
    from contrastlab.train.schedule import cpu_fabric

__all__ = [
    "Speed",
    "Trained",
    "cpu_fabric",
    "pretrain",
]

_HOMES = {
    **dict.fromkeys(("Speed", "Trained", "pretrain"), "contrastlab.train.loop"),
    "cpu_fabric": "contrastlab.train.schedule",
}


def __getattr__(name: str) -> Any:
    return doors.look_up(__name__, _HOMES, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
