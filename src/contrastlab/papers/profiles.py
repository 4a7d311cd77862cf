"""Profiles: what is changed in a published protocol to make runs of another size, and for which rows."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from contrastlab import errors
from contrastlab import methods as recipes
from contrastlab.methods.recipe import types_of
from contrastlab.papers.published import HERE, FrozenModel
from contrastlab.settings import Settings


def _fields(changes: dict[str, Any]) -> dict[str, Any]:
    Settings().override(**changes)  # raises on an unknown field or a value out of range
    return changes


Changes = Annotated[dict[str, Any], AfterValidator(_fields)]
"""Fields of :class:`contrastlab.settings.Settings` and what they are changed to."""


def _frozen(value: Any) -> Any:
    return tuple((k, _frozen(v)) for k, v in value.items()) if isinstance(value, dict) else value


def thawed(pairs: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    """The changes that :data:`Fixed` holds, as a dictionary."""
    nested = {k for k, v in pairs if isinstance(v, tuple) and v and isinstance(v[0], tuple)}
    return {k: thawed(v) if k in nested else v for k, v in pairs}


Fixed = Annotated[tuple[tuple[str, Any], ...], BeforeValidator(lambda raw: _frozen(_fields(dict(raw))))]
"""The same, hashable: what a column changes."""


class Kind(FrozenModel):
    """Changes for data of one modality: for every cell, then for one method."""

    settings: Changes = Field(default_factory=dict)
    method: dict[str, Changes] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _nest(cls, raw: dict[str, Any]) -> dict[str, Any]:
        return {"settings": {k: v for k, v in raw.items() if k != "method"}, "method": raw.get("method", {})}


UNSEARCHED = "none"
"""What a table's profile says where its own settings take the place of those that a search chose."""


def _is(recipe: recipes.Recipe, choice: str, kind: str) -> bool:
    return recipe.name == kind if choice == "method" else type(getattr(recipe, choice)).__name__ == kind


def _by_kind(raw: Mapping[str, Any], scopes: tuple[str, ...]) -> dict[tuple[str, str], dict[str, Any]]:
    """Sections such as ``keys.Queue`` by (choice, type of its part)."""
    kinds = {(choice, kind): changes for choice in raw if choice in scopes for kind, changes in raw[choice].items()}
    for choice, kind in kinds:
        known = recipes.names() if choice == "method" else types_of(choice)
        if kind not in known:
            raise ValueError(str(errors.unknown("method" if choice == "method" else f"type of {choice}", kind, known)))
    return kinds


def _applying(kinds: Mapping[tuple[str, str], dict[str, Any]], recipe: recipes.Recipe) -> Iterator[dict[str, Any]]:
    """Changes for a recipe by its parts, later ones winning."""
    return (changes for (choice, kind), changes in kinds.items() if _is(recipe, choice, kind))


class Profile(FrozenModel):
    """A table's own part of a profile: changes for every cell, kinds of recipes, a modality, a data set, and a method.

    In TOML ``[profile.laptop.keys.Bank]`` changes the rows whose keys are a ``Bank``.
    ``search``, here or in the section of a data set, names the recorded search that the values come from.
    """

    search: str = Field(
        "", description="recorded search on held-out items that chose the settings, or 'none'; empty: as shared"
    )
    settings: Changes = Field(default_factory=dict)
    kinds: dict[tuple[str, str], Changes] = Field(
        default_factory=dict, description="(choice, type of its part) to changes"
    )
    modality: dict[str, Kind] = Field(default_factory=dict)
    dataset: dict[str, Changes] = Field(default_factory=dict)
    searches: dict[str, str] = Field(default_factory=dict, description="data set to the search of its section")
    method: dict[str, Changes] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _nest(cls, raw: dict[str, Any]) -> dict[str, Any]:
        scopes = ("search", "modality", "dataset", "method")
        plain = {key: value for key, value in raw.items() if key not in (*scopes, *recipes.CHOICES)}
        by_data = raw.get("dataset", {})
        return {
            "settings": plain, "kinds": _by_kind(raw, tuple(recipes.CHOICES)),
            **{key: value for key, value in raw.items() if key in scopes},
            "dataset": {name: {k: v for k, v in part.items() if k != "search"} for name, part in by_data.items()},
            "searches": {name: part["search"] for name, part in by_data.items() if "search" in part},
        }  # fmt: skip

    def layers(self, recipe: recipes.Recipe, dataset: str, modality: str) -> Iterator[dict[str, Any]]:
        """Changes for a recipe on a data set, later ones winning."""
        here = self.modality.get(modality, Kind())
        yield self.settings
        yield from _applying(self.kinds, recipe)
        yield here.settings
        yield self.dataset.get(dataset, {})
        yield self.method.get(recipe.name, {})
        yield here.method.get(recipe.name, {})


class SharedProfile(FrozenModel):
    """A small profile of all tables: changes for every row, then for rows with a part of some kind, or by name.

    In TOML a section such as ``[laptop.keys.Queue]`` changes every recipe whose keys are a ``Queue``, whatever the
    table, and ``[laptop.method."jcl/jcl"]`` that recipe. Of several that apply, those of the choice that the file names
    last win. A section's ``search`` names the recorded search on held-out training images that its values come from.
    """

    extends: str = Field("", description="another shared profile, whose changes come first")
    settings: Changes = Field(default_factory=dict)
    kinds: dict[tuple[str, str], Changes] = Field(
        default_factory=dict, description="(choice, type of its part) or (method, name) to changes"
    )
    searches: dict[tuple[str, str], str] = Field(
        default_factory=dict, description="the same to the search its changes were chosen by"
    )

    @model_validator(mode="before")
    @classmethod
    def _nest(cls, raw: dict[str, Any]) -> dict[str, Any]:
        scopes = (*recipes.CHOICES, "method")
        plain = {key: value for key, value in raw.items() if key not in scopes and key != "extends"}
        kinds = _by_kind(raw, scopes)
        searches = {kind: changes["search"] for kind, changes in kinds.items() if "search" in changes}
        kinds = {kind: {k: v for k, v in changes.items() if k != "search"} for kind, changes in kinds.items()}
        return {"extends": raw.get("extends", ""), "settings": plain, "kinds": kinds, "searches": searches}

    def layers(self, recipe: recipes.Recipe, modality: str = "image") -> Iterator[dict[str, Any]]:
        """Changes for a recipe, later ones winning.

        What was chosen for rows by their parts was chosen on pictures, and says nothing of sounds or sentences.
        """
        if self.extends:
            yield from shared_profiles()[self.extends].layers(recipe, modality)
        yield self.settings
        if modality != "image":
            return
        yield from _applying(self.kinds, recipe)

    def search(self, recipe: recipes.Recipe) -> str:
        """Name of the search that the settings of a recipe were chosen by; empty where there was none."""
        inherited = shared_profiles()[self.extends].search(recipe) if self.extends else ""
        mine = [self.searches.get(kind, "") for kind in self.kinds if _is(recipe, *kind)]
        return mine[-1] if mine else inherited


@cache
def shared_profiles() -> Mapping[str, SharedProfile]:
    """What each small profile changes in every protocol."""
    raw = tomllib.loads((HERE / "profiles.toml").read_text(encoding="utf-8"))
    return MappingProxyType({name: SharedProfile.model_validate(changes) for name, changes in raw.items()})
