"""Data sets that are generated, by name; the entry point ``contrastlab.data`` adds them to ``contrastlab.data.load``.

Pictures (``shapes`` and its variants), annotated pictures (``silhouettes``), ``clips`` with exact flow, ``rooms`` with
depth, normals and classes of pixels, sentences (``grammar``) and spoken commands (``voices``).
A set has a module of its own, imported when the set is loaded, with a function ``load(request)``.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from contrastlab.data import Request, Source, Splits

TASKS = ("speaker", "digit", "command", "action", "object", "location")
"""Labels of the generated voices, in the order of ring Table 5c."""


def _made(modality: str, module: str, *names: str) -> dict[str, Source]:
    def read(request: Request) -> Splits:
        splits: Splits = import_module(f"{__name__}.{module}").load(request)
        return splits

    return dict.fromkeys(names, Source(modality, read))


_SILHOUETTES = ("silhouettes", "silhouettes_keypoints", "silhouettes_lvis", "silhouettes_1200")

SOURCES: Mapping[str, Source] = {
    **_made("image", "shapes", "shapes", "plain_shapes", "shapes_recoloured"),
    **_made("clip", "actions", "clips"),
    **_made("scene", "rooms", "rooms", "rooms_validation"),
    **_made("sentence", "grammar", "grammar", "grammar_pairs"),
    **_made("waveform", "voices", "voices", *(f"voices_{task}" for task in TASKS)),
    **_made("annotated image", "silhouettes", *_SILHOUETTES),
}
"""Name of a data set to its source."""
