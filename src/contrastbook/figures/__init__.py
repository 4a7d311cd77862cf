"""Interactive figures of the book: each one is a pure function of its knobs.

``ring(outer=10)`` draws one state, :func:`sliding` a slider that needs no Python behind it (the static page), and
:mod:`contrastbook.figures.widgets` live controls (JupyterLab). Colours are safe for colour-blind readers, and a line
style or marker stands beside every colour. Values outside their range are refused by name; nothing is clamped.
"""

from contrastbook.figures.base import COLOURS, sliding
from contrastbook.figures.information import (
    GRAPHS,
    ceiling,
    collisions,
    kept_bits,
    looseness,
    more_views,
    power,
    shared_information,
    view_table,
)
from contrastbook.figures.losses import composition, joint, ring, simplex, temperature

__all__ = [
    "COLOURS",
    "GRAPHS",
    "ceiling",
    "collisions",
    "composition",
    "joint",
    "kept_bits",
    "looseness",
    "more_views",
    "power",
    "ring",
    "shared_information",
    "simplex",
    "sliding",
    "temperature",
    "view_table",
]
