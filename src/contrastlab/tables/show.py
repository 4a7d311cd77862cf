"""A finished table in words, as a table and as a picture, for a page, a terminal and a notebook."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from typing import TYPE_CHECKING, Any, Self

from contrastlab import tasks
from contrastlab.pictures.task import Metric
from contrastlab.support import escape, terminal
from contrastlab.support.errors import ContrastLabError
from contrastlab.tables.numbers import Estimate, plural, signed
from contrastlab.tables.plan import RANDOM_LAB, Column, TablePlan
from contrastlab.tables.profiles import OWN, is_paper
from contrastlab.tables.rows import PRETRAINED, TRAINING, Row, join

if TYPE_CHECKING:  # a list of what is stored draws nothing
    import pandas as pd
    from matplotlib.figure import Figure

_BANNERS = {
    "smoke": "plumbing only. A tiny encoder, few images and few steps show that every part runs; these numbers say"
    " nothing about accuracy and are not comparable with the published ones.",
    "first": "a small encoder on generated pictures, minutes a table. It shows that something is learnt; not comparable"
    " with the published numbers.",
    "laptop": "a small encoder on part of the data, {settings}. Rows are comparable with each other, not with the"
    " published numbers.",
    "tuned": "as laptop, and what the paper prints (temperature, weights) was chosen, too. Rows are comparable with"
    " each other, not with the published numbers.",
    "regime": "as laptop, in a setting where theory predicts a large effect. Rows are comparable with each other, not"
    " with the published numbers.",
    "fair": "a small encoder on part of the data, with the paper's augmentation and head; every row has its own rate"
    " and scales, chosen on held-out training pictures. Rows are comparable with each other, not with the published"
    " numbers.",
    "features": "two layers trained on features of a frozen network that has seen ImageNet's labels. Rows are"
    " comparable with each other, not with the published numbers.",
    "pilot": "first runs of a tiny encoder; settings were picked on the test accuracy of some rows, so levels are"
    " flattered. Not comparable with the published numbers.",
}
_OTHER = "not the paper's protocol; not comparable with the published numbers."
# blue and vermilion, which colour-blind readers tell apart
_MEASURED = "#0072B2"
_PUBLISHED = "#D55E00"
_SEARCHED = "settings chosen on held-out training items"
_UNSEARCHED = "settings taken without a search, for some rows or all"


_HEAD = """<!doctype html><html lang="en"><meta charset="utf-8"><style>td { padding: 0 1em; border-top: 1px solid #aaa }
:root { color-scheme: light dark } body { font: 1rem/1.5 sans-serif; max-width: 60rem; margin: auto; padding: 1rem }
table { border-collapse: collapse; text-align: left } figure { margin: 1rem 0; overflow-x: auto }</style>"""


class Lines(tuple[str, ...]):
    """Lines of text that print themselves; what a name of somebody's brings along breaks no line."""

    def __new__(cls, lines: Iterable[str] = ()) -> Self:  # noqa: D102
        return super().__new__(cls, map(escape.line, lines))

    def __repr__(self) -> str:
        return "\n".join(self)

    def _repr_markdown_(self) -> str:
        return "\n".join(f"- {escape.markdown(line)}" for line in self)


def listed(names: Sequence[str]) -> str:
    """Names in a row, with semicolons where one has a comma of its own."""
    has_comma = any(", " in name for name in names)
    return "; ".join(names) if has_comma else ", ".join(names)


def effect(label: str, gain: Estimate, unit: str) -> str:
    """A gain with its interval, and whether its sign is decided."""
    if gain.half_width is None:
        return f"{label}: {gain.mean:+.2f} {unit} with one common seed; no conclusion about its sign."
    verdict = "its interval excludes 0"
    if abs(gain.mean) <= gain.half_width:
        verdict = "its interval contains 0, so the sign is open"
    return f"{label}: {gain.mean:+.2f} ± {gain.half_width:.2f} {unit} over {gain.seeds} common seeds; {verdict}."


def agreement(run: Iterable[tuple[Row, Estimate]], unit: str) -> list[str]:
    """How many published numbers lie inside our intervals."""
    judged = 0
    outside = []
    for row, number in run:
        if row.difference is None or number.half_width is None:
            continue
        judged += 1
        if abs(row.difference) > number.half_width:
            outside.append(f"{row.label} ({row.difference:+.1f})")
    if not judged:
        return ["No row has both a published number and an interval of ours, so agreement is not judged."]
    lines = [
        f"The published number lies inside our interval for {judged - len(outside)} of {judged} rows"
        f" (at 95 %, about {judged / 20:.1f} would lie outside by chance)."
    ]
    if outside:
        lines.append(f"Outside, measured minus published in {unit}: {listed(outside)}.")
    return lines


def image(figure: Figure) -> str:
    """A figure as an ``<img>``; its label is the alternative text."""
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    picture = base64.b64encode(buffer.getvalue()).decode()
    return f'<img alt="{escape.html(figure.get_label())}" src="data:image/png;base64,{picture}">'


def framed(caption: str, banner: str, texts: pd.DataFrame, remarks: Iterable[str]) -> str:
    """A table as HTML without styles of its own, everything escaped."""
    note = f'<p role="note"><strong>{escape.html(banner)}</strong></p>' if banner else ""
    table = texts.to_html(classes="published-measured", border=0, index_names=False)
    caption = escape.html(caption)
    # the caption is beside the table's box, so that it stays in sight where the box is scrolled
    box = f'<div tabindex="0" role="region" aria-label="{caption}">{table}</div>'
    figure = f'<figure class="published-measured {escape.LITERAL}"><figcaption>{caption}</figcaption>{box}</figure>'
    items = "".join(f"<li>{escape.html(line)}</li>" for line in remarks)
    return f'{note}{figure}<ul class="{escape.LITERAL}">{items}</ul>'


@dataclass(frozen=True, repr=False)
class Report:
    """A finished table of one column in one profile; shows itself in a notebook."""

    plan: TablePlan
    name: str
    column: Column
    profile: str
    rows: tuple[Row, ...]
    data_note: str = ""
    published_note: str = ""  # what is noted of every published number alike

    @property
    def dataset(self) -> str:
        """Pre-training data."""
        return self.column.data

    @property
    def metric(self) -> Metric:
        """What the numbers are."""
        return tasks.metric(self.column.metric)

    @property
    def floor(self) -> str:
        """What rows are read against, in words: a random encoder, or where training starts from one, a trained one."""
        if any(row.label == PRETRAINED for row in self.rows):
            return PRETRAINED
        return "random encoder"

    @property
    def _against(self) -> str:
        """Heading of the column of distances from the floor."""
        if self.floor == PRETRAINED:
            return "against start"
        return "against random"

    @property
    def comparable(self) -> bool:
        """Whether measured numbers may be set against the published ones: only in the paper's own protocol."""
        return is_paper(self.profile)

    @property
    def about(self) -> str:
        """Data, profile, metric and copy of the data."""
        where = self.column.data
        if self.column.on:
            where = f"{self.column.data} to {self.column.on}"
        parts = [f"Data set {escape.line(where)}"]
        if self.column.settings:
            parts.append(f"column {escape.line(self.name)}")
        unit = self.metric.unit
        if unit == "percent":
            unit = f"percent of {self.metric.items}"
        parts += [f"profile {self._profile_in_words}", f"{self.metric.label} ({unit})"]
        sentences = [", ".join(parts) + "."]
        if self.data_note:
            sentences.append(f"Data: {escape.line(self.data_note)}.")
        if self.published_note:
            sentences.append(f"Published numbers: {self.published_note}.")
        return " ".join(sentences)

    @property
    def _profile_in_words(self) -> str:
        """The profile's name; of one's own settings also what they are."""
        if self.profile == OWN and self.plan.own is not None:
            return f"{self.profile} ({escape.line(self.plan.own)})"
        return self.profile

    @property
    def caption(self) -> str:
        """Which table, and :attr:`about`."""
        return f"{self.plan.paper} {self.plan.heading}: {self.plan.title}. {self.about}"

    @property
    def banner(self) -> str:
        """What the profile's numbers are not; empty in profile ``paper``."""
        if self.comparable:
            return ""
        run = [row.method for row, _ in self.drawn if row.kind == "method"]
        searched = all(self.plan.search(self.dataset, method, self.profile) for method in run)
        settings = _SEARCHED if searched else _UNSEARCHED
        return f"Profile {self.profile}: {_BANNERS.get(self.profile, _OTHER).format(settings=settings)}"

    @property
    def drawn(self) -> list[tuple[Row, Estimate]]:
        """The rows with a number, gains left out, and the number."""
        pairs = []
        for row in self.rows:
            if row.kind != "difference" and row.measured is not None:
                pairs.append((row, row.measured))
        return pairs

    @property
    def _digits(self) -> int:
        """Decimals of the published numbers: two where one of them has two."""
        published = [row.published for row in self.rows if row.published is not None]
        if all(round(value, 1) == round(value, 6) for value in published):
            return 1
        return 2

    @property
    def _seeds(self) -> set[int]:
        return {number.seeds for _, number in self.drawn}

    @property
    def legend(self) -> Lines:
        """How to read the cells: each meaning once."""
        lines = [*self._legend_of_seeds(), *self._legend_of_columns(), *self._legend_of_printed()]
        return Lines(lines)

    def _legend_of_seeds(self) -> Iterator[str]:
        """What stands for seeds, intervals and sampling errors in a cell."""
        numbers = [row.measured for row in self.rows if row.measured is not None]
        if len(self._seeds) == 1:
            (count,) = self._seeds
            yield f"{count} {plural('seed', count)} a row."
        if len(self._seeds) > 1:
            yield "The number of seeds stands behind each number in brackets."
        if any(number.half_width is not None and number.seeds > 2 for number in numbers):
            yield "± is a 95 % Student t interval over seeds."
        if any(number.seeds == 2 for number in numbers):
            yield "Of two seeds both numbers are in brackets: too few for an interval."
        if any(number.half_width is None and number.sampling is not None for number in numbers):
            yield f"(±) is the 95 % sampling error of the {self.metric.items}: one seed has no interval."

    def _legend_of_columns(self) -> Iterator[str]:
        """What the columns against the floor and against the base say."""
        rows = [row for row in self.rows if row.measured is not None]
        gap = self.metric.gap
        if any(row.versus_random is not None for row in rows):
            floor = self.floor
            if floor != PRETRAINED:
                floor += " (two for a method with two encoders)"
            marks = ""
            if any(self._mark(row) for row in rows):
                marks = f"; ▲ by more than the sampling error of the {self.metric.items}, ▽ not"
            yield f"{self._against.capitalize()}: {gap} above the {floor}{marks}."
        if any(row.kind == "difference" for row in rows):
            yield f"Against base: {gap} above the method built on, seed by seed (paired)."
        precisions = sorted({row.precision for row in rows if row.precision})
        if len(precisions) > 1:
            yield f"Rows differ in the precision they were trained in: {', '.join(precisions)}."

    def _legend_of_printed(self) -> Iterator[str]:
        """What is known of the uncertainty of published numbers, where these may be compared with ours."""
        has_both = any(row.measured is not None and row.published is not None for row in self.rows)
        if not self.comparable or not has_both:
            return
        if any(row.published_sd is not None for row in self.rows):
            yield "A printed sd is over the paper's own runs."
        else:
            yield "Published numbers carry no uncertainty."

    @property
    def absent(self) -> Lines:
        """The rows without a number, a line for each reason."""
        by_reason: dict[str, list[str]] = {}
        for row in self.rows:
            if row.status and row.kind != "difference":
                by_reason.setdefault(row.status, []).append(row.label)
        lines = []
        for status, labels in by_reason.items():
            if status == "not run":
                lines.append(f"Not run: {listed(labels)}.")
            else:
                reason = status.removeprefix("n/a: ").rstrip(".")
                lines.append(f"Not possible here: {listed(labels)} ({reason}).")
        return Lines(lines)

    @property
    def remarks(self) -> Lines:
        """What stands below the table: the legend, what to know about single rows, and what is absent."""
        notes = [f"{row.label}: {row.note.rstrip('.')}." for row, _ in self.drawn if row.note]
        return Lines((*self.legend, *notes, *self.absent))

    @property
    def frame(self) -> pd.DataFrame:
        """Numbers, unrounded, in the metric's unit; measured columns carry the profile, which are never to be mixed.

        Rows of the kind ``difference`` are paired: of each seed's difference, which ``by seed`` has as ``seed:value``.
        """
        import pandas as pd

        frame = pd.DataFrame.from_records([self._record(row) for row in self.rows])
        measured_columns = ("measured", "95 % half-width", "sampling half-width", "vs random")
        numbers = [self._published_heading, "measured − published"]
        numbers += [f"{name} ({self.profile})" for name in measured_columns]
        return frame.astype({column: "float64" for column in numbers if column in frame})

    @property
    def _published_heading(self) -> str:
        """Heading of the published numbers in :attr:`frame`."""
        if self.comparable:
            return "published"
        return "published (paper protocol)"

    def _record(self, row: Row) -> dict[str, Any]:
        """A row of :attr:`frame`."""
        here = f"({self.profile})"
        mean = half_width = sampling = None
        seeds = 0
        if row.measured is not None:
            mean = row.measured.mean
            half_width = row.measured.half_width
            sampling = row.measured.sampling
            seeds = row.measured.seeds
        by_seed = [f"{seed}:{row.by_seed[seed]!r}" for seed in sorted(row.by_seed)]
        record: dict[str, Any] = {
            "method": row.method,
            "row": row.label,
            "kind": row.kind,
            self._published_heading: row.published,
            f"measured {here}": mean,
            f"95 % half-width {here}": half_width,
            f"seeds {here}": seeds,
            f"by seed {here}": " ".join(by_seed),
            f"sampling half-width {here}": sampling,
        }
        if self.comparable:
            record["measured − published"] = row.difference
        record[f"vs random {here}"] = row.versus_random
        record[f"above random {here}"] = row.above_random
        record["note"] = join(row.status, row.note)
        return record

    @cached_property
    def texts(self) -> pd.DataFrame:
        """The lines as shown: a text in each cell, no column that is empty throughout."""
        import pandas as pd

        columns = ["method", "published", "published gain", "measured", "− published", self._against, "against base"]
        frame = pd.DataFrame([self._line(*each) for each in self.drawn], columns=columns, dtype=str).fillna("–")
        empty = [name for name in columns[1:] if not frame[name].str.strip("–").any()]
        return frame.drop(columns=empty)

    def _mark(self, row: Row) -> str:
        """Whether a row is above the floor; a smoke run decides nothing."""
        if row.above_random is None or self.profile == "smoke":
            return ""
        if row.above_random:
            return " ▲"
        return " ▽"

    def _line(self, row: Row, measured: Estimate) -> dict[str, str]:
        """The texts of a row by column; a column of which nothing is known is left out."""
        digits = self._digits
        if row.published_sd is not None:
            digits = 2
        line = {"method": row.label, "measured": measured.text()}
        if len(self._seeds) > 1:
            line["measured"] += f" [{measured.seeds}]"
        if row.published is not None:
            line["published"] = signed(row.published, digits)
        if row.published_sd is not None:
            line["published"] += f" (sd {row.published_sd:.2f})"
        if self.comparable and row.difference is not None:
            line["− published"] = signed(row.difference, sign=True)
        if row.versus_random is not None:
            line[self._against] = signed(row.versus_random, 1, sign=True) + self._mark(row)
        return line | self._gain_of(row, digits)

    def _gain_of(self, row: Row, digits: int) -> dict[str, str]:
        """The texts of a row's gain over its base, published and measured."""
        texts = {}
        for gain in self.rows:
            if gain.gain_of != row.method:
                continue
            if gain.published is not None:
                texts["published gain"] = signed(gain.published, digits, sign=True)
            if gain.measured is not None:
                texts["against base"] = gain.measured.text(sign=True)
        return texts

    def text(self, width: int | None = None) -> str:
        """The table for a terminal, folded to ``width`` columns where there is one."""
        body = "nothing has been run"
        if self.drawn:
            columns = [str(name) for name in self.texts]
            body = terminal.table(columns, self.texts.to_numpy().tolist(), width)
        above = [terminal.fold(line, width) for line in (self.caption, self.banner) if line]
        below = [terminal.fold(line, width) for line in self.remarks if line]
        return "\n".join((*above, "", body, "", *below))

    def whole(self, width: int | None = None) -> str:
        """:meth:`text` and what it shows."""
        findings = "\n".join(terminal.fold(line, width) for line in self.findings)
        return f"{self.text(width)}\n\n{findings}\n"

    def training(self, width: int | None = None) -> str:
        """What runs say of themselves without labels, for a terminal; empty where none does, as of older results."""
        rows = [row for row, _ in self.drawn if row.training]
        if not rows:
            return ""
        names = [name for name in TRAINING if any(row.training.get(name) for row in rows)]
        heads = ["method", *(TRAINING[name] for name in names)]
        cells = []
        for row in rows:
            values = [signed(row.training[name]) if name in row.training else "–" for name in names]
            cells.append([row.label, *values])
        conditions = f"profile {self.profile}, mean over seeds; loss and bound in nats"
        heading = terminal.fold(f"Last epoch of training, without labels ({conditions}):", width)
        return f"{heading}\n\n{terminal.table(heads, cells, width)}\n"

    def markdown(self) -> str:
        """The table for a README or a log."""
        columns = [str(name) for name in self.texts]
        rows = [columns, ["---"] * len(columns), *self.texts.to_numpy().tolist()]
        lines = [escape.markdown_row(escape.markdown(cell) for cell in row) for row in rows]
        parts = [f"**{escape.markdown(self.caption)}**"]
        if self.banner:
            parts.append(f"> **{escape.markdown(self.banner)}**")
        parts += ["\n".join(lines), self.remarks._repr_markdown_()]
        return "\n\n".join(parts) + "\n"

    def html(self) -> str:
        """The table as HTML without styles of its own, everything escaped."""
        return framed(self.caption, self.banner, self.texts.set_index("method"), self.remarks)

    _repr_html_, _repr_markdown_, __repr__ = html, markdown, whole

    def check(self, rows: str | Sequence[str] = "all") -> None:
        """Refuse a table where some of ``rows`` have neither a number in the metric's range nor a reason."""
        by_method = {row.method: row for row in self.rows}
        bad = []
        for name in dict.fromkeys((*self.plan.resolve_all(rows), self.plan.floor)):
            row = by_method[name]
            if row.status.startswith("n/a"):
                continue
            if row.measured is None or not self.metric.low <= row.measured.mean <= self.metric.high:
                bad.append(row.method)
        if bad:
            raise ContrastLabError(f"{self.caption} No number and no reason: {', '.join(bad)}")

    @property
    def summary(self) -> Lines:
        """What the table shows and what it cannot, in sentences made from its numbers; complete without the table."""
        first, *others = self.findings
        banner = [self.banner] if self.banner else []
        return Lines([first, *self.absent, *others, *banner])

    @property
    def findings(self) -> Lines:
        """What the table shows, without what :meth:`text` and :meth:`html` say beside it."""
        gap = self.metric.gap
        run = [(row, number) for row, number in self.drawn if row.kind == "method"]
        methods = sum(row.kind == "method" for row in self.rows)
        lines = [f"{len(run)} of {methods} rows have a measured number.", *self._against_floor(run)]
        for row in self.rows:
            if row.kind == "difference" and row.measured is not None:
                lines.append(effect(row.label, row.measured, gap))
        if self.comparable:
            lines += agreement(run, gap)
        single = [row.label for row, number in run if number.seeds == 1]
        if single:
            rows = "every row" if len(single) == len(run) else listed(single)
            lines.append(f"One seed only for {rows}: how much another seed would change these numbers is not known.")
        return Lines(lines)

    def _against_floor(self, run: Sequence[tuple[Row, Estimate]]) -> Iterator[str]:
        """Which rows are above the floor and which are not."""
        above: list[str] = []
        not_above: list[str] = []
        for row, _ in run:
            if row.versus_random is not None:
                group = above if row.above_random else not_above
                group.append(f"{row.label} ({row.versus_random:+.1f} {self.metric.gap})")
        if above:
            yield f"Above the {self.floor}: {listed(above)}."
        if not_above:
            size = f"at this size (by more than the sampling error of the {self.metric.items})"
            yield f"Not yet above the {self.floor} {size}: {listed(not_above)}."
        if run and not above and not not_above:
            yield f"The {self.floor} has not been run, so nothing is said about how much was learnt."

    @property
    def alt(self) -> str:
        """The figure in words, for those who do not see it."""
        numbers = [f"{row.label} {number.text()}" for row, number in self.drawn] or ["nothing has been run"]
        sentences = ["Dot plot.", self.caption, self.banner, "; ".join(numbers) + "."]
        return " ".join(sentence for sentence in sentences if sentence)

    def figure(self) -> Figure:
        """A dot per row, filled if above the floor (the dashed line); published numbers are diamonds.

        Solid bars are t intervals over seeds, dotted bars the sampling error of the test items of one seed.
        """
        import matplotlib.pyplot as plt

        count = max(len(self.drawn), 1)
        figure, axes = plt.subplots(figsize=(7, 0.8 + 0.42 * count), layout="constrained")
        plt.close(figure)  # out of pyplot's hands: shown once, by whoever asked for it
        for y, (row, number) in enumerate(self.drawn):
            self._draw_row(axes, y, row, number)
        labels = [escape.mathtext(row.label) for row, _ in self.drawn]
        axes.set_yticks(range(len(labels)), labels)
        axes.set_ylim(count - 0.5, -0.5)
        axes.set_xlabel(self._axis_label)
        axes.set_title(self._key, fontsize="small", loc="left")
        axes.grid(axis="x", color="0.9")
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(axis="y", length=0)
        figure.set_label(self.alt)
        return figure

    @property
    def _axis_label(self) -> str:
        """What the figure's numbers are."""
        unit = self.metric.unit
        if unit == "percent":
            unit = f"% of {self.metric.items}"
        column = escape.mathtext(f"{self.profile}, {self.name}")
        return f"{self.metric.label} ({unit}), profile {column}"

    @property
    def _key(self) -> str:
        """What the figure's marks stand for."""
        key = f"filled: above the {self.floor}   open: not   dashed line: {self.floor}"
        if self.comparable:
            key += "   diamond: published"
        return key

    def _draw_row(self, axes: Any, y: int, row: Row, number: Estimate) -> None:
        mean = number.mean
        width = number.half_width
        style = "-"
        if width is None:
            width = number.sampling
            style = ":"
        if width is not None:
            axes.plot([mean - width, mean + width], [y, y], color=_MEASURED, linestyle=style, linewidth=2, zorder=2)
        if self.comparable and row.published is not None:
            axes.plot([row.published, mean], [y, y], color="0.6", linewidth=1, zorder=1)
            axes.plot(row.published, y, "D", color=_PUBLISHED, markerfacecolor="none", markersize=8, zorder=3)
        is_open = row.above_random is False or row.method in (self.plan.floor, RANDOM_LAB)
        face = "white" if is_open else _MEASURED
        axes.plot(mean, y, "o", color=_MEASURED, markerfacecolor=face, markersize=8, zorder=3)
        if row.method == self.plan.floor:
            axes.axvline(mean, color="0.4", linestyle="--", linewidth=1, zorder=1)


def _joined(method: str, between: str) -> Callable[..., str]:
    """A method of :class:`Report` as one of :class:`Reports`: what each report says."""

    def of_each(self: Reports, *given: Any) -> str:
        return between.join(getattr(each, method)(*given) for each in self.reports)

    return of_each


@dataclass(frozen=True, repr=False)
class Reports:
    """The reports of several columns of one table; says of each, one after the other, what a report says."""

    reports: tuple[Report, ...]

    text = _joined("text", "\n\n")
    whole = _joined("whole", "\n\n")
    training = _joined("training", "\n")
    markdown = _repr_markdown_ = _joined("markdown", "\n")
    __repr__ = _joined("__repr__", "\n\n")

    def page(self) -> str:
        """The tables and what they show as a page of HTML with a style."""
        parts = [f"<title>{escape.html(self.plan.title)}</title>"]
        for each in self.reports:
            lines = "".join(f"<li>{escape.html(line)}</li>" for line in each.findings)
            parts.append(f'{each.html()}<ul class="{escape.LITERAL}">{lines}</ul>')
        return _HEAD + "".join(parts)

    @property
    def plan(self) -> TablePlan:
        """Of the table."""
        return self.reports[0].plan

    @property
    def rows(self) -> tuple[Row, ...]:
        """Of all columns."""
        return tuple(row for each in self.reports for row in each.rows)

    @property
    def frame(self) -> pd.DataFrame:
        """All numbers, with the column's name in front."""
        import pandas as pd

        frames = [report.frame.assign(column=report.name) for report in self.reports]
        return pd.concat(frames, ignore_index=True)

    @property
    def summary(self) -> Lines:
        """The sentences of each column behind its name."""
        lines = []
        for report in self.reports:
            lines += [f"{report.name}: {line}" for line in report.summary]
        return Lines(lines)

    def html(self) -> str:
        """One table of all columns and gains, as wide as the fewer of columns and rows; what is common is said once."""
        first, *others = self.reports
        if not others:
            return first.html()
        about = [f"{report.name}: {report.about}" for report in self.reports]
        remarks = [line for report in self.reports for line in report.remarks]
        caption = f"{self.plan.paper} {self.plan.heading}: {self.plan.title}."
        return framed(caption, first.banner, self._texts(), dict.fromkeys([*about, *remarks]))

    def _texts(self) -> pd.DataFrame:
        """The measured numbers of all columns as texts; the longer side runs down the page."""
        import pandas as pd

        cells = []
        for report in self.reports:
            for row in report.rows:
                if row.measured is not None:
                    text = row.measured.text(row.kind == "difference") + report._mark(row)
                    cells.append((report.name, row.label, text))
        frame = pd.DataFrame(cells, columns=["column", "row", "text"])
        texts = frame.pivot_table("text", "row", "column", aggfunc="first", sort=False).fillna("–")
        if len(texts) < texts.shape[1]:
            return texts.T
        return texts

    def _repr_html_(self) -> str:
        return self.html()

    def check(self, rows: str | Sequence[str] = "all") -> None:
        """See :meth:`Report.check`."""
        for each in self.reports:
            each.check(rows)

    def figure(self) -> Figure:
        """The figure of the first column."""
        return self.reports[0].figure()
