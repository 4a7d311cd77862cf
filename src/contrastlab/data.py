"""The public door to data: a name becomes labelled items.

>>> splits = load("digits")
>>> splits.train.items.shape
torch.Size([1438, 1, 8, 8])
"""

from contrastlab.domains.sets import (
    OWN,
    PUBLISHED,
    SOURCES,
    Request,
    Source,
    check_files,
    load,
    modality_of,
    names,
    original_modality_of,
)
from contrastlab.pictures.items import Splits
from contrastlab.pictures.readers import pictures_in
from contrastlab.pictures.sets import ImageSet, StreamedImages
from contrastlab.support.paths import data_root

__all__ = [
    "OWN",
    "PUBLISHED",
    "SOURCES",
    "ImageSet",
    "Request",
    "Source",
    "Splits",
    "StreamedImages",
    "check_files",
    "data_root",
    "load",
    "modality_of",
    "names",
    "original_modality_of",
    "pictures_in",
]
