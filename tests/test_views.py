"""Views against torchvision and scikit-image at fixed parameters; samplers against torchvision's."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from scipy import stats
from skimage import color
from torch import Tensor
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as reference

from contrastlab.pictures import operations
from contrastlab.pictures.augmentations import (
    AUGMENTATIONS,
    IMAGENET_MEAN,
    IMAGENET_STD,
    Augmentation,
    ViewDraws,
    apply,
    augmentation,
    sample_boxes,
)
from contrastlab.support import errors
from contrastlab.views import Augmented, Split, colour
from made_runs import generator

pytestmark = pytest.mark.usefixtures("branch")

LEVEL = 1 / 255
MANY = 4000  # draws of one distribution


def noise(count: int, channels: int = 3, height: int = 32, width: int | None = None, seed: int = 0) -> Tensor:
    """Random uint8 images with a black, a white, a flat and a saturated one among them."""
    if width is None:
        width = height
    images = torch.randint(0, 256, (count, channels, height, width), dtype=torch.uint8, generator=generator(seed))
    if count >= 4:
        images[0] = 0
        images[1] = 255
        images[2] = 77
        images[3] = images[3] // 128 * 255
    return images


def close(ours: Tensor, theirs: Tensor, tolerance: float = LEVEL / 20) -> None:
    assert ours.shape == theirs.shape
    assert (ours - theirs).abs().max().item() <= tolerance


# Crop, resize and flip ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("height", "width", "size"),
    [(32, 32, 32), (32, 32, 224), (96, 96, 64), (96, 96, 13), (37, 61, 24), (8, 8, 8), (5, 3, 1)],
)
@pytest.mark.parametrize("channels", [1, 3])
def test_crop_resize_equals_torchvision(height, width, size, channels):
    count = 24
    images = noise(count, channels, height, width)
    boxes = sample_boxes(count, height, width, scale=(0.02, 1.0), ratio=(0.3, 3.0), generator=generator(1))
    boxes[0] = torch.tensor([0, 0, height, width])
    boxes[1] = torch.tensor([height - 1, width - 1, 1, 1])
    flip = torch.arange(count) % 2 == 1
    ours = operations.crop_resize(images, boxes, size, flip) / 255
    for index in range(count):
        top, left, box_height, box_width = boxes[index].tolist()
        expected = reference.resized_crop(
            images[index] / 255, top, left, box_height, box_width, [size, size], antialias=True
        )
        if flip[index]:
            expected = reference.horizontal_flip(expected)
        close(ours[index], expected)


@pytest.mark.parametrize(
    ("height", "width", "resize", "size"),
    [
        (32, 32, 256, 224),
        (32, 32, 32, 32),
        (300, 200, 256, 224),
        (100, 333, 73, 64),
        (100, 150, 73, 64),
        (96, 97, None, 64),
    ],
)
def test_center_equals_torchvision(height, width, resize, size):
    images = noise(3, 3, height, width)
    ours = Augmentation("test", size, resize=resize).plain(images)
    resized = images / 255
    if resize is not None:
        resized = reference.resize(resized, [resize], antialias=True)
    expected = reference.center_crop(resized, [size, size])
    close(ours, expected)
    assert ours.dtype == torch.float32


# Colours and blur -----------------------------------------------------------------------------------------------------

FACTORS = torch.tensor([0.0, 0.2, 0.6, 0.999, 1.0, 1.3, 1.8, 2.5])
ADJUST = {
    operations.BRIGHTNESS: reference.adjust_brightness,
    operations.CONTRAST: reference.adjust_contrast,
    operations.SATURATION: reference.adjust_saturation,
    operations.HUE: reference.adjust_hue,
}


def jittered(images: Tensor, operation: int, values: Tensor) -> Tensor:
    """One operation alone: those before and after it have the factors that change nothing."""
    count = len(images)
    factors = torch.tensor([1.0, 1.0, 1.0, 0.0]).repeat(count, 1)
    factors[:, operation] = values
    order = torch.arange(4).repeat(count, 1)
    return operations.jitter_(images.clone(), factors, order, hue=operation == operations.HUE)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", ["brightness", "contrast", "saturation"])
def test_factor_operations_equal_torchvision(name, channels):
    operation = getattr(operations, name.upper())
    images = noise(8, channels, 12, 15) / 255
    ours = jittered(images, operation, FACTORS)
    for index, factor in enumerate(FACTORS.tolist()):
        expected = ADJUST[operation](images[index], factor)
        close(ours[index], expected)


@pytest.mark.parametrize("channels", [1, 3])
def test_hue_equals_torchvision(channels):
    shifts = torch.tensor([-0.5, -0.31, -0.1, 0.0, 0.05, 0.17, 0.33, 0.5]).repeat(4)
    images = noise(32, channels, 40) / 255
    images[8:16, -1] = images[8:16, 0]  # ties between channels
    ours = jittered(images, operations.HUE, shifts)
    for index, shift in enumerate(shifts.tolist()):
        close(ours[index], reference.adjust_hue(images[index], shift))


def test_grayscale_equals_torchvision_where_it_is_chosen():
    images = noise(6) / 255
    chosen = torch.tensor([True, False, True, False, True, False])
    ours = operations.grayscale(images, chosen)
    close(ours[chosen], reference.rgb_to_grayscale(images[chosen], 3))
    assert torch.equal(ours[~chosen], images[~chosen])


@pytest.mark.parametrize(
    ("channels", "height", "width", "kernel"), [(3, 32, 32, 13), (1, 20, 31, 5), (3, 7, 9, 13), (3, 9, 9, 1)]
)
def test_blur_equals_torchvision(channels, height, width, kernel):
    sigmas = [0.1, 0.4, 1.0, 1.7, 2.0, 5.0]
    images = noise(6, channels, height, width) / 255
    ours = operations.gaussian_blur(images, torch.tensor(sigmas), kernel)
    for index, sigma in enumerate(sigmas):
        expected = reference.gaussian_blur(images[index], [kernel, kernel], [sigma, sigma])
        close(ours[index], expected)


def test_blur_of_zero_changes_nothing():
    images = noise(3) / 255
    blurred = operations.gaussian_blur(images, torch.zeros(3), 13)
    assert torch.equal(blurred, images)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("hue", [0.0, 0.4])
def test_jitter_applies_each_order_exactly(channels, hue):
    orders = torch.tensor([*itertools.permutations(range(4))])
    images = noise(24, channels, 9) / 255
    drawn = Augmentation("", 9, jitter=(0.8, 0.8, 0.8, hue)).sample(24, 9, 9, generator())
    ours = operations.jitter_(images.clone(), drawn.factors, orders, hue=hue > 0)
    for index in range(24):
        expected = images[index]
        for operation in orders[index].tolist():
            factor = drawn.factors[index, operation].item()
            expected = ADJUST[operation](expected, factor)
        close(ours[index], expected)


# A whole recipe -------------------------------------------------------------------------------------------------------


def looped(image: Tensor, a: Augmentation, draws: ViewDraws, index: int) -> Tensor:
    """One view, one torchvision operation after the other, in the papers' order."""
    top, left, height, width = draws.boxes[index].tolist()
    view = reference.resized_crop(image / 255, top, left, height, width, [a.size, a.size], antialias=True)
    turns_grey = len(image) == 3 and bool(draws.grayscale[index])
    if turns_grey and a.grayscale_first:
        view = reference.rgb_to_grayscale(view, 3)
    for operation in draws.order[index].tolist():
        factor = draws.factors[index, operation].item()
        view = ADJUST[operation](view, factor)
    if turns_grey and not a.grayscale_first:
        view = reference.rgb_to_grayscale(view, 3)
    sigma = draws.sigma[index].item()
    if sigma > 0:
        view = reference.gaussian_blur(view, [a.kernel, a.kernel], [sigma, sigma])
    if draws.flip[index]:
        view = reference.horizontal_flip(view)
    names = list(operations.RANDAUGMENT)
    for which, level, sign in draws.operations[index].tolist():
        if which >= 0:
            operation = operations.RANDAUGMENT[names[int(which)]]
            view = operation(view.clamp(0, 1), level, sign)
    return view


