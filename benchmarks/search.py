"""How the settings of the small profiles were chosen: runs on a held-out part of the training images.

Encoders and probes are trained on the other training images, and no test image is read. A search is a line of
``search_spaces.SEARCHES``; each line of ``results/searches/<name>.json`` is one run: trial, row, seed, settings,
validation accuracy, processor time. A run that is there is not repeated, so a search can be stopped and widened:

    OMP_NUM_THREADS=1 python benchmarks/search.py bank queue           # what is missing, one search after the other
    OMP_NUM_THREADS=1 python benchmarks/search.py first --only jitter  # trials of that name
    python benchmarks/search.py bank --show                            # the table of what was measured

All rows of a search get the same settings in every trial, and so equally many trials.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from search_spaces import SEARCHES, Search, Trial

from contrastbook.evidence import searches
from contrastlab import data, methods, papers, tasks
from contrastlab.data import Splits
from contrastlab.pictures.domain import modality
from contrastlab.settings import Settings
from contrastlab.support import checksums, files
from contrastlab.support.errors import NonFiniteLossError
from contrastlab.support.provenance import provenance
from contrastlab.tables import Run
from contrastlab.tables.execution import Execution
from contrastlab.tables.job import Job, expand
from contrastlab.train import cpu_fabric, pretrain

SEED = 100
FOLDER = Path(__file__).parents[1] / "results/searches"


def held_out(labels: torch.Tensor, count: int) -> torch.Tensor:
    """Whether an item is held out: the last ones of each class, ``count`` in all (``[N]``, boolean)."""
    classes = labels.unique()
    mask = torch.zeros(len(labels), dtype=torch.bool)
    for label in classes:
        mask[(labels == label).nonzero().flatten()[-(count // len(classes)) :]] = True
    return mask


def parts(search: Search, name: str) -> Splits:
    """A data set whose test part are the held-out training items."""
    whole = data.load(name)
    if search.validation:
        return whole
    every = whole.train
    last = torch.arange(len(every)) >= len(every) - search.held_out
    mask = last if search.unordered else held_out(every.labels, search.held_out)
    train, held = every.subset((~mask).nonzero().flatten()), every.subset(mask.nonzero().flatten())
    return type(whole)(name, train, train, held, "held-out training images")


def _path(search: Search) -> Path:
    return FOLDER / f"{search.name}.json"


def stored(search: Search) -> list[dict[str, Any]]:
    """What was measured."""
    return searches.record(_path(search))["runs"] if _path(search).exists() else []


def text(record: Mapping[str, Any]) -> str:
    """A search as JSON, a line for each run, with its checksum."""
    lines = ",\n".join(json.dumps(run) for run in record["runs"])
    head = json.dumps({name: value for name, value in record.items() if name != "runs"})
    return f'{head[:-1]},\n"runs": [\n{lines}\n],\n"checksum": "{checksums.checksum(record)}"}}\n'


def store(search: Search, run: dict[str, Any]) -> None:
    """Add a run, also while another process adds one."""
    held = files.lock(FOLDER / ".lock")
    head = {
        "what": search.what,
        "command": f"OMP_NUM_THREADS=1 python benchmarks/search.py {search.name}",
        "held_out": search.held_out,
        "torch": torch.__version__,
        **search.stated,
    }
    files.write_whole(_path(search), text({**head, "runs": [*stored(search), run]}))
    if held is not None:
        held.release()


def measure(splits: Splits, row: str, settings: Settings, seed: int, metric: str = "linear") -> dict[str, Any]:
    """Train one row and score it by ``metric``, without a look at a test item."""
    recipe = methods.get(row).override(settings.overrides)
    began = time.process_time()
    try:
        fabric = cpu_fabric(settings.precision)
        if settings.start:  # the run that these start from is stored, and serves all rows of a trial
            done = Run(recipe, settings, splits, seed, FOLDER.parent).train(fabric, log=print)
        else:
            done = pretrain(recipe, settings, splits.pretrain, seed=seed, fabric=fabric, log=lambda line: None)
    except NonFiniteLossError as error:
        return {"accuracy": None, "failed": str(error), "train_cpu_s": round(time.process_time() - began, 1)}
    trained = time.process_time()
    evaluation = tasks.Evaluation(recipe.views, modality(splits.train).augmentation(settings), splits, seed=seed)
    measured = tasks.get(tasks.task_of(metric), settings).score(done.encoders, evaluation)
    return {
        "accuracy": round(measured[metric].value, 2),
        "loss": round(done.history[-1]["loss"], 3) if done.history else None,
        "train_cpu_s": round(trained - began, 1),
        "probe_cpu_s": round(time.process_time() - trained, 1),
    }


def on_stored_encoder(search: Search, row: str, settings: Settings, seed: int) -> dict[str, Any]:
    """Train a detector on the encoder of a row of ring Table 4 and score it on held-out training pictures.

    The encoder is the table's own, read from ``results/encoders``, or trained and stored there.
    """
    job, execution = detector_job(search, row), Execution(out_dir=FOLDER.parent)
    own, on = data.load(search.data), data.load(job.on)
    numbers = torch.arange(len(on.train))
    kept, held = (on.train.subset(part) for part in (numbers[: -search.held_out], numbers[-search.held_out :]))
    shown = Splits.of(on.name, kept, held, "held-out training pictures")
    run = job.run_of(own, execution)
    encoders = run.train(execution.fabric(job.settings.precision), log=print).encoders
    began = time.process_time()
    evaluation = replace(job.evaluation(run, shown), seed=seed, folder=None)
    try:
        found = tasks.get(job.task_name, settings).score(encoders, evaluation)[search.metric].value
    except NonFiniteLossError as error:
        return {"accuracy": None, "failed": str(error), "probe_cpu_s": round(time.process_time() - began, 1)}
    return {"accuracy": round(found, 2), "probe_cpu_s": round(time.process_time() - began, 1)}


def detector_job(search: Search, row: str) -> Job:
    """The job whose detector is searched."""
    (job,) = expand(papers.plan("ring", 4), search.data, [row], [0], "laptop", search.column)
    return job


def profile_of_detector(search: Search, row: str) -> Settings:
    """Settings that are at their default but for the detector's, which are those of the profile."""
    job = detector_job(search, row)
    return Settings().override(**{job.task_name: getattr(job.settings, job.task_name).model_dump()})


