"""How waveforms are seen and embedded."""

from __future__ import annotations

from typing import Any

from torch import nn

from contrastlab.domains.speech.augmentation import check_rate, views_of
from contrastlab.pictures.domain import Modality
from contrastlab.pictures.modality import build_arguments, encoders
from contrastlab.settings import Settings
from contrastlab.views import Views


def wave_encoders(views: Views, source: Any, settings: Settings) -> nn.ModuleList:
    """A new encoder for each stream; waveforms of another rate than that of ``settings`` are refused."""
    check_rate(source, settings.speech)
    return encoders(views, source, settings)


WAVEFORM = Modality("waveform", views_of, wave_encoders, build_arguments)
