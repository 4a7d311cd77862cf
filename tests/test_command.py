"""The words of the command line lead on: to what is accepted, to what can be chosen, to what comes next."""

import csv
import html
import io
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import contrastlab
from contrastlab import __main__, papers
from contrastlab.support import terminal
from contrastlab.tables import results

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.usefixtures("claims_once")


def printed(arguments: list[str], capsys: pytest.CaptureFixture[str], status: int = 0) -> str:
    """What a command prints, where it is to print, and its status."""
    capsys.readouterr()
    try:
        found = __main__.main(arguments)
    except SystemExit as stop:  # help and version end the process
        found = int(stop.code or 0)
    said = capsys.readouterr()
    assert found == status, said
    return said.err if status else said.out


def test_the_version_is_that_of_the_package_and_help_names_every_profile(capsys) -> None:
    assert printed(["--version"], capsys) == f"contrastlab {contrastlab.__version__}\n"
    said = " ".join(printed(["run", "--help"], capsys).split())
    listed = said.partition("--profile PROFILE ")[2].partition(" --")[0]
    profiles = {profile for each in papers.plans() for profile in papers.plan(*each).profiles}
    assert {"smoke", "laptop", "paper", "tuned", "pilot"} <= profiles
    assert not [profile for profile in profiles if profile not in listed], listed


