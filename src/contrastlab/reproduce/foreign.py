"""Encoders from elsewhere, scored as a table scores its own: what ``contrastlab score`` asks for."""

from __future__ import annotations

import copy
from pathlib import Path

import torch

from contrastlab import data, encoders, papers, report, results, shipped, tasks
from contrastlab.encoders import foreign
from contrastlab.errors import NotApplicableError, reject, unknown
from contrastlab.papers import Column, TablePlan
from contrastlab.reproduce.arguments import choose_profile, parse_seeds, parse_target
from contrastlab.reproduce.cells import say
from contrastlab.seeds import fixed
from contrastlab.tasks.foreign import one


def column_of(task: str, dataset: str, table: str = "") -> tuple[TablePlan, str, Column]:
    """A table that scores a task on a data set, by default ring Table 1 or else the first; its column's name, and it."""
    if task not in tasks.TASKS:
        raise unknown("task", task, tasks.TASKS)
    for target in [parse_target(table)] if table else [("ring", "1"), *papers.plans()]:
        plan = papers.plan(*target)
        try:
            columns = {**plan.columns, **plan.select(dataset)}
        except NotApplicableError:
            columns = dict(plan.columns)
        for name, column in columns.items():
            if column.task == task and (column.on or column.data) == dataset:
                return plan, name, column
    raise NotApplicableError(
        f"{table or 'no table'} has no column of the task {task} on {dataset}; accepted is --table"
    )


def score(
    task: str, encoder: str, dataset: str, *, arch: str = "", stem: encoders.Stem = "imagenet", table: str = "",
    profile: str = "auto", image_size: int | None = None, seed: int = 0, data_root: str | Path | None = None,
    out_dir: str | Path = "runs",
) -> report.Report:  # fmt: skip
    """Score an encoder from elsewhere and its untrained floor, store both results, and give the table they stand in.

    Args:
        task: key of :data:`contrastlab.tasks.TASKS`.
        encoder: ``timm:resnet18``, ``torchvision:resnet50`` or another architecture, which has no weights and is the
            floor alone; or a file of weights, ``.safetensors`` or of ``torch.save``.
        dataset: name in :func:`contrastlab.data.names`, or ``folder:<path>``, ….
        arch: architecture of the file.
        stem: ``cifar`` is a ResNet's for small pictures.
        table: whose protocol is taken; by default the first that has the task on such data.
        profile: of that table.
        image_size: side of the views; by default the profile's.
        seed: of the untrained weights and of what the task draws.
        data_root: see :func:`contrastlab.data.data_root`.
        out_dir: of the results.
    """
    plan, name, column = column_of(task, dataset, table)
    chosen, path, architecture = choose_profile(profile, plan.profiles), Path(encoder), arch or encoder
    if not arch and path.suffix in (".safetensors", ".pth", ".pt", ".tar", ".ckpt"):
        raise reject("arch", arch, f"the architecture of {encoder}, such as resnet50 or timm:resnet50")
    (seed,), size = parse_seeds(seed), {} if image_size is None else {"image_size": image_size}
    settings = plan.settings(column.data, plan.floor, chosen, column)
    settings = settings.override(size, arch=architecture, stem=stem, width=1.0)
    splits = data.load(dataset, data_root)
    with fixed(seed):
        floor = encoders.build(architecture, in_channels=splits.test.channels, stem=stem, head="none")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    given = (task, splits, architecture, settings, chosen, seed, device)
    if arch:
        network = copy.deepcopy(floor)
        trainer = foreign.fill(network.backbone, path, arch)
        say(f"{path.name}: tensors by the names of {trainer}")
        results.save(one(network, task, splits, f"{path.name} ({arch})", *given[3:]), out_dir)
    else:
        say(f"{encoder} has no weights, so it is scored untrained; --encoder FILE --arch {encoder} scores trained ones")
    results.save(one(floor, *given, weights=results.UNTRAINED), out_dir)
    known = results.find((out_dir, *shipped.RESULTS), profile=chosen)
    return report.table(plan, known, column.data, chosen, column=name)
