"""Somebody else's benchmark: 40 tasks of ``benchmark-mi`` with known information, our estimators beside others.

    python benchmarks/outside.py                         # what is not stored yet, ``make outside``
    python benchmarks/outside.py --again ours            # ours anew, the others as they are stored
    python benchmarks/outside.py --seed 7 --out dev.json --task spiral    # other samples, tasks whose name has a word

The tasks (Czyż et al., *Beyond Normal*, NeurIPS 2023) are sampled in ``.outside/bmi``, where KSG and CCA run, too;
``torch-mist`` runs in ``.outside/mist``; the Makefile makes both. Each task of each family is stored as it ends, in
``results/bmi.json``, and what is stored is not computed again.

How ours estimate. The 10,000 pairs of a task are split in three: to train, to stop, and to report. Nothing that is
chosen looks at the true information or at the pairs that report. Coordinates are mapped to normal scores
(:func:`contrastlab.information.critics.normal_scores`, fitted on the training pairs). A critic is the log ratio of the
strongest canonical pairs as normal variables, fitted in closed form, plus a network that starts at zero. How many
canonical pairs, and which of :data:`CRITICS`, is chosen by InfoNCE on the pairs that stop: a lower bound for every
critic, so a larger one is a better one. The other bounds are maximised from that critic on.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from contrastlab.information import bounds, critics
from contrastlab.negatives import Ball
from contrastlab.scores.candidates import Candidates
from contrastlab.support import files
from contrastlab.support.provenance import provenance

ROOT = Path(__file__).parents[1]
STORE, PLACE = ROOT / "results" / "bmi.json", ROOT / ".outside"
TRAIN, STOP, REPORT, K, SEED = 6000, 1500, 2500, 250, 2023
CRITICS = (("normal scores", "separable"), ("normal scores", "joint"), ("standardised", "separable"))
"""Scale of the coordinates, and the network that is added to the canonical pairs."""
FAMILIES = ("ours", "bmi", "mist")


def of_pairs(bound: Callable[[Tensor, Tensor], Tensor]) -> critics.Bound:
    return lambda scores: bound(*bounds.pairs(scores))


OTHERS = {"NWJ": lambda: bounds.nwj, "DV": lambda: bounds.donsker_varadhan, "MINE": bounds.Mine}
"""Bounds that are maximised beside InfoNCE; each call makes a new one."""
SIZES = {"separable": {"batch": 500, "epochs": 40, "patience": 6}, "joint": {"batch": 125, "epochs": 10, "patience": 3}}
LATER = {"separable": {"batch": 500, "epochs": 10, "patience": 2}, "joint": {"batch": 125, "epochs": 4, "patience": 2}}
"""Sizes of a training by network, from the canonical pairs on and from InfoNCE's critic on; a joint one costs more."""


def info_nce(scores: Tensor) -> Tensor:
    """InfoNCE of y among keys and of x among keys, averaged: the scores are then decided up to a constant."""
    return (bounds.info_nce(*bounds.pairs(scores)) + bounds.info_nce(*bounds.pairs(scores.T))) / 2


class Critic(nn.Module):
    """The log ratio of canonical pairs as normal variables, and ``more``, a critic that starts at zero.

    Args:
        x, y: training pairs.
        rank: canonical pairs, the strongest first.
        turned: of coordinates, and coordinates times the squared length: directions that turn with the length.
        more: added to it; ``None`` for nothing.
    """

    def __init__(self, x: Tensor, y: Tensor, rank: int, turned: bool, more: nn.Module | None = None) -> None:
        super().__init__()
        self.turned = turned
        (of_x, of_y), rho = canonical(self.features(x), self.features(y))
        rho = rho[:rank]
        self.of_x, self.of_y, self.more = nn.Parameter(of_x[:, :rank]), nn.Parameter(of_y[:, :rank]), more
        self.cross, own = nn.Parameter(rho / (1 - rho**2)), -0.5 * rho**2 / (1 - rho**2)
        self.own_x, self.own_y = nn.Parameter(own), nn.Parameter(own.clone())
        self.shift = nn.Parameter(-0.5 * (1 - rho**2).log().sum())

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """``[B, M]`` scores."""
        u, v = self.features(x) @ self.of_x, self.features(y) @ self.of_y
        scores = (u * self.cross) @ v.T + (u**2 @ self.own_x)[:, None] + v**2 @ self.own_y + self.shift
        return scores if self.more is None else scores + self.more(x, y)

    def features(self, values: Tensor) -> Tensor:
        """Coordinates ``[B, p]``, and if ``turned`` also each times the squared length, ``[B, 2p]``."""
        return torch.cat([values, values * ((values**2).mean(1, keepdim=True) - 1)], 1) if self.turned else values


