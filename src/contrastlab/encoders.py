"""The public door to encoders: backbones and heads from views to unit embeddings, trained encoders as files."""

import contrastlab.support.lab  # noqa: F401

from contrastlab.domains.stored_encoders import load, save
from contrastlab.pictures.encoder import Encoder, Head, Shared, build, build_for, features, named_layers, pooled_layers
from contrastlab.pictures.foreign_networks import register
from contrastlab.pictures.networks import ARCHITECTURES, Stem

__all__ = [
    "ARCHITECTURES",
    "Encoder",
    "Head",
    "Shared",
    "Stem",
    "build",
    "build_for",
    "features",
    "load",
    "named_layers",
    "pooled_layers",
    "register",
    "save",
]
