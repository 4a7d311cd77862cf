"""Sets of items: what those of every modality share, which items a subset has, and the parts of a data set."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from contrastlab.pictures import limits
from contrastlab.support.errors import ArgumentError, MissingDataError, NotApplicableError, check, is_integer, reject

if TYPE_CHECKING:
    from contrastlab.pictures.loading import Crops

LABEL_COLUMNS = ("label", "fine_label", "labels", "fine_labels", "target", "class")
"""Names of a table's column of labels, the first one there is."""


class ItemSet:
    """Labelled items of one modality, read by number. Sets may share storage: treat their tensors as read-only.

    A subclass is a frozen dataclass; ``by_item`` names its fields with one entry for each item, the items first.
    Its name is of set and split, such as ``"cifar10/train"``; labels int64 ``[N]`` count in ``classes``, −1 is unknown.
    """

    domain: ClassVar[str] = "contrastlab.pictures.domain"  #: module with the row of the domain that it is of
    modality: ClassVar[str]  #: one of those of its domain
    resident: ClassVar[bool]
    whole: ClassVar[bool] = True  #: whether training reads an item whole, and not a random part of it, :meth:`part`
    by_item: ClassVar[tuple[str, ...]]

    name: str
    labels: Tensor
    classes: tuple[str, ...]
    if TYPE_CHECKING:  # a field, a property or a constant of the subclass

        @property
        def channels(self) -> int:
            """Numbers of a pixel; 1 for grey, 3 for RGB."""

        def __getitem__(self, index: int) -> Tensor: ...

    def __post_init__(self) -> None:
        labels, count = self.labels, len(getattr(self, self.by_item[0]))
        if labels.dtype != torch.int64 or labels.shape != (count,):
            raise reject("labels", f"{labels.dtype} of shape {tuple(labels.shape)}", f"int64 of shape ({count},)")
        low, high = (int(labels.min()), int(labels.max())) if count else (-1, -1)
        accepted = f"-1 for unlabelled, else 0 to {len(self.classes) - 1}, the index into classes"
        check(low >= -1 and high < len(self.classes), "labels", (low, high), accepted)

    def _form(self) -> str:
        """How items are stored and read: the beginning of what is hashed."""
        raise NotImplementedError

    def _hashed(self) -> Iterator[str | Tensor]:
        """What the fingerprint depends on."""
        yield self._form()
        yield from (getattr(self, self.by_item[0]), self.labels)

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {len(self)} items, {len(self.classes)} classes)"

    def part(self, index: int, crops: Crops, number: int) -> Tensor:
        """The random part of an item that training sees where it comes as the ``number``-th of the order."""
        raise NotImplementedError

    @property
    def labelled(self) -> bool:
        """Whether every item has a label."""
        return bool((self.labels >= 0).all())

    @cached_property
    def fingerprint(self) -> str:
        """First 16 hexadecimal digits of a SHA-256 of the items and labels, not of the name; the same on every device.

        Of files it is their paths and sizes that are hashed: to read them would take as long as an epoch.
        """
        digest = hashlib.sha256()
        for part in self._hashed():
            if isinstance(part, str):
                digest.update(part.encode())
            else:
                array = part.cpu().contiguous().numpy()
                digest.update(array.astype(array.dtype.newbyteorder("<"), copy=False).view(np.uint8).data)
        return digest.hexdigest()[:16]

    def subset(self, indices: Tensor) -> Self:
        """The items at ``indices`` (int64 ``[n]``), in that order."""

        def chosen(column: Any) -> Any:
            if isinstance(column, tuple):
                return tuple(column[k] for k in indices.tolist())
            return None if column is None else column.index_select(0, indices.to(column.device))

        return self._changed(chosen)

    def _changed(self, change: Callable[[Any], Any]) -> Self:
        def changed(column: Any) -> Any:
            by_name = isinstance(column, Mapping)
            return {name: change(values) for name, values in column.items()} if by_name else change(column)

        return replace(self, **{field: changed(getattr(self, field)) for field in self.by_item})  # type: ignore[type-var]

    def take(self, n: int | None, seed: int = 0) -> Self:
        """``n`` random items in their order, or all for None; see :func:`balanced_subset`."""
        return self if n in (None, len(self)) else self.subset(balanced_subset(self.labels, n, seed))

    def to(self, device: torch.device | str) -> Self:
        """The same set with all its tensors on ``device``, if it is resident; files stay files."""
        return self._changed(lambda column: column.to(device)) if self.resident else self


