"""Files that must agree with each other, and promises of the README."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import readme
import yaml

from contrastbook.evidence import claims, words
from contrastlab import data
from contrastlab.tables import results

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
GROUPS: dict[str, list[Any]] = PROJECT["dependency-groups"]
NAME: str = PROJECT["project"]["name"]
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
NOTEBOOKS = sorted((ROOT / "nbs").glob("*.ipynb"))
pytestmark = pytest.mark.usefixtures("claims_once")


def split(requirement: str) -> tuple[str, str]:
    match = re.fullmatch(r"([A-Za-z0-9._-]+)\s*(.*)", requirement)
    assert match
    return match[1].lower(), match[2]


def of_extras(requirement: str) -> bool:
    return requirement.startswith(f"{NAME}[")


def flat(group: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in GROUPS[group]:
        found |= flat(entry["include-group"]) if isinstance(entry, dict) else dict([split(entry)])
    return found


def read_yaml(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_environment_yml_is_in_step_with_pyproject() -> None:
    *conda, last = read_yaml("environment.yml")["dependencies"]
    assert f"python{PROJECT['project']['requires-python']}" in conda
    editable, *pip = last["pip"]
    wanted: dict[str, str] = {}
    for group in GROUPS.keys() - {"actions", "peers", "mutants"}:  # for those who lint, measure or mutate
        wanted |= flat(group)
    assert editable == "-e ."
    # what an extra brings is there for the tests
    assert {split(requirement) for each in EXTRAS.values() for requirement in each if not of_extras(requirement)} <= (
        wanted.items()
    )
    assert dict(map(split, pip)) == wanted
    assert len(pip) == len(wanted)


def test_lock_is_in_step_with_pyproject() -> None:
    lock = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))
    (own,) = [package for package in lock["package"] if package["name"] == NAME]

    def specifiers(entries: list[dict[str, str]]) -> dict[str, str]:
        return {entry["name"]: entry.get("specifier", "") for entry in entries}

    meta = own["metadata"]
    assert lock["requires-python"] == PROJECT["project"]["requires-python"]
    optional = [need for each in EXTRAS.values() for need in each if not of_extras(need)]
    gathered = [need for each in EXTRAS.values() for need in each if of_extras(need)]
    external = [entry for entry in meta["requires-dist"] if entry["name"] != NAME]
    assert specifiers(external) == dict(map(split, [*PROJECT["project"]["dependencies"], *optional]))
    own_extras = [f"{NAME}[{','.join(entry['extras'])}]" for entry in meta["requires-dist"] if entry["name"] == NAME]
    assert sorted(own_extras) == sorted(gathered)
    assert set(meta["provides-extras"]) == set(EXTRAS)
    assert {group: specifiers(entries) for group, entries in meta["requires-dev"].items()} == {
        group: flat(group) for group in GROUPS
    }


def test_readme_opens_with_the_two_commands_and_the_toc_lists_what_exists() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.search(r"```sh\n(.*?)```", text, re.S)
    assert block
    assert [line.split("#")[0].strip() for line in block[1].splitlines()] == ["make table1", "make test"]
    assert text.index("```sh") < text.index("\n## ")
    assert "papermill nbs/repro_table1.ipynb out.ipynb -p dataset cifar10" in text
    for name, part in readme.PARTS.items():
        shown = readme.marked(name).search(text)
        assert shown
        assert shown[0] == part()  # make kept
    assert (ROOT / "LICENSE").read_text(encoding="utf-8").startswith("MIT License")
    assert PROJECT["project"]["license"] == "MIT"
    toc = read_yaml("_toc.yml")
    chapters = [chapter for part in toc["parts"] for chapter in part["chapters"]]
    listed = {toc["root"], *(page["file"] for each in chapters for page in (each, *each.get("sections", ())))}
    for page in listed:
        assert [path for path in ROOT.glob(f"{page}.*") if path.suffix in {".md", ".ipynb"}], page
    assert {f"nbs/{path.stem}" for path in NOTEBOOKS} <= listed
    assert all(path.with_suffix(".py").exists() for path in NOTEBOOKS)


def test_readme_shows_the_first_metric_of_a_claim_whatever_the_others_say() -> None:
    lines = claims.frame(results.find([ROOT / "results"]))
    first = lines.drop_duplicates(["paper", "table", "claim", "dataset", "profile"]).to_dict("records")
    shown = [row.split(" | ")[0].removeprefix("| ") for row in readme.decided().splitlines()[2:]]
    names = {f"{words.table_of(line)}: {line['claim']}, {words.column_of(line)}" for line in first}
    assert len(shown) > 5
    assert {name.rpartition(", ")[0] for name in shown} <= names


def test_readme_python_examples_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    load = data.load
    monkeypatch.setattr(data, "load", lambda name, root=None: load(name, n_train=128, n_test=64))  # of shapes
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S)
    assert len(blocks) == 7
    for block in blocks:
        monkeypatch.chdir(tmp_path if "reproduce." in block else ROOT)
        exec(compile(block, "README.md", "exec"), {})


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_pages_type_no_measured_number_and_no_machine(page: str) -> None:
    text = readme.marked("decided").sub("", (ROOT / page).read_text(encoding="utf-8"))
    assert not re.search(r"\d\s*%|±\s*\d|\d\.\d+ points", text)
    assert not re.search(r"/(home|root|work|tmp|Users)/|https?://(?!github\.com)", text)


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", ".ci/run", ".pre-commit-config.yaml"])
def test_make_targets_that_pages_name_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    named = set(re.findall(r"(?:^|`)make(?: --silent)? ([a-z0-9-]+)", text, re.M))
    named |= set(re.findall(r"entry: make --silent ([a-z]+)", text))
    assert named
    for target in named:
        done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_without_a_target_is_help_and_setup_installs_uv() -> None:
    done = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True)
    for target in ("table1", "test", "book"):
        assert f"make {target}" in done.stdout
    # uv is installed where it is missing
    dry = ["make", "-n", "setup", "UV=.tools/bin/uv"]
    found = subprocess.run(dry, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "-m venv .tools" in found.stdout or (ROOT / ".tools/bin/uv").exists()
    assert ".tools/bin/uv sync --frozen" in found.stdout


def test_ci_calls_make_test_with_data_only_where_there_is_some(tmp_path: Path) -> None:
    assert os.access(ROOT / ".ci/run", os.X_OK)
    repo, tools = tmp_path / "repo", tmp_path / "tools"
    (repo / ".ci").mkdir(parents=True)
    tools.mkdir()
    shutil.copy(ROOT / ".ci/run", repo / ".ci/run")
    (tools / "make").write_text('#!/bin/sh\necho "$@:${CONTRASTLAB_DATA-unset}"\nexit ${FAIL-0}\n')
    (tools / "make").chmod(0o755)

    def run(**more: str) -> tuple[int, str]:
        base = {key: value for key, value in os.environ.items() if key != "CONTRASTLAB_DATA"}
        env = {**base, "PATH": f"{tools}{os.pathsep}{base['PATH']}", **more}
        done = subprocess.run(["bash", repo / ".ci/run"], env=env, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout.strip()

    assert run() == (0, "test:unset")
    (tmp_path / "shared/data").mkdir(parents=True)
    code, line = run()
    assert code == 0
    assert Path(line.removeprefix("test:")).resolve() == (tmp_path / "shared/data").resolve()
    assert Path(line.removeprefix("test:")).is_absolute()
    assert run(CONTRASTLAB_DATA="mine") == (0, "test:mine")
    assert run(FAIL="3")[0] != 0


def test_the_package_can_be_imported_from_a_copy_of_src_that_is_not_installed() -> None:
    # -S: no installed packages
    run = subprocess.run(
        [sys.executable, "-S", "-c", "import contrastlab; print(contrastlab.__version__)"],
        capture_output=True, text=True, check=True, env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    assert run.stdout.strip() == "unknown"
