"""Pictures that do not fit: crops made by workers are torchvision's, whoever makes them, and wherever a run goes on."""

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import stats
from torch import Tensor
from torchvision.transforms import RandomResizedCrop
from torchvision.transforms.functional import pil_to_tensor

from contrastlab import encoders, methods, tasks
from contrastlab.data import Splits, StreamedImages
from contrastlab.pictures import augmentations, fitting, linear, loading, representations
from contrastlab.pictures.augmentations import augmentation
from contrastlab.pictures.loading import Crops, batches
from contrastlab.settings import LinearProbe
from contrastlab.support.errors import CorruptFileError
from contrastlab.support.seeds import derive, generator
from contrastlab.train import Speed, pretrain
from contrastlab.views import Augmented, Split
from made_runs import quiet
from test_pretrain import Streamed, run_in_single_steps, same

SIZES = [(40, 30), (33, 50), (64, 64), (20, 20), (90, 21)]
SIDE = 16
LONE = Speed(workers=0)


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> StreamedImages:
    """Pictures of several sizes, JPEG and PNG, one of them grey."""
    folder = tmp_path_factory.mktemp("pictures")
    generator = np.random.default_rng(0)
    paths = []
    for k in range(24):
        coarse = Image.fromarray(generator.integers(0, 256, (6, 6, 3), dtype=np.uint8))
        image = coarse.resize(SIZES[k % len(SIZES)], Image.Resampling.BICUBIC)
        paths.append(f"{k:02d}.{'png' if k % 4 == 3 else 'jpg'}")
        (image.convert("L") if k == 5 else image).save(folder / paths[-1])
    return StreamedImages("files/train", folder, tuple(paths), torch.arange(24) % 2, ("even", "odd"), resize=32)


def crops(count: int = 2, seed: int = 0, name: str = "mocov2") -> Crops:
    return Crops(augmentation(name, SIDE), count, seed)


@pytest.mark.parametrize("channels", [1, 3])
def test_crops_are_those_of_torchvision_with_the_same_boxes(channels: int, files, monkeypatch) -> None:
    source, crop = replace(files, channels=channels), crops(3)
    for index in range(len(source)):
        picture = Image.open(source.folder / source.paths[index])
        boxes = crop.boxes(index, picture.height, picture.width)
        made = source.crops(index, partial(crop.boxes, index), SIDE)
        assert (made.dtype, made.shape) == (torch.uint8, (3, channels, SIDE, SIDE))
        for box, got in zip(boxes.tolist(), made, strict=True):
            monkeypatch.setattr(RandomResizedCrop, "get_params", staticmethod(lambda *_, box=box: box))
            theirs = pil_to_tensor(RandomResizedCrop(SIDE)(picture).convert("L" if channels == 1 else "RGB"))
            assert torch.equal(got, theirs)


@pytest.mark.parametrize(("height", "width"), [(375, 500), (60, 200)])
def test_boxes_counted_by_number_follow_torchvision(height: int, width: int) -> None:
    crop, many = crops(1), 3000
    torch.manual_seed(0)
    image, a = torch.empty(3, height, width), crop.augmentation
    theirs = np.array([RandomResizedCrop.get_params(image, list(a.scale), list(a.ratio)) for _ in range(many)])
    ours = torch.cat([crop.boxes(number, height, width) for number in range(many)]).numpy()
    for column in range(4):
        assert stats.ks_2samp(ours[:, column], theirs[:, column]).pvalue > 1e-3
        assert stats.spearmanr(ours[:-1, column], ours[1:, column]).pvalue > 1e-3  # each picture draws anew


def test_views_of_one_picture_and_seeds_of_runs_and_steps_differ() -> None:
    made = [tuple(row) for c in (crops(4), crops(4, seed=1)) for n in range(5) for row in c.boxes(n, 375, 500).tolist()]
    assert len(set(made)) == 40
    run = crops(seed=3)
    assert torch.equal(replace(run, before=7).boxes(2, 375, 500), run.boxes(9, 375, 500))
    a = run.augmentation
    drawn = augmentations.sample_boxes(2, 375, 500, scale=a.scale, ratio=a.ratio, generator=generator(3, "crops", 9))
    assert torch.equal(run.boxes(9, 375, 500), drawn)
    assert derive(0, "crops", 0) != derive(0, "views/0", 0)


class Loader:
    """What the loader of a stream was asked for; it has nothing to give."""

    asked: ClassVar[list[tuple[int, int | None]]] = []

    def __init__(self, *_: object, num_workers: int, prefetch_factor: int | None, **others: object) -> None:
        self.asked.append((num_workers, prefetch_factor))

    def __iter__(self) -> Iterator[None]:
        return iter(())


