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

from contrastlab.support.errors import ArgumentError, MissingDataError, NotApplicableError, check, is_integer, reject
from contrastlab.support.paths import check_inside

if TYPE_CHECKING:
    from contrastlab.pictures.loading import Crops

_MOST_COMPARED = 200_000  # items of a user's own set; more files would be too many to ask a file system about
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
        labels = self.labels
        count = len(getattr(self, self.by_item[0]))
        if labels.dtype != torch.int64 or labels.shape != (count,):
            actual = f"{labels.dtype} of shape {tuple(labels.shape)}"
            raise reject("labels", actual, f"int64 of shape ({count},)")
        if count:
            lowest = int(labels.min())
            highest = int(labels.max())
            accepted = f"-1 for unlabelled, else 0 to {len(self.classes) - 1}, the index into classes"
            check(lowest >= -1 and highest < len(self.classes), "labels", (lowest, highest), accepted)

    def _form(self) -> str:
        """How items are stored and read: the beginning of what is hashed."""
        raise NotImplementedError

    def _hashed(self) -> Iterator[str | Tensor]:
        """What the fingerprint depends on."""
        yield self._form()
        yield getattr(self, self.by_item[0])
        yield self.labels

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
                digest.update(_little_endian_bytes(part))
        return digest.hexdigest()[:16]

    def subset(self, indices: Tensor) -> Self:
        """The items at ``indices`` (int64 ``[n]``), in that order."""

        def select(column: Any) -> Any:
            if column is None:
                return None
            if isinstance(column, tuple):
                return tuple(column[k] for k in indices.tolist())
            return rows_at(column, indices.to(column.device))

        return self._changed(select)

    def _changed(self, change: Callable[[Any], Any]) -> Self:
        """The same set after a change of each of its columns, those by name included."""
        columns = {}
        for field in self.by_item:
            column = getattr(self, field)
            if isinstance(column, Mapping):
                columns[field] = {name: change(values) for name, values in column.items()}
            else:
                columns[field] = change(column)
        return replace(self, **columns)  # type: ignore[type-var]

    def take(self, n: int | None, seed: int = 0) -> Self:
        """At most ``n`` random items in their order, or all for None; see :func:`balanced_subset`."""
        if n is None or (is_integer(n) and n >= len(self)):
            return self
        return self.subset(balanced_subset(self.labels, n, seed))

    def to(self, device: torch.device | str) -> Self:
        """The same set with all its tensors on ``device``, if it is resident; files stay files."""
        if not self.resident:
            return self
        return self._changed(lambda column: column.to(device))


def rows_at(items: Tensor, indices: Tensor) -> Tensor:
    """``items.index_select(0, indices)``, of uint16 as well, which PyTorch selects on no GPU.

    Items of other domains, such as texts, are indexed like a tensor and are none.
    """
    if isinstance(items, Tensor) and items.dtype == torch.uint16:
        return items.view(torch.int16).index_select(0, indices).view(torch.uint16)
    return items.index_select(0, indices)


def _little_endian_bytes(tensor: Tensor) -> memoryview:
    array = tensor.cpu().contiguous().numpy()
    little_endian = array.dtype.newbyteorder("<")
    return array.astype(little_endian, copy=False).view(np.uint8).data


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
            actual = f"{self.items.dtype} of shape {tuple(self.items.shape)}"
            raise reject("items", actual, self.shape)
        super().__post_init__()
        accepted = f"one for each of {len(self)} items"
        for name, values in getattr(self, "factors", {}).items():
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
        check_inside("paths", self.paths)
        super().__post_init__()

    def _hashed(self) -> Iterator[str | Tensor]:
        yield self._form()
        for path, label in zip(self.paths, self.labels.tolist(), strict=True):
            size = os.stat(self.folder / path).st_size
            yield f"\0{path}\0{size}\0{label}"

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
    shuffled_labels = labels.cpu()[shuffled]
    if int(shuffled_labels.min()) >= 0:
        rank = _ranks_within_class(shuffled_labels)
        shuffled = shuffled[rank.argsort(stable=True)]
    return shuffled[:n].sort().values


