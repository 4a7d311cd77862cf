"""Figures of the notebooks that make a published table, beside those that every report draws of itself."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox
from numpy.typing import NDArray
from torch import Tensor

from contrastbook.figures.base import BLUE, COLOURS, CYCLE, GREEN, MARKERS, ORANGE, STYLES, dress, subplots
from contrastbook.studies import Study, sweep
from contrastbook.studies.collapse import Spread
from contrastbook.studies.joint_keys import Averages, ViewStatistics
from contrastlab.papers import TablePlan
from contrastlab.scores.divergences import Divergence
from contrastlab.support import escape
from contrastlab.tables.report import Estimate, Report
from contrastlab.tables.results import Result


def epoch_ratios(*costs: tuple[str, str, pd.DataFrame]) -> Figure:
    """Ring Table 5a: the epoch of a ring in epochs of its base, published and measured, a panel for each data set.

    Dashed: no extra cost. Dotted: the paper's "no more than 1.5 times". Bars: 95 % t intervals over seeds. ``costs``:
    name of the data set, profile, and :func:`contrastbook.studies.epoch_time.epoch_cost`.
    """
    figure, axes = subplots(1, len(costs), (9, 3.6), sharey=True, squeeze=False)
    for panel, (dataset, profile, cost) in zip(axes[0], costs, strict=True):
        rings = cost.loc[["IRing", "MoCoRing"]]
        _draw_ratios(panel, rings, profile)
        panel.axvline(1, color="0.4", ls="--", lw=1)
        panel.axvline(1.5, color="0.4", ls=":", lw=1)
        panel.set(yticks=[0.2, 1.2], yticklabels=rings.index, xlabel="epoch / epoch of the base")
        panel.set_title(escape.mathtext(f"{dataset}, {profile}"))
        panel.legend(fontsize="x-small", loc="upper center", bbox_to_anchor=(0.5, -0.22))
    axes[0][-1].invert_yaxis()
    return figure


def _draw_ratios(panel: Axes, rings: pd.DataFrame, profile: str) -> None:
    """Published and measured ratios of two rings, those of a ring below each other; bars at the measured mean."""
    half_widths = rings[f"95 % half-width ({profile})"]
    kinds = (
        ("published ratio, CIFAR10", "D", ORANGE, None),
        ("published ratio, ImageNet", "s", ORANGE, None),
        (f"ratio ({profile})", "o", BLUE, half_widths),
        (f"ratio of fastest epochs ({profile})", "^", GREEN, None),
    )
    for number, (name, marker, colour, bars) in enumerate(kinds):
        shift = number / 8
        panel.errorbar(rings[name], [shift, 1 + shift], xerr=bars, fmt=marker, color=colour, label=name)


def averages(of: Averages) -> Figure:
    """JCL's three steps: the loss averaged over ever more keys of an image, and the closed form of the same keys."""
    figure, axes = subplots(size=(9, 3.6))
    frame = of.frame
    axes.fill_between(
        frame.index,
        frame["low"],
        frame["high"],
        color="#56B4E9",
        alpha=0.4,
        label="mean of M losses, 90 % of draws",
    )
    axes.plot(frame.index, frame["mean"], "o-", color=BLUE, label="mean over the draws")
    styles = (":", "-", "--")
    for (strength, value), style in zip(of.closed.items(), styles, strict=False):
        label = f"closed form, λ = {strength:g}"
        if strength == 0:
            label += ", the mean key"
        axes.axhline(value, color=ORANGE, linestyle=style, label=label)
    axes.set(xlabel="keys of the image, M", ylabel="loss (nats)")
    axes.set_xscale("log", base=2)
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def covariance(**sweeps: pd.DataFrame) -> Figure:
    """JCL's loss above that of the mean key against the variance of ``q·k⁺``; title (``_`` for blanks) to a sweep."""
    figure, axes = subplots(1, len(sweeps), (10, 3.8), squeeze=False)
    # colour, style and width of each column
    looks = (
        ("0", "-", 2.5),
        (GREEN, "-.", 1.5),
        (ORANGE, ":", 1.5),
        (ORANGE, "-", 1.5),
        (ORANGE, "--", 1.5),
    )
    for panel, (title, frame) in zip(axes[0], sweeps.items(), strict=True):
        for name, (colour, style, width) in zip(frame, looks, strict=True):
            panel.plot(frame.index, frame[name], color=colour, linestyle=style, linewidth=width, label=name)
        panel.set_title(title.replace("_", " "))
        panel.set_xlabel(frame.index.name)
        panel.set_ylabel("loss − loss of the mean key (nats)")
    axes[0][0].legend(fontsize="small")
    return figure


