"""The papers of this package: one folder each below ``contrastlab.papers``, known by its ``paper.toml``.

A folder holds what the package says of its paper: ``paper.toml``, ``methods.py`` with the rows of its tables,
``table1.csv`` with published numbers, ``table1.toml`` or ``figure2.toml`` with a protocol. Nothing lists the folders.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.resources import files
from types import ModuleType
from typing import Any, Literal

HERE = files("contrastlab.papers")


def read_text(*path: str) -> str:
    """A text file of the papers' folder."""
    return HERE.joinpath(*path).read_text(encoding="utf-8")


def read_toml(*path: str) -> dict[str, Any]:
    """A TOML file of the papers' folder."""
    return tomllib.loads(read_text(*path))


@cache
def papers() -> Mapping[str, Mapping[str, Any]]:
    """Short name of a paper to its ``paper.toml``; by ``order``, and by name where two have the same."""
    described = {}
    for folder in HERE.iterdir():
        if folder.joinpath("paper.toml").is_file():
            described[folder.name] = read_toml(folder.name, "paper.toml")
    by_order = sorted(described, key=lambda name: (described[name]["order"], name))
    return {name: described[name] for name in by_order}


@cache
def tables(kind: Literal["csv", "toml"]) -> Mapping[tuple[str, str], str]:
    """(Paper, table) to the file's name: published numbers (``csv``) or protocols (``toml``).

    Ordered by the paper's name, tables before figures, number, letter.
    """
    pattern = re.compile(rf"(?:table|(figure))(\d+)([a-z]?)\.{kind}")
    matches = []
    for paper in papers():
        for file in HERE.joinpath(paper).iterdir():
            match = pattern.fullmatch(file.name)
            if match is not None:
                matches.append((paper, match))
    matches.sort(key=lambda pair: (pair[0], pair[1][1] is not None, int(pair[1][2]), pair[1][3]))
    named = {}
    for paper, match in matches:
        figure = match[1] or ""
        named[paper, figure + match[2] + match[3]] = match[0]
    return named


def methods() -> tuple[ModuleType, ...]:
    """The ``methods`` modules of the papers that have one, in the order of the papers."""
    with_methods = [paper for paper in papers() if HERE.joinpath(paper, "methods.py").is_file()]
    return tuple(import_module(f"contrastlab.papers.{paper}.methods") for paper in with_methods)
