"""The published augmentations by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from contrastlab import errors
from contrastlab.data.images.augment import Augmentation


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


def _cmc_stl10(size: int) -> Augmentation:
    """CMC on STL-10: a crop of 64 from 96 pixels, flipped or not; of other pictures as large a part."""
    return Augmentation("cmc_stl10", size, scale=(4 / 9, 4 / 9), ratio=(1.0, 1.0), resize=None if size == 64 else size)


def _cmc_resnet(size: int) -> Augmentation:
    """CMC with ResNets on ImageNet: crop and flip, as its released code has it."""
    return Augmentation("cmc_resnet", size, scale=(0.08, 1.0), resize=_resize(size))


def _cmc_randaugment(size: int) -> Augmentation:
    """CMC with RandAugment (Table 1, "+ RA"), and its linear probes: crop, flip, and operations on the geometry."""
    return Augmentation("cmc_randaugment", size, scale=(0.08, 1.0), randaugment=2, resize=_resize(size))


def _cmc_rgb(size: int) -> Augmentation:
    """InsDis and PIRL in CMC's Table 9, as its authors' later code: a bank "likes 0.08"."""
    return Augmentation(
        "cmc_rgb", size, scale=(0.08, 1.0), jitter=(0.4, 0.4, 0.4, 0.4), grayscale=0.2, resize=_resize(size)
    )


def _cmc_rgb_queue(size: int) -> Augmentation:
    """MoCo in CMC's Table 9: a queue "likes 0.2"."""
    return Augmentation("cmc_rgb_queue", size, jitter=(0.4, 0.4, 0.4, 0.4), grayscale=0.2, resize=_resize(size))


def _cmc_split(size: int) -> Augmentation:
    """CMC with a bank in Table 9: jitter without grayscale."""
    return Augmentation("cmc_split", size, scale=(0.08, 1.0), jitter=(0.4, 0.4, 0.4, 0.1), resize=_resize(size))


def _cmc_split_queue(size: int) -> Augmentation:
    """CMC with a queue in Table 9."""
    return Augmentation("cmc_split_queue", size, jitter=(0.4, 0.4, 0.4, 0.1), resize=_resize(size))


def _cmc_v2(size: int) -> Augmentation:
    """CMC with a queue and RandAugment in Table 9 (augmentation E of the later code)."""
    return Augmentation(
        "cmc_v2", size, jitter=(0.4, 0.4, 0.4, 0.1), jitter_p=0.8, blur=0.5, randaugment=2, resize=_resize(size)
    )


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


def _crop(size: int) -> Augmentation:
    """Crop only: pictures for encoders that were trained on patches of scenes."""
    return Augmentation("crop", size, flip=0.0, resize=_resize(size))


def _none(size: int) -> Augmentation:
    """No randomness: the whole image, resized to a square."""
    return Augmentation("none", size, scale=(1.0, 1.0), ratio=(1.0, 1.0), flip=0.0, resize=_resize(size))


def _alone(name: str, **changes: Any) -> Callable[[int], Augmentation]:
    return lambda size: replace(_none(size), name=name, **changes)


_SHAPES = Augmentation("", 1).ratio
_ALONE: Mapping[str, dict[str, Any]] = {
    "grey": {"grayscale": 1.0},
    "flip": {"flip": 0.5},
    **{f"jitter{x:g}": {"jitter": (x, x, x, min(x, 0.5))} for x in (0.2, 0.5, 1.0)},
    **{f"crop{low:g}": {"scale": (low, 1.0), "ratio": _SHAPES} for low in (0.04, 0.2, 0.6)},
    **{f"crop0.04to{high:g}": {"scale": (0.04, high), "ratio": _SHAPES} for high in (0.1, 0.3)},
}
"""One kind of change and no other: view sets of VINCE's Figure 4, at levels that are not printed."""

AUGMENTATIONS: Mapping[str, Callable[[int], Augmentation]] = MappingProxyType(
    {
        "instdisc": _instdisc,
        "mocov2": _mocov2,
        "cmc": _cmc,
        "cmc_jitter": _cmc_jitter,
        "cmc_stl10": _cmc_stl10,
        "cmc_resnet": _cmc_resnet,
        "cmc_randaugment": _cmc_randaugment,
        "cmc_rgb": _cmc_rgb,
        "cmc_rgb_queue": _cmc_rgb_queue,
        "cmc_split": _cmc_split,
        "cmc_split_queue": _cmc_split_queue,
        "cmc_v2": _cmc_v2,
        "simclr": _simclr,
        "fmicl": _fmicl,
        "align_uniform": _align_uniform,
        "linear": _linear,
        "crop": _crop,
        "none": _none,
        **{name: _alone(name, **changes) for name, changes in _ALONE.items()},
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
