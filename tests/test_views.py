"""Views against torchvision and scikit-image at fixed parameters; samplers against torchvision's."""

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
from contrastlab.pictures.augmentations import AUGMENTATIONS, Augmentation, ViewDraws, apply, augmentation, sample_boxes
from contrastlab.support import errors
from contrastlab.views import Augmented, Split, colour
from made_runs import generator

pytestmark = pytest.mark.usefixtures("branch")

LEVEL = 1 / 255


def noise(count: int, channels: int = 3, height: int = 32, width: int | None = None, seed: int = 0) -> Tensor:
    """Random uint8 images with flat, black, white and saturated ones among them."""
    shape = (count, channels, height, width or height)
    images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator(seed))
    if count >= 4:
        images[0], images[1], images[2] = 0, 255, 77
        images[3] = images[3] // 128 * 255
    return images


def close(ours: Tensor, theirs: Tensor, tolerance: float = LEVEL / 20) -> None:
    assert ours.shape == theirs.shape
    assert (ours - theirs).abs().max().item() <= tolerance


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
    for image, box, flipped, result in zip(images, boxes.tolist(), flip, ours, strict=True):
        expected = reference.resized_crop(image / 255, *box, [size, size], antialias=True)
        close(result, reference.horizontal_flip(expected) if flipped else expected)


@pytest.mark.parametrize(
    ("height", "width", "resize", "size"),
    [(32, 32, 256, 224), (32, 32, 32, 32), (300, 200, 256, 224), (100, 333, 73, 64), (96, 97, None, 64)],
)
def test_center_equals_torchvision(height, width, resize, size):
    images = noise(3, 3, height, width)
    a = Augmentation("test", size, resize=resize)
    expected = images / 255
    if resize is not None:
        expected = reference.resize(expected, [resize], antialias=True)
    ours = a.plain(images)
    close(ours, reference.center_crop(expected, [size, size]))
    assert ours.dtype == torch.float32


FACTORS = torch.tensor([0.0, 0.2, 0.6, 0.999, 1.0, 1.3, 1.8, 2.5])


def jittered(images: Tensor, operation: int, values: Tensor) -> Tensor:
    """One operation alone: those before and after it have the factors that change nothing."""
    factors = torch.tensor([1.0, 1.0, 1.0, 0.0]).repeat(len(images), 1)
    factors[:, operation] = values
    order = torch.arange(4).repeat(len(images), 1)
    return operations.jitter_(images.clone(), factors, order, hue=operation == operations.HUE)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", ["brightness", "contrast", "saturation"])
def test_factor_operations_equal_torchvision(name, channels):
    images = noise(8, channels, 12, 15) / 255
    ours = jittered(images, getattr(operations, name.upper()), FACTORS)
    for image, factor, result in zip(images, FACTORS.tolist(), ours, strict=True):
        close(result, getattr(reference, f"adjust_{name}")(image, factor))


@pytest.mark.parametrize("channels", [1, 3])
def test_hue_equals_torchvision(channels):
    shifts = torch.tensor([-0.5, -0.31, -0.1, 0.0, 0.05, 0.17, 0.33, 0.5]).repeat(4)
    images = noise(32, channels, 40) / 255
    images[8:16, -1] = images[8:16, 0]  # ties between channels
    ours = jittered(images, operations.HUE, shifts)
    for image, shift, result in zip(images, shifts.tolist(), ours, strict=True):
        close(result, reference.adjust_hue(image, shift))


def test_grayscale_equals_torchvision_and_blur_of_zero_changes_nothing():
    images = noise(6) / 255
    chosen = torch.arange(6) % 2 == 0
    ours = operations.grayscale(images, chosen)
    close(ours[0::2], reference.rgb_to_grayscale(images[0::2], 3))
    assert torch.equal(ours[1::2], images[1::2])
    images = noise(3) / 255
    assert torch.equal(operations.gaussian_blur(images, torch.zeros(3), 13), images)


