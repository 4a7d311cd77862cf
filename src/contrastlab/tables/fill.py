"""A table: its missing cells run, on as many cores, devices or machines as there are, and its report."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import torch

from contrastlab import data, methods
from contrastlab.pictures.domain import modality
from contrastlab.recipe import Recipe
from contrastlab.support.errors import (
    MissingDataError,
    MissingExtraError,
    NotApplicableError,
    check,
    check_name,
    reject,
)
from contrastlab.tables import pool, report
from contrastlab.tables.execution import Execution, say
from contrastlab.tables.job import Answer, Job, expand, refusal, stored, with_metric
from contrastlab.tables.own import Given, own_settings
from contrastlab.tables.plan import REFERENCES, TablePlan
from contrastlab.tables.plan import plan as read_plan
from contrastlab.tables.profiles import OWN, PROFILE_VARIABLE, choose_profile, is_paper
from contrastlab.tables.published import parse_seeds
from contrastlab.tables.report import Report, Unavailable
from contrastlab.tables.results import digest
from contrastlab.train.loop import Log
from contrastlab.views import Split


def references(names: Iterable[str], profile: str) -> list[str]:
    """The reference rows that rows ask for: the parts of a colour space see more than one, and have their own floor."""
    random, random_lab, supervised = REFERENCES
    wanted = [random]
    if any(isinstance(methods.get(name).views, Split) for name in names):
        wanted.append(random_lab)
    if not is_paper(profile):
        wanted.append(supervised)
    return wanted


def table(
    paper: str,
    number: int | str,
    dataset: str,
    *,
    rows: str | Recipe | Iterable[str | Recipe] = "all",
    columns: str = "all",
    profile: str = "auto",
    settings: Given = (),
    precision: str | None = None,
    seeds: int | str | Iterable[int] = 0,
    references_too: bool = True,
    jobs: int | str = "auto",
    cluster: pool.Cluster | None = None,
    log: Log = say,
    **execution: Any,
) -> Report | report.Reports:
    """Run what is missing of a table and give it published beside measured.

    Args:
        paper: short name, such as ``ring``.
        number: of the table.
        dataset: name in :func:`contrastlab.data.names`, or ``folder:<path>``, ``parquet:<path>``.
        rows: ``"all"``, ``"ir,iring"``, a recipe of your own, or a list of such. A recipe of your own has the settings
            of its kind of keys and views, and is computed in this process.
        columns: ``"all"``, or names of columns, where the data set fills several.
        profile: ``auto``, ``smoke``, ``first``, ``laptop``, ``tuned``, ``regime``, ``fair``, ``pilot``, ``gpu``,
            ``paper-bf16`` or ``paper``.
        settings: of your own, which win over the profile's: ``{"arch": "timm:resnet18", "epochs": 50}``, also fields of
            the rows' recipes, ``{"negatives.k": 512}``. Their results carry the profile ``own``.
        precision: of the encoders, in place of the profile's: ``32-true`` (on a GPU convolutions are TF32),
            ``bf16-mixed``, or ``auto``, which is bf16-mixed where the device has such instructions.
        seeds: ``0``, ``"0,1"`` or a list.
        references_too: run the random and (small profiles) the supervised reference rows, too.
        jobs: cells at a time, in processes of one thread each; ``auto`` is one a core, or a device where there are
            several. The environment variable ``CONTRASTLAB_JOBS`` says otherwise what ``auto`` is.
        cluster: hands cells to a cluster instead.
        log: takes lines of progress.
        execution: fields of :class:`contrastlab.tables.Execution` (``out_dir``, ``devices``, ``max_minutes``, …).
    """
    pool.refuse_in_worker()
    where = _execution(dataset, execution)
    names, registered = _registered(rows)
    if registered and cluster is not None:
        raise reject("cluster", cluster.name, f"None with a recipe of your own ({', '.join(registered)})")
    plan = read_plan(paper, number).with_rows(registered).with_precision(precision)
    base = choose_profile(profile, plan.profiles)
    plan = plan.with_settings(own_settings(base, settings))
    chosen = base if plan.own is None else OWN
    full_names = plan.resolve_all(names)
    if references_too and plan.references:
        full_names = tuple(dict.fromkeys((*full_names, *references(full_names, base))))
    every = expand(plan, dataset, full_names, parse_seeds(seeds), chosen, columns)
    workers = 1 if registered else pool.workers(jobs, where, len(every))
    answers, missing = look_up(every, where, log)
    if plan.own is not None:
        check_changes(every, plan.own.changes)
        check_encoders(missing, where)
    announce(plan, dataset, every, missing, profile, where, workers, log)
    answers |= pool.run_all(missing, where, workers=workers, cluster=cluster, log=log)
    reports = []
    for name in dict.fromkeys(job.column for job in every):
        of_column = [answers[job] for job in every if job.column == name and job in answers]
        reports.append(report.table(plan, of_column, dataset, chosen, column=name))
    return reports[0] if len(reports) == 1 else report.Reports(tuple(reports))


def _execution(dataset: str, options: Mapping[str, Any]) -> Execution:
    """How a table is run, from the further arguments of :func:`table`."""
    for name in sorted(options):
        check_name("argument of table", name, [each.name for each in fields(Execution)])
    where = Execution(**options)
    own_data = not where.skip_unreadable or ":" in dataset
    check(own_data, "skip_unreadable", True, f"False with {dataset}: True is for folder:<path> and the like")
    return where


def check_changes(every: Iterable[Job], changes: Mapping[str, Any]) -> None:
    """Refuse a change of a part's field that no recipe among the jobs has."""
    recipes = {job.method: job.recipe for job in every}
    for path, value in changes.get("overrides", {}).items():
        has_it = any(recipe.has(path) for recipe in recipes.values())
        check(has_it, path, value, f"a field of a part of {', '.join(recipes)}")


