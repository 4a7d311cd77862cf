"""Encoders from elsewhere, scored as a table scores its own: what ``contrastlab score`` asks for."""

from __future__ import annotations

import copy
from pathlib import Path

import torch

from contrastlab import data, encoders, papers, report, results, shipped, tasks
from contrastlab.encoders import foreign
from contrastlab.errors import NotApplicableError, check_name, reject
from contrastlab.reproduce.arguments import choose_profile, parse_seeds, parse_target
from contrastlab.reproduce.cells import say
from contrastlab.seeds import fixed
from contrastlab.tasks.foreign import one


def score(
    task: str, encoder: str, dataset: str, *, arch: str = "", stem: encoders.Stem = "imagenet",
    table: str = "ring/table1", profile: str = "auto", image_size: int | None = None, seed: int | str = 0,
    out_dir: str | Path = "runs",
) -> report.Report:  # fmt: skip
    """Score an encoder from elsewhere and its untrained floor, store both results, and give the table they stand in.

    Args:
        task: key of :data:`contrastlab.tasks.TASKS`.
        encoder: ``timm:resnet18``, ``torchvision:resnet50`` or another architecture, which has no weights and is the
            floor alone; or a file of weights, ``.safetensors`` or of ``torch.save``.
        dataset: name in :func:`contrastlab.data.names`, or ``folder:<path>``, ….
        arch: architecture of the file.
        stem: of our ResNets; ``cifar`` is for small pictures.
        table: whose protocol is taken; it has the task.
        profile: of that table.
        image_size: side of the views; by default the profile's.
        seed: of the untrained weights and of what the task draws.
        out_dir: of the results.
    """
    check_name("task", task, tasks.TASKS)
    plan, path, architecture = papers.plan(*parse_target(table)), Path(encoder), arch or encoder
    every = ((name, c) for name, c in {**plan.columns, **plan.select(dataset)}.items() if c.task == task)
    name, column = next((each for each in every if (each[1].on or each[1].data) == dataset), ("", None))
    if column is None:
        raise NotApplicableError(f"{table} has no column of the task {task} on {dataset}; another --table may")
    if not arch and path.suffix in (".safetensors", ".pth", ".pt", ".tar", ".ckpt"):
        raise reject("arch", arch, f"the architecture of {encoder}, such as resnet50 or timm:resnet50")
    chosen, (drawn, *_) = choose_profile(profile, plan.profiles), parse_seeds(seed)
    settings = plan.settings(column.data, plan.floor, chosen, column).override(arch=architecture, stem=stem, width=1.0)
    settings = settings if image_size is None else settings.override(image_size=image_size)
    splits, device = data.load(dataset), "cuda" if torch.cuda.is_available() else "cpu"
    with fixed(drawn):
        floor = encoders.build(architecture, in_channels=splits.test.channels, stem=stem, head="none")
    given = (settings, chosen, drawn, device)
    if arch:
        network = copy.deepcopy(floor)
        say(f"{path.name}: tensors by the names of {foreign.fill(network.backbone, path, arch)}")
        results.save(one(network, task, splits, f"{path.name} ({arch})", *given), out_dir)
    else:
        say(f"{encoder} has no weights, so it is scored untrained; --encoder FILE --arch {encoder} scores trained ones")
    results.save(one(floor, task, splits, architecture, *given, weights=results.UNTRAINED), out_dir)
    known = results.find((out_dir, *shipped.RESULTS), profile=chosen)
    return report.table(plan, known, column.data, chosen, column=name)
