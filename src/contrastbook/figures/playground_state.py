"""A choice of the playground's knobs, checked, and the recipe it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from contrastbook.figures import view_table
from contrastlab import divergences, keys, negatives, objectives, positives, schedules, views
from contrastlab.candidates import Candidates, Chosen
from contrastlab.errors import reject, unknown
from contrastlab.methods import Recipe
from contrastlab.negatives import BatchRandom
from contrastlab.objectives import Scores

NAME, LABEL = "playground/mine", "mine"
CLASSES = 6


MOST_VIEWS = 300
"""Views that a page can move and draw at the rate of a film."""


CHOICES: Mapping[str, Mapping[str, str]] = {
    "keys": {"across": "other view", "both": "both views", "within": "same view", "queue": "queue, no gradient"},
    "negatives": {"every": "every key", "ball": "ball: the closest", "ring": "ring: close, not closest"},
    "positives": {
        "one": "one key",
        "many": "M keys, mean loss",
        "joint": "JCL, from M keys",
        "neighbours": "neighbours, too",
    },
    "objective": {
        "infonce": "InfoNCE",
        "without": "InfoNCE, positive not below",
        "fmicl": "f-MICL",
        "au": "alignment and uniformity",
        "spectral": "spectral",
    },
    "divergence": {name: divergences.get(name).title for name in divergences.names()},
    "origin": {"random": "everywhere", "cap": "in a cap"},
}
"""Values of the choices that have a name, and how a reader sees them."""


STOPS: Mapping[str, tuple[float, ...]] = {
    "circle": (7, 8, 9, 10, 11, 12),
    "views": (2, 3, 4, 5, 6),
    "near": (0, 1, 2, 3),
    "common": (0, 1, 2, 3, 4, 5),
    "size": (30, 60, 120, 240),
    "inner": (0, 1, 2, 5, 10, 15, 20, 30, 50, 70),
    "outer": (1, 2, 5, 10, 15, 20, 30, 50, 70, 100),
    "anneal": (0, 1),
    "start": (10, 20, 30, 50, 70, 100),
    "begin": (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8),
    "width": (0.1, 0.2, 0.3, 0.5, 1),
    "count": (2, 3, 4, 5, 6),
    "strength": (0, 0.25, 0.5, 1, 2, 4, 8, 16),
    "closest": (1, 2, 5, 10, 15, 20, 30),
    "order": (1.2, 1.5, 2, 2.5, 3, 4, 5),
    "weight": (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1, 2, 5, 10, 20, 40, 80),
    "sigma2": (0.1, 0.2, 0.3, 0.5, 0.7, 1, 2, 5),
    "align": (0.1, 0.2, 0.5, 1, 2, 5),
    "uniform": (0.1, 0.2, 0.5, 1, 2, 5),
    "t": (0.5, 1, 2, 3, 5, 10),
    "tau": (0.01, 0.02, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1, 2),
    "rate": (0.001, 0.002, 0.005, 0.01, 0.02, 0.05),
    "seed": (0, 1, 2, 3, 4, 5, 6, 7, 8, 9),
    "steps": (100, 200, 300, 500, 1000),
}
"""Where the slider of a number stops; a value between the first and the last is accepted, too."""


MODULES = ("keys", "methods", "negatives", "objectives", "positives", "schedules", "views")


WHOLE = ("circle", "views", "near", "common", "size", "anneal", "count", "seed", "steps")


@dataclass(frozen=True)
class State:
    """Everything a reader can choose.

    Args:
        circle: items of each of the six classes; they sit on a circle and share views with their neighbours.
        keys: ``"across"``, ``"both"``, ``"within"``: :class:`~contrastlab.keys.InBatch`; ``"queue"``: the last ``size``
            keys, without gradient, as :class:`~contrastlab.keys.Queue` with momentum 0 has them.
        negatives: ``"every"``, ``"ball"`` or ``"ring"``.
        inner: ℓ of the ring, percent.
        outer: u of ball and ring, percent.
        anneal: 1 if u comes down from ``start``, else 0.
        start: u at first, percent.
        begin: when it starts to change, a fraction of the run.
        width: how long it changes, a fraction of the run.
        positives: ``"one"``, ``"many"``, ``"joint"`` or ``"neighbours"``.
        strength: λ of JCL.
        closest: neighbours that count as positives, percent of the keys.
        objective: ``"infonce"``, ``"without"`` (the positive not in the denominator), ``"fmicl"``, ``"au"`` or
            ``"spectral"``.
        divergence: of f-MICL, a name in :mod:`contrastlab.divergences`.
        weight: α of f-MICL.
        sigma2: σ² of f-MICL, the temperature of its recipe.
        rate: learning rate: how far a view moves in a step, in radians, where its gradient is of usual size.
        origin: where the views start, ``"random"`` or ``"cap"``.
    """

    circle: int = 10
    views: int = 4
    near: int = 2
    common: int = 0
    keys: str = "across"
    size: int = 60
    negatives: str = "every"
    inner: float = 1
    outer: float = 15
    anneal: int = 0
    start: float = 100
    begin: float = 0
    width: float = 0.5
    positives: str = "one"
    count: int = 4
    strength: float = 1
    closest: float = 5
    objective: str = "infonce"
    divergence: str = "kl"
    order: float = 3
    weight: float = 40
    sigma2: float = 0.5
    align: float = 1
    uniform: float = 1
    t: float = 2
    tau: float = 0.2
    rate: float = 0.01
    origin: str = "random"
    seed: int = 0
    steps: int = 300

    def __post_init__(self) -> None:
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                raise unknown(name, getattr(self, name), known)
        for name, stops in STOPS.items():
            value = getattr(self, name)
            kind = "an integer" if name in WHOLE else "a number"
            if isinstance(value, bool) or not isinstance(value, int | float) or not stops[0] <= value <= stops[-1]:
                raise reject(name, value, f"{kind} from {stops[0]:g} to {stops[-1]:g}")
            if name in WHOLE and value != int(value):
                raise reject(name, value, f"an integer from {stops[0]:g} to {stops[-1]:g}")
        if 2 * self.near + self.common > self.views:
            raise reject(
                "near", self.near,
                f"a graph in which 2·near + common, here {2 * self.near + self.common}, is at most views={self.views}",
            )  # fmt: skip
        drawn = len(np.unique(self.table))
        if drawn > MOST_VIEWS:
            raise reject("views", self.views, f"a graph of at most {MOST_VIEWS} views; this one has {drawn}")

    @property
    def table(self) -> NDArray[np.int64]:
        """``[items, views]`` ids of the views of each item; see :func:`view_table`."""
        return view_table(self.near, self.common, views=self.views, circle=self.circle)

    @property
    def candidates(self) -> int:
        """How many keys may be negatives of one query."""
        others = CLASSES * self.circle - 1
        return {"across": others, "both": 2 * others, "within": others, "queue": self.size}[self.keys]

    @property
    def until(self) -> float:
        """Where annealing ends, as a fraction of the run."""
        return min(1.0, round(self.begin + self.width, 6))

    def recipe(self) -> Recipe:
        """The method, as the library names it.

        Raises:
            NotApplicableError: a combination that cannot be computed.
        """
        return make_recipe({**asdict(self), "until": self.until})

    def check(self) -> Recipe:
        """The recipe, after its parts have chosen keys for one query and its objective has scored them.

        Raises:
            ContrastLabError: what the library refuses when the recipe is made or first used.
        """
        first_use({**asdict(self), "until": self.until}, self.candidates)
        return self.recipe()


def make_recipe(c: Mapping[str, Any]) -> Recipe:
    """The recipe that values of knobs make, or the library's refusal."""
    outer = schedules.Linear(c["start"], c["outer"], c["until"], c["begin"]) if c["anneal"] else c["outer"]
    region: dict[str, Callable[[], negatives.Negatives]] = {
        "every": negatives.Every,
        "ball": lambda: negatives.Ball(outer, k=None),
        "ring": lambda: negatives.Ring(c["inner"], outer, k=None),
    }
    same: dict[str, Callable[[], positives.Positives]] = {
        "one": positives.One,
        "many": lambda: positives.Many(c["count"]),
        "joint": lambda: positives.Joint(c["count"], c["strength"]),
        "neighbours": lambda: positives.Neighbours(c["closest"]),
    }
    order = c["order"] if c["divergence"] == "tsallis" else None
    loss: dict[str, Callable[[], objectives.Objective]] = {
        "infonce": objectives.InfoNCE,
        "without": lambda: objectives.InfoNCE(False),
        "fmicl": lambda: objectives.FMICL(c["divergence"], order, c["weight"]),
        "au": lambda: objectives.AlignUniform(c["align"], c["uniform"], c["t"]),
        "spectral": objectives.Spectral,
    }
    several = c["positives"] in ("many", "joint")
    return Recipe(
        NAME, LABEL,
        views=views.Augmented(1 + c["count"] if several else 2),
        keys=keys.Queue(c["size"], 0) if c["keys"] == "queue" else keys.InBatch(c["keys"], symmetric=False),
        negatives=region[c["negatives"]](),
        positives=same[c["positives"]](),
        objective=loss[c["objective"]](),
        temperature={"fmicl": c["sigma2"], "au": 1}.get(c["objective"], c["tau"]),
    )  # fmt: skip


def first_use(c: Mapping[str, Any], keys_: int) -> None:
    """Refuse what the first batch would refuse."""
    # what a first batch would refuse: the objective given all keys, then the region where it is smallest
    recipe = make_recipe(c)
    pool = Candidates(torch.zeros(1, keys_, dtype=torch.float64))
    draws = BatchRandom(torch.Generator().manual_seed(0))
    own, lift = torch.zeros(1, dtype=torch.float64), None
    if isinstance(recipe.positives, positives.Many | positives.Joint):
        own, lift = recipe.positives.pair(own.expand(1, recipe.positives.count), 0, 1)
    others = recipe.positives.select(pool, Chosen(None), draws, 0, 1)
    taken = None if others is None else pool.read(others)
    recipe.objective(Scores(own, pool.logits, taken, lift=lift, highest=1 / recipe.temperature))
    part = recipe.negatives
    if isinstance(part, negatives.Ring | negatives.Ball):
        part = replace(part, outer=schedules.bounds(part.outer)[0])
    part.select(pool, draws, 0, 1)
