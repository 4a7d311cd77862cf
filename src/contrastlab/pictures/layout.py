"""One rule for a user's own folder: which subfolders are parts of the set, which are classes, and what is left out."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from contrastlab.support.errors import MissingDataError
from contrastlab.support.paths import files_below, other_files

PARTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "train": ("train", "training"),
        "test": ("test", "testing"),
        "val": ("val", "valid", "validation"),
    }
)
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
    entries = _visible_entries(folder)
    subfolders = [entry.name for entry in entries if entry.is_dir()]
    loose = _loose_files(entries, suffixes)
    if only is not None:
        subfolders = sorted(only)
        loose = []
    files: list[Path] = []
    labels: list[int] = []
    classes: list[str] = []
    for subfolder in subfolders:
        files_of_class = files_below(folder / subfolder, suffixes)
        if not files_of_class:
            continue
        files += files_of_class
        labels += [len(classes)] * len(files_of_class)
        classes.append(subfolder)
    files += loose
    labels += [-1] * len(loose)
    paths = tuple(file.relative_to(folder).as_posix() for file in files)
    return Listing(folder, paths, tuple(labels), tuple(classes))


def _visible_entries(folder: Path) -> list[os.DirEntry[str]]:
    """What lies in a folder under a name without a dot before it, sorted by name."""
    entries = [entry for entry in os.scandir(folder) if not entry.name.startswith(".")]
    return sorted(entries, key=lambda entry: entry.name)


def _loose_files(entries: Iterable[os.DirEntry[str]], suffixes: Collection[str]) -> list[Path]:
    paths = [Path(entry.path) for entry in entries if entry.is_file()]
    return [path for path in paths if path.suffix.lower() in suffixes]


def read(
    name: str, folder: Path, suffixes: Collection[str], item: str, reasons: Callable[[Sequence[Path]], list[str]] | None
) -> Layout:
    """How a user's folder is laid out; ``item`` says in a word what its files are.

    The subfolders of a training part, or of the folder itself, are the classes, and files beside them are unlabelled.
    A part is a subfolder called as :data:`PARTS` says; where all subfolders have such a word in their names
    (``seg_train``, ``train2017``), they are parts, too. Test is the first of test and validation that has labels. A
    ``MissingDataError`` says which part is missing, and which has no file. ``reasons`` says of files why they cannot be
    read, an empty text for those that can; the former are skipped, and the note counts them.
    """
    places = _find_parts(name, folder, suffixes)
    folders = [places[part] for part in ("train", "test", "val") if part in places]
    listings = []
    skipped: list[Path] = []
    for place in folders:
        listing = listed(place, suffixes)
        if reasons is not None:
            listing, unreadable = _split_readable(listing, reasons)
            skipped += unreadable
        listings.append(listing)
    for listing in listings:
        _check_not_empty(name, listing, suffixes, item, only_readable=bool(skipped))
    train, *candidates = listings
    test = next((part for part in candidates if part.labelled), None)
    left_out = [part for part in candidates if part is not test]
    if places["train"] != folder:
        left_out += _beside(folder, places, suffixes)
    note = _note(folder, train, left_out, suffixes, item)
    return Layout(train, test, join_notes(note, _note_of_skipped(folder, skipped, item)))


def _check_not_empty(name: str, listing: Listing, suffixes: Collection[str], item: str, *, only_readable: bool) -> None:
    """Refuse a part without files."""
    if listing.paths:
        return
    kinds = " ".join(sorted(suffixes))
    nothing = f"no {item}"
    if only_readable:
        nothing = f"no {item} that can be read"
    raise MissingDataError(f"{name}: {nothing} under {listing.folder} (looked for {kinds}).")


def _note_of_skipped(folder: Path, skipped: Sequence[Path], item: str) -> str:
    """How many files were skipped, and the names of the first ones."""
    if not skipped:
        return ""
    names = ", ".join(path.relative_to(folder).as_posix() for path in skipped[:_SHOWN])
    if len(skipped) > _SHOWN:
        names += " and others"
    return f"{len(skipped)} unreadable {item} files skipped: {names}"


def join_notes(*remarks: str) -> str:
    """Remarks that are not empty, in one line."""
    return "; ".join(remark for remark in remarks if remark)


def _split_readable(part: Listing, reasons: Callable[[Sequence[Path]], list[str]]) -> tuple[Listing, list[Path]]:
    """The files of a part that can be read, and the others. A class all of whose files cannot be read is left out."""
    files = [part.folder / path for path in part.paths]
    paths: list[str] = []
    old_labels: list[int] = []
    unreadable: list[Path] = []
    for file, path, label, reason in zip(files, part.paths, part.labels, reasons(files), strict=True):
        if reason:
            unreadable.append(file)
        else:
            paths.append(path)
            old_labels.append(label)
    classes_left = sorted({label for label in old_labels if label >= 0})
    new_labels = {-1: -1}
    for number, label in enumerate(classes_left):
        new_labels[label] = number
    labels = tuple(new_labels[label] for label in old_labels)
    classes = tuple(part.classes[label] for label in classes_left)
    return Listing(part.folder, tuple(paths), labels, classes), unreadable


def _beside(folder: Path, places: Mapping[str, Path], suffixes: Collection[str]) -> list[Listing]:
    """Subfolders with files that are no part of the set, where others are."""
    used = set(places.values())
    for place in places.values():
        used.update(place.parents)
    listings = []
    for path in sorted(folder.iterdir()):
        if not path.is_dir() or path.name.startswith(".") or path in used:
            continue
        listing = listed(path, suffixes)
        if listing.paths:
            listings.append(listing)
    return listings


def part_of(name: str, *, word: bool = False) -> str:
    """The part of a set that a folder's name says, or with ``word`` one word of it; empty for none, or for several."""
    words = [name.lower()]
    if word:
        words = re.findall("[a-z]+", name.lower())
    parts = [part for part, names in PARTS.items() if set(words).intersection(names)]
    if len(parts) == 1:
        return parts[0]
    return ""