WHOLE_RECIPES = [(name, 32, 32) for name in AUGMENTATIONS] + [("simclr", 48, 96)]


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("name", "source", "size"), WHOLE_RECIPES)
def test_whole_recipe_equals_a_torchvision_loop(name, source, size, channels):
    a = augmentation(name, size)
    images = noise(40, channels, source)
    draws = a.sample(40, source, source, generator(3))
    ours = apply(images, a, draws)
    for index in range(40):
        expected = looped(images[index], a, draws, index)
        close(ours[index], expected, LEVEL / 4)


CROPS_OF_ONE_SIZE = "cmc_stl10"
ENLARGE = [name for name in AUGMENTATIONS if name != CROPS_OF_ONE_SIZE]
TO_SIDES = [
    *[(name, 8, 8) for name in AUGMENTATIONS],
    *[(name, 5, 1) for name in AUGMENTATIONS],
    *[(name, 32, 64) for name in ENLARGE],
]


@pytest.mark.parametrize(("name", "source", "size"), TO_SIDES)
@pytest.mark.parametrize("channels", [1, 3])
def test_every_recipe_gives_finite_values_in_range(name, source, size, channels):
    a = augmentation(name, size)
    images = noise(9, channels, source)
    for views in (a.random(images, generator()), a.plain(images)):
        assert views.shape == (9, channels, size, size)
        assert views.dtype == torch.float32
        assert views.min() >= 0
        assert views.max() <= 1
        assert bool(a.normalise(views).isfinite().all())
    no_views = a.random(images[:0], generator())
    assert no_views.shape == (0, channels, size, size)


