"""Distributions over views of images, as data; the published ones by name; and their application to whole batches.

Every image of a batch has its own draws, on the batch's device; :mod:`contrastlab.pictures.operations` applies them.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from contrastlab.pictures import operations
from contrastlab.support import errors, host
from contrastlab.views.colour import check_images, standardise
from contrastlab.views.images import PUZZLE_SCALE

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

_ATTEMPTS = 10  # crops tried before the central one is taken, as in torchvision
_CHUNK = 1 << 18  # output values processed together on a CPU: their float32 stay in the second-level cache


@dataclass(frozen=True)
class ViewDraws:
    """The parameters of one view of each of ``B`` images."""

    boxes: Tensor  #: int64 [B, 4] of (top, left, height, width) in pixels
    flip: Tensor  #: boolean [B]
    factors: Tensor  #: [B, 4] of (brightness, contrast, saturation, hue); (1, 1, 1, 0) changes nothing
    order: Tensor  #: [B, 4], a permutation of 0..3 a row: order[b, k] is the operation applied k-th
    grayscale: Tensor  #: boolean [B]
    sigma: Tensor  #: [B], standard deviation of the blur, 0 for none
    operations: Tensor  #: [B, n, 3], see image_operations.sample_operations

    def __getitem__(self, part: slice | Tensor) -> ViewDraws:
        return ViewDraws(*(getattr(self, field)[part] for field in self.__dataclass_fields__))


@dataclass(frozen=True)
class Augmentation:
    """A distribution over views of an image: random resized crop and flip, then colours, blur, RandAugment."""

    name: str  #: how results refer to it
    size: int  #: side of a view in pixels
    scale: tuple[float, float] = (0.2, 1.0)  #: area of the crop as a fraction of the image's
    ratio: tuple[float, float] = (3 / 4, 4 / 3)  #: width / height of the crop, uniform in its logarithm
    flip: float = 0.5  #: probability of a left-right flip
    #: strengths (brightness, contrast, saturation, hue); a strength s draws a factor from [max(0, 1 - s), 1 + s], and
    #: for hue a shift from [-s, s] of the circle (s <= 0.5)
    jitter: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    jitter_p: float = 1.0  #: probability that an image is jittered at all
    grayscale: float = 0.0  #: probability of dropping the colour
    grayscale_first: bool = False  #: drop the colour before the jitter (MoCo v1, instance discrimination) or after it
    blur: float = 0.0  #: probability of a Gaussian blur
    blur_sigma: tuple[float, float] = (0.1, 2.0)  #: range of its standard deviation in pixels of the view
    #: its odd number of taps. None takes ``2 ceil(3 sigma_max) + 1``, the whole bell, as Pillow's blur (MoCo v2) has no
    #: kernel that cuts it; SimCLR cuts at a tenth of the image's side
    blur_kernel: int | None = None
    randaugment: int = 0  #: operations of RandAugment on each image; 0 for none
    mean: tuple[float, ...] = IMAGENET_MEAN  #: that ``normalise`` subtracts, one value or one per channel
    std: tuple[float, ...] = IMAGENET_STD  #: that ``normalise`` divides by, one value or one per channel
    #: at test time the shorter side is resized to this before the central ``size`` pixels are kept; None keeps its size
    resize: int | None = None

    def __post_init__(self) -> None:
        check, mean, std = errors.check, self.mean, self.std  # a check may rely on those before it
        check(errors.is_integer(self.size), "size", self.size, "an integer >= 1")
        for field, most in (("scale", 1.0), ("ratio", math.inf), ("blur_sigma", math.inf)):
            low, *rest = given = getattr(self, field)
            accepted = f"(low, high) with 0 < low <= high <= {most:g}"
            check(len(rest) == 1 and 0 < low <= rest[0] <= most, field, given, accepted)
        for field in ("flip", "jitter_p", "grayscale", "blur"):
            check(0 <= getattr(self, field) <= 1, field, getattr(self, field), "a probability in [0, 1]")
        strengths = len(self.jitter) == 4 and all(0 <= s < math.inf for s in self.jitter) and self.jitter[3] <= 0.5
        check(strengths, "jitter", self.jitter, "four strengths >= 0, the last (hue) <= 0.5")
        taps, accepted = self.kernel, f"None or an odd number with blur_kernel // 2 < size={self.size}"
        check(taps % 2 == 1 and 0 <= taps // 2 < self.size, "blur_kernel", self.blur_kernel, accepted)
        check(self.randaugment >= 0, "randaugment", self.randaugment, "a number of operations >= 0")
        check(len(mean) in (1, 3), "mean", mean, "one value or three")
        deviations = len(std) == len(mean) and all(s > 0 for s in std)
        check(deviations, "std", std, f"{len(mean)} values > 0, as many as mean has")
        resize, accepted = self.resize, f"None or an integer >= size={self.size}"
        check(resize is None or resize >= self.size, "resize", resize, accepted)

    @property
    def kernel(self) -> int:
        """Taps of the blur actually used; reflection at the border limits it to ``2 size - 1``."""
        if self.blur_kernel is not None:
            return self.blur_kernel
        return 2 * min(math.ceil(3 * self.blur_sigma[1]), self.size - 1) + 1

    def random(self, images: Tensor, rng: torch.Generator | None = None, *, view: int = 0) -> Tensor:
        """One random view of each image, drawn independently: float32 ``[B, C, size, size]`` in [0, 1].

        Images are uint8 ``[B, C, H, W]``, ``C`` 1 or 3; or random resized crops made where the pictures were decoded,
        ``[B, V, C, size, size]``, of which number ``view`` is flipped, coloured and blurred only.
        """
        cropped = images.dim() == 5
        pictures = images[:, view] if cropped else images
        check_images(pictures, floating=False)
        count, _, height, width = pictures.shape
        return apply(pictures, self, self.sample(count, height, width, rng, images.device), cropped=cropped)

    def sample(
        self, count: int, height: int, width: int, rng: torch.Generator | None = None,
        device: torch.device | str | None = None,
    ) -> ViewDraws:  # fmt: skip
        """All random parameters of one view of each of ``count`` images of ``height`` by ``width`` pixels.

        The same numbers are consumed whatever the augmentation, so two of them with one seed crop alike; RandAugment
        alone draws more, and after all others. ``device`` is where to draw, by default the CPU.
        """
        boxes = sample_boxes(count, height, width, scale=self.scale, ratio=self.ratio, generator=rng, device=device)
        unit = torch.rand(count, 9, generator=rng, device=device)  # four factors, four ranks, whether at all
        idle, factors = (1.0, 1.0, 1.0, 0.0), []
        for k, strength in enumerate(self.jitter):
            low = max(0.0, 1.0 - strength) if k != operations.HUE else -strength
            factors.append(_uniform(low, idle[k] + strength, unit[:, k]).where(unit[:, 8] < self.jitter_p, idle[k]))
        flip, grey, blur, sigma = torch.rand(4, count, generator=rng, device=device)
        sigma = _uniform(*self.blur_sigma, sigma).where(blur < self.blur, 0.0)
        steps = boxes.new_zeros(count, 0, 3, dtype=torch.float32)
        if self.randaugment:
            steps = operations.sample_operations(count, self.randaugment, generator=rng, device=device)
        return ViewDraws(
            boxes, flip < self.flip, torch.stack(factors, dim=1), unit[:, 4:8].argsort(1), grey < self.grayscale,
            sigma, steps,
        )  # fmt: skip

    def plain(self, images: Tensor) -> Tensor:
        """The test-time view of uint8 ``[B, C, H, W]``, float32 ``[B, C, size, size]`` in [0, 1], see ``resize``."""
        check_images(images, floating=False)
        return operations.resize_center(images, self.resize, self.size).mul_(1 / 255).clamp_(0, 1)

    def puzzle(self, side: int, *, whole: bool = False) -> Augmentation:
        """What a jigsaw of ``side`` pixels is cut from: another crop, or the ``whole`` image if it is one already."""
        scale, ratio = ((1.0, 1.0), (1.0, 1.0)) if whole else (PUZZLE_SCALE, self.ratio)
        return Augmentation(self.name, side, scale, ratio, self.flip, mean=self.mean, std=self.std)

    def normalise(self, images: Tensor) -> Tensor:
        """Floating images ``[B, C, H, W]`` less the mean, divided by the deviation; grey ones use averages of three."""
        check_images(images, floating=True)
        mean, std = self.mean, self.std
        if images.shape[1] == 1 and len(mean) == 3:
            mean, std = (sum(mean) / 3,), (sum(std) / 3,)
        return standardise(images, mean, std)


# Drawing and applying -------------------------------------------------------------------------------------------------


def _uniform(low: float, high: float, unit: Tensor) -> Tensor:
    """Numbers of [0, 1) moved to [low, high)."""
    return unit * (high - low) + low


def sample_boxes(
    count: int,
    height: int,
    width: int,
    *,
    scale: tuple[float, float],
    ratio: tuple[float, float],
    generator: torch.Generator | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    """Boxes of a random resized crop as torchvision draws them, int64 ``[count, 4]`` of (top, left, height, width).

    Area uniform in ``scale`` times the image's, aspect ratio log-uniform in ``ratio``, position uniform; the first of
    ten attempts that fits is taken, else the largest central box whose aspect ratio is allowed. All attempts are drawn
    at once, so the number of draws does not depend on luck.
    """
    unit = torch.rand(count, 2 * _ATTEMPTS + 2, generator=generator, device=device)
    area = _uniform(scale[0], scale[1], unit[:, :_ATTEMPTS]) * (height * width)
    aspect = _uniform(math.log(ratio[0]), math.log(ratio[1]), unit[:, _ATTEMPTS : 2 * _ATTEMPTS]).exp_()
    heights = (area / aspect).sqrt_().round_()
    widths = (area * aspect).sqrt_().round_()
    fits = (heights > 0) & (heights <= height) & (widths > 0) & (widths <= width)

    any_fits = fits.any(1)
    first = fits.to(torch.uint8).argmax(1, keepdim=True)
    central_height = float(min(height, round(width / ratio[0])))
    central_width = float(min(width, round(height * ratio[1])))
    box_height = heights.gather(1, first)[:, 0].where(any_fits, central_height)
    box_width = widths.gather(1, first)[:, 0].where(any_fits, central_width)

    room = torch.stack((height - box_height, width - box_width))
    uniform = torch.minimum((unit[:, -2:].T * (room + 1)).floor_(), room)
    top, left = uniform.where(any_fits, (room / 2).floor_())
    return torch.stack((top, left, box_height, box_width), dim=1).long()


def apply(images: Tensor, a: Augmentation, draws: ViewDraws, *, cropped: bool = False) -> Tensor:
    """The view of each image ``[B, C, H, W]``, or crop ``[B, C, size, size]`` if ``cropped``, for draws from ``a``."""
    check_images(images, floating=False)
    fit = not cropped or images.shape[2:] == (a.size, a.size)
    errors.check(fit, "images.shape", tuple(images.shape), f"crops of {a.size} by {a.size} pixels")
    if not host.holds(images.device):
        return _apply(images, a, draws, cropped)
    # on a CPU: chunks that stay in the cache, of images whose hue rotation has the same place in their order, since a
    # chunk skips the passes that none of its images needs
    count, channels = images.shape[:2]
    step = max(1, _CHUNK // (channels * a.size * a.size))
    rows = (draws.order == operations.HUE).to(torch.uint8).argmax(1).argsort() if count else draws.boxes[:, 0]
    result = images.new_empty(count, channels, a.size, a.size, dtype=torch.float32)
    for start in range(0, count, step):
        part = rows[start : start + step]
        # index_copy_ moves whole images; assigning to result[part] would move single values
        result.index_copy_(0, part, _apply(images.index_select(0, part), a, draws[part], cropped))
    return result


def _apply(images: Tensor, a: Augmentation, draws: ViewDraws, cropped: bool) -> Tensor:
    if cropped:
        views = torch.where(draws.flip[:, None, None, None], images.flip(-1), images) / 255
    else:
        views = operations.crop_resize(images, draws.boxes, a.size, draws.flip).mul_(1 / 255)
    greyed = a.grayscale > 0 and images.shape[1] == 3
    if greyed and a.grayscale_first:
        views = operations.grayscale(views, draws.grayscale)
    if any(a.jitter):
        views = operations.jitter_(views, draws.factors, draws.order, hue=a.jitter[operations.HUE] > 0)
    if greyed and not a.grayscale_first:
        views = operations.grayscale(views, draws.grayscale)
    if a.blur > 0 and not host.holds(views.device):
        views = operations.gaussian_blur(views, draws.sigma, a.kernel)
    elif a.blur > 0 and len(chosen := draws.sigma.nonzero()[:, 0]):
        blurred = operations.gaussian_blur(views.index_select(0, chosen), draws.sigma[chosen], a.kernel)
        views.index_copy_(0, chosen, blurred)
    if a.randaugment:
        views = operations.randaugment(views.clamp_(0, 1), draws.operations)
    return views.clamp_(0, 1)  # rounding of the resampling may leave [0, 1] by 1e-7


# The published augmentations ------------------------------------------------------------------------------------------

Fields = Mapping[str, Any]


def _simclr(size: int) -> Fields:
    """Full strength and blur at ImageNet sizes; half strength without blur below 64 px (SimCLR, appendix B.9)."""
    weak = {"scale": (0.08, 1.0), "jitter": (0.4, 0.4, 0.4, 0.1), "jitter_p": 0.8, "grayscale": 0.2}
    if size < 64:
        return weak
    return {**weak, "jitter": (0.8, 0.8, 0.8, 0.2), "blur": 0.5, "blur_kernel": size // 10 // 2 * 2 + 1}


def _cmc_stl10(size: int) -> Fields:
    """A crop of 64 from 96 pixels, flipped or not; of other pictures as large a part."""
    return {"scale": (4 / 9, 4 / 9), "ratio": (1.0, 1.0), "resize": None if size == 64 else size}


_ROWS = tomllib.loads((files("contrastlab.pictures") / "augmentations.toml").read_text(encoding="utf-8"))

AUGMENTATIONS: Mapping[str, Fields | Callable[[int], Fields]] = MappingProxyType({
    **{
        name: {field: tuple(value) if isinstance(value, list) else value for field, value in row.items()}
        for name, row in _ROWS.items()
    },
    "simclr": _simclr, "cmc_stl10": _cmc_stl10,
})  # fmt: skip
"""Name to the fields of an :class:`Augmentation` beside name and size, or to a function of the view's side."""


def augmentation(name: str, size: int) -> Augmentation:
    """The augmentation ``name`` of :data:`AUGMENTATIONS` for views of ``size`` pixels.

    At test time the shorter side becomes 256 for 224 pixels, and so on; CIFAR's 32 and STL's 96 keep their size.
    """
    errors.check_name("augmentation", name, AUGMENTATIONS)
    fields = AUGMENTATIONS[name]
    resize = size if size < 64 or size == 96 else round(size * 8 / 7)
    return Augmentation(name, size, **{"resize": resize, **(fields(size) if callable(fields) else fields)})
