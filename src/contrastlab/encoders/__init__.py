"""Views to features and unit embeddings: backbones, heads, and trained encoders as files."""

import contrastlab.lab  # noqa: F401

from contrastlab.encoders.encoder import Encoder, Head, Shared, build, build_for, features, named_layers, pooled_layers
from contrastlab.encoders.export import load, save
from contrastlab.encoders.foreign import register
from contrastlab.encoders.networks import ARCHITECTURES, Stem

__all__ = [
    "ARCHITECTURES", "Encoder", "Head", "Shared", "Stem", "build", "build_for", "features", "load", "named_layers",
    "pooled_layers", "register", "save",
]  # fmt: skip