def test_a_crop_of_fixed_size_is_not_cut_from_a_smaller_picture():
    a = augmentation(CROPS_OF_ONE_SIZE, 64)
    with pytest.raises(errors.ArgumentError, match="size=64: expected 1 to the shorter side after resizing, 32"):
        a.plain(noise(9, 3, 32))


def test_a_view_does_not_depend_on_its_neighbours_or_on_chunks():
    images = noise(200)  # more than one chunk on a CPU
    a = augmentation("mocov2", 32)
    draws = a.sample(200, 32, 32, generator())
    whole = apply(images, a, draws)
    for index in (0, 3, 99, 199):
        alone = slice(index, index + 1)
        close(apply(images[alone], a, draws[alone]), whole[alone], 1e-5)


def test_views_under_autocast_are_those_without_it():
    images = noise(8)
    a = augmentation("mocov2", 32)
    expected = a.random(images, generator())
    with torch.autocast("cpu", torch.bfloat16):
        views = a.random(images, generator())
    assert torch.equal(views, expected)


# RandAugment ----------------------------------------------------------------------------------------------------------

FILL = (124, 116, 104)


def moved_by_pillow(picture: Image.Image, *matrix: float) -> Image.Image:
    """The pixel at (x, y) comes from (a x + b y + c, d x + e y + f), for the matrix a, b, c, d, e, f."""
    bilinear = Image.Resampling.BILINEAR
    return picture.transform(picture.size, Image.Transform.AFFINE, matrix, bilinear, fillcolor=FILL)


def by_pillow(picture: Image.Image, name: str, level: float, sign: float) -> Image.Image:
    """The operations as timm and CMC's authors have them, on Pillow's images."""
    width, height = picture.size
    slope = 0.3 * level * sign
    share = 0.45 * level * sign
    match name:
        case "AutoContrast":
            return ImageOps.autocontrast(picture)
        case "Sharpness":
            return ImageEnhance.Sharpness(picture).enhance(0.1 + 1.8 * level)
        case "Rotate":
            return picture.rotate(-30 * level * sign, Image.Resampling.BILINEAR, fillcolor=FILL)
        case "ShearX":
            return moved_by_pillow(picture, 1, slope, 0, 0, 1, 0)
        case "ShearY":
            return moved_by_pillow(picture, 1, 0, 0, slope, 1, 0)
        case "TranslateX":
            return moved_by_pillow(picture, 1, 0, -share * width, 0, 1, 0)
        case "TranslateY":
            return moved_by_pillow(picture, 1, 0, 0, 0, 1, -share * height)
        case "Identity":
            return picture
    raise AssertionError(f"RandAugment of the released code has no {name}")


def pillow_result(image: Tensor, name: str, level: float, sign: float) -> Tensor:
    """:func:`by_pillow` of a float image ``[3, H, W]``."""
    picture = by_pillow(reference.to_pil_image(image), name, level, sign)
    return reference.pil_to_tensor(picture).float() / 255


