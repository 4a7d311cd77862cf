"""What the networks share."""

from __future__ import annotations

from typing import Literal

Stem = Literal["imagenet", "cifar"]


def scaled(channels: int, width: float) -> int:
    """Channels of a layer at ``width`` times its usual number, at least one."""
    return max(1, round(channels * width))
