"""The atlas: every method in the grid of five choices, with its equation, its numbers and the command for them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
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
    kinds: set[str] = set()
    for plan in _plans(method):
        kinds |= set(plan.modalities)
    return ", ".join(sorted(kinds)) or "–"


def _plans(method: str) -> list[TablePlan]:
    """The tables that have a method as a row; an unknown one is refused."""
    name = methods.get(method).name
    all_plans = [papers.plan(*key) for key in papers.plans()]
    return [plan for plan in all_plans if name in plan.rows]


def _kinds_of_parts(method: str, absent: str) -> dict[str, str]:
    """Choice to the class of a method's part, or to ``absent`` where it has none."""
    kinds: dict[str, str] = {}
    for choice, part in methods.get(method).choices().items():
        kinds[choice] = absent if part is None else type(part).__name__
    return kinds


def grid(paper: str | None = None) -> pd.DataFrame:
    """One row per method (of one paper, or all): its label, what it is trained on, and the names of its five parts."""
    rows: list[dict[str, object]] = []
    for name in methods.names(paper):
        recipe = methods.get(name)
        row: dict[str, object] = {"method": name, "label": recipe.label, "data": modalities(name)}
        row |= _kinds_of_parts(name, absent="–")
        row["τ"] = recipe.temperature
        rows.append(row)
    return pd.DataFrame(rows).set_index("method")


_BOX_WIDTH = 0.8
_BAND_LENGTH = 0.2
"""From a box to the next one; columns are 1 apart."""
_LEAST_HEIGHT = 2.4
_HEIGHT_OF_METHOD = 0.14
_GAP = 0.5
"""Of a box of :func:`flow`: its height where no method has the part, what each method adds, the space below it."""


class _Box(NamedTuple):
    """Where a box stands in its column."""

    middle: float
    height: float


def _boxes(counts: Counter[str]) -> dict[str, _Box]:
    """The box of each part, the most frequent part first, the column about 0; ``counts``: part to its methods."""
    heights: dict[str, float] = {}
    for part, count in counts.most_common():
        heights[part] = _LEAST_HEIGHT + _HEIGHT_OF_METHOD * count
    gaps = _GAP * (len(heights) - 1)
    top = (sum(heights.values()) + gaps) / 2
    boxes: dict[str, _Box] = {}
    for part, height in heights.items():
        boxes[part] = _Box(top - height / 2, height)
        top -= height + _GAP
    return boxes


def _draw_band(axes: Axes, column: int, source: _Box, target: _Box, width: float, **look: Any) -> None:
    """A band of equal height from the right of a box to the left of one in the next column."""
    along = np.linspace(0, 1, 40)
    rise = 3 * along**2 - 2 * along**3  # from 0 to 1, level at both ends
    middle = source.middle + (target.middle - source.middle) * rise
    right_of_box = column + _BOX_WIDTH / 2
    x = right_of_box + _BAND_LENGTH * along
    axes.fill_between(x, middle - width / 2, middle + width / 2, linewidth=0, **look)


def flow(method: str = "ring/iring") -> Figure:
    """All methods as one flow through the five choices: a box for each part, with how many methods have it.

    A band joins two parts of neighbouring choices; its width is the number of methods that have both. ``method`` is
    drawn on top, as one path.
    """
    choices = list(methods.get(method).choices())
    kinds_of_methods = [_kinds_of_parts(name, absent="none") for name in methods.names()]
    columns = [[kinds[choice] for kinds in kinds_of_methods] for choice in choices]
    counts = [Counter(column) for column in columns]
    boxes = [_boxes(counts_of_column) for counts_of_column in counts]
    kinds_of_method = _kinds_of_parts(method, absent="none")
    highlighted = [kinds_of_method[choice] for choice in choices]
    most_boxes = max(len(boxes_of_column) for boxes_of_column in boxes)
    figure, axes = subplots(size=(8, max(5.2, 0.34 * most_boxes)))
    for number in range(len(choices)):
        _draw_boxes(axes, number, boxes[number], counts[number], highlighted[number])
    for number in range(len(choices) - 1):
        left = boxes[number]
        right = boxes[number + 1]
        bands = Counter(zip(columns[number], columns[number + 1], strict=True))
        for (source, target), count in bands.items():
            width = _HEIGHT_OF_METHOD * count
            _draw_band(axes, number, left[source], right[target], width, color="0.72", alpha=0.6)
        own_source = left[highlighted[number]]
        own_target = right[highlighted[number + 1]]
        _draw_band(axes, number, own_source, own_target, 0.45, color=BLUE)
    axes.set_xticks(range(len(choices)), choices, fontsize=11, fontweight="bold")
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.set_yticks([])
    axes.set(xlim=(-0.45, len(choices) - 0.55))
    axes.spines[:].set_visible(False)
    figure.set_label(f"Flow of {len(kinds_of_methods)} methods through {len(choices)} choices; blue: {method}.")
    return figure


