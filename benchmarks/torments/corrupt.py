"""Random damage to every stored kind of file: what is read back is what was stored, or an error names the file.

Four kinds of damage: the file is cut at a random byte, up to eight random bits of it are turned, two random stretches
of it change places or it changes places with another file of its kind, or it is empty. Every third of the swaps is of
the second sort. Runs, results and detectors are made once, damaged one at a time, and read by what reads them in a run.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from contrastbook import studies
from contrastlab import data, tables, tasks
from contrastlab.domains.clips import flow
from contrastlab.domains.clips import task as action
from contrastlab.domains.detection import network as detectors
from contrastlab.domains.detection import task as training
from contrastlab.pictures import fitting
from contrastlab.support import files
from contrastlab.support.errors import ContrastLabError
from contrastlab.tables import results
from contrastlab.tables.job import stored
from contrastlab.tables.runs import Run
from contrastlab.train import checkpoint, pretrain
from contrastlab.train.schedule import cpu_fabric
from torments.cells import CLOCK, SmallJob, job, where
from torments.figures import Figures, Log

DAMAGES = ("truncate", "flip", "swap", "empty")


@dataclass(frozen=True)
class Kept:
    """A stored file.

    Args:
        kind: of file.
        path: of the file.
        other: a whole file of the same kind that belongs elsewhere.
        read: what the package makes of the file.
    """

    kind: str
    path: Path
    other: Path
    read: Callable[[], Any]


def damaged(content: bytes, other: bytes, damage: str, draw: random.Random) -> bytes:
    """A file's content after ``damage``, one of :data:`DAMAGES`."""
    if damage == "empty":
        return b""
    if damage == "truncate":
        return content[: draw.randrange(len(content))]
    changed = bytearray(content)
    if damage == "flip":
        for _ in range(draw.choice((1, 1, 2, 8))):
            changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
        return bytes(changed)
    if draw.randrange(3) == 0:
        return other
    size = draw.randint(1, max(1, min(4096, len(content) // 4)))
    one, two = sorted(draw.sample(range(len(content) - size + 1), 2))
    changed[one : one + size], changed[two : two + size] = content[two : two + size], content[one : one + size]
    return bytes(changed)


def plain(value: Any) -> Any:
    """Tensors as bytes, so that ``==`` compares all that was read."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype), tuple(value.shape), value.contiguous().flatten().view(torch.uint8).numpy().tobytes()
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items() if key not in CLOCK}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def try_one(kept: Kept, damage: str, draw: random.Random, whole: Any, figures: Figures) -> None:
    """Damage a file, read it, count what came of it, and mend it; ``whole`` is what is read without damage."""
    before = kept.path.read_bytes()
    kept.path.write_bytes(damaged(before, kept.other.read_bytes(), damage, draw))
    same_bytes = kept.path.read_bytes() == before
    try:
        outcome, line = (
            ("unchanged", "") if plain(kept.read()) == whole else ("failed", f"{damage}: other content read")
        )
    except ContrastLabError as error:
        names = (str(kept.path), str(kept.path.parent))
        said = any(name in str(error) for name in names)
        outcome, line = ("refused", "") if said else ("failed", f"{damage}: the error names no file: {error}")
    except Exception as error:  # whatever else is raised is what is looked for
        outcome, line = "failed", f"{damage}: {type(error).__name__}: {error}"
    if same_bytes and outcome == "refused":
        outcome, line = "failed", f"{damage}: a whole file is refused"
    kept.path.write_bytes(before)
    figures.count(outcome, kept.kind, line)


def run(count: int, seed: int, folder: Path, log: Log) -> Figures:
    """``count`` damages, spread over kinds of files and of damage.

    Args:
        count: of damages.
        seed: of the draws.
        folder: for runs and files.
        log: takes lines of progress.
    """
    figures, draw = Figures(), random.Random(seed)
    every = make(folder)
    wholes = {kept.path: plain(kept.read()) for kept in every}
    for number in range(count):
        kept = every[number % len(every)]
        try_one(kept, DAMAGES[(number // len(every)) % len(DAMAGES)], draw, wholes[kept.path], figures)
        if number % 100 == 99:
            log(f"corrupt: {number + 1}/{count}, {figures.failed} failed")
    return figures


def make(folder: Path) -> list[Kept]:
    """Every kind of stored file, whole."""
    return [kept for maker in MAKERS for kept in maker(folder)]


# -- the files -----------------------------------------------------------------------------------------------------


def quiet(line: str) -> None:
    """No lines of progress."""


def _of_runs(folder: Path) -> list[Kept]:
    """Encoder, record and result of finished cells, of two seeds each."""
    made: list[Kept] = []
    for name in ("queue, linear", "batch, neighbours"):
        both = [job(name, seed) for seed in (0, 1)]
        place = where(folder / "runs")
        for each in both:
            tables.run(each, place, log=quiet)
        splits = both[0].load(place)
        runs = [each.run_of(splits[0], place) for each in both]
        for kind, file in (("encoder", "encoder.safetensors"), ("run.json", "run.json")):
            made.append(Kept(kind, runs[0].folder / file, runs[1].folder / file, _reader_of_run(runs[0])))
        paths = [_result_path(each, place, splits) for each in both]
        made.append(Kept("result", paths[0], paths[1], _reader_of_result(both[0], place, splits)))
    return made


def _reader_of_run(run: Run) -> Callable[[], Any]:
    return lambda: (run.record(), run.encoders().state_dict())


def _result_path(each: SmallJob, place: Any, splits: Any) -> Path:
    return results.location(
        place.out_dir,
        dataset=each.data,
        profile=each.profile,
        method=each.method,
        seed=each.seed,
        task=each.task_name,
        hash_=each.config_hash(splits),
        on=each.on,
    )


def _reader_of_result(each: SmallJob, place: Any, splits: Any) -> Callable[[], Any]:
    def read() -> Any:
        found = stored(each, place, splits)
        return None if found is None else found.model_dump(mode="json")

    return read


def _of_training(folder: Path) -> list[Kept]:
    """Checkpoints of runs one step before their end: with a memory bank, a bank of clusters, a queue."""
    made = []
    few = data.load("shapes", n_train=64, n_test=8).pretrain
    for kind, name in (
        ("bank", "annealed cave, linear"),
        ("bank", "bank, clustered, linear by SGD"),
        ("checkpoint", "queue, linear"),
    ):
        each = job(name)
        settings = each.settings.override(epochs=2, knn_every=0)
        paths = []
        for seed in (0, 1):
            place = folder / "training" / f"{len(made)}-{seed}"
            for _ in range(7):  # of eight steps
                with suppress(KeyboardInterrupt):
                    pretrain(each.effective_recipe, settings, few, seed=seed, folder=place, max_minutes=0, log=quiet)
            paths.append(place / checkpoint.FILE)
        made.append(Kept(kind, *paths, _reader_of_training(each.effective_recipe, settings, few, paths[0])))
    return made


def _reader_of_training(recipe: Any, settings: Any, few: Any, path: Path) -> Callable[[], Any]:
    def read() -> Any:
        before = path.read_bytes()
        try:
            done = pretrain(recipe, settings, few, seed=0, folder=path.parent, log=quiet)
        finally:
            path.write_bytes(before)
        return done.history, done.encoders.state_dict()

    return read


def _of_studies(folder: Path) -> list[Kept]:
    def rows(size: int) -> list[dict[str, float | int | str | None]]:
        return [{"size": size, "value": k / 7, "name": f"row {k}"} for k in range(20)]

    paths = []
    for size in (3, 4):
        studies.measure("torture", "smoke", {"size": size}, lambda size=size: rows(size), out_dir=folder)
        paths.append(studies.location(folder, "torture", "smoke", {"size": size}))

    def read() -> Any:
        found = studies.stored("torture", "smoke", {"size": 3}, [folder])
        return None if found is None else found.model_dump(mode="json")

    return [Kept("study", *paths, read)]


def _of_detection(folder: Path) -> list[Kept]:
    """A detector that is trained to its end, its record, and one after two of four steps."""
    each = job("queue, masks")
    how = each.settings.masks
    place = where(folder / "runs")
    own, scenes = each.load(place)
    networks = each.run_of(own, place).train(cpu_fabric("32-true"), log=quiet)
    train = scenes.train.take(4, 0)
    view = each.evaluation(each.run_of(own, place), scenes)

    def model() -> Any:
        torch.manual_seed(0)
        return detectors.build(
            "masks", networks.encoders, view.views, view.augmentation, how, classes=len(train.classes), keypoints=0
        )

    def fit(place: Path, seed: int) -> Any:
        return lambda: _fitted(model(), train, how, seed, place)

    made, folders = [], {}
    for state in ("done", "half"):
        for seed in (0, 1):
            folders[state, seed] = folder / "detectors" / f"{state}-{seed}"
            if state == "done":
                fit(folders[state, seed], seed)()
            else:
                _half_fitted(model(), train, how, seed, folders[state, seed])
    for kind, state, file in (
        ("detector", "done", training.FILE),
        ("detector.json", "done", training.RECORD),
        ("detector's checkpoint", "half", checkpoint.FILE),
    ):
        made.append(Kept(kind, folders[state, 0] / file, folders[state, 1] / file, fit(folders[state, 0], 0)))
    return made


def _fitted(model: Any, train: Any, how: Any, seed: int, place: Path) -> Any:
    kept = {path: path.read_bytes() for path in place.glob("*")}
    try:
        losses = training.fit(model, train, "masks", how, seed=seed, folder=place)
    finally:
        if kept:
            for path in place.glob("*"):
                path.unlink()
            for path, content in kept.items():
                path.write_bytes(content)
    record = place / training.RECORD
    return losses, model.state_dict(), files.read_record(record) if record.exists() else None


class _Stop(Exception):
    pass


def _half_fitted(model: Any, train: Any, how: Any, seed: int, place: Path) -> None:
    every, keep = fitting.SAVE_EVERY_S, checkpoint.save

    def stop(state: dict[str, Any], *where: Any) -> None:
        keep(state, *where)
        if len(state["losses"]) == how.steps - 1:
            raise _Stop

    fitting.SAVE_EVERY_S, checkpoint.save = -1.0, stop
    try:
        training.fit(model, train, "masks", how, seed=seed, folder=place)
    except _Stop:
        pass
    finally:
        fitting.SAVE_EVERY_S, checkpoint.save = every, keep


def _of_clips(folder: Path) -> list[Kept]:
    """Which clips were right, a network that is being fine-tuned, and kept optical flow."""
    each = job("clips, action")
    place = where(folder / "runs")
    own, on = each.load(place)
    networks = each.run_of(own, place).train(cpu_fabric("32-true"), log=quiet)
    evaluation = each.evaluation(each.run_of(own, place), on)
    task = tasks.get("action", each.settings)

    def score(seed: int, name: str) -> Callable[[], Any]:
        mine = replace(evaluation, seed=seed, folder=folder / "action" / f"{name}-{seed}")
        return lambda: {key: m.value for key, m in task.score(networks.encoders, mine).items()}

    def half(seed: int) -> Path:
        mine = replace(evaluation, seed=seed, folder=folder / "action" / f"half-{seed}")
        tuning = action.FineTuning(task.training, networks.encoders[0], on.train, mine)
        tuning.training.losses = [next(tuning._epochs(0))]
        tuning.training.save()
        return mine.folder / "split1" / checkpoint.FILE  # type: ignore[operator]

    for seed in (0, 1):
        score(seed, "done")()
    done = [folder / "action" / f"done-{seed}" / "split1" / action.DONE for seed in (0, 1)]
    states = [half(seed) for seed in (0, 1)]

    def resumed() -> Any:
        before = states[0].read_bytes()
        try:
            return score(0, "half")()
        finally:
            (states[0].parent / action.DONE).unlink(missing_ok=True)
            states[0].write_bytes(before)

    clips = [own.pretrain.items[k : k + 2, :3, :3].contiguous() for k in (0, 2)]
    flows = []
    for pair in clips:
        already = set((folder / "flow").glob("*.safetensors"))
        flow.cached_tvl1(pair, 20.0, folder / "flow")
        flows += set((folder / "flow").glob("*.safetensors")) - already
    return [
        Kept("action, scored", *done, score(0, "done")),
        Kept("action, training", *states, resumed),
        Kept("flow", *flows, lambda: flow.cached_tvl1(clips[0], 20.0, folder / "flow")),
    ]


MAKERS = (_of_runs, _of_training, _of_studies, _of_detection, _of_clips)
__all__ = ["DAMAGES", "Kept", "damaged", "make", "plain", "run", "try_one"]
