"""Operations on batches of images, one set of parameters per image; all equal torchvision's on float images in [0, 1].

Nothing waits for a GPU, and only RandAugment on a CPU loops over images. Grey images have no saturation and no hue.
Matrix products run in float32 under autocast, too; PyTorch's TF32 would round them to 1/2000.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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


def _resampling_weights(start: Tensor, length: Tensor, source: int, size: int, flip: Tensor | None = None) -> Tensor:
    """``[B, size, source]``: triangle-filter weights that resample ``[start, start + length)`` to ``size`` pixels."""
    start = start.to(torch.float32)[:, None]
    length = length.to(torch.float32)[:, None]
    scale = length / size
    output = torch.arange(size, device=start.device, dtype=torch.float32)[None] + 0.5
    if flip is not None:
        output = torch.where(flip[:, None], size - output, output)
    centre = torch.addcmul(start, scale, output)[:, :, None]
    pixel = torch.arange(source, device=start.device, dtype=torch.float32) + 0.5
    # the filter is one input pixel wide when enlarging and one output pixel wide when shrinking
    slope = scale.clamp(min=1).reciprocal().neg_()[:, :, None]
    weights = (pixel - centre).abs_()
    weights.mul_(slope).add_(1).clamp_(min=0)
    in_box = (pixel > start) & (pixel < start + length)
    weights *= in_box[:, None, :]
    return weights / weights.sum(-1, keepdim=True)


def _resample(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """``rows @ image @ columns.T`` for every image and channel."""
    count, channels, height, width = images.shape
    new_height = rows.shape[1]
    new_width = columns.shape[1]
    result = images.new_empty(count, channels, new_height, new_width, dtype=torch.float32)
    with torch.autocast(images.device.type, enabled=False):
        lines = images.reshape(count, channels * height, width).to(torch.float32)
        narrowed = torch.bmm(lines, columns.transpose(1, 2))
        narrowed = narrowed.view(count, channels, height, new_width)
        # one product for each channel, as expanding ``rows`` to [B, C, ...] would copy it
        for channel in range(channels):
            result[:, channel] = torch.bmm(rows, narrowed[:, channel])
    return result


def crop_resize(images: Tensor, boxes: Tensor, size: int, flip: Tensor | None = None) -> Tensor:
    """One box out of each image ``[B, C, H, W]``, resized to float32 ``[B, C, size, size]`` and flipped left-right.

    Equal to torchvision's ``resized_crop`` (antialiased bilinear) and ``horizontal_flip``; the values keep their range.
    ``boxes`` are ``[B, 4]`` of (top, left, height, width) in pixels, inside the image; ``flip`` is ``[B]`` boolean.
    """
    top, left, height, width = boxes.unbind(1)
    rows = _resampling_weights(top, height, images.shape[2], size)
    columns = _resampling_weights(left, width, images.shape[3], size, flip)
    return _resample(images, rows, columns)


def resize_center(images: Tensor, resize: int | None, size: int) -> Tensor:
    """The central square, float32 ``[B, C, size, size]``: torchvision's ``Resize``, unless None, and ``CenterCrop``."""
    height, width = images.shape[2:]
    new_height = _resized(height, min(height, width), resize)
    new_width = _resized(width, min(height, width), resize)
    shorter = min(new_height, new_width)
    errors.check(1 <= size <= shorter, "size", size, f"1 to the shorter side after resizing, {shorter}")
    rows = _central(new_height, size)
    columns = _central(new_width, size)
    if (new_height, new_width) == (height, width):
        return images[:, :, rows, columns].to(torch.float32)
    row_weights = _resizing_weights(height, new_height, images.device)[:, rows]
    column_weights = _resizing_weights(width, new_width, images.device)[:, columns]
    count = len(images)
    return _resample(images, row_weights.expand(count, -1, -1), column_weights.expand(count, -1, -1))


def _resized(side: int, shorter: int, resize: int | None) -> int:
    """Length of a side once the shorter side has ``resize`` pixels; truncated, as torchvision does."""
    if resize is None:
        return side
    return resize * side // shorter


def _central(side: int, size: int) -> slice:
    """The central ``size`` pixels of a side."""
    start = round((side - size) / 2)
    return slice(start, start + size)


