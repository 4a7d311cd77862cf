"""The extra ``dense``: masks and scores of detection by faster-coco-eval, imported where it is used."""

from __future__ import annotations

from types import ModuleType

from contrastlab.errors import ContrastLabError


def mask_functions() -> ModuleType:
    """``faster_coco_eval.mask``.

    Raises:
        ContrastLabError: it is not installed; the message says how to.
    """
    try:
        from faster_coco_eval import mask
    except ImportError as error:
        raise absent() from error
    module: ModuleType = mask
    return module


def absent() -> ContrastLabError:
    """The error that says which extra is missing."""
    return ContrastLabError(
        "masks and scores of detection need faster-coco-eval, which is not installed: pip install 'contrastlab[dense]'"
    )
