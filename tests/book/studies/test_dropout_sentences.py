"""The page of other senses: nearest sentences against loops, what a view leaves of a sound, the two slopes."""

import math
from importlib.util import find_spec
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from contrastbook.figures import senses
from contrastbook.studies import dropout_sentences
from contrastlab import data
from contrastlab.domains.speech.augmentation import views_of
from contrastlab.domains.text.data import Texts
from contrastlab.pictures.domain import modality
from contrastlab.settings import Settings
from contrastlab.views import Dropout

needs_text = pytest.mark.skipif(find_spec("transformers") is None, reason="the extra text is not installed")
SPEECH = {"rate": 8000, "window": 512, "hop": 128, "mean": -58.5, "std": 18.3, "noise": 0.0}


def features(nets, view, lines: list[str]) -> list[torch.Tensor]:
    """What an encoder says of each sentence, one by one."""
    with torch.no_grad():
        return [nets[0].eval().features(view.plain(Texts([line])))[0].double() for line in lines]


@needs_text
def test_training_from_scratch_makes_similarity_worse_and_nearest_sentences_are_those_of_loops() -> None:
    made = dropout_sentences.study(dropout_sentences.settings(640))
    assert made.similarity[0] > max(30, made.similarity[1])
    asked, *others = "The cook finds a mug.", "The cook finds a cup.", "A ship.", "The cook finds a rug.", "By the sea."
    shown = dropout_sentences.nearest(made, asked, others, count=2)
    view = modality(data.load("grammar").pretrain).augmentation(made.settings)
    for name, nets in (("before", made.before), ("after", made.after)):
        rows = [row / row.norm() for row in features(nets, view, [asked, *others])]
        mean = sum(rows) / len(rows)
        query, *rows = (row - mean for row in rows)
        cosines = [float(torch.cosine_similarity(query, row, dim=0)) for row in rows]
        best = sorted(range(4), key=lambda k: -cosines[k])[:2]
        assert shown[name].tolist() == [others[k] for k in best]
        assert shown[f"cosine {name}"].tolist() == pytest.approx([cosines[k] for k in best], abs=1e-3)


@needs_text
def test_the_order_of_shared_words_is_that_of_counted_words() -> None:
    how = dropout_sentences.settings(640)
    lines = ["A ship.", "The cook finds a cup.", "The cook finds the rug.", "By the sea."]
    words = [{"a", "ship"}, {"the", "cook", "finds", "a", "cup"}, {"the", "cook", "finds", "rug"}, {"by", "the", "sea"}]
    source = data.load("grammar").pretrain
    kind = modality(source)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        both = [kind.encoders(Dropout(2), source, how).eval() for _ in range(2)]
    got = dropout_sentences.shared_words(dropout_sentences.BeforeAfter(how, *both, (0.0, 0.0)), lines)
    for nets, value in zip(both, got, strict=True):
        rows = features(nets, kind.augmentation(how), lines)
        pairs = list(combinations(range(4), 2))
        cosines = [float(torch.cosine_similarity(rows[i], rows[j], dim=0)) for i, j in pairs]
        shared = [len(words[i] & words[j]) / math.sqrt(len(words[i]) * len(words[j])) for i, j in pairs]
        assert value == pytest.approx(100 * spearmanr(cosines, shared).statistic)


@needs_text
def test_the_gap_of_dropout_is_nothing_without_it() -> None:
    lines = Texts(["A ship.", "The cook finds a cup."])
    state = torch.random.get_rng_state()
    assert dropout_sentences.dropout_gap(0.0, lines) < 1e-6 < dropout_sentences.dropout_gap(0.2, lines)
    first, again, other = (dropout_sentences.dropout_gap(0.2, lines, seed) for seed in (4, 4, 5))
    assert first == again != other
    assert torch.equal(state, torch.random.get_rng_state())


def noise(length: int = 8192) -> torch.Tensor:
    return torch.randint(-9000, 9000, (length,), generator=torch.Generator().manual_seed(0)).to(torch.int16)


def masked(axis: int, most: int, **masks: int) -> tuple[Any, np.ndarray, list[int]]:
    """Views with such masks, what is heard of the first that hides more than ``most``, and what it hides."""
    view = views_of(Settings(speech={**SPEECH, **masks}))
    for seed in range(20):
        shown, heard = senses.audible_view(noise(), view, torch.Generator().manual_seed(seed))
        hidden = (shown == view.mean).all(axis).nonzero()[:, 0].tolist()
        if len(hidden) > most:
            return view, heard, hidden
    raise AssertionError("no view hides so much")


def test_a_view_is_heard_without_what_it_does_not_show_and_has_a_title() -> None:
    _, heard, frames = masked(0, 10, frequency_mask=0, time_mask=30)
    first, last = frames[0] * 128 + 512, frames[-1] * 128 - 512  # where no window reaches that is not masked
    assert np.abs(heard[first:last]).max() < 1e-6
    assert np.abs(heard).max() > 0.1
    whole = views_of(Settings(speech={**SPEECH, "frequency_mask": 0, "time_mask": 0}))
    shown, heard = senses.audible_view(noise(), whole, torch.Generator().manual_seed(0))
    assert torch.equal(shown, whole.plain(noise()[None])[0, 0])
    assert np.abs(heard - noise().numpy() / 32768).max() < 1e-5
    view, heard, bands = masked(1, 20, frequency_mask=40, time_mask=0)
    again = view.plain(torch.from_numpy(np.rint(heard * 32768).astype(np.int16))[None])[0, 0]
    inside = bands[len(bands) // 2]
    assert float((view.plain(noise()[None])[0, 0][inside] - again[inside]).median()) > 30
    view = torch.zeros(3, 4)
    panels = senses.spectrograms([view, view + 1], ["a", "b"]).axes[:2]
    assert [(each.get_title(), each.images[0].get_clim()) for each in panels] == [("a", (0, 1)), ("b", (0, 1))]


@pytest.mark.parametrize(("weight", "spread"), [(409600.0, 20.0), (40.0, 1.0)])
def test_push_and_pull_of_kl_are_those_of_the_formula(weight, spread) -> None:
    pull, push = senses.push(weight, spread).data
    for cosine, one, other in zip(pull.x, pull.y, push.y, strict=True):
        assert one == pytest.approx(2 * spread)
        assert other == pytest.approx(weight * 2 * spread * math.exp(2 * spread * (cosine - 1)))
    assert weight * math.exp(2 * spread * (senses.crossing(weight, spread) - 1)) == pytest.approx(1)