def _resizing_weights(source: int, size: int, device: torch.device) -> Tensor:
    """``[1, size, source]``: weights that resample a whole side."""
    zero = torch.zeros(1, device=device)
    return _resampling_weights(zero, zero + source, source, size)


# Colours and blur -----------------------------------------------------------------------------------------------------


def _column(value: Tensor) -> Tensor:
    return value[:, None, None, None]


def _luma(images: Tensor) -> Tensor:
    """Grey value ``[B, 1, H, W]``: of RGB with the weights of ITU-R 601 as torchvision rounds them, else the mean."""
    if images.shape[1] == 1:
        return images
    if images.shape[1] != 3:
        return images.mean(1, keepdim=True)
    red = images[:, :1]
    green = images[:, 1:2]
    blue = images[:, 2:]
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
    red = images[:, :1]
    green = images[:, 1:2]
    blue = images[:, 2:]
    high = torch.maximum(torch.maximum(red, green), blue)
    low = torch.minimum(torch.minimum(red, green), blue)
    chroma = high - low
    hue = _hue(red, green, blue, high, chroma)
    hue.add_(_column(6 * shift))
    hue.sub_((hue / 6).floor_().mul_(6))
    # each channel is a trapezoid of the hue between ``low`` and ``low + chroma``: no case distinction
    torch.addcmul(low, chroma, _far_from(hue, 3), out=red)
    torch.addcmul(low, chroma, _close_to(hue, 2), out=green)
    torch.addcmul(low, chroma, _close_to(hue, 4), out=blue)


def _hue(red: Tensor, green: Tensor, blue: Tensor, high: Tensor, chroma: Tensor) -> Tensor:
    """Hue in sixths of the circle, with the same precedence as HSV's usual definition when channels tie."""
    scale = chroma.clamp(min=1e-12).reciprocal_()
    hue = (red - green).mul_(scale).add_(4)
    hue = torch.where(high == green, (blue - red).mul_(scale).add_(2), hue)
    return torch.where(high == red, (green - blue).mul_(scale), hue)


def _close_to(hue: Tensor, centre: int) -> Tensor:
    """1 up to a distance of one sixth from ``centre``, then falling to 0 within a sixth."""
    return (hue - centre).abs_().neg_().add_(2).clamp_(0, 1)


def _far_from(hue: Tensor, centre: int) -> Tensor:
    """0 up to a distance of one sixth from ``centre``, then rising to 1 within a sixth."""
    return (hue - centre).abs_().sub_(1).clamp_(0, 1)


@dataclass(frozen=True)
class _Blends:
    """The coefficients of :func:`_blend` at each of the four places of an order, all ``[B, 4]``."""

    keep: Tensor
    grey: Tensor
    mean: Tensor

    def apply_(self, images: Tensor, place: int) -> None:
        """Blend each image in place, as it is blended at that place of its order."""
        _blend(images, self.keep[:, place], self.grey[:, place], self.mean[:, place])

    def gather(self, places: Tensor) -> _Blends:
        """The blends at some places ``[B, n]`` of each order."""
        return _Blends(
            keep=self.keep.gather(1, places),
            grey=self.grey.gather(1, places),
            mean=self.mean.gather(1, places),
        )

    def where(self, active: Tensor) -> _Blends:
        """The same blends, with coefficients that change nothing where ``active`` ``[B, 4]`` is false."""
        return _Blends(
            keep=self.keep.where(active, 1.0),
            grey=self.grey.where(active, 0.0),
            mean=self.mean.where(active, 0.0),
        )


def jitter_(images: Tensor, factors: Tensor, order: Tensor, *, hue: bool = True) -> Tensor:
    """Brightness, contrast, saturation and hue, in an order of its own for each image ``[B, C, H, W]``; in place.

    For ``factors`` and ``order`` see :class:`contrastlab.pictures.augmentations.ViewDraws`. Without ``hue`` the
    rotation, whose factors are 0, is left out.
    """
    colour = images.shape[1] == 3
    idle = order == HUE
    if not colour:
        idle = idle | (order == SATURATION)
    blends = _plan_blends(factors, order, idle, colour)
    if hue and colour:
        _blend_around_hue_(images, blends, order == HUE, factors[:, HUE])
    else:
        operations = 3 if colour else 2
        _blend_in_order_(images, blends, idle, operations)
    return images


