"""What the book shows of the papers' tables, from ``results/``: pictures, what came of a table, and all that is stored.

:func:`show` is the page of a paper; :func:`opening` stands above the notebook of a table (``_ext/openings.py``), and
:func:`matrix` on the page of results.
"""

from __future__ import annotations

import base64
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from io import BytesIO
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import torch
from matplotlib.figure import Figure
from PIL import Image

from contrastbook import evidence
from contrastbook.figures import architecture, panels, tables
from contrastbook.figures.base import BLUE, ORANGE, raised
from contrastbook.figures.results import learning_curves
from contrastbook.studies import crosses, epoch_time, fmicl_tables, read, vince_figure6, vince_table3
from contrastlab import data, encoders, papers
from contrastlab.domains.scenes.views import Channels
from contrastlab.papers import Entry, TablePlan
from contrastlab.support import escape
from contrastlab.tables import report, results
from contrastlab.tables.report import Evidence, Report
from contrastlab.tables.results import Result

ROOT = Path(__file__).parents[1]
OPEN = ("open", "not run")
"""What is no verdict."""
NAMES = {"vince": "VINCE", "ring": "Rings", "jcl": "JCL", "cmc": "CMC", "fmicl": "f-MICL"}
"""What the book calls a paper."""


@cache
def kept() -> tuple[Result, ...]:
    """All results that the project keeps."""
    return tuple(results.find(ROOT / "results"))


@cache
def claims(paper: str) -> pd.DataFrame:
    """The claims of a paper's tables with what :func:`kept` says of them."""
    return of_claims(paper, kept())


def of_claims(paper: str, stored: Sequence[Result]) -> pd.DataFrame:
    """The claims of a paper's tables with what is stored of them."""
    return evidence.claims.frame(stored, [papers.plan(*known) for known in papers.plans() if known[0] == paper])


def name(entries: Iterable[Entry]) -> str:
    """``Tables 2b, 2c and 4`` or ``Figure 6``, as the paper counts them."""
    said = []
    for kind in ("Table", "Figure"):
        figures = kind == "Figure"
        numbers = [e.table.removeprefix("figure") for e in entries if e.table.startswith("figure") == figures]
        *first, last = numbers or [""]
        said += [f"{kind}{'s' * bool(first)} {' and '.join(filter(None, (', '.join(first), last)))}"] if numbers else []
    return " and ".join(said)


def headline(notebook: str) -> str:
    """The question that a notebook opens with."""
    script = (ROOT / notebook).with_suffix(".py").read_text(encoding="utf-8")
    return next(line.removeprefix("# # ") for line in script.splitlines() if line.startswith("# # "))


def of_paper(paper: str) -> dict[str, list[Entry]]:
    """Notebooks of a paper, each with the tables it makes."""
    notebooks: dict[str, list[Entry]] = {}
    for entry in papers.catalogue():
        if entry.paper == paper and entry.notebook:
            notebooks.setdefault(entry.notebook, []).append(entry)
    return notebooks


def titled(column: str) -> str:
    """The name of a column with the names that readers know of its data: ``cifar10 conv1`` is ``CIFAR-10 conv1``."""
    return " ".join(evidence.headlines.DATA.get(word, word) for word in column.split(" "))


def unit_of(each: Report) -> str:
    """The unit of a report's metric on an axis."""
    return f"% of {each.metric.items}" if each.metric.unit == "percent" else each.metric.unit


