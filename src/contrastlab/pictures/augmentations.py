"""Distributions over views of images, as data; the published ones by name; and their application to whole batches.

Every image of a batch has its own draws, on the batch's device; :mod:`contrastlab.pictures.operations` applies them.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from importlib import metadata
from importlib.resources import files
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from contrastlab.pictures import operations
from contrastlab.support import errors, host
from contrastlab.support.seeds import fixed
from contrastlab.support.tensors import describe
from contrastlab.views.colour import LEVELS, check_images, standardise
from contrastlab.views.images import PUZZLE_SCALE

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

_WITHOUT_COLOURS = "Take one without colours, such as 'linear', 'flip' or 'crop', or register one of your own"
_ATTEMPTS = 10  # crops tried before the central one is taken, as in torchvision
_NEUTRAL_FACTORS = (1.0, 1.0, 1.0, 0.0)  # of brightness, contrast, saturation and hue
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
    operations: Tensor  #: [B, n, 3], see :func:`contrastlab.pictures.operations.sample_operations`

    def __getitem__(self, part: slice | Tensor) -> ViewDraws:
        """The draws of some of the images."""
        return ViewDraws(**{name: draws[part] for name, draws in vars(self).items()})


@dataclass(frozen=True)
class Augmentation:
    """A distribution over views of an image: random resized crop and flip, then colours, blur, RandAugment.

    Crop, flip, blur and normalisation treat each channel alike, however many there are. Brightness and contrast have
    one factor for all channels, contrast about the mean of all; grey images have no more. Saturation, hue, dropped
    colour and RandAugment are of colours: with other numbers of channels than 1 and 3 they are refused.
    """

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
        # a check may rely on those before it
        errors.check(errors.is_integer(self.size), "size", self.size, "an integer >= 1")
        _check_range("scale", self.scale, most=1.0)
        _check_range("ratio", self.ratio)
        _check_range("blur_sigma", self.blur_sigma)
        for field in ("flip", "jitter_p", "grayscale", "blur"):
            probability = getattr(self, field)
            errors.check(0 <= probability <= 1, field, probability, "a probability in [0, 1]")
        self._check_jitter()
        self._check_kernel()
        errors.check(self.randaugment >= 0, "randaugment", self.randaugment, "a number of operations >= 0")
        self._check_normalisation()
        fits = self.resize is None or self.resize >= self.size
        errors.check(fits, "resize", self.resize, f"None or an integer >= size={self.size}")

    def _check_jitter(self) -> None:
        accepted = "four strengths >= 0, the last (hue) <= 0.5"
        errors.check(len(self.jitter) == 4, "jitter", self.jitter, accepted)
        for strength in self.jitter:
            errors.check(0 <= strength < math.inf, "jitter", self.jitter, accepted)
        errors.check(self.jitter[operations.HUE] <= 0.5, "jitter", self.jitter, accepted)

    def _check_kernel(self) -> None:
        odd = self.kernel % 2 == 1
        reflects = 0 <= self.kernel // 2 < self.size
        accepted = f"None or an odd number with blur_kernel // 2 < size={self.size}"
        errors.check(odd and reflects, "blur_kernel", self.blur_kernel, accepted)

    def _check_normalisation(self) -> None:
        channels = len(self.mean)
        errors.check(channels, "mean", self.mean, "one value, or one for each channel")
        accepted = f"{channels} values > 0, as many as mean has"
        errors.check(len(self.std) == channels, "std", self.std, accepted)
        for deviation in self.std:
            errors.check(deviation > 0, "std", self.std, accepted)

    @property
    def kernel(self) -> int:
        """Taps of the blur actually used; reflection at the border limits it to ``2 size - 1``."""
        if self.blur_kernel is not None:
            return self.blur_kernel
        return 2 * min(math.ceil(3 * self.blur_sigma[1]), self.size - 1) + 1

    def random(self, images: Tensor, rng: torch.Generator | None = None, *, view: int = 0) -> Tensor:
        """One random view of each image, drawn independently: float32 ``[B, C, size, size]`` in [0, 1].

        Images are uint8 or uint16 ``[B, C, H, W]``; or random resized crops made where the pictures were decoded,
        ``[B, V, C, size, size]``, of which number ``view`` is flipped, coloured and blurred only.
        """
        cropped = images.dim() == 5
        if cropped:
            images = images[:, view]
        check_images(images, floating=False)
        count, _, height, width = images.shape
        draws = self.sample(count, height, width, rng, images.device)
        return apply(images, self, draws, cropped=cropped)

    def sample(
        self,
        count: int,
        height: int,
        width: int,
        rng: torch.Generator | None = None,
        device: torch.device | str | None = None,
    ) -> ViewDraws:
        """All random parameters of one view of each of ``count`` images of ``height`` by ``width`` pixels.

        The same numbers are consumed whatever the augmentation, so two of them with one seed crop alike; RandAugment
        alone draws more, and after all others. ``device`` is where to draw, by default the CPU.
        """
        boxes = sample_boxes(count, height, width, scale=self.scale, ratio=self.ratio, generator=rng, device=device)
        # of each image four factors, four ranks in the order, and whether it is jittered at all
        jitter = torch.rand(count, 9, generator=rng, device=device)
        to_flip, to_grey, to_blur, width_of_blur = torch.rand(4, count, generator=rng, device=device)
        deviation = _uniform(*self.blur_sigma, width_of_blur)
        steps = boxes.new_zeros(count, 0, 3, dtype=torch.float32)
        if self.randaugment:
            steps = operations.sample_operations(count, self.randaugment, generator=rng, device=device)
        return ViewDraws(
            boxes=boxes,
            flip=to_flip < self.flip,
            factors=self._factors(jitter[:, :4], jittered=jitter[:, 8] < self.jitter_p),
            order=jitter[:, 4:8].argsort(1),
            grayscale=to_grey < self.grayscale,
            sigma=deviation.where(to_blur < self.blur, 0.0),
            operations=steps,
        )

    def _factors(self, unit: Tensor, jittered: Tensor) -> Tensor:
        """Factors of the jitter ``[B, 4]`` from numbers of [0, 1); those that change nothing where not ``jittered``."""
        factors = []
        for k, strength in enumerate(self.jitter):
            neutral = _NEUTRAL_FACTORS[k]
            low = neutral - strength
            if k != operations.HUE:
                low = max(0.0, low)
            factor = _uniform(low, neutral + strength, unit[:, k])
            factors.append(factor.where(jittered, neutral))
        return torch.stack(factors, dim=1)

    def plain(self, images: Tensor) -> Tensor:
        """The test-time view of images ``[B, C, H, W]``, float32 ``[B, C, size, size]`` in [0, 1], see ``resize``."""
        check_images(images, floating=False)
        views = operations.resize_center(images, self.resize, self.size)
        return views.mul_(1 / LEVELS[images.dtype]).clamp_(0, 1)

    def puzzle(self, side: int, *, whole: bool = False) -> Augmentation:
        """What a jigsaw of ``side`` pixels is cut from: another crop, or the ``whole`` image if it is one already."""
        scale = PUZZLE_SCALE
        ratio = self.ratio
        if whole:
            scale = (1.0, 1.0)
            ratio = (1.0, 1.0)
        return Augmentation(self.name, side, scale, ratio, self.flip, mean=self.mean, std=self.std)

    def normalise(self, images: Tensor) -> Tensor:
        """Floating images ``[B, C, H, W]`` less the mean, divided by the deviation.

        Where there is not one value for each channel, all use the averages: grey images those of three.
        """
        check_images(images, floating=True)
        mean = self.mean
        std = self.std
        if len(mean) not in (1, images.shape[1]):
            mean = (sum(mean) / len(mean),)
            std = (sum(std) / len(std),)
        return standardise(images, mean, std)

    def check_channels(self, channels: int) -> None:
        """Refuse colours where there are none to change: with other numbers of channels than 1 (skipped) and 3."""
        changes = {
            "saturation": self.jitter[operations.SATURATION],
            "hue": self.jitter[operations.HUE],
            "grayscale": self.grayscale,
            "randaugment": self.randaugment,
        }
        named = ", ".join(name for name, strength in changes.items() if strength)
        if channels not in (1, 3) and named:
            reason = f"it has {named}, which is of colours; these pictures have {channels} channels"
            raise errors.NotApplicableError(f"augmentation {self.name!r} cannot be used: {reason}. {_WITHOUT_COLOURS}")


def _check_range(field: str, value: tuple[float, ...], most: float = math.inf) -> None:
    accepted = f"(low, high) with 0 < low <= high <= {most:g}"
    errors.check(len(value) == 2, field, value, accepted)
    low, high = value
    errors.check(0 < low <= high <= most, field, value, accepted)


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

    The area is uniform in ``scale`` times the image's, the aspect ratio log-uniform in ``ratio``, the position uniform.
    The first of ten attempts that fits is taken, else the largest central box whose aspect ratio is allowed. All
    attempts are drawn at once, so the number of draws does not depend on luck.
    """
    unit = torch.rand(count, 2 * _ATTEMPTS + 2, generator=generator, device=device)
    sizes_unit = unit[:, : 2 * _ATTEMPTS]
    corner_unit = unit[:, 2 * _ATTEMPTS :]
    heights, widths = _box_sizes(sizes_unit, height * width, scale, ratio)
    fits = (heights > 0) & (heights <= height) & (widths > 0) & (widths <= width)
    any_fits = fits.any(1)
    first = fits.to(torch.uint8).argmax(1, keepdim=True)
    central_height = float(min(height, round(width / ratio[0])))
    central_width = float(min(width, round(height * ratio[1])))
    box_height = heights.gather(1, first)[:, 0].where(any_fits, central_height)
    box_width = widths.gather(1, first)[:, 0].where(any_fits, central_width)
    top = _corner(height - box_height, corner_unit[:, 0], any_fits)
    left = _corner(width - box_width, corner_unit[:, 1], any_fits)
    return torch.stack((top, left, box_height, box_width), dim=1).long()


