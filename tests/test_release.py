"""What somebody gets who installs the package and never clones the repository."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

from contrastlab import __main__, papers
from contrastlab.support import shipped
from contrastlab.support.errors import CorruptFileError
from contrastlab.tables import notebook, report, results

ROOT = Path(__file__).parents[1]
ENTRY = next(entry for entry in papers.catalogue() if entry.name == "ring/table1")
PACKAGE = ROOT / "src" / "contrastlab"
sys.path.insert(0, str(ROOT / "benchmarks"))

import wheel  # noqa: E402

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]


def split(need: str) -> str:
    """Name of the module that a requirement installs."""
    name = need.partition(">")[0]
    modules = {"scikit-learn": "sklearn", "faiss-cpu": "faiss", "pillow": "PIL"}
    return modules.get(name, name.replace("-", "_"))


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-d", folder]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    return folder


@pytest.mark.nightly  # make wheel asks the same after every push
def test_the_wheel_is_small_and_holds_code_results_and_bare_notebooks(archives: Path) -> None:
    (built,) = archives.glob("*.whl")
    assert wheel.wheel_problems(built) == []
    (archive,) = archives.glob("*.tar.gz")
    assert wheel.sdist_problems(archive) == []


@pytest.mark.nightly
def test_a_wheel_with_something_wrong_is_not_let_through(archives: Path, tmp_path: Path) -> None:
    (built,) = archives.glob("*.whl")
    with zipfile.ZipFile(built) as old, zipfile.ZipFile(tmp_path / built.name, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            content = old.read(name)
            if name.endswith("nbs/repro_table1.ipynb"):
                content = (ROOT / "nbs" / "repro_table1.ipynb").read_bytes()
            if not name.endswith("playground.js"):
                new.writestr(name, content)
        new.writestr("contrastlab/_shipped/runs/a.safetensors", os.urandom(wheel.LARGEST))
    said = " ".join(wheel.wheel_problems(tmp_path / built.name))
    notebook_ = "with outputs: contrastlab/_shipped/nbs/repro_table1"
    assert not [part for part in ("bytes: accepted", notebook_, "a.safetensors", "missing: ") if part not in said]
    with tarfile.open(tmp_path / "s.tar.gz", "w:gz") as changed:
        changed.add(ROOT / "pyproject.toml", "contrastlab/pyproject.toml")
        changed.add(ROOT / "LICENSE", "contrastlab/runs/LICENSE")
    said = " ".join(wheel.sdist_problems(tmp_path / "s.tar.gz"))
    assert "not needed for building: runs/LICENSE" in said
    assert "missing: src/contrastlab/__init__.py" in said


@pytest.fixture(scope="module")
def installed(archives: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What an unpacked wheel says, in one process, in a folder that is no repository; and the folder."""
    (built,) = archives.glob("*.whl")
    site, here = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("here")
    with zipfile.ZipFile(built) as archive:
        archive.extractall(site)  # noqa: S202 the wheel that was just built
    code = """
import sys
from contrastlab.__main__ import main
print(*{name.partition(".")[0] for name in sys.modules})
print(sys.modules["contrastlab"].__file__)
sys.exit(main(["show", "ring/table1"]) or main(["notebook", "ring/table1"]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=here, env=os.environ | {"PYTHONPATH": str(site)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[1].startswith(str(site))
    return done.stdout, here


@pytest.mark.nightly
def test_the_installed_package_shows_results_and_writes_notebooks_where_there_is_no_repository(
    installed: tuple[str, Path],
) -> None:
    said, here = installed
    most = report.best_first(report.evidence(ENTRY, results.find(ROOT / "results")))[0]
    assert f"{most.rows} of {most.of} rows have a measured number" in said
    assert "Written: repro_table1.ipynb" in said
    bare = json.dumps(shipped.notebook("repro_table1"), indent=1, ensure_ascii=False)
    assert (here / "repro_table1.ipynb").read_text(encoding="utf-8") == bare + "\n"


@pytest.mark.nightly
def test_a_command_of_the_installed_package_loads_what_it_needs(installed: tuple[str, Path]) -> None:
    late = {"plotly", "ipywidgets", "anywidget", "sklearn", "faiss", "zuko", "tensorboard"}
    extras = {"submitit", "faster_coco_eval", "h5py", "soundfile", "skimage", "timm"}  # older torchvisions load av
    assert not set(installed[0].splitlines()[0].split()) & (late | extras)


def test_a_bare_import_loads_the_standard_library() -> None:
    code = "import sys; before = set(sys.modules); import contrastlab; print(*(set(sys.modules) - before))"
    env = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    names = {name.partition(".")[0] for name in done.stdout.split()}
    assert names - set(sys.stdlib_module_names) == {"contrastlab"}


def test_the_five_choices_need_pytorch_numpy_and_scipy_and_the_rest_names_the_extra(tmp_path: Path) -> None:
    hidden = {split(need) for need in EXTRAS["lab"]}
    code = f"""
