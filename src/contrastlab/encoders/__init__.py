"""Views to features and unit embeddings: backbones, heads, and trained encoders as files."""

from contrastlab.encoders.base import Stem
from contrastlab.encoders.encoder import ARCHITECTURES, Encoder, Head, build, build_for, features, lay_out
from contrastlab.encoders.export import load, save
from contrastlab.encoders.layers import layer_outputs, named_layers, pooled_layers, side_within
from contrastlab.encoders.shared import Shared

__all__ = [
    "ARCHITECTURES",
    "Encoder",
    "Head",
    "Shared",
    "Stem",
    "build",
    "build_for",
    "features",
    "lay_out",
    "layer_outputs",
    "load",
    "named_layers",
    "pooled_layers",
    "save",
    "side_within",
]