def _box_sizes(
    unit: Tensor, pixels: int, scale: tuple[float, float], ratio: tuple[float, float]
) -> tuple[Tensor, Tensor]:
    """Heights and widths ``[count, n]`` of boxes in an image of so many pixels, from ``[count, 2n]`` of [0, 1)."""
    area_unit, aspect_unit = unit.chunk(2, dim=1)
    area = _uniform(scale[0], scale[1], area_unit) * pixels
    aspect = _uniform(math.log(ratio[0]), math.log(ratio[1]), aspect_unit).exp_()
    heights = (area / aspect).sqrt_().round_()
    widths = (area * aspect).sqrt_().round_()
    return heights, widths


def _corner(room: Tensor, unit: Tensor, anywhere: Tensor) -> Tensor:
    """Where boxes begin that leave ``room`` pixels: ``anywhere``, drawn from numbers of [0, 1), or in the middle."""
    drawn = (unit * (room + 1)).floor_()
    middle = (room / 2).floor_()
    return torch.minimum(drawn, room).where(anywhere, middle)


def apply(images: Tensor, a: Augmentation, draws: ViewDraws, *, cropped: bool = False) -> Tensor:
    """The view of each image ``[B, C, H, W]``, or crop ``[B, C, size, size]`` if ``cropped``, for draws from ``a``."""
    check_images(images, floating=False)
    a.check_channels(images.shape[1])
    if cropped:
        fits = images.shape[2:] == (a.size, a.size)
        errors.check(fits, "images.shape", tuple(images.shape), f"crops of {a.size} by {a.size} pixels")
    if host.holds(images.device):
        return _apply_in_chunks(images, a, draws, cropped)
    return _apply(images, a, draws, cropped)