@pytest.mark.parametrize(
    ("channels", "height", "width", "kernel"), [(3, 32, 32, 13), (1, 20, 31, 5), (3, 7, 9, 13), (3, 9, 9, 1)]
)
def test_blur_equals_torchvision(channels, height, width, kernel):
    sigma = torch.tensor([0.1, 0.4, 1.0, 1.7, 2.0, 5.0])
    images = noise(6, channels, height, width) / 255
    ours = operations.gaussian_blur(images, sigma, kernel)
    for image, s, result in zip(images, sigma.tolist(), ours, strict=True):
        close(result, reference.gaussian_blur(image, [kernel, kernel], [s, s]))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("hue", [0.0, 0.4])
def test_jitter_applies_each_order_exactly(channels, hue):
    orders = torch.cartesian_prod(*[torch.arange(4)] * 4)
    orders = orders[[len(set(row)) == 4 for row in orders.tolist()]]
    images = noise(24, channels, 9) / 255
    factors = Augmentation("", 9, jitter=(0.8, 0.8, 0.8, hue)).sample(24, 9, 9, generator()).factors
    ours = operations.jitter_(images.clone(), factors, orders, hue=hue > 0)
    adjust = (reference.adjust_brightness, reference.adjust_contrast, reference.adjust_saturation, reference.adjust_hue)
    for image, values, order, result in zip(images, factors.tolist(), orders.tolist(), ours, strict=True):
        for operation in order:
            image = adjust[operation](image, values[operation])
        close(result, image)


def looped(image: Tensor, a: Augmentation, draws: ViewDraws, index: int) -> Tensor:
    """One view, one torchvision operation after the other, in the papers' order."""
    x = reference.resized_crop(image / 255, *draws.boxes[index].tolist(), [a.size, a.size], antialias=True)
    colour, grey = len(image) == 3, bool(draws.grayscale[index])
    if colour and grey and a.grayscale_first:
        x = reference.rgb_to_grayscale(x, 3)
    names = ("brightness", "contrast", "saturation", "hue")
    for operation in draws.order[index].tolist():
        x = getattr(reference, f"adjust_{names[operation]}")(x, draws.factors[index, operation].item())
    if colour and grey and not a.grayscale_first:
        x = reference.rgb_to_grayscale(x, 3)
    if draws.sigma[index] > 0:
        x = reference.gaussian_blur(x, [a.kernel, a.kernel], [draws.sigma[index].item()] * 2)
    x = reference.horizontal_flip(x) if draws.flip[index] else x
    for which, level, sign in draws.operations[index].tolist():
        x = x if which < 0 else list(operations.RANDAUGMENT.values())[int(which)](x.clamp(0, 1), level, sign)
    return x


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("name", "source", "size"), [(n, 32, 32) for n in AUGMENTATIONS] + [("simclr", 48, 96)])
def test_whole_recipe_equals_a_torchvision_loop(name, source, size, channels):
    a = augmentation(name, size)
    images = noise(40, channels, source)
    draws = a.sample(40, source, source, generator(3))
    ours = apply(images, a, draws)
    for index in range(40):
        close(ours[index], looped(images[index], a, draws, index), LEVEL / 4)


def by_pillow(picture: Image.Image, name: str, level: float, sign: float) -> Image.Image:
    """The operations as timm and CMC's authors have them, on Pillow's images."""
    width, height = picture.size
    factor, slope, fill = 0.1 + 1.8 * level, 0.3 * level * sign, (124, 116, 104)

    def affine(*m: float) -> Image.Image:
        return picture.transform(picture.size, Image.Transform.AFFINE, m, Image.Resampling.BILINEAR, fillcolor=fill)

    return {
        "AutoContrast": lambda: ImageOps.autocontrast(picture), "Identity": lambda: picture,
        "Rotate": lambda: picture.rotate(-30 * level * sign, Image.Resampling.BILINEAR, fillcolor=fill),
        "Sharpness": lambda: ImageEnhance.Sharpness(picture).enhance(factor),
        "ShearX": lambda: affine(1, slope, 0, 0, 1, 0), "ShearY": lambda: affine(1, 0, 0, slope, 1, 0),
        "TranslateX": lambda: affine(1, 0, -0.45 * level * sign * width, 0, 1, 0),
        "TranslateY": lambda: affine(1, 0, 0, 0, 1, -0.45 * level * sign * height),
    }[name]()  # fmt: skip


