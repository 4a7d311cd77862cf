"""Settings of one's own: what a reader changes in a profile, as ``arch=timm:resnet18`` or ``negatives.k=512``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import contrastlab.support.lab  # noqa: F401

from pydantic import Field

from contrastlab.scores.choices import CHOICES
from contrastlab.settings import FrozenModel, Settings
from contrastlab.support import errors
from contrastlab.tables.profiles import Changes

Given = str | Iterable[str] | Mapping[str, Any]
"""``{"epochs": 50, "linear.solver": "sgd"}``, ``["epochs=50"]``, or one text, ``"epochs=50 linear.solver=sgd"``."""

_OF_LIBRARIES = {"stem": "imagenet", "width": 1.0}
_ACCEPTED = "name=value, such as epochs=50, linear.solver=sgd or negatives.k=512"


class OwnSettings(FrozenModel):
    """Settings that win over those of a profile; their results carry the profile ``own``."""

    profile: str = Field(description="the profile that they change")
    changes: Changes = Field(description="fields of Settings and their new values")

    def __str__(self) -> str:
        return f"{self.profile} with {', '.join(_texts(self.changes))}"


def _texts(changes: Mapping[str, Any], before: str = "") -> list[str]:
    """``name=value`` for each change."""
    texts: list[str] = []
    for name, value in changes.items():
        if name == "overrides":
            texts += _texts(value)
        elif isinstance(value, Mapping) and name in Settings.model_fields:
            texts += _texts(value, f"{name}.")
        else:
            text = value if isinstance(value, str) else json.dumps(value)
            texts.append(f"{before}{name}={text}")
    return texts


def parse(given: Given) -> dict[str, Any]:
    """Changes of :class:`contrastlab.settings.Settings` from what a user gives; an ``ArgumentError`` for what is none.

    A name with a dot is a field of a field. One that begins with a choice of the recipe (``negatives.k``), and
    ``temperature``, changes the recipe. A value in a text is JSON; what is not JSON is a text. A network of another
    library has a stem and a width of its own, so those of the profile are left out.
    """
    changes: dict[str, Any] = {}
    for name, value in _pairs(given).items():
        first, dot, rest = name.partition(".")
        errors.check_name("setting", first, (*Settings.model_fields, "temperature", *CHOICES))
        if first == "temperature" or first in CHOICES:
            _add(changes, "overrides", {name: value})
        elif dot:
            _add(changes, first, {rest: value})
        else:
            _add(changes, name, value)
    if ":" in str(changes.get("arch")):  # stem and width of another library's network are its own
        changes = {**changes, **{name: value for name, value in _OF_LIBRARIES.items() if name not in changes}}
    Settings().override(changes)  # refuses an unknown name and a value out of range
    return changes


def _add(changes: dict[str, Any], name: str, value: Any) -> None:
    """Put a value among changes, in place; fields of one setting are put together."""
    if name not in changes:
        changes[name] = value
        return
    both_have_fields = isinstance(changes[name], Mapping) and isinstance(value, Mapping)
    errors.check(both_have_fields, "settings", name, f"either {name} or fields of it, once")
    changes[name] = {**changes[name], **value}


def _pairs(given: Given) -> dict[str, Any]:
    """Names and values, as they were given."""
    if isinstance(given, Mapping):
        for name in given:
            errors.check(isinstance(name, str), "settings", name, "names of settings, such as 'epochs'")
        return dict(given)
    texts = given.split() if isinstance(given, str) else given
    errors.check(isinstance(texts, list | tuple), "settings", given, f"a dictionary, or {_ACCEPTED}")
    pairs: dict[str, Any] = {}
    for text in texts:
        name, equals, value = str(text).partition("=")
        errors.check(name.strip() and equals, "settings", text, _ACCEPTED)
        errors.check(name not in pairs, "settings", text, f"{name} once")
        pairs[name.strip()] = _value(value.strip())
    return pairs


def _value(text: str) -> Any:
    """A number, list or dictionary from its JSON; any other text is itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def own_settings(profile: str, given: Given) -> OwnSettings | None:
    """What was given, on top of a profile; ``None`` where nothing was given."""
    changes = parse(given)
    return OwnSettings(profile=profile, changes=changes) if changes else None