def _apply_in_chunks(images: Tensor, a: Augmentation, draws: ViewDraws, cropped: bool) -> Tensor:
    """:func:`_apply` in chunks that stay in the cache of a CPU.

    The images of a chunk have their hue rotation at the same place of their order, where possible: a chunk skips the
    passes that none of its images needs.
    """
    count, channels = images.shape[:2]
    result = images.new_empty(count, channels, a.size, a.size, dtype=torch.float32)
    if count == 0:
        return result
    hue_place = (draws.order == operations.HUE).to(torch.uint8).argmax(1)
    rows = hue_place.argsort()
    images_per_chunk = max(1, _CHUNK // (channels * a.size * a.size))
    for chunk in rows.split(images_per_chunk):
        views = _apply(images.index_select(0, chunk), a, draws[chunk], cropped)
        # index_copy_ moves whole images; assigning to result[chunk] would move single values
        result.index_copy_(0, chunk, views)
    return result


def _apply(images: Tensor, a: Augmentation, draws: ViewDraws, cropped: bool) -> Tensor:
    if cropped:
        flipped = torch.where(draws.flip[:, None, None, None], images.flip(-1), images)
        views = flipped / LEVELS[images.dtype]
    else:
        views = operations.crop_resize(images, draws.boxes, a.size, draws.flip).mul_(1 / LEVELS[images.dtype])
    views = _recolour(views, a, draws)
    if a.blur > 0:
        views = _blur(views, draws.sigma, a.kernel)
    if a.randaugment:
        views = operations.randaugment(views.clamp_(0, 1), draws.operations)
    return views.clamp_(0, 1)  # rounding of the resampling may leave [0, 1] by 1e-7


def _recolour(views: Tensor, a: Augmentation, draws: ViewDraws) -> Tensor:
    """Jitter, and grey values before or after it; may change ``views`` in place."""
    drops_colour = a.grayscale > 0 and views.shape[1] == 3
    if drops_colour and a.grayscale_first:
        views = operations.grayscale(views, draws.grayscale)
    if any(a.jitter):
        turns_hue = a.jitter[operations.HUE] > 0
        views = operations.jitter_(views, draws.factors, draws.order, hue=turns_hue)
    if drops_colour and not a.grayscale_first:
        views = operations.grayscale(views, draws.grayscale)
    return views


def _blur(views: Tensor, sigma: Tensor, kernel: int) -> Tensor:
    """Blurred views; a CPU, which can look without waiting, blurs only those with a ``sigma`` above 0, in place."""
    if not host.holds(views.device):
        return operations.gaussian_blur(views, sigma, kernel)
    rows = sigma.nonzero()[:, 0]
    if len(rows):
        blurred = operations.gaussian_blur(views.index_select(0, rows), sigma[rows], kernel)
        views.index_copy_(0, rows, blurred)
    return views


# The published augmentations ------------------------------------------------------------------------------------------

Fields = Mapping[str, Any]


def _simclr(size: int) -> Fields:
    """Full strength and blur at ImageNet sizes; half strength without blur below 64 px (SimCLR, appendix B.9)."""
    weak = {"scale": (0.08, 1.0), "jitter": (0.4, 0.4, 0.4, 0.1), "jitter_p": 0.8, "grayscale": 0.2}
    if size < 64:
        return weak
    odd_tenth = size // 10 // 2 * 2 + 1
    return {**weak, "jitter": (0.8, 0.8, 0.8, 0.2), "blur": 0.5, "blur_kernel": odd_tenth}


def _cmc_stl10(size: int) -> Fields:
    """A crop of 64 from 96 pixels, flipped or not; of other pictures as large a part."""
    resize = None if size == 64 else size
    return {"scale": (4 / 9, 4 / 9), "ratio": (1.0, 1.0), "resize": resize}


def _stored_rows() -> dict[str, Fields]:
    """The rows of ``augmentations.toml``, whose lists are tuples here."""
    text = (files("contrastlab.pictures") / "augmentations.toml").read_text(encoding="utf-8")
    rows: dict[str, Fields] = {}
    for name, row in tomllib.loads(text).items():
        fields = {}
        for field, value in row.items():
            fields[field] = tuple(value) if isinstance(value, list) else value
        rows[name] = fields
    return rows


AUGMENTATIONS: Mapping[str, Fields | Callable[[int], Fields]] = MappingProxyType(
    {**_stored_rows(), "simclr": _simclr, "cmc_stl10": _cmc_stl10}
)
"""Name to the fields of an :class:`Augmentation` beside name and size, or to a function of the view's side."""


def augmentation(name: str, size: int) -> Augmentation:
    """The augmentation ``name`` of :data:`AUGMENTATIONS` or of :func:`register`, for views of ``size`` pixels.

    At test time the shorter side becomes 256 for 224 pixels, and so on; CIFAR's 32 and STL's 96 keep their size.
    """
    keeps_size = size < 64 or size == 96
    resize = size if keeps_size else round(size * 8 / 7)
    if name not in AUGMENTATIONS:
        function = _own_maker(name)(size)
        return OwnAugmentation(name, size, (1.0, 1.0), (1.0, 1.0), resize=resize, function=function)
    fields = AUGMENTATIONS[name]
    if callable(fields):
        fields = fields(size)
    return Augmentation(name, size, **{"resize": resize, **fields})


# One's own ------------------------------------------------------------------------------------------------------------

Function = Callable[[Tensor], Tensor]
_GROUP = "contrastlab.augmentations"
_OWN: dict[str, Callable[[int], Function]] = {}


def register(name: str, make: Callable[[int], Function]) -> None:
    """Make an augmentation of your own known as ``name``, in this process.

    ``make(size)`` gives a function, or a pipeline of ``torchvision.transforms.v2``, from a picture to a random view of
    it: uint8 ``[C, H, W]`` to floats ``[C, size, size]`` in [0, 1], which are normalised afterwards. It draws from
    PyTorch's global generator, whose seed is counted as all seeds of a run are. Of pictures that are streamed it sees
    the middle square, resized to ``size``. Probes see the plain view, without it.

    Settings choose it by ``augmentation``. Its name is hashed; its code is not, so changed code needs another name. The
    entry points ``contrastlab.augmentations`` of a package are known to every process.
    """
    if not isinstance(name, str) or "/" not in name.strip("/"):
        raise errors.reject("name", name, "a name of your own such as 'mine/crops'")
    _OWN[name] = make


def _own_maker(name: str) -> Callable[[int], Function]:
    """What was registered by that name, here or by a package."""
    for point in metadata.entry_points(group=_GROUP, name=name):
        _OWN.setdefault(name, point.load())
    errors.check_name("augmentation", name, (*AUGMENTATIONS, *_OWN))
    return _OWN[name]


@dataclass(frozen=True)
class OwnAugmentation(Augmentation):
    """Views by a function of one's own, one picture after the other; a GPU is waited for once a view."""

    _: KW_ONLY
    function: Function

    def random(self, images: Tensor, rng: torch.Generator | None = None, *, view: int = 0) -> Tensor:
        """What the function gives of each image, float32 ``[B, C, size, size]``."""
        if images.dim() == 5:
            images = images[:, view]
        check_images(images, floating=False)
        seed = int(torch.randint(2**31, (), generator=rng, device=images.device))
        with fixed(seed, images.device):
            views = [self.function(image) for image in images]
        expected = (images.shape[1], self.size, self.size)
        for made in views:
            shape = tuple(getattr(made, "shape", ()))
            fits = isinstance(made, Tensor) and made.is_floating_point() and shape == expected
            errors.check(fits, self.name, describe(made), f"a function that gives floats of shape {list(expected)}")
        return torch.stack(views).float()
