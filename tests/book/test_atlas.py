"""The atlas shows every method, with the numbers of its own rows only."""

import argparse
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from contrastbook.figures import atlas
from contrastlab import __main__, methods, papers
from contrastlab.tables import results
from made_runs import one_of_each_kind, part_types

STORED = results.find(Path(__file__).parents[2] / "results")


def test_the_grid_and_its_table_have_every_method_once() -> None:
    assert tuple(atlas.grid().index) == methods.names()
    assert list(atlas.grid("jcl").loc["jcl/jcl", ["keys", "positives", "objective"]]) == ["Queue", "Joint", "InfoNCE"]
    html = atlas.table()
    anchors = [atlas.anchor(name) for name in methods.names()]
    assert len(set(anchors)) == len(anchors)
    assert all(f'href="#{anchor}"' in html for anchor in anchors)


def test_the_tables_of_the_papers_have_every_method_once_between_them() -> None:
    tables = "".join(atlas.table(paper) for paper in (*papers.PAPERS, "ours"))
    assert tables.count('<th scope="row">') == len(methods.names())
    assert all(f'href="#{atlas.anchor(name)}"' in tables for name in methods.names())


def test_the_grid_can_be_filtered_by_what_methods_are_trained_on() -> None:
    shown = atlas.grid()["data"]
    assert shown["fmicl/sentences_infonce"] == "sentence"
    assert shown["fmicl/kl"] == "image, sentence"
    assert shown["ring/mocoring"] == "image, waveform"
    assert shown["jcl/jcl"].startswith("image")
    assert shown["ours/random"] == "any"
    assert '<th scope="col">data</th>' in atlas.table()


@cache
def parser() -> argparse.ArgumentParser:
    """That of the command line."""
    return __main__._parser()


@pytest.mark.parametrize("name", one_of_each_kind({name: part_types(methods.get(name)) for name in methods.names()}))
def test_a_card_has_equation_parts_and_a_command_that_is_understood(name) -> None:
    card = atlas.card(name, STORED)
    assert methods.get(name).equation in card
    assert card.count("| views |") == 1
    tables = [p for p in papers.plans() if name in papers.plan(*p).rows]
    assert card.count("python -m contrastlab run") == len(tables)
    for command in atlas.commands(name):
        chosen = parser().parse_args(command.replace("\\\n", " ").split()[3:])
        plan = papers.plan(*papers.parse_target(chosen.table))
        (row,) = plan.resolve_all(chosen.rows)
        assert row == name
        plan.settings(chosen.dataset, row)


def test_neighbours_differ_in_one_choice() -> None:
    near = atlas.neighbours("ring/iring")
    assert "ring/ir" in near["negatives"]
    for choice, names in near.items():
        for name in names:
            one, other = methods.get("ring/iring"), methods.get(name)
            differ = [c for c in one.choices() if one.choices()[c] != other.choices()[c]]
            assert len(differ) + (one.temperature != other.temperature) == 1, (choice, name)
            assert "ring/iring" in atlas.neighbours(name)[choice]


def test_numbers_are_those_of_the_method() -> None:
    frame = atlas.numbers("ring/iring", STORED)
    printed = frame[frame["published"].notna()].set_index(["table", "data set"])["published"]
    value = papers.plan("ring", 1).published_value("cifar10", "ring/iring")
    assert set(printed.loc[("ring Table 1", "cifar10")]) == {value}  # a line for each profile that is stored
    wanted = ("ring/iring", "linear", "cifar10", "pilot")
    mine = [r.metrics["linear"] for r in STORED if (r.method, r.task, r.dataset, r.profile) == wanted]
    assert len(mine) == 2
    (line,) = frame.query("table == 'ring Table 1' and profile == 'pilot' and measured.notna()").to_dict("records")
    assert line["measured"] == pytest.approx(sum(mine) / len(mine))
    assert line["seeds"] == len(mine)


def test_the_flow_names_every_part_once_with_the_methods_that_have_it() -> None:
    figure = atlas.flow("ring/iring")
    (axes,) = figure.axes
    shown = {name: methods.get(name).choices() for name in methods.names()}
    choices = [tick.get_text() for tick in axes.get_xticklabels()]
    assert choices == list(shown["ring/iring"])
    for column, choice in enumerate(choices):
        words = [text.get_text().split() for text in axes.texts if text.get_position()[0] == column]
        counts = {part: int(count) for part, count in words}
        assert sum(counts.values()) == len(shown)
        assert len(counts) == len(words)
        for part, count in counts.items():
            assert count == sum(type(each[choice]).__name__ == part for each in shown.values() if each[choice]) or (
                part == "none" and count == sum(each[choice] is None for each in shown.values())
            )
    boxes = sorted((patch.get_x(), patch.get_y(), patch.get_height()) for patch in axes.patches)
    for (x, y, height), (next_x, next_y, _) in pairwise(boxes):
        assert next_x > x or next_y > y + height  # no box covers another