def canonical(x: Tensor, y: Tensor) -> tuple[list[Tensor], Tensor]:
    """Directions ``[p, r]`` and ``[q, r]`` of the canonical pairs, and their correlations, falling."""
    whiten = []
    for part in (x, y):
        values, vectors = torch.linalg.eigh(torch.cov(part.T).reshape(part.shape[1], -1))
        whiten.append(vectors / values.clamp(min=1e-6).sqrt())
    u, rho, v = torch.linalg.svd((x @ whiten[0]).T @ (y @ whiten[1]) / (len(x) - 1), full_matrices=False)
    return [whiten[0] @ u, whiten[1] @ v.T], rho.clamp(max=0.999)


def network(kind: str, p: int, q: int) -> nn.Module:
    """A critic of ``kind`` whose last layer is zero."""
    if kind == "separable":
        more: nn.Module = critics.Separable(critics.mlp([p, 128, 128, 32]), critics.mlp([q, 128, 128, 32]))
        last = more.h[-1]  # type: ignore[index, union-attr]
    else:
        top = critics.mlp([64, 32, 1])
        more, last = critics.Concatenated(nn.Linear(p, 64), nn.Linear(q, 64), top), top[-1]
    nn.init.zeros_(last.weight)  # type: ignore[arg-type]
    nn.init.zeros_(last.bias)  # type: ignore[arg-type]
    return more


Parts = Sequence[Sequence[Tensor]]
"""x and y of the pairs that train, that stop and that report."""


def train(critic: nn.Module, bound: critics.Bound, parts: Parts, *, batch: int, epochs: int, patience: int) -> None:
    """Maximise ``bound`` on the first of the parts, stop on the second; the first epoch leaves the critic as it is."""
    (x, y), held_out = parts[0], parts[1]
    generator = torch.Generator().manual_seed(0)
    optimiser = torch.optim.AdamW(critic.parameters(), lr=2e-3, weight_decay=1e-2, fused=True)

    def epoch(number: int) -> float:
        if number == 0:
            return math.nan
        for rows in torch.randperm(len(x), generator=generator).split(batch):
            optimiser.zero_grad()
            (-bound(critic(x[rows], y[rows]))).backward()
            optimiser.step()
        return math.nan

    def value() -> float:
        return critics.evaluate(critic, bound, *held_out, batch)

    critics.early_stopping(critic, epoch, value, epochs=epochs, patience=patience)


@torch.no_grad()
def read(critic: nn.Module, bound: critics.Bound, pairs: Sequence[Tensor]) -> dict[str, Any]:
    """Mean of the bound over batches of K pairs, and its standard error.

    The error is that of the mean log ratio which the scores give to the pairs: all that varies to first order, where a
    critic is near the best one. The spread of ten batches would be a noisy estimate of it.
    """
    values, ratios = [], []
    for x, y in zip(*(part.split(K) for part in pairs), strict=True):
        scores = critic(x, y)
        values.append(bound(scores))
        ratios.append(scores.diagonal() - (scores.logsumexp(0) + scores.logsumexp(1)) / 2)
    return {
        "value": float(torch.stack(values).mean()),
        "error": float(torch.cat(ratios).std()) / math.sqrt(len(pairs[0])),
    }


