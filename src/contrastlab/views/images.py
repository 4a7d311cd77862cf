"""Views of one picture: augmented, split by colour, cut into patches, or equal but for the network's dropout."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from contrastlab.support import errors
from contrastlab.views import colour
from contrastlab.views.base import Augmentation, Views, random_views

GRID = 3
"""Cells of a jigsaw along a side."""

PUZZLE_SCALE = (0.6, 1.0)
"""Area of the crop that a jigsaw is cut from, as a fraction of the picture's."""


@dataclass(frozen=True)
class Augmented(Views):
    """``count`` independent views of an item, all seen by one encoder.

    One is enough where the other view is in a memory bank (IR, LA); two or more are compared with each other (SimCLR,
    MoCo) or averaged (JCL).
    """

    count: int = 1

    def __post_init__(self) -> None:
        errors.check_integer("count", self.count)

    def make(self, batch: Any, augmentation: Augmentation, rng: torch.Generator | None = None) -> tuple[Tensor, ...]:
        """``count`` random views of each item; images are uint8 ``[B, C, H, W]`` or crops ``[B, count, C, S, S]``."""
        return tuple(augmentation.normalise(view) for view in random_views(batch, augmentation, rng, self.count))

    def plain(self, batch: Any, augmentation: Augmentation) -> tuple[Tensor, ...]:
        return (augmentation.normalise(augmentation.plain(batch)),)

    @property
    def latex(self) -> str:
        if self.count == 1:
            return r"v = t(x),\quad t \sim \mathcal{T}"
        return rf"v_m = t_m(x),\quad t_1, \dots, t_{{{self.count}}} \overset{{\text{{iid}}}}{{\sim}} \mathcal{{T}}"


@dataclass(frozen=True)
class Dropout(Augmented):
    """One view of an item, embedded ``count`` times: its dropout masks are what differs (SimCSE, Gao et al. 2021).

    An encoder without dropout gives equal embeddings, and there is nothing to learn from the positives.
    """

    count: int = 2

    def make(self, batch: Any, augmentation: Augmentation, rng: torch.Generator | None = None) -> tuple[Tensor, ...]:
        return (augmentation.normalise(augmentation.random(batch, rng)),) * self.count

    @property
    def latex(self) -> str:
        return rf"v_1=\dots=v_{{{self.count}}}=x,\quad \text{{each with dropout masks of its own}}"


