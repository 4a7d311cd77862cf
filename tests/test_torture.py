"""A sample of the torture (``make torture``): the same functions, a few tries of each.

Four tables side by side are a sample of their own: ``test_reproduce.py`` starts two.
"""

import json
import random
from pathlib import Path

import pytest
import torture
from torments import cells, chaos, corrupt, disk, faults, fields, finite, kill, processes
from torments.figures import Figures

from contrastlab import keys, methods, papers, tasks
from contrastlab.support import files
from made_runs import quiet

QUICK = ("queue, linear", "batch, neighbours", "annealed cave, linear")


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(kill.os, "fork"), reason="this system cannot fork a process")
def test_a_killed_cell_ends_as_one_that_nobody_killed(tmp_path) -> None:
    done = kill.run(2, 3, tmp_path, quiet, QUICK[:1])
    assert done.failures == []
    assert (done.tried, done.identical) == (2, 2)


@pytest.mark.nightly
@pytest.mark.skipif(not hasattr(kill.os, "fork"), reason="this system cannot fork a process")
def test_other_killed_cells_end_as_ones_that_nobody_killed(tmp_path) -> None:
    done = kill.run(6, 3, tmp_path, quiet, QUICK)
    assert done.failures == []
    assert (done.tried, done.identical) == (6, 6)
    assert len(done.of) >= 3


@pytest.mark.nightly
def test_a_killed_fine_tuning_ends_as_one_that_nobody_killed(tmp_path) -> None:
    done = kill.run(2, 1, tmp_path, quiet, ("clips, action", "bank, boxes"))
    assert done.failures == []
    assert done.identical == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", [
    "queue, linear", *(pytest.param(each, marks=pytest.mark.nightly) for each in ("clips, action", "bank, boxes")),
])  # fmt: skip
def test_a_kill_after_the_last_file_leaves_no_checkpoint_behind(name, tmp_path, monkeypatch) -> None:
    whole, _, _ = kill.undisturbed(name, tmp_path / "whole")
    for of_task in (False, True)[: 1 + (name != "queue, linear")]:

        def cut(path, missing_ok=False, of_task=of_task, unlink=Path.unlink) -> None:
            own = (path.parent.parent.name != "encoders") == of_task
            if path.name == "checkpoint.safetensors" and path.exists() and own:
                kill.os.kill(kill.os.getpid(), 9)
            unlink(path, missing_ok)

        with monkeypatch.context() as patched:
            patched.setattr(Path, "unlink", cut)
            assert kill.killed(name, tmp_path / "cut", {}) == -9
    assert kill.forked(lambda: kill.compute(name, tmp_path / "cut", kill.Events())) == 0
    assert cells.difference(whole, cells.content(tmp_path / "cut")) == ""


def test_a_kill_at_an_event_is_a_kill_there_and_what_a_cell_leaves_is_compared(tmp_path) -> None:
    name = QUICK[0]
    whole, seen, _ = kill.undisturbed(name, tmp_path / "whole")
    assert min(seen[p] for p in ("loading", "training", "saving", "probing", "storing", "collecting")) > 0
    assert kill.killed(name, tmp_path / "cut", {"target": ("storing", 0)}) == -9
    cut = cells.content(tmp_path / "cut")
    assert cells.difference(whole, cut).startswith("other files or tensors")
    name = next(key for key in whole if "encoder.safetensors " in key)
    other = {**whole, name: whole[name] + 1}
    assert cells.difference(whole, other) == name
    assert cells.difference(whole, whole) == ""


OF_EVERY_RUN, OF_DETECTORS_AND_CLIPS = corrupt.MAKERS[:3], corrupt.MAKERS[3:]