@pytest.mark.parametrize("sign", [-1.0, 1.0])
@pytest.mark.parametrize("level", [1.0, 0.8])
@pytest.mark.parametrize("name", operations.RANDAUGMENT)
def test_operations_are_those_of_the_released_randaugment(name, level, sign):
    waves = torch.linspace(0, 6, 64)
    rows = waves[:, None]
    smooth = torch.stack([rows.sin() * waves.cos(), rows.cos().expand(64, 64), waves.sin() * rows / 6])
    image = ((smooth + 1) * 100 + 20).round() / 255
    ours = operations.RANDAUGMENT[name](image, level, sign)
    theirs = reference.pil_to_tensor(by_pillow(reference.to_pil_image(image), name, level, sign)).float() / 255
    off = (ours - theirs).abs()
    # Pillow rounds to 8 bits and interpolates half a pixel apart at the border of what was moved in
    assert off.median() <= 2 * LEVEL
    assert (off > 6 * LEVEL).float().mean() < 0.06
    changed = (ours - image).abs().mean() > 3 * LEVEL
    assert bool(changed) == (name not in ("Identity", "Sharpness"))


def test_two_operations_are_drawn_and_half_of_them_applied():
    draws = operations.sample_operations(MANY, 2, generator=generator(), device="cpu")
    assert draws.shape == (MANY, 2, 3)
    which = draws[..., 0].flatten()
    assert (which < 0).float().mean().item() == pytest.approx(0.5, abs=0.02)
    shares = which[which >= 0].long().bincount(minlength=8) / (which >= 0).sum()
    assert (shares - 1 / 8).abs().max() < 0.02
    level = draws[..., 1].flatten()
    assert (level == 1).float().mean().item() == pytest.approx(0.5, abs=0.02)  # cut off at the full strength
    assert level.min() > 0.7
    assert draws[..., 2].mean().abs() < 0.05
    plain, more = (augmentation(name, 32) for name in ("cmc_resnet", "cmc_randaugment"))
    one, two = (a.sample(9, 40, 40, generator(2)) for a in (plain, more))
    assert torch.equal(one.boxes, two.boxes)
    assert torch.equal(one.flip, two.flip)
    assert (one.operations.shape, two.operations.shape) == ((9, 0, 3), (9, 2, 3))


MANY = 4000


def same_distribution(ours: Tensor, theirs: list[float]) -> None:
    assert stats.ks_2samp(ours.double().numpy(), np.array(theirs, float)).pvalue > 1e-3


@pytest.mark.parametrize(
    ("height", "width", "scale"),
    [(32, 32, (0.2, 1.0)), (224, 224, (0.08, 1.0)), (40, 90, (0.5, 1.0)), (8, 8, (0.2, 1.0))],
)
def test_boxes_follow_torchvision(height, width, scale):
    ratio = (3 / 4, 4 / 3)
    torch.manual_seed(0)
    image = torch.empty(3, height, width)
    theirs = [v2.RandomResizedCrop(8, scale, ratio).make_params([image]) for _ in range(MANY)]
    ours = sample_boxes(MANY, height, width, scale=scale, ratio=ratio, generator=generator(5))
    for column, key in enumerate(("top", "left", "height", "width")):
        same_distribution(ours[:, column], [p[key] for p in theirs])
    same_distribution(ours[:, 2] * ours[:, 3], [p["height"] * p["width"] for p in theirs])
    same_distribution(ours[:, 0] + ours[:, 2], [p["top"] + p["height"] for p in theirs])
    top, left, box_height, box_width = ours.unbind(1)
    for first, length, side in ((top, box_height, height), (left, box_width, width)):
        assert first.min() >= 0
        assert length.min() > 0
        assert (first + length).max() <= side


