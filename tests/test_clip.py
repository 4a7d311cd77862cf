"""CLIP on pictures and sentences: the paper's loss against loops in float64, its data, and pairs found again."""

import hashlib
import math
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contrastbook.made import captions, shapes
from contrastlab import data, encoders, methods, tasks
from contrastlab.domains import stored_encoders
from contrastlab.domains.text.captions import Captioned, CaptionedSet
from contrastlab.domains.text.data import Texts
from contrastlab.domains.text.retrieval import closer
from contrastlab.domains.text.views import Captions
from contrastlab.negatives import BatchRandom
from contrastlab.pictures.domain import modality
from contrastlab.settings import Settings
from contrastlab.support.errors import ArgumentError, NotApplicableError
from contrastlab.tasks import Evaluation
from contrastlab.train import Trained, pretrain
from contrastlab.train.learner import Learner
from contrastlab.views import Augmented
from made_runs import quiet
from made_scores import TEMPERATURES

CLIP = methods.get("clip/clip")
needs_text = pytest.mark.skipif(find_spec("transformers") is None, reason="the extra text is not installed")


def settings(**changes: Any) -> Settings:
    text = {"width": 32, "layers": 1, "vocabulary": 512, "length": 20, "plain_length": 20, "dropout": 0.0}
    about = {
        "image_size": 32, "arch": "tiny", "stem": "cifar", "dim": 32, "augmentation": "none",
        "text": {**text, "pooling": "mean"}, "optimiser": {"name": "adam"}, "lr": 3e-3, "epochs": 4, "batch_size": 50,
        "schedule": "constant", "knn_every": 0,
    }  # fmt: skip
    return Settings.model_validate({**about, **changes})


def pairs(count: int, size: int = 8, seed: int = 0) -> CaptionedSet:
    pixels = torch.randint(0, 256, (count, 3, size, size), generator=torch.Generator().manual_seed(seed))
    sentences = [f"picture number {k}" for k in range(count)]
    items = Captioned(pixels.to(torch.uint8), Texts(sentences))
    return CaptionedSet("few", items, torch.arange(count) % 2, ("even", "odd"))


# the loss


def clip_twin(pictures: Tensor, sentences: Tensor, scale: Tensor) -> Tensor:
    """The paper's pseudocode, one pair after the other: the mean of two cross-entropies over a matrix of logits."""
    count = len(pictures)
    of_pictures, of_sentences = [], []
    for k in range(count):
        row = torch.stack([scale * pictures[k] @ sentences[n] for n in range(count)])
        column = torch.stack([scale * pictures[n] @ sentences[k] for n in range(count)])
        of_pictures.append(-(row.softmax(0)[k]).log())
        of_sentences.append(-(column.softmax(0)[k]).log())
    return (torch.stack(of_pictures).mean() + torch.stack(of_sentences).mean()) / 2


class Rows(nn.Module):
    """Unit embeddings that are parameters, whatever the views."""

    in_channels = 3

    def __init__(self, rows: Tensor) -> None:
        super().__init__()
        self.rows = nn.Parameter(rows)

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(self.rows, dim=1)


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("factor", [1.0, 0.6])
def test_the_loss_of_both_directions_is_twice_the_papers(temperature: float, factor: float) -> None:
    rows = torch.randn(2, 6, 5, generator=torch.Generator().manual_seed(1))
    streams = nn.ModuleList(Rows(each.clone()) for each in rows)
    recipe = replace(CLIP, name="x/clip", temperature=temperature)
    learner = Learner(recipe, settings(dim=5), images=6, classes=2, seed=0, encoders=streams)
    (log_factor,) = learner.network.objective_module.parameters()
    nn.init.constant_(log_factor, math.log(factor))
    numbers = torch.arange(6)
    views = (torch.zeros(6, 1), torch.zeros(6, 1))
    loss = learner.loss(views, numbers, numbers, BatchRandom(torch.Generator(), 0, 6), 0, 1).loss
    loss.backward()
    exact = [each.double().requires_grad_() for each in rows]
    exact_factor = torch.tensor(math.log(factor), dtype=torch.float64, requires_grad=True)
    pictures, sentences = (F.normalize(each, dim=1) for each in exact)
    expected = 2 * clip_twin(pictures, sentences, exact_factor.exp() / temperature)
    expected.backward()
    torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=1e-6)
    for got, wanted in zip([*streams.parameters(), log_factor], [*exact, exact_factor], strict=True):
        largest = float(wanted.grad.abs().max())
        torch.testing.assert_close(got.grad.double(), wanted.grad, rtol=0, atol=2e-5 * largest)


# data and views


def test_the_captions_are_the_same_byte_for_byte_and_true() -> None:
    index = torch.arange(40)
    pictures, labels, sentences = captions.captions(index, 3)
    again, _, factors = shapes.render(index, 3, captions.RANGES)
    assert torch.equal(pictures, again)
    assert hashlib.sha256("\n".join(sentences).encode()).hexdigest()[:16] == "4d2d7dec4f752883"
    for k, sentence in enumerate(sentences):
        assert shapes.CLASSES[labels[k]] in sentence
        said = "left" if factors["x"][k] < 0 else "right"
        assert said in sentence
        number = round(6 * float(factors["foreground_hue"][k])) % 6
        assert any(word in sentence.lower() for word in captions.COLOURS[number])
    one, _, said = captions.captions(torch.tensor([17]), 3)
    assert torch.equal(one[0], pictures[17])
    assert said == [sentences[17]]