import importlib.util, sys
absent, there = {hidden!r}, importlib.util.find_spec
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
importlib.util.find_spec = lambda name, package=None: None if name in absent else there(name, package)
import torch
from contrastlab import keys, methods, negatives, objectives, positives, views
from contrastlab.__main__ import main
one, other = torch.eye(4), torch.eye(4).roll(1, 0)
print(float(objectives.from_views(one, other, temperature=1.0)))
sys.exit(sum(main([command, *["ring/table1"][:command == "run"]]) for command in ("list", "run", "claims", "doctor")))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2 * 4, done.stderr
    assert float(done.stdout.split()[0]) > 0
    assert [line.partition(": pip ")[2] for line in done.stderr.splitlines()] == ["install 'contrastlab[lab]'"] * 4


def test_a_written_notebook_is_the_committed_one_without_what_a_run_left(tmp_path: Path) -> None:
    committed = json.loads((ROOT / "nbs" / "repro_ring_table5.ipynb").read_text(encoding="utf-8"))
    assert any(cell.get("outputs") for cell in committed["cells"])
    for target in ("ring/table5a", "repro_ring_table5"):
        path = notebook.write(target, tmp_path / f"{target.replace('/', '-')}.ipynb")
        written = json.loads(path.read_text(encoding="utf-8"))
        assert [cell["source"] for cell in written["cells"]] == [cell["source"] for cell in committed["cells"]]
        assert written["metadata"] == committed["metadata"]
        for cell in written["cells"]:
            assert not cell.get("outputs")
            assert cell.get("execution_count") is None
            assert "execution" not in cell["metadata"]


def test_a_notebook_is_written_here_and_never_over_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert __main__.main(["notebook", "ring/table1"]) == 0
    path = tmp_path / "repro_table1.ipynb"
    path.write_text("mine")
    assert __main__.main(["notebook", "ring/table1"]) == 2
    assert "repro_table1.ipynb" in capsys.readouterr().err
    assert path.read_text() == "mine"
    (tmp_path / "deep").mkdir()
    assert notebook.write("crosses", Path("deep")) == Path("deep/crosses.ipynb")
    assert sorted(p.name for p in tmp_path.rglob("*.*")) == ["crosses.ipynb", "repro_table1.ipynb"]


def test_a_shipped_notebook_that_is_none_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped, "_PACKAGE", tmp_path)
    (tmp_path / "_shipped" / "nbs").mkdir(parents=True)
    for content in ("", "[]", '{"cells": [3]}'):
        (tmp_path / "_shipped" / "nbs" / "a.ipynb").write_text(content)
        with pytest.raises(CorruptFileError, match=r"a\.ipynb is not a notebook"):
            shipped.notebook("a")


