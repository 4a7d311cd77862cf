"""Doors: modules that show names of others, each imported when it is first asked for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any


def look_up(door: str, homes: Mapping[str, str], name: str) -> Any:
    """The object ``name`` of the module that ``homes`` says; an ``AttributeError`` where it says none."""
    if name not in homes:
        raise AttributeError(f"module {door!r} has no attribute {name!r}")
    return getattr(import_module(homes[name]), name)