def test_decoders_are_those_asked_for_and_read_ahead_what_memory_holds(files, monkeypatch) -> None:
    monkeypatch.setattr(loading, "DataLoader", Loader)
    monkeypatch.setattr(Loader, "asked", [])

    def read(size: int = 8, **how: Any) -> None:
        assert not list(batches(files, torch.arange(24), size, "cpu", drop_last=False, **how))

    read()
    with loading.decoders(5):
        read()
        read(workers=2)
    read(workers=0)
    read(workers=2, size=24, crop=crops(2))
    monkeypatch.setattr(loading, "AHEAD", 3 * 2 * 24 * 2 * 3 * SIDE**2)  # three batches of each of two workers
    read(workers=2, size=24, crop=crops(2))
    monkeypatch.setattr(loading, "AHEAD", 1)
    read(workers=2, size=24, crop=crops(2))
    assert Loader.asked == [(loading.WORKERS, 4), (5, 4), (2, 4), (0, None), (2, 4), (2, 3), (2, 1)]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("crop", [None, crops()], ids=["whole", "crops"])
def test_a_corrupt_file_is_one_line_whoever_decodes_it(workers: int, crop: Crops | None, files, tmp_path) -> None:
    for path in files.paths[:4]:
        (tmp_path / path).write_bytes((files.folder / path).read_bytes())
    torn = tmp_path / files.paths[2]
    torn.write_bytes(torn.read_bytes()[:200])
    some = StreamedImages("some", tmp_path, files.paths[:4], torch.zeros(4, dtype=torch.int64), ("a",), resize=32)
    with pytest.raises(CorruptFileError) as caught:
        read(some, torch.arange(4), crop, workers=workers)
    said = str(caught.value)
    assert said.startswith(f"{torn} cannot be decoded: ")
    assert len(said.splitlines()) == 1
    torn.unlink()
    with pytest.raises(FileNotFoundError) as lost:
        read(some, torch.arange(4), crop, workers=workers)
    assert lost.value.filename == str(torn)


def read(source, orders, crop=None, **options) -> list[tuple[Tensor, Tensor]]:
    options = {"drop_last": True, "workers": 0, **options}
    return list(batches(source, orders, options.pop("batch", 4), "cpu", crop=crop, **options))


def equal(one: list[tuple[Tensor, Tensor]], two: list[tuple[Tensor, Tensor]]) -> None:
    assert len(one) == len(two) > 0
    for (i, x), (j, y) in zip(one, two, strict=True):
        assert torch.equal(i, j)
        assert torch.equal(x, y)


def epochs(count: int = 3) -> list[Tensor]:
    return [torch.randperm(22, generator=torch.Generator().manual_seed(e)) for e in range(count)]


@pytest.mark.parametrize("workers", [1, 2])
def test_any_number_of_workers_makes_the_same_pictures(workers: int, files) -> None:
    equal(read(files, epochs(), crops(), workers=workers), read(files, epochs(), crops()))


