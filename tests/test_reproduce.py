"""A cell of a table: a run trained once and kept, scored by tasks, stored and read again; what cannot be says why."""

import dataclasses
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import TensorDataset

from contrastlab import __main__ as command
from contrastlab import data, encoders, methods, negatives, papers, tables, tasks
from contrastlab.pictures.domain import modality
from contrastlab.pictures.items import fingerprint
from contrastlab.pictures.task import Task
from contrastlab.settings import Settings
from contrastlab.support import checksums, errors, files
from contrastlab.support.errors import ArgumentError, CorruptFileError, NotApplicableError, UnknownNameError
from contrastlab.tables import expand, notebook, pool, results
from contrastlab.tables import runs as runs_module
from contrastlab.tables.job import stored
from contrastlab.tables.report import Reports, Unavailable
from contrastlab.tables.runs import BusyError
from contrastlab.train import Speed, pretrain
from contrastlab.train.checkpoint import runs
from contrastlab.train.learner import Learner
from made_runs import LOCAL, equal, quiet, resumed

PLAN = papers.plan("ring", 1)


def job_of(method: str, dataset: str = "shapes", plan=PLAN, seed: int = 0, profile="smoke") -> tables.Job:
    return expand(plan, dataset, [plan.resolve(method)], [seed], profile)[0]


def here(out: Path, **where) -> tables.Execution:
    return tables.Execution(out_dir=out, **{"read_also": (), "accelerator": "cpu", **where})


def compute(method: str, out: Path, *, dataset: str = "shapes", plan=PLAN, seed: int = 0, profile="smoke", **where):
    lines: list[str] = []
    return tables.run(job_of(method, dataset, plan, seed, profile), here(out, **where), log=lines.append), lines


def table(out: Path, dataset: str = "shapes", **options):
    return tables.table("ring", 1, dataset, **{**LOCAL, "out_dir": out, "log": quiet, **options})


def forbid_training(monkeypatch) -> None:
    monkeypatch.setattr(runs_module, "pretrain", lambda *a, **k: pytest.fail("trained again"))


def test_seeds_are_read_as_a_number_a_string_or_a_list() -> None:
    for given, seeds in (
        ("0,1", (0, 1)), (" 2 , 0,2 ", (2, 0)), (3, (3,)), ("7", (7,)), ([1], (1,)), ((0, 1, 1), (0, 1)),
        (range(3), (0, 1, 2)), (["4", 5], (4, 5)), ("1,", (1,)), (np.int64(3), (3,)), (np.arange(2), (0, 1)),
    ):  # fmt: skip
        assert papers.parse_seeds(given) == seeds
    assert papers.parse_target("ring/table1") == ("ring", "1")


def test_auto_is_the_paper_with_a_gpu_and_laptop_without(monkeypatch) -> None:
    monkeypatch.delenv("CONTRASTLAB_PROFILE", raising=False)
    for gpu, expected in ((True, "paper"), (False, "laptop")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda answer=gpu: answer)
        assert papers.choose_profile("auto", PLAN.profiles) == expected
        assert papers.choose_profile("smoke", PLAN.profiles) == "smoke"


# -- cells


def test_a_cell_is_run_stored_and_then_read_without_training(few, tmp_path, monkeypatch) -> None:
    first, lines = compute("iring", tmp_path)
    assert (first.method, first.task, first.table) == ("ring/iring", "linear", "ring/table1")
    assert 0 <= first.metrics["linear"] <= 100
    assert first.metrics["linear"] == pytest.approx(100 * float(results.bits(first.correct["linear"]).mean()))
    assert len(first.curve) == first.settings["epochs"]
    assert (first.items, first.seed, first.profile, first.dataset) == (64, 0, "smoke", "shapes")
    assert first.settings == PLAN.settings("shapes", "iring", "smoke").model_dump(mode="json")
    assert first.provenance.data_note == "random pictures"
    assert any("linear" in line for line in lines)
    assert results.find(tmp_path, table="ring/table1", dataset="shapes", profile="smoke") == [first]
    forbid_training(monkeypatch)
    again, lines = compute("ring/iring", tmp_path)
    assert again == first
    assert len(lines) == 1
    assert "stored" in lines[0]
    read, _ = compute("iring", tmp_path / "elsewhere", read_also=(tmp_path,))
    assert read == first


