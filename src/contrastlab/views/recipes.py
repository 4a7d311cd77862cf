"""What an augmentation is (data), and the published ones by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from contrastlab import errors

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


def _check_interval(name: str, value: tuple[float, float], high: float) -> None:
    if len(value) != 2 or not 0 < value[0] <= value[1] <= high:
        raise errors.reject(
            name, value, f"(low, high) with 0 < low <= high{'' if math.isinf(high) else f' <= {high:g}'}"
        )


@dataclass(frozen=True)
class Augmentation:
    """A distribution over views of an image, as data.

    The operations and their order: random resized crop and flip, then (grayscale and) colour jitter
    (and grayscale), then Gaussian blur. Every image of a batch gets draws of its own.

    Attributes:
        name: how results refer to it.
        size: side of a view in pixels.
        scale: area of the crop as a fraction of the image's.
        ratio: aspect ratio (width / height) of the crop, uniform in its logarithm.
        flip: probability of a left-right flip.
        jitter: strengths (brightness, contrast, saturation, hue); a strength s draws a factor from
            [max(0, 1 - s), 1 + s], for hue a shift from [-s, s] of the circle (s <= 0.5).
        jitter_p: probability that an image is jittered at all.
        grayscale: probability of dropping the colour.
        grayscale_first: drop the colour before the jitter (MoCo v1, instance discrimination) or after it.
        blur: probability of a Gaussian blur.
        blur_sigma: range of its standard deviation in pixels of the view.
        blur_kernel: its odd number of taps; None takes ``2 ceil(3 sigma_max) + 1``, the whole bell, as
            Pillow's blur (MoCo v2) has no kernel to cut it. SimCLR cuts at a tenth of the image's side.
        mean: per-channel mean that ``normalise`` subtracts (one value or three).
        std: per-channel standard deviation that ``normalise`` divides by (one value or three).
        resize: at test time the shorter side is resized to this before the central ``size`` pixels are
            kept; None keeps the image's own size.

    Raises:
        ArgumentError: naming the field outside its range.
    """

    name: str
    size: int
    scale: tuple[float, float] = (0.2, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.5
    jitter: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    jitter_p: float = 1.0
    grayscale: float = 0.0
    grayscale_first: bool = False
    blur: float = 0.0
    blur_sigma: tuple[float, float] = (0.1, 2.0)
    blur_kernel: int | None = None
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    resize: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.size, int) or self.size < 1:
            raise errors.reject("size", self.size, "an integer >= 1")
        _check_interval("scale", self.scale, 1.0)
        _check_interval("ratio", self.ratio, math.inf)
        for field in ("flip", "jitter_p", "grayscale", "blur"):
            value = getattr(self, field)
            if not 0 <= value <= 1:
                raise errors.reject(field, value, "a probability in [0, 1]")
        if len(self.jitter) != 4 or not all(0 <= s < math.inf for s in self.jitter) or self.jitter[3] > 0.5:
            raise errors.reject("jitter", self.jitter, "four strengths >= 0, the last (hue) <= 0.5")
        _check_interval("blur_sigma", self.blur_sigma, math.inf)
        kernel = self.blur_kernel
        if kernel is not None and (kernel < 1 or kernel % 2 == 0 or kernel // 2 >= self.size):
            raise errors.reject(
                "blur_kernel", kernel, f"None or an odd number with blur_kernel // 2 < size={self.size}"
            )
        if len(self.mean) not in (1, 3):
            raise errors.reject("mean", self.mean, "one value or three")
        if len(self.std) != len(self.mean) or not all(s > 0 for s in self.std):
            raise errors.reject("std", self.std, f"{len(self.mean)} values > 0, as many as mean has")
        if self.resize is not None and self.resize < self.size:
            raise errors.reject("resize", self.resize, f"None or an integer >= size={self.size}")

    @property
    def kernel(self) -> int:
        """Taps of the blur actually used; reflection at the border limits it to ``2 size - 1``."""
        if self.blur_kernel is not None:
            return self.blur_kernel
        return 2 * min(math.ceil(3 * self.blur_sigma[1]), self.size - 1) + 1


def _resize(size: int) -> int:
    """Test-time resize: 256 for 224 and the like (73 for 64); the native size for CIFAR's 32 and STL's 96."""
    return size if size < 64 or size == 96 else round(size * 8 / 7)


def _instdisc(size: int) -> Augmentation:
    """Instance discrimination (IR), LA and MoCo v1; the default of VINCE and Ring."""
    return Augmentation(
        "instdisc", size, jitter=(0.4, 0.4, 0.4, 0.4), grayscale=0.2, grayscale_first=True, resize=_resize(size)
    )


def _mocov2(size: int) -> Augmentation:
    """MoCo v2, MoCoRing and JCL."""
    return Augmentation(
        "mocov2", size, jitter=(0.4, 0.4, 0.4, 0.1), jitter_p=0.8, grayscale=0.2, blur=0.5, resize=_resize(size)
    )


def _cmc(size: int) -> Augmentation:
    """CMC: crop and flip only, the colour split is the other view."""
    return Augmentation("cmc", size, resize=_resize(size))


def _cmc_jitter(size: int) -> Augmentation:
    """CMC in VINCE and Ring: instance discrimination without grayscale (VINCE, appendix C.2)."""
    return Augmentation("cmc_jitter", size, jitter=(0.4, 0.4, 0.4, 0.4), resize=_resize(size))


def _simclr(size: int) -> Augmentation:
    """SimCLR: full strength and blur at ImageNet sizes; half strength without blur below 64 px (its appendix B.9)."""
    if size < 64:
        return Augmentation(
            "simclr", size, scale=(0.08, 1.0), jitter=(0.4, 0.4, 0.4, 0.1), jitter_p=0.8, grayscale=0.2,
            resize=_resize(size),
        )  # fmt: skip
    return Augmentation(
        "simclr", size, scale=(0.08, 1.0), jitter=(0.8, 0.8, 0.8, 0.2), jitter_p=0.8, grayscale=0.2, blur=0.5,
        blur_kernel=size // 10 // 2 * 2 + 1, resize=_resize(size),
    )  # fmt: skip


def _fmicl(size: int) -> Augmentation:
    """f-MICL: crop, flip, jitter and grayscale, no blur; the strengths are not stated, these are SimCLR's for CIFAR."""
    return Augmentation(
        "fmicl", size, scale=(0.08, 1.0), jitter=(0.4, 0.4, 0.4, 0.1), jitter_p=0.8, grayscale=0.2, resize=_resize(size)
    )


