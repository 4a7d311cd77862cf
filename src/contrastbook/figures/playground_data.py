"""What the playground's knobs are and make, and what its module knows of the library: equations, Python, refusals."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass, replace
from functools import partial
from importlib.resources import files
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from contrastbook.figures import view_table
from contrastlab import keys, negatives, objectives, positives, views
from contrastlab.methods import Recipe
from contrastlab.negatives import BatchRandom
from contrastlab.objectives import Scores
from contrastlab.scores import divergences, schedules
from contrastlab.scores.candidates import Candidates, Chosen
from contrastlab.support.errors import ContrastLabError, reject, unknown

NAME, LABEL = "playground/mine", "mine"
CLASSES = 6

MOST_VIEWS = 300
"""Views that a page can move and draw at the rate of a film."""

OFFER: Mapping[str, Any] = tomllib.loads((files("contrastbook.figures") / "playground.toml").read_text("utf-8"))
"""The choices, stops, groups, labels, needs and presets of ``playground.toml``."""

CHOICES: Mapping[str, dict[str, str]] = OFFER["choices"]
CHOICES["divergence"].update({name: divergences.get(name).title for name in divergences.names()})
STOPS: Mapping[str, list[float]] = OFFER["stops"]


@dataclass(frozen=True)
class State:
    """Everything a reader can choose; ``[labels]`` of ``playground.toml`` has it in words.

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
        for name, (low, *_, high) in STOPS.items():
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high
            if not number or (name in WHOLE and value != int(value)):
                kind = "an integer" if name in WHOLE else "a number"
                raise reject(name, value, f"{kind} from {low:g} to {high:g}")
        shared = 2 * self.near + self.common
        if shared > self.views:
            accepted = f"a graph in which 2·near + common, here {shared}, is at most views={self.views}"
            raise reject("near", self.near, accepted)
        drawn = len(np.unique(self.table))
        if drawn > MOST_VIEWS:
            raise reject("views", self.views, f"a graph of at most {MOST_VIEWS} views; this one has {drawn}")

    @property
    def table(self) -> NDArray[np.int64]:
        """``[items, views]`` ids of the views of each item; see :func:`view_table`."""
        return view_table(self.near, self.common, views=self.views, circle=self.circle)

    @property
    def knobs(self) -> dict[str, Any]:
        """All values by name, and ``until``, the fraction of the run at which annealing ends."""
        return {**asdict(self), "until": min(1.0, round(self.begin + self.width, 6))}

    def recipe(self) -> Recipe:
        """The method, as the library names it, or the library's refusal."""
        return make_recipe(self.knobs)

    def check(self) -> Recipe:
        """The recipe, after its parts have chosen keys for one query and its objective has scored them."""
        others = CLASSES * self.circle - 1
        first_use(self.knobs, {"both": 2 * others, "queue": self.size}.get(self.keys, others))
        return self.recipe()


WHOLE = [field.name for field in fields(State) if field.type == "int"]


def make_recipe(c: Mapping[str, Any]) -> Recipe:
    """The recipe that values of knobs make, or the library's refusal."""
    outer = schedules.Linear(c["start"], c["outer"], c["until"], c["begin"]) if c["anneal"] else c["outer"]
    order = c["order"] if c["divergence"] == "tsallis" else None
    parts: dict[str, Callable[[], Any]] = {
        "every": negatives.Every,
        "ball": lambda: negatives.Ball(outer, k=None),
        "ring": lambda: negatives.Ring(c["inner"], outer, k=None),
        "one": positives.One,
        "many": lambda: positives.Many(c["count"]),
        "joint": lambda: positives.Joint(c["count"], c["strength"]),
        "neighbours": lambda: positives.Neighbours(c["closest"]),
        "infonce": objectives.InfoNCE,
        "without": lambda: objectives.InfoNCE(False),
        "fmicl": lambda: objectives.FMICL(c["divergence"], order, c["weight"]),
        "au": lambda: objectives.AlignUniform(c["align"], c["uniform"], c["t"]),
        "spectral": objectives.Spectral,
    }
    return Recipe(
        NAME,
        LABEL,
        views=views.Augmented(1 + c["count"] if c["positives"] in ("many", "joint") else 2),
        keys=keys.Queue(c["size"], 0) if c["keys"] == "queue" else keys.InBatch(c["keys"], symmetric=False),
        **{choice: parts[c[choice]]() for choice in ("negatives", "positives", "objective")},
        temperature={"fmicl": c["sigma2"], "au": 1}.get(c["objective"], c["tau"]),
    )


