"""The loop: cut off anywhere it goes on as if it had never stopped, and it never keeps anything bad."""

import csv
import json
import math
import os
import random
import re
import shutil
import signal
import sys
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.optim import lr_scheduler

from contrastlab import keys, methods, tables
from contrastlab.data import ImageSet
from contrastlab.keys import InBatch
from contrastlab.pictures import fitting, linear, loading, representations
from contrastlab.settings import Settings
from contrastlab.support import files, host
from contrastlab.support.errors import (
    ArgumentError,
    CorruptFileError,
    NonFiniteLossError,
    NotApplicableError,
    StorageError,
)
from contrastlab.tables import pool
from contrastlab.train import Speed, Trained, checkpoint, journal, loop, pretrain, progress, signals
from contrastlab.train.journal import bottleneck
from contrastlab.train.learner import Learner, Step
from contrastlab.train.schedule import cpu_fabric, learning_rate, plateau_drops, warnings_only
from made_runs import equal, generator, quiet, resumed

CLOCK = {"seconds", "images_per_s", "waiting"}


@pytest.fixture(autouse=True)
def _a_line_for_every_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "LINE_EVERY_S", 0.0)


def numbers(done: Trained) -> list[dict[str, float]]:
    return [{k: v for k, v in row.items() if k not in CLOCK} for row in done.history]


def same(a: Trained, b: Trained) -> None:
    assert equal(a.encoders, b.encoders)
    assert numbers(a) == numbers(b)


def run_in_single_steps(*args, **options) -> tuple[Trained, int]:
    """Stop and resume after every single step."""
    return resumed(lambda: pretrain(*args, max_minutes=0, log=quiet, **options))


@pytest.mark.parametrize(("name", "schedule"), [
    ("ring/ir", "linear"), ("ring/mocoring", "cosine"), ("vince/cmc", "cosine"), ("vince/cave_anneal", "cosine"),
    ("ring/la", "cosine"), ("ours/supervised", "cosine"),
])  # fmt: skip
def test_a_run_stopped_after_every_step_ends_as_one_never_stopped(
    name, schedule, pictures, tiny, shrink, tmp_path
) -> None:
    recipe, images = shrink(methods.get(name)), pictures(48)
    settings = tiny.override(epochs=3, schedule=schedule, knn_every=1)
    whole = pretrain(recipe, settings, images, images, seed=5, log=quiet)
    pieces, stops = run_in_single_steps(recipe, settings, images, images, seed=5, folder=tmp_path)
    assert stops == 9  # three epochs of three steps, and each session made one
    same(pieces, whole)
    assert all(row.keys() >= {"nn1", "own_class", "own_class_10"} for row in whole.history)


@pytest.mark.parametrize("name", ["ring/iring", "ours/supervised"])
def test_a_seed_gives_one_result_and_another_seed_another(name, pictures, tiny, shrink) -> None:
    recipe = shrink(methods.get(name))
    first, again, other = (pretrain(recipe, tiny, pictures(48), seed=s, log=quiet) for s in (0, 0, 1))
    same(first, again)
    assert numbers(first) != numbers(other)