def dots(reports: Sequence[Report]) -> Figure:
    """A dot for each measured row, filled if above the untrained encoder (the dashed line); a panel for each column.

    Solid bars are t intervals over three seeds or more, dotted bars the range of two seeds or the sampling error of the
    test items of one. Published numbers of a single column have a panel and a scale of their own, unless the profile is
    the paper's. An axis label that all panels share stands below the figure, once.
    """
    first = reports[0]
    seen = {row.method: row for each in reports for row, _ in each.drawn}
    rows = [seen[method] for method in dict.fromkeys(r.method for r in first.rows) if method in seen]
    places = {row.method: y for y, row in enumerate(rows)}
    published = {places[r.method]: r.published for r in rows if r.published is not None}
    apart = bool(published) and len(reports) == 1 and not first.comparable
    count = len(reports) + apart
    wide = min(count, 3)
    deep = -(-count // wide)
    labels = {f"{each.metric.label} ({unit_of(each)})" for each in reports}
    once = len(labels) == 1 and count > 1 and not apart
    size = (8, 0.5 + ((0.55 if once else 0.75) + (0.4 if deep == 1 else 0.26) * max(len(rows), 1)) * deep)
    figure, grid = plt.subplots(deep, wide, figsize=size, sharey=True, squeeze=False, layout="constrained")
    plt.close(figure)
    panels = list(grid.flat)
    for axes, each in zip(panels[apart:], reports, strict=False):
        for row, number in each.drawn:
            y, mean, dotted = places[row.method], number.mean, number.seeds < 3
            width = number.bar
            if width is not None:
                axes.plot([mean - width, mean + width], [y, y], color=BLUE, ls=":" if dotted else "-", lw=2, zorder=2)
            if each.comparable and row.published is not None:
                axes.plot(row.published, y, "D", color=ORANGE, markerfacecolor="none", markersize=8, zorder=3)
            floor = row.method == each.plan.floor
            face = "white" if row.above_random is False or floor else BLUE
            axes.plot(mean, y, "o", color=BLUE, markerfacecolor=face, markersize=8, zorder=3)
            if floor:
                axes.axvline(mean, color="0.4", ls="--", lw=1, zorder=1)
        words = titled(each.name) if len(reports) > 1 else f"measured: {titled(each.name)}, profile {each.profile}"
        axes.set_title(escape.mathtext(words), fontsize="medium", loc="left")
        if not once:
            axes.set_xlabel(textwrap.fill(f"{each.metric.label} ({unit_of(each)})", 80 // wide))
    if once:
        figure.supxlabel(labels.pop(), fontsize="medium")
    if apart:
        panels[0].plot(list(published.values()), list(published), "D", color=ORANGE, markersize=7)
        panels[0].set_title("published, on a scale of its own", fontsize="medium", loc="left")
        panels[0].set_xlabel("as in the paper")
    for axes in panels:
        axes.set_visible(axes.has_data() or axes is panels[0])
        axes.set_yticks(range(len(rows)), [raised(escape.mathtext(row.label)) for row in rows])
        axes.set_ylim(max(len(rows), 1) - 0.5, -0.5)
        axes.grid(axis="x", color="0.9")
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(axis="y", length=0)
    said = (
        f"{each.name}: {', '.join(f'{row.label} {number.text()}' for row, number in each.drawn)}" for each in reports
    )
    figure.set_label(
        f"Dot plot of {first.plan.paper} {first.plan.heading}, profile {first.profile}. {'; '.join(said)}."
    )
    return figure


def light(page: str, colours: int = 48) -> str:
    """A page whose charts have few colours, which is a third of their weight."""

    def fewer(found: re.Match[str]) -> str:
        made = BytesIO()
        drawn = Image.open(BytesIO(base64.b64decode(found[1]))).convert("RGB")
        drawn.quantize(colours, dither=Image.Dither.NONE).save(made, "png", optimize=True)
        return f"data:image/png;base64,{base64.b64encode(made.getvalue()).decode()}"

    return re.sub(r"data:image/png;base64,([A-Za-z0-9+/=]+)", fewer, page)


def verdicts(lines: pd.DataFrame) -> dict[str, int]:
    """How many of some lines of :func:`claims` have which verdict; *open* comes last."""
    count = lines.loc[lines["verdict"] != "not run", "verdict"].value_counts()
    return dict(sorted(count.items(), key=lambda each: each[0] in OPEN))


def outcome(entry: Entry, best: Evidence, drawn: Sequence[Report], lines: pd.DataFrame) -> tuple[str, list[str]]:
    """What came of a table: how many claims were run, or numbers are above the floor; then a sentence a verdict."""
    where = {"paper": entry.paper, "table": entry.table, "dataset": best.dataset, "profile": best.profile}
    mine = lines[(lines[list(where)] == pd.Series(where)).all(axis=1) & (lines["verdict"] != "not run")]
    if mine.empty:
        return above_floor(drawn), []
    by_verdict: dict[str, list[str]] = {}
    for line in mine.sort_values("verdict", key=lambda each: each.isin(OPEN), kind="stable").to_dict("records"):
        by_verdict.setdefault(evidence.words.sentence(line), []).append(line["claim"])
    head = f"We ran {in_figures(len(mine))} of the claimed differences."
    return head, [in_words(verdict, named) for verdict, named in by_verdict.items()]


def in_figures(count: int) -> str:
    """A number as a sentence has it: in words up to twelve."""
    return COUNTS[count] if count < len(COUNTS) else str(count)


COUNTS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def above_floor(drawn: Sequence[Report]) -> str:
    """How many measured numbers are above the untrained encoder, in a sentence."""
    rows = [row for each in drawn for row in each.rows if row.kind == "method" and row.above_random is not None]
    if not rows:
        return "No claimed difference was run."
    above = sum(bool(row.above_random) for row in rows)
    if above == len(rows) > 1:
        return f"Each of the {above} numbers is above the {drawn[0].floor}."
    return f"{above} of {len(rows)} numbers are above the {drawn[0].floor}."


def in_words(verdict: str, claims: Sequence[str]) -> str:
    """One verdict of ``evidence.words.sentence`` on some claims, as a sentence."""
    one = len(claims) == 1
    is_, has, was = ("is", "has", "was") if one else ("are", "have", "were")
    named = enumeration(claims) if len(claims) <= 3 else in_figures(len(claims)).capitalize()
    if verdict.startswith("open"):
        reason = verdict.removeprefix("open").strip(" ()")
        if not reason:
            return f"{named} {is_} undecided: {'its interval contains' if one else 'their intervals contain'} 0."
        if reason.endswith("seeds"):
            have, _, need = reason.removesuffix(" seeds").partition(" of ")
            return f"{named} {has} {have} of the {need} seeds that a verdict needs."
        if reason.endswith("cannot stand in"):
            data_set = titled(reason.removesuffix(" cannot stand in"))
            return f"{named} {was} run on {data_set}, which cannot stand in for the paper's data."
        return f"{named} {WHY_OPEN[reason].format(was=was)}."
    verdict, _, on = verdict.partition(", on ")
    where = f" on {titled(on)}" if on else ""
    if verdict in SAID:
        return f"{named} {has} {SAID[verdict].format(where=where)}."
    what, _, bound = verdict.partition(": ")
    return f"{named}: {bound}{where}, so {what}."


WHY_OPEN = {
    "a row is not above an untrained encoder": "cannot be decided: a row is no better than an untrained encoder",
    "settings not searched for both rows": "{was} run with settings that no search chose, which decides nothing",
}
"""Reasons of ``evidence.words.sentence`` for leaving a claim open, after the names of the claims or their number."""
SAID = {
    "same sign": "the published sign{where}",
    "opposite sign": "the opposite sign{where}",
    "difference where none is claimed": "a clear sign{where}, where the paper claims no difference",
}
"""Verdicts, after the names of the claims."""


def enumeration(names: Sequence[str]) -> str:
    """``a``, ``a and b`` or ``a, b and c``; equal names, of several columns, once with their number."""
    counts = {name: list(names).count(name) for name in names}
    words = [f"{name} ({count} columns)" if count > 1 else name for name, count in counts.items()]
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def pictured(entry: Entry, stored: Sequence[Result], lines: pd.DataFrame) -> str:
    """The figure of the best evidence for a table, the paper's claim, what came of it; empty where there is none."""
    best = report.best_first(report.evidence(entry, stored))
    if not best:
        return ""
    plan = papers.plan(entry.paper, entry.table)
    here = [r for r in stored if (r.dataset, r.profile) == (best[0].dataset, best[0].profile)]
    drawn = report.columns(plan, here, best[0].dataset, best[0].profile)
    head, sentences = outcome(entry, best[0], drawn, lines)
    return (
        f'{light(report.image(dots(drawn)))}<p class="{escape.LITERAL}"><em>The paper’s claim.</em> '
        f"{escape.html(plan.claim)} {escape.html(ran(best[0]))}</p>"
        f'<p class="{escape.LITERAL}"><strong>{escape.html(head)}</strong></p>{listed(sentences) if sentences else ""}'
    )


def ran(each: Evidence) -> str:
    """What was run of a table: ``We ran 6 of its 7 rows on CIFAR-10 with profile laptop, with up to 8 seeds.``"""
    seeds = "one seed" if each.seeds == 1 else f"up to {each.seeds} seeds"
    return (
        f"We ran {each.rows} of its {each.of} rows on {titled(each.dataset)} with profile {each.profile}, with {seeds}."
    )


def of_crosses() -> tuple[Figure, str, str]:
    """Which combinations exist, and which are published."""
    grid = crosses.grid()
    exist, published = int(grid["exists"].sum()), int(grid["published"].sum())
    figure, panel = plt.subplots(figsize=(8, 1.7), layout="constrained")
    left, names = 0, ("published", "possible, not published", "impossible")
    parts = zip(names, (published, exist - published, len(grid) - exist), (ORANGE, BLUE, "0.8"), strict=True)
    for words, count, colour in parts:
        panel.barh(0, count, left=left, color=colour, label=f"{count} {words}")
        left += count
    panel.set(yticks=[], xlim=(0, left), xlabel="combinations, one kind of each of the five choices")
    panel.spines[["top", "right", "left"]].set_visible(False)
    figure.legend(ncols=3, loc="outside upper left", frameon=False)
    figure.set_label(f"Of {len(grid)} combinations, {exist} are possible and {published} are published.")
    said = f"{exist} of {len(grid)} combinations can be computed; the five papers publish {published} of these."
    return figure, said, "Five of the others are trained below, beside their parents."


def of_colour_spaces() -> tuple[Figure, str, str]:
    """What the parts of each colour space, and patches, share by the estimate; pairs of data set and seed are dots."""
    found = pd.DataFrame([row for path in (ROOT / "results/cmc_figure5").glob("*.json") for row in read(path).rows])
    found = found[found["nats"].notna()].astype({"nats": float})
    mean = found.groupby(["kind", "label"])["nats"].mean()
    figure, panels = plt.subplots(1, 2, figsize=(8, 3), layout="constrained", sharex=True)
    titles = {"colours": "a colour space, split in two", "patches": "two patches, d apart"}
    for panel, (kind, title) in zip(panels, titles.items(), strict=True):
        mine = found[found["kind"] == kind]
        order = list(mean[kind].sort_values().index if kind == "colours" else dict.fromkeys(mine["label"]))
        panel.plot(mine["nats"], mine["label"].map(order.index), "o", color=BLUE, markerfacecolor="none")
        panel.plot(mean[kind][order], range(len(order)), "|", color=ORANGE, markersize=16, markeredgewidth=3)
        panel.set_yticks(range(len(order)), order)
        panel.set_title(title, fontsize="medium", loc="left")
        panel.set_xlabel("estimate of the shared information (nats)")
        panel.grid(axis="x", color="0.9")
    colours = mean["colours"]
    said = f"{colours.idxmin()} share least and {colours.idxmax()} most"
    figure.set_label(f"Estimated information of two parts: {said}.")
    note = (
        "A circle is one seed on one of two data sets (profile first), a bar their mean. Accuracies were run at smoke "
        "size only, so no rule about accuracy is tested here."
    )
    return figure, f"By MINE's estimate, {said}.", note


def of_layers() -> tuple[Figure, str, str]:
    """The published sizes of CMC's network for scenes, and how many of them the module has."""
    published = papers.published("cmc", 12).pivot_table(index="row", columns="column", values="value", sort=False)
    network = encoders.build_for(Channels(("L",)), 8, arch="scene", dim=256)[0]
    made = architecture.rows(network, torch.zeros(1, 1, 128, 128))
    wrong = int((published.loc[made.index, made.columns] != made).to_numpy().sum())
    figure, panel = plt.subplots(figsize=(8, 2.6), layout="constrained")
    for x, (layer, row) in enumerate(made.iterrows()):
        side, channels = (int(row[name]) for name in made.columns[:2])
        high = 0.25 + side / 64
        panel.add_patch(plt.Rectangle((x, -high / 2), 0.2 + channels / 900, high, color=BLUE, alpha=0.75))
        panel.annotate(f"{side}² × {channels}", (x, -0.95), fontsize=9)
        panel.annotate(str(layer), (x, 0.8), fontsize=10)
    panel.set(xlim=(-0.1, len(made)), ylim=(-1.1, 1.1))
    panel.set_axis_off()
    figure.set_label("The layers of the module, each with its side and its channels.")
    said = f"{wrong} of {made.size} published numbers differ from those of the module."
    return figure, said, "The picture shows the layers of the module: side² × channels."


def of_settings() -> tuple[Figure, str, str]:
    """The published settings of f-MICL, and which the protocol cannot take over."""
    cells = fmicl_tables.table()
    rows = list(dict.fromkeys(zip(cells["data"], cells["encoder"], strict=True)))
    columns = list(dict.fromkeys(cells["setting"]))
    figure, panel = plt.subplots(figsize=(8, 2.6), layout="constrained")
    for cell in cells.itertuples():
        x, y = columns.index(cell.setting), rows.index((cell.data, cell.encoder))
        panel.add_patch(plt.Rectangle((x - 0.5, y - 0.5), 1, 1, color="0.92" if cell.equal else ORANGE, ec="white"))
        text = f"{cell.printed:g}" if cell.equal else f"{cell.printed:g}\nhere {cell.protocol:g}"
        panel.annotate(text, (x, y), ha="center", va="center", fontsize=9)
    panel.set(xlim=(-0.5, len(columns) - 0.5), ylim=(len(rows) - 0.5, -0.5))
    shown = {
        "1/(2 sigma^2)": "1/2σ²",
        "alpha": "α",
        "mu": "μ",
        "N batch": "batch",
        "k (kNN)": "k of k-NN",
        "epoch": "epochs",
    }
    panel.set_xticks(range(len(columns)), [escape.mathtext(shown.get(name, name)) for name in columns], fontsize=9)
    panel.set_yticks(range(len(rows)), [f"{name}, {arch}" for name, arch in rows], fontsize=9)
    panel.tick_params(length=0, labeltop=True, labelbottom=False)
    panel.spines[:].set_visible(False)
    differ = cells[~cells["equal"]]
    said = f"{len(cells) - len(differ)} of {len(cells)} published settings are those of our protocol."
    figure.set_label(said)
    why = "; ".join(f"{each.data}, {each.setting}: {each.why}" for each in differ.itertuples())
    return figure, said, f"Orange: no run can have worked with the published value ({why})."


def of_epochs() -> tuple[Figure, str, str]:
    """How much longer an epoch with a ring takes, published and measured."""
    plan, pilot = papers.plan("ring", "1"), [r for r in kept() if (r.dataset, r.profile) == ("cifar10", "pilot")]
    cost = epoch_time.epoch_cost(plan, pilot, "cifar10", "pilot")
    figure = tables.epoch_ratios(("cifar10", "pilot", cost))
    figure.axes[0].set_xlim(0.8, 1.8)
    said = " ".join(epoch_time.sentences(cost, "CIFAR-10", "pilot"))
    figure.set_label(said)
    words = "Circles: mean epochs, with a 95 % interval over seeds, cut at the edge. Triangles: fastest epochs."
    return figure, said, f"{words} Dotted: the limit that the paper names."


def of_interpretations() -> tuple[Figure, str, str]:
    """VINCE's Table 3: the best critic, and networks trained by two interpretations of the text."""
    found = vince_table3.stored("paper", [ROOT / "results"])
    marks = {
        "by the answer y₁, as written": (found[vince_table3.WRITTEN], "train"),
        "by the query, as the theorem needs": (found[vince_table3.THEOREM], "train"),
    }
    figure = panels.by_percent(["best critic"], marks, title="Negatives ranked by …")
    verdicts = [vince_table3.verdict(rows) for rows in found.values()]
    estimates = ("train", "infonce", "infonce_population")
    most = max(len(verdict[estimate]) for verdict in verdicts for estimate in estimates)
    count = len(vince_table3.published())
    said = f"No estimate of any interpretation of the text reproduces more than {most} of the {count} rows."
    figure.set_label(f"Bounds of VINCE by the share of the closest negatives, in nats. {said}")
    note = (
        f"We trained {len(found)} interpretations. A row counts where the median over seeds is within a factor of 1.5 "
        "of the published number. Circles: published."
    )
    return figure, said, note


def of_spirals() -> tuple[Figure, str, str]:
    """VINCE's Figure 6: accuracy by noise under each interpretation of the text."""
    found = vince_figure6.stored("paper", [ROOT / "results"])
    figure = panels.by_noise({"paper": found})
    peaks = [vince_figure6.peak(each.rows) for each in found]
    shown = sum(not peak.missing for peak in peaks)
    said = (
        f"Interpretations of the text that show the published peak near η = 0.4: {in_figures(shown)} of {len(found)}."
    )
    figure.set_label(f"Accuracy of a linear classifier on two spirals by the noise of the views. {said}")
    return figure, said, "A marker is a seed, a line their mean, a cross a model that collapsed or diverged."


Drawing = Callable[[], tuple[Figure, str, str]]
"""Draws a picture; returns it, its answer, and how to read it."""
OF_STUDIES: Mapping[str, Drawing] = {
    "nbs/repro_vince_table3.ipynb": of_interpretations,
    "nbs/repro_vince_figure6.ipynb": of_spirals,
}
"""Pictures of notebooks that open with studies of their own, for the page of the paper."""
WITHOUT_A_TABLE: Mapping[str, Drawing] = {
    "nbs/crosses.ipynb": of_crosses,
    "nbs/repro_cmc_figure5.ipynb": of_colour_spaces,
    "nbs/repro_cmc_architectures.ipynb": of_layers,
    "nbs/repro_fmicl_table7.ipynb": of_settings,
    "nbs/repro_ring_table5.ipynb": of_epochs,
}
"""Pictures of notebooks for which no table of encoders is stored, each with the answer, and how to read the picture."""


def opening(notebook: str) -> str:
    """What stands above a notebook: the picture of each of its tables that was measured, or one of its own."""
    entries = [e for e in papers.catalogue() if e.notebook == notebook]
    shown = "".join(pictured(entry, kept(), claims(entry.paper)) for entry in entries)
    return shown or other_picture(notebook, WITHOUT_A_TABLE)


def other_picture(notebook: str, drawings: Mapping[str, Drawing]) -> str:
    """The picture that ``drawings`` has of a notebook, with its answer and how to read it; empty where it has none."""
    if notebook not in drawings:
        return ""
    figure, said, note = drawings[notebook]()
    plt.close(figure)
    words = f"<strong>{escape.html(said)}</strong> {escape.html(note)}"
    return f'{light(report.image(figure))}<p class="{escape.LITERAL}">{words}</p>'


def reports(plan: TablePlan, stored: Sequence[Result]) -> Iterator[tuple[tuple[Report, ...], int, list[Result]]]:
    """What is stored for a table, whichever table it was first run for: a report a column, rows, and their results."""
    for dataset, profile in sorted({(r.dataset, r.profile) for r in stored}):
        if data.modality_of(dataset) not in plan.modalities:
            continue
        tasks = {column.task for column in plan.select(dataset).values()}
        here = [r for r in stored if (r.dataset, r.profile) == (dataset, profile) and r.task in tasks]
        each = report.columns(plan, here, dataset, profile)
        shown = {row.method for page in each for row in page.rows if row.measured}
        count = len(shown & set(plan.rows))
        if count:
            yield each, count, [r for r in here if r.method in shown]


def listed(sentences: Iterable[str]) -> str:
    """Sentences as a list."""
    return f'<ul class="{escape.LITERAL}">{"".join(f"<li>{escape.html(line)}</li>" for line in sentences)}</ul>'


def every(entry: Entry, stored: Sequence[Result]) -> str:
    """All that is stored of a table, folded: a table for each data set and profile, curves, and where it comes from."""
    if (entry.paper, entry.table) not in papers.plans():
        return ""
    plan, parts = papers.plan(entry.paper, entry.table), []
    for (page, *further), count, here in reports(plan, stored):
        if 2 * count < len(plan.rows) and all(r.table != entry.name for r in here):
            continue  # a few rows that another table has, too
        more = "".join(each.html() + listed(each.findings) for each in further)
        curves = learning_curves(plan, evidence.curves.frame(plan, page.column, here, page.profile))
        drawn = "" if curves is None else light(report.image(curves))
        sentences = [*page.findings, f"Where it comes from: {report.origin(here)}"]
        parts.append(f"{page.html()}{listed(sentences)}{more}{drawn}")
    head = f"All that is stored for {escape.html(plan.heading)}, by data set and profile: {len(parts)}"
    return f"<details><summary>{head}</summary>{''.join(parts)}</details>" if parts else ""


def show(paper: str, stored: Iterable[Result] | None = None) -> str:
    """All notebooks of a paper's tables, in HTML: first those with something measured, then the rest as a list.

    ``stored``: by default all that the project keeps.
    """
    mine = list(kept() if stored is None else stored)
    lines = claims(paper) if stored is None else of_claims(paper, mine)
    with_picture, without = [], []
    for notebook, entries in of_paper(paper).items():
        link = f'<a href="../{escape.html(notebook[:-6])}.html">{escape.html(name(entries))}</a>'
        line = f"{link}. {escape.html(headline(notebook))}"
        picture = next(filter(None, (pictured(entry, mine, lines) for entry in entries)), "")
        picture = picture or other_picture(notebook, WITHOUT_A_TABLE | OF_STUDIES)
        whole = "".join(every(entry, mine) for entry in entries)
        (with_picture if picture else without).append(
            f"<p>{line}</p>{picture}{whole}" if picture else f"<li>{line}</li>"
        )
    rest = "We have not trained these tables yet; their notebooks only check that the code runs:"
    shown = "".join(f"<section>{part}</section>" for part in with_picture)
    more = f"<p>{rest}</p><ul>{''.join(without)}</ul>" if without else ""
    return f'<div class="paper-tables {escape.LITERAL}">{shown}{more}</div>'


def chip(verdict: str, words: str) -> str:
    """A verdict in its colour, in HTML."""
    kind = re.sub("[^a-z]+", "-", verdict)
    return f'<b class="verdict {kind}">{escape.html(words)}</b>'


def chips(lines: pd.DataFrame) -> str:
    """How many of some lines of :func:`claims` have which verdict, in HTML."""
    return " ".join(chip(verdict, f"{count} {verdict}") for verdict, count in verdicts(lines).items())


def findings(lines: pd.DataFrame) -> str:
    """A line for each paper: what was measured of the differences that it is known for, with the verdict, in HTML."""
    items = []
    for paper in dict.fromkeys(headline.paper for headline in evidence.headlines.HEADLINES):
        own = lines[(lines["paper"] == paper) & (lines["stands_for"] == "")]
        parts = [] if set(own["verdict"]) - set(OPEN) else ["Nothing is decided on the paper’s own data.<br>"]
        for headline in (each for each in evidence.headlines.HEADLINES if each.paper == paper):
            line = evidence.headlines.line_of(headline, lines)
            parts.append(escape.html(evidence.headlines.sentence(headline, line)))
            if line is not None:
                where = escape.html(evidence.headlines.place(line))
                parts.append(f"{chip(line['verdict'], line['verdict'])} <small>{where}</small><br>")
        items.append(f"<dt>{NAMES[paper]}</dt><dd>{' '.join(parts).removesuffix('<br>')}</dd>")
    return f'<dl class="findings {escape.LITERAL}">{"".join(items)}</dl>'


def matrix(stored: Sequence[Result], lines: pd.DataFrame, others: Mapping[str, Mapping[str, str]] | None = None) -> str:
    """Every published table and figure: the best run of it with the verdicts on its claims, and the rest folded.

    ``others`` maps the name of a table and a profile to a line, for what is stored as no result of an encoder.
    """
    body, none = [], []
    for entry in papers.catalogue():
        mine = lines[(lines["paper"] == entry.paper) & (lines["table"] == entry.table)]
        runs = []
        for each in report.best_first(report.evidence(entry, stored)):
            here = mine[(mine["dataset"] == each.dataset) & (mine["profile"] == each.profile)]
            runs.append(f"{escape.html(_run(each))} {chips(here)}")
        for profile, words in (others or {}).get(entry.name, {}).items():
            runs.append(escape.html(f"{words}, {profile}"))
        link = escape.html(entry.name)
        if entry.notebook:
            link = f'<a href="../{escape.html(entry.notebook[:-6])}.html">{link}</a>'
        if not runs:
            none.append(link)
            continue
        first, *rest = runs
        listed_rest = "".join(f"<li>{run}</li>" for run in rest)
        more = f"<details><summary>and {len(rest)} more</summary><ul>{listed_rest}</ul></details>" if rest else ""
        body.append(f'<tr><th scope="row">{link}</th><td>{first}{more}</td></tr>')
    head = '<th scope="col">table</th><th scope="col">what was run, and the verdicts on its claims</th>'
    return (
        f'<div class="{escape.LITERAL}"><table class="evidence"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table>"
        f"<p>At smoke size only, or with nothing to train: {', '.join(none)}.</p></div>"
    )


def _run(each: Evidence) -> str:
    """``26 of 26 rows, 8 seeds, tuned, CIFAR-10``."""
    seeds = f"{each.seeds} seed{'s' if each.seeds > 1 else ''}"
    on = evidence.headlines.DATA.get(each.dataset, each.dataset)
    return f"{each.rows} of {each.of} rows, {seeds}, {each.profile}, {on}"
