"""What a page of the book asks when it is built."""

from __future__ import annotations

import os
from typing import Any


def build_size(*, smoke: Any, laptop: Any) -> Any:
    """The sizes for the profile that the book is built with: ``make book`` or ``make book PROFILE=laptop``."""
    return laptop if os.environ.get("CONTRASTLAB_PROFILE") == "laptop" else smoke