def _find_parts(name: str, folder: Path, suffixes: Collection[str]) -> dict[str, Path]:
    """Part of a set to its folder; ``train`` is always among them."""
    subfolders = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    parts = _parts_by_name(subfolders)
    if "train" not in parts:
        parts = _parts_by_word(name, subfolders) or parts
    if "train" in parts:
        return {part: _inner(place, suffixes) for part, place in parts.items()}
    if parts:
        other = next(iter(parts.values()))
        raise MissingDataError(f"{name}: {other} exists, but {folder / 'train'} does not.")
    return {"train": folder}


def _parts_by_name(subfolders: list[Path]) -> dict[str, Path]:
    """The parts that have a folder called as :data:`PARTS` says."""
    parts = {}
    for part, names in PARTS.items():
        candidates = [path for path in subfolders if part_of(path.name) == part]
        if candidates:
            # of train and Training the first as they are written above, lower case before upper
            parts[part] = min(candidates, key=lambda path: (names.index(path.name.lower()), path.name not in names))
    return parts


def _parts_by_word(name: str, subfolders: list[Path]) -> dict[str, Path]:
    """The parts where every subfolder has the word of one in its name; empty where they have not."""
    part_of_folder = {path: part_of(path.name, word=True) for path in subfolders}
    if len(subfolders) < 2 or not all(part_of_folder.values()):
        return {}
    train = [path for path in subfolders if part_of_folder[path] == "train"]
    if len(train) != 1:
        names = ", ".join(path.name for path in subfolders)
        accepted = "one folder train, beside test or val; or folders called by their class"
        raise MissingDataError(f"{name}: the folders {names} are called like parts of a set: expected {accepted}.")
    # of several folders of one part the first is read
    return {part_of_folder[path]: path for path in reversed(subfolders)}


def _inner(folder: Path, suffixes: Collection[str]) -> Path:
    """The folder inside that has the classes, where a part is packed in a folder of its own name again."""
    inside = [path for path in folder.iterdir() if not path.name.startswith(".")]
    folders = [path for path in inside if path.is_dir()]
    has_files = any(path.suffix.lower() in suffixes for path in inside if path not in folders)
    if has_files or len(folders) != 1:
        return folder
    (only,) = folders
    if part_of(only.name, word=True) == part_of(folder.name, word=True):
        return _inner(only, suffixes)
    return folder


def _note(folder: Path, train: Listing, left_out: list[Listing], suffixes: Collection[str], item: str) -> str:
    """What a reader has to know of a folder: how many files have which class, and what is left out."""
    remarks = _count_classes(train, item)
    deep = [path for path in train.paths if path.count("/") > 1]
    if len(deep) == len(train.paths):
        inner = deep[0].rpartition("/")[0]
        remarks.append(f"class folders hold only folders, such as {inner}, whose names are not read")
    for part in left_out:
        remarks.append(f"{part.folder.name} left out, with {len(part.paths)} {item}s")
    others = other_files(folder, suffixes)
    if others:
        kinds = ", ".join(f"{count} {kind}" for kind, count in others.most_common(_SHOWN))
        remarks.append(f"other files left out: {kinds}")
    return join_notes(*remarks)


def _count_classes(train: Listing, item: str) -> list[str]:
    """In words, how many files each class has, and how many have none."""
    remarks = []
    counts = Counter(train.labels)
    unlabelled = counts.pop(-1, 0)
    if 0 < len(counts) <= _SHOWN:
        by_class = [f"{train.classes[label]} {count}" for label, count in sorted(counts.items())]
        remarks.append(", ".join(by_class))
    elif counts:
        fewest = min(counts.values())
        most = max(counts.values())
        remarks.append(f"{len(counts)} classes of {fewest} to {most} {item}s")
    if unlabelled:
        remarks.append(f"{unlabelled} without a class")
    return remarks