def test_a_run_killed_at_a_random_step_resumes_to_the_same_bits(pictures, tiny, shrink, tmp_path, monkeypatch) -> None:
    recipe = shrink(methods.get("vince/la_nce"))
    settings, images = tiny.override(epochs=12), pictures(48)
    target = random.Random(2024).randrange(5, 25)
    read, write = os.pipe()
    save = checkpoint.save

    def watched(state, path) -> None:
        save(state, path)
        os.write(write, f"{state['progress']['step']}\n".encode())
        if state["progress"]["step"] > target + 5:  # wait for the kill, however late
            time.sleep(60)

    if (child := os.fork()) == 0:
        os.close(read)
        monkeypatch.setattr(checkpoint, "save", watched)
        try:
            pretrain(recipe, settings, images, seed=3, folder=tmp_path, checkpoint_every=0, log=quiet)
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as lines:
        reached = [int(line) for line, _ in zip(lines, range(target), strict=False)]
        os.kill(child, signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert len(reached) == target
    assert reached == sorted(reached)
    stored = checkpoint.load(tmp_path / checkpoint.FILE)["progress"]["step"]
    assert reached[-1] <= stored < 36
    again = pretrain(recipe, settings, images, seed=3, folder=tmp_path, log=quiet)
    same(again, pretrain(recipe, settings, images, seed=3, log=quiet))


def test_keys_are_clustered_in_every_epoch_with_another_seed(pictures, tiny, shrink, monkeypatch) -> None:
    recipe = shrink(methods.get("vince/la_nce"))
    seeds: list[int] = []
    monkeypatch.setattr(keys.BankState, "cluster", lambda self, seed: seeds.append(seed))
    for seed in (3, 4):
        pretrain(recipe, tiny.override(epochs=3), pictures(48), seed=seed, log=quiet)
    assert len(seeds) == 2 * 2  # not before the first epoch
    assert len(set(seeds)) == len(seeds)


def test_ctrl_c_leaves_a_run_that_is_refused_to_others_and_resumed(pictures, tiny, shrink, tmp_path) -> None:
    recipe, images = shrink(methods.get("ring/moco")), pictures(48)
    before = signal.getsignal(signal.SIGINT)
    stopped_after_one_epoch(recipe, tiny, images, tmp_path)
    assert signal.getsignal(signal.SIGINT) is before
    assert checkpoint.load(tmp_path / checkpoint.FILE)["progress"]["step"] == 4
    other = shrink(methods.get("ring/moco")).override({"keys.momentum": 0.5})
    with pytest.raises(ArgumentError, match=r"other settings \(recipe\.keys\.momentum, seed, settings\.lr\)"):
        pretrain(other, tiny.override(lr=0.5), images, seed=1, folder=tmp_path, log=quiet)
    # tables share runs: one asks for another probe, another name, another detector
    other = tiny.override(test_images=7, linear={"l2": 0.5}, boxes={"lr": 0.005})
    lines: list[str] = []
    again = pretrain(replace(recipe, name="cmc/moco"), other, images, folder=tmp_path, log=lines.append)
    assert any("goes on from its checkpoint: epoch 1, step 4" in line for line in lines)
    # a worker's line of progress is written over by the next one; that a run was resumed stays to be read
    (resumed_line,) = (line for line in lines if "checkpoint" in line)
    assert not pool._moves_on(resumed_line)
    assert all(pool._moves_on(line) for line in lines if " loss " in line)
    same(again, pretrain(recipe, tiny, images, log=quiet))


def stopped_after_one_epoch(recipe, settings, images, folder) -> None:
    def interrupt(line: str) -> None:
        if "epoch 1/" in line:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt, match="step 4"):
        pretrain(recipe, settings, images, folder=folder, log=interrupt)


