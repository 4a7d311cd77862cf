"""The playground: views of items on a sphere that follow the gradient of a loss, in a page and in JupyterLab.

The motion and the drawing are one ES module, ``playground.js`` beside this file. What it says of the library comes
from the library: :func:`data` has every line of the equation and of the Python that makes the recipe, and every
refusal, as :class:`~contrastlab.methods.Recipe` and its parts give them. Numbers that a reader turns are marked
``@name@`` there.

>>> from contrastbook.figures import playground
>>> playground.State(negatives="ring", outer=20).recipe()  # doctest: +SKIP
>>> playground.widget("circles")  # doctest: +SKIP
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from importlib.resources import files
from typing import Any

from contrastbook.figures import COLOURS
from contrastbook.figures.playground_data import (
    CHOICES,
    GROUPS,
    LABEL,
    LABELS,
    MODULES,
    MOST_VIEWS,
    NAME,
    NEEDS,
    STOPS,
    WHOLE,
    State,
    bounded,
    pieces,
    reasons,
    refusals,
)  # fmt: skip
from contrastlab import divergences
from contrastlab.errors import unknown
from contrastlab.methods import Recipe


@dataclass(frozen=True)
class Preset:
    """Something to see, and the one knob that makes it come and go.

    Args:
        slug: its name in links: the label of its place on the page is ``play:slug``.
        knob: the field of the state that is offered beside the sphere.
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


@cache
def _data() -> str:
    made = {
        "recipe": f"{json.dumps(NAME)}, {json.dumps(LABEL)}",
        "defaults": asdict(State()),
        "choices": {name: dict(options) for name, options in CHOICES.items()},
        "stops": {name: list(stops) for name, stops in STOPS.items()},
        "groups": {name: list(members) for name, members in GROUPS.items()},
        "labels": dict(LABELS),
        "needs": {name: dict(needs) for name, needs in NEEDS.items()},
        "pieces": pieces(),
        "functions": {name: divergences.get(name).latex for name in CHOICES["divergence"]},
        **refusals(),
        "reasons": reasons(),
        "bounds": bounded(),
        "whole": list(WHOLE),
        "modules": ", ".join(MODULES),
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
    """The preset of that name."""
    known = {p.slug: p for p in PRESETS}
    if slug not in known:
        raise unknown("preset", slug, known)
    return known[slug]


def _file(kind: str) -> str:
    return files("contrastbook.figures").joinpath(f"playground.{kind}").read_text(encoding="utf-8")


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

    ``slug``: the preset that is shown, unless the address says otherwise. ``compact``: the sphere, its sentence and its
    knob alone; the address is neither read nor written.
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

    ``changes``: fields of :class:`State` that differ from it. Returns an anywidget whose trait ``state`` is what the
    knobs say, and whose ``recipe`` is the method they make.

    Raises:
        ContrastLabError: a combination that the library refuses.
        ImportError: anywidget is not installed.
    """
    made = _checked(changes, preset(slug).state)
    return _widget_class()(data=data(), preset=slug, state=asdict(made))
