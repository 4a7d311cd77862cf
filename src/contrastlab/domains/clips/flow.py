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

from contrastlab.pictures.limits import cache_folder
from contrastlab.support import files
from contrastlab.support.errors import CorruptFileError, check, import_extra

ZERO, _STEPS = 128, 127
_KEEP_EVERY = 100  # clips between writes of an estimate that is being made
_ATTACHMENT = 0.15 * 255  # weight of the data against that of smoothness


def quantise(flow: Tensor, bound: float) -> Tensor:
    """Flow in pixels a frame as uint8, as two-stream networks are given it (Simonyan and Zisserman 2014, §5).

    128 is rest, and a step is ``bound / 127`` pixels; what is faster than ``bound`` pixels a frame is cut off there.
    """
    check(bound > 0, "bound", bound, "a number of pixels > 0")
    return (flow * (_STEPS / bound)).round().clamp(-_STEPS, _STEPS).add(ZERO).to(torch.uint8)


def restore(levels: Tensor, bound: float = 1.0) -> Tensor:
    """Float32 flow from eight bits, the inverse of :func:`quantise`; by default as fractions of the bound."""
    return (levels.float() - ZERO) * (bound / _STEPS)


def tvl1(frames: Tensor) -> Tensor:
    """TV-L1 flow (Zach, Pock and Bischof 2007) from each frame to the next: float32 ``[T − 1, 2, H, W]``, (x, y).

    ``frames`` are uint8 ``[T, C, H, W]``, C 1 or 3; colours are weighted to grey as television does (BT.601). The
    parameters are scikit-image's but the weight of the data, OpenCV's 0.15 on levels to 255, as in two-stream networks.
    """
    optical_flow_tvl1 = import_extra("skimage.registration", "video").optical_flow_tvl1
    fit = frames.dtype == torch.uint8 and frames.ndim == 4 and frames.shape[1] in (1, 3)
    check(fit, "frames", f"{frames.dtype} of shape {tuple(frames.shape)}", "uint8 of shape [T, C, H, W] with C 1 or 3")
    weights = torch.tensor([0.299, 0.587, 0.114]) if frames.shape[1] == 3 else torch.ones(1)
    grey = ((frames.float() / 255) * weights[:, None, None]).sum(1).numpy()
    flows = np.zeros((len(grey) - 1, 2, *grey.shape[1:]), dtype=np.float32)
    for number, (first, second) in enumerate(pairwise(grey)):
        # from a pixel of the first image to where it is in the second; scikit-image gives rows before columns
        flows[number] = optical_flow_tvl1(first, second, attachment=_ATTACHMENT)[::-1]
    return torch.from_numpy(flows)


def cached_tvl1(clips: Tensor, bound: float, folder: Path | None = None) -> Tensor:
    """Eight-bit TV-L1 flow ``[N, T, 2, H, W]`` of uint8 clips ``[N, T, 3, H, W]``, rest for the last frame.

    It is estimated once and kept in ``folder``, by default ``flow`` in
    :func:`~contrastlab.pictures.limits.cache_folder`, in a file named after pixels and bound. An interrupted
    estimate goes on where it was.
    """
    digest = hashlib.sha256(f"tvl1 {bound:g} {tuple(clips.shape)}".encode())
    digest.update(clips.contiguous().numpy().data)
    path = (folder or cache_folder() / "flow") / f"{digest.hexdigest()[:24]}.safetensors"
    done, levels = 0, torch.full((*clips.shape[:2], 2, *clips.shape[3:]), ZERO, dtype=torch.uint8)
    if path.exists():
        stored, values = files.read_tensors(path)
        if values.get("of", path.stem) != path.stem:
            raise CorruptFileError(f"{path} is of other clips; delete it to estimate their flow anew")
        done, levels = int(values["clips"]), stored["flow"]
    for index in range(done, len(clips)):
        levels[index, :-1] = quantise(tvl1(clips[index]), bound)
        if (index + 1) % _KEEP_EVERY == 0 or index + 1 == len(clips):
            files.write_tensors(path, {"flow": levels}, {"clips": index + 1, "of": path.stem})
    return levels
