"""Generated data sets reach ``data.load`` through the entry point group that any package may use."""

import pytest

from contrastbook.made import SOURCES
from contrastlab import data
from contrastlab.data import Source
from contrastlab.domains import sets
from contrastlab.support.errors import UnknownNameError


class Entry:
    """An entry point of another package."""

    def load(self) -> dict[str, Source]:
        return {"zeros": Source("clip", lambda request: data.load("digits", n_test=1)), "digits": Source("clip", None)}


def test_generated_sets_are_registered_and_another_package_adds_its_own(monkeypatch) -> None:
    assert set(SOURCES) <= set(data.names())
    kinds = {"image", "annotated image", "clip", "scene", "sentence", "captioned image", "waveform"}
    assert {data.modality_of(name) for name in SOURCES} == kinds
    monkeypatch.setattr(sets, "entry_points", lambda group: [Entry()] if group == "contrastlab.data" else [])
    sets._sources.cache_clear()
    try:
        assert "zeros" in data.names()
        assert "shapes" not in data.names()
        assert (data.modality_of("zeros"), data.modality_of("digits")) == ("clip", "image")
        assert len(data.load("zeros").test) == 1
        with pytest.raises(UnknownNameError, match="unknown data set 'shapes'"):
            data.load("shapes")
    finally:
        sets._sources.cache_clear()