def ablations(table: Report, said_good: Mapping[str, tuple[Mapping[str, float], tuple[float, float]]]) -> Figure:
    """JCL Figure 2 as measured: accuracy against the number of keys, λ and τ.

    Bars: the 95 % t interval over seeds, or for one seed the test set's sampling error. ``said_good``: see
    :data:`contrastbook.studies.joint_keys.SAID_GOOD`.
    """
    measured: dict[str, Estimate] = {}
    for row in table.rows:
        if row.measured is not None:
            measured[row.method] = row.measured
    references = (("jcl/moco_v2", ORANGE, "--"), ("ours/random", "0.4", ":"))
    figure, axes = subplots(1, len(said_good), (10, 3.4), sharey=True)
    for panel, (name, (values, good)) in zip(axes, said_good.items(), strict=True):
        panel.axvspan(*good, color="0.9", label="good, says the paper")
        _draw_ablation(panel, values, measured)
        for method, colour, style in references:
            if method in measured:
                label = table.plan.label(method)
                panel.axhline(measured[method].mean, color=colour, linestyle=style, label=label)
        panel.set_xlabel(name)
    where = escape.mathtext(f"{table.dataset}, {table.profile}")
    axes[0].set_ylabel(f"{table.metric.label} (%)\n{where}")
    axes[-1].legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def _draw_ablation(panel: Axes, values: Mapping[str, float], measured: Mapping[str, Estimate]) -> None:
    """Accuracy of each measured method against its value of the panel's knob; ``values``: method to value."""
    x: list[float] = []
    means: list[float] = []
    bars: list[float] = []
    for method, value in values.items():
        if method in measured:
            x.append(value)
            means.append(measured[method].mean)
            bars.append(measured[method].error or 0.0)
    panel.errorbar(x, means, yerr=bars, fmt="o-", color=BLUE, label="JCL")


def closeness(numbers: Mapping[str, Mapping[Any, ViewStatistics]], title: str) -> Figure:
    """JCL Figure 3, over images: mean cosine of two views, mean variance of a coordinate; label to statistics."""
    first_statistics = next(iter(numbers.values()))
    kinds = list(first_statistics)
    names = {"cosine": "mean cosine of two views", "variance": "mean variance of a coordinate"}
    figure, axes = subplots(len(kinds), 2, (10, 3 * len(kinds)), squeeze=False)
    for line, kind in zip(axes, kinds, strict=True):
        for panel, (field, name) in zip(line, names.items(), strict=True):
            values = {label: getattr(statistics[kind], field).numpy() for label, statistics in numbers.items()}
            _draw_histograms(panel, values)
            panel.set(xlabel=f"{name} of an image, {kind}", ylabel="images")
    axes[0][0].legend(fontsize="small")
    figure.suptitle(title)
    return figure


def _draw_histograms(panel: Axes, values: Mapping[str, NDArray[Any]]) -> None:
    """The outline of a histogram for each label, all with the same bins."""
    pooled = np.concatenate(list(values.values()))
    bins = np.histogram_bin_edges(pooled, 50).tolist()
    colours = (BLUE, ORANGE, "0.5")
    for (label, sample), colour, style in zip(values.items(), colours, STYLES, strict=False):
        panel.hist(sample, bins, color=colour, label=label, histtype="step", lw=2, ls=style)


