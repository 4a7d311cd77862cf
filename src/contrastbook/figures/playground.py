"""The playground: views of items on a sphere that follow the gradient of a loss, in a page and in JupyterLab.

The motion and the drawing are one ES module, ``playground.js``. What it says of the library comes from the library:
:func:`data` has every line of the equation and of the Python that makes the recipe, and every refusal, as
:class:`~contrastlab.methods.Recipe` and its parts give them, with ``@name@`` for numbers that a reader turns.
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
from contrastbook.figures import playground_data as known
from contrastbook.figures.playground_data import CHOICES, OFFER, STOPS, State
from contrastlab.methods import Recipe
from contrastlab.scores import divergences
from contrastlab.support.errors import unknown

__all__ = ["CHOICES", "PRESETS", "STOPS", "Preset", "State", "data", "html", "module", "preset", "widget"]


@dataclass(frozen=True)
class Preset:
    """Something to see, and the ``knob``, a field of the state, that is offered beside the sphere."""

    slug: str
    title: str
    sentence: str
    knob: str
    state: State


PRESETS = tuple(Preset(**{**row, "state": State(**row["state"])}) for row in OFFER["presets"])


@cache
def _data() -> str:
    colours = ("query", "positive", "negative", "truth", "published", "other")
    values = {
        "recipe": f"{json.dumps(known.NAME)}, {json.dumps(known.LABEL)}",
        "defaults": asdict(State()),
        **{name: OFFER[name] for name in ("choices", "stops", "groups", "labels", "hints", "needs")},
        "pieces": known.pieces(),
        "functions": {name: divergences.get(name).latex for name in CHOICES["divergence"]},
        **known.refusals(),
        "reasons": known.reasons(),
        "bounds": known.bounded(),
        "whole": known.WHOLE,
        "modules": "keys, methods, negatives, objectives, positives, scores, views",
        "classColours": [COLOURS[name] for name in colours],
        "mostViews": known.MOST_VIEWS,
        "presets": OFFER["presets"],
    }
    return json.dumps(values, ensure_ascii=False, separators=(",", ":"))


def data() -> dict[str, Any]:
    """All that the module needs to know of the library, as plain values."""
    return dict(json.loads(_data()))


def preset(slug: str) -> Preset:
    """The preset of that name."""
    by_slug = {p.slug: p for p in PRESETS}
    if slug not in by_slug:
        raise unknown("preset", slug, by_slug)
    return by_slug[slug]


def _file(kind: str) -> str:
    return files("contrastbook.figures").joinpath(f"playground.{kind}").read_text(encoding="utf-8")


def script(name: str) -> str:
    """The ES module of a figure, with what all of them compute, without its comments and most of its blanks."""
    folder = files("contrastbook.figures")
    text = "".join(folder.joinpath(part).read_text(encoding="utf-8") for part in ("losses.js", f"{name}.js"))
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(_tight(line) for line in lines if line and not line.startswith(("//", "/**", "*")))


def module() -> str:
    """The playground's ES module."""
    return script("playground")


def _tight(line: str) -> str:
    # blanks around signs, outside quoted text; lines with a slash may hold a regular expression
    if "/" in line or "'" in line or line.count("`") > 2:
        return line
    return re.sub(r'("[^"]*"|`[^`]*`)| ?([=*<>?:,;{}()\[\]&|!]) ?', lambda found: found[1] or found[2], line)


def html(slug: str = "circles", *, compact: bool = False) -> str:
    """The playground as a fragment of a page that asks nobody for anything; Chromium refuses modules from ``file://``.

    ``slug``: the preset that is shown, unless the address says otherwise. ``compact``: the sphere, its sentence and its
    knob alone; the address is neither read nor written.
    """
    options = json.dumps({"preset": preset(slug).slug, "compact": compact})
    values = _data().replace("</", "<\\/")
    mount = f'mount(document.getElementById("playground-live"), {values}, {options});'
    page = f'<style>\n{_file("css")}</style>\n<div id="playground-live"></div>\n<script type="module">\n{module()}'
    return f"{page}\n{mount}\n</script>\n"


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
            return asdict(_checked(proposal["value"], State()))

        @property
        def recipe(self) -> Recipe:
            """The method that is on screen."""
            return State(**self.state).recipe()

    return Playground


def _checked(changes: Mapping[str, Any], base: State) -> State:
    names = [field.name for field in fields(State)]
    for name in changes:
        if name not in names:
            raise unknown("choice", name, names)
    state = replace(base, **changes)
    state.check()
    return state


def widget(slug: str = "circles", **changes: Any) -> Any:
    """The playground in JupyterLab, live: an anywidget with traits ``state``, what the knobs say, and ``recipe``.

    ``changes``: fields of :class:`State` that differ from the preset's. Raises ``ImportError`` without anywidget.
    """
    state = _checked(changes, preset(slug).state)
    return _widget_class()(data=data(), preset=slug, state=asdict(state))
