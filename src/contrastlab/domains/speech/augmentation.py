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
_LINEAR = 200 / 3  # hertz of a mel below the knee
_KNEE = 1000.0  # hertz
_STEP = math.log(6.4) / 27  # by which the logarithm of hertz grows with a mel above the knee


def hertz_to_mel(hertz: Tensor) -> Tensor:
    """Slaney's mel scale, as librosa has it: linear up to 1,000 Hz, logarithmic above."""
    below = hertz / _LINEAR
    log_ratio = (hertz.clamp(min=_KNEE) / _KNEE).log()
    above = _KNEE / _LINEAR + log_ratio / _STEP
    return torch.where(hertz < _KNEE, below, above)


def mel_to_hertz(mel: Tensor) -> Tensor:
    """The inverse of :func:`hertz_to_mel`."""
    knee = _KNEE / _LINEAR
    below = mel * _LINEAR
    log_ratio = _STEP * (mel - knee).clamp(min=0)
    above = _KNEE * log_ratio.exp()
    return torch.where(mel < knee, below, above)


@lru_cache(maxsize=8)
def mel_matrix(bands: int, window: int, rate: int) -> Tensor:
    """Float32 ``[bands, window // 2 + 1]``: triangles of area 1, evenly spaced in mel from 0 to half the rate."""
    half_rate = torch.tensor(rate / 2, dtype=torch.float64)
    top = float(hertz_to_mel(half_rate))
    mels = torch.linspace(0, top, bands + 2, dtype=torch.float64)
    edges = mel_to_hertz(mels)
    hertz = torch.arange(window // 2 + 1, dtype=torch.float64) * rate / window
    low = edges[:bands, None]
    peak = edges[1 : bands + 1, None]
    high = edges[2:, None]
    rising = (hertz - low) / (peak - low)
    falling = (high - hertz) / (high - peak)
    triangles = torch.minimum(rising, falling).clamp(min=0)
    has_frequency = triangles.sum(1) > 0
    accepted = f"fewer bands: one has none of the {len(hertz)} frequencies of a window"
    check(bool(has_frequency.all()), "speech.mels", bands, accepted)
    of_area_1 = 2 * triangles / (high - low)
    return of_area_1.float()


def log_mel(waves: Tensor, *, bands: int, window: int, hop: int, rate: int) -> Tensor:
    """The square of the power in mel bands over time, in decibels: float32 ``[B, 1, bands, 1 + T // hop]``.

    The code of ring's authors (alextamkin/viewmaker, d9a7d4b) does so, and its constants of normalisation are for it.
    Nothing is below :data:`FLOOR` or :data:`RANGE` under a sound's loudest band. ``waves`` are ``[B, T]``, int16 or
    floating in [−1, 1]; every ``hop`` samples is a Hann window of ``window`` samples, with zeros beyond the ends.
    """
    samples = waves.float()
    if waves.dtype == torch.int16:
        samples = samples / 32768
    spectrum = torch.stft(
        samples,
        window,
        hop,
        window=torch.hann_window(window, device=samples.device),
        center=True,
        pad_mode="constant",
        return_complex=True,
    )
    power = spectrum.real.square() + spectrum.imag.square()
    to_mel = mel_matrix(bands, window, rate).to(samples.device, non_blocking=True)
    mel = to_mel @ power
    decibels = 20 * mel.clamp(min=math.sqrt(FLOOR)).log10()
    loudest = decibels.amax((1, 2), keepdim=True)
    return torch.maximum(decibels, loudest - RANGE)[:, None]


def draw_mask(count: int, length: int, widest: int, rng: torch.Generator | None, device: torch.device) -> Tensor:
    """Boolean ``[count, length]``, True in one stretch a row, of a uniform width from 0 to ``widest`` and start."""
    check(0 <= widest <= length, "mask", widest, f"a width from 0 to the {length} places of a spectrogram")
    draws = torch.rand(2, count, generator=rng, device=device, dtype=torch.float64)
    width = (draws[0] * (widest + 1)).long()
    start = (draws[1] * (length - width + 1)).long()
    end = start + width
    place = torch.arange(length, device=device)
    return (place >= start[:, None]) & (place < end[:, None])


@dataclass(frozen=True)
class LogMel:
    """Views of waveforms: log-mel spectrograms, random ones with masks and noise (SpecAugment)."""

    speech: Speech
    mean: float  #: decibels that :meth:`normalise` subtracts
    std: float  #: decibels that it divides by

    def plain(self, batch: Any) -> Tensor:
        """Decibels ``[B, 1, M, F]`` of waveforms ``[B, T]``."""
        are_waves = isinstance(batch, Tensor) and batch.dim() == 2
        shape = getattr(batch, "shape", type(batch).__name__)
        check(are_waves, "batch", shape, "waveforms [B, T]")
        speech = self.speech
        return log_mel(
            batch,
            bands=speech.mels,
            window=speech.window,
            hop=speech.hop,
            rate=speech.rate,
        )

    def random(self, batch: Any, rng: torch.Generator | None = None, *, view: int = 0) -> Tensor:
        """Decibels ``[B, 1, M, F]`` with noise, one frequency mask and one time mask a row; masked is the mean."""
        decibels = self.plain(batch)
        device = decibels.device
        noise = torch.randn(decibels.shape, generator=rng, device=device)
        noisy = decibels + self.speech.noise * self.std * noise
        count, _, bands, frames = decibels.shape
        band_is_masked = draw_mask(count, bands, self.speech.frequency_mask, rng, device)
        widest = min(self.speech.time_mask, frames)
        frame_is_masked = draw_mask(count, frames, widest, rng, device)
        is_masked = band_is_masked[:, None, :, None] | frame_is_masked[:, None, None, :]
        return noisy.masked_fill(is_masked, self.mean)

    def normalise(self, view: Tensor) -> Tensor:
        """Subtract the mean and divide by the deviation."""
        return (view - self.mean) / self.std

    def fitted(self, source: Any, indices: Tensor, device: torch.device | str = "cpu") -> LogMel:
        """The same views, standardised by mean and deviation over the spectrograms of some items."""
        check_rate(source, self.speech)
        count = 0
        sums = torch.zeros(2, dtype=torch.float64, device=device)
        for _, waves in batches(source, indices, 256, device, drop_last=False):
            values = self.plain(waves).double()
            squares = values.square()
            count += values.numel()
            sums += torch.stack([values.sum(), squares.sum()])
        mean, square = (sums / count).tolist()
        variance = max(square - mean**2, 1e-4)
        return replace(self, mean=mean, std=math.sqrt(variance))


def check_rate(source: Any, speech: Speech) -> None:
    """Refuse waveforms of another rate than settings say."""
    accepted = f"{source.rate}, the samples a second of {source.name}"
    check(source.rate == speech.rate, "speech.rate", speech.rate, accepted)


def views_of(settings: Settings) -> LogMel:
    """The views of speech that settings ask for."""
    speech = settings.speech
    return LogMel(speech, speech.mean, speech.std)
