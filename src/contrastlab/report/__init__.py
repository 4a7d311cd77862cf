"""Published beside measured: a table, a figure and plain sentences from stored results.

Intervals are 95 % and in points (percent of test images). A mean over seeds carries a Student t interval over
the seeds. One seed carries none; what is said instead is the sampling error of the test set. Effects such as
IRing − IR are taken seed by seed, because both runs share data order and initialisation.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape
from io import BytesIO
from typing import Literal

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy import stats

from contrastlab.errors import reject
from contrastlab.papers import REFERENCES, TablePlan, published
from contrastlab.results import Result

__all__ = [
    "Estimate",
    "Report",
    "Row",
    "Unavailable",
    "binomial_half_width",
    "epoch_cost",
    "interval",
    "origin",
    "summary_sentences",
    "table",
]

RANDOM, RANDOM_LAB, SUPERVISED = REFERENCES
_Z = float(stats.norm.ppf(0.975))
_BANNERS = {
    "smoke": "Profile smoke: plumbing only. A tiny encoder, few images and few steps show that every part runs;"
    " these numbers say nothing about accuracy and are not comparable with the published ones.",
    "laptop": "Profile laptop: a small encoder on part of the data. Rows are comparable with each other,"
    " not with the published numbers.",
}


@dataclass(frozen=True)
class Unavailable:
    """A row that cannot exist, such as CMC on grey images, with the reason."""

    method: str
    reason: str


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds, in percent or points.

    Args:
        mean: over seeds.
        half_width: of the 95 % t interval over seeds; ``None`` for one seed.
        seeds: how many.
        sampling: 95 % half-width of the test set's own sampling error (binomial); ``None`` where it is not defined.
    """

    mean: float
    half_width: float | None
    seeds: int
    sampling: float | None = None

    def text(self, sign: bool = False) -> str:
        """``83.90 ± 0.41 (3 seeds)``, or for one seed what can be said without an interval."""
        number = f"{self.mean:{'+' if sign else ''}.2f}".replace("-", "−")
        if self.half_width is not None:
            return f"{number} ± {self.half_width:.2f} ({self.seeds} seeds)"
        sampling = "" if self.sampling is None else f"; test set ± {self.sampling:.2f}"
        return f"{number} (1 seed, no interval{sampling})"


