"""The atlas shows every method, with the numbers of its own rows only."""

from pathlib import Path

import pytest

from contrastbook.figures import atlas
from contrastlab import __main__, methods, papers, reproduce, results

STORED = results.find(Path(__file__).parents[1] / "results")


def test_the_grid_has_every_method_once() -> None:
    assert tuple(atlas.grid().index) == methods.names()
    assert list(atlas.grid("jcl").loc["jcl/jcl", ["keys", "positives", "objective"]]) == ["Queue", "Joint", "InfoNCE"]


def test_the_grid_can_be_filtered_by_what_methods_are_trained_on() -> None:
    shown = atlas.grid()["data"]
    assert shown["fmicl/sentences_infonce"] == "sentence"
    assert shown["fmicl/kl"] == "image, sentence"
    assert shown["ring/mocoring"] == "image, waveform"
    assert shown["jcl/jcl"].startswith("image")
    assert shown["ours/random"] == "any"
    assert '<th scope="col">data</th>' in atlas.table()


@pytest.mark.parametrize("name", methods.names())
def test_a_card_has_equation_parts_and_a_command_where_there_is_a_table(name) -> None:
    card = atlas.card(name, STORED)
    assert methods.get(name).equation in card
    assert card.count("| views |") == 1
    tables = [p for p in papers.plans() if name in papers.plan(*p).rows]
    assert card.count("python -m contrastlab run") == len(tables)


@pytest.mark.parametrize("name", methods.names())
def test_a_command_is_understood(name) -> None:
    for command in atlas.commands(name):
        words = command.replace("\\\n", " ").split()[3:]
        chosen = __main__._parser().parse_args(words)
        plan = papers.plan(*reproduce.parse_target(chosen.table))
        (row,) = plan.resolve_all(chosen.rows)
        assert row == name
        plan.settings(chosen.dataset, row)


def test_neighbours_differ_in_one_choice() -> None:
    near = atlas.neighbours("ring/iring")
    assert "ring/ir" in near["negatives"]
    for choice, names in near.items():
        for name in names:
            one, other = methods.get("ring/iring"), methods.get(name)
            same = [one.choices()[c] == other.choices()[c] for c in one.choices()] + [
                one.temperature == other.temperature
            ]
            assert same.count(False) == 1, (choice, name)
            assert "ring/iring" in atlas.neighbours(name)[choice]


def test_the_table_leads_to_every_card() -> None:
    html = atlas.table()
    anchors = [atlas.anchor(name) for name in methods.names()]
    assert len(set(anchors)) == len(anchors)
    assert all(f'href="#{anchor}"' in html for anchor in anchors)


def test_numbers_are_those_of_the_method() -> None:
    frame = atlas.numbers("ring/iring", STORED)
    printed = frame[frame["published"].notna()].set_index(["table", "data set"])["published"]
    value = papers.plan("ring", 1).published_value("cifar10", "ring/iring")
    assert set(printed.loc[("ring Table 1", "cifar10")]) == {value}  # a line for each profile that is stored
    measured = frame[frame["measured"].notna()]
    wanted = ("ring/iring", "linear", "cifar10", "pilot")
    mine = [r.metrics["linear"] for r in STORED if (r.method, r.task, r.dataset, r.profile) == wanted]
    assert len(mine) == 2
    (line,) = measured.query("table == 'ring Table 1' and profile == 'pilot'").to_dict("records")
    assert line["measured"] == pytest.approx(sum(mine) / len(mine))
    assert line["seeds"] == len(mine)
