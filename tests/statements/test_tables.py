"""What the papers say of their own tables, counted from the tables as transcribed.

``count_<paper>.py`` has a function for each sentence; ``counting`` says what it returns.
"""

from importlib import import_module

import pytest
from counting import COUNTS

from contrastbook import ledger

for paper in ledger.papers():
    import_module(f"count_{paper}")


@pytest.mark.parametrize("name", [entry.name for entry in ledger.statements() if entry.how == "counted"])
def test_counted(name, stated):
    paper, key = name.split("/")
    count = COUNTS[name]()
    assert bool(count.as_printed) == (ledger._texts(paper)[key]["verdict"] == "holds")
    assert count.as_corrected
    stated(name, **{k: v if isinstance(v, str | int) else round(float(v), 6) for k, v in count.numbers.items()})


def test_every_counted_statement_is_counted():
    assert set(COUNTS) == {entry.name for entry in ledger.statements() if entry.how == "counted"}
