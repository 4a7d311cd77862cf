"""DIV2K: 800 pictures of about 2,000 pixels, from which cmc Figure 5 cuts patches far apart."""

from __future__ import annotations

from pathlib import Path

from contrastlab.data.images.sets import Splits, StreamedImages, UnlabelledSplits
from contrastlab.data.images.sources import scan
from contrastlab.errors import MissingDataError

FOLDER = "DIV2K/DIV2K_train_HR"


def load_div2k(root: Path) -> Splits:
    """The training pictures of DIV2K from ``<root>/DIV2K/DIV2K_train_HR``, streamed; they have no labels.

    Raises:
        MissingDataError: the folder is not there, or holds no picture.
    """
    folder = root / FOLDER
    hint = "unpack DIV2K_train_HR.zip there, or set CONTRASTLAB_DATA (or root=) to the folder that holds DIV2K"
    if not folder.is_dir():
        raise MissingDataError(f"div2k: {folder} does not exist; {hint}.")
    listing = scan(folder)
    if not listing.paths:
        raise MissingDataError(f"div2k: {folder} holds no picture; {hint}.")
    pictures = StreamedImages("div2k/train", folder, listing.paths, listing.labels, listing.classes)
    return UnlabelledSplits("div2k", pictures, "DIV2K, training pictures of high resolution, no labels")