def test_batches_of_crops_are_the_pictures_crops_counted_through_the_run(files) -> None:
    found, crop = read(files, epochs(), crops()), crops()
    assert len(found) == 15  # five whole batches in each of three epochs of 22
    for number, (indices, pixels) in enumerate(found):
        assert pixels.shape == (4, 2, 3, SIDE, SIDE)
        for k, index in enumerate(indices.tolist()):
            assert index == epochs()[number // 5][4 * (number % 5) + k]
            assert torch.equal(pixels[k], files.crops(index, partial(crop.boxes, 4 * number + k), SIDE))
    first, second = (dict(zip(i.tolist(), x, strict=True)) for i, x in (found[0], found[5]))
    assert all(not torch.equal(first[i], second[i]) for i in first.keys() & second.keys())  # fresh in each epoch


@pytest.mark.parametrize("start", [0, 1, 4, 5])
def test_a_stream_goes_on_where_it_was_cut_off(start: int, files) -> None:
    whole = read(files, epochs(), crops())
    later = replace(crops(), before=20)  # twenty pictures were in the first epoch
    equal(read(files, epochs(), crops(), start=start), whole[start:])
    equal(read(files, epochs()[1:], later, start=start), whole[5 + start :])


@pytest.mark.parametrize("drop_last", [True, False])
def test_two_processes_read_what_one_reads(drop_last: bool, files) -> None:
    orders = [torch.cat([order, torch.tensor([22])]) for order in epochs()]  # the last batch is of three
    one = read(files, orders, crops(), drop_last=drop_last)
    ranks = [read(files, orders, crops(), batch=2, world=2, rank=r, drop_last=drop_last, workers=r) for r in (0, 1)]
    equal([tuple(torch.cat(both) for both in zip(*parts, strict=True)) for parts in zip(*ranks, strict=True)], one)


@dataclass(frozen=True)
class Told(Streamed):
    """Tells which process reads it, and is interrupted as a terminal interrupts all of its processes."""

    def __getitem__(self, index: int) -> Tensor:
        os.kill(os.getpid(), signal.SIGINT)
        return torch.tensor([os.getpid()])


def test_workers_live_through_the_epochs_and_through_ctrl_c(pictures) -> None:
    found = read(Told(pictures(22)), epochs(), workers=2)
    assert len(found) == 15
    pids = {pid for _, batch in found for pid in batch.flatten().tolist()}
    assert len(pids) == 2
    assert os.getpid() not in pids


def resident_twin(made: Tensor, part: Augmented | Split, a: augmentations.Augmentation) -> list[Tensor]:
    """Each crop as a whole picture, through the crop that takes all of it."""
    draw, out = torch.Generator().manual_seed(4), []
    for k in range(made.shape[1]):
        draws = a.sample(len(made), SIDE, SIDE, draw)
        draws = replace(draws, boxes=torch.tensor([0, 0, SIDE, SIDE]).expand(len(made), 4))
        view = augmentations.apply(made[:, k], a, draws)
        out += [a.normalise(view)] if isinstance(part, Augmented) else part.parts(view)
    return out


@pytest.mark.parametrize("name", ["mocov2", "instdisc", "cmc_jitter"])
@pytest.mark.parametrize("part", [Augmented(1), Augmented(3), Split("lab"), Split("ydbdr", 2)])
def test_crops_are_flipped_coloured_and_blurred_as_whole_pictures_are(part, name: str, files) -> None:
    [(_, made), *_] = read(files, epochs(1), crops(part.count), batch=12)
    a = augmentation(name, SIDE)
    ours = part.make(made, a, torch.Generator().manual_seed(4))
    for view, twin in zip(ours, resident_twin(made, part, a), strict=True):
        torch.testing.assert_close(view, twin, rtol=0, atol=2e-5)
    flat = part.make(made, augmentation("none", SIDE))
    assert any(not torch.allclose(x, y, atol=0.1) for x, y in zip(ours, flat, strict=True))


@pytest.fixture(autouse=True)
def _probes_without_workers(monkeypatch) -> None:
    for module in (fitting, linear, representations):
        monkeypatch.setattr(module, "batches", partial(loading.batches, workers=0))


@pytest.mark.parametrize("name", ["ring/moco", "ring/cmc", "jcl/jcl"])
def test_a_run_on_files_stopped_after_every_step_ends_as_one_never_stopped(name, files, tiny, shrink, tmp_path) -> None:
    recipe = shrink(methods.get(name)).override({"keys.shuffle_groups": 1})
    settings = tiny.override(batch_size=8, knn_every=1)
    whole = pretrain(recipe, settings, files, files, seed=5, speed=Speed(workers=2), log=quiet)
    pieces, stops = run_in_single_steps(recipe, settings, files, files, seed=5, folder=tmp_path, speed=LONE)
    assert stops == 6
    same(pieces, whole)


def test_training_crops_whole_pictures_and_evaluation_sees_the_middle(files, tiny, shrink, monkeypatch) -> None:
    seen: dict[str, set[tuple[int, ...]]] = {"make": set(), "plain": set()}
    for what in seen:
        original = getattr(Augmented, what)

        def watch(self, images, *args, what=what, original=original):
            seen[what].add(tuple(images.shape[1:]))
            return original(self, images, *args)

        monkeypatch.setattr(Augmented, what, watch)
    settings = tiny.override(batch_size=8, knn_every=1)
    pretrain(shrink(methods.get("ring/moco")), settings, files, files, speed=LONE, log=quiet)
    assert seen == {"make": {(2, 3, 16, 16)}, "plain": {(3, 32, 32)}}


@pytest.mark.parametrize("part", [Augmented(2), Split("lab")], ids=["augmented", "split"])
def test_a_linear_probe_trains_on_crops_of_whole_pictures_too(part, files, monkeypatch) -> None:
    nets = encoders.build_for(part, 3, arch="tiny", stem="cifar", head="linear", dim=8)
    probe = LinearProbe(solver="sgd", features="pooled", epochs=2, batch_size=8, lr=0.1)
    boxes: list[Tensor] = []
    original = Crops.boxes
    monkeypatch.setattr(Crops, "boxes", lambda self, *args: boxes.append(original(self, *args)) or boxes[-1])
    evaluation = tasks.Evaluation(part, augmentation("mocov2", SIDE), Splits("files", files, files, files, ""))
    scores = tasks.linear_sgd(nets, evaluation, files, probe)
    assert bool(scores.isfinite().all())
    assert len(boxes) == 2 * 24  # of every picture in both epochs, and none of the test
    assert len({tuple(box.flatten().tolist()) for box in boxes}) > 24


def test_only_resident_sets_move_and_streamed_ones_are_read_alike(files, pictures) -> None:
    train, test = pictures(4), pictures(4, seed=1)
    moved = Splits("x", train, train, test, "note").to("cpu")
    assert moved.pretrain is moved.train is not train
    assert torch.equal(moved.test.images, test.images)
    assert (moved.name, moved.note, moved.train.name) == ("x", "note", train.name)
    assert Splits("x", files, files, files, "note").to("cpu").train is files
    assert files.to("cpu") is files
    whole = pictures(22)
    equal(read(Streamed(whole), epochs(), start=2), read(whole, epochs(), start=2))