@pytest.mark.parametrize("makers", [
    OF_EVERY_RUN, pytest.param(OF_DETECTORS_AND_CLIPS, marks=pytest.mark.nightly),
], ids=["of every run", "of detectors and clips"])  # fmt: skip
def test_a_damaged_file_is_refused_by_name_or_changes_nothing(makers, tmp_path) -> None:
    stored = [kept for make in makers for kept in make(tmp_path)]
    done, draw = Figures(), random.Random(0)
    for kept in stored:
        whole = corrupt.plain(kept.read())
        assert whole is not None
        for damage in corrupt.DAMAGES:
            corrupt.try_one(kept, damage, draw, whole, done)
    assert done.failures == []
    assert done.tried == done.refused + done.unchanged == len(corrupt.DAMAGES) * len(stored)
    assert done.refused > 0.9 * done.tried


def test_each_kind_of_damage_is_made() -> None:
    draw, content = random.Random(1), bytes(range(256)) * 40
    assert corrupt.damaged(content, b"other", "empty", draw) == b""
    cut = corrupt.damaged(content, b"other", "truncate", draw)
    assert content.startswith(cut)
    assert len(cut) < len(content)
    flipped = corrupt.damaged(content, b"other", "flip", draw)
    assert 1 <= sum(a != b for a, b in zip(flipped, content, strict=True)) <= 8
    swapped = [corrupt.damaged(content, b"other", "swap", draw) for _ in range(20)]
    assert b"other" in swapped
    assert any(sorted(each) == sorted(content) and each != content for each in swapped)


@pytest.mark.slow
def test_a_full_disk_a_read_only_folder_and_a_clock_that_jumps_lose_nothing(tmp_path) -> None:
    done = disk.run(3, 2, tmp_path, quiet)
    assert done.failures == []
    assert done.refused + done.identical == 3
    assert done.of["read-only folder"] == done.of["jumping clock"] == 1


@pytest.mark.slow
def test_a_call_that_fails_once_loses_nothing(tmp_path) -> None:
    done = faults.run(3, 0, tmp_path, quiet, ("queue, linear",))
    assert done.failures == []
    assert done.tried == done.refused + done.identical == 3 > done.identical


def test_each_call_that_changes_a_file_fails_in_its_turn(tmp_path) -> None:
    def change(number: int) -> None:
        faults.Faults(tmp_path, number).watch()
        files.write_whole(tmp_path / f"{number}" / "a", "text")

    codes = [kill.forked(lambda: change(number)) for number in range(1, 9)]  # noqa: B023
    assert codes == [1] * 6 + [0] * 2  # mkdir, open, write, flush, fsync, replace
    assert [path.parent.name for path in sorted(tmp_path.glob("*/*"))] == ["7", "8"]


def test_what_ckpt_chaos_says_is_counted(tmp_path, monkeypatch) -> None:
    said = [("control", 0, None, 0), ("before", 1, None, 0), ("torn", 1, None, 1), ("torn", 1, "Exit", None),
            ("before", 0, None, 0)]  # fmt: skip
    for number, (mode, crashed, raised, different) in enumerate(said):
        outcome = {"raised": raised, "weights_diff": different}
        text = json.dumps({"label": mode, "crashed": crashed, "outcome": outcome, "point": [number, mode]})
        files.write_whole(tmp_path / "cell-0" / f"pt_{number}" / "result.json", text)
    (files.make_folder(tmp_path / "bin") / "ckpt-chaos").symlink_to("/bin/true")
    monkeypatch.setattr(chaos, "PLACE", tmp_path)
    done = chaos.run(4, 0, tmp_path, quiet, ("queue, linear",))
    assert (done.tried, done.identical) == (5, 2)
    assert [line.split(": ")[-1] for line in done.failures] == ["other content", "Exit", "not killed"]