def interval(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and 95 % half-width of the Student t interval; the half-width of a single value is ``None``.

    Raises:
        ArgumentError: no value.
    """
    if not values:
        raise reject("values", list(values), "at least one number")
    n = len(values)
    mean = math.fsum(values) / n
    if n == 1:
        return mean, None
    return mean, float(stats.t.ppf(0.975, n - 1) * np.std(values, ddof=1) / math.sqrt(n))


def binomial_half_width(percent: float, images: int) -> float:
    """95 % half-width, in points, of an accuracy measured on ``images`` test images (normal approximation).

    Args:
        percent: accuracy from 0 to 100.
        images: test images, at least 1.
    """
    if not 0 <= percent <= 100:
        raise reject("percent", percent, "a number from 0 to 100")
    if images < 1:
        raise reject("images", images, "at least 1")
    return _Z * math.sqrt(percent * (100 - percent) / images)


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Args:
        method: full name.
        label: as printed.
        kind: a published row, a reference row of ours, or the gain of a row over its base.
        published: percent (points for a difference); ``None`` where nothing is printed.
        measured: ``None`` where there is no result.
        versus_random: measured minus random encoder (two for a two-stream method), points; ``None`` if unknown.
        above_random: by more than the sampling error of the test set.
        status: empty where there is a number, else ``not run`` or ``n/a`` with the reason.
        note: what to know about the numbers.
        published_sd: standard deviation printed beside the published number, points; ``None`` where none is.
    """

    method: str
    label: str
    kind: Literal["method", "reference", "difference"]
    published: float | None = None
    measured: Estimate | None = None
    versus_random: float | None = None
    above_random: bool | None = None
    status: str = ""
    note: str = ""
    published_sd: float | None = None

    @property
    def difference(self) -> float | None:
        """Measured minus published, points."""
        if self.measured is None or self.published is None:
            return None
        return self.measured.mean - self.published


@dataclass(frozen=True, repr=False)
class Report:
    """A finished table of one data set in one profile; shows itself in a notebook."""

    plan: TablePlan
    dataset: str
    profile: str
    rows: tuple[Row, ...]
    data_note: str = ""
    printed_note: str = ""  # what is noted of every printed number alike

    @property
    def comparable(self) -> bool:
        """Whether measured numbers may be set against the published ones: only in the paper's own protocol."""
        return self.profile == "paper"

    @property
    def caption(self) -> str:
        """Which table, data set, profile, metric and copy of the data."""
        return (
            f"{self.plan.paper} {self.plan.heading}: {self.plan.title}."
            f" Data set {self.dataset}, profile {self.profile}, metric {self.plan.metric} (percent of test images)."
            + (f" Data: {self.data_note}." if self.data_note else "")
            + (f" Printed numbers: {self.printed_note}." if self.printed_note else "")
        )

    @property
    def banner(self) -> str:
        """What the profile's numbers are not; empty in profile ``paper``."""
        if self.comparable:
            return ""
        return _BANNERS.get(
            self.profile,
            f"Profile {self.profile}: not the paper's protocol; not comparable with the published numbers.",
        )

    @property
    def legend(self) -> str:
        """How to read the cells."""
        parts = [
            "± is a 95 % Student t interval over seeds; with one seed there is none, and the half-width given is"
            " the binomial sampling error of the test set.",
            "▲ above the random encoder by more than the sampling error of the test set, ▽ not above random;"
            " a method with two encoders is read against two random ones.",
            "Differences between rows are taken seed by seed (paired).",
        ]
        if self.comparable:
            printed = any(row.published_sd is not None for row in self.rows)
            parts.append(
                "The interval of a difference is ours alone; a printed sd is over the paper's own runs."
                if printed
                else "The published numbers carry no uncertainty: the interval of a difference is ours alone."
            )
        return " ".join(parts)

    @property
    def _published(self) -> str:
        return "published" if self.comparable else "published (paper protocol)"

    @property
    def frame(self) -> pd.DataFrame:
        """Numbers, unrounded, in percent and points; NaN where there is none.

        Measured columns carry the profile in their name, so that frames of two profiles cannot be stacked
        into one column by accident.
        """
        here = f"({self.profile})"
        records = []
        for row in self.rows:
            m = row.measured
            record = {
                "method": row.method,
                "row": row.label,
                "kind": row.kind,
                self._published: row.published,
                f"measured {here}": m and m.mean,
                f"95 % half-width {here}": m and m.half_width,
                f"seeds {here}": m.seeds if m else 0,
                f"test-set half-width {here}": m and m.sampling,
            }
            if self.comparable:
                record["measured − published"] = row.difference
            record |= {
                f"vs random {here}": row.versus_random,
                f"above random {here}": row.above_random,
                "note": _join(row.status, row.note),
            }
            records.append(record)
        frame = pd.DataFrame.from_records(records)
        number = [self._published, "measured − published"]
        number += [f"{name} {here}" for name in ("measured", "95 % half-width", "test-set half-width", "vs random")]
        return frame.astype({column: "float64" for column in number if column in frame})

    @property
    def texts(self) -> pd.DataFrame:
        """The cells as shown: one text each."""
        return pd.DataFrame([self._texts(row) for row in self.rows])

    def _texts(self, row: Row) -> dict[str, str]:
        paired = row.kind == "difference"
        digits = 1 if row.published_sd is None else 2
        printed = "–" if row.published is None else f"{row.published:{'+' if paired else ''}.{digits}f}"
        printed = printed.replace("-", "−") + ("" if row.published_sd is None else f" (sd {row.published_sd:.2f})")
        measured = row.measured.text(sign=paired) if row.measured else row.status
        cells = {"method": row.label, self._published: printed, f"measured, {self.profile} profile": measured}
        if self.comparable:
            cells["measured − published"] = "–" if row.difference is None else _gap(row)
        if row.versus_random is None:
            against = "–"
        else:
            mark = "▲" if row.above_random else "▽ not above random"
            against = f"{row.versus_random:+.2f} {mark}".replace("-", "−")
        return {**cells, "vs random encoder": against, "note": row.note}

    def markdown(self) -> str:
        """The table for a terminal, a README or a log."""
        texts = self.texts
        header = [str(column) for column in texts.columns]
        lines = [header, ["---"] * len(header), *(list(map(str, values)) for values in texts.to_numpy())]
        body = "\n".join("| " + " | ".join(_markdown_cell(cell) for cell in line) + " |" for line in lines)
        banner = f"> **{self.banner}**\n\n" if self.banner else ""
        return f"**{self.caption}**\n\n{banner}{body}\n\n{self.legend}\n"

    def html(self) -> str:
        """The table as HTML without styles of its own, everything escaped."""
        texts = self.texts
        head = "".join(f'<th scope="col">{escape(str(column))}</th>' for column in texts.columns)
        body = []
        for row, values in zip(self.rows, texts.to_numpy(), strict=True):
            first, *rest = (escape(str(value)) for value in values)
            cells = f'<th scope="row">{first}</th>' + "".join(f"<td>{value}</td>" for value in rest)
            body.append(f'<tr class="{row.kind}">{cells}</tr>')
        banner = f'<p role="note"><strong>{escape(self.banner)}</strong></p>' if self.banner else ""
        return (
            f'{banner}<table class="published-measured"><caption>{escape(self.caption)}</caption>'
            f"<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table><p>{escape(self.legend)}</p>"
        )

    def _repr_html_(self) -> str:
        return self.html()

    def _repr_markdown_(self) -> str:
        return self.markdown()

    def __repr__(self) -> str:
        return self.markdown() + "\n" + "\n".join(f"- {sentence}" for sentence in summary_sentences(self)) + "\n"

    @property
    def alt(self) -> str:
        """The figure in words, for those who do not see it."""
        shown = [f"{row.label} {row.measured.text()}" for row in self._drawn() if row.measured]
        return f"Dot plot. {self.caption} {self.banner} {'; '.join(shown) or 'nothing has been run'}.".replace(
            "  ", " "
        )

    def _drawn(self) -> list[Row]:
        return [row for row in self.rows if row.kind != "difference" and row.measured is not None]

    def figure(self) -> Figure:
        """A dot per row with its interval; readable in black and white.

        Filled dots are above the random encoder, open dots are not, the dashed line is the random encoder.
        Published numbers (diamonds) are drawn in profile ``paper`` only. Solid bars are t intervals over seeds,
        dotted bars the sampling error of the test set where there is one seed.
        """
        drawn = self._drawn()
        figure, axes = plt.subplots(figsize=(7, 0.8 + 0.42 * max(len(drawn), 1)), layout="constrained")
        plt.close(figure)  # out of pyplot's hands: shown once, by whoever asked for it
        for y, row in enumerate(drawn):
            assert row.measured is not None
            width = row.measured.half_width if row.measured.half_width is not None else row.measured.sampling
            if width is not None:
                dotted = row.measured.half_width is None
                axes.plot(
                    [row.measured.mean - width, row.measured.mean + width], [y, y],
                    color="#0072B2", linestyle=":" if dotted else "-", linewidth=2, zorder=2,
                )  # fmt: skip
            face = "white" if row.above_random is False or row.method in (RANDOM, RANDOM_LAB) else "#0072B2"
            axes.plot(row.measured.mean, y, "o", color="#0072B2", markerfacecolor=face, markersize=8, zorder=3)
            if self.comparable and row.published is not None:
                axes.plot(row.published, y, "D", color="#D55E00", markerfacecolor="none", markersize=8, zorder=3)
            if row.method == RANDOM:
                axes.axvline(row.measured.mean, color="0.4", linestyle="--", linewidth=1, zorder=1)
        axes.set_yticks(range(len(drawn)), [row.label for row in drawn])
        axes.set_ylim(max(len(drawn), 1) - 0.5, -0.5)
        axes.set_xlabel(f"{self.plan.metric} accuracy (% of test images), profile {self.profile}, {self.dataset}")
        key = "filled: above the random encoder   open: not   dashed line: random encoder"
        axes.set_title(f"{key}   diamond: published" if self.comparable else key, fontsize="small", loc="left")
        axes.grid(axis="x", color="0.9")
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(axis="y", length=0)
        figure.set_label(self.alt)
        return figure

    def figure_html(self) -> str:
        """The figure as an ``<img>`` with its alternative text."""
        buffer = BytesIO()
        self.figure().savefig(buffer, format="png", dpi=110)
        return (
            f'<img alt="{escape(self.alt)}" src="data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}">'
        )


def _gap(row: Row) -> str:
    assert row.measured is not None
    assert row.difference is not None
    return replace(row.measured, mean=row.difference).text(sign=True)


def _markdown_cell(text: str) -> str:
    for character in ("\\", "|", "<", "*", "_", "`"):
        text = text.replace(character, "\\" + character)
    return text.replace("\n", " ")


def _list(names: Sequence[str]) -> str:
    # labels such as "KL, α = 20" have a comma of their own
    return ("; " if any(", " in name for name in names) else ", ").join(names)


def _join(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


@dataclass(frozen=True)
class _Cell:
    """The results of one row that belong together."""

    by_seed: dict[int, float]
    data: str
    test_images: int
    note: str
    data_note: str = ""
    split: bool = False  # two streams: read against two random encoders

    @property
    def estimate(self) -> Estimate:
        mean, half = interval([self.by_seed[seed] for seed in sorted(self.by_seed)])
        return Estimate(mean, half, len(self.by_seed), binomial_half_width(mean, self.test_images))


def _cell(plan: TablePlan, results: Sequence[Result], dataset: str, method: str, profile: str) -> _Cell | None:
    # One configuration only: the mean of two protocols is the number of neither.
    mine = [r for r in results if r.method == method]
    if not mine:
        return None
    newest = max(mine, key=lambda r: r.provenance.finished)
    same = [r for r in mine if r.config_hash == newest.config_hash]
    notes = []
    if len(same) < len(mine):
        notes.append(f"{len(mine) - len(same)} result(s) of an earlier configuration left out")
    now = plan.settings(dataset, method, profile).model_dump(mode="json")
    changed = sorted(key for key in now if now[key] != newest.settings.get(key))
    if changed:
        notes.append(f"stored under other settings than the protocol has now: {', '.join(changed)}")
    by_seed: dict[int, float] = {}
    for result in sorted(same, key=lambda r: r.provenance.finished):
        if plan.metric not in result.metrics:
            raise reject("results", f"{method} seed {result.seed}", f"results with the metric {plan.metric!r}")
        by_seed[result.seed] = result.metrics[plan.metric]
    sizes = {result.test_images for result in same}
    if len(sizes) > 1:
        raise reject("test_images", sorted(sizes), f"one number for all seeds of {method}")
    split = (newest.recipe.get("views") or {}).get("type") == "Split"
    where = newest.provenance
    return _Cell(by_seed, where.data_fingerprint, newest.test_images, _join(*notes), where.data_note, split)


def _against_random(cell: _Cell, floor: _Cell | None) -> tuple[float | None, bool | None, str]:
    if floor is None:
        return None, None, ""
    if floor.data != cell.data:
        return None, None, "random encoder was scored on other data"
    high, low = cell.estimate, floor.estimate
    gap = high.mean - low.mean
    # The two share their test images, which makes the real error smaller than this: a cautious mark.
    error = math.hypot(
        binomial_half_width(high.mean, cell.test_images), binomial_half_width(low.mean, floor.test_images)
    )
    return gap, gap > error, ""


def table(
    plan: TablePlan,
    results: Iterable[Result],
    dataset: str,
    profile: str,
    *,
    unavailable: Iterable[Unavailable] = (),
) -> Report:
    """Published beside measured for one data set in one profile.

    Results of another data set, profile or row are left aside, so a whole folder may be given. If a row was
    run under several configurations, the newest counts and the note says that others were left out.

    Args:
        plan: of the table.
        results: stored results.
        dataset: as it was run.
        profile: one of ``plan.profiles``.
        unavailable: rows that cannot exist on this data set.

    Returns:
        All published rows, the two reference rows, then the gains of rows over their bases.

    Raises:
        UnknownNameError: unknown data set, profile or method.
        ArgumentError: a result without the table's metric.
    """
    plan.settings(dataset, RANDOM, profile)  # checks both names
    missing = {plan.resolve(u.method): u.reason for u in unavailable}
    chosen = [r for r in results if r.dataset == dataset and r.profile == profile]
    names = (*plan.methods, *REFERENCES)
    cells = {name: _cell(plan, chosen, dataset, name, profile) for name in names}
    printed = [
        plan.published_note(dataset, name) for name in plan.methods if plan.published_value(dataset, name) is not None
    ]
    shared = printed[0] if len(printed) > 1 and len(set(printed)) == 1 else ""
    rows = []
    for name in names:
        cell = cells[name]
        if name == RANDOM_LAB and cell is None:
            continue  # of interest to two-stream rows only
        row = Row(
            method=name,
            label=plan.label(name),
            kind="method" if name in plan.rows else "reference",
            published=plan.published_value(dataset, name),
            note="" if shared else plan.published_note(dataset, name).replace("bold", "in bold in the paper"),
            published_sd=plan.published_sd(dataset, name),
        )
        if name in missing:
            row = replace(row, status=f"n/a: {missing[name]}")
        elif cell is None:
            row = replace(row, status="not run")
        else:
            floor = (cells[RANDOM_LAB] if cell.split else None) or cells[RANDOM]
            gap, above, why = (None, None, "") if floor is cell or name == RANDOM_LAB else _against_random(cell, floor)
            row = replace(
                row, measured=cell.estimate, versus_random=gap, above_random=above, note=_join(row.note, cell.note, why)
            )
        rows.append(row)
    rows += [_paired(plan, dataset, name, base, cells, missing) for name, base in plan.pairs.items()]
    data_notes = {cell.data_note for cell in cells.values() if cell is not None and cell.data_note}
    return Report(plan, dataset, profile, tuple(rows), "; ".join(sorted(data_notes)), shared)


def _paired(
    plan: TablePlan, dataset: str, name: str, base: str, cells: dict[str, _Cell | None], missing: dict[str, str]
) -> Row:
    published, origin = plan.published_difference(dataset, name)
    row = Row(
        method=f"{name} − {base}",
        label=f"{plan.label(name)} − {plan.label(base)}",
        kind="difference",
        published=published,
        note="published difference derived from the two rows" if origin == "derived" else "",
    )
    reason = missing.get(name) or missing.get(base)
    if reason:
        return replace(row, status=f"n/a: {reason}")
    high, low = cells[name], cells[base]
    if high is None or low is None:
        return replace(row, status="not run")
    common = sorted(high.by_seed.keys() & low.by_seed.keys())
    if not common:
        return replace(row, status="n/a: no seed in common")
    if high.data != low.data:
        return replace(row, status="n/a: the two rows were run on different data")
    mean, half = interval([high.by_seed[seed] - low.by_seed[seed] for seed in common])
    return replace(row, measured=Estimate(mean, half, len(common)))


def summary_sentences(report: Report) -> list[str]:
    """What the table shows and what it cannot, in sentences made from its numbers."""
    methods = [row for row in report.rows if row.kind == "method"]
    run = [row for row in methods if row.measured is not None]
    out = [f"{len(run)} of {len(methods)} rows have a measured number."]
    for status in ("not run", "n/a"):
        names = [row.label for row in methods if row.status.startswith(status)]
        if names:
            out.append(f"{status.capitalize() if status == 'not run' else 'Not possible here'}: {_list(names)}.")
    judged = [row for row in run if row.versus_random is not None]
    above = [f"{row.label} ({row.versus_random:+.1f} points)" for row in judged if row.above_random]
    below = [f"{row.label} ({row.versus_random:+.1f} points)" for row in judged if not row.above_random]
    if above:
        out.append(f"Above the random encoder: {_list(above)}.")
    if below:
        out.append(
            f"Not yet above the random encoder at this size (by more than the test set's sampling error):"
            f" {_list(below)}."
        )
    if run and not judged:
        out.append("The random encoder has not been run, so nothing is said about how much was learnt.")
    out += [_effect(row) for row in report.rows if row.kind == "difference" and row.measured is not None]
    if report.comparable:
        out += _agreement(run)
    else:
        out.append(report.banner)
    single = [row.label for row in run if row.measured is not None and row.measured.seeds == 1]
    if single:
        out.append(f"One seed only for {_list(single)}: how much another seed would change these numbers is not known.")
    return out


def origin(results: Sequence[Result]) -> str:
    """Where results come from, in one sentence: seeds, days, code, packages, machine and time.

    Raises:
        ArgumentError: no result.
    """
    if not results:
        raise reject("results", [], "at least one stored result")
    where = [r.provenance for r in results]
    days = sorted({p.finished.date().isoformat() for p in where})
    commits = sorted({(p.git_commit or "no commit")[:9] + "+" * bool(p.git_dirty) for p in where})
    torch = sorted({p.versions.get("torch", "?") for p in where})
    seeds = sorted({r.seed for r in results})
    hours = math.fsum(p.wall_s for p in where) / 3600
    return (
        f"{len(results)} runs, seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))};"
        f" {days[0]}{' to ' + days[-1] if len(days) > 1 else ''}; code {', '.join(commits)};"
        f" torch {', '.join(torch)}; {', '.join(sorted({_machine(r) for r in results}))};"
        f" {hours:.1f} hours in all, {max(p.wall_s for p in where) / 60:.0f} minutes the longest."
        + (" A + is code with changes that were not committed." if any(p.git_dirty for p in where) else "")
    )


def _effect(row: Row) -> str:
    assert row.measured is not None
    gain, half = row.measured.mean, row.measured.half_width
    if half is None:
        return f"{row.label}: {gain:+.2f} points with one common seed; no conclusion about its sign."
    verdict = "its interval contains 0, so the sign is open" if abs(gain) <= half else "its interval excludes 0"
    return f"{row.label}: {gain:+.2f} ± {half:.2f} points over {row.measured.seeds} common seeds; {verdict}."


def _agreement(run: Sequence[Row]) -> list[str]:
    gaps = [
        (row.label, row.difference, row.measured.half_width)
        for row in run
        if row.measured is not None and row.difference is not None and row.measured.half_width is not None
    ]
    if not gaps:
        return ["No row has both a published number and an interval of ours, so agreement is not judged."]
    inside = [label for label, gap, half in gaps if abs(gap) <= half]
    outside = [f"{label} ({gap:+.1f})" for label, gap, half in gaps if abs(gap) > half]
    out = [
        f"The published number lies inside our interval for {len(inside)} of {len(gaps)} rows"
        f" (at 95 %, about {len(gaps) / 20:.1f} would lie outside by chance)."
    ]
    if outside:
        out.append(f"Outside, measured minus published in points: {_list(outside)}.")
    return out


def epoch_cost(plan: TablePlan, results: Iterable[Result], dataset: str, profile: str) -> pd.DataFrame:
    """Time of a training epoch, and its ratio to that of the method built on: ring Table 5a, published and measured.

    Timed are the training steps (views, encoders, loss, update) as each result's curve has them; evaluations are not
    in it. A busy machine makes epochs longer, never shorter, so the ratio of the two fastest epochs is given beside
    that of the means. No ratio is formed of times from two machines or over settings that differ.

    Args:
        plan: of ring Table 1, whose rows are timed.
        results: stored results; other rows, data sets and profiles are left aside. Of a method run under several
            configurations or on several machines the newest result decides which are read.
        dataset: as it was run.
        profile: one of ``plan.profiles``.

    Returns:
        A row for each method of the printed table, run or not: printed ratios of means, by data set; seconds an epoch,
        over all epochs of all seeds, their standard deviation, the fastest, and how many; the mean over common seeds
        of the ratio of mean epochs with the half-width of its 95 % t interval; the ratio of the fastest epochs; the
        machine. NaN where there is nothing.

    Raises:
        UnknownNameError: unknown data set or profile.
    """
    plan.settings(dataset, RANDOM, profile)  # checks both names
    chosen = [r for r in results if r.dataset == dataset and r.profile == profile and r.curve]
    printed = published("ring", "5a")
    means = {(row, column): value for row, column, value in printed[["row", "column", "value"]].to_numpy()}
    rows, columns = (list(dict.fromkeys(key[i] for key in means)) for i in (0, 1))
    timed = {name: _timed(chosen, name) for name in plan.methods if plan.label(name) in rows}
    here = f"({profile})"
    records: list[dict[str, object]] = []
    for name, runs in timed.items():
        base = plan.pairs.get(name)
        every = [s for run in runs for s in _epochs(run)]
        pairs = [(a, b) for a in runs for b in timed.get(base or "", []) if _alike(a, b)]
        each = [float(np.mean(_epochs(a)) / np.mean(_epochs(b))) for a, b in pairs]
        mean, half = interval(each) if each else (None, None)
        fast = [min(s for pair in pairs for s in _epochs(pair[i])) for i in (0, 1)] if pairs else []
        records.append(
            {"method": plan.label(name)}
            | {
                f"published ratio, {column.split()[0]}": means[plan.label(name), column]
                / means[plan.label(base), column]
                if base
                else None
                for column in columns
            }
            | {
                f"seconds an epoch {here}": float(np.mean(every)) if every else None,
                f"sd over epochs {here}": float(np.std(every, ddof=1)) if len(every) > 1 else None,
                f"fastest epoch {here}": min(every, default=None),
                f"epochs {here}": len(every),
                f"seeds {here}": len(runs),
                f"ratio {here}": mean,
                f"95 % half-width {here}": half,
                f"ratio of fastest epochs {here}": fast[0] / fast[1] if fast else None,
                "machine": _machine(runs[0]) if runs else "",
            }
        )
    frame = pd.DataFrame.from_records(records, index="method")
    return frame.astype({name: "float64" for name in frame if not str(name).startswith(("epochs", "seeds", "machine"))})


def _machine(result: Result) -> str:
    where = result.provenance
    return where.gpu or f"{where.cpu}, {where.threads} thread{'s' * (where.threads != 1)}"


def _timed(results: Sequence[Result], method: str) -> list[Result]:
    mine = sorted((r for r in results if r.method == method), key=lambda r: r.provenance.finished)
    if not mine:
        return []
    same = [r for r in mine if r.config_hash == mine[-1].config_hash and _machine(r) == _machine(mine[-1])]
    return list({r.seed: r for r in same}.values())


def _alike(one: Result, other: Result) -> bool:
    return (one.seed, one.settings, _machine(one)) == (other.seed, other.settings, _machine(other))


def _epochs(result: Result) -> list[float]:
    # the curve counts seconds from the start of the run
    return [float(s) for s in np.diff([0.0, *(row["seconds"] for row in result.curve)])]
