"""Every claim of a difference in the papers, published beside measured, with a verdict: a line each.

The claims are those of :mod:`contrastbook.evidence.differences`, and the rule by which verdicts are reached is that of
:mod:`contrastbook.evidence.inference`. The lines are a frame, for a CSV, a page (:mod:`contrastbook.evidence.words`) or
a figure (:func:`contrastbook.figures.results.forest`); :data:`COLUMNS` is its data dictionary.
"""

from __future__ import annotations

import math
import statistics
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import pandas as pd

from contrastbook.evidence import inference
from contrastbook.evidence.differences import STAND_INS, ClaimedDifference, claimed_differences
from contrastlab import papers
from contrastlab.papers import TablePlan
from contrastlab.tables.plan import RANDOM_LAB
from contrastlab.tables.results import Result
from contrastlab.tables.rows import Scores, scores

Read = Callable[[str, str], Scores | None]  # column and recipe to what is stored of it in one profile
PROFILES = ("paper", "laptop", "tuned", "regime", "fair", "features")
"""Profiles whose runs may speak of a claim. Beside ``paper``, those decide whose settings a search chose."""
_TOML = tomllib.loads(resources.files("contrastbook.evidence").joinpath("claims.toml").read_text("utf-8"))
COLUMNS: Mapping[str, str] = _TOML["columns"]
"""Data dictionary: name of a column of :func:`frame` to what it means."""
_SAME_CLAIM = [
    "paper",
    "dataset",
    "on",
    "metric",
    "method",
    "base",
    "published",
    "profile",
    "setup_method",
    "setup_base",
]
"""Columns in which two lines agree if two tables of a paper publish one difference of the same runs."""


def frame(results: Sequence[Result], plans: Iterable[TablePlan] | None = None) -> pd.DataFrame:
    """The claims of all tables, or of ``plans``, for which a number or a sign is published; columns: :data:`COLUMNS`.

    A line for each claim and profile with results, and for a claim without any one that says so. Other data than the
    paper's have lines where there are results. What two tables of a paper publish of the same runs is one line.
    """
    if plans is None:
        plans = [papers.plan(*name) for name in papers.plans()]
    by_dataset: defaultdict[str, list[Result]] = defaultdict(list)
    for result in results:
        by_dataset[result.dataset].append(result)
    measured = sorted(by_dataset)
    lines: list[dict[str, Any]] = []
    for plan in plans:
        by_data: dict[str, list[ClaimedDifference]] = {}
        for claim in claimed_differences(plan, measured):
            by_data.setdefault(claim.column.data, []).append(claim)
        for dataset, claims in by_data.items():
            lines += _of_data(claims, by_dataset.get(dataset, []))
    every = pd.DataFrame(lines, columns=list(COLUMNS))
    first_table = every.groupby(_SAME_CLAIM, dropna=False)["table"].transform("first")
    once = every[every["table"] == first_table].reset_index(drop=True)
    return _priced(once)


def dictionary() -> pd.DataFrame:
    """:data:`COLUMNS` as a frame."""
    return pd.DataFrame({"column": list(COLUMNS), "meaning": list(COLUMNS.values())})


def _priced(lines: pd.DataFrame) -> pd.DataFrame:
    """With seeds and core-hours that would decide what is open, if the difference has the published size.

    The spread is the line's from four seeds on, else the median of its table, as is the cost; ``inf``: no look suffices
    (:func:`inference.detectable`), or nothing was run in its table, on its data, or scored on them.
    """
    sd = _or_median_of_table(lines, lines["sd"].where(lines["seeds"] >= 4))
    cost = _or_median_of_table(lines, lines["core_hours"])
    measured = lines[lines["gain"].notna()]
    is_scored_elsewhere = lines["on"] != ""
    has_data = lines["dataset"].isin(measured["dataset"]) & (~is_scored_elsewhere | lines["on"].isin(measured["on"]))
    can_be_run = has_data & sd.notna() & cost.notna()
    counts = lines["dataset"].isin(STAND_INS) | (lines["stands_for"] == "")
    claims_a_sign = lines["claimed_sign"] != 0
    size = lines["published"].abs().where(claims_a_sign).fillna(inference.MARGIN)
    needed: list[float] = []
    for possible, spread, least in zip(can_be_run & counts, sd, size, strict=True):
        seeds = math.inf
        if possible:
            seeds = _seeds_that_find(spread, least)
        needed.append(seeds)
    # where the settings were not searched, all seeds are run anew
    have = lines["seeds"].where(lines["search"] != "", 0)
    missing = (pd.Series(needed) - have).clip(lower=4)
    missing = missing.mask(have >= inference.LOOKS[-1], math.inf)
    undecided = lines["verdict"].isin(("open", "not run"))
    return lines.assign(
        seeds_needed=(have + missing).where(undecided),
        core_hours=(missing * cost.fillna(1)).where(undecided),
    )


def _or_median_of_table(lines: pd.DataFrame, values: pd.Series) -> pd.Series:
    """The value of each claim, or the median of its table if it has none."""
    medians = values.groupby([lines["paper"], lines["table"]]).transform("median")
    return values.fillna(medians)


def _seeds_that_find(sd: float, difference: float) -> float:
    """The first look that finds a difference of this size with 80 %; ``inf`` if none does."""
    for seeds in inference.LOOKS:
        if inference.detectable(sd, seeds) <= difference:
            return float(seeds)
    return math.inf


