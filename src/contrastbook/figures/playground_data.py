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
        for name, options in CHOICES.items():
            if getattr(self, name) not in options:
                raise unknown(name, getattr(self, name), options)
        for name, (low, *_, high) in STOPS.items():
            value = getattr(self, name)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            in_range = is_number and low <= value <= high
            if not in_range or (name in WHOLE and value != int(value)):
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
        count = others
        if self.keys == "both":
            count = 2 * others
        elif self.keys == "queue":
            count = self.size
        refuse_first_batch(self.knobs, count)
        return self.recipe()


WHOLE = [field.name for field in fields(State) if field.type == "int"]


def make_recipe(knobs: Mapping[str, Any]) -> Recipe:
    """The recipe that values of knobs make, or the library's refusal."""
    count = 2
    if knobs["positives"] in ("many", "joint"):
        count = 1 + knobs["count"]
    return Recipe(
        NAME,
        LABEL,
        views=views.Augmented(count),
        keys=_keys(knobs),
        negatives=_negatives(knobs),
        positives=_positives(knobs),
        objective=_objective(knobs),
        temperature=_temperature(knobs),
    )


def _keys(knobs: Mapping[str, Any]) -> keys.Keys:
    if knobs["keys"] == "queue":
        return keys.Queue(knobs["size"], 0)
    return keys.InBatch(knobs["keys"], symmetric=False)


def _negatives(knobs: Mapping[str, Any]) -> negatives.Negatives:
    outer = knobs["outer"]
    if knobs["anneal"]:
        outer = schedules.Linear(knobs["start"], outer, knobs["until"], knobs["begin"])
    match knobs["negatives"]:
        case "ball":
            return negatives.Ball(outer, k=None)
        case "ring":
            return negatives.Ring(knobs["inner"], outer, k=None)
        case _:
            return negatives.Every()


def _positives(knobs: Mapping[str, Any]) -> positives.Positives:
    match knobs["positives"]:
        case "many":
            return positives.Many(knobs["count"])
        case "joint":
            return positives.Joint(knobs["count"], knobs["strength"])
        case "neighbours":
            return positives.Neighbours(knobs["closest"])
        case _:
            return positives.One()


def _objective(knobs: Mapping[str, Any]) -> objectives.Objective:
    match knobs["objective"]:
        case "without":
            return objectives.InfoNCE(False)
        case "fmicl":
            order = knobs["order"] if knobs["divergence"] == "tsallis" else None
            return objectives.FMICL(knobs["divergence"], order, knobs["weight"])
        case "au":
            return objectives.AlignUniform(knobs["align"], knobs["uniform"], knobs["t"])
        case "spectral":
            return objectives.Spectral()
        case _:
            return objectives.InfoNCE()


def _temperature(knobs: Mapping[str, Any]) -> float:
    match knobs["objective"]:
        case "fmicl":
            temperature = knobs["sigma2"]
        case "au":
            temperature = 1
        case _:
            temperature = knobs["tau"]
    return temperature


def refuse_first_batch(knobs: Mapping[str, Any], count: int) -> None:
    """Raise what the library raises at the first batch of ``count`` keys.

    The objective is given all of the keys, and a region is as narrow as its schedule makes it.
    """
    recipe = make_recipe(knobs)
    pool = Candidates(torch.zeros(1, count, dtype=torch.float64))
    draws = BatchRandom(torch.Generator().manual_seed(0))
    positive = torch.zeros(1, dtype=torch.float64)
    lift = None
    if isinstance(recipe.positives, positives.Many | positives.Joint):
        positive, lift = recipe.positives.pair(positive.expand(1, recipe.positives.count), 0, 1)
    others = recipe.positives.select(pool, Chosen(None), draws, 0, 1)
    more = None if others is None else pool.read(others)
    recipe.objective(Scores(positive, pool.logits, more, lift=lift, highest=1 / recipe.temperature))
    part = recipe.negatives
    if isinstance(part, negatives.Ring | negatives.Ball):
        smallest, _ = schedules.bounds(part.outer)
        part = replace(part, outer=smallest)
    part.select(pool, draws, 0, 1)


