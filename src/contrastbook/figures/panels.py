"""Panels of the study notebooks, in matplotlib: bounds against hardness, accuracy against noise, averages of log p."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from contrastbook.figures.base import COLOURS, CYCLE, MARKERS, subplots
from contrastbook.studies import Study, fmicl_figure1, vince_figure6, vince_table3
from contrastbook.studies.spirals import Reading, points_of
from contrastbook.theory import gaussians
from contrastlab.information.toys import Handedness, shifted
from contrastlab.support.errors import unknown

_Curve = Callable[[float], float]


def _best_critic(percent: float) -> float:
    """Nats of the best critic."""
    return gaussians.largest(percent).value


def _best_scale(percent: float) -> float:
    """Nats of the optimal critic at its best scale."""
    return gaussians.population(percent).best


def _optimal_critic(percent: float) -> float:
    """Nats of the optimal critic."""
    return gaussians.population(percent).value


def _info_nce_of_best_critic(percent: float) -> float:
    """Nats of InfoNCE at the best critic."""
    return gaussians.largest(percent).infonce


EXACT: Mapping[str, tuple[_Curve, str, str]] = {
    "best critic": (_best_critic, "positive", "-"),
    "best scale a·f*": (_best_scale, "truth", "--"),
    "at f*": (_optimal_critic, "negative", "-."),
    "InfoNCE of the best critic": (_info_nce_of_best_critic, "positive", "-"),
    "r log(p/r), X and Y independent": (gaussians.independent_value, "query", "--"),
}
"""Exact curves of :func:`by_percent`: function of the percentage, colour, line style."""

_SCALES = {"symlog": (-0.7, 0.9), "log": (1e-9, 0.1), "linear": (-0.06, 0.34)}


def by_percent(
    exact: Sequence[str],
    marks: Mapping[str, tuple[Study, str]] = {},
    *,
    title: str,
    scale: Literal["symlog", "log", "linear"] = "symlog",
) -> Figure:
    """Bounds against how hard the negatives are: a step for each row of vince Table 3, the hardest on the right.

    ``exact``: names of :data:`EXACT`. ``marks``: label to rows of a reading and the column to draw. ``scale``:
    ``symlog`` is logarithmic in both directions with 0 in the middle.
    """
    figure, axes = subplots(size=(7.5, 5.4))
    for name in exact:
        if name not in EXACT:
            raise unknown("curve", name, EXACT)
        _draw_exact(axes, name)
    for number, (label, (study, column)) in enumerate(marks.items()):
        shift = 0.15 * (number - (len(marks) - 1) / 2)  # the markers of several readings stand side by side
        rows = pd.DataFrame(study.rows).astype({column: float})
        lowest, _ = _SCALES[scale]
        is_below = rows[column] < lowest
        if is_below.any():
            label += f" ({is_below.sum()} below the axis)"
        axes.plot(
            _place_of_percent(rows["percent"]) + shift,
            rows[column].mask(is_below),
            MARKERS[number],
            color=CYCLE[number],
            ms=6,
            alpha=0.65,
            mec="none",
            label=label,
        )
    _draw_published(axes)
    axes.axhline(gaussians.information(), color="0.35", lw=1.2, ls=":", label="true mutual information")
    axes.axhline(0, color="0.8", lw=0.8, zorder=0)
    _set_scale(axes, scale)
    names = [f"{percent:.0f}" for percent in gaussians.PERCENTS]
    axes.set_xticks(range(len(names)), names)
    axes.set(
        xlim=(-0.4, 6.4),
        ylim=_SCALES[scale],
        xlabel="negatives: the p % of the sample closest to the positive (%); harder →",
        ylabel="bound on I(X; Y) (nats)",
        title=title,
    )
    figure.legend(loc="outside lower center", ncols=2)
    return figure


def _place_of_percent(percent: Any) -> Any:
    """Where a percentage stands: the rows of vince Table 3 are one apart, and others lie between them."""
    percents = np.array(gaussians.PERCENTS)
    return np.interp(-percent, -percents, np.arange(len(percents)))  # np.interp wants rising numbers


def _draw_exact(axes: Axes, name: str) -> None:
    """A curve of :data:`EXACT`."""
    function, colour, style = EXACT[name]
    places_of_rows = np.arange(len(gaussians.PERCENTS))
    places = np.linspace(0, len(gaussians.PERCENTS) - 1, 61)
    percents = np.interp(places, places_of_rows, gaussians.PERCENTS)
    values = [function(float(percent)) for percent in percents]
    axes.plot(places, values, style, color=COLOURS[colour], lw=2, label=f"exact, {name}")


def _draw_published(axes: Axes) -> None:
    """The numbers that vince Table 3 prints, with their standard deviations."""
    printed = vince_table3.published()
    axes.errorbar(
        _place_of_percent(printed.index.to_numpy()),
        printed["value"],
        printed["std"],
        fmt="o",
        label="published",
        color=COLOURS["query"],
        mfc="none",
        ms=9,
        capsize=3,
    )


def _set_scale(axes: Axes, scale: str) -> None:
    """The scale of the bounds; the symmetric logarithmic one has ticks on both sides of 0."""
    if scale != "symlog":
        axes.set_yscale(scale)
        return
    axes.set_yscale("symlog", linthresh=1e-6, linscale=0.6)
    axes.set_yticks([-0.1, -1e-3, -1e-5, 0, 1e-5, 1e-3, 1e-1])
    axes.minorticks_off()


def _name_etas(panel: Axes, etas: Sequence[float]) -> None:
    """Ticks of the noise's widths, evenly spaced: no scale shows 0, 0.1 and 5."""
    panel.set_xticks(range(len(etas)), [f"{eta:g}" for eta in etas])


