"""Whole runs on a pretended device: what they compute is what a CPU computes by the same ways, and no step waits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from contrastlab import methods, negatives, tasks
from contrastlab.data import ImageSet, Splits
from contrastlab.pictures import loading
from contrastlab.pictures.augmentations import augmentation
from contrastlab.pictures.definitions import Layers, Linear, Neighbours, Transfer
from contrastlab.pictures.modality import IMAGE
from contrastlab.settings import LayerProbe, LinearProbe
from contrastlab.support import host
from contrastlab.support.seeds import generator
from contrastlab.train import Speed, Trained, learner, loop, pretrain
from contrastlab.train.learner import Learner
from contrastlab.views import Augmented, Split
from made_runs import one_of_each_kind, part_types, quiet
from pretend import ELSEWHERE, Device, DeviceMixError, Pretended, WaitError
from test_optimisers import Dropping
from test_pretrain import CLOCK, Streamed

RECIPES: dict[str, dict[str, Any]] = {
    "ring/ir": {"negatives.k": 3},  # so few among 32 keys that they are scored one by one
    "ring/iring": {},
    "ring/cmcring": {},
    "ring/moco": {"keys.shuffle_groups": 2},
    "ring/mocoring": {},
    "ring/simclring": {},
    "vince/la": {},
    "vince/la_nce": {},
    "vince/ir_nce": {},
    "vince/ball_sneigh_anneal": {},
    "vince/cave_lab_anneal": {},
    "jcl/jcl": {"keys.shuffle_groups": 2},
    "fmicl/kl": {},
    "fmicl/cosine_kl": {},
    "fmicl/au": {},
    "fmicl/spectral": {},
    "fmicl/moco_v3": {},
    "ours/supervised": {},
    "cmc/pirl": {},
    "sogclr/sogclr": {},
}
LATER = (
    "debiased/debiased", "supcon/out", "hard/hard", "decoupled/dclw", "barlow/barlow", "vicreg/vicreg", "rince/rince",
    "facenet/triplet", "facenet/semi_hard", "siglip/sigmoid", "byol/byol", "simsiam/simsiam",
)  # fmt: skip


@pytest.fixture
def device() -> Iterator[Device]:
    """The pretended device, in use."""
    device = Device()
    with device.in_use():
        yield device


class Runs:
    """A recipe trained on the device, and on a CPU by the ways of a device."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.device = Device()
        self.seen: list[Tensor] = []
        loss, train_step = Learner.loss, loop._Loop.train_step

        def watched(learner: Learner, *args: Any) -> Any:
            step = loss(learner, *args)
            self.seen.append(step.loss.detach())
            return step

        def without_waiting(run: Any, *args: Any) -> None:
            self.device.may_wait = False
            train_step(run, *args)
            self.device.may_wait = True

        patch.setattr(Learner, "loss", watched)
        patch.setattr(loop._Loop, "train_step", without_waiting)
        patch.setattr(host, "TYPE", "none")

    def train(self, *args: Any, away: bool, **options: Any) -> tuple[list[float], Trained]:
        """Losses of all steps, and the finished run with its encoders on the CPU."""
        self.seen.clear()
        options |= {"speed": Speed(fused=False, workers=0), "log": quiet}
        if not away:
            done = pretrain(*args, **options)
            return [float(value) for value in self.seen], done
        with self.device.in_use():
            done = pretrain(*args, fabric=self.device.fabric(), **options)
            done.encoders.cpu()
            return [float(value) for value in self.seen], done


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    return Runs(monkeypatch)


def assert_alike(there: tuple[list[float], Trained], here: tuple[list[float], Trained]) -> None:
    """The same losses, rows of the history and weights, but for the order of sums."""
    assert there[0] == pytest.approx(here[0], rel=3e-7)
    assert len(set(here[0])) == len(here[0])
    for away, row in zip(there[1].history, here[1].history, strict=True):
        assert away.keys() == row.keys()
        assert {k: v for k, v in away.items() if k not in CLOCK} == pytest.approx(
            {k: v for k, v in row.items() if k not in CLOCK}, rel=3e-7
        )
    weights = zip(there[1].encoders.parameters(), here[1].encoders.parameters(), strict=True)
    for away, weight in weights:
        torch.testing.assert_close(away, weight, rtol=3e-7, atol=1e-7)


