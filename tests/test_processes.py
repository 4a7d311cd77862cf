"""Runs on several processes and devices: one decision for all, one learning rate, one stop, memory that is bounded."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.multiprocessing as mp
from lightning_fabric import Fabric
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from contrastlab import data, methods, tables, tasks
from contrastlab.data import ImageSet
from contrastlab.domains.detection import coco
from contrastlab.domains.detection import task as training
from contrastlab.domains.scenes.views import Channels
from contrastlab.pictures import representations
from contrastlab.scores import clusters, ranks
from contrastlab.settings import Settings
from contrastlab.support import collectives
from contrastlab.support.errors import ArgumentError, DeviceError, NotApplicableError
from contrastlab.tables import execution, results
from contrastlab.tables import pool as jobs
from contrastlab.train import checkpoint, loop, pretrain, saver, signals
from made_runs import generator, quiet

WITHIN_S = 120
"""Seconds within which a process that is to sleep does so, on the busiest machine."""

FEW = {"negatives.k": 5, "keys.size": 21, "negatives.clusters": 3, "negatives.runs": 1}


class Sleep:
    """``time`` of a process whose sleep between looks leaves a mark, for the other process to see."""

    def __init__(self, folder: Path) -> None:
        self.marks = folder / "marks"
        self.marks.touch()

    def sleep(self, seconds: float) -> None:
        with self.marks.open("a") as file:
            file.write(".")
        time.sleep(seconds)

    def seen(self) -> None:
        """Return when the other process sleeps, which it does not within a collective."""
        before, since = self.marks.stat().st_size, time.monotonic()
        while self.marks.stat().st_size == before:
            assert time.monotonic() < since + WITHIN_S, "the other process does not sleep"
            time.sleep(0.02)


def plateau(fabric: Fabric, folder: Path) -> dict[str, Any]:
    """A learning rate that depends on 1-NN accuracy, which each process would measure otherwise."""
    few = data.load("shapes", n_train=128, n_test=200)
    how = Settings(
        image_size=32, arch="tiny", stem="cifar", dim=32, epochs=8, batch_size=32, lr=0.1, schedule="plateau",
        patience=1, drops=2, milestones=(), knn_every=1,
    )  # fmt: skip
    looked: list[int] = []
    measure = representations.nearest_neighbour

    def watched(*given: Any) -> Any:
        looked.append(1)
        Sleep(folder).seen()
        return measure(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(representations, "nearest_neighbour", watched)
        made = pretrain(methods.get("vince/ball").override(FEW), how, few.pretrain, few.test, fabric=fabric, log=quiet)
    weights = torch.cat([p.detach().flatten() for p in made.encoders.parameters()])
    curve = {name: [row[name] for row in made.history] for name in ("nn1", "lr")}
    return {"weights": weights, "looked": len(looked), **curve}


def small() -> tuple[Settings, ImageSet]:
    pixels = torch.randint(0, 256, (32, 3, 16, 16), generator=generator(0)).to(torch.uint8)
    how = Settings(image_size=16, arch="tiny", stem="cifar", dim=8, epochs=2, batch_size=16, milestones=(), knn_every=0)
    return how, ImageSet("small", pixels, torch.arange(32) % 2, ("even", "odd"))


def predicted(fabric: Fabric, folder: Path) -> dict[str, Any]:
    """An encoder whose head has no part in the loss."""
    how, images = small()
    recipe = replace(methods.get("cmc/predict_depth"), name="x/predict", views=Channels(("L",), targets=("ab",)))
    how = how.override(image_size=64, arch="scene", stem="imagenet", width=0.125, epochs=1, batch_size=8)
    return {"loss": [row["loss"] for row in pretrain(recipe, how, images, fabric=fabric, log=quiet).history]}


def stopped(fabric: Fabric, folder: Path) -> dict[str, Any]:
    """What a process sees of the checkpoint when it is told to end; writing it takes a while."""
    how, images = small()
    save = checkpoint.save

    def slowly(*arguments: Any) -> None:
        time.sleep(1)
        save(*arguments)

    checkpoint.save = slowly
    recipe = methods.get("ring/ir").override(FEW)
    try:
        pretrain(recipe, how, images, folder=folder, fabric=fabric, max_minutes=0, log=quiet)
    except KeyboardInterrupt:
        seen = (folder / checkpoint.FILE).exists()
    finally:
        checkpoint.save = save
    mine = folder if fabric.global_rank == 0 else folder / "of the second"
    try:
        pretrain(recipe, how, images, folder=mine, fabric=fabric, log=quiet)
    except DeviceError as error:
        return {"seen": seen, "words": str(error)}
    return {"seen": seen, "words": ""}


def scored(fabric: Fabric, folder: Path) -> dict[str, Any]:
    """A job whose run another program computes first, and whose task the first process is asked."""
    asked: list[str] = []
    lock = checkpoint.Artefact.lock

    def locked(self: checkpoint.Artefact, *, wait: bool = True) -> Any:
        if not wait:
            return None
        asked.append("lock")
        Sleep(folder).seen()
        return lock(self)

    def score(*given: Any) -> Any:
        asked.append("score")
        Sleep(folder).seen()
        raise NotApplicableError("it cannot be asked")

    job = tables.Job(methods.get("ours/random"), small()[0], "digits", metric="nn1")
    where = tables.Execution(out_dir=folder / "out", read_also=(), accelerator="cpu", devices=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint.Artefact, "lock", locked)
        patch.setattr(tasks.Task, "score", score)
        answer = tables.run(job, where, log=quiet)
    return {"asked": asked, "reason": answer.reason}


def failed(fabric: Fabric, folder: Path) -> str:
    """What a process is told of what the first one does alone, where that fails."""
    try:
        collectives.by_first(lambda: 1 // 0)
    except (ZeroDivisionError, DeviceError) as error:
        fabric.barrier()  # the first one stays until the other has looked
        return str(error)
    return "nothing"


WORK = {"plateau": plateau, "predicted": predicted, "stopped": stopped, "scored": scored, "failed": failed}


def process(rank: int, port: int, folder: str) -> None:
    os.environ |= {"LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": "2", "NODE_RANK": "0"}
    os.environ["MASTER_PORT"] = str(port)
    torch.set_num_threads(1)
    if rank > 0:
        collectives.time = Sleep(Path(folder))  # type: ignore[assignment]
    fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp")
    torch.save({name: work(fabric, Path(folder)) for name, work in WORK.items()}, f"{folder}/rank{rank}.pt")


@pytest.fixture(scope="module")
def both() -> list[dict[str, Any]]:
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(process, (port, folder), nprocs=2, start_method="fork")
        return [torch.load(Path(folder) / f"rank{rank}.pt", weights_only=True) for rank in (0, 1)]


def test_a_learning_rate_that_depends_on_accuracy_is_the_same_for_all_processes(both) -> None:
    one, two = (each["plateau"] for each in both)
    assert one["nn1"] == two["nn1"]
    assert (one["looked"], two["looked"]) == (8, 0)  # encoding all images in every process would be thrown away
    assert one["lr"] == two["lr"]
    assert len(set(one["lr"])) > 1  # it dropped
    assert torch.equal(one["weights"], two["weights"])


def test_an_encoder_with_an_idle_head_trains_on_two_processes(both) -> None:
    one, two = (each["predicted"]["loss"] for each in both)
    assert one == two != []


def test_no_process_ends_before_the_checkpoint_and_one_that_only_some_see_is_refused(both) -> None:
    assert [each["stopped"]["seen"] for each in both] == [True, True]
    assert all("only some processes see this checkpoint" in each["stopped"]["words"] for each in both)


def test_a_process_sleeps_while_the_first_one_scores_alone_or_waits_for_another_program(both) -> None:
    one, two = (each["scored"] for each in both)
    assert (one["asked"], two["asked"]) == (["lock", "score"], [])
    assert one["reason"] == two["reason"] == "it cannot be asked"


def test_a_process_is_told_that_the_first_one_has_failed(both) -> None:
    one, two = (each["failed"] for each in both)
    assert one == "integer division or modulo by zero"
    assert two == "the first process, for which this one waits, has failed; it says why"


TABLE = """
import os, shutil, subprocess, sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from unittest.mock import patch
import contrastlab.train.loop as loop
from contrastlab import papers, tables
from contrastlab.support.errors import NotApplicableError
from contrastlab.pictures.linear import Linear

