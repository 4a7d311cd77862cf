"""Optical flow: TV-L1 between frames, eight bits a component, and estimates that are kept on disk.

Flow is in pixels of the frame, (x to the right, y down), from a frame to the next one.
"""

from __future__ import annotations

import hashlib
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from contrastlab.support import files
from contrastlab.support.errors import CorruptFileError, check, import_extra
from contrastlab.support.paths import cache_folder

ZERO = 128  # the level of rest
_STEPS = 127  # levels from rest to the bound
_KEEP_EVERY = 100  # clips between writes of an estimate that is being made
_ATTACHMENT = 0.15 * 255  # weight of the data against that of smoothness


def quantise(flow: Tensor, bound: float) -> Tensor:
    """Flow in pixels a frame as uint8, as two-stream networks are given it (Simonyan and Zisserman 2014, §5).

    128 is rest, and a step is ``bound / 127`` pixels; what is faster than ``bound`` pixels a frame is cut off there.
    """
    check(bound > 0, "bound", bound, "a number of pixels > 0")
    steps = (flow * (_STEPS / bound)).round().clamp(-_STEPS, _STEPS)
    return steps.add(ZERO).to(torch.uint8)


def restore(levels: Tensor, bound: float = 1.0) -> Tensor:
    """Float32 flow from eight bits, the inverse of :func:`quantise`; by default as fractions of the bound."""
    return (levels.float() - ZERO) * (bound / _STEPS)


def tvl1(frames: Tensor) -> Tensor:
    """TV-L1 flow (Zach, Pock and Bischof 2007) from each frame to the next: float32 ``[T − 1, 2, H, W]``, (x, y).

    ``frames`` are uint8 ``[T, C, H, W]``, C 1 or 3; colours are weighted to grey as television does (BT.601). The
    parameters are scikit-image's but the weight of the data, OpenCV's 0.15 on levels to 255, as in two-stream networks.
    """
    optical_flow_tvl1 = import_extra("skimage.registration", "video").optical_flow_tvl1
    has_pictures = frames.dtype == torch.uint8 and frames.ndim == 4 and frames.shape[1] in (1, 3)
    form = f"{frames.dtype} of shape {tuple(frames.shape)}"
    check(has_pictures, "frames", form, "uint8 of shape [T, C, H, W] with C 1 or 3")
    grey = _grey(frames).numpy()
    flows = np.zeros((len(grey) - 1, 2, *grey.shape[1:]), dtype=np.float32)
    for number, (first, second) in enumerate(pairwise(grey)):
        # from a pixel of the first image to where it is in the second; scikit-image gives rows before columns
        down_and_right = optical_flow_tvl1(first, second, attachment=_ATTACHMENT)
        flows[number] = down_and_right[::-1]
    return torch.from_numpy(flows)


def _grey(frames: Tensor) -> Tensor:
    """``[T, H, W]`` in [0, 1] of uint8 frames ``[T, C, H, W]``."""
    weights = torch.ones(1)
    if frames.shape[1] == 3:
        weights = torch.tensor([0.299, 0.587, 0.114])
    weighted = (frames.float() / 255) * weights[:, None, None]
    return weighted.sum(1)


def cached_tvl1(clips: Tensor, bound: float, folder: Path | None = None) -> Tensor:
    """Eight-bit TV-L1 flow ``[N, T, 2, H, W]`` of uint8 clips ``[N, T, 3, H, W]``, rest for the last frame.

    It is estimated once and kept in ``folder``, by default ``flow`` in
    :func:`~contrastlab.support.paths.cache_folder`, in a file named after pixels and bound. An interrupted
    estimate goes on where it was.
    """
    folder = folder or cache_folder() / "flow"
    path = folder / f"{_digest(clips, bound)}.safetensors"
    count, frames, _, height, width = clips.shape
    done = 0
    shape = (count, frames, 2, height, width)
    levels = torch.full(shape, ZERO, dtype=torch.uint8)
    if path.exists():
        stored, values = files.read_tensors(path)
        if values.get("of", path.stem) != path.stem:
            raise CorruptFileError(f"{path} is of other clips; delete it to estimate their flow anew")
        done = int(values["clips"])
        levels = stored["flow"]
    while done < count:
        levels[done, :-1] = quantise(tvl1(clips[done]), bound)
        done += 1
        if done % _KEEP_EVERY == 0 or done == count:
            values = {"clips": done, "of": path.stem}
            files.write_tensors(path, {"flow": levels}, values)
    return levels


def _digest(clips: Tensor, bound: float) -> str:
    """24 hexadecimal digits of the SHA-256 of pixels and bound."""
    digest = hashlib.sha256(f"tvl1 {bound:g} {tuple(clips.shape)}".encode())
    digest.update(clips.contiguous().numpy().data)
    return digest.hexdigest()[:24]