def _draw_boxes(
    axes: Axes,
    column: int,
    boxes: Mapping[str, _Box],
    counts: Mapping[str, int],
    highlighted: str,
) -> None:
    """The boxes of a choice, each with its part and how many methods have it."""
    left = column - _BOX_WIDTH / 2
    for part, box in boxes.items():
        colour = "#CFE3F2" if part == highlighted else "0.93"
        axes.barh(box.middle, _BOX_WIDTH, box.height, left=left, color=colour, edgecolor="0.35")
        words = f"{part} {counts[part]}"
        points = min(9, 153 / len(words))  # seventeen letters of nine points fill a box
        axes.text(column, box.middle, words, ha="center", va="center", fontsize=points, color="black")


def anchor(method: str) -> str:
    """The place of a method's card on the page of the atlas."""
    characters = [character if character.isalnum() else "-" for character in method]
    return "method-" + "".join(characters)


def table(paper: str | None = None) -> str:
    """The grid as HTML (of one paper, or all); the name of a method leads to its card, and ``tables.js`` filters it."""
    frame = grid(paper).drop(columns="label")
    headings = [f'<th scope="col">{escape.html(name)}</th>' for name in ("method", *frame.columns)]
    rows: list[str] = []
    for name, values in zip(frame.index, frame.to_numpy(), strict=True):
        link = f'<a href="#{anchor(str(name))}">{escape.html(name)}</a>'
        cells = [f"<td>{escape.html(_plain_text(value))}</td>" for value in values]
        rows.append(f'<tr><th scope="row">{link}</th>{"".join(cells)}</tr>')
    head = f"<thead><tr>{''.join(headings)}</tr></thead>"
    body = f"<tbody>{''.join(rows)}</tbody>"
    return f'<table class="atlas {escape.LITERAL}">{head}{body}</table>'


def _plain_text(value: object) -> str:
    """A number without needless zeros, anything else as it is."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def neighbours(method: str) -> dict[str, tuple[str, ...]]:
    """The methods that differ from ``method`` in one choice only, or in the temperature, by what differs."""
    of_method = _choices_and_temperature(method)
    near: dict[str, list[str]] = {choice: [] for choice in of_method}
    for name in methods.names():
        of_other = _choices_and_temperature(name)
        different = [choice for choice in of_method if of_method[choice] != of_other[choice]]
        if len(different) == 1:
            (choice,) = different
            near[choice].append(name)
    return {choice: tuple(names) for choice, names in near.items() if names}


def _choices_and_temperature(method: str) -> dict[str, object]:
    """All in which two methods may differ: choice to part, and the temperature."""
    recipe = methods.get(method)
    return {**recipe.choices(), "temperature": recipe.temperature}


def commands(method: str) -> tuple[str, ...]:
    """What to type for the cell of ``method`` in each table that has it."""
    lines: list[str] = []
    for plan in _plans(method):
        dataset = next(iter(plan.datasets), "cifar10")
        lines.append(f"python -m contrastlab run {plan.name} \\\n  --rows {method} --dataset {dataset}")
    return tuple(lines)


def numbers(method: str, stored: Sequence[Result] = ()) -> pd.DataFrame:
    """Published and measured numbers of one method among stored results: a row per table, data set and profile."""
    by_dataset: defaultdict[str, list[Result]] = defaultdict(list)
    for result in stored:
        by_dataset[result.dataset].append(result)
    rows: list[dict[str, object]] = []
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
            of_data = by_dataset.get(column.data, [])
            measured = _measured(plan, column, method, of_data)
            for numbers_of_profile in measured:
                rows.append(row | numbers_of_profile)
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
        rule = ["---"] * len(frame.columns)
        lines += ["", escape.markdown_row(frame.columns), escape.markdown_row(rule)]
        for values in frame.itertuples(index=False):
            cells = [escape.markdown(_text(value)) for value in values]
            lines.append(escape.markdown_row(cells))
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
