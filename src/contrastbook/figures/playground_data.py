"""What the playground's knobs are and make, and what its module knows of the library: equations, Python, refusals."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from contrastbook.figures import view_table
from contrastlab import divergences, keys, negatives, objectives, positives, schedules, views
from contrastlab.candidates import Candidates, Chosen
from contrastlab.errors import ContrastLabError, reject, unknown
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
        "one": "one key", "many": "M keys, mean loss", "joint": "JCL, from M keys", "neighbours": "neighbours, too",
    },
    "objective": {
        "infonce": "InfoNCE", "without": "InfoNCE, positive not below", "fmicl": "f-MICL",
        "au": "alignment and uniformity", "spectral": "spectral",
    },
    "divergence": {name: divergences.get(name).title for name in divergences.names()},
    "origin": {"random": "everywhere", "cap": "in a cap"},
}  # fmt: skip
"""Values of the choices that have a name, and how a reader sees them."""


STOPS: Mapping[str, tuple[float, ...]] = {
    "circle": (7, 8, 9, 10, 11, 12), "views": (2, 3, 4, 5, 6), "near": (0, 1, 2, 3), "common": (0, 1, 2, 3, 4, 5),
    "size": (30, 60, 120, 240), "inner": (0, 1, 2, 5, 10, 15, 20, 30, 50, 70),
    "outer": (1, 2, 5, 10, 15, 20, 30, 50, 70, 100), "anneal": (0, 1), "start": (10, 20, 30, 50, 70, 100),
    "begin": (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8), "width": (0.1, 0.2, 0.3, 0.5, 1), "count": (2, 3, 4, 5, 6),
    "strength": (0, 0.25, 0.5, 1, 2, 4, 8, 16), "closest": (1, 2, 5, 10, 15, 20, 30),
    "order": (1.2, 1.5, 2, 2.5, 3, 4, 5), "weight": (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1, 2, 5, 10, 20, 40, 80),
    "sigma2": (0.1, 0.2, 0.3, 0.5, 0.7, 1, 2, 5), "align": (0.1, 0.2, 0.5, 1, 2, 5),
    "uniform": (0.1, 0.2, 0.5, 1, 2, 5), "t": (0.5, 1, 2, 3, 5, 10),
    "tau": (0.01, 0.02, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1, 2),
    "rate": (0.001, 0.002, 0.005, 0.01, 0.02, 0.05), "seed": (0, 1, 2, 3, 4, 5, 6, 7, 8, 9),
    "steps": (100, 200, 300, 500, 1000),
}  # fmt: skip
"""Where the slider of a number stops; a value between the first and the last is accepted, too."""

MODULES = ("keys", "methods", "negatives", "objectives", "positives", "schedules", "views")
WHOLE = ("circle", "views", "near", "common", "size", "anneal", "count", "seed", "steps")


@dataclass(frozen=True)
class State:
    """Everything a reader can choose, as :data:`LABELS` names it.

    Percentages are of the keys; ``begin`` and ``width`` are fractions of the run, ``rate`` is how far a view moves in a
    step, in radians, where its gradient is of usual size. ``anneal`` is 1 if u comes down from ``start``. Keys
    ``"across"``, ``"both"``, ``"within"`` are :class:`~contrastlab.keys.InBatch`; ``"queue"`` is the last ``size``
    keys, without gradient, as :class:`~contrastlab.keys.Queue` with momentum 0 has them. ``sigma2`` is the
    temperature of f-MICL's recipe.
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


# What the library says, with the numbers that a reader turns marked @name@. They are put in as numbers that occur
# nowhere else, and looked for in what comes out.
_MARKS: Mapping[str, float] = {
    "inner": 1.37, "outer": 13.9, "start": 87.3, "begin": 0.137, "until": 0.613, "count": 17, "count+1": 18,
    "strength": 3.17, "closest": 2.37, "order": 2.71, "order-1": 1.71, "weight": 4.19, "align": 1.19,
    "uniform": 1.23, "t": 2.29, "tau": 0.731, "sigma2": 0.919, "size": 613,
}  # fmt: skip


