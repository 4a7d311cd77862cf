"""The page of other senses: nearest sentences against loops, what a view leaves of a sound, the two slopes."""

import math
from importlib.util import find_spec
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from torch import nn

from contrastbook.figures import senses
from contrastbook.studies import dropout_sentences
from contrastlab import data
from contrastlab.domains.speech.augmentation import LogMel, views_of
from contrastlab.domains.text.data import Texts
from contrastlab.pictures.domain import modality
from contrastlab.settings import Settings
from contrastlab.views import Dropout

needs_text = pytest.mark.skipif(find_spec("transformers") is None, reason="the extra text is not installed")
SPEECH = {"rate": 8000, "window": 512, "hop": 128, "mean": -58.5, "std": 18.3, "noise": 0.0}


def features(nets: nn.ModuleList, how: Settings, lines: list[str]) -> list[torch.Tensor]:
    """What an encoder says of each sentence, one by one."""
    (encoder,) = nets.eval()
    augmentation = modality(data.load("grammar").pretrain).augmentation(how)
    rows = []
    with torch.no_grad():
        for line in lines:
            (row,) = encoder.features(augmentation.plain(Texts([line])))
            rows.append(row.double())
    return rows


def cosine(one: torch.Tensor, other: torch.Tensor) -> float:
    return float(torch.cosine_similarity(one, other, dim=0))


@pytest.fixture(scope="module")
def trained() -> dropout_sentences.BeforeAfter:
    return dropout_sentences.study(dropout_sentences.settings(640))


@needs_text
def test_training_from_scratch_makes_similarity_worse(trained) -> None:
    before, after = trained.similarity
    assert before > 30
    assert before > after


ASKED = "The cook finds a mug."
OTHERS = ["The cook finds a cup.", "A ship.", "The cook finds a rug.", "By the sea."]


@needs_text
@pytest.mark.parametrize("when", ["before", "after"])
def test_nearest_sentences_have_the_largest_cosines_about_the_mean_sentence(trained, when: str) -> None:
    rows = []
    for row in features(getattr(trained, when), trained.settings, [ASKED, *OTHERS]):
        rows.append(row / row.norm())
    mean = sum(rows) / len(rows)
    cosines = {line: cosine(rows[0] - mean, row - mean) for line, row in zip(OTHERS, rows[1:], strict=True)}
    expected = sorted(OTHERS, key=cosines.__getitem__, reverse=True)[:2]

    shown = dropout_sentences.nearest(trained, ASKED, OTHERS, count=2)
    assert shown[when].tolist() == expected
    assert shown[f"cosine {when}"].tolist() == pytest.approx([cosines[line] for line in expected], abs=1e-3)


WORDS = {
    "A ship.": {"a", "ship"},
    "The cook finds a cup.": {"the", "cook", "finds", "a", "cup"},
    "The cook finds the rug.": {"the", "cook", "finds", "rug"},
    "By the sea.": {"by", "the", "sea"},
}


def correlation_with_shared_words(nets: nn.ModuleList, how: Settings) -> float:
    rows = dict(zip(WORDS, features(nets, how, list(WORDS)), strict=True))
    cosines = []
    shared = []
    for one, other in combinations(WORDS, 2):
        cosines.append(cosine(rows[one], rows[other]))
        common = len(WORDS[one] & WORDS[other])
        shared.append(common / math.sqrt(len(WORDS[one]) * len(WORDS[other])))
    return 100 * spearmanr(cosines, shared).statistic


@needs_text
def test_the_order_of_shared_words_is_that_of_counted_words() -> None:
    how = dropout_sentences.settings(640)
    source = data.load("grammar").pretrain
    kind = modality(source)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        one = kind.encoders(Dropout(2), source, how)
        other = kind.encoders(Dropout(2), source, how)
    both = dropout_sentences.BeforeAfter(how, one, other, similarity=(0.0, 0.0))
    before, after = dropout_sentences.shared_words(both, list(WORDS))
    assert before == pytest.approx(correlation_with_shared_words(one, how))
    assert after == pytest.approx(correlation_with_shared_words(other, how))


TWO = Texts(["A ship.", "The cook finds a cup."])


@needs_text
def test_the_gap_of_dropout_is_nothing_without_it() -> None:
    assert dropout_sentences.dropout_gap(0.0, TWO) < 1e-6
    assert dropout_sentences.dropout_gap(0.2, TWO) > 1e-3


