"""The atlas: every method in the grid of five choices, with its equation, its numbers and the command for them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from contrastbook.figures.base import BLUE, subplots
from contrastlab import data, methods, papers
from contrastlab.papers import Column, TablePlan
from contrastlab.support import escape
from contrastlab.tables import report
from contrastlab.tables.results import Result


def modalities(method: str) -> str:
    """What the tables with a method train it on: ``image``, ``image, waveform``, …; a dash where no table has it."""
    if method in papers.REFERENCES:
        return "any"
    kinds = set()
    for plan in _plans(method):
        kinds |= set(plan.modalities)
    return ", ".join(sorted(kinds)) or "–"


def _plans(method: str) -> list[TablePlan]:
    """The tables that have a method as a row; an unknown one is refused."""
    name = methods.get(method).name
    every = [papers.plan(*key) for key in papers.plans()]
    return [plan for plan in every if name in plan.rows]


def _kinds_of_parts(method: str, absent: str) -> dict[str, str]:
    """Choice to the class of a method's part, or to ``absent`` where it has none."""
    kinds = {}
    for choice, part in methods.get(method).choices().items():
        kinds[choice] = absent if part is None else type(part).__name__
    return kinds


def grid(paper: str | None = None) -> pd.DataFrame:
    """One row per method (of one paper, or all): its label, what it is trained on, and the names of its five parts."""
    rows = []
    for name in methods.names(paper):
        recipe = methods.get(name)
        row = {"method": name, "label": recipe.label, "data": modalities(name)}
        rows.append({**row, **_kinds_of_parts(name, absent="–"), "τ": recipe.temperature})
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


def _ribbon(
    axes: Any, column: int, source: tuple[float, float], target: tuple[float, float], width: float, **look: Any
) -> None:
    """A band of equal height from the right of a box to the left of one in the next column; see :func:`_boxes`."""
    start, _ = source
    end, _ = target
    along = np.linspace(0, 1, 40)
    middle = start + (end - start) * (3 * along**2 - 2 * along**3)
    axes.fill_between(column + 0.4 + 0.2 * along, middle - width / 2, middle + width / 2, linewidth=0, **look)


def flow(method: str = "ring/iring") -> Figure:
    """All methods as one flow through the five choices: a box for each part, with how many methods have it.

    A band joins two parts of neighbouring choices; its width is the number of methods that have both. ``method`` is
    drawn on top, as one path.
    """
    highlighted = list(_kinds_of_parts(method, absent="none").values())
    paths = [list(_kinds_of_parts(name, absent="none").values()) for name in methods.names()]
    choices = list(methods.get(method).choices())
    columns = [[path[k] for path in paths] for k in range(len(choices))]
    boxes = [_boxes(column) for column in columns]
    figure, axes = subplots(size=(8, max(5.2, 0.34 * max(map(len, boxes)))))
    for k, column in enumerate(columns):
        _draw_boxes(axes, k, boxes[k], Counter(column), highlighted[k])
    for k, (left, right) in enumerate(pairwise(boxes)):
        bands = Counter(zip(columns[k], columns[k + 1], strict=True))
        for (source, target), count in bands.items():
            _ribbon(axes, k, left[source], right[target], PER_METHOD * count, color="0.72", alpha=0.6)
        _ribbon(axes, k, left[highlighted[k]], right[highlighted[k + 1]], 0.45, color=BLUE)
    axes.set_xticks(range(len(choices)), choices, fontsize=11, fontweight="bold")
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.set_yticks([])
    axes.set(xlim=(-0.45, len(choices) - 0.55))
    axes.spines[:].set_visible(False)
    figure.set_label(f"Flow of {len(paths)} methods through {len(choices)} choices; blue: {method}.")
    return figure


def _draw_boxes(
    axes: Any, column: int, boxes: dict[str, tuple[float, float]], counts: Counter[str], highlighted: str
) -> None:
    """The boxes of a choice, each with its part and how many methods have it."""
    for part, (middle, height) in boxes.items():
        colour = "#CFE3F2" if part == highlighted else "0.93"
        axes.barh(middle, 0.8, height, left=column - 0.4, color=colour, edgecolor="0.35")
        words = f"{part} {counts[part]}"
        points = min(9, 153 / len(words))  # seventeen letters of nine points fill a box
        axes.text(column, middle, words, ha="center", va="center", fontsize=points, color="black")


def anchor(method: str) -> str:
    """The place of a method's card on the page of the atlas."""
    return "method-" + "".join(c if c.isalnum() else "-" for c in method)


