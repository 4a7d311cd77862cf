"""The atlas: every method in the grid of five choices, with its equation, its numbers and the command for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from contrastbook.figures.base import BLUE, subplots
from contrastlab import data, methods, papers
from contrastlab.papers import TablePlan
from contrastlab.support import escape
from contrastlab.tables import report
from contrastlab.tables.results import Result


def modalities(method: str) -> str:
    """What the tables with a method train it on: ``image``, ``image, waveform``, …; a dash where no table has it."""
    if method in papers.REFERENCES:
        return "any"
    return ", ".join(sorted({kind for plan in _plans(method) for kind in plan.modalities})) or "–"


def _plans(method: str) -> list[TablePlan]:
    name = methods.get(method).name  # an unknown one is refused
    return [plan for plan in (papers.plan(*key) for key in papers.plans()) if name in plan.rows]


def grid(paper: str | None = None) -> pd.DataFrame:
    """One row per method (of one paper, or all): its label, what it is trained on, and the names of its five parts."""
    rows = []
    for r in map(methods.get, methods.names(paper)):
        parts = {choice: "–" if part is None else type(part).__name__ for choice, part in r.choices().items()}
        rows.append({"method": r.name, "label": r.label, "data": modalities(r.name), **parts, "τ": r.temperature})
    return pd.DataFrame(rows).set_index("method")


LEAST, PER_METHOD, GAP = 2.4, 0.14, 0.5
"""Of a box of :func:`flow`: its height where no method has the part, what each method adds, the space below it."""


def _boxes(parts: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Part to the middle and the height of its box, the most frequent part first, the column about 0."""
    heights = {part: LEAST + PER_METHOD * count for part, count in Counter(parts).most_common()}
    top = (sum(heights.values()) + GAP * (len(heights) - 1)) / 2
    places = {}
    for part, height in heights.items():
        places[part] = (top - height / 2, height)
        top -= height + GAP
    return places


def _ribbon(axes: Any, column: int, start: float, end: float, width: float, **look: Any) -> None:
    """A band of equal height from the right of one column's boxes to the left of the next one's."""
    along = np.linspace(0, 1, 40)
    middle = start + (end - start) * (3 * along**2 - 2 * along**3)
    axes.fill_between(column + 0.4 + 0.2 * along, middle - width / 2, middle + width / 2, linewidth=0, **look)


def flow(method: str = "ring/iring") -> Figure:
    """All methods as one flow through the five choices: a box for each part, with how many methods have it.

    A band joins two parts of neighbouring choices; its width is the number of methods that have both. ``method`` is
    drawn on top, as one path.
    """
    methods.get(method)  # an unknown one is refused
    shown = {
        name: [type(part).__name__ if part is not None else "none" for part in methods.get(name).choices().values()]
        for name in methods.names()
    }
    choices = list(methods.get(method).choices())
    columns = [_boxes([parts[k] for parts in shown.values()]) for k in range(len(choices))]
    figure, axes = subplots(size=(8, max(5.2, 0.34 * max(map(len, columns)))))
    for k, places in enumerate(columns):
        counts = Counter(parts[k] for parts in shown.values())
        for part, (middle, height) in places.items():
            chosen = part == shown[method][k]
            axes.barh(middle, 0.8, height, left=k - 0.4, color="#CFE3F2" if chosen else "0.93", edgecolor="0.35")
            words = f"{part} {counts[part]}"
            fits = min(9, 153 / len(words))  # points; seventeen letters of nine points fill a box
            axes.text(k, middle, words, ha="center", va="center", fontsize=fits, color="black")
    for k, (left, right) in enumerate(pairwise(columns)):
        for (a, b), count in Counter((parts[k], parts[k + 1]) for parts in shown.values()).items():
            _ribbon(axes, k, left[a][0], right[b][0], PER_METHOD * count, color="0.72", alpha=0.6)
        a, b = shown[method][k : k + 2]
        _ribbon(axes, k, left[a][0], right[b][0], 0.45, color=BLUE)
    axes.set_xticks(range(len(choices)), choices, fontsize=11, fontweight="bold")
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.set_yticks([])
    axes.set(xlim=(-0.45, len(choices) - 0.55))
    axes.spines[:].set_visible(False)
    figure.set_label(f"Flow of {len(shown)} methods through {len(choices)} choices; blue: {method}.")
    return figure


def anchor(method: str) -> str:
    """The place of a method's card on the page of the atlas."""
    return "method-" + "".join(c if c.isalnum() else "-" for c in method)


