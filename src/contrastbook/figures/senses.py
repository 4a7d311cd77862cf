"""Other senses: what two views of a sound are, to eye and ear, and how hard two sentences push each other apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import plotly.graph_objects as go
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from contrastbook.figures.base import COLOURS, chart, dots, subplots
from contrastbook.studies import word_views
from contrastlab.domains.speech.augmentation import LogMel, draw_mask, mel_matrix
from contrastlab.scores import divergences
from contrastlab.support import escape
from contrastlab.support.errors import check_positive, reject


def audible_view(wave: Tensor, view: LogMel, rng: torch.Generator) -> tuple[Tensor, NDArray[np.float64]]:
    """One random view of a sound, and the sound that is left of it.

    ``wave``: int16 ``[T]``. Returns decibels ``[M, F]``, masked places at the mean; and samples ``[T]`` in [−1, 1],
    silent where time is masked and without the frequencies whose strongest band is masked.
    """
    speech = view.speech
    whole = view.plain(wave[None])[0, 0]
    mels, frames = whole.shape
    bands_out = draw_mask(1, mels, speech.frequency_mask, rng, wave.device)[0]
    frames_out = draw_mask(1, frames, min(speech.time_mask, frames), rng, wave.device)[0]
    is_masked = bands_out[:, None] | frames_out[None]
    decibels = whole.masked_fill(is_masked, view.mean)
    strongest_band = mel_matrix(speech.mels, speech.window, speech.rate).argmax(0)
    frequencies_out = bands_out[strongest_band]
    silent = frequencies_out[:, None] | frames_out[None]
    audible = _without(silent, wave, speech.window, speech.hop)
    noise = 0.01 * speech.noise * torch.randn(audible.shape, generator=rng)
    noisy = (audible + noise).clamp(-1, 1)
    samples: NDArray[np.float64] = noisy.double().numpy()
    return decibels, samples


def _without(silent: Tensor, wave: Tensor, window: int, hop: int) -> Tensor:
    """A 16-bit sound ``[T]``, from -1 to 1, without the frequencies that ``silent`` ``[frequencies, frames]`` marks.

    ``window`` and ``hop`` are in samples.
    """
    weights = torch.hann_window(window)
    samples = wave.float() / 32768
    spectrum = torch.stft(samples, window, hop, window=weights, center=True, pad_mode="constant", return_complex=True)
    spectrum = spectrum.masked_fill(silent, 0)
    return torch.istft(spectrum, window, hop, window=weights, center=True, length=len(wave))


def spectrograms(views: list[Tensor], titles: list[str]) -> Figure:
    """Spectrograms ``[M, F]`` side by side, in decibels, on one scale; NaN is grey."""
    if len(views) != len(titles):
        raise reject("titles", titles, f"{len(views)} of them")
    figure, panels = subplots(1, len(views), (3.2 * len(views), 2.7), sharey=True, squeeze=False)
    decibels = torch.stack(views).numpy()
    low = np.nanmin(decibels)
    high = np.nanmax(decibels)
    for panel, view, title in zip(panels[0], decibels, titles, strict=True):
        image = panel.imshow(view, vmin=low, vmax=high, origin="lower", aspect="auto")
        panel.set(facecolor="0.85", xlabel="frame")
        panel.set_title(escape.mathtext(title), fontsize="medium")
    panels[0][0].set_ylabel("mel band (low to high)")
    figure.colorbar(image, ax=list(panels[0]), label="decibels")
    return figure


def words_alike(step: int, trained: Sequence[word_views.Trained]) -> go.Figure:
    """How near the two words of each pair of synonyms are after so many steps, a row for each of two views."""
    first, second = trained
    scores = [f"{encoder.view} {encoder.similarity(step):.0f}" for encoder in trained]
    names = [encoder.view.replace(" ", "<br>", 1) for encoder in trained]
    return chart(
        f"After {step} steps, order by meaning (Spearman × 100): {', '.join(scores)}",
        "cosine of two words that mean the same",
        "",
        _dots_of_synonyms(first, step, 0, "negative", "circle"),
        _dots_of_synonyms(second, step, 1, "positive", "diamond"),
        xaxis_range=[-0.65, 1.05],
        yaxis={"range": [-0.6, 1.6], "tickvals": [0, 1], "ticktext": names},
    )


def _dots_of_synonyms(encoder: word_views.Trained, step: int, row: int, colour: str, symbol: str) -> go.Scatter:
    """A dot for each pair of synonyms at its cosine, in the row at y = ``row``, with both words as text."""
    pairs = [" and ".join(pair) for pair in word_views.synonyms()]
    apart = 0.3 * np.sin(2.4 * np.arange(len(pairs)))  # in y, so that each dot is seen
    cosines, _ = encoder.cosines(step)
    markers = dots(encoder.view, cosines.numpy(), row + apart, colour, symbol, 9)
    return markers.update(text=pairs, hoverinfo="text+x")


def crossing(weight: float, spread: float) -> float:
    """Cosine at which KL's push of one negative is as strong as its pull of the positive: ``1 − log α / 2c``."""
    return 1 - float(np.log(weight)) / (2 * spread)


def push(weight: float = 409600.0, spread: float = 20.0, divergence: str = "kl") -> go.Figure:
    """Slope of f-MICL's two terms in the cosine of a pair: pull of a positive, push of a negative.

    ``weight``: α of the negatives' term. ``spread``: ``c = 1/2σ²``.
    """
    check_positive(weight=weight, spread=spread)
    f = divergences.get(divergence)
    cosine = torch.linspace(-1, 1, 201, dtype=torch.float64)
    log_u = 2 * spread * (cosine - 1)  # of the Gaussian similarity
    log_u.requires_grad_()

    def slope(term: Callable[[Tensor], Tensor]) -> Tensor:
        """Derivative of a term in the cosine."""
        (in_log_u,) = torch.autograd.grad(term(log_u).sum(), log_u)
        return in_log_u * 2 * spread

    def curve(name: str, slopes: Tensor, colour: str) -> go.Scatter:
        look = {"color": COLOURS[colour]}
        return go.Scatter(x=cosine.numpy(), y=slopes.numpy(), mode="lines", name=name, line=look)

    pull = slope(f.derivative)
    push_of_one = weight * slope(f.composition)
    return chart(
        f"{f.title}, α = {weight:g}, c = {spread:g}: how hard a pair is pulled and pushed",
        "cosine of the pair",
        "slope of the loss",
        curve("pull of a positive", pull, "positive"),
        curve("push of a negative", push_of_one, "negative"),
        yaxis={"type": "log", "range": [-8, 8], "dtick": 2, "exponentformat": "power"},
    )
