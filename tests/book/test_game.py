"""The game of the front page: its module in Chromium deals by the rules, counts as the library does, can be played."""

import base64
import json
import math
from collections.abc import Callable
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from contrastbook.figures import game
from contrastbook.studies import photographs
from contrastlab import objectives

DATA = photographs.stored()
TILES, SQUARES = len(DATA["squares"]), len(DATA["squares"][0])
ROOT = "document.getElementById('game-live').game"
SIZES, OTHERS = (4, 16, 64), ("random", "ball", "ring")
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>game</title>
<style>article {{ max-width: 701px; margin: auto }}</style><body><article>{}</article></body></html>"""


def embeddings() -> np.ndarray:
    """Unit vectors ``[tile, square, variant, d]``, float64."""
    steps = np.frombuffer(base64.b64decode(DATA["embeddings"]), np.int8).reshape(TILES, SQUARES, 4, DATA["dim"])
    return steps / np.linalg.norm(steps, axis=-1, keepdims=True)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("page") / "game.html"
    path.write_text(PAGE.format(game.html(seed=3, pause=1)), encoding="utf-8")
    return path.as_uri()


@pytest.fixture
def open_page(offline_page: Callable[..., Any], address: str) -> Callable[..., Any]:
    """``open_page(390)``: a page of some width."""

    def opened(width: int = 1300) -> Any:
        return offline_page(address, f"() => {ROOT}", width=width, own=("file:", "blob:"))

    return opened


def test_the_data_are_whole_small_and_name_their_origin() -> None:
    assert TILES == 128 == len(DATA["owners"]) == len(DATA["colours"])
    assert set(DATA["owners"]) == set(range(len(DATA["photographs"])))
    assert all("CC0" in credit or "public domain" in credit for _, credit in DATA["photographs"])
    for left, top, side in (square for own in DATA["squares"] for square in own):
        assert 0 <= left <= DATA["tile"] - side
        assert 0 <= top <= DATA["tile"] - side
    assert len(game.html().encode()) < 300_000
    assert DATA["made"]["settings"]["arch"] == "tiny"
    assert DATA["made"]["machine"]["versions"]["torch"]


def dealt(page: Any, settings: dict[str, Any], rounds: int = 6) -> list[dict[str, Any]]:
    script = f"""([settings, rounds]) => {{
      const {{ engine, data }} = {ROOT}, draw = engine.random(7), unit = engine.unpack(data);
      return Array.from({{ length: rounds }}, () => {{
        const round = engine.deal(data, unit, settings, draw);
        return {{ ...round, nats: engine.nats(round.scores, round.partner) }}; }}); }}"""
    return list(page.evaluate(script, [settings, rounds]))


@pytest.mark.parametrize(("size", "others", "crop"), list(product(SIZES, OTHERS, (True, False))))
def test_a_round_is_dealt_by_the_rules(open_page: Callable[..., Any], size: int, others: str, crop: bool) -> None:
    settings = {"size": size, "others": others, "crop": crop, "flip": True, "grey": crop}
    unit = embeddings()
    for round_ in dealt(open_page(), settings):
        query, candidates = round_["query"], round_["candidates"]
        partner = candidates[round_["partner"]]
        assert len({view["tile"] for view in candidates}) == size
        assert partner["tile"] == query["tile"]
        assert (partner["square"] != query["square"]) == crop
        assert all((view["square"] > 0) == crop for view in [query, *candidates])
        assert {view["variant"] for view in candidates} == {3 if crop else 1}
        assert query["variant"] == 0
        seen = unit[query["tile"], query["square"], 0]
        cosines = [unit[view["tile"], view["square"], view["variant"]] @ seen for view in candidates]
        np.testing.assert_allclose(round_["scores"], np.array(cosines) / DATA["temperature"], atol=1e-12)


def test_a_ball_holds_the_nearest_and_a_ring_leaves_a_tenth_of_them_out(open_page: Callable[..., Any]) -> None:
    page, unit = open_page(), embeddings()
    for others, skipped in (("ball", 0), ("ring", 12)):
        for round_ in dealt(page, {"size": 16, "others": others, "crop": False, "flip": True, "grey": False}):
            tile = round_["query"]["tile"]
            cosines = unit[:, 0, 1] @ unit[tile, 0, 0]
            nearest = [int(other) for other in np.argsort(-cosines, kind="stable") if other != tile]
            chosen = {view["tile"] for view in round_["candidates"]} - {tile}
            assert chosen == set(nearest[skipped : skipped + 15])


def test_nats_of_a_round_are_log_k_less_the_loss_of_the_library(open_page: Callable[..., Any]) -> None:
    for size in SIZES:
        for round_ in dealt(open_page(), {"size": size, "others": "random", "crop": True, "flip": True, "grey": False}):
            scores = torch.tensor(round_["scores"], dtype=torch.float64)
            others = torch.ones(size, dtype=torch.bool)
            others[round_["partner"]] = False
            loss = objectives.info_nce(scores[~others], scores[others][None])
            assert round_["nats"] == pytest.approx(math.log(size) - float(loss), abs=1e-6)


def revealed(picks: list[bool], size: int) -> float:
    """Mean nats of picks, from the probability of each by Laplace's rule of succession."""
    total = 0.0
    for rounds, is_right in enumerate(picks):
        trust = Fraction(1 + sum(picks[:rounds]), 2 + rounds)
        partner = trust if is_right else (1 - trust) / (size - 1)
        total += math.log(size * partner)
    return total / len(picks)