def loss_curves(results: Sequence[Result], plan: TablePlan, rows: Sequence[str], title: str) -> Figure:
    """Losses by epoch, 1 at the first epoch, 0 at the lowest (fmicl Figure 6, in small); first curve of each row."""
    figure, axes = subplots(size=(7, 3.4))
    curves: dict[str, Sequence[Mapping[str, Any]]] = {}
    for result in results:
        if len(result.curve) > 1:
            curves.setdefault(result.method, result.curve)
    drawn_rows = [name for name in rows if name in curves]
    for number, method in enumerate(drawn_rows):
        loss = np.array([epoch["loss"] for epoch in curves[method]])
        span = max(np.ptp(loss), 1e-12)
        scaled = (loss - loss.min()) / span
        epochs = np.arange(1, len(loss) + 1)
        axes.plot(
            epochs,
            scaled,
            markevery=max(len(loss) // 8, 1),
            color=CYCLE[number % 7],
            ls=STYLES[number % 4],
            marker=MARKERS[number % 5],
            label=plan.label(method),
        )
    axes.set(xlabel="epoch", ylabel="loss, 1 = first epoch, 0 = lowest", title=title)
    if axes.lines:
        axes.legend(loc="upper right", fontsize="small")
    return figure


def spreads(of: Mapping[str, Spread]) -> Figure:
    """Sorted squared distances of different images, and of two views of one; label to the ``Spread`` of an encoder.

    A flat line at 2 is the ideal of fmicl Theorem 4; a step from 0 to 4 is two clusters; a line at 0 is one constant.
    """
    lines = math.ceil(len(of) / 3)
    figure, axes = subplots(lines, 3, (8, 2.1 * lines), sharex=True, sharey=True, squeeze=False)
    for panel, (label, each) in zip(axes.flat, of.items(), strict=False):
        _draw_sorted(panel, each.apart, ORANGE, "-", "different images")
        _draw_sorted(panel, each.same, BLUE, "--", "views of one image")
        panel.axhline(2, color="0.6", lw=1, ls=":")
        panel.set_title(f"{label}\neffective rank {each.rank:.1f}", fontsize="medium")
    axes[0][0].legend(loc="upper left", fontsize="small")
    figure.supxlabel("pairs, sorted (% of all)")
    figure.supylabel("squared distance on the unit sphere")
    return figure


def _draw_sorted(panel: Axes, distances: Tensor, colour: str, style: str, label: str) -> None:
    """Sorted distances against the percentage of pairs up to each."""
    percents = np.linspace(0, 100, len(distances))
    panel.plot(percents, distances, color=colour, lw=2, ls=style, label=label)


def conjugates(divergences: Sequence[Divergence]) -> Figure:
    """The conjugate of each divergence as far as it is finite; thin lines are ends, cosines lie in the grey."""
    t = torch.linspace(-1.25, 1.25, 2001, dtype=torch.float64)
    figure, axes = subplots(size=(7.5, 4.2))
    axes.axvspan(-1, 1, color="0.93", label="where cosines lie")
    for f, colour, style in zip(divergences, CYCLE, STYLES, strict=False):
        inside = f.contains(t)
        axes.plot(t[inside], f.conjugate(t[inside]), color=colour, linestyle=style, lw=2, label=f.title)
        if f.highest < 2:
            axes.axvline(f.highest, color=colour, lw=1, linestyle=style)
    axes.set(ylim=(-1.2, 6.5), xlabel="score t", ylabel="conjugate f*(t)")
    axes.legend(loc="upper left", fontsize="small")
    return figure


def similarities(divergences: Sequence[Divergence], temperature: float) -> Figure:
    """What a pair contributes against its cosine: Gaussian similarity (σ² = ``temperature``) above, cosine below."""
    cosine = torch.linspace(-1, 1, 2001, dtype=torch.float64)
    log_u = (cosine - 1) / temperature
    figure, axes = subplots(2, 2, (8, 6), sharex=True)
    for f, colour, style in zip(divergences, CYCLE, STYLES, strict=False):
        look: dict[str, Any] = {"color": colour, "linestyle": style, "lw": 1.8, "label": f.title}
        axes[0, 0].plot(cosine, f.derivative(log_u), **look)
        axes[0, 1].plot(cosine, f.composition(log_u), **look)
        inside = f.contains(cosine)
        axes[1, 1].plot(cosine[inside], f.conjugate(cosine[inside]), **look)
    axes[1, 0].plot(cosine, cosine, color="0.3", lw=1.8, label="all of them")
    titles = ("Gaussian: f′(u)", "Gaussian: f*(f′(u))", "cosine: s", "cosine: f*(s)")
    for panel, title in zip(axes.flat, titles, strict=True):
        panel.set(title=title, ylim=(-1.5, 4.5))
    axes[0, 0].set_ylim(-7, 3.2)
    axes[0, 0].legend(fontsize="x-small")
    axes[1, 0].legend(fontsize="x-small")
    figure.supxlabel("cosine x·y")
    figure.supylabel("contribution of a pair (natural units)")
    return figure


def weights(frame: pd.DataFrame, natural: float, title: str, *, measured: bool, floor: float | None = None) -> Figure:
    """Accuracy against α, published or measured, of a ``fmicl_tables.accuracy``; measured numbers have bars.

    ``natural``: α that makes αu a density ratio for uniform features. ``floor``: percent of the untrained encoder.
    """
    figure, axes = subplots(size=(7.5, 3.4))
    column = "measured" if measured else "published"
    # α is shifted by 2 %, so that bars stand beside each other
    looks = (("KL", BLUE, "o-", 0.98), ("JS", ORANGE, "s--", 1.02))
    for kind, colour, style, shift in looks:
        is_drawn = (frame["divergence"] == kind) & frame[column].notna()
        part = frame[is_drawn]
        bars = part["half width"] if measured else None
        axes.errorbar(part["alpha"] * shift, part[column], bars, fmt=style, color=colour, capsize=3, label=kind)
    axes.axvline(natural, color="0.4", ls=":", label="natural α, uniform features")
    if floor is not None:
        axes.axhline(floor, color="0.4", ls="--", lw=1, label="untrained encoder")
    axes.set_xscale("log")
    axes.set_xlabel("weight α of the negatives' term")
    axes.set_ylabel(f"k-NN accuracy (%), {column}")
    axes.set_title(title)
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def crosses_grid(states: pd.DataFrame) -> Figure:
    """The grid of ``crosses.states``: what cannot exist, what exists, and what is published."""
    figure, axes = subplots(size=(8.2, 8.2))
    colours = ("0.93", "#56B4E9", ORANGE)
    axes.pcolormesh(states, cmap=ListedColormap(colours), vmin=0, vmax=2, edgecolors="white", lw=0.8)
    y, x = np.nonzero(states.to_numpy() == 2)
    axes.plot(x + 0.5, y + 0.5, "ko", ms=3)
    lines, columns = states.shape
    axes.set_xticks(np.arange(columns) + 0.5, states.columns, rotation=90, fontsize=8)
    axes.set_yticks(np.arange(lines) + 0.5, states.index, fontsize=8)
    axes.invert_yaxis()
    names = ("cannot exist", "exists, not published", "published (dot)")
    handles = [Patch(color=colour, label=name) for colour, name in zip(colours, names, strict=True)]
    figure.legend(handles=handles, loc="outside upper center", ncols=3)
    return figure


def families(frame: pd.DataFrame) -> Figure:
    """Crosses as dots between their parents and their random encoder, by both probes; of ``crosses.family``."""
    lines = frame.reset_index()
    names = list(dict.fromkeys(lines["cross"]))
    figure, axes = subplots(1, 2, (9, 1.2 + 1.05 * len(names)), sharey=True)
    metrics = (("linear", "linear probe"), ("knn200", "200-NN"))
    for panel, (metric, title) in zip(axes, metrics, strict=True):
        for place, name in enumerate(names):
            family = lines[lines["cross"] == name]
            _draw_family(panel, family, metric, place)
        panel.set(title=title, xlabel="accuracy (% of test images)", ylim=(len(names) - 0.5, -0.5))
        panel.margins(x=0.18)
    axes[0].set_yticks(range(len(names)), names)
    handles: dict[str, Any] = {}
    all_handles, all_labels = axes[0].get_legend_handles_labels()
    for handle, label in zip(all_handles, all_labels, strict=True):
        handles.setdefault(label, handle)
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3)
    return figure


