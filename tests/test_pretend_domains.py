"""Domains beside pictures on a pretended device: they train without waiting, and score what they score on a CPU."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import nn

from contrastlab import data, methods, papers, tasks
from contrastlab.data import Splits
from contrastlab.domains.detection import task as detection
from contrastlab.pictures.loading import decoders
from contrastlab.settings import Settings
from contrastlab.tables import Execution
from contrastlab.tables.job import Job, expand
from pretend import ELSEWHERE, Device
from test_pretend import Runs, assert_alike

TRANSFORMERS = "self.backbone(input_ids"
"""The line at which the host waits once, since the network of transformers looks at its mask."""
Numbers = dict[str, tuple[float, float | None]]
"""Values of metrics with their half-widths."""
LESS = {"epochs": 1, "train_images": 64, "batch_size": 32, "test_images": 20}


class Cell(NamedTuple):
    """A row of a table, and a column on generated data."""

    table: str
    dataset: str
    column: str
    row: str


ROOMS, PICTURES_OF_ROOMS = ("cmc/3", "rooms", "rooms miou_L"), ("cmc/5", "rooms", "rooms linear_L")
TRAINED = {
    "scenes, classes of pixels": Cell(*ROOMS, "cmc/core_4"),
    "scenes, classes of pictures": Cell(*PICTURES_OF_ROOMS, "cmc/contrast_depth"),
    "scenes, predicted": Cell(*PICTURES_OF_ROOMS, "cmc/predict_label"),
    "clips": Cell("cmc/2", "clips", "clips", "cmc/video_vd"),
    "sentences": Cell("fmicl/9", "grammar", "grammar", "fmicl/sentences_kl_alpha1"),
    "speech": Cell("ring/5c", "voices", "voices_digit", "ring/mocoring"),
}
BY_THE_TASK = {
    "scenes, classes of pixels": Cell(*ROOMS, "cmc/scenes_supervised"),
    "scenes, classes of pictures": Cell(*PICTURES_OF_ROOMS, "cmc/scenes_supervised"),
    "clips": Cell("cmc/2", "clips", "clips", "ours/random"),
}
DETECTORS = {
    "boxes": Cell("jcl/2", "shapes", "silhouettes_box", "ours/random"),
    "masks": Cell("jcl/2", "shapes", "silhouettes_mask", "ours/random"),
    "keypoints": Cell("jcl/2", "shapes", "silhouettes_keypoints", "ours/random"),
    "boxes on the third stage": Cell("vince/2d", "shapes", "silhouettes_detection", "ours/random"),
}
EXTRA = {"sentences": "transformers", **dict.fromkeys(DETECTORS, "faster_coco_eval")}


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    return Runs(monkeypatch)


@pytest.fixture(autouse=True)
def needs_its_extra(request: pytest.FixtureRequest) -> None:
    callspec = getattr(request.node, "callspec", None)
    package = EXTRA.get(callspec.params["name"]) if callspec else None
    if package is not None and find_spec(package) is None:
        pytest.skip(f"{package} is not installed")


def job_of(cell: Cell) -> Job:
    """The job of a cell in the profile ``smoke``, with fewer items and epochs."""
    plan = papers.plan(*cell.table.split("/"))
    (job,) = expand(plan, cell.dataset, [cell.row], [0], "smoke", cell.column)
    return replace(job, settings=job.settings.override(**LESS))


def score(
    job: Job, encoders: nn.ModuleList, splits: tuple[Splits, Splits], folder: Path, device: torch.device | str
) -> Numbers:
    """What the task of a job says of encoders, computed on a device; what the task trains is kept in a folder."""
    own, on = splits
    evaluation = job.evaluation(job.run_of(own, Execution()), on, device=device)
    evaluation = replace(evaluation, data=on.to(device), folder=folder)
    with decoders(0):
        measured = job.task.score(encoders.to(device), evaluation)
    return {name: (each.value, each.half_width) for name, each in measured.items()}


def assert_scored_alike(job: Job, encoders: nn.ModuleList, splits: tuple[Splits, Splits], folder: Path) -> None:
    """The same numbers on a CPU, on the device, and of what the device has stored."""
    here = score(job, encoders, splits, folder / "here", "cpu")
    with Device().in_use():
        there = score(job, encoders, splits, folder / "there", ELSEWHERE)
        stored = score(job, encoders, splits, folder / "there", ELSEWHERE)
        encoders.cpu()
    assert there == here
    assert stored == here


@pytest.mark.parametrize("name", TRAINED)
def test_a_domain_is_trained_and_scored_on_a_device_as_on_a_cpu(name: str, runs: Runs, tmp_path: Path) -> None:
    job = job_of(TRAINED[name])
    runs.device.exempt = TRANSFORMERS if name == "sentences" else ""
    splits = job.load(Execution())
    source = splits[0].pretrain
    here = runs.train(job.effective_recipe, job.settings, source, away=False)
    there = runs.train(job.effective_recipe, job.settings, source, away=True)
    assert_alike(there, here)
    assert_scored_alike(job, here[1].encoders, splits, tmp_path)


@pytest.mark.parametrize("name", BY_THE_TASK)
def test_what_a_task_trains_on_a_device_is_that_of_a_cpu(name: str, runs: Runs, tmp_path: Path) -> None:
    job = job_of(BY_THE_TASK[name])
    splits = job.load(Execution())
    _, untrained = runs.train(job.effective_recipe, job.settings, splits[0].pretrain, away=False)
    assert_scored_alike(job, untrained.encoders, splits, tmp_path)


@pytest.mark.parametrize("name", [
    "masks", "boxes on the third stage",
    *(pytest.param(name, marks=pytest.mark.nightly) for name in ("boxes", "keypoints")),
])  # fmt: skip
def test_a_detector_is_trained_on_a_device_as_on_a_cpu(name: str, runs: Runs, tmp_path: Path, monkeypatch) -> None:
    # so few steps find nothing: what is compared are the losses of the steps
    losses, fit = [], detection.fit
    monkeypatch.setattr(detection, "fit", lambda *args, **options: losses.append(fit(*args, **options)))
    job = job_of(DETECTORS[name])
    splits = job.load(Execution())
    _, untrained = runs.train(job.effective_recipe, job.settings, splits[0].pretrain, away=False)
    assert_scored_alike(job, untrained.encoders, splits, tmp_path)
    here, there, stored = losses
    assert len(set(here)) == job.task.detector.steps
    assert there == pytest.approx(here, rel=1e-6)
    assert stored == there


def test_pictures_and_captions_are_trained_and_compared_on_a_device_as_on_a_cpu(runs: Runs) -> None:
    pytest.importorskip("transformers")
    splits = data.load("captions", n_train=64, n_test=20)
    recipe = methods.get("clip/clip")
    settings = Settings(
        image_size=16, arch="tiny", stem="cifar", dim=8, epochs=1, batch_size=32, milestones=(), knn_every=0,
        text={"layers": 1, "length": 16, "plain_length": 16},
    )  # fmt: skip
    runs.device.exempt = TRANSFORMERS
    here = runs.train(recipe, settings, splits.pretrain, away=False)
    there = runs.train(recipe, settings, splits.pretrain, away=True)
    assert_alike(there, here)
    job = Job(recipe, settings, "captions", metric="picture_r5")
    numbers = [score(job, here[1].encoders, (splits, splits), Path("unused"), "cpu")]
    with Device().in_use():
        numbers.append(score(job, here[1].encoders, (splits, splits), Path("unused"), ELSEWHERE))
    assert numbers[0] == numbers[1]
    assert tasks.metric("picture_r5").name in numbers[0]