def waves() -> Tensor:
    """A smooth picture ``[3, 64, 64]``, whose values are whole levels."""
    columns = torch.linspace(0, 6, 64)
    rows = columns[:, None]
    red = rows.sin() * columns.cos()
    green = rows.cos().expand(64, 64)
    blue = columns.sin() * rows / 6
    levels = (torch.stack([red, green, blue]) + 1) * 100 + 20
    return levels.round() / 255


@pytest.mark.parametrize("sign", [-1.0, 1.0])
@pytest.mark.parametrize("level", [1.0, 0.8])
@pytest.mark.parametrize("name", ["Rotate", "ShearX", "ShearY", "TranslateX", "TranslateY"])
def test_moves_are_those_of_the_released_randaugment(name, level, sign):
    image = waves()
    ours = operations.RANDAUGMENT[name](image, level, sign)
    off = (ours - pillow_result(image, name, level, sign)).abs()
    # Pillow rounds to 8 bits and interpolates half a pixel apart at the border of what was moved in
    assert off.median() <= 2 * LEVEL
    assert (off > 6 * LEVEL).float().mean() < 0.06
    assert (ours - image).abs().mean() > 3 * LEVEL


@pytest.mark.parametrize("sign", [-1.0, 1.0])
@pytest.mark.parametrize("level", [1.0, 0.8])
@pytest.mark.parametrize("name", ["AutoContrast", "Identity", "Sharpness"])
def test_operations_that_move_nothing_are_those_of_the_released_randaugment(name, level, sign):
    image = (50 + noise(1, seed=4)[0] // 2) / 255  # edges to sharpen, and levels from 50 to 177 to stretch
    ours = operations.RANDAUGMENT[name](image, level, sign)
    close(ours, pillow_result(image, name, level, sign), 1.6 * LEVEL)  # Pillow rounds to 8 bits, twice


def test_randaugment_has_the_eight_operations_that_change_no_hue():
    tested = {"Rotate", "ShearX", "ShearY", "TranslateX", "TranslateY", "AutoContrast", "Identity", "Sharpness"}
    assert set(operations.RANDAUGMENT) == tested


def test_each_operation_is_drawn_as_often_and_half_of_the_draws_are_applied():
    draws = operations.sample_operations(MANY, 2, generator=generator(), device="cpu")
    assert draws.shape == (MANY, 2, 3)
    which = draws[..., 0].flatten()
    applied = which[which >= 0].long()
    shares = applied.bincount(minlength=8) / len(applied)
    assert len(applied) / len(which) == pytest.approx(0.5, abs=0.02)
    assert (shares - 1 / 8).abs().max() < 0.02


def test_levels_of_operations_are_normal_below_the_full_strength_and_cut_off_there():
    draws = operations.sample_operations(MANY, 2, generator=generator(), device="cpu")
    level = draws[..., 1].flatten()
    assert level.max() == 1
    assert (level == 1).float().mean().item() == pytest.approx(0.5, abs=0.02)
    below = (1 - level[level < 1]).double().numpy()
    assert stats.kstest(below, stats.halfnorm(scale=0.05).cdf).pvalue > 1e-3


def test_signs_of_operations_are_both_as_frequent_whatever_is_drawn():
    draws = operations.sample_operations(MANY, 2, generator=generator(), device="cpu")
    which, _, sign = draws.flatten(0, 1).unbind(1)
    assert sign.unique().tolist() == [-1, 1]
    assert sign.mean().abs() < 0.05
    assert sign[which >= 0].mean().abs() < 0.07


# What is drawn --------------------------------------------------------------------------------------------------------


def assert_same_distribution(ours: Tensor, theirs: list[float]) -> None:
    """Two-sample Kolmogorov-Smirnov test."""
    assert stats.ks_2samp(ours.double().numpy(), np.array(theirs, float)).pvalue > 1e-3


@pytest.mark.parametrize(
    ("height", "width", "scale"),
    [(32, 32, (0.2, 1.0)), (224, 224, (0.08, 1.0)), (40, 90, (0.5, 1.0)), (8, 8, (0.2, 1.0))],
)
def test_boxes_follow_torchvision(height, width, scale):
    ratio = (3 / 4, 4 / 3)
    crop = v2.RandomResizedCrop(8, scale, ratio)
    picture = torch.empty(3, height, width)
    torch.manual_seed(0)
    theirs = [crop.make_params([picture]) for _ in range(MANY)]

    ours = sample_boxes(MANY, height, width, scale=scale, ratio=ratio, generator=generator(5))

    top, left, box_height, box_width = ours.unbind(1)
    assert_same_distribution(top, [box["top"] for box in theirs])
    assert_same_distribution(left, [box["left"] for box in theirs])
    assert_same_distribution(box_height, [box["height"] for box in theirs])
    assert_same_distribution(box_width, [box["width"] for box in theirs])
    assert_same_distribution(box_height * box_width, [box["height"] * box["width"] for box in theirs])
    assert_same_distribution(top + box_height, [box["top"] + box["height"] for box in theirs])
    assert_same_distribution(top - left, [box["top"] - box["left"] for box in theirs])


@pytest.mark.parametrize(("height", "width"), [(32, 32), (40, 90), (8, 8)])
def test_boxes_lie_in_the_picture(height, width):
    boxes = sample_boxes(MANY, height, width, scale=(0.02, 1.0), ratio=(0.3, 3.0), generator=generator(5))
    top, left, box_height, box_width = boxes.unbind(1)
    assert top.min() >= 0
    assert left.min() >= 0
    assert box_height.min() >= 1
    assert box_width.min() >= 1
    assert (top + box_height).max() <= height
    assert (left + box_width).max() <= width


@pytest.mark.parametrize(("height", "width"), [(10, 100), (100, 10), (10, 10)])
def test_boxes_fall_back_to_the_central_crop_as_torchvision_does(height, width):
    never_fits = {"scale": (1.0, 1.0), "ratio": (0.9, 0.95)}
    torch.manual_seed(0)
    box = v2.RandomResizedCrop(8, **never_fits).make_params([torch.empty(3, height, width)])
    ours = sample_boxes(5, height, width, **never_fits, generator=generator())
    assert ours.tolist() == [[box["top"], box["left"], box["height"], box["width"]]] * 5


def test_factors_of_jitter_follow_torchvision():
    strengths = (0.4, 0.8, 1.5, 0.1)
    torch.manual_seed(0)
    jitter = v2.ColorJitter(*strengths)
    theirs = [jitter.make_params([]) for _ in range(MANY)]
    ours = Augmentation("", 9, jitter=strengths).sample(MANY, 9, 9, generator(7)).factors
    for operation, name in enumerate(("brightness", "contrast", "saturation", "hue")):
        assert_same_distribution(ours[:, operation], [drawn[f"{name}_factor"] for drawn in theirs])


def test_all_orders_of_jitter_are_as_frequent_whatever_the_factors():
    a = Augmentation("", 9, jitter=(0.4, 0.8, 1.5, 0.1))
    draws = a.sample(MANY, 9, 9, generator(7))
    orders, frequencies = draws.order.unique(dim=0, return_counts=True)
    assert orders.tolist() == [list(order) for order in itertools.permutations(range(4))]
    assert stats.chisquare(frequencies.numpy()).pvalue > 1e-3
    place_of_brightness = (draws.order == operations.BRIGHTNESS).long().argmax(1)
    correlation = torch.corrcoef(torch.stack([place_of_brightness.float(), draws.factors[:, 0]]))[0, 1]
    assert correlation.abs() < 0.07


NEUTRAL = torch.tensor([1.0, 1.0, 1.0, 0.0])


def what_happens(draws: ViewDraws) -> dict[str, Tensor]:
    """To which views each change happens, ``[B]``."""
    return {
        "flip": draws.flip,
        "jitter": (draws.factors != NEUTRAL).any(1),
        "grayscale": draws.grayscale,
        "blur": draws.sigma > 0,
    }


def test_changes_have_their_probabilities_and_are_independent():
    a = Augmentation("x", 32, flip=0.3, jitter=(0.4, 0.4, 0.4, 0.1), jitter_p=0.8, grayscale=0.2, blur=0.5)
    happens = what_happens(a.sample(MANY, 32, 32, generator(9)))
    for change, probability in {"flip": 0.3, "jitter": 0.8, "grayscale": 0.2, "blur": 0.5}.items():
        hits = int(happens[change].sum())
        assert stats.binomtest(hits, MANY, probability).pvalue > 1e-3, change
    correlations = torch.corrcoef(torch.stack([*happens.values()]).double())
    assert (correlations - torch.eye(4)).abs().max() < 0.07


def test_whether_a_view_is_jittered_says_nothing_of_its_factors():
    a = Augmentation("x", 8, jitter=(0.4, 0.4, 0.4, 0.1), jitter_p=0.5)
    factors = a.sample(MANY, 8, 8, generator(9)).factors
    changed = factors[(factors != NEUTRAL).any(1)].double().numpy()
    assert stats.kstest(changed[:, operations.BRIGHTNESS], stats.uniform(0.6, 0.8).cdf).pvalue > 1e-3


def test_widths_of_blur_are_uniform():
    a = Augmentation("x", 32, blur=0.5, blur_sigma=(0.1, 2.0))
    sigma = a.sample(MANY, 32, 32, generator(9)).sigma
    widths = sigma[sigma > 0].double().numpy()
    assert stats.kstest(widths, stats.uniform(0.1, 1.9).cdf).pvalue > 1e-3


def test_a_probability_of_one_is_certain_and_of_zero_impossible():
    strengths = (1.0, 1.0, 1.0, 0.5)
    certain = Augmentation("x", 8, flip=1.0, grayscale=1.0, blur=1.0, jitter=strengths, jitter_p=1.0)
    impossible = Augmentation("x", 8, flip=0.0, grayscale=0.0, blur=0.0, jitter=strengths, jitter_p=0.0)
    always = what_happens(certain.sample(500, 8, 8, generator()))
    never = what_happens(impossible.sample(500, 8, 8, generator()))
    for change in ("flip", "jitter", "grayscale", "blur"):
        assert bool(always[change].all()), change
        assert not bool(never[change].any()), change


def test_each_image_has_draws_of_its_own():
    copies = noise(1, seed=3).repeat(64, 1, 1, 1)
    views = augmentation("mocov2", 32).random(copies, generator()).flatten(1)
    distance = torch.cdist(views, views).fill_diagonal_(torch.inf)
    assert distance.min() > 0.1


def test_draws_come_from_the_generator_alone():
    images = noise(12)
    a = augmentation("mocov2", 32)
    state = torch.get_rng_state()
    stream = generator(4)
    first = a.random(images, stream)
    second = a.random(images, stream)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first, a.random(images, generator(4)))
    assert not torch.equal(first, second)


