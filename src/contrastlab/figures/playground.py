"""The playground: views of items on a sphere that follow the gradient of a loss, in a page and in JupyterLab.

The motion and the drawing are one ES module, ``playground.js`` beside this file. What it says of the library comes
from the library: :func:`data` has every line of the equation and of the Python that makes the recipe, and every
refusal, as :class:`~contrastlab.methods.Recipe` and its parts give them. Numbers that a reader turns are marked
``@name@`` there.

>>> from contrastlab.figures import playground
>>> playground.State(negatives="ring", outer=20).recipe()  # doctest: +SKIP
>>> playground.widget("circles")  # doctest: +SKIP
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass, replace
from functools import cache, partial
from importlib.resources import files
from itertools import product
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from contrastlab import divergences, keys, negatives, objectives, positives, schedules, views
from contrastlab.candidates import Candidates, Chosen
from contrastlab.errors import ContrastLabError, reject, unknown
from contrastlab.figures import COLOURS, view_table
from contrastlab.methods import Recipe
from contrastlab.negatives import BatchRandom
from contrastlab.objectives import Scores

__all__ = [
    "CHOICES", "MOST_VIEWS", "PRESETS", "STOPS", "Preset", "State", "data", "html", "module", "preset", "source",
    "widget",
]  # fmt: skip

CLASSES = 6
MOST_VIEWS = 300
"""Views that a page can move and draw at the rate of a film."""

CHOICES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "keys": {
            "across": "other view",
            "both": "both views",
            "within": "same view",
            "queue": "queue, no gradient",
        },
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
)
"""Values of the choices that have a name, and how a reader sees them."""

STOPS: Mapping[str, tuple[float, ...]] = MappingProxyType(
    {
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
)
"""Where the slider of a number stops; a value between the first and the last is accepted, too."""

_MODULES = ("keys", "methods", "negatives", "objectives", "positives", "schedules", "views")
_WHOLE = ("circle", "views", "near", "common", "size", "anneal", "count", "seed", "steps")


@dataclass(frozen=True)
class State:
    """Everything a reader can choose.

    Args:
        circle: items of each of the six classes; they sit on a circle and share views with their neighbours.
        views: views of an item.
        near: views that an item shares with either neighbour.
        common: views that all items share.
        keys: ``"across"``, ``"both"``, ``"within"``: :class:`~contrastlab.keys.InBatch`; ``"queue"``: the last
            ``size`` keys, without gradient, as :class:`~contrastlab.keys.Queue` with momentum 0 has them.
        size: keys of the queue.
        negatives: ``"every"``, ``"ball"`` or ``"ring"``.
        inner: ℓ of the ring, percent.
        outer: u of ball and ring, percent.
        anneal: 1 if u comes down from ``start``, else 0.
        start: u at first, percent.
        begin: when it starts to change, a fraction of the run.
        width: how long it changes, a fraction of the run.
        positives: ``"one"``, ``"many"``, ``"joint"`` or ``"neighbours"``.
        count: M, keys of an item.
        strength: λ of JCL.
        closest: neighbours that count as positives, percent of the keys.
        objective: ``"infonce"``, ``"without"`` (the positive not in the denominator), ``"fmicl"``, ``"au"`` or
            ``"spectral"``.
        divergence: of f-MICL, a name in :mod:`contrastlab.divergences`.
        order: of the Tsallis divergence.
        weight: α of f-MICL.
        sigma2: σ² of f-MICL, the temperature of its recipe.
        align: a of alignment and uniformity.
        uniform: b of it.
        t: t of it.
        tau: τ.
        rate: learning rate: how far a view moves in a step, in radians, where its gradient is of usual size.
        origin: where the views start, ``"random"`` or ``"cap"``.
        seed: of the start and of the draws.
        steps: length of a run.

    Raises:
        UnknownNameError: a choice that does not exist.
        ArgumentError: a number outside the range of its slider, or a graph of more than :data:`MOST_VIEWS` views.
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
            kind = "an integer" if name in _WHOLE else "a number"
            if isinstance(value, bool) or not isinstance(value, int | float) or not stops[0] <= value <= stops[-1]:
                raise reject(name, value, f"{kind} from {stops[0]:g} to {stops[-1]:g}")
            if name in _WHOLE and value != int(value):
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
            ArgumentError: a ring without room.
        """
        return _recipe({**asdict(self), "until": self.until})

    def check(self) -> Recipe:
        """The recipe, after its parts have chosen keys for one query and its objective has scored them.

        Raises:
            ContrastLabError: what the library refuses when the recipe is made or first used.
        """
        _first_use({**asdict(self), "until": self.until}, self.candidates)
        return self.recipe()


NAME, LABEL = "playground/mine", "mine"


def _recipe(c: Mapping[str, Any]) -> Recipe:
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


def _first_use(c: Mapping[str, Any], keys_: int) -> None:
    # what a first batch would refuse: the objective given all keys, then the region where it is smallest
    recipe = _recipe(c)
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


@dataclass(frozen=True)
class Preset:
    """Something to see, and the one knob that makes it come and go.

    Args:
        slug: its name in links: the label of its place on the page is ``play:slug``.
        title: in a few words.
        sentence: what a reader can verify by eye.
        knob: the field of the state that is offered beside the sphere.
        state: the choices.
    """

    slug: str
    title: str
    sentence: str
    knob: str
    state: State


_ALONE = State(views=2, near=0)
_EARLY = State(
    views=6, near=1, tau=0.5, negatives="ring", inner=2, outer=15, anneal=1, begin=0, width=0.1, rate=0.02, steps=500
)
_DENSE = State(views=4, near=1, common=2, objective="fmicl", weight=0.4)

PRESETS: tuple[Preset, ...] = (
    Preset(
        "private", "Nothing is shared",
        "The points spread evenly and the colours stay mixed: nothing tells the loss who belongs together.",
        "near", _ALONE,
    ),
    Preset(
        "dense", "Nearly all is shared",
        "All colours gather in one heap: three views in four belong to everybody and say nothing of anyone.",
        "common", State(near=0, common=3),
    ),
    Preset(
        "circles", "Shared with neighbours",
        "Each colour closes to a circle, its items in a row: views shared with two neighbours draw the class.",
        "near", State(),
    ),
    Preset(
        "early-ring", "A ring too early",
        "Shrunk at once, the ring leaves colours in shreds; let it begin half-way and they come together.",
        "begin", _EARLY,
    ),
    Preset(
        "poles", "Neyman: two poles",
        "Everything ends in two opposite heaps, of all colours; with Kullback–Leibler the same items cover the sphere.",
        "divergence", replace(_ALONE, objective="fmicl", divergence="neyman", weight=2, sigma2=1),
    ),
    Preset(
        "uneven", "Reverse KL: uneven angles",
        "Six heaps in balance around the centre, at uneven angles; with other divergences their angles are even.",
        "divergence", State(objective="fmicl", divergence="reverse_kl", weight=2),
    ),
    Preset(
        "one-point", "One point",
        "All items fall into one point; drag α above one half and the point opens.",
        "weight", _DENSE,
    ),
    Preset(
        "cap", "From a cap to everywhere",
        "All views start close together and within a second they cover the whole sphere.",
        "sigma2", replace(_ALONE, objective="fmicl", origin="cap"),
    ),
    Preset(
        "jcl", "JCL: a pull that grows",
        "The greater λ, the closer the crowd: at 0 it covers most of the sphere, at 16 it is a heap.",
        "strength", State(near=1, common=1, tau=0.1, keys="queue", positives="joint"),
    ),
    Preset(
        "cold", "A cold softmax",
        "Half of the sphere stays empty: at a low temperature only the nearest keys push.",
        "tau", State(tau=0.01, origin="cap"),
    ),
    Preset(
        "hot", "A hot softmax",
        "Each colour becomes one point: its ten items can no longer be told apart, and no neighbour is wrong.",
        "tau", State(tau=1),
    ),
)  # fmt: skip
"""Eleven things to see."""


# What the library says, with the numbers that a reader turns marked @name@. They are put in as numbers that occur
# nowhere else, and looked for in what comes out.
_MARKS: Mapping[str, float] = MappingProxyType(
    {
        "inner": 1.37, "outer": 13.9, "start": 87.3, "begin": 0.137, "until": 0.613, "count": 17, "count+1": 18,
        "strength": 3.17, "closest": 2.37, "order": 2.71, "order-1": 1.71, "weight": 4.19, "align": 1.19,
        "uniform": 1.23, "t": 2.29, "tau": 0.731, "sigma2": 0.919, "size": 613,
    }
)  # fmt: skip


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


_BASE: Mapping[str, Any] = MappingProxyType(asdict(State()) | dict(_MARKS))


def _pieces() -> dict[str, dict[str, tuple[str, str]]]:
    """Rows of the equation and parts in Python: choice → option → (TeX, Python)."""

    def piece(name: str, **choices: Any) -> tuple[str, str]:
        return _rows(_recipe({**_BASE, **choices}))[name]

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


def _refusals() -> dict[str, Any]:
    """What the library refuses to put together, and why.

    ``refusals`` leads from ``"keys positives objective"`` to the number of a reason in ``messages``; ``plain`` are
    those that it takes after all where JCL's λ is 0, because nothing is added in the denominator then.
    """
    refusals: dict[str, int] = {}
    messages: list[str] = []
    plain = []
    for where, same, loss in product(CHOICES["keys"], CHOICES["positives"], CHOICES["objective"]):
        choices = {**_BASE, "keys": where, "positives": same, "objective": loss}
        reason = _reason(partial(_first_use, choices, 40))
        if reason is None:
            continue
        text = _marked(reason.removeprefix(f"{NAME}: "))
        text = text.replace("='kl', order=None", "='@divergence@', order=@given-order@")
        text = text.replace(f"against='{where}'", "against='@keys@'")
        if text not in messages:
            messages.append(text)
        refusals[f"{where} {same} {loss}"] = messages.index(text)
        if same == "joint" and _reason(partial(_first_use, choices | {"strength": 0}, 40)) is None:
            plain.append(f"{where} {same} {loss}")
    return {"refusals": refusals, "messages": messages, "plain": plain}


def _reason(make: Callable[[], object]) -> str | None:
    try:
        make()
    except ContrastLabError as error:
        return str(error)
    return None


def _bounds() -> list[str]:
    """``"positives objective"`` for which log(K + 1) − loss is a lower bound on the information."""
    found = []
    for same, loss in product(CHOICES["positives"], CHOICES["objective"]):
        state = State(keys="queue", positives=same, objective=loss)
        if _reason(state.check) is None:
            recipe = state.recipe()
            if recipe.bounds_information and recipe.objective.bound(0.0, 2) is not None:
                found.append(f"{same} {loss}")
    return found


def _reasons() -> dict[str, str]:
    """Why a number is refused, with the numbers marked: an empty ring, edges in the wrong order, too many views."""

    def marked(make: Callable[[], object], **marks: float) -> str:
        return _marked(str(_reason(make)), marks)

    return {
        "empty": marked(lambda: negatives.edges(97, 41, 23), candidates=97, inner=41, outer=23, first=39, last=22),
        "order": marked(lambda: negatives.Ring(41, 23), inner=41, least=23),
        "shared": marked(lambda: State(views=5, near=3, common=1), near=3, shared=7, views=5),
        "many": marked(lambda: State(circle=12, views=6, near=0, common=0), views=6, drawn=432),
    }


_GROUPS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "Shared views": ("circle", "views", "near", "common"),
        "Keys": ("keys", "size"),
        "Negatives": ("negatives", "inner", "outer", "anneal", "start", "begin", "width"),
        "Positives": ("positives", "count", "strength", "closest"),
        "Objective": (
            "objective", "divergence", "order", "weight", "sigma2", "align", "uniform", "t", "tau",
        ),
        "Motion": ("rate", "origin", "steps", "seed"),
    }
)  # fmt: skip

_LABELS: Mapping[str, str] = MappingProxyType(
    {
        "circle": "items of a class", "views": "views of an item", "near": "shared with either neighbour",
        "common": "shared by all", "keys": "keys", "size": "keys in the queue", "negatives": "negatives",
        "inner": "ℓ (%)", "outer": "u (%)", "anneal": "anneal u", "start": "u at first (%)",
        "begin": "annealing begins at", "width": "annealing lasts",
        "positives": "positives", "count": "M", "strength": "λ", "closest": "neighbours (%)", "objective": "objective",
        "divergence": "divergence", "order": "order", "weight": "α", "sigma2": "σ²", "align": "a", "uniform": "b",
        "t": "t", "tau": "τ", "rate": "learning rate", "origin": "start", "steps": "steps of a run", "seed": "seed",
    }
)  # fmt: skip

_NEEDS: Mapping[str, Mapping[str, tuple[Any, ...]]] = MappingProxyType(
    {
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
)


@cache
def _data() -> str:
    made = {
        "recipe": f"{json.dumps(NAME)}, {json.dumps(LABEL)}",
        "defaults": asdict(State()),
        "choices": {name: dict(options) for name, options in CHOICES.items()},
        "stops": {name: list(stops) for name, stops in STOPS.items()},
        "groups": {name: list(members) for name, members in _GROUPS.items()},
        "labels": dict(_LABELS),
        "needs": {name: dict(needs) for name, needs in _NEEDS.items()},
        "pieces": _pieces(),
        "functions": {name: divergences.get(name).latex for name in CHOICES["divergence"]},
        **_refusals(),
        "reasons": _reasons(),
        "bounds": _bounds(),
        "whole": list(_WHOLE),
        "modules": ", ".join(_MODULES),
        "classColours": [COLOURS[name] for name in ("query", "positive", "negative", "truth", "published", "other")],
        "mostViews": MOST_VIEWS,
        "presets": [
            {
                "slug": p.slug, "title": p.title, "sentence": p.sentence, "knob": p.knob,
                "state": {k: v for k, v in asdict(p.state).items() if v != getattr(State(), k)},
            }
            for p in PRESETS
        ],
    }  # fmt: skip
    return json.dumps(made, ensure_ascii=False, separators=(",", ":"))


def data() -> dict[str, Any]:
    """All that the module needs to know of the library, as plain values."""
    made: dict[str, Any] = json.loads(_data())
    return made


def preset(slug: str) -> Preset:
    """The preset of that name.

    Raises:
        UnknownNameError: with near matches.
    """
    known = {p.slug: p for p in PRESETS}
    if slug not in known:
        raise unknown("preset", slug, known)
    return known[slug]


def _file(kind: str) -> str:
    return files("contrastlab.figures").joinpath(f"playground.{kind}").read_text(encoding="utf-8")


def module() -> str:
    """The ES module, without its comments and most of its blanks."""
    lines = (line.strip() for line in _file("js").splitlines())
    return "\n".join(_tight(line) for line in lines if line and not line.startswith(("//", "/**", "*")))


def _tight(line: str) -> str:
    # blanks around signs, outside quoted text; lines with a slash may hold a regular expression
    if "/" in line or "'" in line or line.count("`") > 2:
        return line
    parts = re.split(r'("[^"]*"|`[^`]*`)', line)
    parts[::2] = [re.sub(r" ?([=*<>?:,;{}()\[\]&|!]) ?", r"\1", part) for part in parts[::2]]
    return "".join(parts)


def html(slug: str = "circles", *, compact: bool = False) -> str:
    """The playground as a fragment of a page that asks nobody for anything.

    Chromium refuses module files from ``file://``, so the module is inlined.

    Args:
        slug: the preset that is shown, unless the address says otherwise.
        compact: the sphere, its sentence and its knob alone; the address is neither read nor written.

    Raises:
        UnknownNameError: no such preset.
    """
    options = json.dumps({"preset": preset(slug).slug, "compact": compact})
    values = _data().replace("</", "<\\/")
    mount = f'mount(document.getElementById("playground-live"), {values}, {options});'
    script = f'<script type="module">\n{module()}\n{mount}\n</script>'
    return f'<style>\n{_file("css")}</style>\n<div id="playground-live"></div>\n{script}\n'


@cache
def _widget_class() -> Any:
    try:
        import anywidget
        import traitlets
    except ImportError as error:
        raise ImportError("the live playground needs anywidget: pip install anywidget") from error

    class Playground(anywidget.AnyWidget):
        """The playground with its state in Python: ``state`` follows every knob, and moves them when it is set."""

        _esm = module()
        _css = _file("css")
        data = traitlets.Dict().tag(sync=True)
        preset = traitlets.Unicode().tag(sync=True)
        state = traitlets.Dict().tag(sync=True)

        @traitlets.validate("state")
        def _valid(self, proposal: Mapping[str, Any]) -> dict[str, Any]:
            return asdict(_checked(proposal["value"]))

        @property
        def recipe(self) -> Recipe:
            """The method that is on screen."""
            return State(**self.state).recipe()

    return Playground


def _checked(changes: Mapping[str, Any], base: State | None = None) -> State:
    known = [field.name for field in fields(State)]
    for name in changes:
        if name not in known:
            raise unknown("choice", name, known)
    made = replace(base or State(), **changes)
    made.check()
    return made


def widget(slug: str = "circles", **changes: Any) -> Any:
    """The playground in JupyterLab, live.

    Args:
        slug: the preset to begin with.
        changes: fields of :class:`State` that differ from it.

    Returns:
        An anywidget whose trait ``state`` is what the knobs say, and whose ``recipe`` is the method they make.

    Raises:
        UnknownNameError: no such preset or field.
        ContrastLabError: a combination that the library refuses.
        ImportError: anywidget is not installed.
    """
    made = _checked(changes, preset(slug).state)
    return _widget_class()(data=data(), preset=slug, state=asdict(made))
