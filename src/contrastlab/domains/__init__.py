"""Kinds of data beside pictures, a folder each; any of them can be deleted, and what does not need it goes on.

:data:`PACKAGES` is the one list of them. The row of a domain, its ``DOMAIN``, holds names alone: reading all rows
imports nothing that computes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from importlib.util import find_spec

from contrastlab.pictures.domain import Domain
from contrastlab.support import errors

PACKAGES: Mapping[str, str] = {
    "pictures": "contrastlab.pictures.domain",
    "clips": "contrastlab.domains.clips",
    "scenes": "contrastlab.domains.scenes",
    "detection": "contrastlab.domains.detection",
    "text": "contrastlab.domains.text",
    "speech": "contrastlab.domains.speech",
    "arrays": "contrastlab.domains.arrays",
    "features": "contrastlab.domains.features",
}
"""Name of a domain to the module that has its row."""


def absent() -> tuple[str, ...]:
    """Names of the domains whose folders have been deleted."""
    return tuple(name for name, package in PACKAGES.items() if find_spec(package) is None)


def present(name: str) -> bool:
    """Whether the folder of a domain is there."""
    return name not in absent()


def rows() -> tuple[Domain, ...]:
    """The rows of all domains that are there."""
    missing = absent()
    domains = []
    for name, package in PACKAGES.items():
        if name not in missing:
            domains.append(import_module(package).DOMAIN)
    return tuple(domains)


def deleted(error: ModuleNotFoundError) -> str | None:
    """The module of the deleted domain that an import asked for, if it did."""
    for name in absent():
        package = PACKAGES[name]
        if error.name is not None and f"{error.name}.".startswith(f"{package}."):
            return package
    return None


def unknown(kind: str, name: object, known: Iterable[str]) -> errors.UnknownNameError:
    """The error for a name that no domain has; it says which domains are not there, since one of them may have it."""
    error = errors.unknown(kind, name, known)
    missing = absent()
    if not missing:
        return error
    folders = " and ".join(PACKAGES[each] for each in missing)
    return errors.UnknownNameError(f"{error}. It may belong to a domain that is not installed: {folders}")
