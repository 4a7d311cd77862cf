"""Contrastive learning as the estimation of mutual information.

A contrastive method is five choices: views, keys, negatives, positives, objective.
Each choice is a small part in the module of its name; :mod:`contrastlab.methods` holds
the recipes of the five papers as rows of data, and :mod:`contrastlab.pretrain` is the
one loop that trains all of them.
"""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("contrastlab")
except PackageNotFoundError:  # run from a copy of `src`, not installed
    __version__ = "unknown"