def table(paper: str | None = None) -> str:
    """The grid as HTML (of one paper, or all); the name of a method leads to its card, and ``tables.js`` filters it."""
    frame = grid(paper).drop(columns="label")
    head = "".join(f'<th scope="col">{escape.html(name)}</th>' for name in ("method", *frame.columns))
    rows = []
    for name, values in zip(frame.index, frame.to_numpy(), strict=True):
        link = f'<a href="#{anchor(str(name))}">{escape.html(name)}</a>'
        cells = "".join(f"<td>{escape.html(_plain_text(value))}</td>" for value in values)
        rows.append(f'<tr><th scope="row">{link}</th>{cells}</tr>')
    body = "".join(rows)
    return f'<table class="atlas {escape.LITERAL}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _plain_text(value: object) -> str:
    """A number without needless zeros, anything else as it is."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def neighbours(method: str) -> dict[str, tuple[str, ...]]:
    """The methods that differ from ``method`` in one choice only, or in the temperature, by what differs."""

    def choices(name: str) -> dict[str, object]:
        recipe = methods.get(name)
        return {**recipe.choices(), "temperature": recipe.temperature}

    of_method = choices(method)
    near: dict[str, list[str]] = {choice: [] for choice in of_method}
    for name in methods.names():
        of_other = choices(name)
        different = [choice for choice in of_method if of_method[choice] != of_other[choice]]
        if len(different) == 1:
            near[different[0]].append(name)
    return {choice: tuple(names) for choice, names in near.items() if names}


def commands(method: str) -> tuple[str, ...]:
    """What to type for the cell of ``method`` in each table that has it."""
    lines = []
    for plan in _plans(method):
        dataset = next(iter(plan.datasets), "cifar10")
        lines.append(f"python -m contrastlab run {plan.name} \\\n  --rows {method} --dataset {dataset}")
    return tuple(lines)


def numbers(method: str, stored: Sequence[Result] = ()) -> pd.DataFrame:
    """Published and measured numbers of one method among stored results: a row per table, data set and profile."""
    by_dataset: defaultdict[str, list[Result]] = defaultdict(list)
    for result in stored:
        by_dataset[result.dataset].append(result)
    rows = []
    for plan in _plans(method):
        columns = dict(plan.columns)
        for dataset in sorted(by_dataset.keys() - set(plan.datasets)):
            if data.modality_of(dataset) in plan.modalities:
                columns |= plan.select(dataset)
        for name, column in columns.items():
            published = plan.published_value(name, method)
            row: dict[str, object] = {
                "table": f"{plan.paper} {plan.heading}",
                "data set": name,
                "metric": column.metric,
                "published": published,
            }
            measured = _measured(plan, column, method, by_dataset.get(column.data, ()))
            rows += [{**row, **numbers} for numbers in measured]
            if not measured and published is not None:
                rows.append(row)
    names = ["table", "data set", "metric", "published", "measured", "± (95 %)", "seeds", "profile"]
    return pd.DataFrame(rows, columns=names)


def _measured(plan: TablePlan, column: Column, method: str, of_data: Sequence[Result]) -> list[dict[str, object]]:
    """What was measured of a method in a column, among the results on its data: a row for each profile."""
    by_profile: defaultdict[str, list[Result]] = defaultdict(list)
    for result in of_data:
        by_profile[result.profile].append(result)
    rows: list[dict[str, object]] = []
    for profile in sorted(by_profile.keys() & set(plan.profiles)):
        scores = report.scores(plan, column, by_profile[profile], method, profile)
        if scores is not None:
            mean = scores.estimate
            rows.append({"measured": mean.mean, "± (95 %)": mean.half_width, "seeds": mean.seeds, "profile": profile})
    return rows


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
        lines += ["", escape.markdown_row(frame.columns), escape.markdown_row(["---"] * len(frame.columns))]
        for values in frame.itertuples(index=False):
            lines.append(escape.markdown_row(escape.markdown(_text(value)) for value in values))
    near = neighbours(method)
    if near:
        lines += ["", "One choice away:", ""]
        for choice, names in near.items():
            in_code = ", ".join(f"`{name}`" for name in names)
            lines.append(f"- {choice}: {in_code}")
    for command in commands(method):
        lines += ["", "```sh", command, "```"]
    return "\n".join(lines)


def _text(value: object) -> str:
    """A number with two digits at most, anything else as it is; a dash where there is none."""
    if value is None or pd.isna(value):  # type: ignore[call-overload]
        return "–"
    if not isinstance(value, float):
        return str(value)
    if value == int(value):
        return f"{value:g}"
    return f"{value:.2f}"