@pytest.mark.parametrize(("height", "width"), [(10, 100), (100, 10), (10, 10)])
def test_boxes_fall_back_to_the_central_crop_as_torchvision_does(height, width):
    crop = v2.RandomResizedCrop(8, scale=(1.0, 1.0), ratio=(0.9, 0.95))
    torch.manual_seed(0)
    expected = crop.make_params([torch.empty(3, height, width)])
    ours = sample_boxes(5, height, width, scale=(1.0, 1.0), ratio=(0.9, 0.95), generator=generator())
    assert ours.tolist() == [[expected[k] for k in ("top", "left", "height", "width")]] * 5


def test_jitter_draws_follow_torchvision():
    strengths = (0.4, 0.8, 1.5, 0.1)
    torch.manual_seed(0)
    jitter = v2.ColorJitter(*strengths)
    theirs = [jitter.make_params([]) for _ in range(MANY)]
    draws = Augmentation("", 9, jitter=strengths).sample(MANY, 9, 9, generator(7))
    factors, order = draws.factors, draws.order
    names = ("brightness_factor", "contrast_factor", "saturation_factor", "hue_factor")
    for column, name in enumerate(names):
        same_distribution(factors[:, column], [p[name] for p in theirs])
    assert bool((order.sort(1).values == torch.arange(4)).all())
    codes = (order * torch.tensor([64, 16, 4, 1])).sum(1).unique(return_counts=True)[1]
    assert len(codes) == 24
    assert stats.chisquare(codes.numpy()).pvalue > 1e-3


def test_probabilities_and_blur_width():
    a = Augmentation("x", 32, flip=0.3, jitter=(0.4, 0.4, 0.4, 0.1), jitter_p=0.8, grayscale=0.2, blur=0.5)
    draws = a.sample(MANY, 32, 32, generator(9))
    jittered = (draws.factors != torch.tensor([1.0, 1.0, 1.0, 0.0])).any(1)
    for hits, p in ((draws.flip, 0.3), (jittered, 0.8), (draws.grayscale, 0.2), (draws.sigma > 0, 0.5)):
        assert stats.binomtest(int(hits.sum()), MANY, p).pvalue > 1e-3
    widths = draws.sigma[draws.sigma > 0].double().numpy()
    assert stats.kstest(widths, stats.uniform(0.1, 1.9).cdf).pvalue > 1e-3
    every = torch.stack((draws.flip, jittered, draws.grayscale, draws.sigma > 0)).double()
    assert (torch.corrcoef(every) - torch.eye(4)).abs().max() < 0.07  # independent of each other
    sure = Augmentation("x", 8, flip=1.0, grayscale=1.0, blur=1.0)
    never = Augmentation("x", 8, flip=0.0, grayscale=0.0, blur=0.0, jitter=(1, 1, 1, 0.5), jitter_p=0.0)
    draws = sure.sample(500, 8, 8, generator())
    assert bool(draws.flip.all() and draws.grayscale.all() and (draws.sigma > 0).all())
    draws = never.sample(500, 8, 8, generator())
    assert not bool(draws.flip.any() or draws.grayscale.any() or (draws.sigma > 0).any())
    assert draws.factors.unique(dim=0).tolist() == [[1.0, 1.0, 1.0, 0.0]]