WITHOUT_RANDAUGMENT = [name for name in AUGMENTATIONS if augmentation(name, 32).randaugment == 0]


@pytest.mark.parametrize("name", WITHOUT_RANDAUGMENT)
def test_all_augmentations_consume_the_same_draws(name):
    stream = generator(2)
    of_none = generator(2)
    augmentation(name, 32).sample(9, 40, 40, stream)
    augmentation("none", 32).sample(9, 40, 40, of_none)
    assert torch.equal(stream.get_state(), of_none.get_state())


def test_randaugment_draws_after_all_others():
    without = augmentation("cmc_resnet", 32).sample(9, 40, 40, generator(2))
    draws = augmentation("cmc_randaugment", 32).sample(9, 40, 40, generator(2))
    assert without.operations.shape == (9, 0, 3)
    assert draws.operations.shape == (9, 2, 3)
    assert torch.equal(draws.boxes, without.boxes)
    assert torch.equal(draws.flip, without.flip)


# The published augmentations ------------------------------------------------------------------------------------------


def test_moco_v2_is_as_published():
    assert augmentation("mocov2", 224) == Augmentation(
        "mocov2",
        224,
        scale=(0.2, 1.0),
        ratio=(3 / 4, 4 / 3),
        flip=0.5,
        jitter=(0.4, 0.4, 0.4, 0.1),
        jitter_p=0.8,
        grayscale=0.2,
        grayscale_first=False,
        blur=0.5,
        blur_sigma=(0.1, 2.0),
        resize=256,
    )