def by_noise(curves: Mapping[str, Sequence[Study]]) -> Figure:
    """Accuracy of each reading of vince Figure 6 against the noise of its views, a panel each; profile to curves.

    A marker is a seed, a line their mean, a cross at 50 % a model that collapsed or diverged. Dashed: the raw points
    and an untrained encoder. Grey: where the published curve has its peak.
    """
    by_reading: dict[str, dict[str, Study]] = {}  # reading to profile to curve
    etas: set[float] = set()
    for profile, studies in curves.items():
        for study in studies:
            reading = str(study.rows[0]["reading"])
            by_reading.setdefault(reading, {})[profile] = study
            etas |= set(vince_figure6.frame(study)["eta"])
    ordered_etas = sorted(etas)
    profiles = list(curves)
    count = len(by_reading)
    lines = math.ceil(count / 3)
    figure, panels = subplots(lines, 3, (10.5, 2.9 * lines), sharex=True, sharey=True, squeeze=False)
    for panel, (reading, of_profiles) in zip(panels.flat, by_reading.items(), strict=False):
        for number, profile in enumerate(profiles):
            if profile in of_profiles:
                _draw_accuracies(panel, of_profiles[profile], ordered_etas, number, profile)
        if profiles[-1] in of_profiles:
            _draw_levels(panel, of_profiles[profiles[-1]])
        _dress_accuracies(panel, reading, ordered_etas)
    for blank in panels.flat[count:]:
        blank.set_axis_off()
    first_lowest = max(count - 3, 0)
    for lowest in panels.flat[first_lowest:count]:  # nothing stands below it
        lowest.xaxis.set_tick_params(labelbottom=True)
        lowest.set_xlabel("η, width of the noise")
    _share_legend(figure, panels.flat)
    return figure


def _dress_accuracies(panel: Axes, reading: str, etas: Sequence[float]) -> None:
    """Title and axes of a panel of :func:`by_noise`, and the place of the published peak."""
    peak = etas.index(0.4)
    panel.axvspan(peak - 0.3, peak + 0.3, color="0.9", zorder=0, label="published peak")
    in_two_lines = reading.replace(", plane", ",\nplane").replace(", sphere", ",\nsphere")
    panel.set_title(in_two_lines, fontsize=9)
    panel.set(ylim=(35, 100), ylabel="accuracy [%]")
    panel.label_outer()
    _name_etas(panel, etas)


