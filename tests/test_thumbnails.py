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
from contrastbook.figures.thumbnails import EDGE, HEIGHT, WIDTH, cards, thumbnail
from contrastlab.errors import ArgumentError

NAME = "{http://www.w3.org/2000/svg}"


def places(svg: str) -> list[tuple[float, float]]:
    line = ElementTree.fromstring(svg).find(f".//{NAME}polyline")
    return [tuple(map(float, point.split(","))) for point in line.get("points").split()]  # type: ignore[union-attr,misc]


def test_a_curve_goes_from_corner_to_corner_of_the_stated_ranges() -> None:
    assert places(thumbnail(go.Figure(go.Scatter(x=[0, 1, 2], y=[3, 4, 5], mode="lines")), "a line")) == [
        (EDGE, HEIGHT - EDGE), (WIDTH / 2, HEIGHT / 2), (WIDTH - EDGE, EDGE)
    ]  # fmt: skip
    figure = go.Figure(go.Scatter(x=[1, 10, 100], y=[0, 1, 1], mode="lines"))
    figure.update_layout(xaxis_type="log", yaxis_range=[-1, 1])
    (_, first), (middle, _), _ = places(thumbnail(figure, "a line"))
    assert middle == WIDTH / 2
    assert first == HEIGHT / 2


def test_bars_stand_on_the_floor_maps_keep_their_colours_and_pies_are_refused() -> None:
    svg = thumbnail(go.Figure(go.Bar(x=[0, 1], y=[1, 2], marker_color="#D55E00")), "bars")
    bars = [r for r in ElementTree.fromstring(svg).iter(f"{NAME}rect") if r.get("fill")]
    assert [float(r.get("y")) + float(r.get("height")) for r in bars] == [HEIGHT - EDGE] * 2  # type: ignore[arg-type]
    heights = [float(r.get("height")) for r in bars]  # type: ignore[arg-type]
    assert heights[1] == 2 * heights[0] == HEIGHT - 2 * EDGE
    scale = [[0, "rgb(255,255,255)"], [1, "rgb(0,0,0)"]]
    svg = thumbnail(go.Figure(go.Heatmap(z=[[0, 1], [1, 0]], colorscale=scale)), "a map")
    data = re.search(r"base64,([^\"]+)", svg)[1]  # type: ignore[index]
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(data))))
    np.testing.assert_array_equal(pixels[..., 0], [[255, 0], [0, 255]])
    with pytest.raises(ArgumentError, match="heatmap"):
        thumbnail(go.Figure(go.Pie(values=[1, 2])), "a pie")


def test_cards_lead_to_their_pages_and_escape_their_words() -> None:
    page = cards([("ring.html", "<Ring> & ball", "see", "turn", figures.joint(strength=1))])
    tree = ElementTree.fromstring(page)
    card = tree.find("a")
    assert card is not None
    assert card.get("href") == "ring.html"
    assert card.findtext("strong") == "<Ring> & ball"
    assert card.find(f".//{NAME}svg") is not None
    page = cards([(f"{k}.html", "t", "s", "k", figures.joint(strength=k)) for k in (1, 2)])
    names = re.findall(r'id="([^"]+)"', page)
    assert len(names) == len(set(names)) == 2
