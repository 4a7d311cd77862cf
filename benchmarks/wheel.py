"""Builds the source archive and the wheel, looks into both, and tries the wheel where there is no repository.

``make wheel``, or ``python benchmarks/wheel.py``. It needs uv, and a package index or uv's cache: the wheel is
installed with the locked versions into an environment of its own, and the commands that a reader would try first are
run there, the notebook that it wrote among them. ``--no-install`` stops after the look.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
LARGEST = 6_000_000
"""Bytes that a wheel may have; two thirds are stored results, which grow."""
SHIPPED = "contrastlab/_shipped/"


def package_files(root: Path = ROOT, *, packed: bool = True) -> set[str]:
    """What the wheel must hold beside the package's metadata: files of ``src``, results, notebooks.

    Args:
        root: of the repository.
        packed: results of runs are one file, as in a wheel; else a file each, as in a source archive.
    """
    source = {
        p.relative_to(root / "src").as_posix()
        for p in (root / "src").glob("contrast*/**/*")
        if p.is_file() and "__pycache__" not in p.parts
    }
    results = {
        SHIPPED + p.relative_to(root).as_posix()
        for p in (root / "results").rglob("*.json")
        if p.relative_to(root / "results").parts[0] not in ("encoders", *(["cells"] if packed else []))
    }
    if packed:
        results.add(f"{SHIPPED}results/cells.json.xz")
    return source | results | {f"{SHIPPED}nbs/{p.name}" for p in (root / "nbs").glob("*.ipynb")}


def wheel_problems(wheel: Path, root: Path = ROOT) -> list[str]:
    """What is wrong with a built wheel, in words."""
    found = []
    if wheel.stat().st_size > LARGEST:
        found.append(f"{wheel.name} has {wheel.stat().st_size} bytes: expected at most {LARGEST}")
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
        found += [f"missing: {name}" for name in sorted(package_files(root) - held)]
        found += [f"not of the package: {name}" for name in sorted(held - package_files(root))]
        for name in sorted(held):
            if name.endswith(".ipynb"):
                cells = json.loads(archive.read(name))["cells"]
                if any(cell.get("outputs") for cell in cells):
                    found.append(f"with outputs: {name}")
    return found


def sdist_problems(sdist: Path, root: Path = ROOT) -> list[str]:
    """What is wrong with a source archive, in words: it holds what building needs, no runs, data or environments."""
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    needed = {"pyproject.toml", "hatch_build.py", "README.md", "LICENSE"}
    for name in package_files(root, packed=False):
        needed.add(name.removeprefix(SHIPPED) if name.startswith(SHIPPED) else f"src/{name}")
    allowed = needed | {"PKG-INFO", "CHANGELOG.md", "CITATION.cff", ".gitignore"}
    return [f"missing: {name}" for name in sorted(needed - held)] + [
        f"not needed for building: {name}" for name in sorted(held - allowed)
    ]


def run(*command: str | Path, cwd: Path, quiet: bool = False) -> str:
    """What a command prints; its words are shown, and a failure ends the script."""
    print("$", " ".join(map(str, command)), flush=True)
    alone = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(list(map(str, command)), cwd=cwd, env=alone, capture_output=True, text=True, check=False)
    if done.returncode or not quiet:
        print(done.stdout[-3000:], done.stderr[-3000:] if done.returncode else "", flush=True)
    if done.returncode:
        sys.exit(f"exit status {done.returncode}")
    return done.stdout


def try_out(wheel: Path, uv: str) -> None:
    """Install a wheel into an environment of its own and run what a reader tries first, away from the repository."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        locked = folder / "locked.txt"
        options = ("--frozen", "--no-default-groups", "--extra", "notebook", "--no-emit-project", "--no-hashes")
        run(uv, "export", *options, "-o", locked, cwd=ROOT, quiet=True)
        run(uv, "venv", "--python", sys.executable, folder / "env", cwd=folder, quiet=True)
        scripts = folder / "env" / ("Scripts" if os.name == "nt" else "bin")
        install = (uv, "pip", "install", "--python", scripts / "python")
        run(*install, "-r", locked, cwd=folder, quiet=True)
        run(*install, "--no-deps", wheel, cwd=folder, quiet=True)
        here, lab = folder / "somewhere", scripts / "contrastlab"
        here.mkdir()
        run(lab, "doctor", cwd=here)
        run(lab, "list", cwd=here)
        shown = run(lab, "show", "ring/table1", cwd=here)
        run(lab, "run", "ring/table1", "--dataset", "digits", "--profile", "smoke", cwd=here)
        run(lab, "notebook", "ring/table1", cwd=here)
        parameters = ("-p", "dataset", "digits", "-p", "profile", "smoke", "-p", "rows", "ir")
        run(scripts / "papermill", "repro_table1.ipynb", "out.ipynb", *parameters, cwd=here, quiet=True)
        if not re.search(r"[1-9]\d* of \d+ rows have a measured number", shown) or not (here / "out.ipynb").exists():
            sys.exit("the results that travel in the wheel are not shown, or the notebook did not run")
        print("The wheel works where there is no repository.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Build, look, try; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder for both archives")
    parser.add_argument("--no-install", action="store_true", help="build and look only")
    args = parser.parse_args(arguments)
    uv = os.environ.get("UV") or shutil.which("uv")
    if uv is None:
        sys.exit("uv is not there; name it in UV")
    uv = str(Path(uv).resolve())
    run(uv, "build", "--quiet", "--out-dir", args.out, ROOT, cwd=ROOT)
    (wheel,) = args.out.glob("*.whl")
    (sdist,) = args.out.glob("*.tar.gz")
    problems = wheel_problems(wheel) + sdist_problems(sdist)
    print(
        f"{wheel.name}: {wheel.stat().st_size} bytes; {sdist.name}: {sdist.stat().st_size} bytes", *problems, sep="\n"
    )
    if not problems and not args.no_install:
        try_out(wheel.resolve(), uv)
    return min(1, len(problems))


if __name__ == "__main__":
    sys.exit(main())