def test_draws_come_only_from_the_generator_and_differ_for_each_image():
    images = noise(1, seed=3).repeat(64, 1, 1, 1)
    result = augmentation("mocov2", 32).random(images, generator())
    distance = torch.cdist(result.flatten(1), result.flatten(1)) + torch.eye(64) * 100
    assert distance.min() > 0.1
    images, a = noise(12), augmentation("mocov2", 32)
    torch.manual_seed(1)
    first = a.random(images, generator(4))
    untouched = torch.rand(1)
    torch.manual_seed(1)
    assert torch.equal(untouched, torch.rand(1))
    assert torch.equal(first, a.random(images, generator(4)))
    stream = generator(4)
    a.random(images, stream)
    assert not torch.equal(first, a.random(images, stream))


def test_a_view_does_not_depend_on_its_neighbours_chunks_or_autocast():
    images, a = noise(200), augmentation("mocov2", 32)  # more than one chunk on a CPU
    draws = a.sample(200, 32, 32, generator())
    whole = apply(images, a, draws)
    for index in (0, 3, 99, 199):
        part = slice(index, index + 1)
        close(apply(images[part], a, draws[part]), whole[part], 1e-5)
    images, a = noise(8), augmentation("mocov2", 32)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = a.random(images, generator())
    assert torch.equal(rounded, a.random(images, generator()))


@pytest.mark.parametrize("name", list(AUGMENTATIONS))
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("source", "size"), [(8, 8), (32, 64), (5, 1)])
def test_every_recipe_gives_finite_values_in_range(name, channels, source, size):
    a = augmentation(name, size)
    images = noise(9, channels, source)
    if name == "cmc_stl10" and size > source:  # a crop of fixed size out of a picture that is smaller
        with pytest.raises(errors.ArgumentError, match="shorter side"):
            a.plain(images)
        return
    assert a.random(images[:0], generator()).shape == (0, channels, size, size)
    for result in (a.random(images, generator()), a.plain(images)):
        assert (result.shape, result.dtype) == ((9, channels, size, size), torch.float32)
        assert bool(((result >= 0) & (result <= 1)).all())  # and so finite
    assert bool(a.normalise(result).isfinite().all())


def test_published_recipes():
    moco = augmentation("mocov2", 224)
    assert (moco.scale, moco.jitter, moco.jitter_p) == ((0.2, 1.0), (0.4, 0.4, 0.4, 0.1), 0.8)
    assert (moco.grayscale, moco.blur, moco.blur_sigma, moco.resize) == (0.2, 0.5, (0.1, 2.0), 256)
    assert [augmentation(name, size).resize for name, size in (("mocov2", 64), ("instdisc", 32))] == [73, 32]
    assert [augmentation(name, size).kernel for name, size in (("simclr", 224), ("mocov2", 32))] == [23, 13]
    assert augmentation("cmc", 224).grayscale == 0
    assert augmentation("cmc_jitter", 224).jitter == augmentation("instdisc", 224).jitter
    assert [augmentation(name, 96).name for name in AUGMENTATIONS] == list(AUGMENTATIONS)


@pytest.mark.parametrize("space", sorted(colour.SPACES))
def test_colour_spaces_equal_scikit_image(space):
    images = noise(4, 3, 48) / 255
    images[0, :, 0, :8] = torch.linspace(0, 0.06, 8)  # around the kinks of the two gamma curves
    images[1, :, :2, :8] = torch.tensor([0.0, 1.0]).view(1, 2, 1)  # black and white
    images[2, 0, 0], images[2, 1, 1], images[2, :2, 2] = 1.0, 1.0, 0.7  # pure and tied channels
    ours = colour.SPACES[space].convert(images).permute(0, 2, 3, 1).numpy()
    theirs = images.double().permute(0, 2, 3, 1).numpy()
    if space != "rgb":
        theirs = getattr(color, f"rgb2{space}")(theirs)
    extent = np.ptp(theirs, axis=(0, 1, 2))
    assert (np.abs(ours - theirs) / extent).max() < 1e-4


