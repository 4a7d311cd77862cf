"""Crop, resize and flip a batch, one box per image, as two batched matrix products.

Bilinear resampling is separable and linear: an output row is a weighted sum of input rows, an output
column of input columns. With the weights of image ``b`` in ``Wy[b]`` and ``Wx[b]``, crop and resize
together are ``Wy @ image @ Wx.T``; a flip reverses the rows of ``Wx``. No loop over images, no
gather, no host synchronisation, and the antialiased (triangle) filter comes for free.
"""

from __future__ import annotations

import torch
from torch import Tensor

from contrastlab import errors


def _weights(
    start: Tensor,
    length: Tensor,
    source: int,
    size: int,
    window: tuple[int, int] | None = None,
    flip: Tensor | None = None,
) -> Tensor:
    """Triangle-filter weights that resample ``[start, start + length)`` of ``source`` pixels to ``size``.

    ``window=(first, count)`` keeps only these output positions. Returns ``[B, count, source]``; every
    row sums to one. Pixels outside the interval weigh nothing, as if the crop had been cut out first.
    """
    first, count = window or (0, size)
    start, length = start.to(torch.float32)[:, None], length.to(torch.float32)[:, None]
    scale = length / size
    output = torch.arange(first, first + count, device=start.device, dtype=torch.float32)[None] + 0.5
    if flip is not None:
        output = torch.where(flip[:, None], size - output, output)
    pixel = torch.arange(source, device=start.device, dtype=torch.float32) + 0.5
    centre = torch.addcmul(start, scale, output)[:, :, None]
    # The filter is one input pixel wide when enlarging and one output pixel wide when shrinking.
    weights = (pixel - centre).abs_().mul_(scale.clamp(min=1).reciprocal().neg_()[:, :, None]).add_(1).clamp_(min=0)
    weights *= ((pixel > start) & (pixel < start + length))[:, None, :]
    return weights / weights.sum(-1, keepdim=True)


def _resample(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """``rows @ image @ columns.T`` for every image and channel, in float32 even under autocast."""
    count, channels, height, width = images.shape
    result = images.new_empty(count, channels, rows.shape[1], columns.shape[1], dtype=torch.float32)
    with torch.autocast(images.device.type, enabled=False):
        half = torch.bmm(images.reshape(count, channels * height, width).to(torch.float32), columns.transpose(1, 2))
        half = half.view(count, channels, height, columns.shape[1])
        for channel in range(channels):  # a view per channel: expanding ``rows`` to [B, C, ...] would copy it
            result[:, channel] = torch.bmm(rows, half[:, channel])
    return result


def _check(images: Tensor) -> None:
    if images.dim() != 4 or min(images.shape[1:]) < 1:
        raise errors.reject("images.shape", tuple(images.shape), "[B, C, H, W] with C, H, W >= 1")


def crop_resize(images: Tensor, boxes: Tensor, size: int, flip: Tensor | None = None) -> Tensor:
    """Cut one box out of each image, resize it to a square and flip it left-right where asked.

    Equal to torchvision's ``resized_crop`` with antialiased bilinear interpolation (and then
    ``horizontal_flip``) on float images, image by image.

    Args:
        images: ``[B, C, H, W]``, uint8 or floating; the values keep their range.
        boxes: ``[B, 4]`` of (top, left, height, width) in pixels, inside the image (not checked:
            that would stop a GPU).
        size: output side in pixels.
        flip: ``[B]`` boolean, or None.

    Returns:
        float32 ``[B, C, size, size]``.

    Raises:
        ArgumentError: for other shapes or ``size < 1``.
    """
    _check(images)
    if size < 1:
        raise errors.reject("size", size, "an integer >= 1")
    if boxes.shape != (images.shape[0], 4):
        raise errors.reject("boxes.shape", tuple(boxes.shape), f"({images.shape[0]}, 4): one box per image")
    top, left, height, width = boxes.unbind(1)
    rows = _weights(top, height, images.shape[2], size)
    columns = _weights(left, width, images.shape[3], size, flip=flip)
    return _resample(images, rows, columns)


def resize_center(images: Tensor, resize: int | None, size: int) -> Tensor:
    """Resize the shorter side to ``resize`` (antialiased bilinear), then cut out the central square.

    Equal to torchvision's ``Resize(resize)`` and ``CenterCrop(size)`` on float images; only the kept
    pixels are computed.

    Args:
        images: ``[B, C, H, W]``, uint8 or floating; the values keep their range.
        resize: new length of the shorter side; None leaves the images as they are.
        size: side of the square, at most the resized sides.

    Returns:
        float32 ``[B, C, size, size]``.

    Raises:
        ArgumentError: for other shapes, or a square larger than the resized image.
    """
    _check(images)
    height, width = images.shape[2:]
    short = min(height, width)
    if resize is None:
        new_height, new_width = height, width
    else:  # the longer side is truncated, as torchvision does
        new_height, new_width = (resize * side // short if side > short else resize for side in (height, width))
    if not 1 <= size <= min(new_height, new_width):
        raise errors.reject("size", size, f"1 to the shorter side after resizing, {min(new_height, new_width)}")
    top, left = round((new_height - size) / 2), round((new_width - size) / 2)
    if (new_height, new_width) == (height, width):
        return images[:, :, top : top + size, left : left + size].to(torch.float32)
    zero = torch.zeros(1, device=images.device)
    rows = _weights(zero, zero + height, height, new_height, (top, size))
    columns = _weights(zero, zero + width, width, new_width, (left, size))
    return _resample(images, rows.expand(len(images), -1, -1), columns.expand(len(images), -1, -1))
