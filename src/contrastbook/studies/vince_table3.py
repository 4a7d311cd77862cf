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
    reading: Reading,
    percents: Sequence[float],
    seeds: Sequence[int],
    *,
    epochs: int,
    points: int = POINTS,
) -> list[Row]:
    """:func:`~contrastbook.studies.looseness.fit`, and what each critic is worth at the end, a row for each model.

    In nats: ``train`` and ``held_out`` (as many fresh pairs), the estimate as trained, all points encoded anew;
    ``population``, its expectation for K → ∞ by quadrature; ``infonce`` and ``infonce_population``, the same critic
    with all y as negatives; ``last_epoch`` and ``best_epoch`` of training itself; ``spread``, the standard deviation of
    f(x, y) over y, root mean square over x. ``status``: ``trained``, ``collapsed`` (spread below 1/20 of the optimal
    critic's), ``negative`` (an estimate below −.1: worse than a constant) or ``diverged``, for a ``reason``.
    """
    fitted = looseness.fit(reading, percents, seeds, epochs=epochs, points=points)
    fresh = [looseness.sample(10_000 + seed, points) for seed in seeds]
    fresh_x = torch.stack([x for x, _ in fresh])
    fresh_y = torch.stack([y for _, y in fresh])
    rows: list[Row] = []
    with torch.no_grad():
        train_x, train_y = looseness.data(reading, seeds, points)
        train_codes = _encode(fitted, seeds, reading, train_x, train_y)
        fresh_codes = _encode(fitted, seeds, reading, fresh_x, fresh_y)
        grid_codes = _encode(fitted, seeds, reading, _for_each(seeds, _GRID_X), _for_each(seeds, _GRID_Y))
        for model, (percent, seed) in enumerate(fitted.models):
            x, y = train_codes[model]
            held_out_x, held_out_y = fresh_codes[model]
            grid_x, grid_y = grid_codes[model]
            scores = x @ y.T
            curve = fitted.curve[:, model]
            draws = _draws(points, seed)
            numbers = {
                "train": _estimate(x, y, percent, draws, reading.nearest),
                "held_out": _estimate(held_out_x, held_out_y, percent, draws, reading.nearest),
                "population": _expectation(grid_x, grid_y, percent, reading.nearest),
                "infonce": _against_others(scores),
                "infonce_population": _expectation(grid_x, grid_y, 100.0, reading.nearest),
                "last_epoch": float(curve[-1]),
                "best_epoch": float(curve.max()),
                "spread": float(scores.var(1).mean().sqrt()),
            }
            row: Row = {"reading": reading.name, "percent": percent, "seed": seed}
            rows.append(row | _verdict(numbers, curve))
    return rows


def _for_each(seeds: Sequence[int], grid: Tensor) -> Tensor:
    """A grid ``[N]`` for each seed, ``[S, N, 1]``."""
    return grid[None, :, None].expand(len(seeds), -1, 1)


def _encode(
    fitted: looseness.Fitted,
    seeds: Sequence[int],
    reading: Reading,
    x: Tensor,
    y: Tensor,
) -> list[tuple[Tensor, Tensor]]:
    """Encodings of points ``[S, N, 1]`` by each model, ``[N, E]`` of x and of y, in float64."""
    places = [list(seeds).index(seed) for _, seed in fitted.models]
    codes_x = looseness.encode(fitted.x, x[places].float(), reading.output)
    codes_y = looseness.encode(fitted.y, y[places].float(), reading.output)
    return list(zip(codes_x.double(), codes_y.double(), strict=True))


def _draws(points: int, seed: int) -> Tensor:
    """Numbers in [0, 1) that choose the negatives of an estimate, ``[N, R, K]``."""
    generator = torch.Generator().manual_seed(20_000 + seed)
    draws = torch.rand(points, NEGATIVES * REPEATS, generator=generator, dtype=torch.float64)
    return draws.view(points, REPEATS, NEGATIVES)


def _verdict(numbers: dict[str, float], curve: Tensor) -> Row:
    """``status`` and ``reason`` of a model, and its numbers; None where one is not finite."""
    reason = None
    not_finite = [name for name, value in numbers.items() if not math.isfinite(value)]
    if not_finite:
        status = "diverged"
        reason = f"not finite: {', '.join(not_finite)}; {_first_bad_epoch(curve)}"
    elif numbers["spread"] < COLLAPSED:
        status = "collapsed"
    elif numbers["train"] < -0.1:
        status = "negative"
    else:
        status = "trained"
    row: Row = {"status": status, "reason": reason}
    for name, value in numbers.items():
        row[name] = None if name in not_finite else value
    return row


def _first_bad_epoch(curve: Tensor) -> str:
    """A clause that says when the loss of a model was not finite for the first time."""
    bad = (~curve.isfinite()).nonzero()
    if len(bad):
        return f"the loss was not finite in epoch {int(bad[0]) + 1}"
    return "the loss was finite throughout"