@pytest.mark.parametrize("name", [
    *one_of_each_kind({name: part_types(methods.get(name))[1:] for name in RECIPES}),
    *(pytest.param(name, marks=pytest.mark.nightly) for name in LATER),
])  # fmt: skip
def test_a_run_on_a_device_is_that_of_a_cpu(name, runs, pictures, tiny, shrink, tmp_path) -> None:
    recipe = shrink(methods.get(name)).override(RECIPES.get(name, {}))
    settings = tiny.override(knn_every=1)
    sets = pictures(32), pictures(16, seed=1)
    here = runs.train(recipe, settings, *sets, away=False)
    there = runs.train(recipe, settings, *sets, away=True, folder=tmp_path)
    assert_alike(there, here)


@pytest.mark.parametrize("name", [
    "ring/iring", "ring/simclring", pytest.param("vince/ir_nce", marks=pytest.mark.nightly),
])  # fmt: skip
def test_a_batch_in_chunks_is_that_of_a_cpu(name, runs, pictures, tiny, shrink) -> None:
    recipe, settings = shrink(methods.get(name)), tiny.override(accumulate=2)
    here = runs.train(recipe, settings, pictures(32), away=False)
    there = runs.train(recipe, settings, pictures(32), away=True)
    assert_alike(there, here)


def test_scores_that_are_never_held_at_once_are_those_of_a_cpu(runs, pictures, tiny, shrink, monkeypatch) -> None:
    monkeypatch.setattr(learner, "DENSE_BYTES", 0)
    recipe = shrink(methods.get("ring/iring"))
    here = runs.train(recipe, tiny, pictures(32), away=False)
    there = runs.train(recipe, tiny, pictures(32), away=True)
    assert_alike(there, here)


def test_a_streamed_set_is_that_of_a_cpu(runs, pictures, tiny, shrink) -> None:
    # its labels and numbers stay on the CPU until a batch is sent
    recipe, settings = shrink(methods.get("ours/supervised")), tiny.override(knn_every=1, train_images=24)
    sets = Streamed(pictures(32)), Streamed(pictures(16, seed=1))
    with loading.decoders(0):
        here = runs.train(recipe, settings, *sets, away=False)
        there = runs.train(recipe, settings, *sets, away=True)
    assert_alike(there, here)


def test_batches_of_a_streamed_set_are_sent_without_waiting(device, pictures) -> None:
    device.may_wait = False
    stream = loading.batches(Streamed(pictures(8)), torch.arange(8), 4, ELSEWHERE, drop_last=True, workers=0)
    sent = [tensor for batch in stream for tensor in batch]
    assert len(sent) == 4
    assert all(tensor.device == ELSEWHERE for tensor in sent)


def test_a_device_is_asked_for_the_spectrum_in_the_first_and_last_epoch_only(runs, pictures, tiny, shrink) -> None:
    for away in (False, True):
        _, done = runs.train(shrink(methods.get("ring/ir")), tiny.override(epochs=3), pictures(16), away=away)
        assert ["effective_rank" in row for row in done.history] == [True, False, True]


def test_masks_of_dropout_are_drawn_on_the_device(runs, pictures, tiny, monkeypatch) -> None:
    made = replace(IMAGE, encoders=lambda views, source, settings: nn.ModuleList([Dropping(settings.dim)]))
    monkeypatch.setattr(loop, "modality", lambda source: made)
    fixed, places = loop.fixed, []
    monkeypatch.setattr(loop, "fixed", lambda seed, place="cpu": places.append(place) or fixed(seed, place))
    runs.train(methods.get("fmicl/simclr"), tiny, pictures(32), away=True)
    assert places == ["cpu", *4 * [ELSEWHERE]]  # weights, and the masks of four steps


def of_16_bits(part: ImageSet) -> ImageSet:
    """Four channels of 16 bits in place of three of 8."""
    wider = torch.cat([part.items, part.items[:, :1].flip(-1)], 1).int() * 257
    return ImageSet(part.name, wider.to(torch.uint16), part.labels, part.classes)