out, rank = Path(sys.argv[1]), os.environ.get("LOCAL_RANK", "0")
if "LOCAL_RANK" not in os.environ:  # another program computes ring/iring
    plan = papers.plan("ring", "1")
    job, = tables.expand(plan, "shapes", ["ring/iring"], [0], "smoke")
    own, _ = job.load(tables.Execution(out_dir=out, accelerator="cpu"))
    with patch("contrastlab.support.collectives.world", return_value=(0, 2)):
        lock = tables.Run(job.effective_recipe, job.settings, own, 0, out).folder.with_suffix(".lock")
    script = "import pathlib, sys, time\\n"
    script += "from contrastlab.support import files\\nheld = files.lock(pathlib.Path(sys.argv[1]))"
    script += "\\nprint(1, flush=True)\\nwhile not pathlib.Path(sys.argv[2]).exists():\\n    time.sleep(0.1)"
    other = subprocess.Popen([sys.executable, "-c", script, str(lock), str(out / "free")], stdout=subprocess.PIPE)
    other.stdout.readline()

made, score = loop._Loop.__init__, Linear.score
def watched(self, course, *arguments):
    made(self, replace(course, settings=course.settings.override(epochs=1)), *arguments)
    with (out / f"trained{rank}").open("a") as file:
        file.write(course.recipe.name + "\\n")
    if course.recipe.name == "ring/moco":
        (out / "free").touch()