@dataclass(frozen=True, eq=False, repr=False)
class Items(ItemSet):
    """Items in memory, in one tensor ``[N, …]``; the subclass says which type and shape."""

    resident: ClassVar[bool] = True
    by_item: ClassVar[tuple[str, ...]] = ("items", "labels")
    shape: ClassVar[str]  # of the items and their type, in words

    name: str
    items: Tensor
    labels: Tensor
    classes: tuple[str, ...]

    def _fits(self) -> bool:
        return True

    def __post_init__(self) -> None:
        if not self._fits():
            raise reject("items", f"{self.items.dtype} of shape {tuple(self.items.shape)}", self.shape)
        super().__post_init__()
        for name, values in getattr(self, "factors", {}).items():
            accepted = f"one for each of {len(self)} items"
            check(len(values) == len(self), f"factors[{name!r}]", f"{len(values)} values", accepted)

    def _form(self) -> str:
        return repr(tuple(self.items.shape))

    @property
    def channels(self) -> int:
        """Numbers of a pixel, the last axis but two; 1 for grey, 3 for RGB."""
        return self.items.shape[-3]

    def __getitem__(self, index: int) -> Tensor:
        return self.items[index]


@dataclass(frozen=True, eq=False, repr=False)
class Files(ItemSet):
    """Items in files, decoded one at a time; holds paths only, so it can be sent to ``DataLoader`` workers."""

    resident: ClassVar[bool] = False
    by_item: ClassVar[tuple[str, ...]] = ("paths", "labels")

    name: str
    folder: Path
    paths: tuple[str, ...]  #: N, relative to ``folder``; none may lead out of it
    labels: Tensor
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        limits.check_inside("paths", self.paths)
        super().__post_init__()

    def _hashed(self) -> Iterator[str | Tensor]:
        yield self._form()
        for path, label in zip(self.paths, self.labels.tolist(), strict=True):
            yield f"\0{path}\0{os.stat(self.folder / path).st_size}\0{label}"

    def path(self, index: int) -> Path:
        """The file of an item."""
        return self.folder / self.paths[index]


def balanced_subset(labels: Tensor, n: int, seed: int) -> Tensor:
    """Indices of ``n`` items (1 to N), ascending, drawn at random, with class counts as equal as the labels allow.

    The draw for a smaller ``n`` is contained in the draw for a larger one. Where some labels are −1 the classes are
    not known and the draw is uniform over all items.
    """
    if not is_integer(n) or n > len(labels):
        raise reject("n", n, f"an integer from 1 to the {len(labels)} items of the set, or None for all")
    shuffled = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    known = labels.cpu()[shuffled]
    if int(known.min()) >= 0:
        # Rank of each item within its class, in shuffled order; taking by rank fills the classes evenly.
        by_class = known.argsort(stable=True)
        counts = known.bincount()
        rank = torch.empty_like(known)
        rank[by_class] = torch.arange(len(known)) - (counts.cumsum(0) - counts).repeat_interleave(counts)
        shuffled = shuffled[rank.argsort(stable=True)]
    return shuffled[:n].sort().values