def test_show_takes_the_best_evidence_and_a_smoke_run_only_if_nothing_else_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = results.find(ROOT / "results", table="ring/table1", dataset="cifar10", profile="pilot")
    for result in stored:
        results.save(result.model_copy(update={"profile": "smoke"}), tmp_path / "smoke")
    results.save(next(r for r in stored if r.method == "ring/ir"), tmp_path / "pilot")

    def show(*words: str) -> str:
        assert __main__.main(["show", "ring/table1", *words]) == 0
        return capsys.readouterr().out

    smoke, pilot = str(tmp_path / "smoke"), str(tmp_path / "pilot")
    one, seven = "1 of 7 rows have a measured number", "7 of 7 rows have a measured number"
    assert seven in show("--results", smoke)
    assert one in show("--results", smoke, "--results", pilot)
    assert seven in show("--results", smoke, "--results", pilot, "--profile", "smoke")
    assert "0 of 7 rows" in show("--results", smoke, "--dataset", "shapes")


def asked_extras() -> set[str]:
    """The extras that the library's errors tell a reader to install."""
    asked = set()
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        asked |= {name for names in re.findall(r"contrastlab\[([a-z,]+)\]", text) for name in names.split(",")}
        constants = dict(re.findall(r'^(\w+) = "(\w+)"', text, re.M))
        for name in re.findall(r"(?<!def )import_extra\([^,()]+, ([^,()]+)", text):
            if not name.endswith(".EXTRA"):  # a constant of another module, whose own use counts
                asked.add(name.strip('"') if name.startswith('"') else constants[name])
    return asked


def test_every_extra_that_an_error_names_can_be_installed_and_no_other_is_offered() -> None:
    gathering = {name for name, needs in EXTRAS.items() if all(need.startswith("contrastlab[") for need in needs)}
    assert asked_extras() == EXTRAS.keys() - gathering
    for name in gathering:
        for need in EXTRAS[name]:
            assert set(re.findall(r"[a-z]+", need.partition("[")[2])) <= EXTRAS.keys()
    everything: set[str] = set()
    todo = ["all"]
    while todo:
        name = todo.pop()
        everything.add(name)
        todo += [inner for need in EXTRAS[name] if "[" in need for inner in re.findall(r"[a-z]+", need.split("[")[1])]
    assert everything == EXTRAS.keys()


WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_pin_actions_by_commit_and_call_make(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    uses = re.findall(r"uses: (.*)", text)
    assert uses
    for action in uses:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), action
    assert "permissions:\n  contents: read\n" in text
    for job in yaml.safe_load(text)["jobs"].values():  # a token is given to the step that needs it
        assert "token" not in str(job.get("env")).lower()
    for target in re.findall(r"run: make ([a-z-]+)", text):
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M), target


def test_one_commit_stands_for_each_action() -> None:
    pins: dict[str, set[str]] = {}
    for path in WORKFLOWS:
        for action, commit in re.findall(r"uses: ([\w/-]+)@(.*)", path.read_text(encoding="utf-8")):
            pins.setdefault(action, set()).add(commit)
    assert {action: commits for action, commits in pins.items() if len(commits) > 1} == {}


def test_one_version_of_uv_installs_the_project_everywhere() -> None:
    where = [ROOT / "Makefile", ROOT / "binder" / "environment.yml", *WORKFLOWS]
    text = "".join(path.read_text(encoding="utf-8") for path in where)
    versions = re.findall(r'\buv[=><]+([\d.]+)|\n +version: "([\d.]+)"', text)
    assert len(versions) == 2 + text.count("astral-sh/setup-uv@") > 5
    assert len({"".join(each) for each in versions}) == 1


def test_version_changelog_citation_and_bug_report_agree() -> None:
    text = (ROOT / ".github" / "ISSUE_TEMPLATE" / "bug.yml").read_text(encoding="utf-8")
    field = text.partition("id: doctor")[2].partition("- type:")[0]
    assert "contrastlab doctor" in field
    assert "required: true" in field
    version = PROJECT["version"]
    versions = re.findall(r"^## (\S+?),? ", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    assert versions[0] == version
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert (PACKAGE / "py.typed").exists()


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_the_oldest_packages_are_those_that_pyproject_admits() -> None:
    done = subprocess.run(["make", "-n", "lowest"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "--resolution lowest-direct" in done.stdout
    assert "--all-extras" in done.stdout