@needs_text
def test_the_gap_of_dropout_is_drawn_from_its_seed_alone() -> None:
    state = torch.random.get_rng_state()
    first = dropout_sentences.dropout_gap(0.2, TWO, seed=4)
    assert torch.equal(state, torch.random.get_rng_state())
    assert dropout_sentences.dropout_gap(0.2, TWO, seed=4) == first
    assert dropout_sentences.dropout_gap(0.2, TWO, seed=5) != first


def noise(length: int = 8192) -> torch.Tensor:
    return torch.randint(-9000, 9000, (length,), generator=torch.Generator().manual_seed(0)).to(torch.int16)


class Masked(NamedTuple):
    """A view with a mask."""

    augmentation: LogMel
    heard: np.ndarray  #: what is heard of the view
    hidden: list[int]  #: the rows or columns of the picture that the mask hides, in order


FRAMES, BANDS = 0, 1  # the axis over which what is hidden is all hidden


def first_that_hides(more_than: int, axis: int, **masks: int) -> Masked:
    """The view of the first seed that hides more than so many frames or bands."""
    augmentation = views_of(Settings(speech={**SPEECH, **masks}))
    for seed in range(20):
        shown, heard = senses.audible_view(noise(), augmentation, torch.Generator().manual_seed(seed))
        is_hidden = (shown == augmentation.mean).all(axis)
        hidden = is_hidden.nonzero()[:, 0].tolist()
        if len(hidden) > more_than:
            return Masked(augmentation, heard, hidden)
    raise AssertionError("no view hides so much")


def test_hidden_frames_are_silent() -> None:
    view = first_that_hides(10, FRAMES, frequency_mask=0, time_mask=30)
    # where no window reaches that is not masked
    start = view.hidden[0] * SPEECH["hop"] + SPEECH["window"]
    end = view.hidden[-1] * SPEECH["hop"] - SPEECH["window"]
    assert end > start
    assert np.abs(view.heard[start:end]).max() < 1e-6
    assert np.abs(view.heard).max() > 0.1


def test_hidden_bands_are_not_heard() -> None:
    view = first_that_hides(20, BANDS, frequency_mask=40, time_mask=0)
    heard = torch.from_numpy(np.rint(view.heard * 32768).astype(np.int16))
    (before,) = view.augmentation.plain(noise()[None])[0]
    (after,) = view.augmentation.plain(heard[None])[0]
    middle = view.hidden[len(view.hidden) // 2]
    assert (before[middle] - after[middle]).median() > 30  # decibels


def test_a_view_without_masks_is_heard_as_it_is() -> None:
    augmentation = views_of(Settings(speech={**SPEECH, "frequency_mask": 0, "time_mask": 0}))
    shown, heard = senses.audible_view(noise(), augmentation, torch.Generator().manual_seed(0))
    assert torch.equal(shown, augmentation.plain(noise()[None])[0, 0])
    assert np.abs(heard - noise().numpy() / 32768).max() < 1e-5


def test_spectrograms_have_titles_and_one_scale() -> None:
    quiet = torch.zeros(3, 4)
    first, second, *_ = senses.spectrograms([quiet, quiet + 1], ["a", "b"]).axes
    assert first.get_title() == "a"
    assert second.get_title() == "b"
    assert first.images[0].get_clim() == (0, 1)
    assert second.images[0].get_clim() == (0, 1)


@pytest.mark.parametrize(("weight", "spread"), [(409600.0, 20.0), (40.0, 1.0)])
def test_push_and_pull_of_kl_are_those_of_the_formula(weight: float, spread: float) -> None:
    pull, push = senses.push(weight, spread).data
    cosines = np.array(pull.x)
    assert list(push.x) == list(pull.x)
    assert np.array(pull.y) == pytest.approx(np.full(len(cosines), 2 * spread))
    assert np.array(push.y) == pytest.approx(weight * 2 * spread * np.exp(2 * spread * (cosines - 1)))


@pytest.mark.parametrize(("weight", "spread"), [(409600.0, 20.0), (40.0, 1.0)])
def test_push_and_pull_cross_where_they_are_equal(weight: float, spread: float) -> None:
    cosine_there = senses.crossing(weight, spread)
    push = weight * 2 * spread * math.exp(2 * spread * (cosine_there - 1))
    assert push == pytest.approx(2 * spread)