@pytest.mark.parametrize(("rows", "jobs"), [("ir", "1"), pytest.param("ir,moco", "2", marks=pytest.mark.nightly)])
def test_a_run_says_how_to_choose_another_profile_and_once_how_to_go_on(
    rows: str, jobs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["--dataset", "digits", "--rows", rows, "--profile", "smoke", "--jobs", jobs, "--max-minutes", "0"]
    assert __main__.main(["run", "ring/table1", *words, "--no-references"]) == 130
    said = capsys.readouterr()
    last = said.err.splitlines()[-1]
    assert last.startswith("contrastlab: stopped at step ")
    assert last.count("run again to continue") == 1
    others = ", ".join(profile for profile in papers.plan("ring", 1).profiles if profile != "smoke")
    assert f"other profiles: {others} (--profile NAME, or -p profile NAME with papermill);" in said.out


STUDIES = [each for each in papers.catalogue() if (each.paper, each.table) not in papers.plans()]
assert {"jcl/table3", "fmicl/figure1", "cmc/table12"} <= {each.name for each in STUDIES}


@pytest.mark.parametrize("entry", STUDIES, ids=lambda entry: entry.name)
def test_a_table_that_only_a_notebook_makes_leads_to_the_notebook(entry, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("run", "show"):
        said = printed([name, entry.name], capsys, status=2)
        assert f"{entry.name} is made by {entry.notebook} " in said
        assert f"contrastlab notebook {entry.name} writes the notebook here" in said
    printed(["notebook", entry.name], capsys)
    assert (tmp_path / Path(entry.notebook).name).is_file()


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with some results of the project."""
    folder = tmp_path_factory.mktemp("results")
    for result in results.find(ROOT / "results", table="ring/table1", dataset="cifar10", profile="laptop"):
        results.save(result, folder)
    return folder


def test_what_only_lists_needs_no_torch_once_the_same_has_been_asked(stored: Path, tmp_path: Path) -> None:
    here = ["--results", str(stored)]
    commands = [["list", *here], ["show", "ring/table1", *here], ["claims", *here], ["encoders"], ["methods"],
                ["run", "ring/table1", "--dataset", "shapes", "--columns", "nope"],
                ["run", "ring/table1", "--dataset", "nowhere"]]  # fmt: skip
    code = "import sys; from contrastlab.__main__ import main; "
    code += f"print([main(words) for words in {commands}], 'torch' in sys.modules)"
    env = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    first, second = (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, env=env, check=True)
        for _ in range(2)
    )
    *said, last = first.stdout.splitlines()
    assert last == "[0, 0, 0, 0, 0, 2, 2] True"
    assert second.stdout.splitlines() == [*said, "[0, 0, 0, 0, 0, 2, 2] False"]
    assert "unknown column of ring table 1 for shapes 'nope'" in second.stderr.splitlines()[0]
    assert first.stderr == second.stderr


def test_lists_are_tables_for_people_and_all_fields_for_programs(stored, monkeypatch, capsys) -> None:
    for words in (["list"], ["show", "ring/table1"], ["claims"]):
        words += ["--results", str(stored)]
        rows = json.loads(printed([*words, "--json"], capsys))
        lines = list(csv.DictReader(io.StringIO(printed([*words, "--csv"], capsys))))
        assert len(rows) == len(lines) > 5
        assert list(rows[0]) == list(lines[0])
        wide = printed(words, capsys)
        with monkeypatch.context() as terminals:
            terminals.setattr(terminal, "width", lambda: 60)
            narrow = printed(words, capsys)
        assert max(map(len, narrow.splitlines())) <= 60 < max(map(len, wide.splitlines()))
        assert len(narrow.splitlines()) > len(wide.splitlines()) > 3


def test_show_of_one_data_set_and_profile_reads_no_other_result(stored: Path, tmp_path: Path, capsys) -> None:
    for result in results.find(stored)[:2]:
        whole = results.save(result, tmp_path)
    damaged = tmp_path / "cells" / "shapes" / "smoke" / whole.name
    damaged.parent.mkdir(parents=True)
    damaged.write_text(whole.read_text()[:50])
    show = ["show", "ring/table1", "--results", str(tmp_path)]
    assert str(damaged) in printed(show, capsys, status=2)
    asked = [*show, "--dataset", "cifar10", "--profile", "laptop", "--json"]
    assert len(json.loads(printed(asked, capsys))) > 5


def test_a_list_has_titles_and_html_is_a_page(stored: Path, capsys) -> None:
    here = ["--results", str(stored)]
    for entry in json.loads(printed(["list", *here, "--json"], capsys)):
        known = tuple(entry["table"].replace("table", "").split("/")) in papers.plans()
        assert bool(entry["title"]) == known
    page = printed(["show", "ring/table1", *here, "--format", "html"], capsys)
    assert page.startswith("<!doctype html>")
    assert page.count("<style>") == page.count("<title>") == 1
    for line in printed(["show", "ring/table1", *here], capsys).partition("\nLast epoch")[0].splitlines()[-4:]:
        assert html.escape(line) in page


def test_json_has_no_infinity_and_csv_has(capsys) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    words = ["claims", "--results", str(ROOT / "results")]
    rows = json.loads(printed([*words, "--json"], capsys), parse_constant=refuse)
    lines = list(csv.DictReader(io.StringIO(printed([*words, "--csv"], capsys))))
    beyond = [row for row, line in zip(rows, lines, strict=True) if line["core_hours"] == "inf"]
    assert len(beyond) > 100
    assert {row["core_hours"] for row in beyond} == {None}
    assert {row["verdict"] for row in beyond} <= {"open", "not run"}


def test_claims_are_counted_and_grouped_and_one_seed_is_left_out(capsys) -> None:
    lines = list(csv.DictReader(io.StringIO(printed(["claims", "--results", str(ROOT / "results"), "--csv"], capsys))))
    *shown, last = printed(["claims", "--results", str(ROOT / "results")], capsys).splitlines()[1:]
    told = [line for line in lines if line["gain"] and int(line["seeds"]) > 1]
    assert len(shown) == len(told) > 20
    assert not re.search(r"-\d", "".join(shown))  # a minus sign is one
    opened = [" open" in line for line in shown]
    assert opened == sorted(opened)
    for verdict, count in Counter(line["verdict"] for line in lines).items():
        assert f"{verdict}: {count}" in last
    more = [line for line in lines if int(line["seeds"]) > int(line["used"]) > 1]
    assert more
    assert sum(f" {line['used']} of {line['seeds']} " in " ".join(shown) for line in more) == len(more)


@pytest.mark.parametrize(
    "arguments", [["show", "jcl/table1"], ["claims"], ["encoders"], ["list"]], ids=lambda words: words[0]
)
def test_the_usual_folders_need_not_exist(arguments, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    printed(arguments, capsys)
    (tmp_path / "results").write_text("no folder")
    printed(arguments, capsys)


@pytest.mark.parametrize("arguments", [["list"], ["claims"], ["show", "ring/table1"], ["methods"]], ids=str)
@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_a_closed_output_is_no_fault(arguments, closed, stored, monkeypatch) -> None:
    here = [] if arguments == ["methods"] else ["--results", str(stored)]
    monkeypatch.setattr(sys, closed, None)
    assert __main__.main([*arguments, *here]) == 0


@pytest.mark.parametrize("arguments", [
    ["list"], ["claims", "--prices"], ["show", "ring/table1"], ["encoders"],
], ids=str)  # fmt: skip
def test_json_is_what_a_strict_reader_takes(arguments, stored, capsys) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    here = [] if arguments == ["encoders"] else ["--results", str(stored)]
    text = printed([*arguments, *here, "--json"], capsys)
    assert isinstance(json.loads(text, parse_constant=refuse), list)
