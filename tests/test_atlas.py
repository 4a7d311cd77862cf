"""The atlas shows every method, with the numbers of its own rows only."""

from __future__ import annotations

from pathlib import Path

import pytest

from contrastlab import atlas, methods, papers, results
from contrastlab.errors import UnknownNameError

STORED = results.find(Path(__file__).parents[1] / "results")


def test_the_grid_has_every_method_once() -> None:
    assert tuple(atlas.grid().index) == methods.names()
    assert list(atlas.grid("jcl").loc["jcl/jcl", ["keys", "positives", "objective"]]) == ["Queue", "Joint", "InfoNCE"]


@pytest.mark.parametrize("name", methods.names())
def test_a_card_has_equation_parts_and_a_command_where_there_is_a_table(name) -> None:
    card = atlas.card(name, STORED)
    assert methods.get(name).equation in card
    assert card.count("| views |") == 1
    tables = [p for p in papers.plans() if name in papers.plan(*p).rows]
    assert ("python -m contrastlab run" in card) == bool(tables)


def test_numbers_are_those_of_the_method() -> None:
    frame = atlas.numbers("ring/iring", STORED)
    printed = frame[frame["published"].notna()].set_index(["table", "data set"])["published"]
    assert printed["ring Table 1", "cifar10"] == papers.plan("ring", 1).published_value("cifar10", "ring/iring")
    measured = frame[frame["measured"].notna()]
    mine = [r.metrics["linear"] for r in STORED if r.method == "ring/iring" and r.table == "1"]
    assert measured["measured"].iloc[0] == pytest.approx(sum(mine) / len(mine))
    assert measured["seeds"].iloc[0] == len(mine)


def test_an_unknown_method_is_named() -> None:
    with pytest.raises(UnknownNameError, match="did you mean ring/iring"):
        atlas.card("ring/irng")