def _plan_blends(factors: Tensor, order: Tensor, idle: Tensor, colour: bool) -> _Blends:
    """The blends of each image in its order; those at ``idle`` places change nothing."""
    keep = factors.gather(1, order)
    mean = (1 - keep).where(order == CONTRAST, 0.0)
    grey = torch.zeros_like(keep)
    if colour:
        grey = (1 - keep).where(order == SATURATION, 0.0)
    return _Blends(keep.masked_fill(idle, 1.0), grey, mean)


def _blend_in_order_(images: Tensor, blends: _Blends, idle: Tensor, operations: int) -> None:
    """The first ``operations`` blends of each image that are not idle, in place and in their order."""
    places = torch.argsort(idle.to(torch.uint8), dim=1, stable=True)[:, :operations]
    used = blends.gather(places)
    for place in range(operations):
        used.apply_(images, place)


def _blend_around_hue_(images: Tensor, blends: _Blends, is_hue: Tensor, shift: Tensor) -> None:
    """Blends before the hue, the rotation of the hue, and blends behind it, in place.

    Three passes before the rotation and three behind it contain every order. Passes that an image does not need change
    nothing of it.
    """
    place = torch.arange(4, device=is_hue.device)
    hue_place = torch.where(is_hue, place, 0).sum(1, keepdim=True)
    _blend_where_(images, blends, place < hue_place, range(3))
    _rotate_hue(images, shift)
    _blend_where_(images, blends, place > hue_place, range(1, 4))


def _blend_where_(images: Tensor, blends: _Blends, active: Tensor, places: range) -> None:
    """The blends at ``places`` in place, of each image those that are ``active``, boolean ``[B, 4]``."""
    active_blends = blends.where(active)
    # only a CPU can look, without waiting, whether any image needs a pass
    can_look = host.holds(images.device)
    for place in places:
        if can_look and not bool(active[:, place].any()):
            continue
        active_blends.apply_(images, place)


