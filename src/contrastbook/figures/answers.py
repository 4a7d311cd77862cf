"""Answers to the questions of notebooks that make no table of encoders: a picture and a sentence each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from contrastbook.evidence.outcomes import number_in_words
from contrastbook.figures import architecture, panels, tables
from contrastbook.figures.base import BLUE, ORANGE, subplots
from contrastbook.studies import Study, epoch_time, vince_figure6, vince_table3
from contrastbook.studies.looseness import Reading
from contrastlab import encoders, papers
from contrastlab.domains.scenes.views import Channels
from contrastlab.support import escape
from contrastlab.tables.results import Result

_SETTINGS = {
    "1/(2 sigma^2)": "1/2σ²",
    "alpha": "α",
    "mu": "μ",
    "N batch": "batch",
    "k (kNN)": "k of k-NN",
    "epoch": "epochs",
}
"""Columns of fmicl Table 7 that the picture has under a shorter name."""
_ESTIMATES = ("train", "infonce", "infonce_population")
"""Numbers of a network that may be those of vince Table 3."""


class Answer(NamedTuple):
    """What stands above a notebook: a picture, the answer to the notebook's question, and how the picture is read."""

    figure: Figure
    sentence: str
    note: str


def combinations(grid: pd.DataFrame) -> Answer:
    """How many combinations of the papers' choices exist, and how many are published.

    Args:
        grid: of :func:`contrastbook.studies.crosses.grid`.
    """
    possible = int(grid["exists"].sum())
    published = int(grid["published"].sum())
    parts = (
        ("published", published, ORANGE),
        ("possible, not published", possible - published, BLUE),
        ("impossible", len(grid) - possible, "0.8"),
    )
    figure, axes = subplots(size=(8, 1.7))
    left = 0
    for name, count, colour in parts:
        axes.barh(0, count, left=left, color=colour, label=f"{count} {name}")
        left += count
    axes.set(yticks=[], xlim=(0, left), xlabel="combinations, one kind of each of the five choices")
    axes.spines[["top", "right", "left"]].set_visible(False)
    figure.legend(ncols=3, loc="outside upper left", frameon=False)
    figure.set_label(f"Of {len(grid)} combinations, {possible} are possible and {published} are published.")
    return Answer(
        figure,
        f"{possible} of {len(grid)} combinations can be computed; the five papers publish {published} of these.",
        "Five of the others are trained below, beside their parents.",
    )


def shared_information(studies: Iterable[Study]) -> Answer:
    """What the two parts of a colour space, and two patches, share by MINE's estimate.

    Args:
        studies: of :mod:`contrastbook.studies.shared_information`.
    """
    rows = pd.DataFrame([row for study in studies for row in study.rows])
    estimates = rows[rows["nats"].notna()].astype({"nats": float})
    colours = estimates[estimates["kind"] == "colours"]
    patches = estimates[estimates["kind"] == "patches"]
    means = colours.groupby("label")["nats"].mean()
    figure, (left, right) = subplots(1, 2, (8, 3), sharex=True)
    _draw_information(left, colours, list(means.sort_values().index), "a colour space, split in two")
    _draw_information(right, patches, list(dict.fromkeys(patches["label"])), "two patches, d apart")
    extremes = f"{means.idxmin()} share least and {means.idxmax()} most"
    figure.set_label(f"Estimated information of two parts: {extremes}.")
    return Answer(
        figure,
        f"By MINE's estimate, {extremes}.",
        "A circle is one seed on one of two data sets (profile first), a bar their mean. Accuracies were run at smoke "
        "size only, so no rule about accuracy is tested here.",
    )


def _draw_information(axes: Axes, estimates: pd.DataFrame, order: list[str], title: str) -> None:
    """The estimates of each kind of views and their mean, from bottom to top in that order."""
    means = estimates.groupby("label")["nats"].mean()
    axes.plot(estimates["nats"], estimates["label"].map(order.index), "o", color=BLUE, markerfacecolor="none")
    axes.plot(means[order], range(len(order)), "|", color=ORANGE, markersize=16, markeredgewidth=3)
    axes.set_yticks(range(len(order)), order)
    axes.set_title(title, fontsize="medium", loc="left")
    axes.set_xlabel("estimate of the shared information (nats)")
    axes.grid(axis="x", color="0.9")


def scene_network() -> Answer:
    """The layers of CMC's network for scenes, and how many published sizes are not those of the module."""
    network, *_ = encoders.build_for(Channels(("L",)), 8, arch="scene", dim=256)
    layers = architecture.rows(network, torch.zeros(1, 1, 128, 128))
    printed = papers.published("cmc", 12).pivot_table(index="row", columns="column", values="value", sort=False)
    differs = printed.loc[layers.index, layers.columns] != layers
    wrong = int(differs.to_numpy().sum())
    figure, axes = subplots(size=(8, 2.6))
    side_column, channel_column = layers.columns[:2]
    for x, (name, layer) in enumerate(layers.iterrows()):
        _draw_layer(axes, x, str(name), int(layer[side_column]), int(layer[channel_column]))
    axes.set(xlim=(-0.1, len(layers)), ylim=(-1.1, 1.1))
    axes.set_axis_off()
    figure.set_label("The layers of the module, each with its side and its channels.")
    return Answer(
        figure,
        f"{wrong} of {layers.size} published numbers differ from those of the module.",
        "The picture shows the layers of the module: side² × channels.",
    )