def test_pictures_of_16_bits_are_trained_and_watched_as_on_a_cpu(runs, pictures, tiny) -> None:
    recipe, settings = methods.get("decoupled/simclr"), tiny.override(knn_every=1, augmentation="linear")
    sets = of_16_bits(pictures(32)), of_16_bits(pictures(16, seed=1))
    here = runs.train(recipe, settings, *sets, away=False)
    there = runs.train(recipe, settings, *sets, away=True)
    assert_alike(there, here)


@pytest.mark.parametrize("name", ["vince/la_nce", pytest.param("ring/mocoring", marks=pytest.mark.nightly)])
def test_a_run_resumed_on_a_device_ends_as_one_never_stopped(name, runs, pictures, tiny, shrink, tmp_path) -> None:
    recipe = shrink(methods.get(name))
    losses, whole = runs.train(recipe, tiny, pictures(32), away=True)
    with pytest.raises(KeyboardInterrupt):
        runs.train(recipe, tiny, pictures(32), away=True, folder=tmp_path, max_minutes=0)
    rest, again = runs.train(recipe, tiny, pictures(32), away=True, folder=tmp_path)
    assert rest == losses[1:]
    assert_alike((losses, again), (losses, whole))


def test_more_steps_are_no_more_waits(runs, pictures, tiny, shrink) -> None:
    recipe, settings, counts = shrink(methods.get("vince/la")), tiny.override(knn_every=1), []
    for size in (16, 32):
        runs.device.waits.clear()
        runs.train(recipe, settings, pictures(size), pictures(16, seed=1), away=True)
        del runs.device.waits["no line of contrastlab"]  # this test reads each loss
        counts.append(dict(runs.device.waits))
    assert counts[0] == counts[1]
    assert sum(counts[0].values()) > 0


@pytest.mark.parametrize("name", ["instdisc", "mocov2", "cmc_jitter", "cmc_v2"])
@pytest.mark.parametrize("part", [Augmented(2), Split()], ids=["augmented", "split"])
def test_views_are_made_without_waiting_as_a_cpu_makes_them(name, part, device, pictures, monkeypatch) -> None:
    monkeypatch.setattr(host, "TYPE", "none")
    images, shown = pictures(8).items, augmentation(name, 16)
    here = part.make(images, shown, generator(0, "views"))
    away = images.to(ELSEWHERE)
    device.may_wait = False
    there = part.make(away, shown, generator(0, "views", device=ELSEWHERE))
    plain = part.plain(away, shown)
    device.may_wait = True
    assert all(view.device == ELSEWHERE for view in (*there, *plain))
    for view, expected in zip(there, here, strict=True):
        torch.testing.assert_close(view.cpu(), expected, rtol=3e-7, atol=1e-7)


TASKS = {
    "linear": Linear(LinearProbe(epochs=2, batch_size=16)),
    "linear by L-BFGS": Linear(LinearProbe(solver="lbfgs")),
    "layers": Layers(LinearProbe(epochs=2, batch_size=16), LayerProbe(values=64, hidden=8)),
    "layers by L-BFGS": Layers(LinearProbe(solver="lbfgs"), LayerProbe(values=64, hidden=8, mlp_epochs=2)),
    "transfer": Transfer(LinearProbe(epochs=2, batch_size=16)),
    "neighbours": Neighbours(),
}


@pytest.mark.parametrize("name", TASKS)
def test_scores_of_an_encoder_are_those_of_a_cpu(name, pictures, tiny, monkeypatch) -> None:
    monkeypatch.setattr(host, "TYPE", "none")
    train, test = pictures(48), pictures(32, seed=1)
    for part in (train, test):
        part.items[:] = part.items // 2 + (part.labels * 60).to(torch.uint8)[:, None, None, None]
    splits = Splits("made", train, train, test, "two classes, one lighter")
    trained = pretrain(methods.get("ours/random"), tiny, train, log=quiet).encoders
    device, shown = Device(), (Augmented(1), augmentation("mocov2", 16))
    here = TASKS[name].score(trained, tasks.Evaluation(*shown, splits, seed=3))
    with device.in_use():
        evaluation = tasks.Evaluation(*shown, splits.to(ELSEWHERE), seed=3, device=ELSEWHERE)
        there = TASKS[name].score(trained.to(ELSEWHERE), evaluation)
    assert {metric: each.value for metric, each in there.items()} == {m: each.value for m, each in here.items()}
    for metric, each in there.items():
        assert not isinstance(each.correct, Pretended)
        assert torch.equal(each.correct, here[metric].correct)


