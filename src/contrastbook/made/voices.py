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

VOWELS = {"a": (730, 1090), "e": (530, 1840), "i": (270, 2290), "o": (570, 840), "u": (300, 870)}
"""First two formants in hertz (Peterson and Barney 1952, men)."""

_CONSONANTS = {"s": 3400.0, "f": 2200.0, "t": 3000.0, "k": 1700.0, "p": 800.0}  # hertz of the hiss or burst

DIGITS = ("pa", "ti", "ku", "se", "fo", "pati", "kuse", "tifo", "sepa", "foku")
ACTIONS = ("taki", "supe", "foti")
OBJECTS = ("pika", "sotu", "kefa", "tupo")
PLACES = ("sasi", "fuke", "topi")
_LENGTH, _TAKES = 8192, 3


class Voice(NamedTuple):
    """Who speaks."""

    pitch: float  # hertz
    throat: float  # a factor on all formants
    rate: float  # vowels a second


VOICES = tuple(
    Voice(float(np.round(90 * 1.13**k, 3)), float(np.round(0.85 + 0.05 * ((3 * k) % 8), 3)), 7.0 + k % 3)
    for k in range(8)
)
"""The voices of the corpus, evenly spread."""


def _resonate(signal: NDArray[np.float64], centre: float, width: float) -> NDArray[np.float64]:
    """A second-order resonance at ``centre`` hertz, ``width`` hertz wide."""
    radius = np.exp(-np.pi * width / RATE)
    angle = 2 * np.pi * centre / RATE
    out: NDArray[np.float64] = lfilter([1 - radius], [1, -2 * radius * np.cos(angle), radius**2], signal)
    return out


def _syllable(letters: str, voice: Voice, rng: np.random.Generator) -> NDArray[np.float64]:
    """A consonant and a vowel: noise (long for a hiss, short for a burst), then pulses through two formants."""
    hiss = letters[0] in "sf"
    count = round(RATE / voice.rate * rng.uniform(0.9, 1.1))
    noise = round(count * (0.35 if hiss else 0.12))
    burst = rng.standard_normal(noise) * (0.25 if hiss else 0.5)
    burst = 6 * _resonate(burst, min(_CONSONANTS[letters[0]] * voice.throat, 0.47 * RATE), 500)
    time = np.arange(count - noise) / RATE
    pitch = voice.pitch * (1 + 0.03 * rng.standard_normal()) * (1 - 0.15 * time * voice.rate)
    pulses = np.diff(np.floor(np.cumsum(pitch) / RATE), prepend=0.0)
    for centre, width in zip(VOWELS[letters[1]], (90, 120), strict=True):
        pulses = pulses + 8 * _resonate(pulses, centre * voice.throat * (1 + 0.02 * rng.standard_normal()), width)
    vowel = pulses * np.sin(np.pi * np.linspace(0, 1, len(pulses))) ** 0.5
    return np.concatenate([burst, vowel])


def say(word: str, voice: Voice, rng: np.random.Generator) -> NDArray[np.int16]:
    """A word of two letters a syllable, as int16 samples with a little noise."""
    parts = [word[k : k + 2] for k in range(0, len(word), 2)]
    if not word or any(len(p) != 2 or p[0] not in _CONSONANTS or p[1] not in VOWELS for p in parts):
        raise reject("word", word, "syllables of one of p t k s f and one of a e i o u")
    sound = np.concatenate([_syllable(part, voice, rng) for part in parts])
    sound = 0.4 * sound / max(float(np.abs(sound).max()), 1e-9) * rng.uniform(0.5, 1.0)
    sound = sound + 0.002 * rng.standard_normal(len(sound))
    # rounded to steps far above what processors differ in
    return (np.rint(np.clip(sound, -1, 1) * 2047) * 16).astype(np.int16)


@lru_cache(maxsize=1)
def _corpus() -> tuple[Tensor, list[dict[str, int]]]:
    # a digit, a word, or a command of action, object and place; every voice says it several times
    words = [(word, {"digit": k}) for k, word in enumerate(DIGITS)]
    words += [(word, {"command": k}) for k, word in enumerate((*ACTIONS, *OBJECTS, *PLACES))]
    for (a, action), (o, thing), (p, place) in itertools.product(*map(enumerate, (ACTIONS, OBJECTS, PLACES))):
        words.append((action + thing + place, {"action": a, "object": o, "location": p}))
    waves, labels = [], []
    rng = np.random.default_rng(0)
    for (speaker, voice), (word, about), take in itertools.product(enumerate(VOICES), words, range(_TAKES)):
        waves.append(fitted(say(word, voice, rng), _LENGTH))
        labels.append({"speaker": speaker, "take": take, **about})
    return torch.stack(waves), labels


_CLASSES = {
    "speaker": tuple(f"voice {k}" for k in range(len(VOICES))),
    "digit": DIGITS,
    "command": (*ACTIONS, *OBJECTS, *PLACES),
    "action": ACTIONS,
    "object": OBJECTS,
    "location": PLACES,
}


def load(request: Request) -> Splits:
    """The splits of ``voices_<task>``; ``voices`` is ``voices_speaker``."""
    task = request.name.partition("_")[2] or "speaker"
    waves, about = _corpus()
    rows = [k for k, labels in enumerate(about) if task in labels]
    labels = torch.tensor([about[k][task] for k in rows])
    pool = WaveSet(request.name, waves[torch.tensor(rows)], labels, _CLASSES[task], RATE)
    first = torch.tensor([about[k]["take"] == 0 for k in rows])
    train, test = pool.subset((~first).nonzero()[:, 0]), pool.subset(first.nonzero()[:, 0])
    note = f"made voices, {task}; one of {_TAKES} takes of all is the test"
    return Splits.of(request.name, train, test, note)
