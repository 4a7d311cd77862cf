"""A recipe as plain values: what is stored with a result, and what a hash is made of.

A field that has its default leaves no trace, so a new field of a part orphans no stored result. The price: the default
of a field must never change, because it is what stored descriptions without that field mean.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any

from contrastlab import errors, keys, negatives, objectives, positives, views
from contrastlab.choices import Part
from contrastlab.schedules import Linear

CHOICES: Mapping[str, type[Part]] = {
    "views": views.Views,
    "keys": keys.Keys,
    "negatives": negatives.Negatives,
    "positives": positives.Positives,
    "objective": objectives.Objective,
}
"""The five choices and the base class of what each is chosen from."""

RENAMED_FIELDS = {("Queue", "parts"): "shuffle_groups"}
"""Names of fields in older stored descriptions: (type, old name) to today's name."""


def types_of(choice: str) -> dict[str, type]:
    """The parts of a choice by the names of their types, those included that are defined outside this package."""
    kinds: list[type] = [CHOICES[choice]]
    for kind in kinds:  # grows while it is walked
        kinds += kind.__subclasses__()
    return {kind.__name__: kind for kind in kinds if "__dataclass_fields__" in vars(kind)}


def plain(value: Any) -> Any:
    """A part, a schedule or a number as JSON has it; equal values have equal descriptions (4 and 4.0 are 4).

    A dataclass becomes ``{"type": …}`` and those of its fields that differ from their defaults.
    """
    if is_dataclass(value):
        given = {field.name: (getattr(value, field.name), _default(field)) for field in fields(value)}
        changed = {name: plain(new) for name, (new, default) in given.items() if new != default}
        return {"type": type(value).__name__, **changed}
    return int(value) if isinstance(value, float) and value.is_integer() else value


def foreign_code(part: Any) -> str:
    """16 hexadecimal digits over the source of a part that is defined outside this package; empty for one of ours."""
    kind = type(part)
    if part is None or kind.__module__.split(".")[0] == __name__.split(".")[0]:
        return ""
    try:
        text = inspect.getsource(kind)
    except (OSError, TypeError):  # typed at a prompt: what its methods are compiled to
        codes = (value.__code__ for value in vars(kind).values() if inspect.isfunction(value))
        simple = (int, float, str, bytes, bool, type(None))
        text = repr([(c.co_code, c.co_names, [v for v in c.co_consts if isinstance(v, simple)]) for c in codes])
    return hashlib.sha256(f"{kind.__module__}.{kind.__qualname__}\n{text}".encode()).hexdigest()[:16]


def canonical(description: Mapping[str, Any]) -> dict[str, Any]:
    """A stored description, of today or with all of its fields written out, as ``Recipe.describe`` gives it today.

    It has ``temperature``, the five choices and perhaps ``name`` and the ``code`` of parts from outside this package.
    """
    wanted = ("name", "temperature", *CHOICES, "code")
    for name in description:
        if name not in wanted:
            raise errors.unknown("entry of a recipe's description", name, wanted)
    for name in wanted[1:-1]:
        if name not in description:
            raise errors.reject("description", sorted(description), f"one with {name!r}")
    out = {name: plain(description[name]) for name in wanted[:2] if name in description}
    for name in CHOICES:
        part = description[name]
        out[name] = None if part is None else plain(build(name, part, types_of(name)))
    return {**out, **({"code": dict(description["code"])} if "code" in description else {})}


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def build(kind: str, described: Mapping[str, Any], types: Mapping[str, type], like: Any = None) -> Any:
    """The part, schedule or the like that a description names.

    Args:
        kind: what it is, for errors.
        described: ``type`` and fields.
        types: name to type.
        like: a part whose fields of the same names hold where ``described`` gives none.
    """
    name = described.get("type", "")
    if name not in types:
        raise errors.unknown(f"type of {kind}", name, types)
    known = {field.name for field in fields(types[name])}
    given = {RENAMED_FIELDS.get((name, k), k): v for k, v in described.items() if k != "type"}
    for field in given:
        if field not in known:
            raise errors.unknown(f"field of {name}", field, known)
    if like is not None:
        given = {field.name: getattr(like, field.name) for field in fields(like) if field.name in known} | given
    return types[name](**{k: _schedule(k, v) if isinstance(v, Mapping) else v for k, v in given.items()})


def _schedule(kind: str, described: Mapping[str, Any]) -> Linear:
    if set(described) == {field.name for field in fields(Linear)}:  # the oldest descriptions have no type
        described = {"type": "Linear", **described}
    linear: Linear = build(kind, described, {"Linear": Linear})
    return linear