def _draw_accuracies(panel: Axes, study: Study, etas: Sequence[float], number: int, profile: str) -> None:
    """One curve of :func:`by_noise`; ``number`` counts the profiles, whose markers stand side by side."""
    trained = vince_figure6.frame(study)
    colour = CYCLE[number]
    place = trained["eta"].map(etas.index) + 0.24 * number - 0.12
    panel.plot(place, trained["accuracy"], MARKERS[number], color=colour, ms=4, alpha=0.7)
    mean = trained["accuracy"].groupby(place).mean()
    panel.plot(mean.index, mean, ("--", "-")[number], color=colour, lw=1.6, label=profile)
    lost = place[trained["outcome"] != "trained"]
    panel.plot(lost, [50] * len(lost), "x", color=COLOURS["query"], ms=7)


def _draw_levels(panel: Axes, study: Study) -> None:
    """The accuracies of the raw points and of an untrained encoder."""
    rows = pd.DataFrame(study.rows)
    for encoder, dash in (("raw", "-."), ("untrained", ":")):
        of_encoder = rows.loc[rows["encoder"] == encoder, "accuracy"]
        level = of_encoder.astype(float).mean()
        panel.axhline(level, color="0.3", ls=dash, lw=1.2, label=encoder)


def _share_legend(figure: Figure, panels: Iterable[Axes]) -> None:
    """One legend for all panels above them, each label once."""
    handles: dict[str, Any] = {}
    for panel in panels:
        handles_of_panel, labels = panel.get_legend_handles_labels()
        for handle, label in zip(handles_of_panel, labels, strict=True):
            handles[label] = handle
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=len(handles))


def bounds_by_noise(curves: Sequence[Study], negatives: int) -> Figure:
    """The bound ``log K − loss`` of each reading against the noise of its views, mean over seeds, and its ceiling."""
    all_etas: set[float] = set()
    for study in curves:
        all_etas |= set(vince_figure6.frame(study)["eta"])
    etas = sorted(all_etas)
    figure, panel = subplots(size=(8, 3.8))
    for number, study in enumerate(curves):
        name = str(study.rows[0]["reading"])
        trained = vince_figure6.frame(study)
        place = trained["eta"].map(etas.index)
        mean = trained["mi_bound"].groupby(place).mean()
        colour = plt.get_cmap("viridis")(number / len(curves))
        dash = "--" if "sphere" in name else "-"
        panel.plot(mean.index, mean, MARKERS[number % len(MARKERS)], color=colour, ls=dash, label=name)
    panel.axhline(math.log(negatives), color="0.3", ls=":", lw=1.2, label="log K, the ceiling")
    panel.set(xlabel="η, width of the noise", ylabel="bound log K − loss [nats]")
    _name_etas(panel, etas)
    figure.legend(loc="outside right center", fontsize=8)
    return figure


def _two_spirals(panel: Axes, points: np.ndarray, labels: np.ndarray) -> None:
    """Points ``[N, 2]`` of two spirals, each in a colour and a marker of its own; ``labels``: 0 or 1, ``[N]``."""
    looks = ((0, "truth", "o"), (1, "negative", "^"))
    for label, colour, marker in looks:
        x, y = points[labels == label].T
        panel.plot(x, y, marker, color=COLOURS[colour], ms=4, mec="none", label=f"spiral {label + 1}")


