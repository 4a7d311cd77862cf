"""A stored cell trained again: what comes out, what differs, and how large a difference is none."""

import math
import statistics
from dataclasses import replace

import pytest

from contrastlab import __main__ as command
from contrastlab import papers, tables
from contrastlab.support import files, shipped
from contrastlab.support.errors import NotApplicableError
from contrastlab.tables import replays, results
from made_runs import quiet

STORED = results.find(shipped.folder("results"), table="ring/table1", dataset="plain_shapes", profile="first")


@pytest.fixture(scope="module")
def cell(tmp_path_factory) -> results.Result:
    plan = papers.plan("ring", 1)
    (job,) = tables.expand(plan, "plain_shapes", ["ring/ir"], [5], "smoke")
    job = replace(job, settings=job.settings.override(epochs=1, lr=0.02))  # not the plan's
    execution = tables.Execution(out_dir=tmp_path_factory.mktemp("runs"), read_also=(), accelerator="cpu")
    made = tables.run(job, execution, log=quiet)
    assert isinstance(made, results.Result)
    return made


def test_a_cell_trained_again_by_its_stored_settings_gives_the_same_number_here(cell) -> None:
    (again,) = replays.replay([cell])
    assert (again.difference, again.differs, again.tolerance, again.holds) == (0.0, (), 0.0, True)
    assert again.again.curve[-1]["loss"] == cell.curve[-1]["loss"]
    assert again.again.settings["lr"] == 0.02


def test_another_number_holds_only_where_something_differs_and_within_the_spread(cell) -> None:
    (again,) = replays.replay([cell])

    def with_stored(shift: float, **machine) -> replays.Replay:
        metrics = {**cell.metrics, again.metric: cell.metrics[again.metric] + shift}
        provenance = cell.provenance.model_copy(update=machine)
        other = cell.model_copy(update={"metrics": metrics, "provenance": provenance})
        return replays.Replay(other, again.again, again.metric)

    assert not with_stored(0.1).holds
    elsewhere = with_stored(0.0, capability="VSX", threads=99)
    assert elsewhere.tolerance == pytest.approx(3 * math.sqrt(2) * replays.spread())
    assert [line.partition(",")[0] for line in elsewhere.differs] == ["instructions VSX", "threads 99"]
    assert with_stored(0.99 * elsewhere.tolerance, threads=99).holds
    assert not with_stored(1.01 * elsewhere.tolerance, threads=99).holds
    settings = {**cell.settings, "lr": 0.03}
    raw = cell.model_dump(by_alias=True, exclude={"config_hash"}) | {"settings": settings}
    other = replays.Replay(results.Result.model_validate(raw), again.again, again.metric)
    assert not other.holds  # by other settings, the same number says nothing
    assert other.differs[0].startswith("recipe ")


def test_the_spread_is_pooled_over_the_ways_of_each_cell() -> None:
    runs = files.read_record(shipped.folder("results") / replays.SPREAD)["runs"]
    each = [[run["value"] for run in runs if run["cell"] == name] for name in {run["cell"] for run in runs}]
    assert all(len(values) >= 4 for values in each)
    assert replays.spread() == pytest.approx(math.sqrt(sum(statistics.variance(v) for v in each) / len(each)))


def test_the_shortest_come_first_and_none_that_ends_too_late(cell, monkeypatch) -> None:
    slow, fast = (cell.model_copy(update={"curve": [{**cell.curve[-1], "seconds": s}]}) for s in (240.0, 30.0))
    trained: list[results.Result] = []
    monkeypatch.setattr(replays, "job_of", trained.append)
    assert [replays.seconds(r) for r in sorted((slow, fast), key=replays.seconds)] == [30.0, 240.0]
    with pytest.raises(NotApplicableError, match=r"in 0\.4 minutes; the shortest took 0\.5"):
        next(replays.replay([slow, fast], minutes=0.4))
    assert trained == []


def test_every_stored_cell_can_be_asked_again_also_by_names_of_older_settings() -> None:
    asked = results.find(shipped.folder("results"), table="ring/table1")
    assert {replays.job_of(each).setup_hash == each.setup_hash for each in asked} == {True}


@pytest.mark.parametrize("count", [1, pytest.param(5, marks=pytest.mark.nightly)])
def test_stored_cells_of_the_table_that_newcomers_see_come_out_again(count: int) -> None:
    shortest = sorted(STORED, key=replays.seconds)[:count]
    every = list(replays.replay(shortest))
    assert [each.stored for each in every] == shortest
    assert [(each.stored.method, each.difference, each.differs) for each in every if not each.holds] == []


@pytest.mark.nightly
def test_the_command_prints_stored_beside_replayed(capsys) -> None:
    assert (
        command.main(["replay", "ring/table1", "--dataset", "plain_shapes", "--seeds", "3", "--limit-minutes", "2"])
        == 0
    )
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split()[:4] == ["row", "data", "profile", "seed"]
    assert any("ring/ir" in line or "supervised" in line for line in lines)