def test_a_second_ctrl_c_interrupts_at_once(pictures, tiny, shrink, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(signals, "SAME_SIGNAL_S", 0.05)

    def interrupt(line: str) -> None:
        signal.raise_signal(signal.SIGINT)
        time.sleep(0.1)
        signal.raise_signal(signal.SIGINT)
        time.sleep(5)  # cut short by the second one

    with pytest.raises(KeyboardInterrupt) as caught:
        pretrain(shrink(methods.get("ring/ir")), tiny, pictures(48), folder=tmp_path, log=interrupt)
    assert "step" not in str(caught.value)
    assert not (tmp_path / checkpoint.FILE).exists()


def test_a_finished_run_is_not_run_again(pictures, tiny, shrink, tmp_path, monkeypatch) -> None:
    recipe, images = shrink(methods.get("ring/ir")), pictures(48)
    first = pretrain(recipe, tiny, images, folder=tmp_path, log=quiet)
    monkeypatch.setattr(Learner, "loss", lambda *a, **k: pytest.fail("trained again"))
    again = pretrain(recipe, tiny, images, folder=tmp_path, log=quiet)
    same(first, again)
    assert again.seconds == first.seconds
    assert again.images == first.images == 96


def test_without_resume_the_run_starts_anew(pictures, tiny, shrink, tmp_path) -> None:
    recipe, images = shrink(methods.get("ring/ir")), pictures(48)
    with pytest.raises(KeyboardInterrupt):
        pretrain(recipe, tiny, images, folder=tmp_path, max_minutes=0, log=quiet)
    lines: list[str] = []
    done = pretrain(recipe, tiny, images, folder=tmp_path, resume=False, log=lines.append)
    assert not any("resume" in line for line in lines)
    same(done, pretrain(recipe, tiny, images, log=quiet))


def test_the_folder_of_another_run_is_left_alone(pictures, tiny, shrink, tmp_path) -> None:
    recipe, images, other = shrink(methods.get("ring/ir")), pictures(48), pictures(48, seed=9)
    pretrain(recipe, tiny, images, folder=tmp_path, log=quiet)
    files = {p: p.read_bytes() for p in tmp_path.iterdir() if p.is_file()}
    for change in (
        {"seed": 1}, {"settings": tiny.override(lr=0.1)}, {"recipe": recipe.override({"temperature": 0.1})},
        {"images": other}, {"images": replace(other, name=images.name)},
    ):  # fmt: skip
        with pytest.raises(ArgumentError, match=str(tmp_path)):
            pretrain(**{"recipe": recipe, "settings": tiny, "images": images} | change, folder=tmp_path, log=quiet)
        assert {p: p.read_bytes() for p in tmp_path.iterdir() if p.is_file()} == files


def test_checkpoint_holds_tensors_and_plain_values_only(pictures, tiny, shrink, tmp_path) -> None:
    pretrain(shrink(methods.get("vince/cmc")), tiny, pictures(48), folder=tmp_path, log=quiet)
    raw = (tmp_path / checkpoint.FILE).read_bytes()
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    names = {name for name, _ in json.loads(header["__metadata__"]["values"])["dict"]}
    assert names >= {"config", "learner", "optimiser", "progress", "history"}
    assert b"pickle" not in raw
    assert [p.name for p in tmp_path.glob("*.tmp")] == []


def test_a_corrupt_checkpoint_is_named_and_kept(pictures, tiny, shrink, tmp_path) -> None:
    recipe, file = shrink(methods.get("ring/ir")), tmp_path / checkpoint.FILE
    pretrain(recipe, tiny, pictures(48), folder=tmp_path, log=quiet)
    whole = file.read_bytes()
    for broken in (b"", b"not a checkpoint", whole[: len(whole) // 2], whole[:-1]):
        file.write_bytes(broken)
        with pytest.raises(CorruptFileError, match=str(file)):
            pretrain(recipe, tiny, pictures(48), folder=tmp_path, log=quiet)
        assert file.read_bytes() == broken
    files.write_tensors(file, {"x": torch.ones(1)}, {"list": []})
    with pytest.raises(CorruptFileError, match=str(file)):
        pretrain(recipe, tiny, pictures(48), folder=tmp_path, log=quiet)


def test_a_failed_write_leaves_the_old_checkpoint(tmp_path, monkeypatch) -> None:
    file = tmp_path / "state.pt"
    checkpoint.save({"a": torch.ones(2)}, file)

    def fail(number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StorageError, match=rf"{file}: No space left"):
        checkpoint.save({"a": torch.zeros(2)}, file)
    assert torch.equal(checkpoint.load(file)["a"], torch.ones(2))
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("kept", [True, False])
def test_a_loss_that_is_not_finite_names_step_and_checkpoint_and_stores_nothing_bad(
    bad, kept, pictures, tiny, shrink, tmp_path, monkeypatch
) -> None:
    recipe, images, folder = shrink(methods.get("ring/moco")), pictures(48), tmp_path if kept else None
    loss = Learner.loss

    def spoilt(self, views, indices, labels, draws, step, total) -> Step:
        out = loss(self, views, indices, labels, draws, step, total)
        return replace(out, loss=out.loss * bad) if step == 4 else out

    with monkeypatch.context() as patch:
        patch.setattr(Learner, "loss", spoilt)
        where = str(tmp_path / checkpoint.FILE) if kept else "no checkpoint yet"
        with pytest.raises(NonFiniteLossError, match=rf"ring/moco: .*step 4 \(epoch 1\); .*{where}"):
            pretrain(recipe, tiny, images, folder=folder, checkpoint_every=0, log=quiet)
    if not kept:
        return
    state = checkpoint.load(tmp_path / checkpoint.FILE)
    assert state["progress"]["step"] == 4
    assert all(bool(t.isfinite().all()) for k, t in state["learner"].items() if k != "offsets")
    same(pretrain(recipe, tiny, images, folder=tmp_path, log=quiet), pretrain(recipe, tiny, images, log=quiet))


def test_an_infinite_slope_behind_a_finite_loss_reaches_no_optimiser_step(pictures, tiny, shrink, monkeypatch) -> None:
    recipe, loss, seen = shrink(methods.get("ring/moco")), Learner.loss, []

    def spoilt(self, views, indices, labels, draws, step, total) -> Step:
        out = loss(self, views, indices, labels, draws, step, total)
        seen[:] = [p.detach().clone() for p in self.network.parameters()], self.network
        edge = (out.loss - out.loss.detach()).sqrt()  # zero, with an infinite slope
        return replace(out, loss=out.loss + edge) if step == 4 else out

    monkeypatch.setattr(Learner, "loss", spoilt)
    with pytest.raises(NonFiniteLossError, match=r"the loss or a gradient is not finite at step 4"):
        pretrain(recipe, tiny, pictures(48), log=quiet)
    before, network = seen
    assert all(torch.equal(a, b) for a, b in zip(before, network.parameters(), strict=True))


def test_a_device_leaves_out_a_step_that_is_not_finite(pictures, tiny, shrink, monkeypatch) -> None:
    recipe, loss, networks = shrink(methods.get("ring/moco")), Learner.loss, []

    def spoilt(self, views, indices, labels, draws, step, total) -> Step:
        out = loss(self, views, indices, labels, draws, step, total)
        networks.append(self.network)
        return replace(out, loss=out.loss * math.nan) if step == 4 else out

    monkeypatch.setattr(host, "TYPE", "none")
    monkeypatch.setattr(Learner, "loss", spoilt)
    with pytest.raises(NonFiniteLossError, match="not finite at step 4"):
        pretrain(recipe, tiny, pictures(48), log=quiet)
    assert len(networks) == 6  # it goes on to the end of the epoch
    assert all(bool(weight.isfinite().all()) for weight in networks[-1].parameters())


def test_metrics_of_a_resumed_run_hold_every_epoch_once(pictures, tiny, shrink, tmp_path) -> None:
    recipe, images = shrink(methods.get("ring/ir")), pictures(48)
    settings = tiny.override(epochs=4, knn_every=2)
    done, _ = run_in_single_steps(recipe, settings, images, images, folder=tmp_path)
    with (tmp_path / "metrics.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [float(row["epoch"]) for row in table] == [1, 2, 3, 4]
    for got, row in zip(table, done.history, strict=True):
        assert float(got["step"]) == row["step"]
        assert float(got["loss"]) == pytest.approx(row["loss"], rel=1e-6)
        assert (got["nn1"] != "") == ("nn1" in row)
    assert [i for i, row in enumerate(done.history, 1) if "nn1" in row] == [2, 4]
    (board,) = (tmp_path / "tensorboard").iterdir()
    assert board.name == "ring-ir-seed-0-pictures-0"  # what TensorBoard shows


def test_a_folder_that_is_deleted_during_a_run_is_named(pictures, tiny, shrink, tmp_path, monkeypatch, capsys) -> None:
    after = journal.Journal.after_epoch
    monkeypatch.setattr(
        journal.Journal, "after_epoch", lambda self: after(self) or shutil.rmtree(tmp_path / "out", ignore_errors=True)
    )
    with pytest.raises(StorageError, match=f"^{tmp_path}/out/tensorboard/.* was removed while the run wrote there"):
        pretrain(shrink(methods.get("ring/ir")), tiny, pictures(48), folder=tmp_path / "out", log=quiet)
    assert "Traceback" not in capsys.readouterr().err  # of TensorBoard's thread


def test_encoders_as_they_begin_need_no_batch(pictures, tiny) -> None:
    few = tiny.override(batch_size=64)
    assert pretrain(methods.get("ours/random"), few, pictures(12), log=quiet).encoders
    with pytest.raises(ArgumentError, match="batch_size=64: expected at most the number of images, 12"):
        pretrain(methods.get("ring/simclr"), few, pictures(12), log=quiet)


@dataclass(frozen=True)
class Streamed:
    """The same pictures, one at a time."""

    whole: ImageSet
    resident: bool = False
    domain: str = "contrastlab.pictures.domain"
    modality: str = "image"

    name, labels, classes, channels = (
        property(lambda self, field=field: getattr(self.whole, field))
        for field in ("name", "labels", "classes", "channels")
    )

    def __len__(self) -> int:
        return len(self.whole)

    def __getitem__(self, index: int) -> Tensor:
        return self.whole.images[index]

    def to(self, device: torch.device | str) -> "Streamed":
        return self


@pytest.mark.parametrize("workers", [0, 2])
def test_streamed_batches_are_the_resident_ones(workers: int, pictures) -> None:
    whole = pictures(23)
    order = torch.randperm(23, generator=generator(1))
    for options in ({"drop_last": True}, {"drop_last": False, "start": 1}):
        resident = list(loading.batches(whole, order, 5, "cpu", **options))
        streamed = list(loading.batches(Streamed(whole), order, 5, "cpu", workers=workers, **options))
        assert len(resident) == len(streamed) == 4
        for (i, x), (j, y) in zip(resident, streamed, strict=True):
            assert torch.equal(i, j)
            assert torch.equal(x, y)
            assert torch.equal(x, whole.images[i])


def test_training_from_a_stream_gives_the_same_bits(pictures, tiny, shrink, monkeypatch) -> None:
    recipe, whole = shrink(methods.get("ring/moco")), pictures(48)
    settings = tiny.override(knn_every=1, train_images=40)
    resident = pretrain(recipe, settings, whole, whole, log=quiet)
    for module in (fitting, linear, representations):
        monkeypatch.setattr(module, "batches", partial(loading.batches, workers=0))
    streamed = pretrain(recipe, settings, Streamed(whole), Streamed(whole), speed=Speed(workers=0), log=quiet)
    same(streamed, resident)


@pytest.mark.parametrize(("drop_last", "count"), [(True, 20), (False, 23)])
def test_processes_share_each_global_batch_in_rank_order(drop_last: bool, count: int, pictures) -> None:
    whole, order = pictures(23), torch.randperm(23, generator=generator(1))
    one = list(loading.batches(whole, order, 10, "cpu", drop_last=drop_last))
    parts = [list(loading.batches(whole, order, 5, "cpu", drop_last=drop_last, rank=r, world=2)) for r in (0, 1)]
    for number, (indices, _) in enumerate(one):
        assert torch.equal(torch.cat([parts[0][number][0], parts[1][number][0]]), indices)
    assert torch.equal(torch.cat([i for i, _ in one]), order[:count])


def test_a_subset_is_of_the_seed_and_trains_on_its_images_only(pictures, tiny, shrink, monkeypatch) -> None:
    labels = torch.zeros(30, dtype=torch.int64)
    some = loading.subset_order(labels, 12, seed=1)
    assert len(set(some.tolist())) == 12
    assert set(some.tolist()) < set(range(30))
    assert torch.equal(some, loading.subset_order(labels, 12, seed=1))
    assert not torch.equal(some, loading.subset_order(labels, 12, seed=2))
    for count in (None, 30, 31):
        assert torch.equal(loading.subset_order(labels, count, seed=1), torch.arange(30))
    seen: set[int] = set()
    step = Learner.loss

    def watch(self, views, indices, labels, draws, number, total) -> Step:
        seen.update(indices.tolist())
        return step(self, views, indices, labels, draws, number, total)

    monkeypatch.setattr(Learner, "loss", watch)
    recipe = shrink(methods.get("ring/ir"))
    pretrain(recipe, tiny.override(train_images=20, epochs=12), pictures(48), log=quiet)
    assert seen == set(range(20))  # rows of a bank of twenty
    same(pretrain(recipe, tiny.override(train_images=49), pictures(48), log=quiet),
         pretrain(recipe, tiny, pictures(48), log=quiet))  # fmt: skip


@pytest.mark.parametrize(("settings", "theirs"), [
    ({"schedule": "steps", "milestones": (4, 9), "gamma": 0.1}, lambda o: lr_scheduler.MultiStepLR(o, [4, 9], 0.1)),
    ({"schedule": "steps", "milestones": (4, 9), "gamma": 0.5}, lambda o: lr_scheduler.MultiStepLR(o, [4, 9], 0.5)),
    ({"schedule": "cosine", "milestones": ()}, lambda o: lr_scheduler.CosineAnnealingLR(o, 15)),
])  # fmt: skip
def test_schedules_follow_torch(settings, theirs) -> None:
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.03)
    schedule = theirs(optimiser)
    for epoch in range(15):
        ours = learning_rate(Settings(epochs=15, lr=0.03, **settings), epoch)
        assert ours == pytest.approx(schedule.get_last_lr()[0], rel=1e-9)
        optimiser.step()
        schedule.step()


@pytest.mark.parametrize(("values", "drops"), [
    ((), 0),
    ((1, 2, 3, 4, 5, 6), 0),
    ((5, 4, 4), 0),
    ((5, 4, 4, 4), 1),  # three epochs without a better one
    ((5, 5, 5, 5), 1),  # equal is not better
    ((5, 4, 4, 6, 4, 4), 0),
    ((5, 4, 4, 4, 4, 4), 1),
    ((5, 4, 4, 4, 4, 4, 4), 2),  # patience starts anew after a drop
    ((5, 4, 4, 4, 6, 4, 4, 4), 2),
    ((5, *[4] * 30), 2),  # two drops at most
    ((5, None, None, None), 1),  # an epoch without a measurement is one without progress
    ((math.nan, math.nan, math.nan), 1),
])  # fmt: skip
def test_plateau_drops_of_made_histories(values, drops) -> None:
    settings = Settings(schedule="plateau", patience=3, drops=2)
    assert plateau_drops([{"epoch": 1.0} if v is None else {"nn1": v} for v in values], settings) == drops


def test_the_rate_of_each_epoch_is_in_the_history(pictures, tiny, shrink, monkeypatch) -> None:
    recipe, images = shrink(methods.get("ring/ir")), pictures(48)
    settings = tiny.override(epochs=4, schedule="steps", milestones=(1, 3), lr=1.0, gamma=0.1)
    done = pretrain(recipe, settings, images, log=quiet)
    assert [row["lr"] for row in done.history] == pytest.approx([1.0, 0.1, 0.1, 0.01])
    monkeypatch.setattr(loop._Loop, "neighbours", lambda self: (50.0, 50.0, 50.0))
    plateau = tiny.override(epochs=5, schedule="plateau", patience=2, drops=1, lr=1.0, knn_every=1)
    done = pretrain(recipe, plateau, images, images, log=quiet)
    assert [row["lr"] for row in done.history] == pytest.approx([1.0, 1.0, 1.0, 0.1, 0.1])
    settings = Settings(schedule="constant", epochs=10, lr=0.4, warmup_epochs=4)
    assert [learning_rate(settings, e) for e in range(6)] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4, 0.4])


def test_bound_is_reported_where_it_exists(pictures, tiny, shrink) -> None:
    ring = pretrain(shrink(methods.get("ring/ir")), tiny, pictures(48), log=quiet).history[-1]
    assert ring["mi_bound"] == pytest.approx(math.log(17) - ring["loss"])
    split = pretrain(shrink(methods.get("ring/cmc")), tiny, pictures(48), log=quiet).history[-1]
    assert split["mi_bound"] == pytest.approx(math.log(17) - split["loss"] / 2)
    wide = shrink(methods.get("ring/ir")).override({"negatives.k": 48})  # 49 terms of 48 pictures
    assert "mi_bound" not in pretrain(wide, tiny, pictures(48), log=quiet).history[-1]
    for name in ("vince/ir", "vince/la", "vince/ring", "vince/cave", "ring/iring", "ours/supervised"):
        assert "mi_bound" not in pretrain(shrink(methods.get(name)), tiny, pictures(48), log=quiet).history[-1]


def test_settings_that_do_not_fit_the_data_are_named(pictures, tiny, shrink) -> None:
    recipe = shrink(methods.get("ring/ir"))
    unlabelled = replace(pictures(48), labels=torch.full((48,), -1))
    with pytest.raises(NotApplicableError, match="labels"):
        pretrain(methods.get("supervised"), tiny, unlabelled, log=quiet)
    done = pretrain(recipe, tiny.override(knn_every=1), unlabelled, pictures(48), log=quiet)
    assert all(math.isnan(row["nn1"]) for row in done.history)


def test_instance_discrimination_learns(pictures, tiny, shrink) -> None:
    recipe = replace(shrink(methods.get("ring/moco")), name="x/simclr", keys=InBatch())
    settings = tiny.override(epochs=20, augmentation="none", lr=0.1, weight_decay=0.0)
    losses = [row["loss"] for row in pretrain(recipe, settings, pictures(48), log=quiet).history]
    assert losses[-1] < 0.5 * losses[0]


def test_bfloat16_trains_and_keeps_float32_weights(pictures, tiny, shrink) -> None:
    settings = tiny.override(precision="bf16-mixed")
    mixed = pretrain(shrink(methods.get("ring/mocoring")), settings, pictures(48), log=quiet)
    plain = pretrain(shrink(methods.get("ring/mocoring")), tiny, pictures(48), log=quiet)
    assert {p.dtype for p in mixed.encoders.parameters()} == {torch.float32}
    assert mixed.history[0]["loss"] == pytest.approx(plain.history[0]["loss"], rel=0.1)
    assert mixed.history[0]["loss"] != plain.history[0]["loss"]


@pytest.mark.parametrize("slow", ["data", "step"])
def test_progress_names_the_bottleneck(slow, pictures, tiny, shrink, monkeypatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(loop.time, "monotonic", lambda: clock[0])

    def late(take, name):
        def call(*args, **options):
            clock[0] += 3.0 if slow == name else 1.0
            return take(*args, **options)

        return call

    def reading(*args, **options):
        stream = loading.batches(*args, **options)
        while True:
            yield late(next, "data")(stream)

    monkeypatch.setattr(loop, "batches", reading)
    monkeypatch.setattr(Learner, "loss", late(Learner.loss, "step"))
    lines: list[str] = []
    done = pretrain(shrink(methods.get("ring/ir")), tiny, pictures(48), log=lines.append)
    assert [row["waiting"] for row in done.history] == pytest.approx([75.0 if slow == "data" else 25.0] * 2)
    assert all(("data-bound 75 %" if slow == "data" else "compute-bound") in line for line in lines)
    assert done.seconds == 24.0  # two epochs of three steps of four seconds


@pytest.mark.parametrize(("seconds", "said"), [
    (25.0, ["1/2 loss", "2/2 loss"]),
    (35.0, ["1/2 step 2/3", "1/2 loss", "2/2 step 2/3", "2/2 loss"]),
    (70.0, ["1/2 step 1/3", "1/2 step 2/3", "1/2 loss", "2/2 step 1/3", "2/2 step 2/3", "2/2 loss"]),
])  # fmt: skip
def test_a_long_epoch_says_how_long_it_will_take(seconds, said, pictures, tiny, shrink, monkeypatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(loop.time, "monotonic", lambda: clock[0])
    loss = Learner.loss

    def slow(*args, **options):
        clock[0] += seconds
        return loss(*args, **options)

    monkeypatch.setattr(Learner, "loss", slow)
    lines: list[str] = []
    pretrain(shrink(methods.get("ring/ir")), tiny, pictures(48), log=lines.append)
    assert [line.partition("epoch ")[2].split(" loss")[0] + (" loss" * ("step" not in line)) for line in lines] == said
    for line in lines:
        epoch, step = int(line.partition("epoch ")[2][0]), re.search(r"step (\d)", line)
        left = seconds * (6 - (3 * (epoch - 1) + int(step[1]) if step else 3 * epoch))
        assert f"eta {int(left // 60)}:{int(left % 60):02d}" in line


def test_a_bar_is_shown_in_a_terminal_that_no_other_run_writes_to(monkeypatch) -> None:
    course = progress.Course(methods.get("ring/ir"), Settings(), 0, 3, 0, 1, torch.device("cpu"), None, "images", "")
    begun = progress.Progress.begin(course.device)
    monkeypatch.setattr(journal.sys.stderr, "isatty", lambda: True)
    assert not journal.bar(course, begun).disable
    assert journal.bar(replace(course, rank=1), begun).disable
    monkeypatch.setattr(journal.multiprocessing, "parent_process", object)
    assert journal.bar(course, begun).disable
    said = {0.0: "compute-bound", 50.0: "compute-bound", 63.1: "data-bound 63 %", 100.0: "data-bound 100 %"}
    assert {waiting: bottleneck(waiting) for waiting in said} == said


def test_nothing_is_written_without_a_folder(pictures, tiny, shrink, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    pretrain(shrink(methods.get("ring/ir")), tiny, pictures(48), log=quiet)
    assert list(Path().iterdir()) == []


def test_fabric_warns_and_says_nothing_else(capfd, caplog, monkeypatch) -> None:
    import logging

    import lightning_fabric

    said = logging.StreamHandler(sys.stderr)
    logger = logging.getLogger("lightning_fabric")
    monkeypatch.setattr(logger, "handlers", [said])
    monkeypatch.setattr(said, "stream", sys.stderr)
    level = logger.level
    logger.setLevel(logging.INFO)
    try:
        lightning_fabric.Fabric(accelerator="cpu", devices=1, precision="bf16-mixed")
        assert "Automatic Mixed Precision" in capfd.readouterr().err  # what it says by itself
        cpu_fabric("bf16-mixed")
        tables.Execution(accelerator="cpu").fabric("bf16-mixed")
        assert "Mixed" not in "".join(capfd.readouterr())
        assert logger.level == logging.INFO
        with warnings_only():
            logging.getLogger("lightning_fabric.utilities.rank_zero").warning("look here")
        assert "look here" in capfd.readouterr().err
    finally:
        logger.setLevel(level)


def test_a_queue_that_holds_every_picture_many_times_says_so(pictures, tiny, shrink) -> None:
    said: list[str] = []
    few: list[str] = []
    recipe = shrink(methods.get("ring/moco")).override({"keys.size": 4096})
    pretrain(recipe, tiny.override(epochs=1), pictures(32), log=said.append)
    assert any("the queue of 4096 keys comes to hold 128 copies of each of 32 items" in line for line in said)
    pretrain(shrink(methods.get("ring/moco")), tiny.override(epochs=1), pictures(32), log=few.append)
    assert not any("copies" in line for line in few)