def _ranks_within_class(labels: Tensor) -> Tensor:
    """How many items before each one have its label: taking items by rank fills the classes evenly."""
    by_class = labels.argsort(stable=True)
    counts = labels.bincount()
    starts = counts.cumsum(0) - counts
    rank = torch.empty_like(labels)
    rank[by_class] = torch.arange(len(labels)) - starts.repeat_interleave(counts)
    return rank


def hold_out(
    labels: Tensor,
    groups: Tensor | None = None,
    *,
    name: str = "",
    classes: Sequence[str] = (),
    item: str = "image",
) -> Tensor:
    """What is held out of a stratified 80/20 split, boolean ``[N]``, always the same for the same labels.

    Of each class a fifth is held out, rounded, but at least one item and never all; a class of one item is refused by
    a ``NotApplicableError``, in whose words ``name``, ``classes`` and ``item`` occur. Items with label −1 are not held
    out. The items of a group (int64 ``[N]``), such as the frames of one track, stay together, and groups are what is
    counted; the same number in another class is another group.
    """
    if groups is not None:
        labelled_groups, group_of_item = torch.unique(torch.stack([labels, groups]), dim=1, return_inverse=True)
        is_held_out_group = hold_out(labelled_groups[0], name=name, classes=classes, item="track")
        return is_held_out_group[group_of_item]
    generator = torch.Generator().manual_seed(0)
    is_held_out = torch.zeros(len(labels), dtype=torch.bool)
    for label in labels[labels >= 0].unique().tolist():
        rows = (labels == label).nonzero().flatten()
        if len(rows) < 2:
            class_name = classes[label] if classes else label
            raise _lone_item(name, class_name, item)
        shuffled = rows[torch.randperm(len(rows), generator=generator)]
        fifth = max(round(0.2 * len(rows)), 1)
        is_held_out[shuffled[: min(fifth, len(rows) - 1)]] = True
    return is_held_out


def _lone_item(name: str, label: str | int, item: str) -> NotApplicableError:
    """The error of a class that cannot be split."""
    problem = f"class {label!r} has one {item}"
    if name:
        problem = f"{name}: {problem}"
    return NotApplicableError(f"{problem}: a split into train and test needs at least two of each class")


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
        parts = [f"{name}={value!r}" for name, value in vars(self).items()]
        return f"{type(self).__name__}({', '.join(parts)})"

    @classmethod
    def of(cls, name: str, train: Any, test: Any, note: str) -> Splits:
        """A data set that is pre-trained on its training part, and probed on what has a label."""
        train = _named_for(train, name, "train")
        test = _named_for(test, name, "test")
        return cls(name, train, _labelled(train), _labelled(test), note)

    @classmethod
    def divided(cls, name: str, pool: Any, held: Tensor, note: str) -> Splits:
        """A data set whose test are the items of ``pool`` where ``held``, boolean ``[N]``, is true."""
        train = pool.subset(torch.where(~held)[0])
        test = pool.subset(torch.where(held)[0])
        return cls.of(name, replace(train, name=f"{name}/train"), replace(test, name=f"{name}/test"), note)

    @classmethod
    def held_out(cls, name: str, pool: Any, note: str, groups: Tensor | None = None) -> Splits:
        """A stratified 80/20 split of ``pool``, see :func:`hold_out`."""
        held = hold_out(pool.labels, groups, name=name, classes=pool.classes)
        return cls.divided(name, pool, held, note)

    def folds(self) -> tuple[tuple[Any, Any], ...]:
        """(train, test) of every official split."""
        return (self.train, self.test), *self.further

    def limited(self, n_train: int | None, n_test: int | None, seed: int = 0) -> Splits:
        """The same splits with so many items in ``pretrain``, at most so many in ``train``, so many in ``test``."""
        pretrain = _cut("n_train", n_train, self.pretrain, seed)
        test = _cut("n_test", n_test, self.test, seed)
        train = pretrain
        if self.train is not self.pretrain:
            train = self.train.take(n_train, seed)
        further = self.further
        if n_train is not None:
            further = ()  # a subset is cut from the first official split alone
        return replace(self, pretrain=pretrain, train=train, test=test, further=further)

    def to(self, device: torch.device | str) -> Splits:
        """The same splits with resident parts on ``device``, each once; files stay files."""
        moved: dict[int, Any] = {}
        splits = copy(self)
        for name in ("pretrain", "train", "test"):
            part = vars(self).get(name)
            if part is None:
                continue
            if id(part) not in moved:
                moved[id(part)] = part.to(device)
            vars(splits)[name] = moved[id(part)]
        return splits


