"""vince Table 3 beside exact values, and what each reading of its recipe makes of it."""

from __future__ import annotations

import pandas as pd

from contrastbook.studies import Study
from contrastbook.studies.vince_table3 import summary
from contrastbook.theory import gaussians
from contrastlab import papers

__all__ = ["closest", "described", "exact", "published", "verdict"]

LOST = {"collapsed": "constant", "negative": "below −.1", "diverged": "diverged"}


def published() -> pd.DataFrame:
    """The printed table by percentage, ``value`` and ``std`` in nats; InfoNCE is VINCE with all of the sample."""
    names = {"InfoNCE" if p == 100 else f"VINCE ({p:.0f}%)": p for p in gaussians.PERCENTS}
    rows = papers.published("vince", "3").set_index("row")
    return rows.loc[list(names), ["value", "std"]].rename(index=names).rename_axis("percent")


def exact() -> pd.DataFrame:
    """Many negatives (K → ∞), in nats: :func:`~contrastbook.theory.gaussians.population` and ``largest``, by row."""
    rows = [(gaussians.population(p), gaussians.largest(p), p) for p in gaussians.PERCENTS]
    lines = [(p, q.value, q.best, q.best_scale, t.value, t.infonce, 100 * q.share if p < 100 else None)
             for q, t, p in rows]  # fmt: skip
    names = ["percent", "at f*", "best scale", "at a", "best critic", "its InfoNCE", "hypothesis holds (% of x)"]
    return pd.DataFrame(lines, columns=names).set_index("percent")


def described(found: Study) -> pd.Series[str]:
    """For each percentage mean ± standard deviation over seeds, how many, and how many of them failed in which way."""

    def text(line: pd.Series[float]) -> str:
        spread = "" if pd.isna(line["sd"]) else f" ± {line['sd']:.2g}"
        lost = "".join(f", {line[status]:.0f} {word}" for status, word in LOST.items() if line[status])
        return f"{line['mean']:.4g}{spread} ({line['n']:.0f}{lost})"

    return summary(found).apply(text, axis=1)


def verdict(found: Study, factor: float = 1.5) -> dict[str, list[float]]:
    """Percentages at which a reading does what, by the median over seeds.

    ``factor``: up to which a number is like the table's.

    Returns:
        ``trains``: most seeds end with a critic that is not constant and an estimate above −0.1 nats; ``above the
        truth``: the estimate on fresh pairs, at hard negatives; and for ``train``, ``infonce``,
        ``infonce_population``: rows where that number is like the table's.
    """
    lines, fresh = summary(found), summary(found, "held_out")["median"]
    failed = lines["collapsed"] + lines["negative"] + lines["diverged"]
    chosen = {
        "trains": failed < (lines["n"] + lines["diverged"]) / 2,
        "above the truth": (fresh > gaussians.information()) & (lines.index < 100),
    }
    for number in ("train", "infonce", "infonce_population"):
        ratio = summary(found, number)["median"] / published()["value"].loc[lines.index]
        chosen[number] = (ratio < factor) & (ratio > 1 / factor)
    return {name: lines.index[where].tolist() for name, where in chosen.items()}


def closest(table: pd.DataFrame) -> tuple[str, str]:
    """The reading, and which of its numbers, that is like vince Table 3 at most percentages.

    ``table``: a line for each reading, the columns of :func:`verdict`.
    """
    met = table[["train", "infonce", "infonce_population"]].map(len)
    name = str(met.max(axis=1).idxmax())
    return name, str(met.loc[name].idxmax())