def _draw_family(panel: Axes, family: pd.DataFrame, metric: str, place: int) -> None:
    """A cross, its two parents above and below it, and its random encoder as a dotted line."""
    parents = family[family["role"] == "parent"]
    heights = (place - 0.22, place + 0.22)
    for y, label, value in zip(heights, parents["method"], parents[metric], strict=True):
        panel.plot(value, y, "s", color=ORANGE, mfc="none", label="parent")
        panel.annotate(label, (value, y), (7, -3), textcoords="offset points", fontsize=8)
    (floor,) = family.loc[family["role"] == "random", metric]
    panel.plot([floor, floor], [place - 0.4, place + 0.4], ":", color="0.3", label="random encoder")
    (child,) = family.loc[family["role"] == "child", metric]
    panel.plot(child, place, "o", color=BLUE, ms=8, label="child")


def by_value(lines: pd.DataFrame, knob: str, where: str, *, logarithmic: bool = False) -> Figure:
    """Accuracy against the number at the end of a column's name, a line a method; bars from least to greatest seed."""
    figure, axes = subplots(size=(6.5, 3.8))
    sentences: list[str] = []
    for number, (label, of_method) in enumerate(lines.groupby("label", sort=False)):
        values = of_method["column"].map(sweep.value)
        over_seeds = of_method.groupby(values)["accuracy"]
        mean = over_seeds.mean()
        below = mean - over_seeds.min()
        above = over_seeds.max() - mean
        axes.errorbar(
            mean.index,
            mean,
            [below, above],
            capsize=3,
            color=CYCLE[number % 7],
            marker=MARKERS[number % 6],
            ls=STYLES[number % 7],
            label=escape.mathtext(label),
        )
        sentences.append(f"{label} is highest at {mean.idxmax():g}")
    if logarithmic:
        axes.set_xscale("log")
    axes.grid(axis="y", color="0.9")
    dress(axes, knob, "1-NN accuracy (%)", escape.mathtext(where))
    in_words = "; ".join(sentences) or "Nothing run"
    figure.set_label(f"Accuracy against {knob}. {in_words}.")
    return figure