def fingerprint(splits: Splits) -> str:
    """Hash of the items and labels of all parts of a data set."""
    parts = [splits.pretrain]
    if splits.labelled:
        parts += [splits.train, splits.test]
    for train, test in getattr(splits, "further", ()):
        parts += [train, test]
    hashes = [getattr(part, "fingerprint", part.name) for part in parts]
    return hashlib.sha256("/".join(hashes).encode()).hexdigest()[:16]


def _named_for(part: Any, name: str, split: str) -> Any:
    """A part whose name says data set and split; a path, as the name of a part, gives way."""
    if part.name.startswith(f"{name}/"):
        return part
    return replace(part, name=f"{name}/{split}")


def _labelled(part: Any) -> Any:
    """The items of a part that have a label."""
    if part.labelled:
        return part
    return part.subset((part.labels >= 0).nonzero().flatten())


def _cut(argument: str, count: int | None, part: Any, seed: int) -> Any:
    """``count`` random items of a part, or all; ``argument`` asked for them."""
    fits = count is None or count <= len(part)
    check(fits, argument, count, f"at most the {len(part)} items of {part.name}")
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
        if part not in ("train", "test"):
            raise AttributeError(part)
        reason = f"{self.name!r} has no labels, so it has no {part!r} split and cannot be probed"
        raise NotApplicableError(f"{reason}. {self.advice}.")

    def limited(self, n_train: int | None, n_test: int | None, seed: int = 0) -> Splits:
        """The same splits with so many items; ``n_test`` alone is refused."""
        if n_train is not None:
            pretrain = _cut("n_train", n_train, self.pretrain, seed)
            return type(self)(self.name, pretrain, self.note)
        if n_test is not None:
            return self.test  # raises, as there is none
        return self


def aligned(part: Any, classes: tuple[str, ...], where: str) -> Any:
    """A part of a data set, its labels counted in ``classes``."""
    strange = sorted(set(part.classes) - set(classes))
    if strange:
        raise ArgumentError(f"{where} has classes that the training images lack: {', '.join(strange[:5])}")
    new_labels = [classes.index(name) for name in part.classes]
    table = torch.tensor([*new_labels, -1])  # the last one is that of label -1
    return replace(part, labels=table[part.labels], classes=classes)


def split_own(name: str, pool: Any, test: Any, note: str) -> Splits:
    """Splits of a user's own set that may lack labels, or a test part; then a fifth of the set is the test.

    Of one class alone nothing is held out: there is nothing to tell apart, and all items are to be learnt from.
    The note counts test items that are among the training items, too.
    """
    labels = pool.labels[pool.labels >= 0]
    if len(labels) == 0:
        return UnlabelledSplits(name, pool, note)
    if test is not None:
        return _with_doubles_counted(Splits.of(name, pool, test, note))
    if len(labels.unique()) == 1:
        only = pool.classes[int(labels[0])]
        note = f"{note}; one class, {only!r}: taken as unlabelled, nothing is held out"
        return UnlabelledSplits(name, pool, note)
    note = f"{note}; stratified 80/20 split"
    splits = Splits.held_out(name, pool, note)
    note = f"{note}, {len(splits.test)} of {len(labels)} held out"
    return _with_doubles_counted(replace(splits, note=note))


def _with_doubles_counted(splits: Splits) -> Splits:
    """A user's own splits; the note counts what is in training and test: equal items in memory, or one file."""
    if len(splits.pretrain) + len(splits.test) > _MOST_COMPARED:
        return splits
    trained_on = set(_identities(splits.pretrain))
    doubles = sum(identity in trained_on for identity in _identities(splits.test))
    if not doubles:
        return splits
    note = f"{splits.note}; {doubles} of {len(splits.test)} test items are also in training"
    return replace(splits, note=note)


def _identities(part: Any) -> Iterator[object]:
    """What is equal for equal items: the place of a file, the content of an item in memory."""
    if isinstance(part, Files):
        for index in range(len(part)):
            status = part.path(index).stat()
            yield status.st_dev, status.st_ino
    else:
        for item in part.items:
            yield hash(item.numpy().tobytes())
