"""Waveforms as log-mel spectrograms, and views of them by masks and noise, for whole batches on the batch's device."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from contrastlab.pictures.loading import batches
from contrastlab.settings import Settings, Speech
from contrastlab.support.errors import check

FLOOR = 1e-10  #: smallest squared power whose logarithm is taken: silence is −100 dB
RANGE = 80.0  #: decibels below the loudest band of a spectrogram that are kept; what is fainter is raised to there
_LINEAR, _KNEE, _STEP = 200 / 3, 1000.0, math.log(6.4) / 27


def hertz_to_mel(hertz: Tensor) -> Tensor:
    """Slaney's mel scale, as librosa has it: linear up to 1,000 Hz, logarithmic above."""
    above = _KNEE / _LINEAR + (hertz.clamp(min=_KNEE) / _KNEE).log() / _STEP
    return torch.where(hertz < _KNEE, hertz / _LINEAR, above)


def mel_to_hertz(mel: Tensor) -> Tensor:
    """The inverse of :func:`hertz_to_mel`."""
    knee = _KNEE / _LINEAR
    return torch.where(mel < knee, mel * _LINEAR, _KNEE * (_STEP * (mel - knee).clamp(min=0)).exp())


@lru_cache(maxsize=8)
def mel_matrix(bands: int, window: int, rate: int) -> Tensor:
    """Float32 ``[bands, window // 2 + 1]``: triangles of area 1, evenly spaced in mel from 0 to half the rate."""
    top = float(hertz_to_mel(torch.tensor(rate / 2, dtype=torch.float64)))
    edges = mel_to_hertz(torch.linspace(0, top, bands + 2, dtype=torch.float64))
    hertz = torch.arange(window // 2 + 1, dtype=torch.float64) * rate / window
    low, peak, high = (edges[k : k + bands, None] for k in range(3))
    triangles = torch.minimum((hertz - low) / (peak - low), (high - hertz) / (high - peak)).clamp(min=0)
    accepted = f"fewer bands: one has none of the {len(hertz)} frequencies of a window"
    check(bool((triangles.sum(1) > 0).all()), "speech.mels", bands, accepted)
    return (2 * triangles / (high - low)).float()


def log_mel(waves: Tensor, *, bands: int, window: int, hop: int, rate: int) -> Tensor:
    """The square of the power in mel bands over time, in decibels: float32 ``[B, 1, bands, 1 + T // hop]``.

    So reads the code of ring's authors (alextamkin/viewmaker, d9a7d4b), whose constants of normalisation are for it.
    Nothing is below :data:`FLOOR` or :data:`RANGE` under a sound's loudest band. ``waves`` are ``[B, T]``, int16 or
    floating in [−1, 1]; every ``hop`` samples is a Hann window of ``window`` samples, with zeros beyond the ends.
    """
    x = waves.float() / 32768 if waves.dtype == torch.int16 else waves.float()
    shape = torch.hann_window(window, device=x.device)
    spectrum = torch.stft(x, window, hop, window=shape, center=True, pad_mode="constant", return_complex=True)
    power = spectrum.real.square() + spectrum.imag.square()
    mel = mel_matrix(bands, window, rate).to(x.device) @ power
    decibels = 20 * mel.clamp(min=math.sqrt(FLOOR)).log10()
    return torch.maximum(decibels, decibels.amax((1, 2), keepdim=True) - RANGE)[:, None]


def draw_mask(count: int, length: int, widest: int, rng: torch.Generator | None, device: torch.device) -> Tensor:
    """Boolean ``[count, length]``, True in one stretch a row, of a uniform width from 0 to ``widest`` and start."""
    check(0 <= widest <= length, "mask", widest, f"a width from 0 to the {length} places of a spectrogram")
    draws = torch.rand(2, count, generator=rng, device=device, dtype=torch.float64)
    width = (draws[0] * (widest + 1)).long()
    start = (draws[1] * (length - width + 1)).long()
    place = torch.arange(length, device=device)
    return (place >= start[:, None]) & (place < (start + width)[:, None])


@dataclass(frozen=True)
class LogMel:
    """Views of waveforms: log-mel spectrograms, random ones with masks and noise (SpecAugment)."""

    speech: Speech
    mean: float  #: decibels that :meth:`normalise` subtracts
    std: float  #: decibels that it divides by

    def plain(self, batch: Any) -> Tensor:
        """Decibels ``[B, 1, M, F]`` of waveforms ``[B, T]``."""
        waves = isinstance(batch, Tensor) and batch.dim() == 2
        check(waves, "batch", getattr(batch, "shape", type(batch).__name__), "waveforms [B, T]")
        s = self.speech
        return log_mel(batch, bands=s.mels, window=s.window, hop=s.hop, rate=s.rate)

    def random(self, batch: Any, rng: torch.Generator | None = None, *, view: int = 0) -> Tensor:
        """Decibels ``[B, 1, M, F]`` with noise, one frequency mask and one time mask a row; masked is the mean."""
        out, s = self.plain(batch), self.speech
        out = out + s.noise * self.std * torch.randn(out.shape, generator=rng, device=out.device)
        frequency = draw_mask(len(out), out.shape[2], s.frequency_mask, rng, out.device)
        time = draw_mask(len(out), out.shape[3], min(s.time_mask, out.shape[3]), rng, out.device)
        return out.masked_fill(frequency[:, None, :, None] | time[:, None, None, :], self.mean)

    def normalise(self, view: Tensor) -> Tensor:
        """Subtract the mean and divide by the deviation."""
        return (view - self.mean) / self.std

    def fitted(self, source: Any, indices: Tensor, device: torch.device | str = "cpu") -> LogMel:
        """The same views, standardised by mean and deviation over the spectrograms of some items."""
        check_rate(source, self.speech)
        count, sums = 0, torch.zeros(2, dtype=torch.float64, device=device)
        for _, waves in batches(source, indices, 256, device, drop_last=False):
            values = self.plain(waves).double()
            count += values.numel()
            sums += torch.stack([values.sum(), values.square().sum()])
        mean, square = (sums / count).tolist()
        return replace(self, mean=mean, std=math.sqrt(max(square - mean**2, 1e-4)))


def check_rate(source: Any, speech: Speech) -> None:
    """Refuse waveforms of another rate than settings say."""
    accepted = f"{source.rate}, the samples a second of {source.name}"
    check(source.rate == speech.rate, "speech.rate", speech.rate, accepted)


def views_of(settings: Settings) -> LogMel:
    """The views of speech that settings ask for."""
    return LogMel(settings.speech, settings.speech.mean, settings.speech.std)