def test_simclr_is_at_full_strength_for_large_pictures_and_without_blur_for_small_ones():
    small = Augmentation(
        "simclr", 32, scale=(0.08, 1.0), jitter=(0.4, 0.4, 0.4, 0.1), jitter_p=0.8, grayscale=0.2, resize=32
    )
    assert augmentation("simclr", 32) == small
    assert augmentation("simclr", 224) == replace(
        small, size=224, jitter=(0.8, 0.8, 0.8, 0.2), blur=0.5, blur_kernel=23, resize=256
    )


def test_cmc_crops_64_of_the_96_pixels_of_stl10():
    a = augmentation("cmc_stl10", 64)
    boxes = a.sample(50, 96, 96, generator()).boxes
    assert boxes[:, 2:].unique().tolist() == [64]
    assert a.resize is None


def test_instance_discrimination_drops_colour_first_and_cmc_never():
    instance = augmentation("instdisc", 224)
    assert instance.grayscale_first
    assert augmentation("cmc_jitter", 224).jitter == instance.jitter
    assert augmentation("cmc_jitter", 224).grayscale == 0
    assert augmentation("cmc", 224).grayscale == 0


@pytest.mark.parametrize(("size", "resize"), [(32, 32), (63, 63), (64, 73), (96, 96), (224, 256)])
def test_the_test_time_view_is_cut_from_a_picture_that_is_larger_by_a_seventh_unless_it_is_small(size, resize):
    assert augmentation("mocov2", size).resize == resize


