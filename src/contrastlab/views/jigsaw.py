"""A second picture of every query, as shuffled patches (PIRL)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from contrastlab import errors
from contrastlab.views.augmented import Augmented
from contrastlab.views.base import Augmentation, Views
from contrastlab.views.split import Split

GRID = 3
"""Cells of the puzzle along a side."""

PUZZLE_SCALE = (0.6, 1.0)
"""Area of the crop that a puzzle is cut from, as a fraction of the picture's."""


@dataclass(frozen=True)
class Jigsaw(Views):
    """Views, and beside them nine patches of the item in a random order, which ask a second time (PIRL).

    A further crop of the item, without changes of colour, is cut into 3x3 cells; a patch is cut at random from each.
    The encoder sees the patches one by one, and a head of its own turns their concatenation into one embedding, a
    second query against the keys of whole views. The loss is ``(1 - weight) * L + weight * J``: L of the views, J of
    the patches. Sizes are those of the released code at 224 px (cells of 85, patches of 64), in proportion to the view.

    Sources: Misra and van der Maaten 2020; CMC, appendix D.4, and its authors' later code.

    Attributes:
        space: colour space of a :class:`Split` into two streams; ``None`` is one stream of RGB.
        count: views of each item beside the patches.
        weight: β of the patches, between 0 and 1.
        against: which keys the patches of a stream are told apart from: those of their ``"own"`` stream, as the
            released code has it, or those of the ``"other"`` one, as its argument names say. With one stream they are
            the same.
        scaling: see :class:`Split`.

    Raises:
        UnknownNameError: for another space.
        ArgumentError: naming another field outside its range.
    """

    space: str | None = None
    count: int = 1
    weight: float = 0.5
    against: Literal["own", "other"] = "own"
    scaling: Literal["range", "released"] = "range"

    def __post_init__(self) -> None:
        _ = self._base
        if not (errors.is_number(self.weight) and 0 < self.weight < 1):
            raise errors.reject("weight", self.weight, "a number between 0 and 1")
        if self.against not in ("own", "other"):
            raise errors.reject("against", self.against, "'own' or 'other'")

    @property
    def _base(self) -> Augmented | Split:
        return Augmented(self.count) if self.space is None else Split(self.space, self.count, self.scaling)

    @property
    def streams(self) -> tuple[str, ...]:
        """Names of the encoders."""
        return self._base.streams

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Those of the views."""
        return self._base.pairs

    @property
    def query_weights(self) -> tuple[float, float]:
        """What the loss of the views and that of the patches are multiplied with."""
        return 1 - self.weight, self.weight

    @property
    def pieces(self) -> int:
        """Patches that the encoders' second head reads."""
        return GRID * GRID

    @property
    def further_scales(self) -> tuple[tuple[float, float], ...]:
        """Area of the further crop, as a fraction of the picture's."""
        return (PUZZLE_SCALE,)

    def key_stream(self, query: int, key: int) -> int:
        """The stream whose patches are told apart from the keys of stream ``key``, where ``query`` has that pair."""
        return key if self.against == "own" else query

    def single(self) -> Augmented | Split:
        """One view of each item, without patches, as probes see it."""
        return self._base.single()

    def channels(self, image_channels: int) -> tuple[int, ...]:
        """Input channels of each stream's encoder; see :meth:`Split.channels`."""
        return self._base.channels(image_channels)

    def make(self, batch: Any, augmentation: Augmentation, rng: torch.Generator | None = None) -> tuple[Tensor, ...]:
        """The views, and behind them the patches of each stream.

        Args:
            batch: images as for :meth:`Augmented.make`; ready crops have one more, which the patches are cut from.
            augmentation: of images.
            rng: source of the draws, on the images' device.

        Returns:
            Views ``[B, C, size, size]`` and patches ``[B, 9, C, patch, patch]``.

        Raises:
            NotApplicableError: the augmentation is not one of images.
            ArgumentError: the batch does not fit the augmentation.
        """
        if not hasattr(augmentation, "puzzle"):
            raise errors.NotApplicableError("Jigsaw cuts images into patches; these items are none")
        cropped = isinstance(batch, Tensor) and batch.dim() == 5
        whole, picture = (batch[:, :-1], batch[:, -1]) if cropped else (batch, batch)
        views = self._base.make(whole, augmentation, rng)
        size = augmentation.size  # type: ignore[attr-defined]
        cell, patch = cell_and_patch(size)
        puzzle = augmentation.puzzle(GRID * cell, whole=cropped).random(picture, rng)
        patches = cut(puzzle, cell, patch, rng)
        count = len(patches)
        parts = self._parts(patches.flatten(0, 1), augmentation)
        return (*views, *(part.unflatten(0, (count, GRID * GRID)) for part in parts))

    def _parts(self, pictures: Tensor, augmentation: Augmentation) -> tuple[Tensor, ...]:
        base = self._base
        return (augmentation.normalise(pictures),) if isinstance(base, Augmented) else base.parts(pictures)

    def plain(self, batch: Any, augmentation: Augmentation) -> tuple[Tensor, ...]:
        """The evaluation's view of each item, without patches and without randomness."""
        return self._base.plain(batch, augmentation)

    @property
    def latex(self) -> str:
        """The part as a formula."""
        return rf"{self._base.latex};\ \text{{9 shuffled patches ask, too, with weight }}{self.weight:g}"