def refused(self, encoders, evaluation):
    if (out / "trained0").read_text().split()[-1] == "ring/ir":
        raise NotApplicableError("made up")
    return score(self, encoders, evaluation)
loop._Loop.__init__, Linear.score = watched, refused
from contrastlab.__main__ import main
sys.exit(main([
    *"run ring/table1 --dataset shapes --rows ir,iring,moco --profile smoke --accelerator cpu --no-references".split(),
    "--devices", "2", "--out", str(out),
]))
"""


@pytest.mark.slow
@pytest.mark.nightly
def test_processes_train_the_same_cells_in_the_same_order_whatever_one_of_them_meets(tmp_path) -> None:
    """The first process alone meets a lock that is held, and a task that is not applicable."""
    script, out = tmp_path / "table.py", tmp_path / "out"
    out.mkdir()
    script.write_text(TABLE)
    ended = subprocess.run(
        [sys.executable, str(script), str(out)], capture_output=True, text=True, timeout=400,
        env={k: v for k, v in os.environ.items() if k not in ("LOCAL_RANK", "RANK")} | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    order = ["ring/ir", "ring/moco", "ring/iring"]
    assert [(out / f"trained{rank}").read_text().split() for rank in (0, 1)] == [order, order]
    kept = {(result.method, result.provenance.processes) for result in results.find(out)}
    assert kept == {("ring/moco", 2), ("ring/iring", 2)}


def test_a_process_that_waits_for_the_first_one_ends_with_it() -> None:
    read, write = os.pipe()
    if (parent := os.fork()) == 0:
        if os.fork() == 0:
            execution.end_with_parent(0.05)
            os.write(write, b"begun")
            time.sleep(20)
            os.write(write, b", alone")
        time.sleep(0.5)
        os._exit(2)
    os.close(write)
    with os.fdopen(read) as said:
        assert said.read() == "begun"
    assert os.waitstatus_to_exitcode(os.waitpid(parent, 0)[1]) == 2


def test_processes_wait_hours_for_each_other_and_never_on_apple_s_device(monkeypatch) -> None:
    made: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Fabric, "launch", lambda fabric: made.append(fabric))
        tables.Execution(accelerator="cpu", devices=2).fabric()
        tables.Execution(accelerator="cpu", devices=1).fabric()
    two, one = made
    assert two.strategy._ddp_kwargs["gradient_as_bucket_view"]
    assert timedelta(hours=1) < two.strategy._timeout == execution.COLLECTIVE_TIMEOUT < timedelta(days=1)
    assert not hasattr(one.strategy, "_timeout")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert tables.Execution().fabric().device.type == "cpu"


def test_a_process_that_waits_for_other_machines_says_so_and_hears_signals(monkeypatch, capsys) -> None:
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    both, within = (signal.SIGINT, signal.SIGTERM), []
    before = [signal.getsignal(each) for each in both]
    monkeypatch.setattr(Fabric, "launch", lambda fabric: within.extend(map(signal.getsignal, both)))
    tables.Execution(accelerator="cpu", num_nodes=2, strategy="ddp").fabric()
    assert within == [signal.SIG_DFL, signal.SIG_DFL]  # a handler would be called when the waiting has an end
    assert "waits for all 2 machines" in capsys.readouterr().out
    assert [signal.getsignal(each) for each in both] == before


def test_workers_are_refused_where_too_few_files_may_be_open(monkeypatch) -> None:
    monkeypatch.setattr(jobs.resource, "getrlimit", lambda of: (64, 64))
    with pytest.raises(ArgumentError, match=r"^jobs=2: expected 1 where at most 64 files may be open \(ulimit -n\)"):
        jobs._local([], tables.Execution(), 2, quiet)


@pytest.mark.parametrize(
    ("named", "expected"),
    [(None, ["0", "1"]), ("", ["0", "1"]), ("4,5", ["4", "5"]), ("GPU-a1, GPU-b2", ["GPU-a1", "GPU-b2"])],
)
def test_each_worker_has_a_gpu_of_those_that_this_process_may_use(named, expected, monkeypatch) -> None:
    monkeypatch.delenv(jobs.VISIBLE_DEVICES, raising=False)
    if named is not None:
        monkeypatch.setenv(jobs.VISIBLE_DEVICES, named)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert jobs.visible_devices(tables.Execution()) == expected
    assert jobs.visible_devices(tables.Execution(accelerator="cpu")) == []


def test_a_worker_names_its_gpu_before_anything_asks_cuda(monkeypatch) -> None:
    class Numbers:
        def get(self) -> int:
            return 3

    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setenv(jobs.VISIBLE_DEVICES, "")
    monkeypatch.setattr(jobs, "_STATE", {})
    for name in ("is_available", "device_count", "init"):
        monkeypatch.setattr(torch.cuda, name, lambda: pytest.fail("CUDA has read which devices there are"))
    try:
        jobs._begin(None, Numbers(), tables.Execution(), ["4", "5"], None)
    finally:
        signal.signal(signal.SIGINT, before)
    assert os.environ[jobs.VISIBLE_DEVICES] == "5"


def test_a_detector_s_momentum_lies_where_its_parameters_do(monkeypatch, tmp_path) -> None:
    class Reached(Exception): ...

    def run(self, *arguments) -> None:
        raise Reached([p.device.type for group in self.optimiser.param_groups for p in group["params"]])

    monkeypatch.setattr(training.Resumable, "run", run)
    monkeypatch.setattr(training.files, "fingerprint", lambda *arguments: "")
    scenes = data.load("silhouettes", n_train=2, n_test=2)
    with pytest.raises(Reached) as stopped:
        training.fit(
            torch.nn.Linear(2, 2), scenes.train, "boxes", Settings().boxes, seed=0, device="meta", folder=tmp_path
        )
    assert stopped.value.args[0] == ["meta", "meta"]


class Largest(TorchDispatchMode):
    """The most numbers that one tensor made here holds."""

    numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for each in out if isinstance(out, tuple | list) else (out,):
            if isinstance(each, Tensor):
                self.numbers = max(self.numbers, each.numel())
        return out


def test_similarities_to_a_large_bank_are_computed_in_pieces(monkeypatch) -> None:
    train, test = (torch.nn.functional.normalize(torch.randn(n, 4, generator=generator(n)), dim=1) for n in (300, 90))
    labels, truth = torch.arange(300) % 7, torch.arange(90) % 7
    work = {
        "nearest": lambda: tasks.nearest_neighbour(train, labels, test, truth),
        "vote": lambda: tasks.knn(train, labels, test, truth, k=5),
        "k-means": lambda: clusters._lloyd(train, 60, 3, 0),
    }
    whole = {name: compute() for name, compute in work.items()}
    monkeypatch.setattr(ranks, "KEPT_BYTES", 4 * 1500)  # five rows of 300, or 25 of 60
    for name, compute in work.items():
        with Largest() as seen:
            assert torch.equal(compute(), whole[name]), name
        assert seen.numbers <= 1500, name


def test_whether_all_objects_have_masks_is_asked_once() -> None:
    class Counted(dict):
        asked = 0

        def __contains__(self, key: object) -> bool:
            Counted.asked += 1
            return super().__contains__(key)

    one = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, 1, 1], "segmentation": []}
    annotations = coco.Annotations({1: {"id": 1}}, (Counted(one),), ({"id": 1, "name": "x"},))
    assert [annotations.masks for _ in range(3)] == [True] * 3
    assert Counted.asked == 1


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


def test_checkpoints_that_take_long_to_write_are_further_apart(monkeypatch, tmp_path) -> None:
    clock, saves, how = Clock(), [], small()[0].override(epochs=2, batch_size=2)
    step = loop._Loop.train_step

    def stepped(self, *arguments: Any) -> None:
        step(self, *arguments)
        clock.now += 1

    monkeypatch.setattr(loop, "time", clock)
    monkeypatch.setattr(saver, "time", clock)
    monkeypatch.setattr(loop._Loop, "train_step", stepped)
    for cost in (0, 5):

        def saved(*arguments: Any, cost: int = cost) -> None:
            clock.now += cost
            saves.append(cost)

        monkeypatch.setattr(checkpoint, "save", saved)
        recipe = methods.get("ring/ir").override({"negatives.k": 5})
        pretrain(recipe, how, small()[1], folder=tmp_path / str(cost), checkpoint_every=1.5, log=quiet)
    # 32 steps of a second: after every second one; or after two, each next after 5 × 1.5 seconds; and one at the end
    assert (saves.count(0), saves.count(5)) == (17, 5)


def test_a_signal_that_a_launcher_repeats_is_one_and_a_later_one_interrupts(monkeypatch) -> None:
    clock = Clock()
    monkeypatch.setattr(signals, "time", clock)
    with signals.interruptible() as stop:
        assert not stop.is_set()
        signal.raise_signal(signal.SIGTERM)
        clock.now += signals.SAME_SIGNAL_S / 2
        signal.raise_signal(signal.SIGTERM)
        assert stop.is_set()
        clock.now += signals.SAME_SIGNAL_S
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_decoder_lives_through_the_signals_of_its_group(number) -> None:
    from torch.utils.data import DataLoader

    from contrastlab.pictures import loading

    loader = iter(DataLoader(range(64), num_workers=1, prefetch_factor=1, worker_init_fn=loading._leave_signals))
    first = int(next(loader))
    (worker,) = loader._workers
    subprocess.run(["kill", f"-{int(number)}", str(worker.pid)], check=True)
    assert [first, *map(int, loader)] == list(range(64))