def hold_out(
    labels: Tensor, groups: Tensor | None = None, *, name: str = "", classes: Sequence[str] = (), item: str = "image"
) -> Tensor:
    """What is held out of a stratified 80/20 split, boolean ``[N]``, always the same for the same labels.

    Of each class a fifth is held out, rounded, but at least one item and never all; a class of one item is refused by
    a ``NotApplicableError``, in whose words ``name``, ``classes`` and ``item`` occur. Items with label −1 are not held
    out. The items of a group (int64 ``[N]``), such as the frames of one track, stay together, and groups are what is
    counted; the same number in another class is another group.
    """
    if groups is not None:
        of_group, of_item = torch.unique(torch.stack([labels, groups]), dim=1, return_inverse=True)
        return hold_out(of_group[0], name=name, classes=classes, item="track")[of_item]
    generator = torch.Generator().manual_seed(0)
    held = torch.zeros(len(labels), dtype=torch.bool)
    for label in sorted(set(labels[labels >= 0].tolist())):
        rows = (labels == label).nonzero().flatten()
        if len(rows) < 2:
            which = f"{f'{name}: ' if name else ''}class {classes[label] if classes else label!r} has one {item}"
            raise NotApplicableError(f"{which}: a split into train and test needs at least two of each class")
        rows = rows[torch.randperm(len(rows), generator=generator)]
        held[rows[: min(max(round(0.2 * len(rows)), 1), len(rows) - 1)]] = True
    return held


@dataclass(frozen=True, eq=False, repr=False)
class Splits:
    """The parts of a data set: sets of items of one modality.

    Self-supervision sees ``pretrain``, whose labels may be −1 and are not to be trained on. ``train`` are labelled
    items for probes, and ``test``, disjoint from both, those to score on: they exist if it is ``labelled``. ``note``
    says where the items came from; ``further`` has (train, test) of the second official split, the third, ….
    """

    labelled: ClassVar[bool] = True

    name: str
    pretrain: Any
    train: Any
    test: Any
    note: str
    further: tuple[tuple[Any, Any], ...] = ()

    def __post_init__(self) -> None:
        for argument, part in (("train", self.train), ("test", self.test)):
            check(len(part) and part.labelled, argument, part, "at least one item, and a label for every item")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    @classmethod
    def of(cls, name: str, train: Any, test: Any, note: str) -> Splits:
        """A data set that is pre-trained on its training part, and probed on what has a label."""
        train, test = (
            part if part.name.startswith(f"{name}/") else replace(part, name=f"{name}/{split}")  # not a path
            for part, split in ((train, "train"), (test, "test"))
        )
        return cls(name, train, _labelled(train), _labelled(test), note)

    @classmethod
    def divided(cls, name: str, pool: Any, held: Tensor, note: str) -> Splits:
        """A data set whose test are the items of ``pool`` where ``held``, boolean ``[N]``, is true."""
        parts = (("train", ~held), ("test", held))
        train, test = (replace(pool.subset(torch.where(of)[0]), name=f"{name}/{part}") for part, of in parts)
        return cls.of(name, train, test, note)

    @classmethod
    def held_out(cls, name: str, pool: Any, note: str, groups: Tensor | None = None) -> Splits:
        """A stratified 80/20 split of ``pool``, see :func:`hold_out`."""
        return cls.divided(name, pool, hold_out(pool.labels, groups, name=name, classes=pool.classes), note)

    def folds(self) -> tuple[tuple[Any, Any], ...]:
        """(train, test) of every official split."""
        return (self.train, self.test), *self.further

    def limited(self, n_train: int | None, n_test: int | None, seed: int = 0) -> Splits:
        """The same splits with so many items in ``pretrain``, at most so many in ``train``, so many in ``test``."""
        pretrain, test = _cut("n_train", n_train, self.pretrain, seed), _cut("n_test", n_test, self.test, seed)
        shared, most = self.train is self.pretrain, len(self.train)
        train = pretrain if shared else self.train.take(min(n_train or most, most), seed)
        further = self.further if n_train is None else ()  # a subset is cut from the first official split alone
        return replace(self, pretrain=pretrain, train=train, test=test, further=further)

    def to(self, device: torch.device | str) -> Splits:
        """The same splits with resident parts on ``device``, each once; files stay files."""
        parts = {name: vars(self)[name] for name in ("pretrain", "train", "test") if name in vars(self)}
        moved = {id(part): part.to(device) for part in parts.values()}
        splits = copy(self)
        vars(splits).update({name: moved[id(part)] for name, part in parts.items()})
        return splits