def cell_and_patch(size: int) -> tuple[int, int]:
    """Sides in pixels of a cell of the puzzle and of the patch that is cut from it, for views of ``size`` pixels.

    Raises:
        ArgumentError: so small a view that nothing is left of a patch.
    """
    cell, patch = round(85 * size / 224), round(64 * size / 224)
    if patch < 2:
        raise errors.reject("size", size, "at least 6 pixels, so that a patch has two")
    return cell, patch


def cut(pictures: Tensor, cell: int, patch: int, rng: torch.Generator | None = None) -> Tensor:
    """A patch at a random place of each of 3x3 cells, the nine in a random order, drawn anew for each picture.

    Args:
        pictures: ``[B, C, 3 cell, 3 cell]``.
        cell: side of a cell in pixels.
        patch: side of a patch, at most ``cell``.
        rng: source of the draws, on the device of the pictures.

    Returns:
        ``[B, 9, C, patch, patch]``.

    Raises:
        ArgumentError: pictures of another size, or patches larger than a cell.
    """
    if pictures.dim() != 4 or pictures.shape[2:] != (GRID * cell, GRID * cell):
        raise errors.reject("pictures.shape", tuple(pictures.shape), f"[B, C, {GRID * cell}, {GRID * cell}]")
    if not 1 <= patch <= cell:
        raise errors.reject("patch", patch, f"1 to {cell} pixels, a cell")
    count, channels, device = len(pictures), pictures.shape[1], pictures.device
    room = cell - patch + 1
    # a draw each for the place within the cell, then one whose ranks are the order
    place = (torch.rand(count, GRID * GRID, 2, generator=rng, device=device) * room).long().clamp_(max=room - 1)
    order = torch.rand(count, GRID * GRID, generator=rng, device=device).argsort(1)
    edge = torch.arange(GRID, device=device) * cell
    corner = torch.cartesian_prod(edge, edge)
    start = (corner + place).gather(1, order[..., None].expand(-1, -1, 2))
    line = torch.arange(patch, device=device)
    rows, columns = start[..., :1] + line, start[..., 1:] + line  # [B, 9, patch]
    item = torch.arange(count, device=device)[:, None, None, None]
    # indices around a slice put the channels last
    picked = pictures[item, :, rows[..., :, None], columns[..., None, :]]
    return picked.movedim(-1, 2).reshape(count, GRID * GRID, channels, patch, patch).contiguous()