@dataclass(frozen=True)
class Split(Views):
    """One channel and the two others of one augmented image, each part seen by an encoder of its own (CMC, §4.1, §4.4).

    The float image is augmented in RGB and then converted (the released code rounds to 8 bits in between), and every
    channel is scaled to about [-1, 1] by its mid- and half-range.

    Attributes:
        space: a name in :data:`contrastlab.views.colour.SPACES`: ``"lab"`` gives L and ab, ``"ydbdr"`` Y and DbDr, …
        count: augmentations that are split: 1 compares the parts of one view; more give further keys.
        scaling: ``"range"``, or ``"released"``: by the means that the authors' later code has for YDbDr and YCbCr.
    """

    space: str = "lab"
    count: int = 1
    scaling: Literal["range", "released"] = "range"

    def __post_init__(self) -> None:
        errors.check_name("space", self.space, colour.SPACES)
        errors.check_integer("count", self.count)
        errors.check_choice("scaling", self.scaling, ("range", "released"))
        if self.scaling == "released" and self._space.released is None:
            raise errors.reject("scaling", self.scaling, f"'range' for {self.space!r}: no constants were released")

    @property
    def _space(self) -> colour.Space:
        return colour.SPACES[self.space]

    @property
    def streams(self) -> tuple[str, ...]:
        return self._space.streams

    pairs = ((0, 1), (1, 0))

    def channels(self, image_channels: int) -> tuple[int, ...]:
        """``(1, 2)``; grey images are refused."""
        if image_channels == 1:
            raise errors.NotApplicableError(
                f"Split({self.space!r}) needs colour: grey images (1 channel) have no chrominance to compare with. "
                "Use Augmented views, or a data set with 3 channels."
            )
        errors.check(image_channels == 3, "image_channels", image_channels, "3")
        return (1, 2)

    def parts(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """The two parts of RGB images ``[B, 3, H, W]`` in [0, 1]: ``[B, 1, H, W]`` and ``[B, 2, H, W]``."""
        self.channels(images.shape[-3])
        middle = self._space.middle
        half = self._space.half
        if self.scaling == "released" and self._space.released is not None:
            middle, half = self._space.released
        values = colour.standardise(self._space.convert(images), middle, half)
        return values[:, :1].contiguous(), values[:, 1:].contiguous()

    def make(self, batch: Any, augmentation: Augmentation, rng: torch.Generator | None = None) -> tuple[Tensor, ...]:
        """The first channel ``[B, 1, size, size]`` and the others ``[B, 2, size, size]`` of each random view.

        The augmentation's mean and std are not used.
        """
        parts: list[Tensor] = []
        for view in random_views(batch, augmentation, rng, self.count):
            parts += self.parts(view)
        return tuple(parts)

    def plain(self, batch: Any, augmentation: Augmentation) -> tuple[Tensor, ...]:
        return self.parts(augmentation.plain(batch))

    @property
    def latex(self) -> str:
        first, second = self._space.latex or self._space.streams
        formula = rf"(v_1, v_2) = ({first}, {second})(t(x)),\quad t \sim \mathcal{{T}}"
        if self.count == 1:
            return formula
        return rf"{formula}\ \text{{({self.count} times)}}"


@dataclass(frozen=True)
class Offset(Views):
    """Patches at (x, y) and (x + d, y + d) of a picture, both seen by one encoder (CMC, §4.4, Figure 5).

    (x, y) is uniform. The patches are as large as a view and are cut from the picture as it is: neither resized,
    flipped nor coloured. CMC does not say whether one encoder sees both; as both are patches of RGB, here it does.
    """

    distance: int = 64  #: d, along both axes; from the side of a patch on the two do not overlap (CMC: 64 … 384)

    count = 2
    streams = ("patch",)

    def __post_init__(self) -> None:
        errors.check_integer("distance", self.distance, 0)

    def single(self) -> Augmented:
        return Augmented(1)

    def window(self, size: int) -> int:
        """Side of the square that holds both patches of ``size`` pixels."""
        return size + self.distance

    def make(self, batch: Any, augmentation: Augmentation, rng: torch.Generator | None = None) -> tuple[Tensor, ...]:
        """The two patches ``[B, C, size, size]`` of each item, normalised; too small pictures are refused.

        A batch is uint8 ``[B, C, H, W]``, or ready windows ``[B, 1, C, side, side]``, see :meth:`window`.
        """
        size: int = augmentation.size  # type: ignore[attr-defined]
        images = batch
        if batch.dim() == 5:
            images = batch[:, 0]
        height, width = images.shape[2:]
        corners = torch.tensor((height, width)) - self.window(size) + 1  # how many there are along both axes
        if int(corners.min()) < 1:
            raise errors.NotApplicableError(
                f"{self!r} cuts two patches of {size} px from each picture, which needs {self.window(size)} px along"
                f" both sides; these have {height} by {width}"
            )
        corners = corners.to(images.device)
        draws = torch.rand(len(images), 2, generator=rng, device=images.device)
        first_corner = torch.minimum((draws * corners).long(), corners - 1)
        views = []
        for corner in (first_corner, first_corner + self.distance):
            patch = patches(images, corner[:, None], size)[:, 0]
            views.append(augmentation.normalise(patch.float() / 255))
        return tuple(views)

    def plain(self, batch: Any, augmentation: Augmentation) -> tuple[Tensor, ...]:
        return self.single().plain(batch, augmentation)

    @property
    def latex(self) -> str:
        d = self.distance
        return rf"(v_1, v_2) = \text{{patches of }}x\text{{ at }}(i, j)\text{{ and }}(i+{d}, j+{d})"


@dataclass(frozen=True)
class Jigsaw(Views):
    """Views, and beside them nine patches of the item in a random order, which ask a second time (PIRL).

    A further crop of the item, without changes of colour, is cut into 3x3 cells, and a random patch from each. The
    encoder sees the patches one by one; a head of its own turns their concatenation into one embedding, a second query
    against the keys of whole views of its own stream. The loss is ``(1 - weight) * L + weight * J``: L of the views, J
    of the patches. Sizes are those of the released code at 224 px (cells of 85, patches of 64), in proportion to the
    view.

    Sources: Misra and van der Maaten 2020; CMC, appendix D.4, and its authors' later code.

    Attributes:
        space: colour space of a :class:`Split` into two streams; ``None`` is one stream of RGB.
        count: views of each item beside the patches.
        weight: β of the patches, between 0 and 1.
        scaling: see :class:`Split`.
    """

    space: str | None = None
    count: int = 1
    weight: float = 0.5
    scaling: Literal["range", "released"] = "range"

    pieces = GRID * GRID
    further_scales = (PUZZLE_SCALE,)

    def __post_init__(self) -> None:
        _ = self._base  # refuses what it refuses
        if not (errors.is_number(self.weight) and 0 < self.weight < 1):
            raise errors.reject("weight", self.weight, "a number between 0 and 1")

    @property
    def _base(self) -> Augmented | Split:
        """The views without the patches."""
        if self.space is None:
            return Augmented(self.count)
        return Split(self.space, self.count, self.scaling)

    @property
    def streams(self) -> tuple[str, ...]:
        return self._base.streams

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        return self._base.pairs

    @property
    def query_weights(self) -> tuple[float, float]:
        return 1 - self.weight, self.weight

    def single(self) -> Views:
        return self._base.single()

    def channels(self, image_channels: int) -> tuple[int, ...]:
        return self._base.channels(image_channels)

    def make(self, batch: Any, augmentation: Augmentation, rng: torch.Generator | None = None) -> tuple[Tensor, ...]:
        """The views ``[B, C, size, size]``, and behind them the patches ``[B, 9, C, patch, patch]`` of each stream.

        A batch is as for :meth:`Augmented.make`; the patches are cut from the last of ready crops.
        """
        if not hasattr(augmentation, "puzzle"):
            raise errors.NotApplicableError("Jigsaw cuts images into patches; these items are none")
        is_cropped = isinstance(batch, Tensor) and batch.dim() == 5
        pictures_of_views = batch
        pictures_of_puzzles = batch
        if is_cropped:
            pictures_of_views = batch[:, :-1]
            pictures_of_puzzles = batch[:, -1]
        views = self._base.make(pictures_of_views, augmentation, rng)
        cell, patch = cell_and_patch(augmentation.size)  # type: ignore[attr-defined]
        puzzles = augmentation.puzzle(GRID * cell, whole=is_cropped).random(pictures_of_puzzles, rng)
        pieces = cut(puzzles, cell, patch, rng)
        return (*views, *self._pieces_of_streams(pieces, augmentation))

    def _pieces_of_streams(self, pieces: Tensor, augmentation: Augmentation) -> list[Tensor]:
        """Patches ``[B, 9, C, patch, patch]`` as the encoder of each stream sees them."""
        base = self._base
        one_by_one = pieces.flatten(0, 1)
        if isinstance(base, Augmented):
            streams: tuple[Tensor, ...] = (augmentation.normalise(one_by_one),)
        else:
            streams = base.parts(one_by_one)
        return [stream.unflatten(0, (len(pieces), self.pieces)) for stream in streams]

    def plain(self, batch: Any, augmentation: Augmentation) -> tuple[Tensor, ...]:
        return self._base.plain(batch, augmentation)

    @property
    def latex(self) -> str:
        return rf"{self._base.latex};\ \text{{9 shuffled patches ask, too, with weight }}{self.weight:g}"


def cell_and_patch(size: int) -> tuple[int, int]:
    """Sides in pixels of a cell of the puzzle and of the patch that is cut from it, for views of ``size`` pixels."""
    cell = round(85 * size / 224)
    patch = round(64 * size / 224)
    errors.check(patch >= 2, "size", size, "at least 6 pixels, so that a patch has two")
    return cell, patch


def cut(pictures: Tensor, cell: int, patch: int, rng: torch.Generator | None = None) -> Tensor:
    """A patch at a random place of each of 3x3 cells, the nine in a random order, drawn anew for each picture.

    ``cell`` and ``patch`` are sides in pixels; ``[B, C, 3 cell, 3 cell]`` becomes ``[B, 9, C, patch, patch]``.
    """
    count = len(pictures)
    device = pictures.device
    places = cell - patch + 1  # along a side of a cell
    # a draw each for the place within the cell, then one whose ranks are the order
    draws = torch.rand(count, GRID * GRID, 2, generator=rng, device=device)
    place = (draws * places).long().clamp_(max=places - 1)
    order = torch.rand(count, GRID * GRID, generator=rng, device=device).argsort(1)
    edge = torch.arange(GRID, device=device) * cell
    corner = torch.cartesian_prod(edge, edge) + place
    corner_in_order = corner.gather(1, order[..., None].expand(-1, -1, 2))
    return patches(pictures, corner_in_order, patch)


def patches(images: Tensor, corner: Tensor, size: int) -> Tensor:
    """Squares of ``size`` pixels at the corners ``[B, n, 2]`` (top, left) of images: ``[B, n, C, size, size]``."""
    line = torch.arange(size, device=images.device)
    rows = corner[..., :1] + line  # [B, n, size]
    columns = corner[..., 1:] + line
    item = torch.arange(len(images), device=images.device)[:, None, None, None]
    # indices around a slice put the channels last
    squares = images[item, :, rows[..., :, None], columns[..., None, :]]
    return squares.movedim(-1, 2).contiguous()
