"""What figures and studies refuse by name; nothing is clamped."""

from __future__ import annotations

import math

from contrastlab.support.errors import reject


def require(name: str, value: float, low: float, high: float = math.inf, *, open_low: bool = False) -> None:
    """Raise an ``ArgumentError`` unless ``low ≤ value ≤ high`` (``low < value`` with ``open_low``)."""
    in_range = math.isfinite(value) and low <= value <= high
    if in_range and not (open_low and value == low):
        return
    least = f"above {low:g}" if open_low else f"of at least {low:g}"
    most = f" and at most {high:g}" if math.isfinite(high) else ""
    raise reject(name, value, f"a number {least}{most}")


def require_integer(name: str, value: int, low: int, high: float = math.inf) -> None:
    """Raise an ``ArgumentError`` unless ``value`` is an integer from ``low`` to ``high``."""
    is_integer = not isinstance(value, bool) and int(value) == value
    if not is_integer or not low <= value <= high:
        most = f" and at most {high}" if math.isfinite(high) else ""
        raise reject(name, value, f"an integer of at least {low}{most}")


def require_positive(**values: float) -> None:
    """Raise an ``ArgumentError`` unless all are finite and above 0."""
    for name, value in values.items():
        require(name, value, 0, open_low=True)