@pytest.mark.parametrize("place", ["cpu", "cuda"])
def test_memory_is_pinned_for_a_gpu_alone(place, pictures, monkeypatch) -> None:
    asked = []
    monkeypatch.setattr(loading, "DataLoader", lambda *args, **options: asked.append(options) or [])
    assert list(loading.batches(Streamed(pictures(8)), torch.arange(8), 4, place, drop_last=True)) == []
    assert [options["pin_memory"] for options in asked] == [place == "cuda"]


# The device itself ----------------------------------------------------------------------------------------------------


def test_values_are_kept_and_gradients_flow(device) -> None:
    x = torch.arange(6.0).reshape(2, 3).requires_grad_()
    there = x.to(ELSEWHERE)
    half = there[:, 1:].detach()
    half.mul_(2)  # of the same memory
    assert isinstance(there, Pretended)
    assert there.device == ELSEWHERE
    assert there.cpu().tolist() == there.tolist() == [[0, 2, 4], [3, 8, 10]]
    (there * torch.tensor(3.0)).sum().backward()
    assert x.grad.tolist() == [[3, 3, 3], [3, 3, 3]]
    drawn = torch.rand(4, device=ELSEWHERE, generator=torch.Generator(ELSEWHERE).manual_seed(5))
    assert drawn.tolist() == torch.rand(4, generator=torch.Generator().manual_seed(5)).tolist()
    assert torch.tensor([1, 2], device=ELSEWHERE).tolist() == [1, 2]


def test_what_a_gpu_refuses_is_refused(device) -> None:
    here, away = torch.ones(3), torch.ones(3, device=ELSEWHERE)
    generators = torch.Generator(), torch.Generator(ELSEWHERE)
    for mixed in (
        lambda: here + away,
        lambda: torch.cat([away, here]),
        lambda: torch.stack([away.sum(), here.sum()]),
        lambda: away.index_add_(0, torch.arange(3), away),
        lambda: here[away > 0],
        lambda: torch.where(here > 0, away, 0.0),
        lambda: torch.rand(3, device=ELSEWHERE, generator=generators[0]),
        lambda: torch.randperm(3, generator=generators[1]),
        lambda: away.normal_(generator=generators[0]),
    ):
        with pytest.raises(DeviceMixError):
            mixed()
    with pytest.raises((TypeError, RuntimeError)):
        away.numpy()
    with pytest.raises(NotImplementedError, match="index_select of uint16"):
        away.to(torch.uint16).index_select(0, torch.zeros(1, dtype=torch.int64, device=ELSEWHERE))


def test_waits_are_counted_by_their_line_and_refused_where_there_must_be_none(device) -> None:
    here, away = torch.ones(3), torch.ones(3, device=ELSEWHERE)
    waits = [
        lambda: float(away[0]), lambda: bool((away > 0).any()), lambda: away.tolist(), lambda: away.nonzero(),
        lambda: away[away > 0], lambda: away[torch.tensor([1])], lambda: away.cpu(), lambda: here.to(ELSEWHERE),
        lambda: torch.tensor([1.0], device=ELSEWHERE), lambda: away.copy_(here), lambda: torch.equal(away, away),
    ]  # fmt: skip
    for number, wait in enumerate(waits, 1):
        wait()
        assert sum(device.waits.values()) == number
    negatives.BatchRandom(torch.Generator(ELSEWHERE)).below(9, 2, 2, ELSEWHERE)
    here.to(ELSEWHERE, non_blocking=True)
    assert sum(device.waits.values()) == len(waits)
    assert set(device.waits) == {"no line of contrastlab"}
    tasks.nearest_neighbour(away[None], torch.zeros(1, device=ELSEWHERE).long(), away[None], away[:1].long())
    files = [line.partition(":")[0] for line in device.waits if "int(labels.min())" in line]
    assert files == ["pictures/representations.py"]
    device.may_wait = False
    for wait in waits:
        with pytest.raises(WaitError):
            wait()