def views_of_spirals(etas: Sequence[float] = (0.0, 0.4, 1.6), count: int = 500) -> Figure:
    """A view of each point of two spirals of one turn, for both ways in which they may lie and some widths of noise."""
    hands: tuple[Handedness, ...] = ("same", "opposite")
    figure, panels = subplots(2, len(etas), (3 * len(etas), 6), sharex=True, sharey=True, squeeze=False)
    for line, hand in zip(panels, hands, strict=True):
        points, labels = points_of(Reading(handedness=hand, turns=1.0), count, seed=0)
        for panel, eta in zip(line, etas, strict=True):
            views = shifted(points, eta, torch.Generator().manual_seed(1))
            _two_spirals(panel, views.numpy(), labels.numpy())
            panel.set(title=f"{hand}, η = {eta:g}", aspect="equal", xlim=(-2.2, 3.8), ylim=(-2.2, 3.8))
            panel.set(xlabel="first coordinate", ylabel="second coordinate")
            panel.label_outer()
    panels[0, 0].legend(loc="upper right")
    return figure


def planes(drawn: Study, title: str) -> Figure:
    """Representations of ``representations``, a row a seed, and the line that logistic regression draws."""
    rows = pd.DataFrame(drawn.rows).dropna()
    seeds = list(rows["seed"].unique())
    etas = list(rows["eta"].unique())
    figure, panels = subplots(len(seeds), len(etas), (3.3 * len(etas), 3.3 * len(seeds)), squeeze=False)
    for (seed, eta), encoded in rows.groupby(["seed", "eta"]):
        panel = panels[seeds.index(seed), etas.index(eta)]
        points = encoded[["x", "y"]].to_numpy()
        labels = encoded["label"].to_numpy()
        _two_spirals(panel, points, labels)
        panel.margins(0.08)
        accuracy = _draw_probe(panel, points, labels)
        panel.set_title(f"seed {seed}, η = {eta:g}: {accuracy:.0f} %")
    for panel in panels[:, 0]:
        panel.set_ylabel("second output")
    for panel in panels[-1]:
        panel.set_xlabel("first output")
    panels[0, 0].legend(fontsize=8)
    figure.suptitle(title)
    return figure


def _draw_probe(panel: Axes, points: NDArray[Any], labels: NDArray[Any]) -> float:
    """The line by which logistic regression tells two classes of points apart, and its accuracy in percent."""
    window = {"xlim": panel.get_xlim(), "ylim": panel.get_ylim()}
    scale = points.std(0).max() or 1.0
    scaled = points / scale
    probe = LogisticRegression(C=1e4).fit(scaled, labels)
    first, second = probe.coef_[0] / scale
    offset = probe.intercept_[0]
    if abs(second) > 1e-9:  # else the line is upright
        start = (0, -offset / second)
        panel.axline(start, slope=-first / second, color=COLOURS["query"], ls="--", lw=1.2)
    panel.set(**window)
    return float(100 * probe.score(scaled, labels))


def by_distance(curves: Mapping[str, Mapping[str, pd.DataFrame]]) -> Figure:
    """Averages of log p against the squared distance of pairs, a panel each, with the line through them and its R².

    ``curves``: title to label to :func:`contrastbook.studies.fmicl_figure1.averages`; bars are half of the pairs.
    """
    figure, panels = subplots(1, len(curves), (3.9 * len(curves), 3.8), squeeze=False)
    looks = (("truth", "o"), ("negative", "s"))
    for panel, (title, means_by_label) in zip(panels[0], curves.items(), strict=True):
        for number, (label, means) in enumerate(means_by_label.items()):
            colour, marker = looks[number]
            _draw_averages(panel, label, means, COLOURS[colour], marker)
        panel.set(title=title, xlabel="squared distance ‖x − y‖²")
        panel.legend(loc="lower left", fontsize=9)
    panels[0, 0].set_ylabel("log p (nats)")
    return figure


def _draw_averages(panel: Axes, label: str, means: pd.DataFrame, colour: str, marker: str) -> None:
    """Averages of log p with their quartiles, and the line through them."""
    slope, offset, r2 = fmicl_figure1.straight(means)
    distance = means["distance"]
    ends = distance.iloc[[0, -1]]
    panel.vlines(distance, means["low"], means["high"], color=colour, lw=0.8)
    panel.plot(distance, means["log p"], marker, color=colour, ms=5)
    panel.plot(ends, offset + slope * ends, color=colour, lw=1.5, label=f"{label}: R² {r2:.3f}")