def _against_others(scores: Tensor) -> float:
    """InfoNCE of a sample's scores ``[N, N]``, each positive against the mean over the N − 1 other y, nats."""
    own = scores.diagonal()
    is_own = torch.eye(len(scores), dtype=torch.bool)
    others = scores.masked_fill(is_own, -math.inf).logsumexp(1)
    return float((own - others).mean()) + math.log(len(scores) - 1)


def _estimate(x: Tensor, y: Tensor, percent: float, draws: Tensor, nearest: looseness.Nearest) -> float:
    """Mean bound over all pairs of encodings ``[N, E]`` with draws ``[N, R, K]``, nats."""
    points, repeats, negatives = draws.shape
    total = 0.0
    # ranked in float32, as in training; what is estimated is summed in float64
    for own in torch.arange(points).split(500):
        contrast = looseness.contrast(
            anchors=x[own].float()[None],
            bank=y.float()[None],
            positives=y[own].float()[None],
            own=own[None],
            percents=[percent],
            draws=draws[own].reshape(1, len(own), -1),
            nearest=nearest,
        )
        contrast = contrast.double().view(len(own), repeats, negatives)
        positive = (x[own] * y[own]).sum(1)
        positive = positive[:, None].expand(-1, repeats)
        bounds = looseness.bound(positive, contrast)
        total += float(bounds.sum())
    return total / (points * repeats)


_GRID_X = math.sqrt(COVARIANCE[0][0]) * torch.linspace(-6, 6, 161, dtype=torch.float64)
_GRID_Y = math.sqrt(COVARIANCE[1][1]) * torch.linspace(-6, 6, 641, dtype=torch.float64)


def _expectation(x: Tensor, y: Tensor, percent: float, nearest: looseness.Nearest) -> float:
    """Expectation of the bound for K → ∞, nats, from encodings of the grids, by the trapezoid rule."""
    share = share_of(percent)
    over_y, joint = _masses()
    critic = x @ y.T
    if share == 1:
        log_mean = (critic + over_y.log()).logsumexp(1, keepdim=True)
    elif nearest == "y1":
        highest = critic.amax(1, keepdim=True)
        mass = _highest_mass(-torch.cdist(y, y), over_y, share)
        mean_below_highest = torch.exp(critic - highest) @ mass.T / share
        log_mean = highest + torch.log(mean_below_highest)
    else:
        ranking = critic if nearest == "critic" else -torch.cdist(x, y)
        # in logarithms throughout: the set may lie hundreds of nats below the largest score
        log_mass = _highest_mass(ranking, over_y, share).log()
        log_mean = (critic + log_mass).logsumexp(1, keepdim=True) - math.log(share)
    return float((joint * (critic - log_mean)).sum())


def _masses() -> tuple[Tensor, Tensor]:
    """The mass of each point of the grid of y, ``[Y]``, and that of each pair of both grids, ``[X, Y]``."""
    zx = _GRID_X / math.sqrt(COVARIANCE[0][0])
    zy = _GRID_Y / math.sqrt(COVARIANCE[1][1])
    over_x = torch.exp(-0.5 * zx**2)
    over_x = over_x / over_x.sum()
    over_y = torch.exp(-0.5 * zy**2)
    over_y = over_y / over_y.sum()
    square_from_mean = (zy - RHO * zx[:, None]) ** 2
    log_ratio = -0.5 * square_from_mean / (1 - RHO**2) + 0.5 * zy**2  # of y given x to y, up to a constant
    given_x = over_y * torch.exp(log_ratio)
    joint = over_x[:, None] * given_x / given_x.sum(1, keepdim=True)
    return over_y, joint


def _highest_mass(ranking: Tensor, over_y: Tensor, share: float) -> Tensor:
    """The mass of the highest of each row, ``share`` together; the point at the edge counts as far as it fits."""
    order = ranking.argsort(1, descending=True)
    mass = over_y[order]
    mass_above = mass.cumsum(1) - mass
    room = (share - mass_above).clamp(min=0)
    return torch.zeros_like(ranking).scatter_(1, order, room.minimum(mass))


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
    """What decides the rows of each reading of a profile, as it is stored with them."""
    sizes = asdict(lookup(PROFILES, profile))
    del sizes["readings"]
    sizes |= {"negatives": NEGATIVES, "batch": BATCH, "covariance": COVARIANCE}
    configs: dict[Reading, dict[str, Any]] = {}
    for reading in PROFILES[profile].readings:
        fields = asdict(reading) | {"positive": True}
        configs[reading] = {"reading": fields} | sizes
    return configs


def study(
    profile: str,
    out_dir: Path | str,
    read_also: Sequence[Path | str] = (),
    *,
    log: Callable[[str], None] = lambda line: None,
) -> dict[Reading, Study]:
    """Table 3 under each reading of a profile, a file for each: stored rows are read, others trained and stored."""
    sizes = lookup(PROFILES, profile)
    measured: dict[Reading, Study] = {}
    for reading, config in _configs(profile).items():
        run = partial(train, reading, sizes.percents, sizes.seeds, epochs=sizes.epochs, points=sizes.points)
        measured[reading] = measure(STUDY, profile, config, run, out_dir=out_dir, read_also=read_also)
        log(f"{reading.name}: {measured[reading].provenance['wall_s']:.0f} s when measured")
    return measured


