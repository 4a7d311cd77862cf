"""What the playground's module knows of the library: rows of equations, lines of Python, refusals."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, fields, is_dataclass
from functools import partial
from itertools import product
from typing import Any

from contrastbook.figures.playground_state import CHOICES, NAME, State, first_use, make_recipe
from contrastlab import divergences, negatives
from contrastlab.errors import ContrastLabError
from contrastlab.methods import Recipe

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
    found = []
    for region, same, loss in product(CHOICES["negatives"], CHOICES["positives"], CHOICES["objective"]):
        state = State(keys="queue", negatives=region, positives=same, objective=loss)
        if _reason(state.check) is None:
            recipe = state.recipe()
            if recipe.bounds_information and recipe.objective.bound(0.0, 2) is not None:
                found.append(f"{region} {same} {loss}")
    return found


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