def estimate(x: Tensor, y: Tensor) -> dict[str, dict[str, Any]]:
    """Every estimator of ours on the pairs of a task."""
    began, tried = time.process_time(), []
    for scale, kind in CRITICS:
        parts = scaled(x, y, scale)
        most = min(x.shape[1], y.shape[1])
        ranks = [(r, turned) for r in (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32) if r < most for turned in (False, True)]
        of = max([*ranks, (most, False)], key=lambda r: read(Critic(*parts[0], *r), info_nce, parts[1])["value"])
        torch.manual_seed(0)
        critic = Critic(*parts[0], *of, network(kind, x.shape[1], y.shape[1]))
        train(critic, info_nce, parts, **SIZES[kind])
        name = f"{scale}, {kind}, {of[0]} canonical pairs{', turned' * of[1]}"
        tried.append((read(critic, info_nce, parts[1])["value"], name, kind, critic, parts))
    _, name, kind, critic, parts = max(tried, key=lambda each: each[0])
    values = {what: [stop, read(each, info_nce, its[2])["value"]] for stop, what, _, each, its in tried}
    seconds = round(time.process_time() - began, 1)
    found = {"InfoNCE": {**read(critic, info_nce, parts[2]), "critic": name, "tried": values, "seconds": seconds}}
    for label, bound in (("leave-one-out", of_pairs(bounds.leave_one_out)), ("VINCE", vince)):
        found[label] = read(critic, bound, parts[2])
    kept = {key: value.clone() for key, value in critic.state_dict().items()}
    for label, make in OTHERS.items():
        began = time.process_time()
        critic.load_state_dict(kept)
        with torch.no_grad():  # the shift at which NWJ of this critic is largest
            negatives = bounds.pairs(critic(parts[1][0], parts[1][1]))[1]
            critic.shift += 1 + math.log(negatives.numel()) - torch.logsumexp(negatives.flatten(), 0)
        train(critic, of_pairs(make()), parts, **LATER[kind])
        found[label] = {**read(critic, of_pairs(make()), parts[2]), "seconds": round(time.process_time() - began, 1)}
    return found


def vince(scores: Tensor) -> Tensor:
    """VINCE with the half of the keys that score highest as negatives."""
    own, generator = torch.arange(len(scores)), torch.Generator().manual_seed(0)
    return bounds.vince(scores.diagonal(), Candidates(scores, own), Ball(50, k=None), generator).value


def scaled(x: Tensor, y: Tensor, scale: str) -> list[list[Tensor]]:
    """Pairs to train, to stop and to report, each coordinate on a scale that the training pairs decide."""
    out = []
    for values in (x, y):
        own = values[:TRAIN]
        normal = scale == "normal scores"
        values = critics.normal_scores(own)(values) if normal else (values - own.mean(0)) / own.std(0)
        out.append(values.float().split([TRAIN, STOP, REPORT]))
    return [list(part) for part in zip(*out, strict=True)]


def work(folder: Path, names: Sequence[str]) -> None:
    """Compute in this process, and print one line of JSON for each task."""
    torch.set_num_threads(1)
    for name in names:
        with np.load(folder / f"{name}.npz") as stored:
            x, y = (torch.from_numpy(stored[key]) for key in ("x", "y"))
        print(json.dumps({"task": name, "estimates": estimate(x, y)}), flush=True)


def command(family: str, folder: Path) -> list[str]:
    """What computes a family's estimates of the tasks whose names follow."""
    scripts = Path(__file__).parent / "outsiders"
    return {
        "ours": [sys.executable, __file__, "--work", str(folder)],
        "bmi": [str(PLACE / "bmi/bin/python"), str(scripts / "bmi_tasks.py"), "estimate", str(folder)],
        "mist": [str(PLACE / "mist/bin/python"), str(scripts / "mist_smile.py"), str(folder), str(TRAIN), str(STOP)],
    }[family]


def versions(python: str, *packages: str) -> dict[str, str]:
    """Versions of packages in another environment."""
    code = "import sys, importlib.metadata as m; print(*(m.version(p) for p in sys.argv[1:]))"
    said = subprocess.run([python, "-c", code, *packages], check=True, capture_output=True, text=True).stdout
    return dict(zip(packages, said.split(), strict=True))


