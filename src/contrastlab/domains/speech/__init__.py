"""Speech: waveforms, which are seen as spectrograms."""

from contrastlab.pictures.domain import Domain

DOMAIN = Domain(
    package="contrastlab.domains.speech",
    modalities={"waveform": "contrastlab.domains.speech.modality:WAVEFORM"},
    readers={"waves": ("waveform", "contrastlab.domains.speech.data:load_waves")},
    checks=("contrastlab.domains.speech.data:check_sounds",),
)
