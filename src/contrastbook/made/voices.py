"""Generated spoken commands: formant voices say a grammar of actions, objects and places.

A voice is a pitch, a scale of all formants (the length of the throat) and a rate of speech; a word is one or two vowels
with a burst or a hiss before each. All six labels of ring Table 5c exist by construction.
"""

from __future__ import annotations

import itertools
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.signal import lfilter
from torch import Tensor

from contrastlab.data import Request, Splits
from contrastlab.domains.speech.data import WaveSet, fitted
from contrastlab.support.errors import reject

RATE = 8000
"""Samples a second."""

VOWELS = {
    "a": (730, 1090),
    "e": (530, 1840),
    "i": (270, 2290),
    "o": (570, 840),
    "u": (300, 870),
}
"""First two formants in hertz (Peterson and Barney 1952, men)."""

_CONSONANTS = {"s": 3400.0, "f": 2200.0, "t": 3000.0, "k": 1700.0, "p": 800.0}  # hertz of the hiss or burst
_HISSES = "sf"  # long consonants; the others are short bursts
_WIDTHS = (90, 120)  # hertz of the two formants

DIGITS = ("pa", "ti", "ku", "se", "fo", "pati", "kuse", "tifo", "sepa", "foku")
ACTIONS = ("taki", "supe", "foti")
OBJECTS = ("pika", "sotu", "kefa", "tupo")
PLACES = ("sasi", "fuke", "topi")
_LENGTH = 8192  # samples of a recording
_TAKES = 3  # of each word by each voice

Samples = NDArray[np.float64]


class Voice(NamedTuple):
    """Who speaks."""

    pitch: float  # hertz
    throat: float  # a factor on all formants
    rate: float  # vowels a second


def _voice(number: int) -> Voice:
    """One of the eight voices: each has another pitch, and another throat that does not follow the pitch."""
    pitch = np.round(90 * 1.13**number, 3)
    step_of_throat = (3 * number) % 8
    throat = np.round(0.85 + 0.05 * step_of_throat, 3)
    rate = 7.0 + number % 3
    return Voice(float(pitch), float(throat), rate)


VOICES = tuple(_voice(number) for number in range(8))
"""The voices of the corpus, evenly spread."""


def _resonate(signal: Samples, centre: float, width: float) -> Samples:
    """A second-order resonance at ``centre`` hertz, ``width`` hertz wide."""
    radius = np.exp(-np.pi * width / RATE)
    angle = 2 * np.pi * centre / RATE
    recursion = [1, -2 * radius * np.cos(angle), radius**2]
    resonance: Samples = lfilter([1 - radius], recursion, signal)
    return resonance


def _consonant(letter: str, length: int, voice: Voice, rng: np.random.Generator) -> Samples:
    """Noise of so many samples, around the letter's frequency."""
    loudness = 0.25 if letter in _HISSES else 0.5
    noise = rng.standard_normal(length) * loudness
    frequency = min(_CONSONANTS[letter] * voice.throat, 0.47 * RATE)
    return 6 * _resonate(noise, frequency, 500)


def _vowel(letter: str, length: int, voice: Voice, rng: np.random.Generator) -> Samples:
    """Pulses of a falling pitch through two formants, of so many samples."""
    time = np.arange(length) / RATE
    intonation = 1 + 0.03 * rng.standard_normal()
    pitch = voice.pitch * intonation * (1 - 0.15 * time * voice.rate)
    cycles = np.floor(np.cumsum(pitch) / RATE)
    sound = np.diff(cycles, prepend=0.0)  # a pulse where a cycle begins
    for formant, width in zip(VOWELS[letter], _WIDTHS, strict=True):
        articulation = 1 + 0.02 * rng.standard_normal()
        centre = formant * voice.throat * articulation
        sound = sound + 8 * _resonate(sound, centre, width)
    loudness = np.sin(np.pi * np.linspace(0, 1, length)) ** 0.5
    return sound * loudness


