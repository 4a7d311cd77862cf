"""Made worlds of several views: exact prices, searches, codes and curves, and encoders that are trained in them."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from contrastbook.studies import multiview
from contrastbook.studies.multiview import FOUR


@pytest.mark.parametrize("graph", ["core", "full"])
def test_prices_by_enumeration_are_numbers_of_pairs(graph) -> None:
    world = {**FOUR, "f": (0, 3), "g": (1, 3)}
    found = multiview.prices(world, graph)
    for bit, holders in world.items():
        inside = [p for p in itertools.combinations(holders, 2) if graph == "full" or 0 in p]
        assert found[bit] == pytest.approx(len(inside), abs=1e-9)
    assert all(abs(found[f"private {v}"]) < 1e-9 for v in range(4))


def test_information_of_a_noisy_copy_and_of_exclusive_or() -> None:
    # 100 states: a fair bit and a copy that is wrong in 10 of them
    bit = np.repeat([0, 1], 50)[:, None]
    copy = bit ^ (np.arange(100) % 50 < 5)[:, None]
    expected = 1 + 0.1 * math.log2(0.1) + 0.9 * math.log2(0.9)
    assert multiview.information(bit, copy) == pytest.approx(expected, abs=1e-12)
    assert multiview.information(bit, bit) == pytest.approx(1)


@pytest.mark.parametrize(("graph", "room"), list(itertools.product(["core", "full"], [0, 1, 2])))
def test_the_search_against_loops(graph, room) -> None:
    world = {"a": (0, 1, 2), "b": (0, 1), "c": (1, 2), "d": (0, 2)}
    options = [
        [set(c) for k in range(room + 1) for c in itertools.combinations([b for b in world if v in world[b]], k)]
        for v in range(3)
    ]  # fmt: skip
    values = {}
    for choice in itertools.product(*options):
        shared = sum(len(choice[i] & choice[j]) for i, j in multiview.pairs(3, graph))
        values.setdefault(shared, []).append(choice)
    best = max(values)
    fewest = min(sum(map(len, choice)) for choice in values[best])
    winners = [c for c in values[best] if sum(map(len, c)) == fewest]
    value, found = multiview.kept(world, graph, room)
    assert value == best
    assert len(found) == len(winners)
    as_sets = [tuple({b for b in world if v in choice[b]} for v in range(3)) for choice in found]
    assert all(winner in as_sets for winner in winners)


def test_what_four_views_keep_and_a_further_one_takes_the_labels_place() -> None:
    kept = {(g, m): multiview.kept(FOUR, g, m) for g in ("core", "full") for m in (1, 2, 3, 4)}
    assert [kept["core", m][0] for m in (1, 2, 3, 4)] == [3, 5, 6, 6]
    assert [kept["full", m][0] for m in (1, 2, 3, 4)] == [6, 9, 12, 14]
    assert len(kept["full", 2][1]) == 2  # c or d
    assert kept["core", 3][1][0] == {"a": (0, 1, 2, 3), "b": (0, 1), "c": (0, 1, 2), "d": (), "e": ()}
    assert kept["full", 3][1][0] == {"a": (0, 1, 2, 3), "b": (), "c": (0, 1, 2), "d": (1, 2, 3), "e": ()}
    order = ("sees both", "sees y", "sees n")
    found = [multiview.best_code(order[:k]) for k in (1, 2, 3)]
    assert [right for right, _ in found] == [0.5, 1, 0.5]

    def bits(flip: float) -> float:
        return 1 + flip * math.log2(flip) + (1 - flip) * math.log2(1 - flip)

    for (_, shared), (y, n) in zip(found, ((1, 1), (2, 1), (2, 2)), strict=True):
        assert shared["y"] == pytest.approx(y * bits(0.1), abs=1e-9)
        assert shared["n"] == pytest.approx(n * bits(0.04), abs=1e-9)
    assert multiview.best_code(("sees both",), n_flip=0.2)[0] == 1


def test_infonce_is_the_cross_entropy_of_both_directions() -> None:
    g = torch.Generator().manual_seed(0)
    first, second = torch.randn(5, 3, generator=g), torch.randn(5, 3, generator=g)
    scale = torch.tensor(0.3)
    losses = []
    for (q, k), i in itertools.product(((first, second), (second, first)), range(5)):
        scores = torch.stack([-math.exp(0.3) * ((q[i] - k[j]) ** 2).sum() for j in range(5)])
        losses.append(-F.log_softmax(scores.double(), 0)[i])
    assert multiview.infonce(first, second, scale).item() == pytest.approx(float(torch.stack(losses).mean()), rel=1e-5)


@pytest.mark.parametrize(("graph", "dropped"), [("core", "de"), ("full", "be")])
def test_trained_encoders_drop_what_the_search_drops(graph, dropped) -> None:
    draw, names = multiview.of_world(FOUR)
    found = multiview.read(multiview.train(draw, len(names), graph, 3, seed=5), draw, len(names), seed=5)
    for bit, holders in FOUR.items():
        for view in holders:
            value = float(found[view][names.index(bit)])
            assert value < 0.7 if bit in dropped else value > 0.85


def test_training_follows_the_formula_of_the_u_and_untrained_views_add_up() -> None:
    at = {s: multiview.u_trained(s, seed=1) for s in (4, 8, 12)}
    assert at[8] == pytest.approx(multiview.u_formula(8), abs=0.015)
    assert at[12] == pytest.approx(multiview.u_formula(12), abs=0.02)
    assert at[8] > max(at[4], at[12]) + 0.03
    assert multiview.u_formula(0) == 0.5
    assert multiview.u_formula(8) == pytest.approx(0.5 * (1 + math.erf(2 / math.sqrt(2))))
    floor = multiview.floors((1, 2, 4))
    assert floor[1] + 0.05 < floor[2] < floor[4] - 0.02


def test_prediction_follows_scale_and_contrast_does_not() -> None:
    turning = 0.95 / 0.6
    for times, expected in ((0.95 * turning, 0), (1.05 * turning, 1)):
        assert (multiview.sign_accuracy("predict", (0.95, 0.6), (1, times)) > 0.9) == (expected == 0)
        assert multiview.sign_accuracy("contrast", (0.95, 0.6), (1, times)) > 0.95
