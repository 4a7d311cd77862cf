"""Made worlds of several views: exact prices, searches, codes and curves, and encoders that are trained in them."""

import math
from itertools import combinations, product
from statistics import fmean

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from contrastbook.studies import multiview
from contrastbook.studies.multiview import FOUR


@pytest.mark.parametrize("graph", ["core", "full"])
def test_prices_by_enumeration_are_numbers_of_pairs(graph) -> None:
    """A bit costs one for each pair of the graph whose views both hold it, and a private bit nothing."""
    world = {**FOUR, "f": (0, 3), "g": (1, 3)}
    prices = multiview.prices(world, graph)
    for bit, holders in world.items():
        pairs = list(combinations(holders, 2))
        if graph == "core":
            pairs = [pair for pair in pairs if 0 in pair]
        assert prices[bit] == pytest.approx(len(pairs), abs=1e-9)
    for view in range(4):
        assert prices[f"private {view}"] == pytest.approx(0, abs=1e-9)


def information_through(flip: float) -> float:
    """Bits that a fair bit and its copy share, if the copy is wrong with probability ``flip``."""
    return 1 + flip * math.log2(flip) + (1 - flip) * math.log2(1 - flip)


def test_information_of_a_noisy_copy_and_of_exclusive_or() -> None:
    """Of a copy that is wrong in 10 of 100 states, of a bit and itself, and of an exclusive or with its inputs."""
    bit = np.repeat([0, 1], 50)[:, None]
    is_wrong = (np.arange(100) % 50 < 5)[:, None]
    copy = bit ^ is_wrong
    assert multiview.information(bit, copy) == pytest.approx(information_through(0.1), abs=1e-12)
    assert multiview.information(bit, bit) == pytest.approx(1)
    inputs = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    exclusive_or = inputs[:, :1] ^ inputs[:, 1:]
    assert multiview.information(exclusive_or, inputs[:, :1]) == pytest.approx(0, abs=1e-12)
    assert multiview.information(exclusive_or, inputs) == pytest.approx(1)


Way = tuple[frozenset[str], ...]
"""The bits that each view keeps."""


def choices_of(view: int, world: dict[str, tuple[int, ...]], room: int) -> list[frozenset[str]]:
    """All sets of at most ``room`` bits that the view holds."""
    held = [bit for bit, holders in world.items() if view in holders]
    return [frozenset(bits) for size in range(room + 1) for bits in combinations(held, size)]


def best_ways(world: dict[str, tuple[int, ...]], graph: multiview.Graph, room: int) -> tuple[int, set[Way]]:
    """The most bits that three views can share, and the ways to reach it with the fewest bits kept: the slow way."""
    pairs = {"core": [(0, 1), (0, 2)], "full": [(0, 1), (0, 2), (1, 2)]}[graph]

    def shared(way: Way) -> int:
        return sum(len(way[i] & way[j]) for i, j in pairs)

    def kept(way: Way) -> int:
        return sum(len(bits) for bits in way)

    ways = list(product(*(choices_of(view, world, room) for view in range(3))))
    most = max(shared(way) for way in ways)
    ways = [way for way in ways if shared(way) == most]
    fewest = min(kept(way) for way in ways)
    return most, {way for way in ways if kept(way) == fewest}


@pytest.mark.parametrize(("graph", "room"), list(product(["core", "full"], [0, 1, 2])))
def test_the_search_against_loops(graph, room) -> None:
    world = {"a": (0, 1, 2), "b": (0, 1), "c": (1, 2), "d": (0, 2)}
    value, holdings = multiview.kept(world, graph, room)
    ways = []
    for holding in holdings:
        way = [frozenset(bit for bit in world if view in holding[bit]) for view in range(3)]
        ways.append(tuple(way))
    most, best = best_ways(world, graph, room)
    assert value == most
    assert len(ways) == len(best)
    assert set(ways) == best


def test_what_four_views_keep_and_a_further_one_takes_the_labels_place() -> None:
    """More room keeps more bits. A code of one bit is of the label y or of n, whichever the views see more of."""
    core = {room: multiview.kept(FOUR, "core", room) for room in (1, 2, 3, 4)}
    full = {room: multiview.kept(FOUR, "full", room) for room in (1, 2, 3, 4)}
    assert [value for value, _ in core.values()] == [3, 5, 6, 6]
    assert [value for value, _ in full.values()] == [6, 9, 12, 14]
    _, ways_with_room_for_two = full[2]
    assert len(ways_with_room_for_two) == 2  # c or d
    _, (way, *_) = core[3]
    assert way == {"a": (0, 1, 2, 3), "b": (0, 1), "c": (0, 1, 2), "d": (), "e": ()}
    _, (way, *_) = full[3]
    assert way == {"a": (0, 1, 2, 3), "b": (), "c": (0, 1, 2), "d": (1, 2, 3), "e": ()}

    of_y = information_through(0.1)
    of_n = information_through(0.04)
    right, shared = multiview.best_code(("sees both",))
    assert right == 0.5  # the code is n
    assert shared == pytest.approx({"y": of_y, "n": of_n}, abs=1e-9)
    right, shared = multiview.best_code(("sees both", "sees y"))
    assert right == 1
    assert shared == pytest.approx({"y": 2 * of_y, "n": of_n}, abs=1e-9)
    right, shared = multiview.best_code(("sees both", "sees y", "sees n"))
    assert right == 0.5
    assert shared == pytest.approx({"y": 2 * of_y, "n": 2 * of_n}, abs=1e-9)
    right, _ = multiview.best_code(("sees both",), n_flip=0.2)
    assert right == 1  # n is noisier than y