def _align_uniform(size: int) -> Augmentation:
    """Alignment and uniformity on STL-10 (its released code)."""
    return Augmentation(
        "align_uniform", size, scale=(0.08, 1.0), jitter=(0.4, 0.4, 0.4, 0.4), grayscale=0.2, resize=_resize(size)
    )


def _linear(size: int) -> Augmentation:
    """Training of a linear probe: crop and flip."""
    return Augmentation("linear", size, scale=(0.08, 1.0), resize=_resize(size))


def _none(size: int) -> Augmentation:
    """No randomness: the whole image, resized to a square."""
    return Augmentation("none", size, scale=(1.0, 1.0), ratio=(1.0, 1.0), flip=0.0, resize=_resize(size))


AUGMENTATIONS: Mapping[str, Callable[[int], Augmentation]] = MappingProxyType(
    {
        "instdisc": _instdisc,
        "mocov2": _mocov2,
        "cmc": _cmc,
        "cmc_jitter": _cmc_jitter,
        "simclr": _simclr,
        "fmicl": _fmicl,
        "align_uniform": _align_uniform,
        "linear": _linear,
        "none": _none,
    }
)
"""Published augmentations: name to a function of the view's side in pixels."""


def augmentation(name: str, size: int) -> Augmentation:
    """The published augmentation ``name`` for views of ``size`` pixels.

    Args:
        name: a key of :data:`AUGMENTATIONS`.
        size: side of a view in pixels.

    Returns:
        The recipe; change single fields with :func:`dataclasses.replace`.

    Raises:
        UnknownNameError: for another name, with near matches.
        ArgumentError: for a size below one.
    """
    if name not in AUGMENTATIONS:
        raise errors.unknown("augmentation", name, AUGMENTATIONS)
    return AUGMENTATIONS[name](size)
