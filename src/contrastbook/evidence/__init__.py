"""What stored results say of the papers' claims: differences with verdicts, searches, curves, bounds."""

from importlib import import_module
from types import ModuleType

__all__ = ["bound", "claims", "curves", "differences", "headlines", "inference", "outcomes", "searches", "words"]


def __getattr__(name: str) -> ModuleType:  # `contrastlab claims` reads claims without PyTorch, which bound needs
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
