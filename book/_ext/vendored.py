"""Scripts the pages need, fetched once at build time so that the built book asks no other host for anything.

MathJax comes from npm into ``book/_static/vendor``, which is not committed. Without npm the page falls back to
MathJax's public server, and the build says so.
"""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.util import logging

PACKAGES = {"mathjax": ("mathjax@3.2.2", "es5", "tex-mml-chtml.js")}
"""Folder in ``vendor`` → npm package, the folder of it that is kept, and a file that proves it complete."""

logger = logging.getLogger(__name__)


def fetch(package: str, folder: str, target: Path) -> None:
    """Put ``folder`` of the npm ``package`` at ``target``, whole or not at all."""
    with tempfile.TemporaryDirectory() as work:
        done = subprocess.run(
            ["npm", "pack", "--silent", package], cwd=work, capture_output=True, text=True, timeout=120, check=True
        )
        archive = Path(work) / done.stdout.split()[-1]
        with tarfile.open(archive) as tar:
            tar.extractall(work, filter="data")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(Path(work) / "package" / folder, target, dirs_exist_ok=True)


def vendor(app: Sphinx, config: Any) -> None:
    """Fetch what is missing and point the configuration at it."""
    place = Path(app.confdir) / "book" / "_static" / "vendor"
    for name, (package, folder, proof) in PACKAGES.items():
        if not (place / name / proof).exists():
            try:
                fetch(package, folder, place / name)
            except (OSError, subprocess.SubprocessError) as error:
                logger.info(f"{package} could not be fetched ({error}): these pages will need a connection")
                continue
        config[f"{name}_path"] = f"vendor/{name}/{proof}"


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("config-inited", vendor, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
