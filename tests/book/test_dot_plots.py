"""Dot plots of a table's rows: which dots are filled, which bars are dotted, where published numbers and labels are."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from contrastbook.figures import dot_plots
from contrastlab.tables import report
from contrastlab.tables.results import Result
from test_report import FULL, PLAN, result

BOTH_RINGS = ("ring/ir", "ring/iring")


def drawn(stored: Sequence[Result], profile: str) -> Figure:
    return dot_plots.of_rows([report.table(PLAN, stored, "cifar10", profile)])


def with_marker(axes: Axes, marker: str) -> list[Any]:
    return [line for line in axes.lines if line.get_marker() == marker]


def blue_lines(axes: Axes) -> list[Any]:
    return [line for line in with_marker(axes, "None") if line.get_color() == dot_plots.BLUE]


def names(axes: Axes) -> list[str]:
    return [label.get_text() for label in axes.get_yticklabels()]


def of_laptop(seeds: int) -> list[Result]:
    """A random encoder, IR and IRing on CIFAR-10 at profile laptop."""
    values = {"ours/random": 40.0, "ring/ir": 80.0, "ring/iring": 30.0}
    return [
        result(method, seed, value + seed, profile="laptop")
        for method, value in values.items()
        for seed in range(seeds)
    ]


def test_published_numbers_have_a_panel_of_their_own_unless_they_may_be_compared() -> None:
    published = [PLAN.published_value("cifar10", row) for row in BOTH_RINGS]
    apart, measured = drawn(of_laptop(8), "laptop").axes
    assert apart.get_title(loc="left") == "published, on a scale of its own"
    assert apart.lines[0].get_xdata().tolist() == published
    assert with_marker(measured, "D") == []

    (together,) = drawn(FULL, "paper").axes
    assert [line.get_xdata()[0] for line in with_marker(together, "D")] == published


def test_a_dot_is_filled_if_its_row_is_above_the_floor_which_is_the_dashed_line() -> None:
    left, measured = drawn(of_laptop(3), "laptop").axes
    assert names(left) == ["IR", "IRing", "random encoder"]
    colours = {dot.get_ydata()[0]: dot.get_markerfacecolor() for dot in with_marker(measured, "o")}
    assert colours == {0: dot_plots.BLUE, 1: "white", 2: "white"}
    (floor,) = [line for line in measured.lines if line.get_linestyle() == "--"]
    assert floor.get_xdata()[0] == 41.0


def test_a_bar_is_dotted_below_three_seeds() -> None:
    for seeds, style in {1: ":", 2: ":", 3: "-"}.items():
        _, measured = drawn(of_laptop(seeds), "laptop").axes
        assert [bar.get_linestyle() for bar in blue_lines(measured)] == [style] * 3


def test_several_columns_share_rows_and_an_axis_label() -> None:
    both = report.table(PLAN, FULL, "cifar10", "paper")
    figure = dot_plots.of_rows([both, both])
    assert figure.get_supxlabel() == "linear accuracy (% of test images)"
    left, right = figure.axes
    assert left.get_xlabel() == right.get_xlabel() == ""
    assert names(left) == ["IR", "IRing", "random encoder"]
    assert [len(with_marker(panel, "o")) for panel in figure.axes] == [3, 3]


def test_several_columns_have_no_panel_of_published_numbers() -> None:
    one = report.table(PLAN, of_laptop(3), "cifar10", "laptop")
    assert [len(with_marker(panel, "D")) for panel in dot_plots.of_rows([one, one]).axes] == [0, 0]


def test_a_row_that_a_later_column_alone_has_is_drawn_below_the_others() -> None:
    first, second = (report.table(PLAN, FULL, "cifar10", "paper") for _ in range(2))
    foreign = replace(first.rows[0], method="foreign", label="from elsewhere", published=None)
    second = replace(second, rows=(*second.rows, foreign))
    left, right = dot_plots.of_rows([first, second]).axes
    assert names(left) == ["IR", "IRing", "random encoder", "from elsewhere"]
    assert [len(with_marker(panel, "o")) for panel in (left, right)] == [3, 4]


def test_what_is_drawn_is_said_in_words_to_those_who_do_not_see_it() -> None:
    said = drawn(FULL, "paper").get_label()
    assert said.startswith("Dot plot of ring Table 1, profile paper. cifar10: IR 81.33 ± 3.79")
    assert "IRing 84.17 ± " in said