def stored(profile: str, roots: Sequence[Path | str]) -> dict[Reading, Study]:
    """Those readings of a profile that are stored under ``roots``; trains nothing."""
    found: dict[Reading, Study] = {}
    for reading, config in _configs(profile).items():
        stored_study = studies.stored(STUDY, profile, config, roots)
        if stored_study is not None:
            found[reading] = stored_study
    return found


def summary(study: Study, number: str = "train") -> pd.DataFrame:
    """One number of :func:`train` by percentage, over the ``n`` seeds that have it, and how many were :data:`LOST`."""
    frame = pd.DataFrame(study.rows)
    if number not in frame.columns:
        raise unknown("number", number, frame.columns)
    frame = frame.astype({number: float})
    values = frame.groupby("percent", sort=False)[number]
    lines = values.agg(["mean", "std", "median", "count"])
    lines = lines.rename(columns={"std": "sd", "count": "n"})
    for status in LOST:
        has_status = frame["status"] == status
        lines[status] = has_status.groupby(frame["percent"], sort=False).sum()
    return lines


LOST = {"collapsed": "constant", "negative": "below −.1", "diverged": "diverged"}
"""Status of a model that did not train, and what :func:`described` calls it."""


def published() -> pd.DataFrame:
    """The published table by percentage, ``value`` and ``std`` in nats; InfoNCE is VINCE with all of the sample."""
    percent_of_row: dict[str, float] = {}
    for percent in PERCENTS:
        row = "InfoNCE" if percent == 100 else f"VINCE ({percent:.0f}%)"
        percent_of_row[row] = percent
    table = papers.published("vince", "3").set_index("row")
    lines = table.loc[list(percent_of_row), ["value", "std"]]
    return lines.rename(index=percent_of_row).rename_axis("percent")


def exact() -> pd.DataFrame:
    """Many negatives (K → ∞), in nats: :func:`~contrastbook.theory.gaussians.population` and ``largest``, by row."""
    lines: list[dict[str, float | None]] = []
    for percent in PERCENTS:
        optimal = gaussians.population(percent)
        best = gaussians.largest(percent)
        lines.append(
            {
                "percent": percent,
                "at f*": optimal.value,
                "best scale": optimal.best,
                "at a": optimal.best_scale,
                "best critic": best.value,
                "its InfoNCE": best.infonce,
                "hypothesis holds (% of x)": 100 * optimal.share if percent < 100 else None,
            }
        )
    return pd.DataFrame(lines).set_index("percent")


def described(study: Study) -> pd.Series[str]:
    """:func:`summary` in words, by percentage."""
    return summary(study).apply(_in_words, axis=1)


def _in_words(line: pd.Series[float]) -> str:
    """A line of :func:`summary`, such as ``0.021 ± 0.0015 (4, 1 constant)``."""
    mean = f"{line['mean']:.4g}"
    if not pd.isna(line["sd"]):
        mean = f"{mean} ± {line['sd']:.2g}"
    counts = [f"{line['n']:.0f}"]
    for status, word in LOST.items():
        if line[status]:
            counts.append(f"{line[status]:.0f} {word}")
    return f"{mean} ({', '.join(counts)})"


def verdict(study: Study) -> dict[str, list[float]]:
    """Percentages at which a reading does what, by the median over seeds.

    It ``trains`` where most seeds end neither collapsed, negative nor diverged; is ``above the truth`` on fresh pairs
    at hard negatives; and ``train``, ``infonce`` or ``infonce_population`` is the table's up to a factor of 1.5.
    """
    lines = summary(study)
    on_fresh_pairs = summary(study, "held_out")["median"]
    failed = lines["collapsed"] + lines["negative"] + lines["diverged"]
    models = lines["n"] + lines["diverged"]
    has_hard_negatives = lines.index < 100
    conditions = {
        "trains": failed < models / 2,
        "above the truth": (on_fresh_pairs > gaussians.information()) & has_hard_negatives,
    }
    for number in ("train", "infonce", "infonce_population"):
        ratio = summary(study, number)["median"] / published()["value"].loc[lines.index]
        conditions[number] = (ratio < 1.5) & (ratio > 1 / 1.5)
    return {name: lines.index[holds].tolist() for name, holds in conditions.items()}


def closest(table: pd.DataFrame) -> tuple[str, str]:
    """The reading, and which of its numbers, that is like Table 3 at most rows; columns of :func:`verdict`."""
    rows_met = table[["train", "infonce", "infonce_population"]].map(len)
    reading = str(rows_met.max(axis=1).idxmax())
    number = str(rows_met.loc[reading].idxmax())
    return reading, number