@pytest.mark.parametrize("size", SIZES)
def test_picks_are_counted_by_laplace_s_rule(open_page: Callable[..., Any], size: int) -> None:
    script = f"""([picks, size]) => {{ const {{ Picks }} = {ROOT}.engine, counted = new Picks();
      for (const right of picks) counted.add(right, size);
      return {ROOT}.engine.summary(counted.terms); }}"""
    page = open_page()
    for picks in ([True] * 10, [False] * 10, [True, False, True, True, False], [True]):
        counted = page.evaluate(script, [picks, size])
        assert counted["mean"] == pytest.approx(revealed(picks, size), abs=1e-12)
    always = page.evaluate(script, [[True] * 10, size])
    assert always["mean"] == pytest.approx(math.log(size) - math.log(11) / 10)
    terms = [math.log(size) + math.log((n + 1) / (n + 2)) for n in range(10)]
    assert always["error"] == pytest.approx(np.std(terms, ddof=1) / 10**0.5)


def test_guessing_reveals_nothing_on_average(open_page: Callable[..., Any]) -> None:
    script = f"""() => {{ const {{ Picks, random, summary }} = {ROOT}.engine, draw = random(1), counted = new Picks();
      for (let i = 0; i < 20000; i++) counted.add(draw() < 1 / 16, 16);
      return summary(counted.terms); }}"""
    counted = open_page().evaluate(script)
    assert abs(counted["mean"]) < 4 * counted["error"] + 1e-3


def test_colours_have_names(open_page: Callable[..., Any]) -> None:
    page = open_page()
    named = {
        "ff2020": "red",
        "e08030": "orange",
        "30a030": "green",
        "3050c0": "blue",
        "808080": "grey",
        "101010": "grey",
    }
    for colour, name in named.items():
        assert page.evaluate(f"colour => {ROOT}.engine.colourName(colour, false)", colour).endswith(name)
    assert page.evaluate(f"() => {ROOT}.engine.colourName('e08030', true)").endswith("grey")


def test_ten_rounds_by_keyboard_give_a_line_to_share(open_page: Callable[..., Any]) -> None:
    page = open_page()
    for rounds in range(1, 11):
        right = page.evaluate(f"() => {ROOT}.round.partner")
        button = page.locator(".clg-hand button").nth(right)
        assert button.get_attribute("aria-label").startswith(f"candidate {right + 1}, mostly ")
        button.focus()
        page.keyboard.press("Enter")
        assert page.locator(".clg-said").text_content().startswith(f"Right. {rounds} of {rounds} right.")
        page.wait_for_function("() => !document.querySelector('.clg-right')")
        assert page.evaluate("() => document.activeElement.closest('.clg-hand') !== null")
        assert page.locator(".clg-share").is_visible() == (rounds == 10)
    line = page.locator(".clg-share span").text_content()
    mean = math.log(4) - math.log(11) / 10
    assert line.startswith(f"I revealed {mean:.2f} ± ")
    assert "of 1.39 nats in 10 rounds; the trained encoder" in line


def test_a_wrong_pick_shows_the_partner(open_page: Callable[..., Any]) -> None:
    page = open_page()
    partner = page.evaluate(f"() => {ROOT}.round.partner")
    page.evaluate(f"() => {ROOT}.pick(({ROOT}.round.partner + 1) % 4)")
    assert f"No: it was candidate {partner + 1}. 0 of 1 right." in page.locator(".clg-said").text_content()
    assert page.locator(".clg-you output").text_content() == f"−{math.log(1.5):.2f}"


def test_a_new_setting_begins_a_new_game(open_page: Callable[..., Any]) -> None:
    page = open_page()
    page.evaluate(f"() => {ROOT}.pick(0)")
    for label, link in (("16", "infonce"), ("the nearest (ball)", "looseness"), ("near (ring)", "ring")):
        page.get_by_label(label, exact=True).check()
        assert page.locator(".clg-you output").text_content() == "–"
        assert page.locator(".clg-why a").get_attribute("href") == f"{link}.html"
    assert page.locator(".clg-hand button").count() == 16
    page.get_by_role("button", name="Let the encoder play").click()
    assert page.evaluate(f"() => {ROOT}.encoder.length") == 200
    assert page.locator(".clg-you output").text_content() == "–"


@pytest.mark.parametrize("size", SIZES)
def test_a_telephone_shows_it_whole(open_page: Callable[..., Any], size: int) -> None:
    page = open_page(390)
    page.get_by_label(str(size), exact=True).check()
    assert page.locator(".clg-hand button").count() == size
    assert not page.evaluate("() => document.documentElement.scrollWidth > innerWidth")
    smallest = min(box["width"] for box in (b.bounding_box() for b in page.locator(".clg-hand button").all()))
    assert smallest >= 36
    assert (
        page.evaluate(
            "async () => { const i = new Image(); i.src = getComputedStyle(document.querySelector("
            "'.clg')).getPropertyValue('--sheet').slice(5, -2); await i.decode(); return i.width; }"
        )
        == 1280
    )


def test_the_data_are_json_that_any_reader_takes() -> None:
    json.loads(photographs.stored_text(), parse_constant=pytest.fail)
