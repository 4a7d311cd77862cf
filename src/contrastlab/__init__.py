"""Contrastive learning as the estimation of mutual information.

A contrastive method is five choices: views, keys, negatives, positives, objective.
Each choice is a small part in the module of its name; :mod:`contrastlab.methods` holds
the recipes of the five papers as rows of data, and :mod:`contrastlab.train` is the
one loop that trains all of them.
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

try:
    __version__ = version("contrastlab")
except PackageNotFoundError:  # run from a copy of `src`, not installed
    __version__ = "unknown"


def __getattr__(name: str) -> Any:
    """A module of the package, imported when it is first named, since some take seconds."""
    if name.startswith("_") or find_spec(f"{__name__}.{name}") is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