def test_the_kernel_of_a_blur_holds_three_deviations_unless_it_is_given():
    assert Augmentation("x", 32, blur_sigma=(0.1, 2.0)).kernel == 13
    assert Augmentation("x", 4, blur_sigma=(0.1, 2.0)).kernel == 7  # as far as reflection reaches
    assert Augmentation("x", 32, blur_kernel=5).kernel == 5


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_an_augmentation_bears_its_name(name):
    assert augmentation(name, 96).name == name


# Normalisation --------------------------------------------------------------------------------------------------------


def test_normalisation_subtracts_the_mean_of_a_channel_and_divides_by_its_deviation():
    images = noise(5) / 255
    ours = augmentation("mocov2", 32).normalise(images)
    close(ours, reference.normalize(images, IMAGENET_MEAN, IMAGENET_STD), 1e-5)


@pytest.mark.parametrize("channels", [1, 5])
def test_other_numbers_of_channels_are_normalised_by_the_averages(channels):
    images = noise(5, channels) / 255
    ours = augmentation("mocov2", 32).normalise(images)
    mean = (0.485 + 0.456 + 0.406) / 3
    deviation = (0.229 + 0.224 + 0.225) / 3
    close(ours, (images - mean) / deviation, 1e-5)


@pytest.mark.parametrize("channels", [1, 3])
def test_one_mean_is_that_of_all_channels(channels):
    images = noise(5, channels) / 255
    a = replace(augmentation("mocov2", 32), mean=(0.1307,), std=(0.3081,))
    close(a.normalise(images), (images - 0.1307) / 0.3081, 1e-5)


# Views by colour ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("space", sorted(colour.SPACES))
def test_colour_spaces_equal_scikit_image(space):
    images = noise(4, 3, 48) / 255
    images[0, :, 0, :8] = torch.linspace(0, 0.06, 8)  # around the kinks of the two gamma curves
    images[1, :, 0, :8] = 0.0
    images[1, :, 1, :8] = 1.0
    images[2, 0, 0] = 1.0  # pure
    images[2, 1, 1] = 1.0
    images[2, :2, 2] = 0.7  # tied channels
    ours = colour.SPACES[space].convert(images).permute(0, 2, 3, 1).numpy()
    theirs = images.double().permute(0, 2, 3, 1).numpy()
    if space != "rgb":
        from_rgb = getattr(color, f"rgb2{space}")
        theirs = from_rgb(theirs)
    extent = np.ptp(theirs, axis=(0, 1, 2))
    assert (np.abs(ours - theirs) / extent).max() < 1e-4


