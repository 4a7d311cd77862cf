"""Apply an augmentation, or its test-time counterpart, to a batch."""

from __future__ import annotations

import torch
from torch import Tensor

from contrastlab import errors
from contrastlab.views import photometry
from contrastlab.views.geometry import check_images, crop_resize, resize_center
from contrastlab.views.recipes import Augmentation
from contrastlab.views.sampling import Draws, sample

_CHUNK = 1 << 18  # output values processed together on a CPU: their float32 stay in the second-level cache


def augment(
    images: Tensor, a: Augmentation, generator: torch.Generator | None = None, *, cropped: bool = False
) -> Tensor:
    """One random view of each image, drawn independently, on the images' device.

    Args:
        images: uint8 ``[B, C, H, W]``, ``C`` 1 or 3.
        a: the recipe.
        generator: the only source of randomness, on the images' device; None is that device's default.
        cropped: the images are random resized crops already; everything else is drawn as without it.

    Returns:
        float32 ``[B, C, size, size]`` in [0, 1].

    Raises:
        ArgumentError: for another dtype or shape, or a generator of another device.
    """
    check_images(images, floating=False)
    count, _, height, width = images.shape
    return apply(images, a, sample(a, count, height, width, generator=generator, device=images.device), cropped=cropped)


def apply(images: Tensor, a: Augmentation, draws: Draws, *, cropped: bool = False) -> Tensor:
    """The view of each image that ``draws`` describes.

    Args:
        images: uint8 ``[B, C, H, W]``, ``C`` 1 or 3.
        a: the recipe the draws come from.
        draws: parameters for the ``B`` images.
        cropped: the images are crops already, ``[B, C, size, size]``: the boxes are not used.

    Returns:
        float32 ``[B, C, size, size]`` in [0, 1].

    Raises:
        ArgumentError: for another dtype or shape.
    """
    check_images(images, floating=False)
    if cropped and images.shape[2:] != (a.size, a.size):
        raise errors.reject("images.shape", tuple(images.shape), f"crops of {a.size} by {a.size} pixels")
    if len(draws.boxes) != len(images):
        raise errors.reject("draws", f"parameters of {len(draws.boxes)} images", f"one row for each of {len(images)}")
    if images.device.type != "cpu":
        return _apply(images, a, draws, cropped)
    # On a CPU: chunks that stay in the cache, of images whose hue rotation has the same place in their
    # order, since a chunk skips the passes that none of its images needs.
    count, channels = images.shape[:2]
    step = max(1, _CHUNK // (channels * a.size * a.size))
    rows = (draws.order == photometry.HUE).to(torch.uint8).argmax(1).argsort() if count else draws.boxes[:, 0]
    result = images.new_empty(count, channels, a.size, a.size, dtype=torch.float32)
    for start in range(0, count, step):
        part = rows[start : start + step]
        # index_copy_ moves whole images; assigning to result[part] would move single values
        result.index_copy_(0, part, _apply(images.index_select(0, part), a, draws[part], cropped))
    return result


def _apply(images: Tensor, a: Augmentation, draws: Draws, cropped: bool) -> Tensor:
    if cropped:
        views = torch.where(draws.flip[:, None, None, None], images.flip(-1), images) / 255
    else:
        views = crop_resize(images, draws.boxes, a.size, draws.flip).mul_(1 / 255)
    colour = images.shape[1] == 3
    if a.grayscale > 0 and colour and a.grayscale_first:
        views = photometry.grayscale(views, draws.grayscale)
    if any(a.jitter):
        views = photometry.jitter_(views, draws.factors, draws.order, hue=a.jitter[3] > 0)
    if a.grayscale > 0 and colour and not a.grayscale_first:
        views = photometry.grayscale(views, draws.grayscale)
    if a.blur > 0 and views.device.type != "cpu":
        views = photometry.gaussian_blur(views, draws.sigma, a.kernel)
    elif a.blur > 0 and len(chosen := draws.sigma.nonzero()[:, 0]):
        blurred = photometry.gaussian_blur(views.index_select(0, chosen), draws.sigma[chosen], a.kernel)
        views.index_copy_(0, chosen, blurred)
    return views.clamp_(0, 1)  # rounding of the resampling may leave [0, 1] by 1e-7


def center(images: Tensor, a: Augmentation) -> Tensor:
    """The test-time view: shorter side to ``a.resize``, central square of ``a.size``; no randomness.

    Args:
        images: uint8 ``[B, C, H, W]``, ``C`` 1 or 3.
        a: the recipe.

    Returns:
        float32 ``[B, C, size, size]`` in [0, 1].

    Raises:
        ArgumentError: for another dtype or shape, or images smaller than ``a.size`` when ``a.resize`` is None.
    """
    check_images(images, floating=False)
    return resize_center(images, a.resize, a.size).mul_(1 / 255).clamp_(0, 1)


def normalise(images: Tensor, a: Augmentation) -> Tensor:
    """Subtract the recipe's mean and divide by its standard deviation, per channel.

    Grey images with three-channel statistics use their averages.

    Args:
        images: floating ``[B, C, H, W]`` in [0, 1].
        a: the recipe.

    Returns:
        Images of the same shape and dtype.

    Raises:
        ArgumentError: for another shape or an integer dtype.
    """
    check_images(images, floating=True)
    mean, std = a.mean, a.std
    if images.shape[1] == 1 and len(mean) == 3:
        mean, std = (sum(mean) / 3,), (sum(std) / 3,)
    return standardise(images, mean, std)


def standardise(images: Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    """``(images - mean) / std`` with one statistic per channel, or one for all."""
    # built on the host and copied without waiting: one small transfer instead of a synchronisation
    statistics = torch.tensor((mean, std), dtype=images.dtype).to(images.device, non_blocking=True)[:, :, None, None]
    return images.sub(statistics[0]).div_(statistics[1])
