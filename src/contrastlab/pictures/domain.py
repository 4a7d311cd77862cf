"""What a domain is: a row that says where its items, views, tasks and readers are; and the row of pictures.

A row holds names alone, ``module:object``, so that nothing of a domain is imported before it is asked for. A set of
items says of which domain it is (:attr:`contrastlab.pictures.items.ItemSet.domain`), so that whoever trains or scores
knows no domain by name.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from importlib.resources import files
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from contrastlab.support import errors

if TYPE_CHECKING:
    from torch import nn

    from contrastlab.settings import Settings
    from contrastlab.views import Augmentation, Views


@dataclass(frozen=True)
class Modality:
    """How items of one kind are seen and embedded."""

    name: str  #: ``image``, …
    augmentation: Callable[[Settings], Augmentation]  #: settings to the distribution over views
    #: views of a recipe, a set of items and settings to one new encoder per stream, in the order of ``views.streams``;
    #: weights come from torch's default generator
    encoders: Callable[[Views, Any, Settings], nn.ModuleList]
    #: settings to the arguments that :func:`contrastlab.encoders.build` needs to make these encoders again
    build: Callable[[Settings], Mapping[str, Any]]


@dataclass(frozen=True)
class Domain:
    """Where the parts of a domain are; each is a name, ``module:object``.

    Its published data sets are the rows of ``published.toml`` in its package, if there is one.
    """

    package: str  #: that holds the domain, such as ``contrastlab.domains.clips``
    modalities: Mapping[str, str]  #: name to a :class:`Modality`
    tasks: Mapping[str, str] = field(default_factory=dict)  #: name to a class of :mod:`contrastlab.pictures.task`
    readers: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Kind of a user's own data, ``<kind>:<path>``, to its modality and the function that reads it."""
    builders: Mapping[str, str] = field(default_factory=dict)
    """Kind of encoder, as a stored file says it, to the function that makes one."""
    made_of: Mapping[str, str] = field(default_factory=dict)
    """Modality to the one that its items were made of; they fill the columns of a table of those, too."""
    checks: tuple[str, ...] = ()
    """Functions from a folder to the files below it that the domain reads, each with why it cannot be read, if so."""

    @cached_property
    def published(self) -> Mapping[str, Mapping[str, Any]]:
        """Name of a published data set to its row: who reads it, where it lies, how to get it, what to note of it."""
        path = files(self.package) / "published.toml"
        return tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}

    def modality(self, name: str) -> Modality:
        """The modality of that name."""
        errors.check_name("modality", name, self.modalities)
        return resolve_name(self.modalities[name])


DOMAIN = Domain(
    package="contrastlab.pictures",
    modalities={"image": "contrastlab.pictures.modality:IMAGE"},
    tasks={
        "linear": "contrastlab.pictures.definitions:Linear",
        "neighbours": "contrastlab.pictures.definitions:Neighbours",
        "transfer": "contrastlab.pictures.definitions:Transfer",
        "layers": "contrastlab.pictures.definitions:Layers",
    },
    readers={
        "folder": ("image", "contrastlab.pictures.readers:load_folder"),
        "unlabelled": ("image", "contrastlab.pictures.readers:load_pictures"),
        "parquet": ("image", "contrastlab.pictures.parquet:load_parquet"),
    },
    builders={"image": "contrastlab.pictures.encoder:build"},
    checks=("contrastlab.pictures.readers:check_pictures", "contrastlab.pictures.parquet:check_tables"),
)


def modality(source: Any) -> Modality:
    """The modality of a set of items."""
    is_item_set = hasattr(source, "modality") and hasattr(source, "domain")
    errors.check(is_item_set, "items", type(source).__name__, "a set of contrastlab.data, such as ImageSet")
    domain: Domain = import_module(source.domain).DOMAIN
    return domain.modality(source.modality)