def test_recipes_on_two_and_three_processes_are_those_of_one(tmp_path) -> None:
    done = processes.run(0, 0, tmp_path, quiet, ("ring/iring", "cmc/cmc_moco_pirl", "jcl/jcl", "cmc/predict_depth"))
    assert done.failures == []
    assert (done.identical, done.refused) == (8, 4)
    one = processes.train(processes.small("ring/ir", 2), 0, 1)
    other = [{key: value.clone() for key, value in step.items()} for step in one]
    assert processes.other(one, [other]) == ""
    other[3]["kept stores.0.rows"][5, 2] += 1e-3
    assert processes.other(one, [other]) == "step 3, rank 0, kept stores.0.rows"


def test_cold_losses_of_degenerate_batches_are_finite(tmp_path, monkeypatch) -> None:
    trained = [name for name in methods.names() if methods.get(name).keys is not None]
    one_per_objective = {type(methods.get(name).objective): name for name in reversed(trained)}
    further = ("vince/cmc_nce", "ring/mocoring", "ring/simclr", "jcl/jcl", "fmicl/neyman", "cmc/core_4")
    names = tuple(dict.fromkeys((*one_per_objective.values(), *further)))
    done = finite.run(0, 0, tmp_path, quiet, names)
    assert done.failures == []
    assert done.unchanged > 4 * len(names) > 0
    made = finite.degenerate

    def broken(*given):
        views, numbers = made(*given)
        return tuple(view / 0 for view in views), numbers

    monkeypatch.setattr(finite, "degenerate", broken)
    assert finite.finite(methods.get("ring/simclr"), "duplicates") == "the loss is nan at step 0"
    done = finite.run(0, 0, None, quiet, ("ring/simclr",))
    assert done.failed == len(finite.BATCHES) - 1  # one image is refused before it is looked at


def test_every_kind_of_keys_and_of_task_is_killed() -> None:
    kinds = {type(cells.job(name).effective_recipe.keys) for name in cells.CASES}
    rows = {name for paper, table in papers.plans() for name in papers.plan(paper, table).rows}
    assert kinds == {type(methods.get(name).keys) for name in rows} - {type(None)}
    assert keys.Bank in kinds
    columns = [column for each in papers.plans() for column in papers.plan(*each).columns.values()]
    asked = {column.task for column in columns}
    assert asked <= tasks.TASKS.keys()
    one_of_four = {name for name in asked if name.startswith("segmentation_")}
    assert cells.kinds() & one_of_four
    assert cells.kinds() >= asked - one_of_four


def test_figures_are_stored_part_by_part(tmp_path, monkeypatch, capsys) -> None:
    def run(count: int, seed: int, folder, log) -> Figures:
        figures = Figures()
        for number in range(count):
            figures.count("identical" if number else "failed", "kind", "why")
        return figures

    parts = {name: torture.Part(run, 3, name) for name in ("kill", "disk")}
    monkeypatch.setattr(torture, "PARTS", parts)
    out = tmp_path / "torture.json"
    assert torture.main(["disk", "--out", str(out), "--seed", "5"]) == 1
    assert "disk: FAILED kind: why" in capsys.readouterr().out
    assert torture.main(["kill", "--out", str(out), "--count", "0"]) == 0
    known = json.loads(out.read_text())
    assert list(known) == ["kill", "disk"]
    assert (known["disk"]["tried"], known["disk"]["failed"], known["disk"]["identical"]) == (3, 1, 2)
    assert (known["disk"]["seed"], known["disk"]["of"]) == (5, {"kind": 3})
    with pytest.raises(SystemExit):
        torture.main(["dsik", "--out", str(out)])
    assert "expected any of kill, disk" in capsys.readouterr().err


def test_parts_run_where_no_file_system_can_be_mounted(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(disk, "can_mount", lambda: False)
    done = disk.run(1, 4, tmp_path, quiet)
    assert done.failures == []
    assert done.of == {"bounded files": 1}
    assert "only root" in done.skipped[0]


def test_no_field_of_a_file_is_a_fault_of_this_package(tmp_path) -> None:
    done = fields.run(120, 3, tmp_path, quiet)
    assert done.failures == []
    assert (done.tried, len(done.of)) == (120, 6)
    assert done.refused > 40