def test_a_hue_has_the_words_of_the_closest_colour() -> None:
    numbers = [captions.colour_number(hue) for hue in (0.0, 0.08, 0.09, 0.5, 0.91, 0.92, 0.999)]
    assert numbers == [0, 0, 1, 3, 5, 0, 0]


def test_a_set_of_pairs_is_indexed_together_and_refuses_what_does_not_fit() -> None:
    made = pairs(6)
    some = made.subset(torch.tensor([4, 1]))
    assert list(some.items.sentences) == ["picture number 4", "picture number 1"]
    assert torch.equal(some.items.pictures[0], made.items.pictures[4])
    assert some.items[:1].sentences[0] == made[4][1]
    assert made.channels == 3
    other = replace(made, items=Captioned(made.items.pictures, Texts(["another"] * 6)))
    assert other.fingerprint != made.fingerprint
    with pytest.raises(ArgumentError, match="^sentences=5: expected 6, one for each picture"):
        Captioned(made.items.pictures, Texts(["a"] * 5))
    with pytest.raises(ArgumentError, match=r"^pictures='torch.float32 .*': expected uint8 of shape \[N, C, H, W\]"):
        Captioned(made.items.pictures.float(), made.items.sentences)
    with pytest.raises(ArgumentError, match=r"expected Captioned, pictures and their sentences"):
        replace(made, items=made.items.pictures)


def test_views_are_of_the_pair_and_other_views_see_the_picture_alone() -> None:
    made = pairs(4)
    seen = modality(made).augmentation(settings(image_size=8))
    picture, sentence = Captions().make(made.items, seen, torch.Generator().manual_seed(0))
    assert picture.shape == (4, 3, 8, 8)
    assert sentence.shape == (4, 20)
    assert torch.equal(sentence, Captions().plain(made.items, seen)[1])
    (alone,) = Augmented(1).plain(made.items, seen)
    assert torch.equal(alone, Captions().plain(made.items, seen)[0])
    pictures_alone = data.load("digits", n_train=20, n_test=10).train
    with pytest.raises(NotApplicableError, match=r"Captions\(\) needs pictures with sentences; captions has them"):
        Captions().make(pictures_alone.items, seen)


# retrieval


def test_what_is_closer_than_the_partner_is_counted_and_equals_count() -> None:
    pictures = F.normalize(torch.randn(9, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)), dim=1)
    sentences = F.normalize(torch.randn(9, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1)), dim=1)
    sentences[3] = sentences[5]
    expected = []
    for k in range(9):
        own = float(pictures[k] @ sentences[k])
        others = [float(pictures[k] @ sentences[n]) for n in range(9) if n != k]
        expected.append(sum(each >= own - 1e-9 for each in others))
    assert closer(pictures, sentences).tolist() == expected
    assert expected[3] >= 1
    collapsed = torch.ones(9, 4) / 2
    assert closer(collapsed, collapsed).tolist() == [8] * 9


@needs_text
def test_retrieval_needs_both_streams_and_pairs() -> None:
    splits = data.load("captions", n_train=20, n_test=10)
    task = tasks.get("retrieval", settings())
    networks = modality(splits.pretrain).encoders(Augmented(1), splits.pretrain, settings())
    seen = modality(splits.pretrain).augmentation(settings())
    with pytest.raises(NotApplicableError, match=r"retrieval compares the streams \('picture', 'sentence'\)"):
        task.score(networks, Evaluation(Augmented(1), seen, splits))
    with pytest.raises(NotApplicableError, match="retrieval is a task for captioned images; digits has images"):
        task.check(data.load("digits", n_train=20, n_test=10))


# from end to end


@pytest.fixture(scope="module")
def trained() -> Trained:
    splits = data.load("captions", n_train=800, n_test=100)
    return pretrain(CLIP, settings(), splits.pretrain, seed=0, log=quiet)


@needs_text
def test_pairs_that_were_held_out_are_found_again_far_above_chance(trained: Trained, tmp_path: Path) -> None:
    splits = data.load("captions", n_train=800, n_test=100)
    evaluation = Evaluation(CLIP.views, modality(splits.pretrain).augmentation(settings()), splits, seed=0)
    task = tasks.get("retrieval", settings())
    found = task.score(trained.encoders, evaluation)
    assert trained.history[-1]["loss"] < 0.8 * trained.history[0]["loss"]
    # chance is 1 and 5 percent
    for name in ("picture_r5", "sentence_r5"):
        assert found[name].value > 25, {name: each.value for name, each in found.items()}
    build_as = modality(splits.pretrain).build(settings())
    stored_encoders.save(trained.encoders, tmp_path, CLIP.views.streams, build_as)
    again = task.score(encoders.load(tmp_path), evaluation)
    assert {name: each.value for name, each in again.items()} == {name: each.value for name, each in found.items()}
    with torch.no_grad():
        untrained = modality(splits.pretrain).encoders(CLIP.views, splits.pretrain, settings())
    assert task.score(untrained, evaluation)["picture_r5"].value < 20


@needs_text
def test_the_bound_on_the_information_is_that_of_one_direction(trained: Trained) -> None:
    last = trained.history[-1]
    assert last["mi_bound"] == pytest.approx(math.log(50) - last["loss"] / 2)
