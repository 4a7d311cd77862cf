"""The words of sound and sentences: what two kinds of views teach, and scores against loops."""

import math

import pytest
import torch
from scipy.stats import spearmanr

from contrastbook.figures import senses
from contrastbook.made import grammar
from contrastbook.studies import word_views
from contrastlab import data

Place = tuple[str, int]


def places_of_words() -> dict[str, Place]:
    """Each filler of the grammar, and its slot and its number there; two wordings of a meaning have one place."""
    places = {}
    for slot, (_, fillers) in grammar.SLOTS.items():
        for number, wordings in enumerate(fillers):
            for filler in wordings:
                places[filler] = (slot, number)
    return places


PLACES = places_of_words()


def meaning(sentence: str) -> set[Place]:
    found = [filler for filler in PLACES if filler in sentence.lower()]
    places = set()
    for filler in found:
        is_part_of_another = any(filler != other and filler in other for other in found)
        if not is_part_of_another:
            places.add(PLACES[filler])
    return places


def test_two_wordings_have_one_meaning_and_often_other_words() -> None:
    pairs = grammar.wordings(60, seed=3)
    for first, second in pairs:
        assert meaning(first) == meaning(second)
    different = [pair for pair in pairs if pair[0] != pair[1]]
    assert len(different) > 50


def test_wordings_are_drawn_from_their_seed() -> None:
    assert grammar.wordings(60, seed=3) == grammar.wordings(60, seed=3)
    assert grammar.wordings(60, seed=3) != grammar.wordings(60, seed=4)


def test_the_bag_of_a_sentence_has_one_at_its_words_however_often_they_occur() -> None:
    vocabulary = word_views.vocabulary()
    (bag,) = word_views.bags(["The cook finds a cup by the sea."])
    expected = torch.zeros(len(vocabulary))
    for word in ("the", "cook", "finds", "a", "cup", "by", "sea"):
        expected[vocabulary.index(word)] = 1
    assert torch.equal(bag, expected)


def test_synonyms_are_single_words() -> None:
    synonyms = word_views.synonyms()
    assert ("cup", "mug") in synonyms
    words = [word for pair in synonyms for word in pair]
    assert "haste" not in words  # of "slowly" and "without haste"


@pytest.fixture(scope="module")
def left_out() -> word_views.Trained:
    return word_views.train("words left out", 9, steps=(0, 200))


@pytest.fixture(scope="module")
def worded() -> word_views.Trained:
    return word_views.train("another wording", 9, steps=(0, 200))


def test_both_views_start_from_the_same_vectors(left_out, worded) -> None:
    assert torch.equal(left_out.vectors[0], worded.vectors[0])


def test_another_wording_teaches_similarity_and_words_left_out_teach_less(left_out, worded) -> None:
    assert worded.similarity(200) > 90
    assert left_out.similarity(200) < 75


def test_another_wording_teaches_synonyms_and_words_left_out_do_not(left_out, worded) -> None:
    synonyms, others = worded.cosines(200)
    assert synonyms.mean() > 0.8
    assert others.mean() < 0.1
    synonyms, _ = left_out.cosines(200)
    assert synonyms.mean() < 0.1


Vector = list[float]


def vectors_of(trained: word_views.Trained) -> dict[str, Vector]:
    return dict(zip(word_views.vocabulary(), trained.vectors[200].double().tolist(), strict=True))


def cosine(a: Vector, b: Vector) -> float:
    product = sum(x * y for x, y in zip(a, b, strict=True))
    return product / (math.hypot(*a) * math.hypot(*b))


def embed(sentence: str, vectors: dict[str, Vector]) -> Vector:
    """The sum of the vectors of its different words."""
    total = [0.0] * 64
    for word in set(sentence.lower().rstrip(".").split()):
        total = [x + y for x, y in zip(total, vectors[word], strict=True)]
    return total


def test_similarity_is_the_rank_correlation_of_cosines_and_true_scores(worded) -> None:
    vectors = vectors_of(worded)
    pairs = data.load("grammar_pairs").test
    cosines = []
    for first, second in zip(pairs.first, pairs.second, strict=True):
        cosines.append(cosine(embed(first, vectors), embed(second, vectors)))
    expected = 100 * spearmanr(cosines, pairs.scores).statistic
    assert worded.similarity(200) == pytest.approx(expected, abs=0.01)


def test_cosines_of_synonyms_are_what_loops_say_and_what_the_picture_shows(left_out, worded) -> None:
    vectors = vectors_of(worded)
    expected = [cosine(vectors[word], vectors[other]) for word, other in word_views.synonyms()]
    synonyms, _ = worded.cosines(200)
    assert synonyms.tolist() == pytest.approx(expected, abs=1e-4)
    of_left_out, of_worded = senses.words_alike(200, [left_out, worded]).data
    assert of_left_out.name == "words left out"
    assert of_worded.name == "another wording"
    assert list(of_worded.x) == pytest.approx(expected, abs=1e-4)
