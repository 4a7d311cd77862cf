"""A distribution over views of images, as data, and its application to whole batches.

Every image of a batch gets draws of its own, on the device the batch is on. The operations with fixed parameters are in
``geometry`` and ``photometry``, the samplers of their parameters in ``sampling``; all equal torchvision's. Matrix
products run in float32; with PyTorch's TF32 switched on they are rounded to 1/2000.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from contrastlab import errors
from contrastlab.colour import check_images, standardise
from contrastlab.data.images import photometry, randaugment
from contrastlab.data.images.geometry import crop_resize, resize_center
from contrastlab.data.images.randaugment import Space
from contrastlab.data.images.sampling import ViewDraws, draw_device, sample_boxes, sample_jitter, uniform
from contrastlab.views.jigsaw import PUZZLE_SCALE

_CHUNK = 1 << 18  # output values processed together on a CPU: their float32 stay in the second-level cache

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
    (and grayscale), then Gaussian blur, then RandAugment. Every image of a batch gets draws of its own.

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
        randaugment: operations of RandAugment on each image; 0 for none.
        randaugment_space: ``"geometry"`` for views of a colour split, or ``"all"``.
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
    randaugment: int = 0
    randaugment_space: Space = "geometry"
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
        if self.randaugment < 0:
            raise errors.reject("randaugment", self.randaugment, "a number of operations >= 0")
        if self.randaugment_space not in randaugment.OPERATIONS:
            raise errors.reject("randaugment_space", self.randaugment_space, "'geometry' or 'all'")
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

    def random(self, images: Tensor, rng: torch.Generator | None = None, *, view: int = 0) -> Tensor:
        """One random view of each image, drawn independently, on the images' device.

        Args:
            images: uint8 ``[B, C, H, W]``, ``C`` 1 or 3; or random resized crops made where the pictures were decoded,
                ``[B, V, C, size, size]``, one for each view: these are flipped, coloured and blurred only.
            rng: the only source of randomness, on the images' device; None is that device's default.
            view: number of the view, which chooses among ready crops.

        Returns:
            float32 ``[B, C, size, size]`` in [0, 1].

        Raises:
            ArgumentError: for another dtype or shape, or a generator of another device.
        """
        cropped = images.dim() == 5
        if cropped and view >= images.shape[1]:
            raise errors.reject(
                "images.shape", tuple(images.shape), f"[B, V, C, size, size] with V > {view}: a crop a view"
            )
        pictures = images[:, view] if cropped else images
        check_images(pictures, floating=False)
        count, _, height, width = pictures.shape
        return apply(pictures, self, self.sample(count, height, width, rng, images.device), cropped=cropped)

    def sample(
        self,
        count: int,
        height: int,
        width: int,
        rng: torch.Generator | None = None,
        device: torch.device | str | None = None,
    ) -> ViewDraws:
        """All random parameters of one view of each of ``count`` images.

        The same numbers are consumed whatever the recipe, so two recipes with one seed crop alike; RandAugment alone
        draws more, and after all others.

        Args:
            count: number of images B.
            height: height of the images in pixels.
            width: width of the images in pixels.
            rng: source of the draws; None is the device's default.
            device: where to draw; None is the generator's.

        Returns:
            The :class:`ViewDraws`, on ``device``.

        Raises:
            ArgumentError: for a generator of another device.
        """
        device = draw_device(rng, device)
        boxes = sample_boxes(
            count, height, width, scale=self.scale, ratio=self.ratio, generator=rng, device=device
        )  # fmt: skip
        factors, order = sample_jitter(count, self.jitter, p=self.jitter_p, generator=rng, device=device)
        flip, grey, blur, sigma = torch.rand(4, count, generator=rng, device=device)
        sigma = uniform(*self.blur_sigma, sigma).where(blur < self.blur, 0.0)
        operations = boxes.new_zeros(count, 0, 3, dtype=torch.float32)
        if self.randaugment:
            operations = randaugment.sample_operations(
                count, self.randaugment, self.randaugment_space, generator=rng, device=device
            )
        return ViewDraws(boxes, flip < self.flip, factors, order, grey < self.grayscale, sigma, operations)

    def plain(self, images: Tensor) -> Tensor:
        """The test-time view: shorter side to ``resize``, central square of ``size``; no randomness.

        Args:
            images: uint8 ``[B, C, H, W]``, ``C`` 1 or 3.

        Returns:
            float32 ``[B, C, size, size]`` in [0, 1].

        Raises:
            ArgumentError: for another dtype or shape, or images smaller than ``size`` when ``resize`` is None.
        """
        check_images(images, floating=False)
        return resize_center(images, self.resize, self.size).mul_(1 / 255).clamp_(0, 1)

    def puzzle(self, side: int, *, whole: bool = False) -> Augmentation:
        """The view that a jigsaw is cut from: another crop, flipped or not, in its own colours.

        Args:
            side: of the view in pixels.
            whole: the images are crops already.
        """
        scale, ratio = ((1.0, 1.0), (1.0, 1.0)) if whole else (PUZZLE_SCALE, self.ratio)
        return replace(
            self, size=side, scale=scale, ratio=ratio, jitter=(0.0, 0.0, 0.0, 0.0), grayscale=0.0, blur=0.0,
            blur_kernel=None, randaugment=0, resize=None,
        )  # fmt: skip

    def normalise(self, images: Tensor) -> Tensor:
        """Subtract the mean and divide by the standard deviation, per channel.

        Grey images with three-channel statistics use their averages.

        Args:
            images: floating ``[B, C, H, W]`` in [0, 1].

        Returns:
            Images of the same shape and dtype.

        Raises:
            ArgumentError: for another shape or an integer dtype.
        """
        check_images(images, floating=True)
        mean, std = self.mean, self.std
        if images.shape[1] == 1 and len(mean) == 3:
            mean, std = (sum(mean) / 3,), (sum(std) / 3,)
        return standardise(images, mean, std)


def apply(images: Tensor, a: Augmentation, draws: ViewDraws, *, cropped: bool = False) -> Tensor:
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


def _apply(images: Tensor, a: Augmentation, draws: ViewDraws, cropped: bool) -> Tensor:
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
    if a.randaugment:
        views = randaugment.randaugment(views.clamp_(0, 1), draws.operations, a.randaugment_space)
    return views.clamp_(0, 1)  # rounding of the resampling may leave [0, 1] by 1e-7