def fingerprint(splits: Splits) -> str:
    """Hash of the items and labels of all parts of a data set."""
    parts = (splits.pretrain, splits.train, splits.test) if splits.labelled else (splits.pretrain,)
    further = (part for fold in getattr(splits, "further", ()) for part in fold)  # official splits after the first
    hashes = [getattr(part, "fingerprint", part.name) for part in (*parts, *further)]
    return hashlib.sha256("/".join(hashes).encode()).hexdigest()[:16]


def _labelled(part: Any) -> Any:
    return part if part.labelled else part.subset((part.labels >= 0).nonzero().flatten())


def _cut(argument: str, count: int | None, part: Any, seed: int) -> Any:
    check(count is None or count <= len(part), argument, count, f"at most the {len(part)} items of {part.name}")
    return part.take(count, seed)


class UnlabelledSplits(Splits):
    """Items without labels: they can be pre-trained on, and asking for ``train`` or ``test`` is refused."""

    labelled: ClassVar[bool] = False
    advice: ClassVar[str] = (
        "To give labels, sort the files into one subfolder a class, or name a column of a table"
        f" {', '.join(LABEL_COLUMNS)}; contrastlab.tables.Run(recipe, settings, data).train() needs none"
    )

    def __init__(self, name: str, pretrain: Any, note: str) -> None:
        if not len(pretrain):
            raise MissingDataError(f"{name}: there is no item in it.")
        vars(self).update(name=name, pretrain=pretrain, note=note)

    def __getattr__(self, part: str) -> Any:
        if part in ("train", "test"):
            lacks = f"{self.name!r} has no labels, so it has no {part!r} split and cannot be probed"
            raise NotApplicableError(f"{lacks}. {self.advice}.")
        raise AttributeError(part)

    def limited(self, n_train: int | None, n_test: int | None, seed: int = 0) -> Splits:
        """The same splits with so many items; ``n_test`` alone is refused."""
        if n_train is not None:
            return type(self)(self.name, _cut("n_train", n_train, self.pretrain, seed), self.note)
        return self if n_test is None else self.test


def aligned(part: Any, classes: tuple[str, ...], where: str) -> Any:
    """A part of a data set, its labels counted in ``classes``."""
    strange = sorted(set(part.classes) - set(classes))
    if strange:
        raise ArgumentError(f"{where} has classes that the training images lack: {', '.join(strange[:5])}")
    table = torch.tensor([classes.index(name) for name in part.classes] + [-1])
    return replace(part, labels=table[part.labels], classes=classes)


def split_own(name: str, pool: Any, test: Any, note: str) -> Splits:
    """Splits of a user's own set that may lack labels, or a test part; then a fifth of the set is the test.

    Of one class alone nothing is held out: there is nothing to tell apart, and all items are to be learnt from.
    """
    known = pool.labels[pool.labels >= 0]
    if not len(known):
        return UnlabelledSplits(name, pool, note)
    if test is not None:
        return Splits.of(name, pool, test, note)
    if len(known.unique()) == 1:
        only = pool.classes[int(known[0])]
        return UnlabelledSplits(name, pool, f"{note}; one class, {only!r}: taken as unlabelled, nothing is held out")
    splits = Splits.held_out(name, pool, f"{note}; stratified 80/20 split")
    return replace(splits, note=f"{splits.note}, {len(splits.test)} of {len(known)} held out")