# The page needs the library's equations, Python and refusals with the reader's own numbers in them. So recipes are
# built once with these values, which occur nowhere else, and each is replaced by @name@ in the text that comes out.
_UNIQUE_VALUES: Mapping[str, float] = {
    "inner": 1.37,
    "outer": 13.9,
    "start": 87.3,
    "begin": 0.137,
    "until": 0.613,
    "count": 17,
    "count+1": 18,
    "strength": 3.17,
    "closest": 2.37,
    "order": 2.71,
    "order-1": 1.71,
    "weight": 4.19,
    "align": 1.19,
    "uniform": 1.23,
    "t": 2.29,
    "tau": 0.731,
    "sigma2": 0.919,
    "size": 613,
}


def _marked(text: str, marks: Mapping[str, float] = _UNIQUE_VALUES) -> str:
    for name, value in marks.items():
        text = re.sub(rf"(?<![\d.]){re.escape(f'{value:g}')}(?![\d.]*\d)", f"@{name}@", text)
    return text


def source(part: Any) -> str:
    """Python that makes a part, qualified by its module; fields at their default are left out."""
    if not is_dataclass(part):
        return repr(part)
    arguments: list[str] = []
    named = False
    for field in fields(part):
        value = getattr(part, field.name)
        if field.default is not MISSING and value == field.default:
            named = True  # what follows a field that is left out
            continue
        named = named or value is None or isinstance(value, bool) or len(arguments) == 2
        argument = source(value)
        if named:
            argument = f"{field.name}={argument}"
        arguments.append(argument)
    module = type(part).__module__.removeprefix("contrastlab.")
    if not module.startswith("scores."):
        module = module.partition(".")[0]
    return f"{module}.{type(part).__name__}({', '.join(arguments)})"


_BASE: Mapping[str, Any] = asdict(State()) | dict(_UNIQUE_VALUES)


def pieces() -> dict[str, dict[str, tuple[str, str]]]:
    """Rows of the equation and parts in Python: choice → option → (TeX, Python)."""
    objective = {name: _piece("objective", objective=name) for name in CHOICES["objective"]}
    # every divergence but Tsallis differs from the next in its name and f alone
    latex, code = _piece("objective", objective="fmicl", divergence="js")
    objective["fmicl"] = latex.replace(divergences.JS.latex, "@f@"), code.replace("'js'", "'@divergence@'")
    objective["tsallis"] = _piece("objective", objective="fmicl", divergence="tsallis")
    positive = {}
    for name in CHOICES["positives"]:
        where = "queue" if name in ("many", "joint") else "across"
        positive[name] = _piece("positives", positives=name, keys=where)
    negative = {}
    for name, anneal in product(CHOICES["negatives"], (0, 1)):
        negative[f"{name} {anneal}"] = _piece("negatives", negatives=name, anneal=anneal)
    return {
        "objective": objective,
        "score": {name: _piece("score", objective=name) for name in CHOICES["objective"]},
        "positives": positive,
        "negatives": negative,
        "keys": {name: _piece("keys", keys=name) for name in CHOICES["keys"]},
        "views": {"two": _piece("views"), "several": _piece("views", keys="queue", positives="many")},
    }


def _piece(row: str, **choices: Any) -> tuple[str, str]:
    """A row of the equation that choices make, and the Python of its part."""
    recipe = make_recipe({**_BASE, **choices})
    names = ("objective", "score", "positives", "negatives", "keys", "views")
    lines = recipe.equation.removeprefix(r"\begin{aligned}").removesuffix(r"\end{aligned}").split(r"\\ ")
    latex = dict(zip(names, lines, strict=True))[row]
    if row == "score":
        return _marked(latex), _marked(repr(recipe.temperature))
    return _marked(latex), _marked(source(recipe.choices()[row]))


def refusals() -> dict[str, Any]:
    """What the library refuses to put together, and why.

    ``refusals`` leads from ``"keys positives objective"`` to the number of a reason in ``messages``; ``plain`` are
    those that it takes after all where JCL's λ is 0, because nothing is added in the denominator then.
    """
    refused: dict[str, str] = {}
    plain = []
    for where, same, loss in product(CHOICES["keys"], CHOICES["positives"], CHOICES["objective"]):
        choices = {**_BASE, "keys": where, "positives": same, "objective": loss}
        reason = _reason(partial(refuse_first_batch, choices, 40))
        if reason is None:
            continue
        text = _marked(reason.removeprefix(f"{NAME}: "))
        text = text.replace("='kl', order=None", "='@divergence@', order=@given-order@")
        refused[f"{where} {same} {loss}"] = text.replace(f"against='{where}'", "against='@keys@'")
        if same == "joint" and _reason(partial(refuse_first_batch, choices | {"strength": 0}, 40)) is None:
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