def first_use(c: Mapping[str, Any], count: int) -> None:
    """Refuse what the first batch of ``count`` keys would: the objective has all of them, a region is at its least."""
    recipe = make_recipe(c)
    pool = Candidates(torch.zeros(1, count, dtype=torch.float64))
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
    module = type(part).__module__.removeprefix("contrastlab.")
    if not module.startswith("scores."):
        module = module.partition(".")[0]
    return f"{module}.{type(part).__name__}({', '.join(given)})"


_BASE: Mapping[str, Any] = asdict(State()) | dict(_MARKS)


def pieces() -> dict[str, dict[str, tuple[str, str]]]:
    """Rows of the equation and parts in Python: choice → option → (TeX, Python)."""

    def piece(row: str, **choices: Any) -> tuple[str, str]:
        recipe = make_recipe({**_BASE, **choices})
        names = ("objective", "score", "positives", "negatives", "keys", "views")
        rows = recipe.equation.removeprefix(r"\begin{aligned}").removesuffix(r"\end{aligned}").split(r"\\ ")
        code = repr(recipe.temperature) if row == "score" else source(recipe.choices()[row])
        return _marked(dict(zip(names, rows, strict=True))[row]), _marked(code)

    def each(row: str, choice: str) -> dict[str, tuple[str, str]]:
        return {name: piece(row, **{choice: name}) for name in CHOICES[choice]}

    # every divergence but Tsallis differs from the next in its name and f alone
    latex, code = piece("objective", objective="fmicl", divergence="js")
    named = latex.replace(divergences.JS.latex, "@f@"), code.replace("'js'", "'@divergence@'")
    tsallis = piece("objective", objective="fmicl", divergence="tsallis")
    return {
        "objective": each("objective", "objective") | {"fmicl": named, "tsallis": tsallis},
        "score": each("score", "objective"),
        "positives": {
            name: piece("positives", positives=name, keys="queue" if name in ("many", "joint") else "across")
            for name in CHOICES["positives"]
        },
        "negatives": {
            f"{name} {anneal}": piece("negatives", negatives=name, anneal=anneal)
            for name, anneal in product(CHOICES["negatives"], (0, 1))
        },
        "keys": each("keys", "keys"),
        "views": {"two": piece("views"), "several": piece("views", keys="queue", positives="many")},
    }


def refusals() -> dict[str, Any]:
    """What the library refuses to put together, and why.

    ``refusals`` leads from ``"keys positives objective"`` to the number of a reason in ``messages``; ``plain`` are
    those that it takes after all where JCL's λ is 0, because nothing is added in the denominator then.
    """
    refused: dict[str, str] = {}
    plain = []
    for where, same, loss in product(CHOICES["keys"], CHOICES["positives"], CHOICES["objective"]):
        choices = {**_BASE, "keys": where, "positives": same, "objective": loss}
        reason = _reason(partial(first_use, choices, 40))
        if reason is None:
            continue
        text = _marked(reason.removeprefix(f"{NAME}: "))
        text = text.replace("='kl', order=None", "='@divergence@', order=@given-order@")
        refused[f"{where} {same} {loss}"] = text.replace(f"against='{where}'", "against='@keys@'")
        if same == "joint" and _reason(partial(first_use, choices | {"strength": 0}, 40)) is None:
            plain.append(f"{where} {same} {loss}")
    messages = list(dict.fromkeys(refused.values()))
    numbered = {choices: messages.index(text) for choices, text in refused.items()}
    return {"refusals": numbered, "messages": messages, "plain": plain}


def _reason(make: Callable[[], object]) -> str | None:
    try:
        make()
    except ContrastLabError as error:
        return str(error)
    return None


def bounded() -> list[str]:
    """``"negatives positives objective"`` for which log K − loss is a lower bound on the information.

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