@pytest.mark.parametrize("space", sorted(colour.SPACES))
def test_split_fills_minus_one_to_one(space):
    levels = torch.tensor([0, 128, 255], dtype=torch.uint8)
    cube = torch.cartesian_prod(levels, levels, levels)  # 27 colours
    image = cube.T.reshape(1, 3, 27, 1).expand(1, 3, 27, 27).contiguous()
    luminance, chrominance = Split(space).plain(image, augmentation("none", 27))
    assert luminance.shape == (1, 1, 27, 27)
    assert chrominance.shape == (1, 2, 27, 27)
    highest = [1.0, 1.0, 1.0]
    if space == "hsv":
        highest[0] = 5 / 6  # as the largest hue of the cube's corners and middles is 11/12
    channels = torch.cat((luminance, chrominance), 1)[0]
    assert channels.amax((1, 2)).tolist() == pytest.approx(highest, abs=0.02)
    assert channels.amin((1, 2)).tolist() == pytest.approx([-1.0, -1.0, -1.0], abs=0.02)


def test_split_views_come_from_one_augmented_image():
    images = noise(6)
    a = augmentation("cmc_jitter", 24)
    luminance, chrominance = Split("ydbdr").make(images, a, generator(2))
    augmented = a.random(images, generator(2))
    ydbdr = colour.SPACES["ydbdr"].convert(augmented)
    close(luminance, (ydbdr[:, :1] - 0.5) / 0.5, 1e-5)
    close(chrominance, ydbdr[:, 1:] / 1.333, 1e-5)


RELEASED = {
    "ydbdr": ((0.457, -0.082, -0.052), (0.5, 1.331, 1.333)),
    "ycbcr": ((116.151, 121.080, 132.342), (109.500, 111.855, 111.964)),
}


@pytest.mark.parametrize("space", RELEASED)
def test_the_released_scaling_has_the_means_and_ranges_of_the_authors_code(space):
    images = noise(6)
    parts = Split(space, scaling="released").plain(images, augmentation("none", 32))
    mean, half_range = torch.tensor(RELEASED[space])[:, :, None, None]
    values = colour.SPACES[space].convert(images / 255)
    close(torch.cat(parts, 1), (values - mean) / half_range, 1e-5)


@pytest.mark.parametrize("space", RELEASED)
def test_the_released_scaling_moves_the_middle_and_no_more(space):
    images = noise(6)
    a = augmentation("none", 32)
    by_range = torch.cat(Split(space).plain(images, a), 1)
    as_released = torch.cat(Split(space, scaling="released").plain(images, a), 1)
    # half a range at most, in units of the half-range
    assert 0.01 < (by_range - as_released).abs().max() < 0.5


def test_the_parts_of_a_split_bear_the_names_of_its_channels():
    streams = {space: Split(space).streams for space in colour.SPACES}
    assert streams == {
        "lab": ("L", "ab"),
        "ydbdr": ("Y", "DbDr"),
        "ycbcr": ("Y", "CbCr"),
        "yiq": ("Y", "IQ"),
        "rgb": ("R", "GB"),
        "hsv": ("H", "SV"),
        "hed": ("H", "ED"),
        "xyz": ("X", "YZ"),
    }


def test_a_split_has_one_channel_and_two():
    assert Split().channels(3) == (1, 2)


def test_one_augmentation_of_a_split_is_split_likewise():
    assert Split("rgb", 2).single() == Split("rgb")


# Augmented views ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_augmented_makes_independent_normalised_views(count, channels):
    images = noise(5, channels)
    a = augmentation("mocov2", 24)
    views = Augmented(count).make(images, a, generator(1))
    assert len(views) == count
    stream = generator(1)
    for view in views:
        assert view.shape == (5, channels, 24, 24)
        close(view, a.normalise(a.random(images, stream)), 1e-5)
    for one, other in itertools.combinations(views, 2):
        assert not torch.equal(one, other)


def test_the_plain_view_is_normalised():
    images = noise(5)
    a = augmentation("mocov2", 24)
    (plain,) = Augmented(2).plain(images, a)
    close(plain, a.normalise(a.plain(images)), 1e-5)


@pytest.mark.parametrize("channels", [1, 3])
def test_one_encoder_sees_all_augmented_views(channels):
    assert Augmented(2).streams == ("view",)
    assert Augmented(2).channels(channels) == (channels,)


@pytest.mark.parametrize("part", [Augmented(), Augmented(5), *map(Split, colour.SPACES)], ids=repr)
def test_views_have_a_formula(part):
    assert part.latex.startswith(("v", "(v_1, v_2)"))
    assert part.latex.count("{") == part.latex.count("}")
