"""A finished table in words, as a table and as a picture, for a page, a terminal and a notebook."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from typing import TYPE_CHECKING, Any, Self

from contrastlab import tasks
from contrastlab.pictures.task import Metric
from contrastlab.support import escape, terminal
from contrastlab.support.errors import ContrastLabError
from contrastlab.tables.numbers import Estimate, signed
from contrastlab.tables.plan import Column, TablePlan
from contrastlab.tables.profiles import is_paper
from contrastlab.tables.rows import PRETRAINED, RANDOM_LAB, TRAINING, Row, join

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
    "pilot": "first runs of a tiny encoder; settings were picked on the test accuracy of some rows, so levels are"
    " flattered. Not comparable with the published numbers.",
}
_OTHER = "not the paper's protocol; not comparable with the published numbers."
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
    return ("; " if any(", " in name for name in names) else ", ").join(names)


def effect(label: str, gain: Estimate, unit: str) -> str:
    """A gain with its interval, and whether its sign is decided."""
    if gain.half_width is None:
        return f"{label}: {gain.mean:+.2f} {unit} with one common seed; no conclusion about its sign."
    open_ = abs(gain.mean) <= gain.half_width
    verdict = "its interval contains 0, so the sign is open" if open_ else "its interval excludes 0"
    return f"{label}: {gain.mean:+.2f} ± {gain.half_width:.2f} {unit} over {gain.seeds} common seeds; {verdict}."


def agreement(run: Iterable[tuple[Row, Estimate]], unit: str) -> list[str]:
    """How many published numbers lie inside our intervals."""
    gaps = [(row.label, row.difference, number.half_width) for row, number in run
            if row.difference is not None and number.half_width is not None]  # fmt: skip
    if not gaps:
        return ["No row has both a published number and an interval of ours, so agreement is not judged."]
    outside = [f"{label} ({gap:+.1f})" for label, gap, half in gaps if abs(gap) > half]
    return [
        f"The published number lies inside our interval for {len(gaps) - len(outside)} of {len(gaps)} rows"
        f" (at 95 %, about {len(gaps) / 20:.1f} would lie outside by chance).",
        *([f"Outside, measured minus published in {unit}: {listed(outside)}."] if outside else []),
    ]


def image(figure: Figure) -> str:
    """A figure as an ``<img>``; its label is the alternative text."""
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    picture = base64.b64encode(buffer.getvalue()).decode()
    return f'<img alt="{escape.html(figure.get_label())}" src="data:image/png;base64,{picture}">'


def framed(caption: str, banner: str, texts: pd.DataFrame, remarks: Iterable[str]) -> str:
    """A table as HTML without styles of its own, everything escaped."""
    banner = f'<p role="note"><strong>{escape.html(banner)}</strong></p>' if banner else ""
    body = texts.to_html(classes="published-measured", border=0, index_names=False)
    caption = escape.html(caption)
    # the caption is beside the table's box, so that it stays in sight where the box is scrolled
    body = f'<figcaption>{caption}</figcaption><div tabindex="0" role="region" aria-label="{caption}">{body}</div>'
    body = f'<figure class="published-measured {escape.LITERAL}">{body}</figure>'
    words = "".join(f"<li>{escape.html(line)}</li>" for line in remarks)
    return f'{banner}{body}<ul class="{escape.LITERAL}">{words}</ul>'


@dataclass(frozen=True, repr=False)
class Report:
    """A finished table of one column in one profile; shows itself in a notebook."""

    plan: TablePlan
    name: str
    column: Column
    profile: str
    rows: tuple[Row, ...]
    data_note: str = ""
    printed_note: str = ""  # what is noted of every printed number alike

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
        return PRETRAINED if any(row.label == PRETRAINED for row in self.rows) else "random encoder"

    @property
    def _against(self) -> str:
        """Heading of the column of distances from the floor."""
        return "against start" if self.floor == PRETRAINED else "against random"

    @property
    def comparable(self) -> bool:
        """Whether measured numbers may be set against the published ones: only in the paper's own protocol."""
        return is_paper(self.profile)

    @property
    def about(self) -> str:
        """Data, profile, metric and copy of the data."""
        where = escape.line(f"{self.column.data} to {self.column.on}" if self.column.on else self.column.data)
        own = f", column {escape.line(self.name)}" if self.column.settings else ""
        unit = f"{self.metric.unit} of {self.metric.items}" if self.metric.unit == "percent" else self.metric.unit
        data = f" Data: {escape.line(self.data_note)}." if self.data_note else ""
        printed = f" Published numbers: {self.printed_note}." if self.printed_note else ""
        return f"Data set {where}{own}, profile {self.profile}, {self.metric.label} ({unit}).{data}{printed}"

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
        return [(row, row.measured) for row in self.rows if row.kind != "difference" and row.measured is not None]

    @property
    def _digits(self) -> int:
        """Decimals of the printed numbers: two where one of them has two."""
        printed = [row.published for row in self.rows if row.published is not None]
        return 1 if all(round(value, 1) == round(value, 6) for value in printed) else 2

    @property
    def _seeds(self) -> set[int]:
        return {number.seeds for _, number in self.drawn}

    @property
    def legend(self) -> Lines:
        """How to read the cells: each meaning once."""
        shown = [row for row in self.rows if row.measured is not None]
        numbers = [row.measured for row in shown if row.measured is not None]
        seeds, items, gap = self._seeds, self.metric.items, self.metric.gap
        two = "" if self.floor == PRETRAINED else " (two for a method with two encoders)"
        precisions = sorted({row.precision for row in shown if row.precision})
        printed = self.comparable and any(row.published is not None for row in shown)
        spread = any(row.published_sd is not None for row in self.rows)
        meanings = {
            f"{max(seeds, default=0)} seed{'s' * (seeds != {1})} a row.": len(seeds) == 1,
            "The number of seeds stands behind each number in brackets.": len(seeds) > 1,
            "± is a 95 % Student t interval over seeds.":
                any(m.half_width is not None and m.seeds > 2 for m in numbers),
            "Of two seeds both numbers are in brackets: too few for an interval.": any(m.seeds == 2 for m in numbers),
            f"(±) is the 95 % sampling error of the {items}: one seed has no interval.":
                any(m.half_width is None and m.sampling is not None for m in numbers),
            f"{self._against.capitalize()}: {gap} above the {self.floor}{two}"
            + f"; ▲ by more than the sampling error of the {items}, ▽ not" * any(map(self._mark, shown))
            + ".": any(row.versus_random is not None for row in shown),
            f"Against base: {gap} above the method built on, seed by seed (paired).":
                any(row.kind == "difference" for row in shown),
            f"Rows differ in the precision they were trained in: {', '.join(precisions)}.": len(precisions) > 1,
            "A printed sd is over the paper's own runs.": printed and spread,
            "Published numbers carry no uncertainty.": printed and not spread,
        }  # fmt: skip
        return Lines(sentence for sentence, holds in meanings.items() if holds)

    @property
    def absent(self) -> Lines:
        """The rows without a number, a line for each reason."""
        by_reason: dict[str, list[str]] = {}
        for row in self.rows:
            if row.status and row.kind != "difference":
                by_reason.setdefault(row.status, []).append(row.label)
        return Lines(
            f"Not run: {listed(labels)}." if status == "not run" else
            f"Not possible here: {listed(labels)} ({status.removeprefix('n/a: ').rstrip('.')})."
            for status, labels in by_reason.items()
        )  # fmt: skip

    @property
    def remarks(self) -> Lines:
        """What stands below the table: the legend, what to know about single rows, and what is absent."""
        notes = [f"{row.label}: {row.note.rstrip('.')}." for row, _ in self.drawn if row.note]
        return Lines((*self.legend, *notes, *self.absent))

    @property
    def frame(self) -> pd.DataFrame:
        """Numbers, unrounded, in the metric's unit; measured columns carry the profile, which are never to be mixed."""
        import pandas as pd

        here, published = f"({self.profile})", "published" if self.comparable else "published (paper protocol)"
        gap = "measured − published"
        records = [{
            "method": row.method, "row": row.label, "kind": row.kind, published: row.published,
            f"measured {here}": (m := row.measured) and m.mean, f"95 % half-width {here}": m and m.half_width,
            f"seeds {here}": m.seeds if m else 0, f"sampling half-width {here}": m and m.sampling,
            **({gap: row.difference} if self.comparable else {}),
            f"vs random {here}": row.versus_random, f"above random {here}": row.above_random,
            "note": join(row.status, row.note),
        } for row in self.rows]  # fmt: skip
        frame = pd.DataFrame.from_records(records)
        number = [f"{name} {here}" for name in ("measured", "95 % half-width", "sampling half-width", "vs random")]
        return frame.astype({column: "float64" for column in (published, gap, *number) if column in frame})

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
        return "" if row.above_random is None or self.profile == "smoke" else " ▲" if row.above_random else " ▽"

    def _line(self, row: Row, measured: Estimate) -> dict[str, str]:
        digits = self._digits if row.published_sd is None else 2
        seeds = f" [{measured.seeds}]" if len(self._seeds) > 1 else ""
        line = {"method": row.label, "measured": measured.text() + seeds}
        if row.published is not None:
            line["published"] = signed(row.published, digits)
        if row.published_sd is not None:
            line["published"] += f" (sd {row.published_sd:.2f})"
        if self.comparable and row.difference is not None:
            line["− published"] = signed(row.difference, sign=True)
        if row.versus_random is not None:
            line[self._against] = signed(row.versus_random, 1, sign=True) + self._mark(row)
        for gain in self.rows:
            if gain.kind == "difference" and gain.method == f"{row.method} − {self.plan.pairs.get(row.method)}":
                if gain.published is not None:
                    line["published gain"] = signed(gain.published, digits, sign=True)
                if gain.measured is not None:
                    line["against base"] = gain.measured.text(sign=True)
        return line

    def text(self, width: int | None = None) -> str:
        """The table for a terminal, folded to ``width`` columns where there is one."""
        body = terminal.table(list(map(str, self.texts)), self.texts.to_numpy().tolist(), width)
        lines = ((self.caption, self.banner), self.remarks)
        before, after = ([terminal.fold(line, width) for line in each if line] for each in lines)
        return "\n".join((*before, "", body if self.drawn else "nothing has been run", "", *after))

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
        cells = [[row.label, *(signed(row.training[n]) if n in row.training else "–" for n in names)] for row in rows]
        what = f"profile {self.profile}, mean over seeds; loss and bound in nats"
        about = f"Last epoch of training, without labels ({what}):"
        body = terminal.table(["method", *(TRAINING[name] for name in names)], cells, width)
        return f"{terminal.fold(about, width)}\n\n{body}\n"

    def markdown(self) -> str:
        """The table for a README or a log."""
        cells: list[list[str]] = [list(map(str, self.texts)), ["---"] * self.texts.shape[1]]
        cells += self.texts.to_numpy().tolist()
        lines = "\n".join(f"| {' | '.join(map(escape.markdown, line))} |" for line in cells)
        banner = f"> **{escape.markdown(self.banner)}**\n\n" if self.banner else ""
        return f"**{escape.markdown(self.caption)}**\n\n{banner}{lines}\n\n{self.remarks._repr_markdown_()}\n"

    def html(self) -> str:
        """The table as HTML without styles of its own, everything escaped."""
        return framed(self.caption, self.banner, self.texts.set_index("method"), self.remarks)

    _repr_html_, _repr_markdown_, __repr__ = html, markdown, whole

    def check(self, rows: str | Sequence[str] = "all") -> None:
        """Refuse a table where some of ``rows`` have neither a number in the metric's range nor a reason."""
        lines, metric = {row.method: row for row in self.rows}, self.metric
        asked = [lines[name] for name in dict.fromkeys((*self.plan.resolve_all(rows), self.plan.floor))]
        without = [row for row in asked if not row.status.startswith("n/a")]
        bad = [row.method for row in without if not row.measured or not metric.low <= row.measured.mean <= metric.high]
        if bad:
            raise ContrastLabError(f"{self.caption} No number and no reason: {', '.join(bad)}")

    @property
    def summary(self) -> Lines:
        """What the table shows and what it cannot, in sentences made from its numbers; complete without the table."""
        first, *others = self.findings
        return Lines((first, *self.absent, *others, *((self.banner,) if self.banner else ())))

    @property
    def findings(self) -> Lines:
        """What the table shows, without what :meth:`text` and :meth:`html` say beside it."""
        gap, items = self.metric.gap, self.metric.items
        run = [(row, number) for row, number in self.drawn if row.kind == "method"]
        out = [f"{len(run)} of {sum(row.kind == 'method' for row in self.rows)} rows have a measured number."]
        judged = [row for row, _ in run if row.versus_random is not None]
        for is_above, words in (
            (True, f"Above the {self.floor}"),
            (False, f"Not yet above the {self.floor} at this size (by more than the sampling error of the {items})"),
        ):
            names = [f"{r.label} ({r.versus_random:+.1f} {gap})" for r in judged if bool(r.above_random) is is_above]
            out += [f"{words}: {listed(names)}."] if names else []
        if run and not judged:
            out.append(f"The {self.floor} has not been run, so nothing is said about how much was learnt.")
        out += [effect(row.label, row.measured, gap) for row in self.rows if row.kind == "difference" and row.measured]
        if self.comparable:
            out += agreement(run, gap)
        single = [row.label for row, number in run if number.seeds == 1]
        if single:
            every = "every row" if len(single) == len(run) else listed(single)
            out.append(f"One seed only for {every}: how much another seed would change these numbers is not known.")
        return Lines(out)

    @property
    def alt(self) -> str:
        """The figure in words, for those who do not see it."""
        shown = "; ".join(f"{row.label} {number.text()}" for row, number in self.drawn) or "nothing has been run"
        return " ".join(filter(None, ("Dot plot.", self.caption, self.banner, f"{shown}.")))

    def figure(self) -> Figure:
        """A dot per row, filled if above the floor (the dashed line); published numbers are diamonds.

        Solid bars are t intervals over seeds, dotted bars the sampling error of the test items of one seed.
        """
        import matplotlib.pyplot as plt

        metric, blue, rows = self.metric, "#0072B2", max(len(self.drawn), 1)
        figure, axes = plt.subplots(figsize=(7, 0.8 + 0.42 * rows), layout="constrained")
        plt.close(figure)  # out of pyplot's hands: shown once, by whoever asked for it
        for y, (row, number) in enumerate(self.drawn):
            mean, dotted = number.mean, number.half_width is None
            width = number.sampling if dotted else number.half_width
            if width is not None:
                style = ":" if dotted else "-"
                axes.plot([mean - width, mean + width], [y, y], color=blue, linestyle=style, linewidth=2, zorder=2)
            if self.comparable and row.published is not None:
                axes.plot([row.published, mean], [y, y], color="0.6", linewidth=1, zorder=1)
                axes.plot(row.published, y, "D", color="#D55E00", markerfacecolor="none", markersize=8, zorder=3)
            hollow = row.above_random is False or row.method in (self.plan.floor, RANDOM_LAB)
            axes.plot(mean, y, "o", color=blue, markerfacecolor="white" if hollow else blue, markersize=8, zorder=3)
            if row.method == self.plan.floor:
                axes.axvline(mean, color="0.4", linestyle="--", linewidth=1, zorder=1)
        axes.set_yticks(range(len(self.drawn)), [escape.mathtext(row.label) for row, _ in self.drawn])
        axes.set_ylim(rows - 0.5, -0.5)
        unit = f"% of {metric.items}" if metric.unit == "percent" else metric.unit
        axes.set_xlabel(f"{metric.label} ({unit}), profile {escape.mathtext(f'{self.profile}, {self.name}')}")
        key = f"filled: above the {self.floor}   open: not   dashed line: {self.floor}"
        axes.set_title(key + "   diamond: published" * self.comparable, fontsize="small", loc="left")
        axes.grid(axis="x", color="0.9")
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(axis="y", length=0)
        figure.set_label(self.alt)
        return figure


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

        return pd.concat([r.frame.assign(column=r.name) for r in self.reports], ignore_index=True)

    @property
    def summary(self) -> Lines:
        """The sentences of each column behind its name."""
        return Lines(f"{r.name}: {line}" for r in self.reports for line in r.summary)

    def html(self) -> str:
        """One table of all columns and gains, as wide as the fewer of columns and rows; what is common is said once."""
        import pandas as pd

        first, *others = self.reports
        if not others:
            return first.html()
        numbers = [(r.name, row.label, row.measured.text(row.kind == "difference") + r._mark(row))
                   for r in self.reports for row in r.rows if row.measured]  # fmt: skip
        frame = pd.DataFrame(numbers, columns=["column", "row", "text"])
        texts = frame.pivot_table("text", "row", "column", aggfunc="first", sort=False).fillna("–")
        said = (*(f"{r.name}: {r.about}" for r in self.reports), *(line for r in self.reports for line in r.remarks))
        caption = f"{self.plan.paper} {self.plan.heading}: {self.plan.title}."
        return framed(caption, first.banner, texts.T if len(texts) < texts.shape[1] else texts, dict.fromkeys(said))

    def _repr_html_(self) -> str:
        return self.html()

    def check(self, rows: str | Sequence[str] = "all") -> None:
        """See :meth:`Report.check`."""
        for each in self.reports:
            each.check(rows)

    def figure(self) -> Figure:
        """The figure of the first column."""
        return self.reports[0].figure()
