"""Data sets that are generated, by name; the entry point ``contrastlab.data`` adds them to ``contrastlab.data.load``.

Pictures (``shapes`` and its variants), annotated pictures (``silhouettes``), ``clips`` with exact flow, ``rooms`` with
depth, normals and classes of pixels, sentences (``grammar``), pictures with sentences (``captions``) and spoken
commands (``voices``).
A set has a module of its own, imported when the set is loaded, with a function ``load(request)``.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from contrastlab.data import Request, Source, Splits

TASKS = ("speaker", "digit", "command", "action", "object", "location")
"""Labels of the generated voices, in the order of ring Table 5c."""


def _sources(modality: str, module: str, *names: str) -> dict[str, Source]:
    """Sources of the sets ``names``, which a module of this package generates when one is loaded."""

    def read(request: Request) -> Splits:
        splits: Splits = import_module(f"{__name__}.{module}").load(request)
        return splits

    return dict.fromkeys(names, Source(modality, read))


_SILHOUETTES = ("silhouettes", "silhouettes_keypoints", "silhouettes_lvis", "silhouettes_1200")

SOURCES: Mapping[str, Source] = {
    **_sources("image", "shapes", "shapes", "plain_shapes", "shapes_recoloured"),
    **_sources("clip", "actions", "clips"),
    **_sources("scene", "rooms", "rooms", "rooms_validation"),
    **_sources("sentence", "grammar", "grammar", "grammar_pairs"),
    **_sources("captioned image", "captions", "captions"),
    **_sources("waveform", "voices", "voices", *(f"voices_{task}" for task in TASKS)),
    **_sources("annotated image", "silhouettes", *_SILHOUETTES),
}
"""Name of a data set to its source."""