def against_bound(lines: pd.DataFrame, where: str) -> Figure:
    """Accuracy against the bound, a point for each column and method of a ``sweep.frame``: mean over seeds.

    A row without a bound, such as the untrained encoder, is a dashed line at its mean.
    """
    figure, axes = subplots(size=(7.5, 4.6))
    means = lines.groupby(["label", "column"], sort=False)[["bound", "accuracy"]].mean()
    for number, (label, of_method) in enumerate(means.groupby("label", sort=False)):
        name = escape.mathtext(label)
        bounds = of_method["bound"]
        if bounds.isna().all():
            axes.axhline(of_method["accuracy"].mean(), color="0.4", ls="--", lw=1, label=name)
            continue
        marker = MARKERS[number % 6]
        colour = CYCLE[number % 7]
        axes.plot(bounds, of_method["accuracy"], marker, color=colour, label=name, markersize=7)
        drawn = of_method.dropna().droplevel("label")
        for column, bound, accuracy in drawn.itertuples():
            axes.annotate(column, (bound, accuracy), xytext=(5, 4), textcoords="offset points", fontsize="small")
    axes.margins(x=0.15, y=0.12)
    axes.grid(color="0.9")
    x_title = "bound on the information between two views, last epoch (nats)"
    dress(axes, x_title, "1-NN accuracy (%)", escape.mathtext(where))
    points: list[str] = []
    for point in means.reset_index().itertuples():
        points.append(f"{point.label} with {point.column}: {point.accuracy:.1f}")
    in_words = "; ".join(points) or "Nothing run"
    figure.set_label(f"Accuracy against the bound. {in_words}.")
    return figure