def test_a_run_is_trained_once_for_all_tasks_and_tables(few, tmp_path, monkeypatch, capsys) -> None:
    two, ten = (papers.plan("fmicl", number) for number in (2, 10))
    first, _ = compute("kl", tmp_path, plan=two)
    forbid_training(monkeypatch)
    second, _ = compute("kl", tmp_path, plan=ten)
    assert (first.task, second.task) == ("linear", "neighbours")
    assert first.curve == second.curve
    assert {"knn200", "nn1"} <= set(second.metrics)
    assert len(list((tmp_path / "encoders").glob("*/run.json"))) == 1
    assert command.main(["encoders", "--out", str(tmp_path), "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [each["method"] for each in listed] == ["fmicl/kl"]
    assert (listed[0]["profile"], listed[0]["epochs"]) == ("smoke", len(first.curve))
    assert listed[0]["score"] == f"linear {first.metrics['linear']:.2f}, knn200 {second.metrics['knn200']:.2f}"
    # ring's MoCo v2 is fmicl's MoCo: one recipe under two names
    assert two.setup_hash(two.columns["cifar10"], "fmicl/moco") != two.setup_hash(two.columns["cifar10"], "fmicl/kl")


def test_a_job_of_one_s_own_needs_no_table_and_is_read_again(few, tmp_path, monkeypatch) -> None:
    recipe = methods.get("ring/ir").row("mine/cool", "IR at 0.2", temperature=0.2)
    settings = Settings(epochs=1, batch_size=64, arch="tiny", stem="cifar", image_size=8, overrides={"negatives.k": 16})
    job = tables.Job(recipe, settings, "shapes", seed=3, metric="nn1")
    first = tables.run(job, here(tmp_path), log=quiet)
    assert isinstance(first, results.Result)
    assert (first.method, first.table, first.profile, first.seed, first.task) == (
        "mine/cool", "own", "own", 3, "neighbours"
    )  # fmt: skip
    assert first.recipe["temperature"] == 0.2
    assert first.recipe["negatives"]["k"] == 16
    assert job.recipe == recipe  # the overrides of the settings are applied anew each time
    with monkeypatch.context() as finished:
        forbid_training(finished)
        assert tables.run(job, here(tmp_path), log=quiet) == first
    assert tables.run(replace(job, seed=4), here(tmp_path), log=quiet) != first


def test_the_same_recipe_under_another_name_is_found(few, tmp_path, monkeypatch) -> None:
    first, _ = compute("ir", tmp_path)
    twin = dataclasses.replace(methods.get("ring/ir"), name="ours/twin", label="twin")
    monkeypatch.setattr(methods, "get", lambda name, paper=None: twin)
    forbid_training(monkeypatch)
    plan = PLAN.model_copy(update={"rows": {**PLAN.rows, "ours/twin": ""}})
    assert tables.run(job_of("ours/twin", plan=plan), here(tmp_path), log=quiet) == first


def test_an_artefact_gives_the_encoders_back(few, tmp_path) -> None:
    done, _ = compute("cmc", tmp_path)
    ((folder, record),) = runs([tmp_path])
    assert record["recipe"]["name"] == "ring/cmc"
    assert (record["dataset"], record["seed"], record["history"]) == ("shapes", 0, done.curve)
    nets = encoders.load(folder)
    assert [net.in_channels for net in nets] == [1, 2]
    assert not any(module.training for module in nets.modules())
    again = job_of("cmc")
    run_ = tables.Run(again.effective_recipe, again.settings, again.load(here(tmp_path))[0], 0, tmp_path)
    assert (run_.artefact.finished, run_.folder) == (True, folder)
    state = run_.encoders().state_dict()
    assert all(torch.equal(state[name], tensor) for name, tensor in nets.state_dict().items())
    assert sorted(path.name for path in folder.iterdir() if path.is_file()) == [
        "encoder.safetensors", "metrics.csv", "run.json",
    ]  # fmt: skip
    assert command.main(["encoders", "--out", str(tmp_path)]) == 0


def test_a_damaged_artefact_is_named(few, tmp_path) -> None:
    compute("ir", tmp_path / "other", seed=1)
    (other,) = (tmp_path / "other" / "encoders").glob("*/encoder.safetensors")
    compute("ir", out := tmp_path / "out")
    (path,) = (out / "encoders").glob("*/run.json")
    record, weights = json.loads(path.read_text()), path.with_name("encoder.safetensors")
    for damaged, content in (
        (weights, weights.read_bytes()[:-100]),
        (weights, other.read_bytes()),  # whole, and of another seed
        (path, b"{"),
        (path, json.dumps({**record, "schema": 9}).encode()),
        (path, json.dumps(checksums.with_checksum({**record, "hash": "0" * 64})).encode()),
        (path, json.dumps({**record, "history": record["history"][:-1]}).encode()),
    ):
        for file in (out / "cells").rglob("*.json"):
            file.unlink()
        whole = damaged.read_bytes()
        damaged.write_bytes(content)
        with pytest.raises(CorruptFileError, match=str(damaged)):
            compute("ir", out)
        assert results.find(out) == []
        damaged.write_bytes(whole)


def test_the_hash_of_a_run_covers_what_decides_its_encoders(few, pictures) -> None:
    splits = data.load("shapes")
    settings = PLAN.settings("shapes", "ir", "smoke")
    recipe = methods.get("ring/ir").override(settings.overrides)

    def hash_(recipe=recipe, settings=settings, splits=splits, seed=0) -> str:
        return tables.Run(recipe, settings, splits, seed).hash

    same = [
        hash_(recipe=dataclasses.replace(recipe, name="x/y", label="y", note="z")),
        hash_(settings=settings.override(knn_every=1, test_images=5, linear={"l2": 9.0}, overrides={"keys.rate": 0.1})),
        hash_(splits=dataclasses.replace(splits, test=pictures(8, 3, 99), note="elsewhere")),
    ]
    assert set(same) == {hash_()}
    other = [
        hash_(recipe=dataclasses.replace(recipe, temperature=0.2)), hash_(settings=settings.override(epochs=11)),
        hash_(splits=dataclasses.replace(splits, pretrain=pictures(192, 3, 98))), hash_(seed=1),
    ]  # fmt: skip
    assert len({hash_(), *other}) == 5
    # encoders as initialised depend on seed and architecture alone
    random = methods.get("ours/random")
    assert hash_(random) == hash_(random, settings.override(epochs=3, lr=1.0), data.load("cifar10"))
    assert hash_(random) != hash_(random, settings.override(dim=7))


def test_a_stored_cell_of_other_data_settings_or_seed_is_not_this_one(few, tmp_path, pictures) -> None:
    compute("random", tmp_path)

    def there(splits=None, **changes):
        job = job_of("random", **changes)
        return stored(job, here(tmp_path), splits or job.load(here(tmp_path)))

    splits = data.load("shapes")
    other = dataclasses.replace(splits, train=pictures(192, 3, 5))
    assert there() is not None
    assert there(splits=(other, other)) is None
    assert there(seed=1) is None
    assert there(profile="laptop") is None
    assert there(dataset="cifar10") is None
    assert fingerprint(other) != fingerprint(splits)


def test_without_resume_a_stored_cell_is_computed_anew(few, tmp_path, monkeypatch) -> None:
    first, _ = compute("ir", tmp_path)
    calls: list[bool] = []
    train = runs_module.pretrain

    def count(*args, **options):
        calls.append(options["resume"])
        return train(*args, **options)

    monkeypatch.setattr(runs_module, "pretrain", count)
    again, _ = compute("ir", tmp_path, resume=False)
    assert calls == [False]
    assert again.metrics == first.metrics


def test_a_cell_cut_off_is_resumed_to_the_same_numbers(few, tmp_path) -> None:
    whole, _ = compute("moco", tmp_path / "whole")
    part = tmp_path / "pieces"
    stored: list[results.Result] = []
    (pieces, lines), stops = resumed(
        lambda: compute("moco", part, max_minutes=0), between=lambda: stored.extend(results.find(part))
    )
    assert (stops > 1, stored) == (True, [])
    assert any("goes on from its checkpoint" in line for line in lines)
    assert pieces.metrics == whole.metrics
    assert pieces.correct == whole.correct
    assert pieces.config_hash == whole.config_hash


def test_a_cell_that_diverges_stores_nothing(few, tmp_path, monkeypatch) -> None:
    loss = Learner.loss

    def spoilt(self, *args):
        out = loss(self, *args)
        return dataclasses.replace(out, loss=out.loss * float("nan"))

    monkeypatch.setattr(Learner, "loss", spoilt)
    with pytest.raises(errors.NonFiniteLossError, match="step 0"):
        compute("ir", tmp_path)
    assert results.find(tmp_path) == []
    assert list(tmp_path.rglob("*.safetensors")) == []


@pytest.mark.parametrize("method", ["cmc", "ring/cmcring"])
def test_a_colour_split_of_grey_images_is_unavailable_with_the_reason(method, few, tmp_path, monkeypatch) -> None:
    forbid_training(monkeypatch)
    done, _ = compute(method, tmp_path, dataset="digits")
    assert isinstance(done, Unavailable)
    assert done.method == PLAN.resolve(method)
    assert "grey" in done.reason
    assert list(tmp_path.iterdir()) == []


def test_real_digits_run_at_smoke_size(tmp_path) -> None:
    done, _ = compute("random", tmp_path, dataset="digits")
    assert 50 < done.metrics["linear"] <= 100
    assert done.curve == []


def test_a_result_says_which_precision_it_was_trained_in(few, tmp_path, monkeypatch) -> None:
    settings = {**PLAN.protocol.settings, "precision": "auto"}
    plan = PLAN.model_copy(update={"protocol": PLAN.protocol.model_copy(update={"settings": settings})})
    for supported, precision in ((True, "bf16-mixed"), (False, "32-true")):
        monkeypatch.setattr("contrastlab.train.schedule._cpu_has_bf16", lambda answer=supported: answer)
        done, _ = compute("ir", tmp_path / precision, plan=plan)
        assert done.precision == precision
        assert done.settings["precision"] == "auto"


# -- tables


def test_a_table_of_grey_images_marks_the_rows_that_cannot_be(few, tmp_path) -> None:
    lines: list[str] = []
    shown = table(tmp_path, "digits", rows="ir,cmc", seeds=[0, 1], log=lines.append)
    assert sum("ring/cmc" in line and "] n/a" in line for line in lines) == 1
    assert {(r.method, r.seed) for r in results.find(tmp_path)} == {("ring/ir", 0), ("ring/ir", 1)}
    text = shown._repr_markdown_()
    assert "Not possible here: CMC" in text
    assert "grey" in text


def test_a_column_whose_data_are_missing_says_so_and_the_others_are_filled(few, tmp_path, monkeypatch) -> None:
    columns = {
        "shapes": papers.Column(data="shapes", metric="linear"),
        "cifar10": papers.Column(data="shapes", on="cifar10", metric="nn1"),
        "cifar100": papers.Column(data="shapes", on="cifar100", metric="linear"),
    }
    plan = PLAN.model_copy(update={"columns": columns})
    monkeypatch.setattr("contrastlab.tables.fill.read_plan", lambda paper, table: plan)
    made = table(tmp_path, rows="ir")
    assert isinstance(made, Reports)
    by_name = {r.name: {row.method: row for row in r.rows} for r in made.reports}
    assert by_name["shapes"]["ring/ir"].measured is not None
    assert by_name["cifar10"]["ring/ir"].measured is not None
    assert by_name["cifar100"]["ring/ir"].status == "n/a: needs data: cifar100 is not at /nowhere"
    assert len(list((tmp_path / "encoders").glob("*/run.json"))) == 1
    transferred = [r for r in results.find(tmp_path) if r.on == "cifar10"]
    assert {r.dataset for r in transferred} == {"shapes"}
    assert all("+" in r.provenance.data_fingerprint for r in transferred)


def test_a_task_that_does_not_fit_the_modality_is_unavailable(few, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(tables.Job, "task", property(lambda self: _Deaf()))
    done, _ = compute("ir", tmp_path)
    assert isinstance(done, Unavailable)
    assert "hearing is a task for waveforms; shapes has images" in done.reason


# -- many cells at a time


def start(out: Path, *more: str) -> subprocess.Popen[str]:
    arguments = ["run", "ring/table1", "--dataset", "digits", "--profile", "smoke", "--out", str(out), *more]
    return subprocess.Popen(
        [sys.executable, "-m", "contrastlab", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"}, cwd=out.parent,
    )  # fmt: skip


def test_two_tables_side_by_side_share_their_runs(few, tmp_path) -> None:
    table(tmp_path / "alone", rows="ir,moco")
    children = []
    for number in range(2):
        if (child := os.fork()) == 0:
            lines: list[str] = []
            try:
                table(tmp_path / "shared", rows="ir,moco", log=lines.append)
            finally:
                (tmp_path / f"said{number}").write_text("\n".join(lines))
                os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    said = [(tmp_path / f"said{number}").read_text() for number in range(2)]
    assert sum(text.count("epoch 2/2") for text in said) == 2, said  # each run is trained by one of the two
    one, two = (
        [(r.method, r.metrics, r.correct) for r in results.find(tmp_path / each)] for each in ("alone", "shared")
    )
    assert one == two
    assert len(one) == 2


@pytest.mark.slow
@pytest.mark.nightly
def test_processes_compute_what_one_computes_and_two_tables_share_their_runs(tmp_path) -> None:
    alone = tmp_path / "alone"
    table(alone, "digits", rows="ir,moco", references_too=True)
    out = tmp_path / "shared"
    pair = [start(out, "--rows", "ir,moco", "--jobs", "2") for _ in range(2)]
    said = [process.communicate(timeout=300)[0] for process in pair]
    assert [process.returncode for process in pair] == [0, 0], said
    trained = [line for text in said for line in text.splitlines() if "epoch 2/2" in line]
    assert len(trained) == 3  # IR, MoCo and the supervised reference: each by one of the two
    one, two = ({(r.method, r.task): r for r in results.find(root)} for root in (alone, out))
    assert one.keys() == two.keys()
    assert len(one) == 4
    for key, r in one.items():
        assert (r.metrics, r.correct) == (two[key].metrics, two[key].correct)


@pytest.mark.nightly
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_table_that_is_asked_to_stop_leaves_checkpoints_and_no_process(sign, tmp_path) -> None:
    longer = ("--set", "epochs=5", "--set", "train_images=1000")
    process = start(tmp_path / "out", "--rows", "moco,mocoring", "--jobs", "2", "--no-references", *longer)
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if " epoch " in line:
            break
    process.send_signal(sign)
    # workers and their server have the same output: it ends with the last of them
    text = "".join(lines) + process.communicate(timeout=120)[0]
    if sign == signal.SIGKILL:
        assert process.returncode == -sign
    elif "linear accuracy" not in text:  # on a very fast machine both may have ended before
        assert process.returncode == 130, text
        assert "run again to continue" in text
        assert "Traceback" not in text
    kept = {path.name for path in (tmp_path / "out").glob("encoders/*/*")}
    assert kept & {"checkpoint.safetensors", "run.json"}


@pytest.mark.nightly
def test_a_script_without_a_guard_is_told_of_it(tmp_path) -> None:
    script = tmp_path / "unguarded.py"
    script.write_text("""
from contrastlab import tables
tables.table("ring", 1, "digits", rows="ir,moco", profile="smoke", jobs=2, references_too=False, read_also=())
""")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, cwd=tmp_path)
    assert done.stderr.strip().splitlines()[-1].endswith("if __name__ == '__main__':; jobs=1 needs no worker")
    assert done.stdout.count("ring table 1") == 1  # the workers say nothing


def test_a_killed_process_leaves_no_lock(tmp_path) -> None:
    path, (read, write) = tmp_path / "x.lock", os.pipe()
    if (child := os.fork()) == 0:
        held = files.lock(path)
        os.write(write, b"1")
        time.sleep(60)
        os._exit(held is None)
    assert os.read(read, 1) == b"1"
    assert files.lock(path, wait=False) is None
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    held = files.lock(path, wait=False)
    assert held is not None
    held.release()


def test_a_cell_that_another_process_computes_comes_last(few, tmp_path, monkeypatch) -> None:
    chosen = expand(PLAN, "shapes", ["ring/ir", "ours/random"], [0], "smoke")
    order = []

    def watch(job, where, *, wait=True, log):
        if job.method == "ring/ir" and not wait:
            raise BusyError
        order.append((job.method, wait))
        return tables.run(job, where, wait=wait, log=log)

    monkeypatch.setattr(pool, "run", watch)
    done = pool.run_all(chosen, here(tmp_path), workers=1, log=quiet)
    assert order == [("ours/random", False), ("ring/ir", True)]
    assert set(done) == set(chosen)


def test_jobs_are_one_a_core_or_a_device_and_no_more_than_cells(monkeypatch) -> None:
    monkeypatch.delenv("CONTRASTLAB_JOBS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(6)))
    assert pool.workers("auto", tables.Execution(), 50) == 6
    assert pool.workers("auto", tables.Execution(), 4) == 4
    assert pool.workers(3, tables.Execution(), 50) == 3
    assert pool.workers("auto", tables.Execution(devices=2), 50) == 1
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert pool.workers("auto", tables.Execution(), 50) == 2
    assert pool.workers("auto", tables.Execution(accelerator="cpu"), 50) == 6
    monkeypatch.setenv("CONTRASTLAB_JOBS", "1")
    assert pool.workers("auto", tables.Execution(), 50) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["debug", pytest.param("local", marks=pytest.mark.nightly)])
def test_a_cluster_takes_a_job_for_each_missing_cell(name, tmp_path) -> None:
    pytest.importorskip("submitit")
    lines: list[str] = []
    options = {"rows": "ir", "log": lines.append, "jobs": "auto"}
    made = table(tmp_path / "out", "digits", cluster=tables.Cluster(name, {"timeout_min": 5}), **options)
    assert any("1 jobs handed" in line for line in lines)
    assert next(row for row in made.rows if row.method == "ring/ir").measured is not None
    table(tmp_path / "out", "digits", cluster=tables.Cluster(name, wait=False), **options)
    assert sum("jobs handed" in line for line in lines) == 1  # nothing was missing


def test_a_job_has_cores_for_its_decoders_and_one_that_is_cut_off_is_queued_again(few, tmp_path, monkeypatch) -> None:
    submitit = pytest.importorskip("submitit")
    asked: dict[str, Any] = {}

    class Executor:
        def __init__(self, **given: Any) -> None: ...

        def update_parameters(self, **given: Any) -> None:
            asked.update(given)

        def submit(self, function: Any, *arguments: Any) -> None:
            asked.update(function=function, arguments=arguments)

    monkeypatch.setattr(submitit, "AutoExecutor", Executor)
    where = tables.Execution(out_dir=tmp_path, accelerator="cpu", speed=Speed(workers=5))
    chosen = expand(PLAN, "shapes", ["ring/ir"], [0], "smoke")
    for options, cores in (({}, 6), ({"cpus_per_task": 3}, 3)):
        cluster = tables.Cluster("slurm", {"timeout_min": 60, **options}, wait=False)
        pool.run_all(chosen, where, workers=1, cluster=cluster, log=quiet)
        assert asked["cpus_per_task"] == cores
        assert asked["timeout_min"] == 60
    again = asked["function"].checkpoint(*asked["arguments"])
    assert (again.function, again.args) == (asked["function"], asked["arguments"])
    assert again.args == (chosen, where)


def test_a_run_of_one_s_own_needs_no_fabric_and_embeds_pictures_of_its_kind_only(tmp_path) -> None:
    own = data.load("shapes", n_train=80, n_test=20)
    how = PLAN.settings("shapes", "ring/ir", "smoke").override(epochs=1)
    made = tables.Run(methods.get("ring/ir").override(how.overrides), how, own, root=str(tmp_path))
    assert len(made.train(log=quiet).history) == 1
    pictures = own.pretrain.items[:3]
    assert tables.embed(made.folder, pictures).shape == (3, how.dim)
    with pytest.raises(NotApplicableError, match="encoders of.*3.*channels; pictures of 1 have"):
        tables.embed(made.folder, pictures[:, :1])
    files = [tmp_path / "pictures" / f"{k}.png" for k in range(3)]
    files[0].parent.mkdir()
    opened = [Image.fromarray(picture.permute(1, 2, 0).numpy()) for picture in pictures]
    for path, picture in zip(files, opened, strict=True):
        picture.save(path)
    expected = tables.embed(made.folder, pictures)
    for same in (files, [str(path) for path in files], str(files[0].parent), opened):
        assert torch.equal(tables.embed(made.folder, same), expected)
    torch.testing.assert_close(tables.embed(made.folder, files[0]), expected[:1])
    for path, name in zip(files, ("train/a/1.png", "test/a/2.png", "3.png"), strict=True):
        (tmp_path / "laid out" / name).parent.mkdir(parents=True, exist_ok=True)
        path.rename(tmp_path / "laid out" / name)
    assert data.pictures_in(tmp_path / "laid out") == ("3.png", "test/a/2.png", "train/a/1.png")
    assert torch.equal(tables.embed(made.folder, tmp_path / "laid out"), expected.flip(0))
    for other in (TensorDataset(pictures), [], [1]):
        with pytest.raises(ArgumentError, match="^images='.*expected a uint8 tensor .*, a folder, paths or Pillow"):
            tables.embed(made.folder, other)
        with pytest.raises(ArgumentError, match="^items='.*expected a set of contrastlab.data, such as ImageSet"):
            pretrain(methods.get("ring/ir"), how, other)


def test_pictures_fewer_than_a_batch_are_said_before_anything_runs(tmp_path) -> None:
    where = tables.Execution(out_dir=tmp_path, accelerator="cpu")
    splits = data.load("shapes", n_train=40, n_test=20)
    (job,) = expand(PLAN, "shapes", ["ring/ir"], [0], "smoke")
    with pytest.raises(NotApplicableError, match="profile smoke trains with batches of 64, and shapes has 40 images"):
        job.check((splits, splits))
    (random,) = expand(PLAN, "shapes", ["ours/random"], [0], "smoke")
    random.check((splits, splits))  # trains on none
    assert not any(where.out_dir.iterdir())


def test_the_server_of_workers_never_hears_an_interrupt(monkeypatch) -> None:
    seen: list[Any] = []
    before = signal.getsignal(signal.SIGINT)

    class Reached(Exception): ...

    def begun() -> None:
        seen.append(signal.getsignal(signal.SIGINT))
        raise Reached

    monkeypatch.setattr(pool.forkserver, "ensure_running", begun)
    with pytest.raises(Reached):
        pool._local([[], []], tables.Execution(accelerator="cpu"), 2, lambda line: None)
    assert seen == [signal.SIG_IGN]
    assert signal.getsignal(signal.SIGINT) is before


def test_a_full_disk_is_named_and_the_run_goes_on_once_there_is_room(few, tmp_path, monkeypatch) -> None:
    sync, full = os.fsync, True

    def fail(number: int) -> None:
        if full:
            raise OSError(28, "No space left on device")
        sync(number)

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(errors.StorageError, match="No space left on device"):
        compute("ir", tmp_path)
    assert not [path for path in tmp_path.rglob("*") if path.suffix in (".json", ".safetensors", ".tmp")]
    full = False
    done, _ = compute("ir", tmp_path)
    assert 0 <= done.metrics["linear"] <= 100


@dataclasses.dataclass(frozen=True)
class _Deaf(Task):
    name, modalities, metrics = "hearing", ("waveform",), ()


def test_devices_may_be_a_text_and_those_that_cannot_be_had_are_named(monkeypatch) -> None:
    assert [tables.parse_devices(text) for text in ("2", 2, "-1", "auto", "1.5")] == [2, 2, -1, "auto", "1.5"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    where = tables.Execution(accelerator="cuda", devices=3)
    with pytest.raises(errors.DeviceError, match="devices=3.*cannot be had here: You requested gpu"):
        where.fabric()
    monkeypatch.setattr("lightning_fabric.connector._IS_INTERACTIVE", True)
    assert tables.Execution(accelerator="cpu").fabric().world_size == 1
    with pytest.raises(
        errors.DeviceError, match="^devices=2: several devices for one cell need processes of their own"
    ):
        tables.Execution(accelerator="cpu", devices=2).fabric()


# -- what users bring


def test_a_recipe_of_one_s_own_is_a_row_of_a_table(few, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(methods, "_RECIPES", dict(methods._RECIPES))  # other tests count what is known
    mine = replace(methods.get("ring/mocoring"), name="mine/narrow", negatives=negatives.Ring(inner=1, outer=5))
    made = table(tmp_path, rows=["moco", mine])
    stored = {result.method: result for result in results.find(tmp_path)}
    assert set(stored) == {"ring/moco", "mine/narrow"}
    assert stored["mine/narrow"].recipe["negatives"]["outer"] == 5
    assert [row.label for row in made.rows if row.measured] == ["MoCo", "mine/narrow"]  # whose recipe is MoCoRing's
    assert stored["mine/narrow"].settings == stored["ring/moco"].settings
    assert f"{stored['mine/narrow'].metrics['linear']:.2f}" in repr(made)
    del methods._RECIPES["mine/narrow"]  # as in another process, which shows what is stored
    shown = ["show", "ring/table1", "--dataset", "shapes", "--profile", "smoke", "--results", str(tmp_path)]
    assert command.main(shown) == 0
    number = f"{stored['mine/narrow'].metrics['linear']:.2f}"
    said = f"Also stored, by a recipe that is not registered here: mine/narrow, shapes: linear {number}"
    assert said in capsys.readouterr().out
    with pytest.raises(UnknownNameError):
        papers.plan("ring", 1).resolve("mine/narrow")  # the plan itself has the printed rows only
    assert methods.add(methods.get("ring/moco")).name == "ring/moco"
    changed = replace(mine, temperature=0.2)
    assert methods.add(changed) is methods.get("mine/narrow")


@pytest.mark.parametrize("method", ["ring/ir", "ring/cmc"])
def test_own_pictures_are_embedded_as_the_run_saw_its_test_pictures(method, few, tmp_path) -> None:
    result, _ = compute(method, tmp_path)
    assert isinstance(result, results.Result)
    (folder,) = (path for path, _ in runs([tmp_path]))
    splits = data.load("shapes")
    settings = PLAN.settings("shapes", method, "smoke")
    view = modality(splits.test).augmentation(settings)
    for kind in ("embedding", "pooled"):
        got = tables.embed(folder, splits.test.images, kind=kind)
        nets = encoders.load(folder)
        expected, _ = tasks.encode(nets, methods.get(method).views, view, splits.test, kind=kind)
        assert torch.equal(got, expected)
        assert not torch.allclose(got, tables.embed(folder, splits.test.images // 2, kind=kind), atol=1e-3)


# -- notebooks


def test_a_notebook_runs_its_table_and_checks_it(few, tmp_path) -> None:
    given = {"dataset": "shapes", "rows": "ir", "profile": "smoke", "out_dir": str(tmp_path), "jobs": "1"}
    given |= {"In": [], "_i": "x", "tables": tables}  # what a notebook has beside its parameters
    nb = notebook.open("ring", 1, given)
    made = nb.run(accelerator="cpu", log=quiet)
    assert {row.method for row in made.rows if row.measured} == {"ring/ir", "ours/random", "ours/supervised"}
    nb.check()
    assert len(nb.results()) == 3
    assert "IRing" in nb.claim._repr_html_()
    assert nb.plan().claim in repr(nb.claim)


def test_the_catalogue_is_listed(capsys) -> None:
    assert command.main(["list"]) == 0
    _, *lines = capsys.readouterr().out.splitlines()  # below the heading
    assert [line.split()[0] for line in lines if line[0] != " "] == [entry.name for entry in papers.catalogue()]
    assert any(line.startswith("ring/table1 ") and " repro_table1 " in line for line in lines)


@pytest.mark.parametrize(
    ("paper", "table", "dataset"), [("cmc", "4", "rooms"), ("ring", "3", "shapes"), ("vince", "1", "digits")]
)
def test_a_cell_of_any_column_reaches_a_worker(paper, table, dataset) -> None:
    plan = papers.plan(paper, table)
    for name in plan.select(dataset):
        (job,) = expand(plan, dataset, [next(iter(plan.rows))], [0], "smoke", name)
        assert pickle.loads(pickle.dumps(job)) == job


def test_a_run_starts_from_the_encoders_of_another_which_is_trained_once(tmp_path: Path, few, monkeypatch) -> None:
    settings, splits = job_of("moco").settings.override(epochs=1), data.load("shapes")
    started = settings.override(start={"method": "ring/moco", "epochs": 2})
    recipes = [methods.get(name).override(settings.overrides) for name in ("ring/moco", "ring/mocoring")]
    every, ring = (tables.Run(recipe, started, splits, 3, tmp_path) for recipe in recipes)
    first = every.parent
    assert first is not None
    assert first.parent is None
    assert first.settings == settings.override(epochs=2)
    assert ring.parent == first
    assert len({first.hash, every.hash, ring.hash}) == 3
    assert replace(every, settings=started.override(start={"epochs": 3})).hash != every.hash
    starts, honest = [], runs_module.pretrain

    def watched(*given, start, **options):
        starts.append(start)
        return honest(*given, start=start, **options)

    monkeypatch.setattr(runs_module, "pretrain", watched)
    for one in (every, ring):
        one.train(log=quiet)
    assert [start is None for start in starts] == [True, False, False]  # the first is trained once
    assert len(first.record()["history"]) == 2
    assert all(equal(start, first.encoders()) for start in starts[1:])
    # at a rate of nothing, weights end where they began
    slow = honest(recipes[1], settings.override(lr=1e-12), splits.pretrain, start=first.encoders(), seed=4, log=quiet)
    began = dict(first.encoders().named_parameters())
    for name, weight in slow.encoders.named_parameters():
        torch.testing.assert_close(weight, began[name], rtol=0, atol=1e-6)