def complete(search: Search, seeds: list[int], only: str, rows: list[str]) -> None:
    """Run what is missing of a search, and print each run."""
    loaded: dict[str, Splits] = {}
    for seed in seeds:
        for trial in search.trials():
            name, _, row, _ = trial
            if only in name and (not rows or row in rows):
                run_trial(search, trial, seed, loaded)


def climb(search: Search) -> None:
    """Go on with a climb of one row, and print each run, until the best trial has no better neighbour."""
    loaded: dict[str, Splits] = {}
    while True:
        accuracies = {run["trial"]: run["accuracy"] for run in stored(search)}
        trial = search.next_of_climb(accuracies)
        if trial is None:
            return
        run_trial(search, trial, SEED, loaded)


def run_trial(search: Search, trial: Trial, seed: int, loaded: dict[str, Splits]) -> None:
    """Run one trial, unless it is stored, store it and print it; ``loaded`` keeps the data sets that were read."""
    name, dataset, row, changes = trial
    settings = profile_of_detector(search, row) if search.column else Settings()
    settings = settings.override(**search.start).override(**changes)
    key = {
        "trial": name,
        "data": dataset,
        "method": row,
        "seed": seed,
        "settings": settings.model_dump(mode="json", exclude_defaults=True),
    }
    if any(key.items() <= run.items() for run in stored(search)):
        return
    if search.column:
        measured = on_stored_encoder(search, row, settings, seed)
    else:
        if dataset not in loaded:
            loaded[dataset] = parts(search, dataset)
        measured = measure(loaded[dataset], row, settings, seed, search.metric)
    code = provenance(torch.device("cpu"))
    run = {**key, **measured, "commit": f"{code['git_commit']}{'+' if code['git_dirty'] else ''}"}
    store(search, run)
    print({name: value for name, value in run.items() if name != "settings"}, flush=True)


def section(search: Search, *, row: str = "", printed: bool = False) -> str:
    """What the winner changes in a profile, as TOML."""
    trial, _ = searches.winner(_path(search), row=row, printed=printed)
    changes = searches.section(_path(search), row=row, printed=printed)
    if "overrides" not in changes:  # a search of a task's settings, which trains no encoder
        task, chosen = next(iter(changes.items()))
        return "\n".join([f"# trial {trial} of {search.name}", f"[…{task}]", *_lines(chosen)])
    inner = ", ".join(f'"{name}" = {json.dumps(value)}' for name, value in changes.pop("overrides").items())
    overrides = f"overrides = {{ {inner} }}" if inner else "overrides = {}"
    return "\n".join([f"# trial {trial}", f'search = "{search.name}"', *_lines(changes), overrides])


def show(search: Search) -> None:
    """Print what was measured, and what the winners change in their profile."""
    print(searches.table(_path(search)).to_string())
    if search.by_row:
        for row in search.rows:
            print(f"\n[{row}]\n{section(search, row=row)}")
    elif search.rows:
        for profile in ("laptop", "tuned"):
            print(f"\nprofile {profile}\n{section(search, printed=profile == 'laptop')}")


def _lines(changes: Mapping[str, Any]) -> list[str]:
    return [f"{name} = {json.dumps(value)}" for name, value in changes.items()]


def main() -> None:
    """Run what is missing and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("search", nargs="+", choices=SEARCHES, help="names of searches, done in this order")
    parser.add_argument("--only", default="", help="part of the names of trials")
    parser.add_argument("--rows", default="", help="such as ring/ir,ring/moco; all by default")
    parser.add_argument("--seeds", default=str(SEED), help="such as 100,101")
    parser.add_argument("--show", action="store_true", help="print the tables and run nothing")
    given = parser.parse_args()
    torch.set_num_threads(1)
    for name in given.search:
        search = SEARCHES[name]
        if not given.show and search.climbs_from:
            if given.only or given.rows or given.seeds != str(SEED):
                parser.error(f"{name} is a climb of one row with seed {SEED}: expected none of --only, --rows, --seeds")
            climb(search)
        elif not given.show:
            seeds = [int(seed) for seed in given.seeds.split(",")]
            complete(search, seeds, given.only, [row for row in given.rows.split(",") if row])
        show(search)


if __name__ == "__main__":
    main()
