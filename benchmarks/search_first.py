"""How the settings of profile ``first`` were chosen: runs on a held-out part of the training images.

The last 3,000 of the 10,000 training images are the validation part; encoders and probes are trained on the others,
and no test image is read. Each line of ``results/searches/first.json`` is one run: trial, row, seed, settings,
validation accuracy, processor time. A run that is there is not repeated, so the search can be stopped and widened:

    OMP_NUM_THREADS=1 python benchmarks/search_first.py            # what is missing
    OMP_NUM_THREADS=1 python benchmarks/search_first.py --only jitter  # trials of that name
    python benchmarks/search_first.py --show                       # the table of what was measured

Both arms of a pair get the same settings in every trial.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from contrastlab import data, files, methods, tasks
from contrastlab.data.images.augmentations import augmentation
from contrastlab.pretrain import cpu_fabric, pretrain
from contrastlab.settings import Settings

STORE = Path(__file__).parents[1] / "results/searches/first.json"
HELD_OUT, SEED = 3000, 100
RANDOM = ("ours/random", "ours/random_lab")
IR, LA, CMC, MOCO = "ring/ir", "ring/la", "ring/cmc", "ring/moco"
RINGS = ("ring/iring", "ring/cmcring", "ring/mocoring")

# Where the search began: the shared profile `laptop`, shortened, in bfloat16.
START: dict[str, Any] = {
    "train_images": 2000, "image_size": 32, "augmentation": "instdisc", "arch": "tiny", "stem": "cifar", "epochs": 60,
    "batch_size": 128, "lr": 0.1, "weight_decay": 5e-4, "schedule": "cosine", "milestones": [], "knn_every": 0,
    "precision": "bf16-mixed", "linear": {"solver": "lbfgs", "features": "pooled", "train_images": 5000},
    "overrides": {
        "negatives.k": 1023, "negatives.nearest": 512, "keys.size": 512, "keys.momentum": 0.99,
        "positives.clusters": 200, "positives.runs": 1,
    },
}  # fmt: skip

CROP = {"augmentation": "cmc"}  # crop and flip, no colour jitter
SLOW = {**CROP, "warmup_epochs": 5}
BASE = {**SLOW, "overrides": {"keys.rate": 0.9, "keys.shuffle_groups": 8}}


def _base(**more: Any) -> dict[str, Any]:
    return {**BASE, **more, "overrides": {**BASE["overrides"], **more.get("overrides", {})}}


# (data set, changes to START, rows) by trial. On the full set, where it began; on the plain one, the choice.
Trial = tuple[str, dict[str, Any], tuple[str, ...]]
TRIALS: dict[str, Trial] = {
    "plain: random": ("plain_shapes", {}, RANDOM),
    "plain: base": ("plain_shapes", BASE, (IR, MOCO, CMC, *RINGS)),
    "plain: LA, 500 clusters": ("plain_shapes", _base(overrides={"positives.clusters": 500}), (LA,)),
    # an own row that is still random lies outside the ball, where LA has no gradient, unless that is the whole bank
    "plain: LA, 500 clusters, all nearest": (
        "plain_shapes", _base(overrides={"positives.clusters": 500, "negatives.nearest": 2000}), (LA,)
    ),
    "plain: LA, 200 clusters, all nearest": ("plain_shapes", _base(overrides={"negatives.nearest": 2000}), (LA,)),
    "plain: LA, rate 0.5, 500 clusters": (
        "plain_shapes", _base(overrides={"keys.rate": 0.5, "positives.clusters": 500}), (LA,)
    ),
    "plain: rate 0.5": ("plain_shapes", _base(overrides={"keys.rate": 0.5}), (LA, IR)),
    "plain: 1 part": ("plain_shapes", _base(overrides={"keys.shuffle_groups": 1}), (MOCO,)),
    "plain: jitter": ("plain_shapes", _base(augmentation="instdisc"), (IR, MOCO)),
    "plain: no warm-up": ("plain_shapes", _base(warmup_epochs=0), (IR, MOCO)),
    "full: random": ("shapes", {}, RANDOM),
    "full: start": ("shapes", {}, (IR, CMC, MOCO)),
    "full: crop and flip alone": ("shapes", CROP, (IR, CMC, MOCO)),
    "full: base, 1,000 images": ("shapes", _base(train_images=1000, epochs=120), (IR, MOCO)),
    "full: base, 4,000 images": ("shapes", _base(train_images=4000, epochs=30), (IR, MOCO)),
}  # fmt: skip


def runs() -> Iterator[tuple[str, str, str, Settings]]:
    """(trial, data set, row, settings) of every run."""
    for trial, (name, changes, rows) in TRIALS.items():
        for row in rows:
            yield trial, name, row, Settings().override(**START).override(**changes)


def stored() -> list[dict[str, Any]]:
    """What was measured."""
    return json.loads(STORE.read_text())["runs"] if STORE.exists() else []


def store(run: dict[str, Any]) -> None:
    """Add a run, also while another process adds one."""
    held = files.lock(STORE.parent / ".lock")
    lines = ",\n".join(json.dumps(each) for each in (*stored(), run))
    head = json.dumps({
        "what": "accuracy (percent) of ring Table 1's rows on held-out training images: choice of profile first",
        "command": "OMP_NUM_THREADS=1 python benchmarks/search_first.py", "held_out": HELD_OUT,
        "torch": torch.__version__,
    })  # fmt: skip
    files.write_whole(STORE, f'{head[:-1]},\n"runs": [\n{lines}\n]}}\n')
    if held is not None:
        held.release()


def measure(name: str, row: str, settings: Settings, seed: int) -> dict[str, Any]:
    """Train and score one row without a look at a test image."""
    every = data.load(name).train
    train, held = (every.subset(torch.arange(a, b)) for a, b in ((0, 10_000 - HELD_OUT), (10_000 - HELD_OUT, 10_000)))
    recipe = methods.get(row).override(settings.overrides)
    began = time.process_time()
    done = pretrain(recipe, settings, train, seed=seed, fabric=cpu_fabric(settings.precision), log=lambda line: None)
    trained = time.process_time()
    view = augmentation(settings.augmentation, settings.image_size)
    parts = data.Splits(name, train, train, held, "held-out training images")
    measured = tasks.Linear(settings.linear).score(done.encoders, tasks.Setting(recipe.views, view, parts, seed=seed))
    return {
        "accuracy": round(measured["linear"].value, 2),
        "loss": round(done.history[-1]["loss"], 3) if done.history else None,
        "train_cpu_s": round(trained - began, 1), "probe_cpu_s": round(time.process_time() - trained, 1),
    }  # fmt: skip


def table() -> pd.DataFrame:
    """Validation accuracy by trial and row (mean over seeds), and the standard error of one of these numbers."""
    frame = pd.DataFrame(stored())
    wide = frame.pivot_table(index="trial", columns="method", values="accuracy", sort=False).round(1)
    wide.columns = [name.partition("/")[2] for name in wide.columns]
    wide["± (one run)"] = [round(50 / math.sqrt(HELD_OUT), 1)] * len(wide)
    return wide


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="part of the names of trials")
    parser.add_argument("--rows", default="", help="such as ring/ir,ring/moco; all by default")
    parser.add_argument("--seeds", default=str(SEED), help="such as 100,101")
    parser.add_argument("--show", action="store_true", help="print the table and run nothing")
    given = parser.parse_args()
    torch.set_num_threads(1)
    for seed in [] if given.show else map(int, given.seeds.split(",")):
        for trial, name, row, settings in runs():
            if given.only not in trial or (given.rows and row not in given.rows.split(",")):
                continue
            plain = settings.model_dump(mode="json", exclude_defaults=True)
            key = {"trial": trial, "data": name, "method": row, "seed": seed, "settings": plain}
            if any(key.items() <= run.items() for run in stored()):
                continue
            run = {**key, **measure(name, row, settings, seed)}
            store(run)
            print({name: value for name, value in run.items() if name != "settings"}, flush=True)
    print(table().to_string())


if __name__ == "__main__":
    main()
