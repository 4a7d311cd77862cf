"""Other senses: what two views of a sound are, to eye and ear, and how hard two sentences push each other apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from contrastbook.checks import require_positive
from contrastbook.figures.base import COLOURS, chart, dots, subplots
from contrastbook.studies import word_views
from contrastlab.domains.speech.augmentation import LogMel, draw_mask, mel_matrix
from contrastlab.scores import divergences
from contrastlab.support import escape
from contrastlab.support.errors import reject


def audible_view(wave: Tensor, view: LogMel, rng: torch.Generator) -> tuple[Tensor, NDArray[np.float64]]:
    """One random view of a sound, and the sound that is left of it.

    ``wave``: int16 ``[T]``. Returns decibels ``[M, F]``, masked places at the mean; and samples ``[T]`` in [−1, 1],
    silent where time is masked and without the frequencies whose strongest band is masked.
    """
    s, plain = view.speech, view.plain(wave[None])[0, 0]
    bands = draw_mask(1, plain.shape[0], s.frequency_mask, rng, wave.device)[0]
    frames = draw_mask(1, plain.shape[1], min(s.time_mask, plain.shape[1]), rng, wave.device)[0]
    shown = plain.masked_fill(bands[:, None] | frames[None], view.mean)
    shape = torch.hann_window(s.window)
    spectrum = torch.stft(
        wave.float() / 32768, s.window, s.hop, window=shape, center=True, pad_mode="constant", return_complex=True
    )
    silent = bands[mel_matrix(s.mels, s.window, s.rate).argmax(0)][:, None] | frames[None]
    heard = torch.istft(spectrum.masked_fill(silent, 0), s.window, s.hop, window=shape, center=True, length=len(wave))
    noise = 0.01 * s.noise * torch.randn(heard.shape, generator=rng)
    samples: NDArray[np.float64] = (heard + noise).clamp(-1, 1).double().numpy()
    return shown, samples


def spectrograms(views: list[Tensor], titles: list[str]) -> Figure:
    """Spectrograms ``[M, F]`` side by side, in decibels, on one scale; NaN is grey."""
    if len(views) != len(titles):
        raise reject("titles", titles, f"{len(views)} of them")
    figure, panels = subplots(1, len(views), (3.2 * len(views), 2.7), sharey=True, squeeze=False)
    every = torch.stack(views).numpy()
    for panel, view, title in zip(panels[0], every, titles, strict=True):
        shown = panel.imshow(view, vmin=np.nanmin(every), vmax=np.nanmax(every), origin="lower", aspect="auto")
        panel.set(facecolor="0.85", xlabel="frame")
        panel.set_title(escape.mathtext(title), fontsize="medium")
    panels[0][0].set_ylabel("mel band (low to high)")
    figure.colorbar(shown, ax=list(panels[0]), label="decibels")
    return figure


def words_alike(step: int, trained: Sequence[word_views.Trained]) -> go.Figure:
    """How near the two words of each pair of synonyms are after so many steps, a row for each of two views."""
    pairs, scores, rows = word_views.synonyms(), [], []
    names = [one.view.replace(" ", "<br>", 1) for one in trained]
    height = 0.3 * np.sin(2.4 * np.arange(len(pairs)))  # apart, so that each dot is seen
    for at, (one, colour, symbol) in enumerate(
        zip(trained, ("negative", "positive"), ("circle", "diamond"), strict=True)
    ):
        row = dots(one.view, one.cosines(step)[0].numpy(), at + height, colour, symbol, 9)
        rows.append(row.update(text=[" and ".join(pair) for pair in pairs], hoverinfo="text+x"))
        scores.append(f"{one.view} {one.similarity(step):.0f}")
    return chart(
        f"After {step} steps, order by meaning (Spearman × 100): {', '.join(scores)}",
        "cosine of two words that mean the same", "",
        *rows,
        xaxis_range=[-0.65, 1.05],
        yaxis={"range": [-0.6, 1.6], "tickvals": [0, 1], "ticktext": names},
    )  # fmt: skip


def crossing(weight: float, spread: float) -> float:
    """Cosine at which KL's push of one negative is as strong as its pull of the positive: ``1 − log α / 2c``."""
    return 1 - float(np.log(weight)) / (2 * spread)


def push(weight: float = 409600.0, spread: float = 20.0, divergence: str = "kl") -> go.Figure:
    """Slope of f-MICL's two terms in the cosine of a pair: pull of a positive, push of a negative.

    ``weight``: α of the negatives' term. ``spread``: ``c = 1/2σ²``.
    """
    require_positive(weight=weight, spread=spread)
    f = divergences.get(divergence)
    cosine = torch.linspace(-1, 1, 201, dtype=torch.float64)
    log_u = (2 * spread * (cosine - 1)).requires_grad_()
    slopes = [torch.autograd.grad(part(log_u).sum(), log_u)[0] * 2 * spread for part in (f.derivative, f.composition)]
    lines = (("pull of a positive", slopes[0], "positive"), ("push of a negative", weight * slopes[1], "negative"))
    return chart(
        f"{f.title}, α = {weight:g}, c = {spread:g}: how hard a pair is pulled and pushed",
        "cosine of the pair", "slope of the loss",
        *(
            go.Scatter(x=cosine.numpy(), y=values.numpy(), mode="lines", name=name, line={"color": COLOURS[role]})
            for name, values, role in lines
        ),
        yaxis={"type": "log", "range": [-8, 8], "dtick": 2, "exponentformat": "power"},
    )  # fmt: skip
