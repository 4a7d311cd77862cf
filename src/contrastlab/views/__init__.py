"""Image batch to views: batched augmentation with per-image draws, on the device the batch is on.

``augment(images, augmentation("mocov2", 32), generator)`` takes and gives whole batches. The
operations with fixed parameters (:func:`crop_resize`, :func:`adjust_hue`, ...) and the samplers of
their parameters (:func:`sample_boxes`, ...) are public too, and equal torchvision's. The recipe parts
:class:`Augmented` and :class:`Split` say which views are compared.

Matrix products run in float32; with PyTorch's TF32 switched on they are rounded to 1/2000.
"""

from contrastlab.views.colour import rgb_to_lab, rgb_to_ydbdr
from contrastlab.views.geometry import crop_resize, resize_center
from contrastlab.views.parts import Augmented, Split
from contrastlab.views.photometry import (
    adjust_brightness,
    adjust_contrast,
    adjust_hue,
    adjust_saturation,
    gaussian_blur,
    grayscale,
    jitter,
)
from contrastlab.views.pipeline import apply, augment, center, normalise
from contrastlab.views.recipes import AUGMENTATIONS, Augmentation, augmentation
from contrastlab.views.sampling import Draws, sample, sample_boxes, sample_jitter

__all__ = [
    "AUGMENTATIONS",
    "Augmentation",
    "Augmented",
    "Draws",
    "Split",
    "adjust_brightness",
    "adjust_contrast",
    "adjust_hue",
    "adjust_saturation",
    "apply",
    "augment",
    "augmentation",
    "center",
    "crop_resize",
    "gaussian_blur",
    "grayscale",
    "jitter",
    "normalise",
    "resize_center",
    "rgb_to_lab",
    "rgb_to_ydbdr",
    "sample",
    "sample_boxes",
    "sample_jitter",
]
