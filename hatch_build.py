"""Puts the stored results and the notebooks into the wheel, where ``contrastlab.support.shipped`` looks for them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).parent / "src"))
from contrastlab.support import shipped

HERE = "contrastlab/_shipped"


class Shipped(BuildHookInterface):  # type: ignore[type-arg]
    """Adds files to a wheel; an editable install reads them where they lie."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name the files to add: results of runs in one, those of studies as they are, notebooks without outputs."""
        if self.target_name != "wheel" or version == "editable":
            return
        root, self.made = Path(self.root), TemporaryDirectory()
        for path in sorted((root / "results").rglob("*.json")):
            inner = path.relative_to(root).as_posix()
            if not inner.startswith(("results/encoders/", "results/cells/")):
                build_data["force_include"][str(path)] = f"{HERE}/{inner}"
        archive = Path(self.made.name) / shipped.ARCHIVE
        archive.write_bytes(shipped.pack(root / "results"))
        build_data["force_include"][str(archive)] = f"{HERE}/results/{shipped.ARCHIVE}"
        for path in sorted((root / "nbs").glob("*.ipynb")):
            document = shipped.without_outputs(json.loads(path.read_text(encoding="utf-8")))
            copy = Path(self.made.name) / path.name
            copy.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            build_data["force_include"][str(copy)] = f"{HERE}/nbs/{path.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the copies."""
        if hasattr(self, "made"):
            self.made.cleanup()