def _syllable(letters: str, voice: Voice, rng: np.random.Generator) -> Samples:
    """A consonant and a vowel."""
    consonant = letters[0]
    vowel = letters[1]
    length = round(RATE / voice.rate * rng.uniform(0.9, 1.1))
    share = 0.35 if consonant in _HISSES else 0.12
    noise = round(length * share)
    first = _consonant(consonant, noise, voice, rng)
    second = _vowel(vowel, length - noise, voice, rng)
    return np.concatenate([first, second])


def _is_syllable(letters: str) -> bool:
    """Whether letters are a consonant and a vowel that voices can say."""
    return len(letters) == 2 and letters[0] in _CONSONANTS and letters[1] in VOWELS


def say(word: str, voice: Voice, rng: np.random.Generator) -> NDArray[np.int16]:
    """A word of two letters a syllable, as int16 samples with a little noise."""
    syllables = [word[start : start + 2] for start in range(0, len(word), 2)]
    if not word or not all(_is_syllable(letters) for letters in syllables):
        raise reject("word", word, "syllables of one of p t k s f and one of a e i o u")
    sound = np.concatenate([_syllable(letters, voice, rng) for letters in syllables])
    peak = max(float(np.abs(sound).max()), 1e-9)
    loudness = rng.uniform(0.5, 1.0)
    sound = 0.4 * sound / peak * loudness
    sound = sound + 0.002 * rng.standard_normal(len(sound))
    # rounded to steps far above what processors differ in
    steps = np.rint(np.clip(sound, -1, 1) * 2047)
    return (steps * 16).astype(np.int16)


def _words() -> list[tuple[str, dict[str, int]]]:
    """What every voice says, each with its labels: a digit, a word of a command, or a command of three words."""
    words: list[tuple[str, dict[str, int]]] = []
    for number, word in enumerate(DIGITS):
        words.append((word, {"digit": number}))
    for number, word in enumerate((*ACTIONS, *OBJECTS, *PLACES)):
        words.append((word, {"command": number}))
    commands = itertools.product(enumerate(ACTIONS), enumerate(OBJECTS), enumerate(PLACES))
    for (action, first), (thing, second), (place, third) in commands:
        labels = {"action": action, "object": thing, "location": place}
        words.append((first + second + third, labels))
    return words


@lru_cache(maxsize=1)
def _corpus() -> tuple[Tensor, list[dict[str, int]]]:
    """All recordings ``[N, _LENGTH]`` and the labels of each."""
    rng = np.random.default_rng(0)
    waves: list[Tensor] = []
    labels: list[dict[str, int]] = []
    for speaker, voice in enumerate(VOICES):
        for word, about in _words():
            for take in range(_TAKES):
                waves.append(fitted(say(word, voice, rng), _LENGTH))
                labels.append({"speaker": speaker, "take": take, **about})
    return torch.stack(waves), labels


_CLASSES = {
    "speaker": tuple(f"voice {number}" for number in range(len(VOICES))),
    "digit": DIGITS,
    "command": (*ACTIONS, *OBJECTS, *PLACES),
    "action": ACTIONS,
    "object": OBJECTS,
    "location": PLACES,
}


def load(request: Request) -> Splits:
    """The splits of ``voices_<task>``; ``voices`` is ``voices_speaker``."""
    _, _, named_task = request.name.partition("_")
    task = named_task or "speaker"
    waves, labels = _corpus()
    rows = [row for row, about in enumerate(labels) if task in about]
    classes = torch.tensor([labels[row][task] for row in rows])
    takes = torch.tensor([labels[row]["take"] for row in rows])
    recordings = WaveSet(request.name, waves[torch.tensor(rows)], classes, _CLASSES[task], RATE)
    train = recordings.subset((takes != 0).nonzero()[:, 0])
    test = recordings.subset((takes == 0).nonzero()[:, 0])
    note = f"made voices, {task}; one of {_TAKES} takes of all is the test"
    return Splits.of(request.name, train, test, note)