def gaussian_blur(images: Tensor, sigma: Tensor, kernel: int) -> Tensor:
    """Separable Gaussian blur of ``[B, C, H, W]`` with reflected borders, one standard deviation per image.

    Both directions are products with a banded matrix that has the reflection folded in, so the cost does not depend
    on the kernel, an odd number of taps with ``kernel // 2 < min(H, W)``. A ``sigma`` of 0 leaves an image as it is.
    """
    height, width = images.shape[2:]
    distance = torch.arange(kernel // 2 + 1, device=images.device, dtype=torch.float32)
    deviation = sigma.to(torch.float32).clamp(min=1e-3)[:, None]
    taps = torch.exp(-0.5 * (distance / deviation) ** 2)
    taps = taps / (2 * taps.sum(1, keepdim=True) - taps[:, :1])
    rows = _blur_weights(taps, height)
    columns = rows
    if width != height:
        columns = _blur_weights(taps, width)
    return _resample(images, rows, columns)


def _blur_weights(taps: Tensor, size: int) -> Tensor:
    """``[B, size, size]``: weights that blur a side, from the taps ``[B, radius + 1]`` at distances 0, 1, ….

    Products are float32 under autocast, too.
    """
    radius = taps.shape[1] - 1
    with torch.autocast(taps.device.type, enabled=False):
        weights = taps @ _bands(size, radius, taps.device)
    return weights.view(-1, size, size)


def _bands(size: int, radius: int, device: torch.device) -> Tensor:
    """``[radius + 1, size * size]``: how often input ``i`` is met at distance ``d`` from output ``o``."""
    index = torch.arange(size, device=device)
    output = index[:, None]
    source = index[None, :]
    distance = torch.arange(radius + 1, device=device)[:, None, None]
    direct = (output - source).abs() == distance
    # pixel i > 0 is seen again at -i, and pixel i < size - 1 again at 2 (size - 1) - i
    last = size - 1
    left = (output + source == distance) & (source > 0)
    right = (2 * last - source - output == distance) & (source < last)
    return (direct.float() + left + right).view(radius + 1, size * size)


# RandAugment ----------------------------------------------------------------------------------------------------------
# As in the later code of CMC's authors (Cubuk et al. 2019; names and ranges are timm's). Each of n operations is drawn
# with replacement and applied with probability 1/2, at a level from a normal distribution around the full strength, 10,
# with deviation 0.5, cut off there. Operations on colours, which would change what one view of a colour split says of
# the other, are left out. The operations are torchvision's.

_FILL = [124 / 255, 116 / 255, 104 / 255]  # the mean colour of ImageNet in 8 bits
_STRENGTH = 10.0
_SPREAD = 0.5
_APPLIED = 0.5  # probability

_MOST_DEGREES = 30.0
_MOST_SLOPE = 0.3
_MOST_SHIFT = 0.45  # as a fraction of a side
_LEAST_SHARPNESS = 0.1
_SHARPNESS_RANGE = 1.8


def _auto_contrast(image: Tensor, level: float, sign: float) -> Tensor:
    contrasted: Tensor = v2.autocontrast(image)
    return contrasted


def _identity(image: Tensor, level: float, sign: float) -> Tensor:
    return image


def _sharpen(image: Tensor, level: float, sign: float) -> Tensor:
    sharpened: Tensor = v2.adjust_sharpness(image, _LEAST_SHARPNESS + _SHARPNESS_RANGE * level)
    return sharpened


def _rotate(image: Tensor, level: float, sign: float) -> Tensor:
    """Rotated about the centre."""
    return _affine(image, degrees=_MOST_DEGREES * level * sign)


def _shear_x(image: Tensor, level: float, sign: float) -> Tensor:
    return _shear(image, _MOST_SLOPE * level * sign, 0.0)


def _shear_y(image: Tensor, level: float, sign: float) -> Tensor:
    return _shear(image, 0.0, _MOST_SLOPE * level * sign)


def _shear(image: Tensor, slope_x: float, slope_y: float) -> Tensor:
    """Sheared with the first corner fixed."""
    if slope_x == slope_y == 0.0:
        return _affine(image)
    degrees_x = math.degrees(math.atan(slope_x))
    degrees_y = math.degrees(math.atan(slope_y))
    return _affine(image, shear=(degrees_x, degrees_y), center=[0.0, 0.0])


def _translate_x(image: Tensor, level: float, sign: float) -> Tensor:
    share = _MOST_SHIFT * level * sign
    return _affine(image, shift=(share * image.shape[2], 0.0))


def _translate_y(image: Tensor, level: float, sign: float) -> Tensor:
    share = _MOST_SHIFT * level * sign
    return _affine(image, shift=(0.0, share * image.shape[1]))


def _affine(
    image: Tensor,
    *,
    degrees: float = 0.0,
    shift: tuple[float, float] = (0.0, 0.0),
    shear: tuple[float, float] = (0.0, 0.0),
    center: list[float] | None = None,
) -> Tensor:
    """An affine map of an image, its angles in degrees and its shift in pixels."""
    moved: Tensor = v2.affine(
        image,
        angle=degrees,
        translate=list(shift),
        scale=1.0,
        shear=list(shear),
        interpolation=InterpolationMode.BILINEAR,
        fill=_FILL[: image.shape[0]],
        center=center,
    )
    return moved


RANDAUGMENT: Mapping[str, Callable[[Tensor, float, float], Tensor]] = MappingProxyType(
    {
        "AutoContrast": _auto_contrast,
        "Identity": _identity,
        "Rotate": _rotate,
        "Sharpness": _sharpen,
        "ShearX": _shear_x,
        "ShearY": _shear_y,
        "TranslateX": _translate_x,
        "TranslateY": _translate_y,
    }
)
"""Name to a function of an image ``[C, H, W]`` in [0, 1], a level from 0 to 1 and a sign, -1 or 1."""


def sample_operations(
    count: int, number: int, *, generator: torch.Generator | None, device: torch.device | str | None
) -> Tensor:
    """``[count, number, 3]`` of (operation or -1 for none, level from 0 to 1, sign), applied one after the other."""
    unit = torch.rand(3, count, number, generator=generator, device=device)
    strength = torch.randn(count, number, generator=generator, device=device) * _SPREAD + _STRENGTH
    kinds = len(RANDAUGMENT)
    which = (unit[0] * kinds).floor().clamp(max=kinds - 1)
    which = which.where(unit[1] < _APPLIED, -1.0)
    level = strength.clamp(0, _STRENGTH) / _STRENGTH
    sign = (unit[2] < 0.5).float() * 2 - 1
    return torch.stack([which, level, sign], -1)


def randaugment(images: Tensor, operations: Tensor) -> Tensor:
    """``[B, C, H, W]`` images in [0, 1] after the ``[B, n, 3]`` operations of :func:`sample_operations`.

    A CPU computes the operations that each image needs, image by image. On another device such a loop would wait for
    the numbers of every image, so there all images go through all operations, and each keeps the result of its own.
    """
    if len(images) == 0 or host.holds(images.device):
        return _randaugment_by_image(images, operations)
    for step in operations.unbind(1):
        images = _randaugment_step(images, which=step[:, 0], level=step[:, 1], sign=step[:, 2])
    return images


def _randaugment_by_image(images: Tensor, operations: Tensor) -> Tensor:
    if len(images) == 0:
        return images
    functions = tuple(RANDAUGMENT.values())
    results = []
    for image, steps in zip(images, operations.tolist(), strict=True):
        result = image
        for which, level, sign in steps:
            if which >= 0:
                result = functions[int(which)](result, level, sign)
        results.append(result)
    return torch.stack(results)


def _randaugment_step(images: Tensor, *, which: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    """One operation on each image: number ``which[b]`` of :data:`RANDAUGMENT`, none where that is -1."""
    drawn = {name: which == number for number, name in enumerate(RANDAUGMENT)}
    degrees = _MOST_DEGREES * level * sign
    slope = _MOST_SLOPE * level * sign
    shift = _MOST_SHIFT * level * sign
    geometry = _move(
        images,
        radians=torch.deg2rad(degrees.where(drawn["Rotate"], 0.0)),
        slope_x=slope.where(drawn["ShearX"], 0.0),
        slope_y=slope.where(drawn["ShearY"], 0.0),
        shift_x=shift.where(drawn["TranslateX"], 0.0),
        shift_y=shift.where(drawn["TranslateY"], 0.0),
    )
    contrast = v2.autocontrast(images)
    factor = _column(_LEAST_SHARPNESS + _SHARPNESS_RANGE * level)
    sharp = (factor * images + (1 - factor) * _smooth(images)).clamp(0, 1)

    sheared = drawn["ShearX"] | drawn["ShearY"]
    shifted = drawn["TranslateX"] | drawn["TranslateY"]
    moved = drawn["Rotate"] | sheared | shifted
    result = torch.where(_column(moved), geometry, images)
    result = torch.where(_column(drawn["AutoContrast"]), contrast, result)
    return torch.where(_column(drawn["Sharpness"]), sharp, result)


def _smooth(images: Tensor) -> Tensor:
    """Each pixel with weight 5 and its eight neighbours with weight 1, over 13; pixels of the border stay."""
    smooth = images.clone()
    if min(images.shape[2:]) > 2:
        inner = smooth[:, :, 1:-1, 1:-1]
        inner.copy_((9 * F.avg_pool2d(images, 3, stride=1) + 4 * inner) / 13)
    return smooth


def _move(
    images: Tensor, *, radians: Tensor, slope_x: Tensor, slope_y: Tensor, shift_x: Tensor, shift_y: Tensor
) -> Tensor:
    """Rotated, sheared or shifted by numbers ``[B]``, of which one kind at most differs from 0 for an image.

    Coordinates have their origin in the centre and run from -1 to 1, so that half a side is 1. The first corner stays
    where it is in a shear.
    """
    count, channels, height, width = images.shape
    cosine = radians.cos()
    sine = radians.sin()
    wide = width / height
    to_x = torch.stack([cosine, (sine + slope_x) / wide, slope_x / wide - 2 * shift_x], 1)
    to_y = torch.stack([(slope_y - sine) * wide, cosine, slope_y * wide - 2 * shift_y], 1)
    matrices = torch.stack([to_x, to_y], 1)
    inside = torch.ones_like(images[:, :1])
    with_inside = torch.cat([images, inside], 1)
    with torch.autocast(images.device.type, enabled=False):
        grid = F.affine_grid(matrices, [count, channels, height, width], align_corners=False)
        sampled = F.grid_sample(with_inside, grid, mode="bilinear", align_corners=False)
    moved = sampled[:, :channels]
    covered = sampled[:, channels:]
    fill = torch.tensor(_FILL[:channels]).to(images.device, non_blocking=True)[None, :, None, None]
    return moved * covered + fill * (1 - covered)
