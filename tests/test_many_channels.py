"""Pictures of any number of channels, of 8 and 16 bits: what is done with each channel, and a run end to end."""

import struct
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from contrastlab import methods, tasks
from contrastlab.data import ImageSet
from contrastlab.pictures.augmentations import Augmentation, augmentation
from contrastlab.pictures.items import Splits, rows_at
from contrastlab.pictures.sets import decode
from contrastlab.support.errors import ArgumentError, CorruptFileError, NotApplicableError
from contrastlab.tasks import Evaluation
from contrastlab.train import pretrain
from contrastlab.views import Split
from made_runs import generator, quiet

PLAIN = Augmentation("mine", 12, jitter=(0.4, 0.4, 0.0, 0.0), blur=1.0)


def images(count: int, channels: int, *, seed: int = 0) -> Tensor:
    return torch.randint(0, 256, (count, channels, 16, 16), generator=generator(seed)).to(torch.uint8)


def of_16_bits(pictures: Tensor) -> Tensor:
    return (pictures.int() * 257).to(torch.uint16)


@pytest.mark.parametrize("channels", [1, 2, 3, 5])
def test_16_bits_have_the_views_of_8_bits_with_equal_levels(channels: int) -> None:
    eight = images(4, channels)
    sixteen = of_16_bits(eight)
    torch.testing.assert_close(PLAIN.random(sixteen, generator(1)), PLAIN.random(eight, generator(1)))
    torch.testing.assert_close(PLAIN.plain(sixteen), PLAIN.plain(eight))
    finer = sixteen.clone()
    finer[0, 0, 8, 8] = int(sixteen[0, 0, 8, 8]) ^ 1  # a level that 8 bits do not have
    assert not torch.equal(PLAIN.plain(finer), PLAIN.plain(sixteen))


def test_each_channel_is_treated_alike() -> None:
    pictures, order = images(4, 5), torch.tensor([3, 0, 4, 1, 2])
    views = PLAIN.random(pictures, generator(2))
    torch.testing.assert_close(PLAIN.random(pictures[:, order], generator(2)), views[:, order])
    without_jitter = replace(PLAIN, jitter=(0.0, 0.0, 0.0, 0.0))
    whole = without_jitter.random(pictures, generator(2))
    alone = torch.cat([without_jitter.random(pictures[:, k : k + 1], generator(2)) for k in range(5)], 1)
    torch.testing.assert_close(whole, alone)


def test_contrast_is_about_the_mean_of_all_channels() -> None:
    pictures = images(2, 5)
    contrast = Augmentation("mine", 16, (1.0, 1.0), (1.0, 1.0), flip=0.0, jitter=(0.0, 0.5, 0.0, 0.0))
    views = contrast.random(pictures, generator(3))
    factor = contrast.sample(2, 16, 16, generator(3)).factors[:, 1]
    levels = pictures.double() / 255
    for k in range(2):
        expected = (factor[k] * levels[k] + (1 - factor[k]) * levels[k].mean()).clamp(0, 1)
        torch.testing.assert_close(views[k].double(), expected, rtol=0, atol=1e-5)


def test_normalisation_is_of_each_channel_or_by_the_averages() -> None:
    view = torch.rand(2, 5, 4, 4, generator=generator(0))
    own = replace(PLAIN, mean=(0.1, 0.2, 0.3, 0.4, 0.5), std=(1.0, 2.0, 3.0, 4.0, 5.0))
    for k in range(5):
        torch.testing.assert_close(own.normalise(view)[:, k], (view[:, k] - own.mean[k]) / own.std[k])
    three = replace(PLAIN, mean=(0.1, 0.2, 0.6), std=(1.0, 2.0, 3.0))
    torch.testing.assert_close(three.normalise(view), (view - 0.3) / 2)