def _of_data(claims: Sequence[ClaimedDifference], results: Sequence[Result]) -> list[dict[str, Any]]:
    """The lines of one table on one data set, given the results on it."""
    of_profile: defaultdict[str, list[Result]] = defaultdict(list)
    for result in results:
        of_profile[result.profile].append(result)
    by_profile = [_in_profile(claims, of_profile[profile], profile) for profile in PROFILES]
    lines: list[dict[str, Any]] = []
    for claim, *candidates in zip(claims, *by_profile, strict=True):
        measured_lines = [line for line in candidates if line is not None]
        lines += measured_lines
        if not measured_lines and not claim.column.stands_for:
            lines.append(claim.line())
    return lines


class _Measurement(NamedTuple):
    """What runs say of a claim."""

    looks: list[inference.Look]
    entries: dict[str, Any]  # values of COLUMNS


def _in_profile(
    claims: Sequence[ClaimedDifference], results: Sequence[Result], profile: str
) -> list[dict[str, Any] | None]:
    """A line of each claim, if it was measured; they share the chance of a wrong sign."""
    plan = claims[0].plan
    if not results or profile not in plan.profiles:
        return [None] * len(claims)
    columns = {claim.name: claim.column for claim in claims}
    of_task: defaultdict[tuple[str, str], list[Result]] = defaultdict(list)
    for result in results:
        of_task[result.on, result.task].append(result)

    @cache
    def read(name: str, row: str) -> Scores | None:
        column = columns[name]
        return scores(plan, column, of_task[column.on, column.task], row, profile)

    measurements = [_measured(claim, read, profile) for claim in claims]
    decisions = _decide_together(claims, measurements)
    lines: list[dict[str, Any] | None] = []
    for claim, measurement, decision in zip(claims, measurements, decisions, strict=True):
        line = None
        if measurement is not None:
            decided = _decided(claim, measurement.entries, decision, profile)
            line = claim.line() | measurement.entries | decided
        lines.append(line)
    return lines


def _decide_together(
    claims: Sequence[ClaimedDifference], measurements: Sequence[_Measurement | None]
) -> list[inference.Decision]:
    """The decision of each claim; those that were not measured share the chance of a wrong sign, too."""
    family: list[tuple[list[inference.Look], float]] = []
    for claim, measurement in zip(claims, measurements, strict=True):
        looks = [inference.NOT_RUN]
        if measurement is not None:
            looks = measurement.looks
        family.append((looks, claim.sign))
    return inference.decide(family)


def _decided(
    claim: ClaimedDifference, entries: Mapping[str, Any], decision: inference.Decision, profile: str
) -> dict[str, Any]:
    """Values of :data:`COLUMNS` that follow from a decision; the claim stays open where its runs may not speak."""
    search = claim.search(profile)
    settings_count = bool(search) or profile == "paper"
    counts = settings_count and entries["above_untrained"] is not False and claim.stands_in
    difference = decision.at.difference
    return {
        "profile": profile,
        "search": search,
        "p_holm": decision.p_holm,
        "used": decision.at.seeds,
        "p": decision.at.p,
        "gain": difference.mean,
        "low": _finite(difference.low),
        "high": _finite(difference.high),
        "verdict": decision.verdict if counts else "open",
        "bound": decision.bound if counts else None,
    }


def _measured(claim: ClaimedDifference, read: Read, profile: str) -> _Measurement | None:
    """Differences seed by seed; ``None`` without a common seed and data."""
    method = read(claim.name, claim.method)
    base = read(claim.name, claim.base)
    if method is None or base is None or method.data != base.data:
        return None
    seeds = sorted(method.by_seed.keys() & base.by_seed.keys())
    if not seeds:
        return None
    differences = [method.by_seed[seed] - base.by_seed[seed] for seed in seeds]
    by_seed = [f"{seed}:{gain:.6g}" for seed, gain in zip(seeds, differences, strict=True)]
    entries = {
        "seeds": len(seeds),
        "differences": " ".join(by_seed),
        "sd": statistics.stdev(differences) if len(seeds) > 1 else None,
        "core_hours": (method.core_seconds + base.core_seconds) / 3600,
        "precision": method.precision,
        "data_fingerprint": method.data,
        "setup_method": claim.plan.setup_hash(claim.column, claim.method, profile),
        "setup_base": claim.plan.setup_hash(claim.column, claim.base, profile),
    }
    entries |= _above_untrained(claim, method, base, read)
    return _Measurement(inference.look(differences, claim.published, claim.sign), entries)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _above_untrained(claim: ClaimedDifference, method: Scores, base: Scores, read: Read) -> dict[str, float | None]:
    """The untrained encoder that both rows are read against, and whether both are better by more than the intervals."""
    two_streams = RANDOM_LAB in claim.plan.references and method.split and base.split
    name = RANDOM_LAB if two_streams else claim.plan.floor
    untrained = None
    if name not in (claim.method, claim.base):
        untrained = read(claim.name, name)
    if untrained is None or method.data != untrained.data:
        return {"untrained": None, "above_untrained": None}
    both = _is_above(method, untrained) and _is_above(base, untrained)
    return {"untrained": untrained.estimate.mean, "above_untrained": both}


def _is_above(row: Scores, untrained: Scores) -> bool:
    """Whether a row is better by more than both intervals together."""
    gain = row.estimate.mean - untrained.estimate.mean
    if not untrained.metric.higher_is_better:
        gain = -gain
    return gain > math.hypot(row.estimate.error or 0.0, untrained.estimate.error or 0.0)
