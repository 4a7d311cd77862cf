"""Operations on batches of images, one set of parameters per image; all equal torchvision's on float images in [0, 1].

Nothing waits for a GPU, and only RandAugment on a CPU loops over images. Grey images have no saturation and no hue.
Matrix products run in float32 under autocast, too; PyTorch's TF32 would round them to 1/2000.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
import torch.nn.functional as F
from torch import Tensor
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as v2

from contrastlab.support import errors, host

BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)


# Crop, resize and flip ------------------------------------------------------------------------------------------------
# Bilinear resampling is separable and linear: an output row is a weighted sum of input rows, an output column one of
# input columns. Crop and resize of image b are ``rows[b] @ image @ columns[b].T``; a flip reverses the columns.


def _weights(start: Tensor, length: Tensor, source: int, size: int, flip: Tensor | None = None) -> Tensor:
    """``[B, size, source]``: triangle-filter weights that resample ``[start, start + length)`` to ``size`` pixels."""
    start, length = start.to(torch.float32)[:, None], length.to(torch.float32)[:, None]
    scale = length / size
    output = torch.arange(size, device=start.device, dtype=torch.float32)[None] + 0.5
    if flip is not None:
        output = torch.where(flip[:, None], size - output, output)
    pixel = torch.arange(source, device=start.device, dtype=torch.float32) + 0.5
    centre = torch.addcmul(start, scale, output)[:, :, None]
    # the filter is one input pixel wide when enlarging and one output pixel wide when shrinking
    weights = (pixel - centre).abs_().mul_(scale.clamp(min=1).reciprocal().neg_()[:, :, None]).add_(1).clamp_(min=0)
    weights *= ((pixel > start) & (pixel < start + length))[:, None, :]
    return weights / weights.sum(-1, keepdim=True)


def _resample(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """``rows @ image @ columns.T`` for every image and channel."""
    count, channels, height, width = images.shape
    result = images.new_empty(count, channels, rows.shape[1], columns.shape[1], dtype=torch.float32)
    with torch.autocast(images.device.type, enabled=False):
        half = torch.bmm(images.reshape(count, channels * height, width).to(torch.float32), columns.transpose(1, 2))
        half = half.view(count, channels, height, columns.shape[1])
        for channel in range(channels):  # a view per channel: expanding ``rows`` to [B, C, ...] would copy it
            result[:, channel] = torch.bmm(rows, half[:, channel])
    return result


def crop_resize(images: Tensor, boxes: Tensor, size: int, flip: Tensor | None = None) -> Tensor:
    """One box out of each image ``[B, C, H, W]``, resized to float32 ``[B, C, size, size]`` and flipped left-right.

    Equal to torchvision's ``resized_crop`` (antialiased bilinear) and ``horizontal_flip``; the values keep their range.
    ``boxes`` are ``[B, 4]`` of (top, left, height, width) in pixels, inside the image; ``flip`` is ``[B]`` boolean.
    """
    top, left, height, width = boxes.unbind(1)
    rows = _weights(top, height, images.shape[2], size)
    columns = _weights(left, width, images.shape[3], size, flip)
    return _resample(images, rows, columns)


def resize_center(images: Tensor, resize: int | None, size: int) -> Tensor:
    """The central square, float32 ``[B, C, size, size]``: torchvision's ``Resize``, unless None, and ``CenterCrop``."""
    height, width = images.shape[2:]
    short = min(height, width)
    # the longer side is truncated, as torchvision does
    new_height, new_width = (side if resize is None else resize * side // short for side in (height, width))
    side = min(new_height, new_width)
    errors.check(1 <= size <= side, "size", size, f"1 to the shorter side after resizing, {side}")
    top, left = round((new_height - size) / 2), round((new_width - size) / 2)
    if (new_height, new_width) == (height, width):
        return images[:, :, top : top + size, left : left + size].to(torch.float32)
    zero = torch.zeros(1, device=images.device)
    rows = _weights(zero, zero + height, height, new_height)[:, top : top + size]
    columns = _weights(zero, zero + width, width, new_width)[:, left : left + size]
    return _resample(images, rows.expand(len(images), -1, -1), columns.expand(len(images), -1, -1))


# Colours and blur -----------------------------------------------------------------------------------------------------


def _column(value: Tensor) -> Tensor:
    return value[:, None, None, None]


def _luma(images: Tensor) -> Tensor:
    """Grey value ``[B, 1, H, W]`` with the weights of ITU-R 601 as torchvision rounds them."""
    if images.shape[1] == 1:
        return images
    red, green, blue = images[:, :1], images[:, 1:2], images[:, 2:]
    return red.mul(0.2989).add_(green, alpha=0.587).add_(blue, alpha=0.114)


def grayscale(images: Tensor, chosen: Tensor) -> Tensor:
    """Images ``[B, C, H, W]``; those ``[B]`` that are chosen have their grey value in all channels."""
    return torch.where(_column(chosen), _luma(images), images)


def _blend(images: Tensor, keep: Tensor, grey: Tensor, mean: Tensor) -> None:
    """In place: ``clamp(keep * x + grey * luma(x) + mean * mean(luma(x)))``, coefficients ``[B]``.

    Brightness, contrast and saturation are all this one pass, with different coefficients.
    """
    base = _luma(images)
    average = base.mean((2, 3), keepdim=True).mul_(_column(mean))
    base = torch.addcmul(average, base, _column(grey))
    images.mul_(_column(keep)).add_(base).clamp_(0, 1)


def _rotate_hue(images: Tensor, shift: Tensor) -> None:
    """In place: turn the hue of RGB images by ``shift[b]`` of a full circle."""
    red, green, blue = images[:, :1], images[:, 1:2], images[:, 2:]
    high = torch.maximum(torch.maximum(red, green), blue)
    low = torch.minimum(torch.minimum(red, green), blue)
    chroma = high - low
    scale = chroma.clamp(min=1e-12).reciprocal_()
    # hue in sixths of the circle, with the same precedence as HSV's usual definition when channels tie
    hue = (red - green).mul_(scale).add_(4)
    hue = torch.where(high == green, (blue - red).mul_(scale).add_(2), hue)
    hue = torch.where(high == red, (green - blue).mul_(scale), hue)
    hue.add_(_column(6 * shift))
    hue.sub_((hue / 6).floor_().mul_(6))
    # each channel is a trapezoid of the hue between ``low`` and ``low + chroma``: no case distinction
    torch.addcmul(low, chroma, (hue - 3).abs_().sub_(1).clamp_(0, 1), out=red)
    torch.addcmul(low, chroma, (hue - 2).abs_().neg_().add_(2).clamp_(0, 1), out=green)
    torch.addcmul(low, chroma, hue.sub_(4).abs_().neg_().add_(2).clamp_(0, 1), out=blue)


def jitter_(images: Tensor, factors: Tensor, order: Tensor, *, hue: bool = True) -> Tensor:
    """Brightness, contrast, saturation and hue, in an order of its own for each image ``[B, C, H, W]``; in place.

    Three passes of :func:`_blend`, one hue rotation and three more passes contain every order; passes that an image
    does not need get coefficients that change nothing. For ``factors`` and ``order`` see
    :class:`contrastlab.pictures.augmentations.ViewDraws`; without ``hue`` the rotation, whose factors are 0, is left
    out.
    """
    colour = images.shape[1] == 3
    keep = factors.gather(1, order)
    grey = (1 - keep).where(order == SATURATION, 0.0)
    mean = (1 - keep).where(order == CONTRAST, 0.0)
    unused = order == HUE
    if not colour:
        unused = unused | (order == SATURATION)
        grey = torch.zeros_like(grey)
    keep = keep.masked_fill(unused, 1.0)

    if not (hue and colour):
        # three operations at most, in the same relative order: move the unused positions to the end
        used = torch.argsort(unused.to(torch.uint8), dim=1, stable=True)[:, : 3 if colour else 2]
        keep, grey, mean = keep.gather(1, used), grey.gather(1, used), mean.gather(1, used)
        for k in range(used.shape[1]):
            _blend(images, keep[:, k], grey[:, k], mean[:, k])
        return images

    position = torch.arange(4, device=order.device)
    slot = torch.where(unused, position, 0).sum(1, keepdim=True)  # where the hue rotation stands
    on_device = not host.holds(images.device)  # only a CPU can look whether a pass is needed without waiting

    def passes(active: Tensor, positions: range) -> None:
        factor, to_grey, to_mean = keep.where(active, 1.0), grey.where(active, 0.0), mean.where(active, 0.0)
        for k in positions:
            if on_device or bool(active[:, k].any()):
                _blend(images, factor[:, k], to_grey[:, k], to_mean[:, k])

    passes(position < slot, range(3))
    _rotate_hue(images, factors[:, HUE])
    passes(position > slot, range(1, 4))
    return images


def gaussian_blur(images: Tensor, sigma: Tensor, kernel: int) -> Tensor:
    """Separable Gaussian blur of ``[B, C, H, W]`` with reflected borders, one standard deviation per image.

    Both directions are products with a banded matrix that has the reflection folded in, so the cost does not depend
    on the kernel, an odd number of taps with ``kernel // 2 < min(H, W)``. A ``sigma`` of 0 leaves an image as it is.
    """
    height, width = images.shape[2:]
    taps = torch.arange(kernel // 2 + 1, device=images.device, dtype=torch.float32)
    weights = torch.exp(-0.5 * (taps / sigma.to(torch.float32).clamp(min=1e-3)[:, None]) ** 2)
    weights = weights / (2 * weights.sum(1, keepdim=True) - weights[:, :1])
    with torch.autocast(images.device.type, enabled=False):
        bands = {s: (weights @ _bands(s, kernel // 2, images.device)).view(-1, s, s) for s in {height, width}}
    return _resample(images, bands[height], bands[width])


def _bands(size: int, radius: int, device: torch.device) -> Tensor:
    """``[radius + 1, size * size]``: how often input ``i`` is met at distance ``d`` from output ``o``."""
    index = torch.arange(size, device=device)
    output, source = index[:, None], index[None, :]
    distance = torch.arange(radius + 1, device=device)[:, None, None]
    direct = (output - source).abs() == distance
    # pixel i > 0 is seen again at -i, and pixel i < size - 1 again at 2 (size - 1) - i
    left = (output + source == distance) & (source > 0)
    right = (2 * (size - 1) - source - output == distance) & (source < size - 1)
    return (direct.float() + left + right).view(radius + 1, size * size)


# RandAugment ----------------------------------------------------------------------------------------------------------
# As in the later code of CMC's authors (Cubuk et al. 2019; names and ranges are timm's). Each of n operations is drawn
# with replacement and applied with probability 1/2, at a level from a normal distribution around the full strength, 10,
# with deviation 0.5, cut off there. Operations on colours, which would change what one view of a colour split says of
# the other, are left out. The operations are torchvision's.

_FILL = [124 / 255, 116 / 255, 104 / 255]  # the mean colour of ImageNet in 8 bits
_STRENGTH, _SPREAD, _APPLIED = 10.0, 0.5, 0.5


def _moved(
    x: Tensor, *, degrees: float = 0.0, shift: tuple[float, float] = (0.0, 0.0),
    slope: tuple[float, float] = (0.0, 0.0),
) -> Tensor:  # fmt: skip
    """Rotated about the centre, shifted by fractions of its sides, or sheared with the first corner fixed."""
    moved: Tensor = v2.affine(
        x, angle=degrees, translate=[shift[0] * x.shape[2], shift[1] * x.shape[1]], scale=1.0,
        shear=[math.degrees(math.atan(s)) for s in slope], interpolation=InterpolationMode.BILINEAR,
        fill=_FILL[: x.shape[0]], center=[0.0, 0.0] if any(slope) else None,
    )  # fmt: skip
    return moved


RANDAUGMENT: Mapping[str, Callable[[Tensor, float, float], Tensor]] = MappingProxyType({
    "AutoContrast": lambda x, level, sign: v2.autocontrast(x),
    "Identity": lambda x, level, sign: x,
    "Rotate": lambda x, level, sign: _moved(x, degrees=30 * level * sign),
    "Sharpness": lambda x, level, sign: v2.adjust_sharpness(x, 0.1 + 1.8 * level),
    "ShearX": lambda x, level, sign: _moved(x, slope=(0.3 * level * sign, 0.0)),
    "ShearY": lambda x, level, sign: _moved(x, slope=(0.0, 0.3 * level * sign)),
    "TranslateX": lambda x, level, sign: _moved(x, shift=(0.45 * level * sign, 0.0)),
    "TranslateY": lambda x, level, sign: _moved(x, shift=(0.0, 0.45 * level * sign)),
})  # fmt: skip
"""Name to a function of an image ``[C, H, W]`` in [0, 1], a level from 0 to 1 and a sign, -1 or 1."""


def sample_operations(
    count: int, number: int, *, generator: torch.Generator | None, device: torch.device | str | None
) -> Tensor:
    """``[count, number, 3]`` of (operation or -1 for none, level from 0 to 1, sign), applied one after the other."""
    unit = torch.rand(3, count, number, generator=generator, device=device)
    level = torch.randn(count, number, generator=generator, device=device) * _SPREAD + _STRENGTH
    which = (unit[0] * len(RANDAUGMENT)).floor().clamp(max=len(RANDAUGMENT) - 1)
    which = which.where(unit[1] < _APPLIED, -1.0)
    return torch.stack([which, level.clamp(0, _STRENGTH) / _STRENGTH, (unit[2] < 0.5).float() * 2 - 1], -1)


def randaugment(images: Tensor, operations: Tensor) -> Tensor:
    """``[B, C, H, W]`` images in [0, 1] after the ``[B, n, 3]`` operations of :func:`sample_operations`.

    A CPU computes the operations that each image needs, image by image. Elsewhere a loop would wait for the numbers of
    every image: there all images go through all operations, and each keeps the result of its own.
    """
    if len(images) == 0 or host.holds(images.device):
        return _randaugment_by_image(images, operations)
    for step in operations.unbind(1):
        images = _randaugment_step(images, which=step[:, 0], level=step[:, 1], sign=step[:, 2])
    return images


def _randaugment_by_image(images: Tensor, operations: Tensor) -> Tensor:
    functions = tuple(RANDAUGMENT.values())
    out = []
    for image, steps in zip(images, operations.tolist(), strict=True):
        for which, level, sign in steps:
            if which >= 0:
                image = functions[int(which)](image, level, sign)
        out.append(image)
    return torch.stack(out) if out else images


def _randaugment_step(images: Tensor, *, which: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    """One operation on each image: number ``which[b]`` of :data:`RANDAUGMENT`, none where that is -1."""
    index = {name: number for number, name in enumerate(RANDAUGMENT)}

    def drawn(name: str) -> Tensor:
        return which == index[name]

    def amount(name: str, most: float) -> Tensor:
        return (most * level * sign).where(drawn(name), 0.0)

    moved = drawn("Rotate") | drawn("ShearX") | drawn("ShearY") | drawn("TranslateX") | drawn("TranslateY")
    geometry = _moved_batch(
        images,
        radians=torch.deg2rad(amount("Rotate", 30.0)),
        slope_x=amount("ShearX", 0.3),
        slope_y=amount("ShearY", 0.3),
        shift_x=amount("TranslateX", 0.45),
        shift_y=amount("TranslateY", 0.45),
    )
    contrast = v2.autocontrast(images)
    factor = _column(0.1 + 1.8 * level)
    sharp = (factor * images + (1 - factor) * _smooth(images)).clamp(0, 1)

    result = torch.where(_column(moved), geometry, images)
    result = torch.where(_column(drawn("AutoContrast")), contrast, result)
    return torch.where(_column(drawn("Sharpness")), sharp, result)


def _smooth(images: Tensor) -> Tensor:
    """Each pixel with weight 5 and its eight neighbours with weight 1, over 13; pixels of the border stay."""
    smooth = images.clone()
    if min(images.shape[2:]) > 2:
        inner = smooth[:, :, 1:-1, 1:-1]
        inner.copy_((9 * F.avg_pool2d(images, 3, stride=1) + 4 * inner) / 13)
    return smooth


def _moved_batch(
    images: Tensor, *, radians: Tensor, slope_x: Tensor, slope_y: Tensor, shift_x: Tensor, shift_y: Tensor
) -> Tensor:
    """:func:`_moved` with numbers ``[B]`` for each image, of which one kind at most differs from 0.

    Coordinates have their origin in the centre and run from -1 to 1, so that half a side is 1. The first corner stays
    where it is in a shear.
    """
    count, channels, height, width = images.shape
    cosine, sine = radians.cos(), radians.sin()
    wide = width / height
    to_x = torch.stack([cosine, (sine + slope_x) / wide, slope_x / wide - 2 * shift_x], 1)
    to_y = torch.stack([(slope_y - sine) * wide, cosine, slope_y * wide - 2 * shift_y], 1)
    with torch.autocast(images.device.type, enabled=False):
        grid = F.affine_grid(torch.stack([to_x, to_y], 1), [count, channels, height, width], align_corners=False)
        inside = torch.ones_like(images[:, :1])
        sampled = F.grid_sample(torch.cat([images, inside], 1), grid, mode="bilinear", align_corners=False)
    covered = sampled[:, channels:]
    fill = torch.tensor(_FILL[:channels]).to(images.device, non_blocking=True)[None, :, None, None]
    return sampled[:, :channels] * covered + fill * (1 - covered)