def test_infonce_is_the_cross_entropy_of_both_directions() -> None:
    generator = torch.Generator().manual_seed(0)
    first = torch.randn(5, 3, generator=generator)
    second = torch.randn(5, 3, generator=generator)
    log_scale = 0.3
    losses = []
    for queries, keys in ((first, second), (second, first)):
        for place, query in enumerate(queries.double()):
            scores = [-math.exp(log_scale) * float((query - key).square().sum()) for key in keys.double()]
            log_sum = math.log(sum(math.exp(score) for score in scores))
            losses.append(log_sum - scores[place])
    found = multiview.infonce(first, second, torch.tensor(log_scale))
    assert found.item() == pytest.approx(fmean(losses), rel=1e-5)


@pytest.mark.parametrize(("graph", "dropped"), [("core", "de"), ("full", "be")])
def test_trained_encoders_drop_what_the_search_drops(graph, dropped) -> None:
    bits_of_views, names = multiview.of_world(FOUR)
    encoders = multiview.train(bits_of_views, len(names), graph, 3, seed=5)
    accuracies = multiview.read(encoders, bits_of_views, len(names), seed=5)
    for bit, holders in FOUR.items():
        for view in holders:
            accuracy = float(accuracies[view][names.index(bit)])
            if bit in dropped:
                assert accuracy < 0.7
            else:
                assert accuracy > 0.85


def test_training_follows_the_formula_of_the_u_and_untrained_views_add_up() -> None:
    """Accuracy is highest where the shared bits just fill the eight numbers; and more untrained views know more."""
    too_few = multiview.u_trained(4, seed=1)
    just_enough = multiview.u_trained(8, seed=1)
    too_many = multiview.u_trained(12, seed=1)
    assert just_enough == pytest.approx(multiview.u_formula(8), abs=0.015)
    assert too_many == pytest.approx(multiview.u_formula(12), abs=0.02)
    assert just_enough > too_few + 0.03
    assert just_enough > too_many + 0.03
    assert multiview.u_formula(0) == 0.5
    # one bit a number, behind noise of half its size
    of_a_normal_below_two = 0.5 * (1 + math.erf(2 / math.sqrt(2)))
    assert multiview.u_formula(8) == pytest.approx(of_a_normal_below_two)

    floors = multiview.floors((1, 2, 4))
    assert floors[2] > floors[1] + 0.05
    assert floors[4] > floors[2] + 0.02


def expected_floor(views: int) -> float:
    """Mean accuracy of the 8 label bits for a linear reader of the floor's encoders, as if what it reads were normal.

    Each of 8 numbers of a view is a random sum of the labels and 8 bits of the view's own, of power one, and noise.
    """
    generator = torch.Generator().manual_seed(0)
    mixing = torch.zeros(8 + 8 * views, 8 * views)  # how much of each bit is in each number
    for view in range(views):
        own = 8 + 8 * view
        numbers = slice(8 * view, 8 * view + 8)
        of_labels, of_own = torch.randn(16, 8, generator=generator).split(8)
        mixing[:8, numbers] = of_labels
        mixing[own : own + 8, numbers] = of_own
    mixing = F.normalize(mixing, dim=0)
    covariance = mixing.T @ mixing + 0.5**2 * torch.eye(8 * views)
    explained = (mixing @ torch.linalg.solve(covariance, mixing.T)).diagonal()[:8]
    margin = (explained / (1 - explained)).sqrt()
    return float(torch.special.ndtr(margin).mean())


@pytest.mark.parametrize("views", [1, 2, 4])
def test_untrained_views_know_what_a_linear_reader_gets_from_random_sums(views) -> None:
    assert multiview.floors((views,))[views] == pytest.approx(expected_floor(views), abs=0.01)


def test_prediction_follows_scale_and_contrast_does_not() -> None:
    """The first factor is better correlated. Prediction drops it once the other's size outweighs that, contrast never.

    A factor of size s and correlation ρ explains a variance of s²ρ².
    """
    rho = (0.95, 0.6)
    turning = 0.95 / 0.6
    below = (1, 0.95 * turning)
    above = (1, 1.05 * turning)
    assert multiview.sign_accuracy("predict", rho, below) > 0.9
    assert multiview.sign_accuracy("predict", rho, above) <= 0.9
    assert multiview.sign_accuracy("contrast", rho, below) > 0.95
    assert multiview.sign_accuracy("contrast", rho, above) > 0.95
