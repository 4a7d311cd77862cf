"""The atlas: every method in the grid of five choices, with its equation, its numbers and the command for them."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from contrastlab import methods, papers, report, results
from contrastlab.results import Result

__all__ = ["card", "grid", "numbers"]


def _part(part: object) -> str:
    return "–" if part is None else type(part).__name__


def grid(paper: str | None = None) -> pd.DataFrame:
    """One row per method: its label and the names of its five parts.

    Args:
        paper: short name; ``None`` is all.

    Raises:
        UnknownNameError: no such paper.
    """
    recipes = [methods.get(name) for name in methods.names(paper)]
    rows = [
        {"method": r.name, "label": r.label, **{k: _part(v) for k, v in r.parts().items()}, "τ": r.temperature}
        for r in recipes
    ]
    return pd.DataFrame(rows).set_index("method")


def numbers(method: str, stored: Sequence[Result] = ()) -> pd.DataFrame:
    """Published and measured numbers of one method: a row per table, data set and profile.

    Args:
        method: full name.
        stored: results of any methods; those of others are left aside.

    Raises:
        UnknownNameError: no such method.
    """
    recipe = methods.get(method)
    rows = []
    for paper, table in papers.plans():
        plan = papers.plan(paper, table)
        if recipe.name not in plan.rows:
            continue
        mine = [r for r in stored if (r.paper, r.table, r.method) == (paper, table, recipe.name)]
        cells = [(dataset, "") for dataset in plan.datasets if plan.published_value(dataset, recipe.name) is not None]
        cells += sorted({(r.dataset, r.profile) for r in mine})
        for dataset, profile in cells:
            row: dict[str, object] = {"table": f"{paper} {plan.heading}", "data set": dataset, "metric": plan.metric}
            if not profile:
                rows.append(row | {"published": plan.published_value(dataset, recipe.name)})
                continue
            values = [r.metrics[plan.metric] for r in mine if (r.dataset, r.profile) == (dataset, profile)]
            mean, half = report.interval(values)
            rows.append(row | {"measured": mean, "± (95 %)": half, "seeds": len(values), "profile": profile})
    columns = ["table", "data set", "metric", "published", "measured", "± (95 %)", "seeds", "profile"]
    return pd.DataFrame(rows, columns=columns)


def card(method: str, stored: Sequence[Result] = ()) -> str:
    """MyST text about one method: equation, five choices, numbers, note and command.

    Args:
        method: full name.
        stored: results to show beside the published numbers.

    Raises:
        UnknownNameError: no such method.
    """
    recipe = methods.get(method)
    lines = [f"$$ {recipe.equation} $$", "", "| choice | part |", "| --- | --- |"]
    lines += [f"| {name} | `{part!r}` |" for name, part in recipe.parts().items()]
    if recipe.note:
        lines += ["", recipe.note]
    frame = numbers(method, stored)
    if len(frame):
        lines += ["", "| " + " | ".join(frame.columns) + " |", "| " + " | ".join("---" for _ in frame.columns) + " |"]
        for values in frame.itertuples(index=False):
            lines.append("| " + " | ".join(_text(value) for value in values) + " |")
    for paper, table in papers.plans():
        if recipe.name in papers.plan(paper, table).rows:
            target = f"{paper}/{results.slug(table)}"
            command = f"python -m contrastlab run {target} --method {recipe.name} --dataset cifar10"
            lines += ["", "```sh", command, "```"]
            break
    return "\n".join(lines)


def _text(value: object) -> str:
    if not isinstance(value, float):
        return "" if value is None else str(value)
    return "" if pd.isna(value) else f"{value:g}" if value == int(value) else f"{value:.2f}"
