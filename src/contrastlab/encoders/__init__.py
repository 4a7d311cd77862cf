"""Views to features and unit embeddings: backbones, heads, and trained encoders as files."""

from contrastlab import lab as _lab  # noqa: F401 - before what it looks for

# isort: split
from contrastlab.encoders.encoder import (
    Encoder,
    Head,
    Shared,
    build,
    build_for,
    features,
    layer_outputs,
    named_layers,
    pooled_layers,
    set_memory_format,
    side_within,
)
from contrastlab.encoders.export import load, save
from contrastlab.encoders.foreign import register
from contrastlab.encoders.networks import ARCHITECTURES, Stem

__all__ = [
    "ARCHITECTURES", "Encoder", "Head", "Shared", "Stem", "build", "build_for", "features", "layer_outputs", "load",
    "named_layers", "pooled_layers", "register", "save", "set_memory_format", "side_within",
]  # fmt: skip