@pytest.mark.parametrize("space", sorted(colour.SPACES))
def test_split_fills_minus_one_to_one(space):
    cube = torch.cartesian_prod(*[torch.tensor([0, 128, 255], dtype=torch.uint8)] * 3)
    images = cube.T.reshape(1, 3, 27, 1).expand(1, 3, 27, 27).contiguous()
    part, a = Split(space), augmentation("none", 27)
    luminance, chrominance = part.plain(images, a)
    assert luminance.shape == (1, 1, 27, 27)
    assert chrominance.shape == (1, 2, 27, 27)
    for k, channel in enumerate(torch.cat((luminance, chrominance), 1)[0]):
        # the largest hue of the corners and middles of the cube is 11/12
        assert channel.max().item() == pytest.approx(5 / 6 if (space, k) == ("hsv", 0) else 1, abs=0.02)
        assert channel.min().item() == pytest.approx(-1, abs=0.02)


def test_split_views_come_from_one_augmented_image():
    images, a = noise(6), augmentation("cmc_jitter", 24)
    luminance, chrominance = Split("ydbdr").make(images, a, generator(2))
    ydbdr = colour.SPACES["ydbdr"].convert(a.random(images, generator(2)))
    close(luminance, (ydbdr[:, :1] - 0.5) / 0.5, 1e-5)
    close(chrominance, ydbdr[:, 1:] / 1.333, 1e-5)


@pytest.mark.parametrize("space", ["ydbdr", "ycbcr"])
def test_the_released_scaling_moves_the_middle_and_no_more(space):
    images, a = noise(6), augmentation("none", 32)
    parts = [torch.cat(Split(space, scaling=s).plain(images, a), 1) for s in ("range", "released")]
    entry = colour.SPACES[space]
    mean, half = (torch.tensor(row)[:, None, None] for row in entry.released)
    close(parts[1], (entry.convert(images / 255) - mean) / half, 1e-5)
    # half a range at most, in units of the half-range
    assert 0.01 < (parts[0] - parts[1]).abs().amax() < 0.5


@pytest.mark.parametrize("count", [1, 2, 4])
def test_augmented_makes_independent_normalised_views(count):
    images, a = noise(5), augmentation("mocov2", 24)
    part = Augmented(count)
    made = part.make(images, a, generator(1))
    assert len(made) == count
    assert all(v.shape == (5, 3, 24, 24) for v in made)
    expected = a.random(images, generator(1))
    close(made[0], reference.normalize(expected, a.mean, a.std), 1e-5)
    if count > 1:
        assert not torch.equal(made[0], made[1])
    (plain,) = part.plain(images, a)
    close(plain, reference.normalize(a.plain(images), a.mean, a.std), 1e-5)


def test_streams_channels_formula_and_grey_images():
    assert (Augmented(2).streams, Augmented(2).channels(3), Augmented().channels(1)) == (("view",), (3,), (1,))
    assert (Split().streams, Split().channels(3)) == (("L", "ab"), (1, 2))
    assert Split("rgb", 2).single() == Split("rgb")
    assert {name: Split(name).streams for name in colour.SPACES} == {
        "lab": ("L", "ab"), "ydbdr": ("Y", "DbDr"), "ycbcr": ("Y", "CbCr"), "yiq": ("Y", "IQ"), "rgb": ("R", "GB"),
        "hsv": ("H", "SV"), "hed": ("H", "ED"), "xyz": ("X", "YZ"),
    }  # fmt: skip
    for part in (Augmented(), Augmented(5), *map(Split, colour.SPACES)):
        assert part.latex.count("{") == part.latex.count("}")
        assert "v" in part.latex
    images, a = noise(5, 1), augmentation("mocov2", 32)
    (view,) = Augmented(1).make(images, a, generator())
    assert view.shape == (5, 1, 32, 32)
    one = replace(a, mean=(0.1307,), std=(0.3081,))
    close(one.normalise(images / 255), (images / 255 - 0.1307) / 0.3081, 1e-5)
