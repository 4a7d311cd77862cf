"""The protocols of fmicl's tables have the settings that its Table 7 prints."""

import pytest

from contrastbook.studies import fmicl_tables
from contrastlab import papers

NUMBERS = papers.published("fmicl", 7)


def test_every_printed_cell_is_looked_up_and_every_encoder_is_here() -> None:
    assert len(fmicl_tables.table()) == len(NUMBERS)
    assert set(NUMBERS["row"]) == set(fmicl_tables.PLACES)
    assert set(NUMBERS["column"]) == set(fmicl_tables.COLUMNS)
    for data, note in NUMBERS[["row", "note"]].drop_duplicates().itertuples(index=False):
        assert fmicl_tables.encoder(data) in fmicl_tables.ARCHITECTURES[note.removeprefix("arch ")], data


@pytest.mark.parametrize(
    "cell", list(fmicl_tables.table().itertuples(index=False)), ids=lambda c: f"{c.data}, {c.setting}"
)
def test_a_protocol_has_what_is_printed_or_a_reason(cell) -> None:
    assert cell.equal == (cell.why == ""), f"{cell.printed} is printed, {cell.protocol} is here"
