"""vince Table 3: the readings of its recipe that are trained, how they compare, and the exact values beside them.

Source: vince appendix E and Table 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from contrastbook import studies
from contrastbook.studies import Row, Study, lookup, looseness, measure
from contrastbook.studies.looseness import BATCH, COVARIANCE, NEGATIVES, POINTS, Reading
from contrastbook.theory import gaussians
from contrastbook.theory.gaussians import PERCENTS, RHO, share_of
from contrastlab import papers
from contrastlab.support.errors import unknown

STUDY = "vince_table3"
COLLAPSED = RHO / 20  # nats; over y, the optimal critic has a standard deviation of about ρ
REPEATS = 5  # times that K negatives are drawn for each pair of an estimate


def train(
    reading: Reading, percents: Sequence[float], seeds: Sequence[int], *, epochs: int, points: int = POINTS
) -> list[Row]:
    """:func:`~contrastbook.studies.looseness.fit`, and what each critic is worth at the end, a row for each model.

    In nats: ``train`` and ``held_out`` (as many fresh pairs), the estimate as trained, all points encoded anew;
    ``population``, its expectation for K → ∞ by quadrature; ``infonce`` and ``infonce_population``, the same critic
    with all y as negatives; ``last_epoch`` and ``best_epoch`` of training itself; ``spread``, the standard deviation of
    f(x, y) over y, root mean square over x. ``status``: ``trained``, ``collapsed`` (spread below 1/20 of the optimal
    critic's), ``negative`` (an estimate below −.1: worse than a constant) or ``diverged``, for a ``reason``.
    """
    fitted = looseness.fit(reading, percents, seeds, epochs=epochs, points=points)
    place = torch.tensor([list(seeds).index(seed) for _, seed in fitted.models])
    fresh = [looseness.sample(10_000 + seed, points) for seed in seeds]
    pairs = {
        "train": looseness.data(reading, seeds, points),
        "held_out": (torch.stack([x for x, _ in fresh]), torch.stack([y for _, y in fresh])),
        "grid": tuple(side[None, :, None].expand(len(seeds), -1, 1) for side in (_GRID_X, _GRID_Y)),
    }
    with torch.no_grad():
        codes = {
            name: [
                looseness.encode(net, part[place].float(), reading.output).double()
                for net, part in zip((fitted.x, fitted.y), parts, strict=True)
            ]
            for name, parts in pairs.items()
        }
        rows: list[Row] = []
        for model, (percent, seed) in enumerate(fitted.models):
            one = {name: (x[model], y[model]) for name, (x, y) in codes.items()}
            scores, numbers = one["train"][0] @ one["train"][1].T, {}
            for name in ("train", "held_out"):
                generator = torch.Generator().manual_seed(20_000 + seed)
                draws = torch.rand(points, NEGATIVES * REPEATS, generator=generator, dtype=torch.float64)
                numbers[name] = _estimate(*one[name], percent, draws.view(points, REPEATS, NEGATIVES), reading.nearest)
            numbers |= {
                "population": _expectation(*one["grid"], percent, reading.nearest),
                "infonce": _against_others(scores),
                "infonce_population": _expectation(*one["grid"], 100.0, reading.nearest),
                "last_epoch": float(fitted.curve[-1, model]),
                "best_epoch": float(fitted.curve[:, model].max()),
                "spread": float(scores.var(1).mean().sqrt()),
            }
            row: Row = {"reading": reading.name, "percent": percent, "seed": seed}
            rows.append(row | _verdict(numbers, fitted.curve[:, model]))
    return rows


def _verdict(numbers: dict[str, float], curve: Tensor) -> Row:
    reason = None
    lost = [name for name, value in numbers.items() if not math.isfinite(value)]
    if lost:
        bad = (~curve.isfinite()).nonzero()
        when = f"the loss was not finite in epoch {int(bad[0]) + 1}" if len(bad) else "the loss was finite throughout"
        status, reason = "diverged", f"not finite: {', '.join(lost)}; {when}"
    elif numbers["spread"] < COLLAPSED:
        status = "collapsed"
    else:
        status = "negative" if numbers["train"] < -0.1 else "trained"
    kept: Row = {name: None if name in lost else value for name, value in numbers.items()}
    return {"status": status, "reason": reason} | kept


def _against_others(scores: Tensor) -> float:
    """InfoNCE of a sample's scores ``[N, N]``, each positive against the mean over the N − 1 other y, nats."""
    own = scores.diagonal()
    others = scores.masked_fill(torch.eye(len(scores), dtype=torch.bool), -math.inf).logsumexp(1)
    return float((own - others).mean()) + math.log(len(scores) - 1)


def _estimate(x: Tensor, y: Tensor, percent: float, draws: Tensor, nearest: looseness.Nearest) -> float:
    """Mean bound over all pairs of encodings ``[N, E]`` with draws ``[N, R, K]``, nats."""
    points, repeats, negatives = draws.shape
    total = 0.0
    # ranked in float32, as in training; what is estimated is summed in float64
    for own in torch.arange(points).split(500):
        contrast = looseness.contrast(
            x[own].float()[None], y.float()[None], y[own].float()[None], own[None], [percent],
            draws[own].reshape(1, len(own), -1), nearest,
        )  # fmt: skip
        contrast = contrast.double().view(len(own), repeats, negatives)
        positive = (x[own] * y[own]).sum(1)[:, None].expand(-1, repeats)
        total += float(looseness.bound(positive, contrast).sum())
    return total / (points * repeats)


_GRID_X = math.sqrt(COVARIANCE[0][0]) * torch.linspace(-6, 6, 161, dtype=torch.float64)
_GRID_Y = math.sqrt(COVARIANCE[1][1]) * torch.linspace(-6, 6, 641, dtype=torch.float64)


def _expectation(x: Tensor, y: Tensor, percent: float, nearest: looseness.Nearest) -> float:
    """Expectation of the bound for K → ∞, nats, from encodings of the grids, by the trapezoid rule."""
    part = share_of(percent)
    zx, zy = _GRID_X / math.sqrt(COVARIANCE[0][0]), _GRID_Y / math.sqrt(COVARIANCE[1][1])
    over_x, over_y = torch.exp(-0.5 * zx**2), torch.exp(-0.5 * zy**2)
    over_x, over_y = over_x / over_x.sum(), over_y / over_y.sum()
    joint = over_y * torch.exp(-0.5 * (zy - RHO * zx[:, None]) ** 2 / (1 - RHO**2) + 0.5 * zy**2)
    joint = over_x[:, None] * joint / joint.sum(1, keepdim=True)
    critic = x @ y.T

    def within(ranking: Tensor) -> Tensor:
        order = ranking.argsort(1, descending=True)
        mass = over_y[order]
        # the point at the edge counts with the part of its mass that fits
        return torch.zeros_like(ranking).scatter_(1, order, (part - (mass.cumsum(1) - mass)).clamp(min=0).minimum(mass))

    if part == 1:
        log_mean = (critic + over_y.log()).logsumexp(1, keepdim=True)
    elif nearest == "y1":
        top = critic.amax(1, keepdim=True)
        log_mean = top + torch.log(torch.exp(critic - top) @ within(-torch.cdist(y, y)).T / part)
    else:
        # in logarithms throughout: the set may lie hundreds of nats below the largest score
        inside = within(critic if nearest == "critic" else -torch.cdist(x, y)).log()
        log_mean = (critic + inside).logsumexp(1, keepdim=True) - math.log(part)
    return float((joint * (critic - log_mean)).sum())


@dataclass(frozen=True)
class Sizes:
    """What is trained: every percentage and seed under every reading."""

    readings: tuple[Reading, ...]
    percents: tuple[float, ...] = PERCENTS
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    epochs: int = 100
    points: int = POINTS


WRITTEN = Reading()
THEOREM = Reading(nearest="critic")
PATIENT = Reading(nearest="critic", rate=0.003)

_OTHERS = (
    Reading(nearest="critic", rate=0.001),
    Reading(nearest="critic", rate=0.0003),
    Reading(nearest="x"),
    Reading(nearest="x", encoders="shared"),
    Reading(nearest="critic", bank="memory"),
    Reading(nearest="critic", rate=0.003, data="redrawn"),
    Reading(output="sphere"),
    Reading(nearest="critic", output="sphere", rate=0.003),
)
PROFILES: Mapping[str, Sizes] = {
    "smoke": Sizes((WRITTEN, PATIENT), percents=(100.0, 90.0, 75.0), seeds=(0,), epochs=4),
    "laptop": Sizes((WRITTEN, PATIENT), epochs=20),
    "paper": Sizes((WRITTEN, THEOREM, PATIENT, *_OTHERS)),
}
"""``smoke`` takes seconds, ``laptop`` a minute, ``paper`` (100 epochs) half an hour of one core."""


def _configs(profile: str) -> dict[Reading, dict[str, Any]]:
    sizes = asdict(lookup(PROFILES, profile)) | {"negatives": NEGATIVES, "batch": BATCH, "covariance": COVARIANCE}
    del sizes["readings"]
    return {
        reading: {"reading": asdict(reading) | {"positive": True}} | sizes for reading in PROFILES[profile].readings
    }


def study(
    profile: str, out_dir: Path | str, read_also: Sequence[Path | str] = (), *,
    log: Callable[[str], None] = lambda line: None,
) -> dict[Reading, Study]:  # fmt: skip
    """Table 3 under each reading of a profile, a file for each: stored rows are read, others trained and stored."""
    measured = {}
    for reading, config in _configs(profile).items():
        sizes = PROFILES[profile]
        run = partial(train, reading, sizes.percents, sizes.seeds, epochs=sizes.epochs, points=sizes.points)
        measured[reading] = measure(STUDY, profile, config, run, out_dir=out_dir, read_also=read_also)
        log(f"{reading.name}: {measured[reading].provenance['wall_s']:.0f} s when measured")
    return measured


def stored(profile: str, roots: Sequence[Path | str]) -> dict[Reading, Study]:
    """Those readings of a profile that are stored under ``roots``; trains nothing."""
    each = {reading: studies.stored(STUDY, profile, config, roots) for reading, config in _configs(profile).items()}
    return {reading: rows for reading, rows in each.items() if rows is not None}


def summary(study: Study, number: str = "train") -> pd.DataFrame:
    """One number of :func:`train` by percentage, over the ``n`` seeds that have it, and how many were :data:`LOST`."""
    frame = pd.DataFrame(study.rows)
    if number not in frame.columns:
        raise unknown("number", number, frame.columns)
    groups = frame.astype({number: float}).groupby("percent", sort=False)
    lines = groups[number].agg(["mean", "std", "median", "count"]).rename(columns={"std": "sd", "count": "n"})
    for status in LOST:
        lines[status] = (frame["status"] == status).groupby(frame["percent"], sort=False).sum()
    return lines


LOST = {"collapsed": "constant", "negative": "below −.1", "diverged": "diverged"}


def published() -> pd.DataFrame:
    """The published table by percentage, ``value`` and ``std`` in nats; InfoNCE is VINCE with all of the sample."""
    names = {"InfoNCE" if p == 100 else f"VINCE ({p:.0f}%)": p for p in PERCENTS}
    rows = papers.published("vince", "3").set_index("row")
    return rows.loc[list(names), ["value", "std"]].rename(index=names).rename_axis("percent")


def exact() -> pd.DataFrame:
    """Many negatives (K → ∞), in nats: :func:`~contrastbook.theory.gaussians.population` and ``largest``, by row."""
    lines = []
    for p in PERCENTS:
        optimal, best = gaussians.population(p), gaussians.largest(p)
        share = 100 * optimal.share if p < 100 else None
        lines.append((p, optimal.value, optimal.best, optimal.best_scale, best.value, best.infonce, share))
    names = ["percent", "at f*", "best scale", "at a", "best critic", "its InfoNCE", "hypothesis holds (% of x)"]
    return pd.DataFrame(lines, columns=names).set_index("percent")


def described(study: Study) -> pd.Series[str]:
    """:func:`summary` in words, by percentage."""

    def text(line: pd.Series[float]) -> str:
        spread = "" if pd.isna(line["sd"]) else f" ± {line['sd']:.2g}"
        lost = "".join(f", {line[status]:.0f} {word}" for status, word in LOST.items() if line[status])
        return f"{line['mean']:.4g}{spread} ({line['n']:.0f}{lost})"

    return summary(study).apply(text, axis=1)


def verdict(study: Study) -> dict[str, list[float]]:
    """Percentages at which a reading does what, by the median over seeds.

    It ``trains`` where most seeds end neither collapsed, negative nor diverged; is ``above the truth`` on fresh pairs
    at hard negatives; and ``train``, ``infonce`` or ``infonce_population`` is the table's up to a factor of 1.5.
    """
    lines, fresh = summary(study), summary(study, "held_out")["median"]
    failed = lines["collapsed"] + lines["negative"] + lines["diverged"]
    chosen = {
        "trains": failed < (lines["n"] + lines["diverged"]) / 2,
        "above the truth": (fresh > gaussians.information()) & (lines.index < 100),
    }
    for number in ("train", "infonce", "infonce_population"):
        ratio = summary(study, number)["median"] / published()["value"].loc[lines.index]
        chosen[number] = (ratio < 1.5) & (ratio > 1 / 1.5)
    return {name: lines.index[where].tolist() for name, where in chosen.items()}


def closest(table: pd.DataFrame) -> tuple[str, str]:
    """The reading, and which of its numbers, that is like Table 3 at most rows; columns of :func:`verdict`."""
    met = table[["train", "infonce", "infonce_population"]].map(len)
    name = str(met.max(axis=1).idxmax())
    return name, str(met.loc[name].idxmax())
