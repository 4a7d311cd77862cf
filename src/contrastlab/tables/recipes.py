"""What a plan asks of recipes and data; the packages that know are imported only if no answer of theirs is cached."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, TypeVar

from contrastlab.settings import FrozenModel
from contrastlab.support.cache import Cache

_T = TypeVar("_T")
_ANSWERS = Cache("what plans ask of recipes and data")


def _loaded() -> bool:
    """Whether this process has imported the recipes: they then answer for themselves."""
    return "contrastlab.methods" in sys.modules


def _room(name: str) -> Any:
    """A room of the package, imported only where it is asked."""
    return import_module(f"contrastlab.{name}")


_KEEPS = not _loaded()
"""Whether this process began without the packages: what they say is then theirs, and nobody has added to them."""


def _ask(question: str, answer: Callable[[], _T]) -> _T:
    """The answer that an earlier process kept, or else what ``answer`` returns, which imports what it needs."""
    if not _loaded():
        stored: _T | None = _ANSWERS.get(question)
        if stored is not None:
            return stored
    today = answer()
    if _KEEPS:
        _ANSWERS.put(question, today)
    return today


def keep() -> None:
    """Keep for later processes what this one has asked."""
    _ANSWERS.save()


class Facts(FrozenModel):
    """What a plan has to know of a recipe; ``parts`` are the types of its parts by choice."""

    name: str
    label: str
    trained: bool
    parts: dict[str, str]

    def is_a(self, choice: str, kind: str) -> bool:
        """Whether the part of a choice is of this type."""
        return self.parts[choice] == kind

    def describe(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """``Recipe.describe()`` with some fields of its parts changed; not to be changed, since it is kept."""
        question = f"{self.name} with {json.dumps(changes, sort_keys=True)}"
        return _ask_of_recipe(question, self.name, lambda recipe: recipe.override(changes).describe())


def facts(name: str) -> Facts:
    """What a plan has to know of a recipe."""

    def answer(recipe: Any) -> dict[str, Any]:
        parts = {choice: type(part).__name__ for choice, part in recipe.choices().items()}
        return {"name": name, "label": recipe.label, "trained": recipe.keys is not None, "parts": parts}

    return Facts.model_construct(**_ask_of_recipe(name, name, answer))


def _ask_of_recipe(question: str, name: str, answer: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    """What ``answer`` returns of the recipe with a name; computed once, since the cells of a table ask the same."""

    def answer_once() -> dict[str, Any]:
        recipe = _room("methods").get(name)
        asked, known = _OF_RECIPES.get(question, (None, {}))
        if asked is not recipe:  # for the first time, or another recipe has the name by now
            known = answer(recipe)
            _OF_RECIPES[question] = recipe, known
        return known

    return _ask(question, answer_once)


_OF_RECIPES: dict[str, tuple[Any, dict[str, Any]]] = {}
"""What was answered of recipes in this process, with the recipe that it is true of."""


def method_names() -> list[str]:
    """Names of all recipes."""
    return _ask("recipes", lambda: list(_room("methods").names()))


def kinds(choice: str) -> list[str]:
    """Names of the types of part that a choice may have."""
    return _ask(f"types of {choice}", lambda: list(_room("recipe").types_of(choice)))


def datasets() -> list[str]:
    """Names of data sets, and kinds of a user's own with a colon behind them."""

    def answer() -> list[str]:
        data = _room("data")
        return [*data.names(), *(f"{kind}:" for kind in data.OWN)]

    return _ask("data sets", answer)


def modality(dataset: str) -> str:
    """:func:`contrastlab.data.modality_of`."""
    kind, colon, _ = dataset.partition(":")
    return _ask(f"modality of {kind}{colon}", lambda: str(_room("data").modality_of(dataset)))


def original_modality(dataset: str) -> str:
    """:func:`contrastlab.data.original_modality_of`."""
    kind, colon, _ = dataset.partition(":")
    return _ask(f"original modality of {kind}{colon}", lambda: str(_room("data").original_modality_of(dataset)))