def _marked(text: str, marks: Mapping[str, float] = _MARKS) -> str:
    for name, value in marks.items():
        text = re.sub(rf"(?<![\d.]){re.escape(f'{value:g}')}(?![\d.]*\d)", f"@{name}@", text)
    return text


def source(part: Any) -> str:
    """Python that makes a part, qualified by its module; fields at their default are left out."""
    if not is_dataclass(part):
        return repr(part)
    given: list[str] = []
    named = False
    for field in fields(part):
        value = getattr(part, field.name)
        if field.default is not MISSING and value == field.default:
            named = True  # what follows a field that is left out
            continue
        named = named or value is None or isinstance(value, bool) or len(given) == 2
        given.append(f"{field.name}={source(value)}" if named else source(value))
    module = type(part).__module__.removeprefix("contrastlab.").split(".")[0]
    return f"{module}.{type(part).__name__}({', '.join(given)})"


_BASE: Mapping[str, Any] = asdict(State()) | dict(_MARKS)


def pieces() -> dict[str, dict[str, tuple[str, str]]]:
    """Rows of the equation and parts in Python: choice → option → (TeX, Python)."""

    def piece(name: str, **choices: Any) -> tuple[str, str]:
        return _rows(make_recipe({**_BASE, **choices}))[name]

    # every divergence but Tsallis differs from the next in its name and f alone
    latex, code = piece("objective", objective="fmicl", divergence="js")
    named = latex.replace(divergences.JS.latex, "@f@"), code.replace("'js'", "'@divergence@'")
    return {
        "objective": {
            **{name: piece("objective", objective=name) for name in CHOICES["objective"]},
            "fmicl": named,
            "tsallis": piece("objective", objective="fmicl", divergence="tsallis"),
        },
        "score": {name: piece("score", objective=name) for name in CHOICES["objective"]},
        "positives": {
            name: piece("positives", positives=name, keys="queue" if name in ("many", "joint") else "across")
            for name in CHOICES["positives"]
        },
        "negatives": {
            f"{name} {anneal}": piece("negatives", negatives=name, anneal=anneal)
            for name, anneal in product(CHOICES["negatives"], (0, 1))
        },
        "keys": {name: piece("keys", keys=name) for name in CHOICES["keys"]},
        "views": {"two": piece("views"), "several": piece("views", keys="queue", positives="many")},
    }


def _rows(recipe: Recipe) -> dict[str, tuple[str, str]]:
    head, tail = r"\begin{aligned}", r"\end{aligned}"
    rows = recipe.equation.removeprefix(head).removesuffix(tail).split(r"\\ ")
    code = {name: source(part) for name, part in recipe.choices().items()} | {"score": repr(recipe.temperature)}
    names = ("objective", "score", "positives", "negatives", "keys", "views")
    return {name: (_marked(row), _marked(code[name])) for name, row in zip(names, rows, strict=True)}


def refusals() -> dict[str, Any]:
    """What the library refuses to put together, and why.

    ``refusals`` leads from ``"keys positives objective"`` to the number of a reason in ``messages``; ``plain`` are
    those that it takes after all where JCL's λ is 0, because nothing is added in the denominator then.
    """
    refusals: dict[str, int] = {}
    messages: list[str] = []
    plain = []
    for where, same, loss in product(CHOICES["keys"], CHOICES["positives"], CHOICES["objective"]):
        choices = {**_BASE, "keys": where, "positives": same, "objective": loss}
        reason = _reason(partial(first_use, choices, 40))
        if reason is None:
            continue
        text = _marked(reason.removeprefix(f"{NAME}: "))
        text = text.replace("='kl', order=None", "='@divergence@', order=@given-order@")
        text = text.replace(f"against='{where}'", "against='@keys@'")
        if text not in messages:
            messages.append(text)
        refusals[f"{where} {same} {loss}"] = messages.index(text)
        if same == "joint" and _reason(partial(first_use, choices | {"strength": 0}, 40)) is None:
            plain.append(f"{where} {same} {loss}")
    return {"refusals": refusals, "messages": messages, "plain": plain}