def test_colours_are_refused_where_there_are_none() -> None:
    named = r"augmentation 'mocov2' cannot be used: it has saturation, hue, grayscale.*have 5 channels"
    with pytest.raises(NotApplicableError, match=named):
        augmentation("mocov2", 12).random(images(2, 5))
    with pytest.raises(NotApplicableError, match="has randaugment"):
        Augmentation("mine", 12, randaugment=2).random(images(2, 2))
    with pytest.raises(ArgumentError, match="image_channels=5"):
        Split("lab").channels(5)
    with pytest.raises(ArgumentError, match=r"expected uint8 or uint16 of shape \[N, C, H, W\] with C at least 1"):
        ImageSet("few", images(2, 3).int(), torch.zeros(2, dtype=torch.int64), ("a",))


def tiff(pixels: np.ndarray) -> bytes:
    """``[H, W, bands]`` of 8 or 16 bits as a TIFF without compression, every band a grey one."""
    height, width, bands = pixels.shape
    bits, strip = 8 * pixels.itemsize, pixels.astype(pixels.dtype.newbyteorder("<")).tobytes()
    directory, entries = 8 + len(strip), 9
    many = directory + 2 + 12 * entries + 4  # where the bits of each band are noted
    tags = [
        (256, 1, width), (257, 1, height), (258, bands, many), (259, 1, 1), (262, 1, 1), (273, 1, 8),
        (277, 1, bands), (278, 1, height), (279, 1, len(strip)),
    ]  # fmt: skip
    lines = b"".join(struct.pack("<HHII", tag, 3 if tag == 258 else 4, count, value) for tag, count, value in tags)
    start = b"II*\0" + struct.pack("<I", directory) + strip
    return start + struct.pack("<H", entries) + lines + bytes(4) + struct.pack(f"<{bands}H", *[bits] * bands)


@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
def test_a_tiff_of_many_bands_is_refused_with_the_way_to_read_it(kind: type, tmp_path) -> None:
    pixels = np.random.default_rng(0).integers(0, 200, (8, 9, 5)).astype(kind)
    (tmp_path / "five.tif").write_bytes(tiff(pixels))
    words = r"five.tif cannot be decoded: it is a TIFF of a kind .* many bands; .* read it by arrays:<path>$"
    with pytest.raises(CorruptFileError, match=words):
        decode(tmp_path / "five.tif")
    with pytest.raises(CorruptFileError, match="^five bands cannot be decoded: it is a TIFF"):
        decode(tiff(pixels), "five bands")
    (tmp_path / "torn.png").write_bytes(b"torn")
    with pytest.raises(CorruptFileError, match=r"torn.png cannot be decoded: cannot identify image file"):
        decode(tmp_path / "torn.png")


@pytest.mark.parametrize("shape", [(4,), (3, 2, 5, 5)])
def test_rows_of_16_bits_are_selected(shape: tuple[int, ...]) -> None:
    items = torch.randint(0, 2**16, (6, *shape), generator=generator(0)).to(torch.uint16)
    chosen = torch.tensor([5, 0, 5])
    found = rows_at(items, chosen)
    assert found.dtype == torch.uint16
    assert torch.equal(found.int(), items.int()[chosen])


def test_six_channels_of_16_bits_are_trained_and_scored(tiny) -> None:
    labels = torch.arange(64) % 2
    pictures = of_16_bits(images(64, 6) // 2)
    bright = pictures.int()
    bright[labels == 1, 4] += 30_000  # what tells the classes apart is in a channel that RGB lacks
    source = ImageSet("six", bright.to(torch.uint16), labels, ("dark", "bright"))
    splits = Splits.held_out("six", source, "made")
    settings = tiny.override(augmentation="linear", epochs=2, batch_size=16)
    recipe = methods.get("decoupled/simclr")
    done = pretrain(recipe, settings, splits.pretrain, seed=0, log=quiet)
    assert done.encoders[0].in_channels == 6
    evaluation = Evaluation(recipe.views, augmentation("linear", settings.image_size), splits, seed=0)
    found = tasks.get("neighbours", settings).score(done.encoders, evaluation)
    assert found["nn1"].value > 90
    same = ImageSet("six", source.items, labels, source.classes)
    assert same.fingerprint == source.fingerprint