def check_encoders(missing: Iterable[Job], execution: Execution) -> None:
    """Refuse settings that no views or encoders can be made of, before anything is computed."""
    seen = set()
    for job in missing:
        source = job.load(execution)[0].pretrain
        views = job.effective_recipe.views
        same = digest({"channels": views.channels(source.channels), "settings": job.settings.identity(False)})
        if same in seen:
            continue
        seen.add(same)
        kind = modality(source)
        kind.augmentation(job.settings)
        with torch.random.fork_rng(devices=[]):
            kind.encoders(views, source, job.settings)


def _registered(rows: str | Recipe | Iterable[str | Recipe]) -> tuple[str | list[str], list[str]]:
    """Names of rows, and of those among them that are recipes of the caller's own, which are registered here."""
    if isinstance(rows, str):
        return rows, []
    names, registered = [], []
    for row in [rows] if isinstance(rows, Recipe) else rows:
        if isinstance(row, Recipe):
            registered.append(methods.add(row).name)
        names.append(row.name if isinstance(row, Recipe) else row)
    return names, registered


def look_up(every: Sequence[Job], execution: Execution, log: Log) -> tuple[dict[Job, Answer], list[Job]]:
    """What is stored or cannot be, and the jobs that are left to run."""
    known: dict[Job, Answer] = {}
    reasons: dict[str, list[str]] = {}  # why something cannot be, and of what
    for on in dict.fromkeys(job.on for job in every):
        mine = [job for job in every if job.on == on]
        try:
            splits = mine[0].load(execution)
        except NotApplicableError as reason:
            known |= {job: Unavailable(job.method, str(reason)) for job in mine}
            reasons.setdefault(f"n/a: {reason}", []).extend(job.method for job in mine)
            continue
        except (MissingDataError, MissingExtraError) as error:
            execution.load(mine[0].data)  # without data to pre-train on, nothing can be run
            lacks = "data" if isinstance(error, MissingDataError) else "a package"
            # Notebooks and reports are passed on; the folders of the machine that made them are not.
            why = f"needs {lacks}: {error}".replace(str(data.data_root(execution.data_root)), "CONTRASTLAB_DATA")
            known |= {job: Unavailable(job.method, why) for job in mine}
            reasons.setdefault(why, []).append(on)
            continue
        for job in mine:
            refused = refusal(job, splits)
            if refused is not None:
                known[job] = refused
                reasons.setdefault(f"n/a: {refused.reason}", []).append(job.method)
                continue
            result = stored(job, execution, splits)
            if result is not None:
                known[job] = with_metric(job, result)
    for why, names in reasons.items():  # each said once
        log(f"[{', '.join(dict.fromkeys(names))}] {why}")
    return known, [job for job in every if job not in known]


def announce(
    plan: TablePlan,
    dataset: str,
    every: Sequence[Job],
    missing: Sequence[Job],
    wanted: str,
    execution: Execution,
    workers: int,
    log: Log,
) -> None:
    """Say what will be run, on what, what is stored already, and how to choose otherwise."""
    profile = every[0].profile
    seeds = dict.fromkeys(str(job.seed) for job in every)
    why = f" (auto: {_reason_of_auto()})" if wanted == "auto" else ""
    log(f"{plan.paper} {plan.heading.lower()}, {dataset}, profile {profile}{why}, seeds {', '.join(seeds)}")
    splits = execution.load(every[0].data)
    log(f"data: {splits.note or splits.name}")
    at_once = f", {workers} at a time" if workers > 1 and len(missing) > 1 else ""
    log(f"{len(every) - len(missing)} of {len(every)} cells need no run; {len(missing)} to run{at_once}")
    others = [p for p in plan.profiles if p != profile]
    how = "--profile NAME, or -p profile NAME with papermill"
    log(f"other profiles: {', '.join(others)} ({how}); stop with Ctrl-C and run again to continue")


def _reason_of_auto() -> str:
    """Why the profile ``auto`` is what it is."""
    if os.environ.get(PROFILE_VARIABLE):
        return f"{PROFILE_VARIABLE} says so"
    return "a GPU here" if torch.cuda.is_available() else "no GPU here"
