"""f-divergences: the convex function f, its derivative, its conjugate and their composition.

An f-mutual information is ``I_f(X; Y) = E_{p(x)p(y)} f(u)``, ``u = p(x, y) / p(x) p(y)``, with f convex and
``f(1) = 0`` (fmicl Definition 1). Any function s of (x, y) bounds it from below, ``E_{p(x,y)} s − E_{p(x)p(y)} f*(s)``
(fmicl Eq. 2), and the bound is tight at ``s = f′(u)`` (Eq. 3). Put ``s = f′(u)`` into it and only ``f′(u)`` and
``f*(f′(u)) = u f′(u) − f(u)`` are needed: both are given here as functions of ``log u``, finite wherever they can be
(fmicl takes ``u = μ exp(−‖x − y‖² / 2σ²)``, whose logarithm is exact), and free of the domain of f*.

Two rows of fmicl Tables 1 and 6 differ here from what is printed. The composition of the Vincze–Le Cam divergence
is wrong there; :data:`VINCZE_LE_CAM` has the right one, and ``vincze_le_cam_printed`` keeps the other for experiments.
The Tsallis divergence is printed without the constant that makes f(1) = 0; it is restored.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import scipy.special
import torch
from torch import Tensor
from torch.nn import functional as F

from contrastlab.support.errors import check_name, check_positive, is_number, reject

_LOG2 = math.log(2)


@dataclass(frozen=True)
class Divergence:
    """One row of fmicl Table 6. All functions are elementwise on tensors.

    fmicl Theorem 4 applies for every μ up to ``largest_mu`` (0: for none): ``h(t) = f*(f′(μ exp(−t / 2σ²)))`` is then
    strictly convex, because ``u² f″(u)`` increases strictly up to u = μ.
    """

    name: str
    title: str
    latex: str  # f(u)
    f: Callable[[Tensor], Tensor]  # of u ≥ 0; infinite at 0 where that is the limit
    derivative: Callable[[Tensor], Tensor]  # log u → f′(u)
    composition: Callable[[Tensor], Tensor]  # log u → f*(f′(u))
    conjugate: Callable[[Tensor], Tensor]  # t → f*(t) = sup over u ≥ 0 of u·t − f(u); +∞ outside the domain
    highest: float = math.inf  # supremum of the domain of f*
    attained: bool = False  # whether that itself belongs to the domain
    largest_mu: float = math.inf

    def __repr__(self) -> str:
        return f"divergences.get({self.name!r})"

    def _repr_markdown_(self) -> str:
        return f"**{self.title}**: $f(u)={self.latex}$"

    @property
    def domain(self) -> str:
        """Where the conjugate is finite, in words for messages."""
        if math.isinf(self.highest):
            return "every real number"
        end = "up to" if self.attained else "below"
        return f"numbers {end} {self.highest:.6g}"

    def contains(self, scores: Tensor) -> Tensor:
        """Whether each score lies in the domain of the conjugate."""
        inside = scores <= self.highest if self.attained else scores < self.highest
        return inside & ~scores.isnan()

    def spreads(self, mu: float) -> bool:
        """Whether fmicl Theorem 4 applies: minimising the negative term alone gives a regular simplex."""
        check_positive(mu=mu)
        return mu <= self.largest_mu


def _where(condition: Tensor, inside: Callable[[Tensor], Tensor], t: Tensor, safe: float, outside: float) -> Tensor:
    # The branch not taken is evaluated at a safe point: its gradient must not be NaN times zero.
    return torch.where(condition, inside(torch.where(condition, t, safe)), outside)


class _LogWrightOmega(torch.autograd.Function):
    # z → log W(e^z), W and nothing that PyTorch has; its derivative is 1 / (1 + W), that of W is W / (1 + W)

    @staticmethod
    def forward(z: Tensor) -> tuple[Tensor, Tensor]:
        double = z.double()
        w = torch.as_tensor(scipy.special.wrightomega(double.cpu().numpy())).to(double)
        log_w, w = (double - w).to(z), w.to(z)
        return log_w - (log_w + w - z) / (1 + w), w

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(output[1])
        ctx.save_for_forward(output[1])

    @staticmethod
    def backward(ctx: Any, of_log: Tensor | None, of_w: Tensor | None) -> Tensor | None:
        (w,) = ctx.saved_tensors
        gradient = of_log
        if of_w is not None:
            gradient = of_w * w if of_log is None else of_log + of_w * w
        return None if gradient is None else gradient / (1 + w)

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> tuple[Tensor, Tensor]:
        (w,) = ctx.saved_tensors
        moved = tangent / (1 + w)
        return moved, moved * w

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int], z: Tensor) -> tuple[Any, tuple[int, int]]:
        return _LogWrightOmega.apply(z), (in_dims[0], in_dims[0])


def _jeffrey_conjugate(t: Tensor) -> Tensor:
    # W(e^z) = e^l where l + e^l = z, and W + 1/W + t - 2 = e^-l - l - 1: no overflow before the value itself overflows
    log_w, _ = _LogWrightOmega.apply(1 - t)
    return (-log_w).exp() - log_w - 1


def _vlc_conjugate(t: Tensor) -> Tensor:
    middle = _where(t <= 1, lambda s: 4 - s - 4 * (1 - s).sqrt(), t, 0.0, math.inf)
    return torch.where(t < -3, -1.0, middle)


def tsallis(alpha: float = 3.0) -> Divergence:
    """Tsallis-α divergence, ``f(u) = (u^α − 1) / (α − 1)`` with α > 1, as fmicl Table 6 demands.

    For 0 < α < 1 f is convex, too, but its conjugate is another one, infinite for t ≥ 0.
    """
    if not (is_number(alpha) and alpha > 1):
        raise reject("alpha", alpha, "a number greater than 1")
    a = alpha
    shift = 1 / (a - 1)

    def conjugate(t: Tensor) -> Tensor:
        return ((a - 1) / a * t).clamp(min=0) ** (a / (a - 1)) + shift

    name = "tsallis" if alpha == 3 else f"tsallis({alpha:g})"
    return Divergence(
        name=name,
        title=f"Tsallis, α = {alpha:g}",
        latex=rf"\frac{{u^{{{alpha:g}}}-1}}{{{a - 1:g}}}",
        f=lambda u: (u**a - 1) * shift,
        derivative=lambda v: a * shift * ((a - 1) * v).exp(),
        composition=lambda v: (a * v).exp() + shift,
        conjugate=conjugate,
    )


KL = Divergence(
    "kl",
    "Kullback–Leibler",
    r"u\log u",
    f=lambda u: -torch.special.entr(u),
    derivative=lambda v: 1 + v,
    composition=torch.exp,
    conjugate=lambda t: (t - 1).exp(),
)
JS = Divergence(
    "js",
    "Jensen–Shannon",
    r"u\log u-(1+u)\log\frac{1+u}{2}",
    f=lambda u: -torch.special.entr(u) - (1 + u) * (torch.log1p(u) - _LOG2),
    derivative=lambda v: _LOG2 + F.logsigmoid(v),
    composition=lambda v: F.softplus(v) - _LOG2,
    conjugate=lambda t: _where(t < _LOG2, lambda s: -(2 - s.exp()).log(), t, 0.0, math.inf),
    highest=_LOG2,
)
PEARSON = Divergence(
    "pearson",
    "Pearson χ²",
    r"(u-1)^2",
    f=lambda u: (u - 1) ** 2,
    derivative=lambda v: 2 * torch.expm1(v),
    composition=lambda v: torch.expm1(2 * v),
    conjugate=lambda t: torch.where(t < -2, -1.0, t**2 / 4 + t),
)
HELLINGER = Divergence(
    "hellinger",
    "squared Hellinger",
    r"(\sqrt u-1)^2",
    f=lambda u: (u.sqrt() - 1) ** 2,
    derivative=lambda v: -torch.expm1(-v / 2),
    composition=lambda v: torch.expm1(v / 2),
    conjugate=lambda t: _where(t < 1, lambda s: s / (1 - s), t, 0.0, math.inf),
    highest=1.0,
)
TSALLIS = tsallis()
VINCZE_LE_CAM = Divergence(
    "vincze_le_cam",
    "Vincze–Le Cam",
    r"\frac{(u-1)^2}{u+1}",
    f=lambda u: (u - 1) ** 2 / (u + 1),
    derivative=lambda v: 1 - 4 * torch.sigmoid(-v) ** 2,
    composition=lambda v: 3 - 8 * torch.sigmoid(-v) + 4 * torch.sigmoid(-v) ** 2,
    conjugate=_vlc_conjugate,
    highest=1.0,
    attained=True,
    largest_mu=2.0,
)
VINCZE_LE_CAM_PRINTED = replace(
    VINCZE_LE_CAM,
    name="vincze_le_cam_printed",
    title="Vincze–Le Cam with the composition printed in fmicl",
    latex=r"\frac{(u-1)^2}{u+1},\ f^*(f'(u))\mathrel{\text{replaced by}}3-\tfrac{4}{u+1}",
    composition=lambda v: 3 - 4 * torch.sigmoid(-v),
    largest_mu=1.0,
)
REVERSE_KL = Divergence(
    "reverse_kl",
    "reverse Kullback–Leibler",
    r"-\log u",
    f=lambda u: -u.log(),
    derivative=lambda v: -(-v).exp(),
    composition=lambda v: v - 1,
    conjugate=lambda t: _where(t < 0, lambda s: -1 - (-s).log(), t, -1.0, math.inf),
    highest=0.0,
    largest_mu=0.0,
)
NEYMAN = Divergence(
    "neyman",
    "Neyman χ²",
    r"\frac{(1-u)^2}{u}",
    f=lambda u: (1 - u) ** 2 / u,
    derivative=lambda v: -torch.expm1(-2 * v),
    composition=lambda v: -2 * torch.expm1(-v),
    conjugate=lambda t: _where(t <= 1, lambda s: 2 - 2 * (1 - s).sqrt(), t, 0.0, math.inf),
    highest=1.0,
    attained=True,
    largest_mu=0.0,
)
JEFFREY = Divergence(
    "jeffrey",
    "Jeffrey",
    r"(u-1)\log u",
    f=lambda u: (u - 1) * u.log(),
    derivative=lambda v: v - torch.expm1(-v),
    composition=lambda v: v + torch.expm1(v),
    conjugate=_jeffrey_conjugate,
)

_ALL = {
    d.name: d
    for d in (
        KL,
        JS,
        PEARSON,
        HELLINGER,
        TSALLIS,
        VINCZE_LE_CAM,
        VINCZE_LE_CAM_PRINTED,
        REVERSE_KL,
        NEYMAN,
        JEFFREY,
    )
}


def names() -> tuple[str, ...]:
    """Names :func:`get` knows."""
    return tuple(_ALL)


def get(name: str, *, alpha: float | None = None) -> Divergence:
    """The divergence of this name; ``alpha`` is the order of Tsallis (3 if not given), and of no other divergence."""
    check_name("divergence", name, _ALL)
    if alpha is None:
        return _ALL[name]
    if name != "tsallis":
        raise reject("alpha", alpha, f"None for {name}: only tsallis has an order")
    return tsallis(alpha)