def table(paper: str | None = None) -> str:
    """The grid as HTML (of one paper, or all); the name of a method leads to its card, and ``tables.js`` filters it."""
    frame = grid(paper).drop(columns="label")
    head = "".join(f'<th scope="col">{escape.html(name)}</th>' for name in ("method", *frame.columns))
    body = "".join(
        f'<tr><th scope="row"><a href="#{anchor(str(name))}">{escape.html(name)}</a></th>'
        + "".join(f"<td>{escape.html(f'{v:g}' if isinstance(v, float) else str(v))}</td>" for v in row)
        + "</tr>"
        for name, row in zip(frame.index, frame.to_numpy(), strict=True)
    )
    return f'<table class="atlas {escape.LITERAL}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def neighbours(method: str) -> dict[str, tuple[str, ...]]:
    """The methods that differ from ``method`` in one choice only, or in the temperature, by what differs."""

    def choices(name: str) -> dict[str, object]:
        recipe = methods.get(name)
        return {**recipe.choices(), "temperature": recipe.temperature}

    mine = choices(method)
    near: dict[str, list[str]] = {choice: [] for choice in mine}
    for name in methods.names():
        other = choices(name)
        match [choice for choice in mine if mine[choice] != other[choice]]:
            case [choice]:
                near[choice].append(name)
    return {choice: tuple(names) for choice, names in near.items() if names}


def commands(method: str) -> tuple[str, ...]:
    """What to type for the cell of ``method`` in each table that has it."""
    return tuple(
        f"python -m contrastlab run {plan.name} \\\n  --rows {method} --dataset {next(iter(plan.datasets), 'cifar10')}"
        for plan in _plans(method)
    )


def numbers(method: str, stored: Sequence[Result] = ()) -> pd.DataFrame:
    """Published and measured numbers of one method among stored results: a row per table, data set and profile."""
    rows = []
    for plan in _plans(method):
        columns = dict(plan.columns)
        for dataset in sorted({r.dataset for r in stored} - set(plan.datasets)):
            if data.modality_of(dataset) in plan.modalities:
                columns |= plan.select(dataset)
        for name, column in columns.items():
            printed = plan.published_value(name, method)
            row: dict[str, object] = {"table": f"{plan.paper} {plan.heading}", "data set": name}
            row |= {"metric": column.metric, "published": printed}
            measured = []
            profiles = {result.profile for result in stored if result.dataset == column.data}
            for profile in sorted(profiles.intersection(plan.profiles)):
                mine = report.scores(plan, column, stored, method, profile)
                if mine is not None:
                    e = mine.estimate
                    own = {"measured": e.mean, "± (95 %)": e.half_width, "seeds": e.seeds, "profile": profile}
                    measured.append(row | own)
            rows += measured or ([row] if printed is not None else [])
    shown = ["table", "data set", "metric", "published", "measured", "± (95 %)", "seeds", "profile"]
    return pd.DataFrame(rows, columns=shown)


def card(method: str, stored: Sequence[Result] = ()) -> str:
    """MyST text about one method: equation, five choices, numbers, note and command."""
    recipe = methods.get(method)
    lines = [f"$$ {recipe.equation} $$", "", "| choice | part |", "| --- | --- |"]
    for name, part in recipe.choices().items():
        code = escape.line(repr(part)).replace("`", "'").replace("|", "\\|")
        lines.append(f"| {name} | `{code}` |")
    if recipe.note:
        lines += ["", recipe.note]
    frame = numbers(method, stored)
    if len(frame):
        lines += ["", "| " + " | ".join(frame.columns) + " |", "| " + " | ".join("---" for _ in frame.columns) + " |"]
        for values in frame.itertuples(index=False):
            lines.append("| " + " | ".join(escape.markdown(_text(value)) for value in values) + " |")
    if near := neighbours(method):
        lines += ["", "One choice away:", ""]
        lines += [f"- {choice}: {', '.join(f'`{name}`' for name in names)}" for choice, names in near.items()]
    lines += [line for command in commands(method) for line in ("", "```sh", command, "```")]
    return "\n".join(lines)


def _text(value: object) -> str:
    if not isinstance(value, float):
        return "–" if value is None or pd.isna(value) else str(value)  # type: ignore[call-overload]
    return "–" if pd.isna(value) else f"{value:g}" if value == int(value) else f"{value:.2f}"
