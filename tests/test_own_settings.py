"""Settings of one's own: they win over a profile, and what comes of them is mixed with no measured number."""

import pytest

from contrastlab import __main__ as command
from contrastlab import methods, papers, tables
from contrastlab.support.errors import ArgumentError, ContrastLabError, UnknownNameError
from contrastlab.tables import notebook, own, report, results
from made_runs import LOCAL, quiet, refused

PLAN = papers.plan("ring", 1)


def table(out, rows="ir", **options):
    return tables.table("ring", 1, "shapes", rows=rows, **{**LOCAL, "out_dir": out, "log": quiet, **options})


@pytest.mark.parametrize(
    "given",
    [
        "epochs=1 linear.solver=sgd negatives.k=8 temperature=0.1 milestones=[1,2] train_images=null",
        ["epochs=1", "linear.solver=sgd", "negatives.k=8", "temperature=0.1", "milestones=[1, 2]", "train_images=null"],
        {"epochs": 1, "linear.solver": "sgd", "negatives.k": 8, "temperature": 0.1, "milestones": [1, 2]}
        | {"train_images": None},
        {"epochs": 1, "linear": {"solver": "sgd"}, "overrides": {"negatives.k": 8}, "temperature": 0.1}
        | {"milestones": [1, 2], "train_images": None},
    ],
)
def test_texts_and_dictionaries_say_the_same(given) -> None:
    assert own.parse(given) == {
        "epochs": 1,
        "linear": {"solver": "sgd"},
        "overrides": {"negatives.k": 8, "temperature": 0.1},
        "milestones": [1, 2],
        "train_images": None,
    }


def test_what_is_given_is_not_changed_and_nothing_given_is_no_profile() -> None:
    inner = {"solver": "sgd"}
    own.parse({"linear": inner, "linear.epochs": 3})
    assert inner == {"solver": "sgd"}
    assert own.own_settings("smoke", "") is own.own_settings("smoke", ()) is own.own_settings("smoke", {}) is None
    assert PLAN.with_settings(None) == PLAN


def test_own_settings_win_over_profile_column_and_precision_and_leave_the_rest() -> None:
    before = PLAN.settings("cifar10", "ir", "laptop")
    plan = PLAN.with_settings(own.own_settings("laptop", "epochs=7 linear.epochs=3 negatives.k=8"))
    after = plan.settings("cifar10", "ir", "own")
    overrides = {**before.overrides, "negatives.k": 8}
    assert after == before.override(epochs=7, linear={"epochs": 3}, overrides=overrides)
    assert plan.settings("cifar10", "ir", "laptop") == before
    column = PLAN.columns["cifar10"].model_copy(update={"settings": {"epochs": 9}})
    assert plan.settings("cifar10", "ir", "own", column).epochs == 7
    assert "own" in plan.profiles
    assert "own" not in PLAN.profiles


def test_stem_and_width_of_another_librarys_network_are_its_own() -> None:
    assert own.parse("arch=timm:resnet18") == {"arch": "timm:resnet18", "stem": "imagenet", "width": 1.0}
    assert own.parse("arch=timm:resnet18 width=2")["width"] == 2
    assert own.parse("arch=resnet18") == {"arch": "resnet18"}


def test_results_of_own_settings_are_apart_and_are_found_by_the_same_settings_alone(few, tmp_path) -> None:
    measured = table(tmp_path)
    mine = table(tmp_path, settings={"epochs": 1, "negatives.k": 8})
    (row,) = (row for row in mine.rows if row.method == "ring/ir")
    assert row.measured is not None
    assert mine.profile == "own"
    assert "profile own (smoke with epochs=1, negatives.k=8)" in mine.caption
    assert mine.banner.startswith("Profile own: not the paper's protocol")
    (stored,) = results.find(tmp_path, profile="own")
    assert (stored.settings["epochs"], stored.recipe["negatives"]["k"]) == (1, 8)
    assert len(results.find(tmp_path, profile="smoke")) == 1
    everything = results.find(tmp_path)
    # no evidence, no claim, no other profile's table shows it
    assert {each.profile for each in report.evidence(PLAN, everything)} == {"smoke"}
    assert report.table(PLAN, everything, "shapes", "smoke").rows[0] == measured.rows[0]
    for settings, is_there in (("epochs=1 negatives.k=8", True), ("epochs=1 negatives.k=9", False)):
        plan = PLAN.with_settings(own.own_settings("smoke", settings))
        assert (report.table(plan, everything, "shapes", "own").rows[0].measured is not None) == is_there


def test_the_command_runs_and_shows_own_settings(few, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    what = ["ring/table1", "--profile", "smoke", "--set", "epochs=1", "--set", "linear.epochs=1"]
    assert command.main(["run", *what, "--rows", "ir", "--jobs", "1", "--no-references"]) == 0
    ran = capsys.readouterr().out
    assert command.main(["show", *what]) == 0
    shown = capsys.readouterr().out
    for text in (ran, shown):
        assert "profile own (smoke with epochs=1, linear.epochs=1)" in " ".join(text.split())
    number = next(line for line in ran.splitlines() if line.startswith("IR "))
    assert number.split()[1] in shown
    for command_ in ("run", "show"):
        assert command.main([command_, "ring/table1", "--profile", "own"]) == 2
        assert "a profile to change, with settings of your own: --set epochs=50" in capsys.readouterr().err


def test_a_notebook_takes_own_settings_by_papermill(few, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = {"rows": "ir", "profile": "smoke", "settings": "epochs=1", "out_dir": str(tmp_path), "jobs": "1"}
    opened = notebook.open("ring", 1, given)
    assert opened.profile == "own"
    made = opened.run(references_too=False, log=quiet)
    assert made.profile == "own"
    assert [each.settings["epochs"] for each in opened.results()] == [1]
    run, _ = opened.pretrained("ir")
    assert run.settings.epochs == 1
    with pytest.raises(ArgumentError, match="settings='epochs=1': expected none in made, which runs no table"):
        notebook.study("made", given)


def test_what_nothing_can_be_made_of_is_refused_before_anything_is_computed(few, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(tables.fill.pool, "run_all", lambda *a, **k: pytest.fail("computed"))
    assert not methods.get("ring/ir").has("objective.t")
    refused(
        (lambda: table(tmp_path, settings="arch=resnet19"), UnknownNameError, "unknown architecture 'resnet19'"),
        (lambda: table(tmp_path, settings="augmentation=foo"), UnknownNameError, "unknown augmentation 'foo'"),
        (lambda: table(tmp_path, settings="negatives.kk=3"), UnknownNameError, "unknown recipe field 'negatives.kk'"),
        (lambda: table(tmp_path, settings="objective.t=2"), ArgumentError, "a field of a part of ring/ir"),
        (lambda: table(tmp_path, settings="negatives.k=0"), ContrastLabError, "k=0: expected a number"),
    )