class Store:
    """The stored estimates: one for each task and family, written as soon as it is there."""

    def __init__(self, path: Path) -> None:
        self.path, self.lock = path, threading.Lock()
        self.all: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    def put(self, change: Callable[[dict[str, Any]], object]) -> None:
        """Change what is stored, and write it."""
        with self.lock:
            change(self.all)
            files.write_whole(self.path, json.dumps(self.all, indent=1, ensure_ascii=False) + "\n")


def compute(store: Store, family: str, folder: Path, names: Sequence[str], code: dict[str, Any]) -> None:
    """Compute a family's estimates of some tasks in a process of one thread, and store each as it ends."""
    alone = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    with subprocess.Popen([*command(family, folder), *names], stdout=subprocess.PIPE, text=True, env=alone) as process:
        assert process.stdout
        for line in process.stdout:
            done = json.loads(line)
            entry = {"estimates": done["estimates"], "date": datetime.now(UTC).isoformat(timespec="seconds"), **code}
            store.put(lambda known, entry=entry, task=done["task"]: known["tasks"][task].update({family: entry}))  # type: ignore[misc]
            print(family, done["task"], {k: round(v["value"], 3) for k, v in done["estimates"].items()}, flush=True)
    if process.returncode:
        raise RuntimeError(f"{family} ended with exit code {process.returncode}; what it had done is stored")


def main(arguments: Sequence[str] | None = None) -> None:
    """Sample, and compute what is not stored."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--processes", type=int, default=2, help="at a time, of one thread each (default 2)")
    parser.add_argument("--again", choices=FAMILIES, action="append", default=[], help="forget what it has stored")
    parser.add_argument("--only", choices=FAMILIES, action="append", help="families; default all")
    parser.add_argument("--task", default="", help="tasks whose name has this word; default all")
    parser.add_argument("--seed", type=int, default=SEED, help=f"of the samples (default {SEED}: those of the book)")
    parser.add_argument("--out", type=Path, default=STORE, help="where estimates are stored")
    parser.add_argument("--work", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.work:
        work(Path(given.work[0]), given.work[1:])
        return
    python, folder = str(PLACE / "bmi/bin/python"), PLACE / f"samples-{given.seed}"
    folder.mkdir(parents=True, exist_ok=True)
    count = TRAIN + STOP + REPORT
    if not (folder / "whole").exists():
        script = Path(__file__).parent / "outsiders" / "bmi_tasks.py"
        subprocess.run([python, str(script), "sample", str(folder), str(given.seed), str(count)], check=True)
        (folder / "whole").touch()
    store, made = Store(given.out), provenance()
    settings = {"seed": given.seed, "samples": count, "trained": TRAIN, "stopped": STOP, "candidates": K}
    settings["critics"] = [", ".join(each) for each in CRITICS]
    if store.all.get("settings") != settings:
        store.all = {"settings": settings, "tasks": {}}
    tasks = {path.stem: np.load(path) for path in sorted(folder.glob("*.npz")) if given.task in path.stem}
    for name, stored in tasks.items():
        task = {"title": str(stored["title"]), "dimensions": [stored[key].shape[1] for key in ("x", "y")]}
        known = store.all["tasks"].setdefault(name, {**task, "information": float(stored["information"])})
        for family in given.again:
            known.pop(family, None)
    own = {key: made[key] for key in ("git_commit", "git_dirty", "cpu", "cores")}
    codes = {
        "ours": {"versions": {"contrastlab": made["package"], "torch": made["versions"]["torch"]}, **own},
        "bmi": {"versions": versions(python, "benchmark-mi", "jax", "scikit-learn"), **own},
        "mist": {"versions": versions(str(PLACE / "mist/bin/python"), "torch-mist", "torch"), **own},
    }
    jobs = []
    for family in given.only or FAMILIES:
        open_ = [name for name in tasks if family not in store.all["tasks"][name]]
        jobs += [(family, open_[k :: given.processes]) for k in range(given.processes) if open_[k :: given.processes]]
    with ThreadPoolExecutor(given.processes) as pool:
        for each in [pool.submit(compute, store, family, folder, names, codes[family]) for family, names in jobs]:
            each.result()


if __name__ == "__main__":
    main()
