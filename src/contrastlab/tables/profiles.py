"""Scopes of a protocol: which settings hold for which rows, and the small profiles of all tables."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Annotated, Any

from pydantic import AfterValidator, Field, field_validator, model_validator

from contrastlab.scores.choices import CHOICES
from contrastlab.settings import FrozenModel, Settings
from contrastlab.support import discovery, errors
from contrastlab.tables.recipes import Facts, kinds, method_names


def _fields(changes: dict[str, Any]) -> dict[str, Any]:
    Settings().override(**changes)  # raises on an unknown field or a value out of range
    return changes


Changes = Annotated[dict[str, Any], AfterValidator(_fields)]
"""Fields of :class:`contrastlab.settings.Settings` and what they are changed to."""


UNSEARCHED = "none"
"""The search of a scope whose own settings take the place of those that a search chose."""


def check_known(what: str, name: str, known: Iterable[str]) -> None:
    """Refuse a name in the way that pydantic reports."""
    if name not in known:
        raise ValueError(str(errors.unknown(what, name, known)))


class Scope(FrozenModel):
    """Settings for every cell, and narrower scopes inside: for rows with a kind of part, a modality, data, a method.

    In TOML, ``[profile.laptop.keys.Bank]`` changes the rows whose keys are a ``Bank``.
    """

    search: str = Field("", description="recorded search on held-out items that chose the settings, or 'none'")
    settings: Changes = Field(default_factory=dict)
    kinds: dict[tuple[str, str], Scope] = Field(default_factory=dict, description="by choice and type of its part")
    modality: dict[str, Scope] = Field(default_factory=dict)
    dataset: dict[str, Scope] = Field(default_factory=dict)
    method: dict[str, Scope] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _nest(cls, raw: dict[str, Any]) -> dict[str, Any]:
        """The fields of a scope from what its table in TOML says: what is no scope and no field is a setting."""
        fields: dict[str, Any] = {}
        settings: dict[str, Any] = {}
        kinds: dict[tuple[str, str], Any] = {}
        for name, value in raw.items():
            if name in CHOICES:
                for kind, scope in value.items():
                    kinds[name, kind] = scope
            elif name in cls.model_fields and name not in ("settings", "kinds"):
                fields[name] = value
            else:
                settings[name] = value
        return {**fields, "settings": settings, "kinds": kinds}

    @field_validator("kinds")
    @classmethod
    def _exist(cls, scopes: dict[tuple[str, str], Scope]) -> dict[tuple[str, str], Scope]:
        for choice, kind in scopes:
            check_known(f"type of {choice}", kind, kinds(choice))
        return scopes

    def narrowed(self, recipe: Facts, dataset: str, modality: str) -> Iterator[Scope]:
        """This scope and those inside it that hold for a recipe on a data set, later ones winning."""
        of_modality = self.modality.get(modality, NOTHING)
        of_dataset = self.dataset.get(dataset, NOTHING)
        yield self
        for (choice, kind), scope in self.kinds.items():
            if recipe.is_a(choice, kind):
                yield scope
        yield of_modality
        yield of_dataset
        for scope in (self, of_modality, of_dataset):
            yield scope.method.get(recipe.name, NOTHING)

    def layers(self, recipe: Facts, dataset: str, modality: str) -> Iterator[dict[str, Any]]:
        """Changes for a recipe on a data set, later ones winning."""
        for scope in self.narrowed(recipe, dataset, modality):
            yield scope.settings

    def search_for(self, recipe: Facts, dataset: str, modality: str) -> str:
        """The search of the last scope that names one, in the order of :meth:`layers`; empty if none does."""
        search = ""
        for scope in self.narrowed(recipe, dataset, modality):
            search = scope.search or search
        return search

    @property
    def methods(self) -> Iterator[str]:
        """Methods that have scopes of their own."""
        yield from self.method
        for inner in (*self.modality.values(), *self.dataset.values()):
            yield from inner.method


NOTHING = Scope()


class SharedProfile(Scope):
    """A small profile of all tables; of several kinds of rows that apply, those that the file names last win.

    What was chosen for rows by their parts was chosen on pictures, and says nothing of sounds or sentences.
    """

    extends: str = Field("", description="another profile, whose changes come first; 'paper' is the protocol itself")

    @field_validator("method")
    @classmethod
    def _known(cls, scopes: dict[str, Scope]) -> dict[str, Scope]:
        for name in scopes:
            check_known("method", name, method_names())
        return scopes

    def layers(self, recipe: Facts, dataset: str = "", modality: str = "image") -> Iterator[dict[str, Any]]:
        """Changes for a recipe on data of a modality, later ones winning."""
        if self.extends in shared_profiles():
            yield from shared_profiles()[self.extends].layers(recipe, dataset, modality)
        if modality == "image":
            yield from super().layers(recipe, dataset, modality)
        else:
            yield self.settings

    def chosen_by(self, recipe: Facts) -> str:
        """Name of the search that the settings of a recipe on pictures were chosen by; empty where there was none."""
        search = ""
        if self.extends in shared_profiles():
            search = shared_profiles()[self.extends].chosen_by(recipe)
        for (choice, kind), scope in self.kinds.items():
            if recipe.is_a(choice, kind):
                search = scope.search
        if recipe.name in self.method:
            search = self.method[recipe.name].search
        return search


@cache
def shared_profiles() -> Mapping[str, SharedProfile]:
    """What each small profile changes in every protocol."""
    profiles = discovery.read_toml("profiles.toml")
    return {name: SharedProfile.model_validate(changes) for name, changes in profiles.items()}


PAPER = "paper"
"""The profile that changes nothing: a protocol itself."""


OWN = "own"
"""The profile that results of one's own settings carry, whatever profile they change; no measured number has it."""


def is_paper(profile: str) -> bool:
    """Whether a profile is the paper's protocol, whatever the precision of the encoders."""
    shared = shared_profiles().get(profile)
    return profile == PAPER or (shared is not None and shared.extends == PAPER)


PROFILE_VARIABLE = "CONTRASTLAB_PROFILE"
"""Environment variable that says what the profile ``auto`` is."""


def choose_profile(profile: str, known: Sequence[str]) -> str:
    """One of ``known``; ``auto`` is ``CONTRASTLAB_PROFILE``, else ``paper`` where there is a GPU, else ``laptop``."""
    kind = "profile"
    of_environment = os.environ.get(PROFILE_VARIABLE)
    if profile == "auto" and of_environment:
        kind = f"profile of the variable {PROFILE_VARIABLE}"
        profile = of_environment
    elif profile == "auto":
        import torch

        profile = "paper" if torch.cuda.is_available() else "laptop"
    if profile == OWN and OWN not in known:
        raise errors.reject(kind, profile, "a profile to change, with settings of your own: --set epochs=50")
    if profile not in known:
        raise errors.unknown(kind, profile, ("auto", *known))
    return profile
