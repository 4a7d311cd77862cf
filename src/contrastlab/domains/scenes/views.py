"""Views that are channels of one scene: luminance, chrominance, depth, surface normals, class labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import permutations
from types import MappingProxyType
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from contrastlab.scores import choices
from contrastlab.support import errors
from contrastlab.views import colour
from contrastlab.views.base import Augmentation, Views, random_views

LAYOUT: Mapping[str, int] = MappingProxyType({"rgb": 3, "label": 1, "depth": 1, "normal": 3, "flow": 2})
"""The parts of a pixel of a scene, in this order, and how many numbers each has.

``rgb`` in [0, 1]; ``label`` a class from 0, -1 for void; ``depth`` along the camera's axis in metres; ``normal`` a unit
vector in the camera's axes (right, down, forward); ``flow`` to the next frame in pixels (right, down). Depth and
normals are NaN where they are missing. A set has the first of these.
"""

CODE = 16
"""Numbers that a class is predicted as."""

_NEAR = 0.7  # metres, the range of the sensor
_FAR = 10.0
_GOLDEN = (math.sqrt(5) - 1) / 2


def slices(packed: int) -> dict[str, slice]:
    """Where each part of a scene of ``packed`` numbers a pixel lies; no other number of first parts is accepted."""
    parts: dict[str, slice] = {}
    end = 0
    for name, size in LAYOUT.items():
        if end < packed:
            parts[name] = slice(end, end + size)
            end += size
    errors.check(
        packed > 0 and end == packed, "channels", packed, f"the size of the first parts of {', '.join(LAYOUT)}"
    )
    return parts


def labels(packed: Tensor) -> Tensor:
    """Classes of the pixels of packed scenes ``[B, C, H, W]``: int64 ``[B, H, W]``, -1 for void."""
    where = slices(packed.shape[1])
    if "label" not in where:
        raise errors.NotApplicableError("these pictures have no classes of pixels")
    part = packed[:, where["label"]]
    return part[:, 0].round().long()


def _lab(part: Tensor) -> Tensor:
    space = colour.SPACES["lab"]
    return colour.standardise(space.convert(part), space.middle, space.half)


def _depth(part: Tensor) -> Tensor:
    # its logarithm, so that the range of the sensor, 0.7 to 10 m, fills [-1, 1]
    middle = (math.log(_FAR) + math.log(_NEAR)) / 2
    half = (math.log(_FAR) - math.log(_NEAR)) / 2
    return (part.clamp(min=1e-3).log() - middle) / half


def _label(part: Tensor) -> Tensor:
    # multiples of the golden ratio keep classes apart on one number, however many there are; void is -1
    return 2 * ((part + 1) * _GOLDEN).frac() - 1


@cache
def _codes() -> Tensor:
    """A unit vector for each class, ``[2048, CODE]``, the same for ever, and a last row of NaN for void.

    A squared error between numbers would call classes alike that happen to be neighbours. Up to CODE classes the
    vectors are orthogonal, and the error is the Brier score.
    """
    vectors = torch.randn(2048, CODE, generator=torch.Generator().manual_seed(0))
    orthogonal, _ = torch.linalg.qr(vectors[:CODE])
    vectors[:CODE] = orthogonal
    void = torch.full((1, CODE), math.nan)
    return torch.cat([F.normalize(vectors, dim=1), void])


def _code(part: Tensor) -> Tensor:
    codes = _codes().to(part.device, non_blocking=True)
    classes = part[:, 0].round().long()  # -1, void, is the last row
    return codes[classes].movedim(3, 1)


@dataclass(frozen=True)
class Channel:
    """A view that is channels of a scene."""

    part: str  #: of :data:`LAYOUT`, from which it is read
    size: int  #: input channels of its encoder (CMC, Table 12)
    read: Callable[[Tensor], Tensor]


CHANNELS: Mapping[str, Channel] = MappingProxyType(
    {
        "L": Channel("rgb", 1, lambda part: _lab(part)[:, :1]),
        "ab": Channel("rgb", 2, lambda part: _lab(part)[:, 1:]),
        "depth": Channel("depth", 1, _depth),
        "normal": Channel("normal", 3, lambda part: part),
        "label": Channel("label", 1, _label),
    }
)
"""Name of a view to its channels."""


@dataclass(frozen=True)
class Channels(Views):
    """Channels of one crop of a scene, each seen by an encoder of its own (CMC, sections 3.3 and 4.3).

    Crop and flip are the same for all channels. L and ab are computed from RGB as in :class:`Split`, depth is the
    scaled logarithm of metres, and a class is one number in [-1, 1], since Table 12 gives the segmentation map one
    channel. What is missing is 0.

    Attributes:
        names: of the views, the core view first. One name alone is a view against itself, which needs keys that compare
            different layers (DIM).
        graph: ``"core"``: the first against each other one, and back (Eq. 7); ``"full"``: each against each (Eq. 8).
        targets: channels that no encoder sees and that are predicted (section 3.1); a class then is a unit vector of
            :data:`CODE` numbers.
    """

    names: tuple[str, ...] = ("L", "ab")
    graph: Literal["core", "full"] = "core"
    targets: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for field in ("names", "targets"):
            names = getattr(self, field)
            errors.check(isinstance(names, list | tuple), field, names, "a tuple of names, such as ('L', 'ab')")
            object.__setattr__(self, field, tuple(names))
        errors.check(self.names, "names", self.names, f"at least one of {', '.join(CHANNELS)}")
        every = (*self.names, *self.targets)
        for name in every:
            errors.check_name("channel", name, CHANNELS)
        errors.check(len(set(every)) == len(every), "names", every, "different channels")
        errors.check_choice("graph", self.graph, ("core", "full"))

    @property
    def offers(self) -> frozenset[str]:
        if self.targets:
            return frozenset({choices.TARGETS})
        return frozenset()

    @property
    def streams(self) -> tuple[str, ...]:
        return self.names

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Ordered (query, key): both directions of every edge of the graph; a single view against itself."""
        if len(self.names) == 1:
            return ((0, 0),)
        every = tuple(permutations(range(len(self.names)), 2))
        if self.graph == "full":
            return every
        return tuple(pair for pair in every if 0 in pair)

    @property
    def target_channels(self) -> tuple[int, ...]:
        """Numbers of a pixel of each target."""
        sizes = {name: channel.size for name, channel in CHANNELS.items()}
        sizes["label"] = CODE
        return tuple(sizes[name] for name in self.targets)

    def single(self) -> Channels:
        return Channels(self.names, self.graph)

    def channels(self, image_channels: int) -> tuple[int, ...]:
        """Input channels of each stream's encoder, for items of so many numbers a pixel, see :data:`LAYOUT`."""
        if image_channels == 1:
            raise errors.NotApplicableError(f"{self!r} needs scenes or colour pictures; grey pictures have one channel")
        available = slices(image_channels)
        for name in (*self.names, *self.targets):
            if CHANNELS[name].part not in available:
                parts = ", ".join(available)
                raise errors.NotApplicableError(f"{self!r} needs the channel {name!r}; these items have {parts}")
        return tuple(CHANNELS[name].size for name in self.names)

    def read(self, packed: Tensor) -> tuple[Tensor, ...]:
        """The views and then the targets of crops ``[B, C, H, W]``, packed as :data:`LAYOUT` has it, RGB in [0, 1].

        What is missing is 0 in a view and NaN in a target.
        """
        self.channels(packed.shape[1])
        where = slices(packed.shape[1])
        tensors = []
        for name in self.names:
            channel = CHANNELS[name]
            view = channel.read(packed[:, where[channel.part]])
            tensors.append(view.nan_to_num(0.0))
        for name in self.targets:
            channel = CHANNELS[name]
            read = _code if name == "label" else channel.read
            tensors.append(read(packed[:, where[channel.part]]))
        return tuple(tensor.contiguous() for tensor in tensors)

    def make(self, batch: Any, augmentation: Augmentation, rng: torch.Generator | None = None) -> tuple[Tensor, ...]:
        """One tensor ``[B, c, size, size]`` for each view, then for each target, of one random crop."""
        (crop,) = random_views(batch, augmentation, rng, 1)
        return self.read(crop)

    def plain(self, batch: Any, augmentation: Augmentation) -> tuple[Tensor, ...]:
        return self.single().read(augmentation.plain(batch))

    @property
    def latex(self) -> str:
        names = _latex_names(self.names)
        if self.targets:
            return rf"{names}\text{{ predicts }}{_latex_names(self.targets)}\text{{ of }}t(x),\quad t\sim\mathcal T"
        if len(self.names) == 1:
            pairs = "i=j=1"
        elif self.graph == "full":
            pairs = "i\\ne j"
        else:
            pairs = rf"i=1\text{{ or }}j=1\text{{ of }}{len(self.names)}"
        return rf"(v_1,\dots)=({names})(t(x)),\quad t\sim\mathcal T;\quad \sum_{{i,j}}\mathcal L(v_i,v_j),\ {pairs}"


def _latex_names(names: tuple[str, ...]) -> str:
    words = []
    for name in names:
        if len(name) < 3:  # a symbol, such as L or ab
            words.append(name)
        else:
            words.append(rf"\text{{{name}}}")
    return ",".join(words)
