"""One rule for a user's own folder: which subfolders are parts of the set, which are classes, and what is left out."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from contrastlab.pictures import limits
from contrastlab.support.errors import MissingDataError

PARTS: Mapping[str, tuple[str, ...]] = MappingProxyType({
    "train": ("train", "training"), "test": ("test", "testing"), "val": ("val", "valid", "validation"),
})  # fmt: skip
"""Part of a set to what its folder may be called, in any case, the most usual first."""

_SHOWN = 8  # classes, or kinds of files, that a note counts one by one


@dataclass(frozen=True)
class Listing:
    """The files below a folder, relative to it: those of class subfolders, then loose ones, labelled −1."""

    folder: Path
    paths: tuple[str, ...]
    labels: tuple[int, ...]
    classes: tuple[str, ...]

    @property
    def labelled(self) -> bool:
        """Whether any file has a class."""
        return any(label >= 0 for label in self.labels)


@dataclass(frozen=True)
class Layout:
    """The parts of a user's set: ``test`` is ``None`` where no part that could be one has labels."""

    train: Listing
    test: Listing | None
    note: str


def listed(folder: Path, suffixes: Collection[str], only: Iterable[str] | None = None) -> Listing:
    """The files of the class subfolders (all, or ``only`` those), and the loose ones."""
    entries = sorted((e for e in os.scandir(folder) if not e.name.startswith(".")), key=lambda entry: entry.name)
    subfolders = [entry.name for entry in entries if entry.is_dir()] if only is None else sorted(only)
    inside = {each: limits.files_below(folder / each, suffixes) for each in subfolders}
    classes = [each for each in subfolders if inside[each]]
    found = [(path, label) for label, each in enumerate(classes) for path in inside[each]]
    if only is None:
        loose = [Path(entry.path) for entry in entries if entry.is_file()]
        found += [(path, -1) for path in loose if path.suffix.lower() in suffixes]
    paths = tuple(path.relative_to(folder).as_posix() for path, _ in found)
    return Listing(folder, paths, tuple(label for _, label in found), tuple(classes))


def read(name: str, folder: Path, suffixes: Collection[str], item: str) -> Layout:
    """How a user's folder is laid out; ``item`` says in a word what its files are.

    The subfolders of a training part, or of the folder itself, are the classes, and files beside them are unlabelled.
    A part is a subfolder called as :data:`PARTS` says; where all subfolders have such a word in their names
    (``seg_train``, ``train2017``), they are parts, too. Test is the first of test and validation that has labels. A
    ``MissingDataError`` says which part is missing, and which has no file.
    """
    places = _parts(name, folder, suffixes)
    train = listed(places["train"], suffixes)
    tests = [listed(places[part], suffixes) for part in ("test", "val") if part in places]
    for part in (train, *tests):
        if not part.paths:
            kinds = " ".join(sorted(suffixes))
            raise MissingDataError(f"{name}: no {item} under {part.folder} (looked for {kinds}).")
    test = next((part for part in tests if part.labelled), None)
    aside = [part for part in tests if part is not test]
    if places["train"] != folder:
        aside += _beside(folder, places, suffixes)
    return Layout(train, test, _note(folder, train, aside, suffixes, item))


def _beside(folder: Path, places: Mapping[str, Path], suffixes: Collection[str]) -> list[Listing]:
    """Subfolders with files that are no part of the set, where others are."""
    taken = set(places.values()) | {parent for place in places.values() for parent in place.parents}
    found = []
    for each in sorted(folder.iterdir()):
        if each.is_dir() and not each.name.startswith(".") and each not in taken:
            found.append(listed(each, suffixes))
    return [each for each in found if each.paths]


def part_of(name: str, *, word: bool = False) -> str:
    """The part of a set that a folder's name says, or with ``word`` one word of it; empty for none, or for several."""
    words = re.findall("[a-z]+", name.lower()) if word else [name.lower()]
    found = {part for part, names in PARTS.items() for each in words if each in names}
    return found.pop() if len(found) == 1 else ""


def _parts(name: str, folder: Path, suffixes: Collection[str]) -> dict[str, Path]:
    subfolders = sorted(each for each in folder.iterdir() if each.is_dir() and not each.name.startswith("."))
    parts: dict[str, Path] = {}
    for part, names in PARTS.items():
        called = [each for each in subfolders if part_of(each.name) == part]
        if called:
            # of train and Training the first as they are written above, lower case before upper
            parts[part] = min(called, key=lambda each: (names.index(each.name.lower()), each.name not in names))
    by_word = {each: part_of(each.name, word=True) for each in subfolders}
    if "train" not in parts and len(subfolders) > 1 and all(by_word.values()):
        train = [each for each in subfolders if by_word[each] == "train"]
        if len(train) != 1:
            found = "the folders " + ", ".join(each.name for each in subfolders) + " are called like parts of a set"
            accepted = "one folder train, beside test or val; or folders called by their class"
            raise MissingDataError(f"{name}: {found}: accepted is {accepted}.")
        parts = {by_word[each]: each for each in reversed(subfolders)}
    if "train" not in parts:
        if parts:
            held = next(iter(parts.values()))
            raise MissingDataError(f"{name}: {held} exists, but {folder / 'train'} does not.")
        return {"train": folder}
    return {part: _inner(place, suffixes) for part, place in parts.items()}


def _inner(folder: Path, suffixes: Collection[str]) -> Path:
    """The folder inside that has the classes, where a part is packed in a folder of its own name again."""
    inside = [each for each in folder.iterdir() if not each.name.startswith(".")]
    folders = [each for each in inside if each.is_dir()]
    loose = any(each.suffix.lower() in suffixes for each in inside if each not in folders)
    if len(folders) == 1 and not loose and part_of(folders[0].name, word=True) == part_of(folder.name, word=True):
        return _inner(folders[0], suffixes)
    return folder


def _note(folder: Path, train: Listing, aside: list[Listing], suffixes: Collection[str], item: str) -> str:
    counts = Counter(train.labels)
    unlabelled = counts.pop(-1, 0)
    said = []
    if 0 < len(counts) <= _SHOWN:
        said.append(", ".join(f"{train.classes[label]} {count}" for label, count in sorted(counts.items())))
    elif counts:
        said.append(f"{len(counts)} classes of {min(counts.values())} to {max(counts.values())} {item}s")
    if unlabelled:
        said.append(f"{unlabelled} without a class")
    deep = [path for path in train.paths if path.count("/") > 1]
    if len(deep) == len(train.paths):
        inner = deep[0].rpartition("/")[0]
        said.append(f"class folders hold only folders, such as {inner}, whose names are not read")
    said += [f"{part.folder.name} left out, with {len(part.paths)} {item}s" for part in aside]
    others = limits.other_files(folder, suffixes)
    if others:
        kinds = ", ".join(f"{count} {kind}" for kind, count in others.most_common(_SHOWN))
        said.append(f"other files left out: {kinds}")
    return "; ".join(said)
