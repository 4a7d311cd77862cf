"""Answers of notebooks without a table of encoders: the sentence is that of the numbers, and the picture shows them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import gallery
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import same_color

from contrastbook.figures import answers
from contrastbook.figures.base import ORANGE
from contrastbook.studies import Study, fmicl_tables, vince_figure6, vince_table3
from contrastlab import papers

RESULTS = Path(__file__).parents[2] / "results"


def test_a_picture_is_of_a_notebook_of_a_paper_or_of_crosses() -> None:
    notebooks = {entry.notebook for entry in papers.catalogue()} | {"nbs/crosses.ipynb"}
    assert {*gallery.WITHOUT_A_TABLE, *gallery.OF_STUDIES} <= notebooks


def test_combinations_are_counted_once_each() -> None:
    grid = pd.DataFrame({"exists": [True, True, True, False], "published": [True, False, False, False]})
    answer = answers.combinations(grid)
    assert answer.sentence.startswith("3 of 4 combinations can be computed; the five papers publish 1 of these.")
    (axes,) = answer.figure.axes
    widths = {str(bar.get_label()): bar.patches[0].get_width() for bar in axes.containers}
    assert widths == {"1 published": 1, "2 possible, not published": 2, "1 impossible": 1}


def names(axes: Axes) -> list[str]:
    return [label.get_text() for label in axes.get_yticklabels()]


def test_shared_information_has_a_circle_for_each_seed_and_a_bar_for_each_mean() -> None:
    def row(kind: str, label: str, nats: float | None) -> dict[str, Any]:
        return {"kind": kind, "label": label, "nats": nats}

    first = [row("colours", "RGB", 3.0), row("colours", "Lab", 6.0), row("patches", "d = 8", 2.0)]
    second = [row("colours", "RGB", 5.0), row("colours", "Lab", None), row("patches", "d = 4", 4.0)]
    studies = [Study(study="s", profile="smoke", config={}, rows=rows, provenance={}) for rows in (first, second)]
    answer = answers.shared_information(studies)
    assert answer.sentence == "By MINE's estimate, RGB share least and Lab most."
    colours, patches = answer.figure.axes
    assert names(colours) == ["RGB", "Lab"]  # by their mean
    assert names(patches) == ["d = 8", "d = 4"]  # as they are stored
    circles, means = colours.lines
    places = zip(circles.get_ydata(), circles.get_xdata(), strict=True)
    assert sorted(places) == [(0, 3.0), (0, 5.0), (1, 6.0)]
    assert list(means.get_xdata()) == [4.0, 6.0]


def test_layers_of_the_scene_network_are_those_published() -> None:
    answer = answers.scene_network()
    published = papers.published("cmc", 12)
    layers = published[published["row"] != "data"]
    assert answer.sentence == f"0 of {len(layers)} published numbers differ from those of the module."
    (axes,) = answer.figure.axes
    assert len(axes.patches) == layers["row"].nunique()


def test_a_setting_that_no_run_can_have_is_orange_with_its_reason() -> None:
    cells = fmicl_tables.table()
    answer = answers.fmicl_settings(cells)
    equal = int(cells["equal"].sum())
    assert answer.sentence == f"{equal} of {len(cells)} published settings are those of our protocol."
    (axes,) = answer.figure.axes
    orange = [text.get_text() for text, box in zip(axes.texts, axes.patches, strict=True) if is_orange(box)]
    (different,) = cells[~cells["equal"]].itertuples()
    assert orange == [f"{different.printed:g}\nhere {different.protocol:g}"]
    assert f"({different.data}, {different.setting}: {different.why})." in answer.note


def is_orange(patch: Any) -> bool:
    return bool(same_color(patch.get_facecolor(), ORANGE))


def test_epochs_of_rings_have_the_sentences_of_their_study() -> None:
    answer = answers.ring_epochs(gallery.kept())
    assert answer.sentence.startswith("CIFAR-10, profile pilot: IRing costs ")
    assert answer.figure.get_label() == answer.sentence
    assert answer.figure.axes[0].get_xlim() == (0.8, 1.8)


def test_no_interpretation_of_table_3_reproduces_more_rows_than_is_said() -> None:
    by_reading = vince_table3.stored("paper", [RESULTS])
    answer = answers.hard_negatives(by_reading)
    published = vince_table3.published()["value"]
    most = 0
    for study in by_reading.values():
        for number in ("train", "infonce", "infonce_population"):
            ratios = vince_table3.summary(study, number)["median"] / published
            within = ratios.between(1 / 1.5, 1.5, inclusive="neither")
            most = max(most, int(within.sum()))
    assert f"reproduces more than {most} of the {len(published)} rows." in answer.sentence
    assert f"We trained {len(by_reading)} interpretations." in answer.note


def test_interpretations_that_show_the_published_peak_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = vince_figure6.stored("paper", [RESULTS])[:3]
    found = vince_figure6.peak(stored[0].rows)
    flat = replace(found, missing=("no separation",))
    peaks = iter([flat, replace(found, missing=()), flat])
    monkeypatch.setattr(vince_figure6, "peak", lambda rows: next(peaks))
    assert answers.noisy_spirals(stored).sentence.endswith("near η = 0.4: one of 3.")
