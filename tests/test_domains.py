"""A domain is a folder that can be deleted: what does not need it goes on, and the rest names the missing folder."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from contrastlab import domains

SOURCES = Path(domains.__file__).parents[2]
DELETABLE = [name for name in domains.PACKAGES if name != "pictures"]

WITHOUT = '''
"""Imports every module, describes every recipe and fills one row of a table; prints what failed or was refused."""
import importlib, json, pkgutil, sys, tempfile
from functools import partial
import contrastlab
from contrastlab import data, domains, methods, tables, tasks
from contrastlab.settings import Settings

missing = []
for module in pkgutil.walk_packages(contrastlab.__path__, "contrastlab.", onerror=missing.append):
    if module.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(module.name)
    except Exception as error:
        missing.append(f"{module.name}: {error!r}")
for name in methods.names():
    assert methods.get(name).describe()
report = tables.table(
    "ring", "1", dataset="shapes", profile="smoke", rows="ir", seeds=(0,), out_dir=tempfile.mkdtemp(), jobs=1
)
refusals = {}
for kind, name in json.loads(sys.argv[1]):
    look = {"data": data.load, "task": partial(tasks.get, settings=Settings()), "method": methods.get}[kind]
    try:
        look(name)
    except Exception as error:
        refusals[name] = f"{type(error).__name__}: {error}"
measured = [row.method for row in report.rows if row.measured is not None]
print(json.dumps({"absent": domains.absent(), "missing": missing, "rows": measured, "refusals": refusals}))
'''

NEEDS_IT = {
    "clips": [("data", "clips"), ("data", "ucf101"), ("method", "cmc/video_vd")],
    "scenes": [("data", "rooms"), ("data", "camvid"), ("task", "segmentation_L")],
    "detection": [("data", "lvis"), ("task", "detection")],
    "text": [("data", "grammar"), ("data", "wikipedia"), ("task", "retrieval"), ("method", "clip/clip")],
    "speech": [("data", "voices"), ("data", "audiomnist")],
    "arrays": [("data", "arrays:pictures")],
    "features": [("data", "cifar10_lite0"), ("data", "features:folder")],
}
"""Names of a domain's data, tasks and methods, which must be refused with a word on the folder."""


def copy_without(deleted: list[str], folder: Path) -> Path:
    """A copy of the sources in ``folder`` that lacks the folders of some domains."""
    sources = folder / "src"
    shutil.copytree(SOURCES, sources, ignore=shutil.ignore_patterns("__pycache__"))
    for domain in deleted:
        shutil.rmtree(sources / "contrastlab/domains" / domain)
    return sources


@pytest.mark.parametrize("deleted", [
    DELETABLE, *(pytest.param([domain], marks=pytest.mark.nightly) for domain in DELETABLE),
], ids=",".join)  # fmt: skip
def test_what_does_not_need_a_domain_runs_without_its_folder(deleted: list[str], tmp_path: Path) -> None:
    sources = copy_without(deleted, tmp_path)
    domain_of = {name: domain for domain in deleted for _, name in NEEDS_IT[domain]}
    script = tmp_path / "without.py"
    script.write_text(WITHOUT, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(sources), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(script), json.dumps([each for domain in deleted for each in NEEDS_IT[domain]])],
        env=environment, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    assert sorted(answer["absent"]) == sorted(deleted)
    assert answer["missing"] == []
    assert "ring/ir" in answer["rows"]
    assert answer["refusals"].keys() == domain_of.keys()
    for name, refusal in answer["refusals"].items():
        assert " not installed: " in refusal
        assert f"contrastlab.domains.{domain_of[name]}" in refusal
