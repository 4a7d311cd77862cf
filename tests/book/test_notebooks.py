"""Notebooks: short, alike, checked; several tables in one; studies that are no table; protocols of other tables."""

import ast
import json
import re
from pathlib import Path

import pytest
import torch

from contrastlab import data, papers
from contrastlab.support.errors import ContrastLabError, UnknownNameError
from contrastlab.tables import notebook, results

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted((ROOT / "nbs").glob("*.py"))
TABLES_ALONE = {"repro_table1", "repro_ring_table2", "repro_vince_table1"}
GIVEN = {"dataset": "shapes", "profile": "smoke", "jobs": "1"}


def cells(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n# %%")[1:]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.stem)
def test_parameters_have_the_same_names_and_meanings_everywhere(path: Path) -> None:
    (first,) = (cell for cell in cells(path) if 'tags=["parameters"]' in cell.splitlines()[0])
    body = ast.parse(first.partition("\n")[2]).body
    given = {node.target.id: ast.literal_eval(node.value) for node in body}
    assert list(given) == [name for name in notebook.PARAMETERS if name in given]  # the same order, too
    assert {type(value) for value in given.values()} == {str}
    assert given["profile"] == "auto"
    assert "# auto (paper with a GPU, laptop without) | smoke" in first
    for name, value in given.items():
        if name == "dataset":
            assert value in data.names()
        elif name not in ("rows", "columns"):
            assert value == notebook.PARAMETERS[name], name


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.stem)
def test_a_notebook_is_short_and_opens_right_after_its_parameters(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= (60 if path.stem in TABLES_ALONE else 200)
    code = [cell for cell in cells(path) if not cell.startswith(" [markdown]")]
    assert 'tags=["parameters"]' in code[0]
    assert re.search(r"^nb = notebook\.(open|study)\(.*globals\(\)", code[1], re.M)
    # nothing a parameter could be mistaken for is assigned before the check
    before = code[1].partition("nb = notebook.")[0]
    assert not re.search(r"^\w+ = ", before, re.M)
    if "notebook.open" in code[1] and ".run(" in "".join(code):
        assert re.search(r"^(nb|table)\.check\(", code[-1], re.M)


def test_every_table_with_a_protocol_is_opened_by_its_notebook() -> None:
    opened = {}
    for path in SCRIPTS:
        match = re.search(r'notebook\.open\("(\w+)", (.+?), globals', path.read_text(encoding="utf-8"))
        if match:
            numbers = ast.literal_eval(match[2])
            for number in numbers if isinstance(numbers, tuple) else [numbers]:
                opened.setdefault((match[1], str(number)), set()).add(f"nbs/{path.stem}.ipynb")
    for entry in papers.catalogue():
        if (ROOT / entry.notebook).is_file() and (entry.paper, entry.table) in papers.plans():
            assert entry.notebook in opened[entry.paper, entry.table], entry.name


@pytest.mark.parametrize("path", sorted((ROOT / "nbs").glob("*.ipynb")), ids=lambda p: p.stem)
def test_outputs_are_stored_and_name_no_machine(path: Path) -> None:
    whole = json.loads(path.read_text(encoding="utf-8"))
    code = [cell for cell in whole["cells"] if cell["cell_type"] == "code"]
    assert any(cell["outputs"] for cell in code)
    assert not [o for cell in code for o in cell["outputs"] if o["output_type"] == "error"]
    shown = json.dumps([cell["outputs"] for cell in code])
    assert not re.search(r"/(?:home|root|work|tmp|Users)/", shown)


def test_a_notebook_of_several_tables_takes_from_each_the_rows_it_has(few, tmp_path, monkeypatch) -> None:
    nb = notebook.open("ring", ("5b", "5d", 1), {**GIVEN, "rows": "ir,simclr,moco_v2,random", "out_dir": str(tmp_path)})
    assert nb.rows("5d") == ("ring/simclr", "ours/random")
    assert nb.rows(1) == ("ring/ir", "ours/random")
    assert nb.rows() == ("ring/moco_v2", "ours/random")
    for shown in (repr(nb.claim), nb.claim._repr_html_()):  # every table of the notebook
        for number in ("5b", "5d", "1"):
            assert f"Table {number}" in shown
            assert str(papers.published("ring", number)["value"].iloc[0]) in shown
    with pytest.raises(UnknownNameError, match="5b"):
        nb.plan("5c")
    with pytest.raises(ContrastLabError, match="no table was run"):
        nb.check()
    nb = notebook.open("ring", ("5b", "5d"), {**GIVEN, "rows": "simclr", "out_dir": str(tmp_path)})
    monkeypatch.setattr(notebook, "table", lambda *a, **k: pytest.fail("run"))
    made = nb.run("5b")
    assert not [row for row in made.rows if row.measured]
    assert nb.shown == []


def test_two_tables_share_runs_and_each_is_checked(few, tmp_path) -> None:
    lines: list[str] = []
    given = {**GIVEN, "rows": "kl,vincze_le_cam_printed", "out_dir": str(tmp_path)}
    nb = notebook.open("fmicl", (2, 10), given)
    linear = nb.run(accelerator="cpu", references_too=False, log=lines.append)
    trained = len(list(tmp_path.glob("encoders/*/run.json")))
    assert trained == 2
    neighbours = nb.run(10, accelerator="cpu", references_too=False, log=lines.append)
    assert len(list(tmp_path.glob("encoders/*/run.json"))) == trained
    assert {row.method for row in linear.rows if row.measured} == {"fmicl/kl", "fmicl/vincze_le_cam_printed"}
    assert {row.method for row in neighbours.rows if row.measured} == {"fmicl/kl"}
    assert {linear.metric.name, neighbours.metric.name} == {"linear", "knn200"}
    with pytest.raises(ContrastLabError, match="ours/random"):
        nb.check()  # the floor has not been run


def test_the_networks_behind_a_row(few, tmp_path) -> None:
    nb = notebook.open("ring", 1, {**GIVEN, "out_dir": str(tmp_path), "seeds": "3,4"})
    run, encoders = nb.pretrained("ir")
    again, same = nb.pretrained("ring/ir")
    assert run.seed == 3
    assert run.hash == again.hash
    for one, other in zip(encoders.parameters(), same.parameters(), strict=True):
        assert torch.equal(one, other)
    _, fresh = nb.pretrained("random")
    assert len(fresh) == 1
    assert len(list(tmp_path.glob("encoders/*/run.json"))) == 1


def test_a_study_is_checked_alike(monkeypatch) -> None:
    monkeypatch.delenv("CONTRASTLAB_PROFILE", raising=False)
    given = {"dataset": "shapes", "profile": "smoke", "seeds": "0,2"}
    nb = notebook.study("crosses", given)
    assert (nb.profile, nb.seeds, nb.data_root) == ("smoke", (0, 2), None)
    assert nb.folders == (nb.root / "runs", nb.root / "results")
    assert notebook.study("crosses", {**given, "most": 3}, also=("most",)).parameters["most"] == 3
    auto = notebook.study("crosses", {**given, "profile": "auto"})
    assert auto.profile == ("paper" if torch.cuda.is_available() else "laptop")
    monkeypatch.setenv("CONTRASTLAB_PROFILE", "smoke")
    assert notebook.study("crosses", {**given, "profile": "auto"}).profile == "smoke"


BODY = 'title = "t"\nclaim = "c"\n[columns]\ncifar10 = ""\n[rows]\n"ring/ir" = ""\n"ring/cmc" = ""\n'


def test_a_table_may_take_the_protocol_of_another_and_a_figure_any_data() -> None:
    source = papers.plan("ring", 1)
    made = papers.parse_plan(f'protocol_of = "1"\n{BODY}[settings]\nepochs = 7\n', "ring/table9.toml")
    for profile in source.profiles:
        for method in ("ring/ir", "ring/cmc", "ours/random"):
            expected = source.settings("cifar10", method, profile)
            got = made.settings("cifar10", method, profile)
            changed = {"epochs": 7} if papers.is_paper(profile) else {}
            assert got == expected.override(**changed), (method, profile)
    # rows of the other table that this one has not are left behind
    assert set(made.protocol.method) == {"ring/cmc"}
    assert papers.plan("ring", "2").protocol.settings == source.protocol.settings
    assert papers.plan("fmicl", 8).protocol.settings["epochs"] == 200
    linear, neighbours = papers.plan("fmicl", 2), papers.plan("fmicl", 10)
    for row in neighbours.rows:
        assert neighbours.settings("cifar10", row, "fair") == linear.settings("cifar10", row, "fair")
    plan = papers.plan("jcl", "figure2")
    assert [(name, c.data, c.metric, c.published) for name, c in plan.select("shapes").items()] == [
        ("shapes", "shapes", "linear", "")
    ]


def test_a_stored_table_shows_every_column_that_has_a_number(few, tmp_path, monkeypatch) -> None:
    given = {**GIVEN, "rows": "ir", "out_dir": str(tmp_path)}
    nb = notebook.open("ring", 3, given)
    shown = nb.run(accelerator="cpu", references_too=False, log=lambda line: None)
    monkeypatch.setattr(nb, "read_also", (tmp_path,))
    stored = nb.stored("shapes", "smoke")
    assert [each.name for each in stored.reports] == [each.name for each in shown.reports]
    assert len(stored.reports) == 2
    values = [[row.measured for row in each.rows if row.measured] for each in stored.reports]
    assert values == [[row.measured for row in each.rows if row.measured] for each in shown.reports]
    (gone,) = (path for path in tmp_path.rglob("*digits*.json") if "encoders" not in path.parts)
    gone.unlink()
    assert nb.stored("shapes", "smoke").name == stored.reports[1].name  # a column without a number is left out
    monkeypatch.setattr(nb, "read_also", (tmp_path / "nothing",))
    assert nb.stored("shapes", "smoke").name == stored.reports[0].name


def test_the_best_that_is_kept_is_shown_and_the_rest_is_named(few, tmp_path, monkeypatch) -> None:
    given = {**GIVEN, "rows": "ir", "out_dir": str(tmp_path / "new")}
    nb = notebook.open("ring", 2, given)
    monkeypatch.setattr(nb, "read_also", (tmp_path,))
    assert nb.kept().best is None
    assert "contrastlab run ring/table2 --profile laptop" in repr(nb.kept())
    nb.run(accelerator="cpu", references_too=False, log=lambda line: None)
    (made,) = (r for r in results.find([tmp_path / "new"]) if r.task == "linear")
    results.save(made, tmp_path)
    assert nb.kept().best is None  # smoke is no evidence
    for profile, seeds in (("first", (0, 1)), ("tuned", (0,)), ("laptop", (0, 1, 2))):
        for seed in seeds:
            results.save(made.model_copy(update={"profile": profile, "seed": seed}), tmp_path)
    kept = nb.kept()
    assert (kept.best.profile, kept.best.dataset) == ("tuned", "shapes")
    assert [each.profile for each in kept.others] == ["laptop", "first"]
    assert "1 of 4 rows, 3 seeds (laptop)" in kept.html()
    assert f"{made.metrics['linear']:.2f}" in kept.html()