def _draw_layer(axes: Axes, x: int, name: str, side: int, channels: int) -> None:
    """A box as high as a layer's map and as wide as it has channels."""
    height = 0.25 + side / 64
    width = 0.2 + channels / 900
    axes.add_patch(Rectangle((x, -height / 2), width, height, color=BLUE, alpha=0.75))
    axes.annotate(f"{side}² × {channels}", (x, -0.95), fontsize=9)
    axes.annotate(name, (x, 0.8), fontsize=10)


def fmicl_settings(cells: pd.DataFrame) -> Answer:
    """The published settings of f-MICL, and which of them the protocol cannot take over.

    Args:
        cells: of :func:`contrastbook.studies.fmicl_tables.table`.
    """
    rows = list(dict.fromkeys(zip(cells["data"], cells["encoder"], strict=True)))
    columns = list(dict.fromkeys(cells["setting"]))
    figure, axes = subplots(size=(8, 2.6))
    for cell in cells.itertuples():
        x = columns.index(cell.setting)
        y = rows.index((cell.data, cell.encoder))
        _draw_setting(axes, x, y, cell)
    settings = [escape.mathtext(_SETTINGS.get(name, name)) for name in columns]
    networks = [f"{data}, {encoder}" for data, encoder in rows]
    _name_cells(axes, settings, networks)
    equal = int(cells["equal"].sum())
    sentence = f"{equal} of {len(cells)} published settings are those of our protocol."
    figure.set_label(sentence)
    reasons = [f"{cell.data}, {cell.setting}: {cell.why}" for cell in cells.itertuples() if not cell.equal]
    note = f"Orange: no run can have worked with the published value ({'; '.join(reasons)})."
    return Answer(figure, sentence, note)


def _name_cells(axes: Axes, columns: Sequence[str], rows: Sequence[str]) -> None:
    """A table's headings in place of an axis: those of the columns above it, those of the rows on the left."""
    axes.set_xlim(-0.5, len(columns) - 0.5)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xticks(range(len(columns)), columns, fontsize=9)
    axes.set_yticks(range(len(rows)), rows, fontsize=9)
    axes.tick_params(length=0, labeltop=True, labelbottom=False)
    axes.spines[:].set_visible(False)


def _draw_setting(axes: Axes, x: int, y: int, cell: Any) -> None:
    """The published number; one that the protocol cannot take over is orange, above the protocol's own."""
    colour = "0.92"
    text = f"{cell.printed:g}"
    if not cell.equal:
        colour = ORANGE
        text = f"{text}\nhere {cell.protocol:g}"
    axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, color=colour, ec="white"))
    axes.annotate(text, (x, y), ha="center", va="center", fontsize=9)


def ring_epochs(results: Iterable[Result]) -> Answer:
    """How much longer an epoch with a ring takes on CIFAR-10 at profile ``pilot``, published and measured."""
    cost = epoch_time.epoch_cost(papers.plan("ring", "1"), results, "cifar10", "pilot")
    figure = tables.epoch_ratios(("cifar10", "pilot", cost))
    figure.axes[0].set_xlim(0.8, 1.8)
    sentence = " ".join(epoch_time.sentences(cost, "CIFAR-10", "pilot"))
    figure.set_label(sentence)
    return Answer(
        figure,
        sentence,
        "Circles: mean epochs, with a 95 % interval over seeds, cut at the edge. Triangles: fastest epochs. "
        "Dotted: the limit that the paper names.",
    )


def hard_negatives(by_reading: Mapping[Reading, Study]) -> Answer:
    """VINCE's Table 3: the best critic, and networks trained by two interpretations of the text.

    Args:
        by_reading: of :func:`contrastbook.studies.vince_table3.stored`.
    """
    marks = {
        "by the answer y₁, as written": (by_reading[vince_table3.WRITTEN], "train"),
        "by the query, as the theorem needs": (by_reading[vince_table3.THEOREM], "train"),
    }
    figure = panels.by_percent(["best critic"], marks, title="Negatives ranked by …")
    reproduced: list[int] = []
    for study in by_reading.values():
        verdict = vince_table3.verdict(study)
        reproduced += [len(verdict[estimate]) for estimate in _ESTIMATES]
    rows = len(vince_table3.published())
    sentence = (
        f"No estimate of any interpretation of the text reproduces more than {max(reproduced)} of the {rows} rows."
    )
    figure.set_label(f"Bounds of VINCE by the share of the closest negatives, in nats. {sentence}")
    return Answer(
        figure,
        sentence,
        f"We trained {len(by_reading)} interpretations. A row counts where the median over seeds is within a factor of "
        "1.5 of the published number. Circles: published.",
    )


def noisy_spirals(studies: Sequence[Study]) -> Answer:
    """VINCE's Figure 6: accuracy by noise under each interpretation of the text.

    Args:
        studies: of :func:`contrastbook.studies.vince_figure6.stored`.
    """
    figure = panels.by_noise({"paper": studies})
    peaks = [vince_figure6.peak(study.rows) for study in studies]
    like_published = number_in_words(sum(not peak.missing for peak in peaks))
    sentence = (
        f"Interpretations of the text that show the published peak near η = 0.4: {like_published} of {len(studies)}."
    )
    figure.set_label(f"Accuracy of a linear classifier on two spirals by the noise of the views. {sentence}")
    return Answer(
        figure, sentence, "A marker is a seed, a line their mean, a cross a model that collapsed or diverged."
    )
