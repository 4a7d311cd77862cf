"""Interactive figures of the book: each one is a pure function of its knobs.

``ring(outer=10)`` draws one state. :func:`sliding` turns such a function into a figure with a slider that needs no
Python behind it (the static page); :mod:`contrastbook.figures.widgets` makes live controls of it (JupyterLab).

One visual language: :data:`~contrastbook.figures.base.COLOURS`, safe for colour-blind readers, and a line style or
marker beside every colour, so that a figure reads in black and white. Values outside their range are refused by name;
nothing is clamped.
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
)  # fmt: skip
from contrastbook.figures.losses import composition, joint, ring, simplex, temperature

__all__ = [
    "COLOURS", "GRAPHS", "ceiling", "collisions", "composition", "joint", "kept_bits", "looseness", "more_views",
    "power", "ring", "shared_information", "simplex", "sliding", "temperature", "view_table",
]  # fmt: skip
