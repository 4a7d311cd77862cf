"""The protocols of fmicl's tables have the settings that its Table 7 prints."""

import pytest

from contrastbook.studies import fmicl_tables
from contrastlab import papers

NUMBERS = papers.published("fmicl", 7)


def test_every_printed_cell_is_looked_up() -> None:
    assert len(fmicl_tables.table()) == len(NUMBERS)
    assert set(NUMBERS["row"]) == set(fmicl_tables.PLACES)
    assert set(NUMBERS["column"]) == set(fmicl_tables.COLUMNS)


@pytest.mark.parametrize(
    "cell", list(fmicl_tables.table().itertuples(index=False)), ids=lambda c: f"{c.data}, {c.setting}"
)
def test_a_protocol_has_what_is_printed_or_a_reason(cell) -> None:
    assert cell.equal == (cell.why == ""), f"{cell.printed} is printed, {cell.protocol} is here"


# fmicl §4.1 says that its ViT-S has 6 blocks
ENCODERS = {"ResNet-18": "resnet18", "ResNet-50": "resnet50", "ViT-S": "vit_small_6", "BERT-base": "bert-base-uncased"}


def test_protocols_have_the_printed_encoders() -> None:
    for data, note in NUMBERS[["row", "note"]].drop_duplicates().itertuples(index=False):
        number, dataset, method = fmicl_tables.PLACES[data]
        settings = papers.plan("fmicl", number).settings(dataset, method)
        assert (settings.text.model or settings.arch) == ENCODERS[note.removeprefix("arch ")], data
