"""The words of sound and sentences: what two kinds of views teach, and scores against loops."""

import math

import pytest
from scipy.stats import spearmanr

from contrastbook.figures import senses
from contrastbook.made import grammar
from contrastbook.studies import word_views
from contrastlab import data

FILLER = {
    word: (slot, number)
    for slot, (_, fillers) in grammar.SLOTS.items()
    for number, filler in enumerate(fillers)
    for word in filler
}


def meaning(sentence: str) -> set[tuple[str, int]]:
    found = {word: place for word, place in FILLER.items() if word in sentence.lower()}
    return {place for word, place in found.items() if not any(word != other and word in other for other in found)}


def test_two_wordings_have_one_meaning_and_often_other_words() -> None:
    pairs = grammar.wordings(60, seed=3)
    assert all(meaning(first) == meaning(second) for first, second in pairs)
    assert sum(first != second for first, second in pairs) > 50
    assert pairs == grammar.wordings(60, seed=3) != grammar.wordings(60, seed=4)


def test_words_bags_and_synonyms() -> None:
    words = word_views.vocabulary()
    (bag,) = word_views.bags(["The cook finds a cup by the sea."])
    there = {word for word, share in zip(words, bag.tolist(), strict=True) if share}
    assert there == {"the", "cook", "finds", "a", "cup", "by", "sea"}
    assert set(bag.tolist()) == {0, 1}
    assert ("cup", "mug") in word_views.synonyms()
    assert not any("haste" in pair for pair in word_views.synonyms())


def test_another_wording_teaches_synonyms_and_words_left_out_do_not() -> None:
    left_out, worded = (word_views.train(view, 9, steps=(0, 200)) for view in word_views.VIEWS)
    assert left_out.similarity(0) == worded.similarity(0)
    assert worded.similarity(200) > 90 > 75 > left_out.similarity(200)
    assert worded.cosines(200)[0].mean() > 0.8 > 0.1 > left_out.cosines(200)[0].mean()
    assert worded.cosines(200)[1].mean() < 0.1

    # the score and the cosines again, by loops
    words, rows = word_views.vocabulary(), worded.vectors[200].double().tolist()
    vector = dict(zip(words, rows, strict=True))

    def cosine(a: list[float], b: list[float]) -> float:
        return sum(x * y for x, y in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b)

    def embed(sentence: str) -> list[float]:
        inside = [vector[word] for word in set(sentence.lower().rstrip(".").split())]
        return [sum(column) for column in zip(*inside, strict=True)]

    pairs = data.load("grammar_pairs").test
    cosines = [cosine(embed(a), embed(b)) for a, b in zip(pairs.first, pairs.second, strict=True)]
    assert worded.similarity(200) == pytest.approx(100 * spearmanr(cosines, pairs.scores).statistic, abs=0.01)
    expected = [cosine(vector[a], vector[b]) for a, b in word_views.synonyms()]
    assert worded.cosines(200)[0].tolist() == pytest.approx(expected, abs=1e-4)
    shown = senses.words_alike(200, [left_out, worded]).data
    assert [trace.name for trace in shown] == list(word_views.VIEWS)
    assert list(shown[1].x) == pytest.approx(expected, abs=1e-4)