def accuracy_against_information(study: Study, accuracy: Mapping[str, float], *, floor: float | None = None) -> Figure:
    """Linear accuracy (row to percent; rows without are left out) against information: colour spaces, and patches.

    ``study``: rows of :func:`contrastbook.studies.shared_information.study`. ``floor``: percent of random encoders.
    """
    rows = pd.DataFrame(study.rows)
    is_drawn = rows["nats"].notna() & rows["row"].isin(list(accuracy))
    rows = rows[is_drawn]
    rows = rows.astype({"nats": float, "half_width": float})
    means = rows.groupby(["kind", "row"], sort=False).agg({"nats": "mean", "half_width": "mean", "label": "first"})
    kinds = means.index.get_level_values("kind")
    means["accuracy"] = [accuracy[row] for row in means.index.get_level_values("row")]
    colours = means[kinds == "colours"]
    patches = means[kinds == "patches"]
    figure, (left, right) = subplots(1, 2, (10, 4), sharey=True)
    _draw_information(left, colours, "o", COLOURS["query"], "parts of a colour space")
    if floor is not None:
        left.axhline(floor, color=COLOURS["other"], ls="--", label="random encoders of L and ab")
        left.legend(frameon=False)
    _draw_information(right, patches, "s", COLOURS["positive"], "patches at a distance")
    right.plot(patches["nats"], patches["accuracy"], ":", color=COLOURS["positive"])
    left.set_ylabel("linear accuracy (%)")
    for axes in (left, right):
        labels = [text for text in axes.texts if isinstance(text, Annotation)]
        _set_apart(figure, labels)
    return figure


def _draw_information(axes: Axes, means: pd.DataFrame, marker: str, colour: str, title: str) -> None:
    """A marker with its label for each kind of views: accuracy against information, with the error of the latter."""
    axes.errorbar(means["nats"], means["accuracy"], xerr=means["half_width"], fmt=marker, color=colour, capsize=2)
    axes.margins(x=0.15)
    for x, y, label in zip(means["nats"], means["accuracy"], means["label"], strict=True):
        axes.annotate(str(label), (x, y), xytext=(4, 4), textcoords="offset points", fontsize=8)
    axes.set(xlabel="MINE's bound on I(v₁; v₂) (nats)", title=title)


def _set_apart(figure: Figure, labels: Sequence[Annotation]) -> None:
    """Move labels down, the highest first, until none lies on another."""
    figure.draw_without_rendering()
    highest_first = sorted(labels, key=_height, reverse=True)
    placed: list[Bbox] = []
    for label in highest_first:
        while _lies_on(label, placed):
            x, y = label.xyann
            label.xyann = (x, y - 2)
        placed.append(label.get_window_extent())


def _height(label: Annotation) -> float:
    """The y of the point that a label belongs to."""
    return label.xy[1]


def _lies_on(label: Annotation, boxes: Sequence[Bbox]) -> bool:
    """Whether a label overlaps one of the boxes."""
    extent = label.get_window_extent()
    return any(extent.overlaps(box) for box in boxes)


def estimate_against_truth(study: Study) -> Figure:
    """The estimate on textures, of ``control``, with its sampling error, beside the exact information."""
    rows = pd.DataFrame(study.rows).groupby("distance").mean(numeric_only=True)
    figure, axes = subplots(size=(6, 3.6))
    axes.plot(rows.index, rows["exact"], "-", color=COLOURS["truth"], label="exact")
    axes.errorbar(
        rows.index,
        rows["nats"],
        yerr=rows["half_width"],
        fmt="o",
        color=COLOURS["query"],
        capsize=2,
        label="MINE",
    )
    axes.set(xlabel="distance of the patches (pixels)", ylabel="I(v₁; v₂) (nats)")
    lowest = float(np.min(rows["nats"] - rows["half_width"]))
    axes.set_ylim(bottom=min(0.0, lowest))
    axes.legend(frameon=False)
    return figure