def _reason(make: Callable[[], object]) -> str | None:
    try:
        make()
    except ContrastLabError as error:
        return str(error)
    return None


def bounded() -> list[str]:
    """``"negatives positives objective"`` for which log(K + 1) − loss is a lower bound on the information.

    A ring is one that skips the closest keys; a ring that skips none is a ball.
    """
    bounding = []
    for region, same, loss in product(CHOICES["negatives"], CHOICES["positives"], CHOICES["objective"]):
        state = State(keys="queue", negatives=region, positives=same, objective=loss)
        if _reason(state.check) is None:
            recipe = state.recipe()
            if recipe.bounds_information and recipe.objective.bound(0.0, 2) is not None:
                bounding.append(f"{region} {same} {loss}")
    return bounding


def reasons() -> dict[str, str]:
    """Why a number is refused, with the numbers marked: an empty ring, edges in the wrong order, too many views."""

    def marked(make: Callable[[], object], **marks: float) -> str:
        return _marked(str(_reason(make)), marks)

    return {
        "empty": marked(lambda: negatives.edges(97, 41, 23), candidates=97, inner=41, outer=23, first=39, last=22),
        "order": marked(lambda: negatives.Ring(41, 23), inner=41, least=23),
        "shared": marked(lambda: State(views=5, near=3, common=1), near=3, shared=7, views=5),
        "many": marked(lambda: State(circle=12, views=6, near=0, common=0), views=6, drawn=432),
    }


GROUPS: Mapping[str, tuple[str, ...]] = {
    "Shared views": ("circle", "views", "near", "common"),
    "Keys": ("keys", "size"),
    "Negatives": ("negatives", "inner", "outer", "anneal", "start", "begin", "width"),
    "Positives": ("positives", "count", "strength", "closest"),
    "Objective": (
        "objective", "divergence", "order", "weight", "sigma2", "align", "uniform", "t", "tau",
    ),
    "Motion": ("rate", "origin", "steps", "seed"),
}  # fmt: skip


LABELS: Mapping[str, str] = {
    "circle": "items of a class", "views": "views of an item", "near": "shared with either neighbour",
    "common": "shared by all", "keys": "keys", "size": "keys in the queue", "negatives": "negatives",
    "inner": "ℓ (%)", "outer": "u (%)", "anneal": "anneal u", "start": "u at first (%)",
    "begin": "annealing begins at", "width": "annealing lasts",
    "positives": "positives", "count": "M", "strength": "λ", "closest": "neighbours (%)", "objective": "objective",
    "divergence": "divergence", "order": "order", "weight": "α", "sigma2": "σ²", "align": "a", "uniform": "b",
    "t": "t", "tau": "τ", "rate": "learning rate", "origin": "start", "steps": "steps of a run", "seed": "seed",
}  # fmt: skip


NEEDS: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    "size": {"keys": ("queue",)},
    "inner": {"negatives": ("ring",)},
    "outer": {"negatives": ("ball", "ring")},
    "anneal": {"negatives": ("ball", "ring")},
    **{name: {"negatives": ("ball", "ring"), "anneal": (1,)} for name in ("start", "begin", "width")},
    "count": {"positives": ("many", "joint")},
    "strength": {"positives": ("joint",)},
    "closest": {"positives": ("neighbours",)},
    **{name: {"objective": ("fmicl",)} for name in ("divergence", "weight", "sigma2")},
    "order": {"objective": ("fmicl",), "divergence": ("tsallis",)},
    **{name: {"objective": ("au",)} for name in ("align", "uniform", "t")},
    "tau": {"objective": ("infonce", "without", "spectral")},
}
