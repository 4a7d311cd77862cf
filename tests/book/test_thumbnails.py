"""A stamp shows the points of its figure, and cards lead where they say."""

import base64
import io
import re
from xml.etree import ElementTree

import numpy as np
import plotly.graph_objects as go
import pytest
from PIL import Image

from contrastbook import figures
from contrastbook.figures.thumbnails import cards, thumbnail
from contrastlab.support.errors import ArgumentError


def pixels(figure: go.Figure) -> np.ndarray:
    """Of the stamp, in grey: 0 is black."""
    data = re.search(r"base64,([^\"]+)", thumbnail(figure, "a stamp"))[1]  # type: ignore[index]
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("L"))


def test_a_curve_lies_where_its_axes_say() -> None:
    figure = go.Figure(go.Scatter(x=[1, 10, 100], y=[-1, 1, 1], mode="lines"))
    plain = pixels(figure)
    height, width = plain.shape
    assert (plain < 99)[: height // 10, width // 4 : width // 3].any()  # steep where the axis is linear
    scaled = pixels(figure.update_layout(xaxis_type="log", yaxis_range=[-3, 1]))
    assert not (scaled < 99)[height * 2 // 3 :].any()
    assert not (scaled < 99)[: height // 10, width // 4 : width // 3].any()
    assert (scaled < 99)[: height // 10, width * 2 // 3 :].any()


def test_bars_have_their_heights_maps_keep_their_colours_and_pies_are_refused() -> None:
    dark = pixels(go.Figure(go.Bar(x=[0, 1], y=[1, 2], marker_color="#000000"))) < 99
    low, high = (half.sum(0).max() for half in np.array_split(dark, 2, axis=1))
    assert high == pytest.approx(2 * low, rel=0.03)
    scale = [[0, "rgb(255,255,255)"], [1, "rgb(0,0,0)"]]
    grey = pixels(go.Figure(go.Heatmap(x=[0, 1], y=[0, 1], z=[[0, 1], [1, 0]], colorscale=scale)))
    middle = grey[:, grey.shape[1] // 2 - 40 : grey.shape[1] // 2 + 40]
    upper, lower = np.array_split(middle, 2)
    assert (upper[60, 10], upper[60, -10], lower[60, 10], lower[60, -10]) == (255, 0, 0, 255)
    with pytest.raises(ArgumentError, match="heatmap"):
        thumbnail(go.Figure(go.Pie(values=[1, 2])), "a pie")


def test_cards_lead_to_their_pages_and_escape_their_words() -> None:
    page = cards([("ring.html", "<Ring> & ball", "see", "turn", figures.joint(strength=1))])
    card = ElementTree.fromstring(re.sub(r"(<img[^>]*)>", r"\1/>", page)).find("a")
    assert card is not None
    assert card.get("href") == "ring.html"
    assert card.findtext("strong") == "<Ring> & ball"
    assert card.find(".//img").get("alt") == "A figure of the chapter: <Ring> & ball"  # type: ignore[union-attr]
