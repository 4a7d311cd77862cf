"""A table: its missing cells run, on as many cores, devices or machines as there are, and its report."""

from __future__ import annotations

import os
from collections import defaultdict
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
    how = _execution(dataset, execution)
    names, registered = _registered(rows)
    if registered and cluster is not None:
        raise reject("cluster", cluster.name, f"None with a recipe of your own ({', '.join(registered)})")
    plan = read_plan(paper, number).with_rows(registered).with_precision(precision)
    base = choose_profile(profile, plan.profiles)
    plan = plan.with_settings(own_settings(base, settings))
    stored_profile = base if plan.own is None else OWN
    methods_of_rows = plan.resolve_all(names)
    if references_too and plan.references:
        methods_of_rows = _without_repeats([*methods_of_rows, *references(methods_of_rows, base)])
    every = expand(plan, dataset, methods_of_rows, parse_seeds(seeds), stored_profile, columns)
    workers = 1 if registered else pool.workers(jobs, how, len(every))
    answers, missing = look_up(every, how, log)
    if plan.own is not None:
        check_changes(every, plan.own.changes)
        check_encoders(missing, how)
    announce(plan, dataset, every, missing, profile, how, workers, log)
    answers |= pool.run_all(missing, how, workers=workers, cluster=cluster, log=log)
    return _reports(plan, every, answers, dataset)


def _reports(
    plan: TablePlan, every: Sequence[Job], answers: Mapping[Job, Answer], dataset: str
) -> Report | report.Reports:
    """A report of each column that has jobs."""
    profile = every[0].profile
    reports = []
    for column in _without_repeats(job.column for job in every):
        of_column = [answers[job] for job in every if job.column == column and job in answers]
        reports.append(report.table(plan, of_column, dataset, profile, column=column))
    if len(reports) == 1:
        return reports[0]
    return report.Reports(tuple(reports))


def _without_repeats(names: Iterable[str]) -> tuple[str, ...]:
    """Each name once, where it came first."""
    return tuple(dict.fromkeys(names))


def _execution(dataset: str, options: Mapping[str, Any]) -> Execution:
    """How a table is run, from the further arguments of :func:`table`."""
    for name in sorted(options):
        check_name("argument of table", name, [each.name for each in fields(Execution)])
    how = Execution(**options)
    own_data = not how.skip_unreadable or ":" in dataset
    check(own_data, "skip_unreadable", True, f"False with {dataset}: True is for folder:<path> and the like")
    return how


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
    if isinstance(rows, Recipe):
        rows = [rows]
    names = []
    registered = []
    for row in rows:
        if isinstance(row, Recipe):
            recipe = methods.add(row)
            registered.append(recipe.name)
            names.append(recipe.name)
        else:
            names.append(row)
    return names, registered


def look_up(every: Sequence[Job], execution: Execution, log: Log) -> tuple[dict[Job, Answer], list[Job]]:
    """What is stored or cannot be, and the jobs that are left to run."""
    answers: dict[Job, Answer] = {}
    concerned: defaultdict[str, list[str]] = defaultdict(list)  # methods or data, by the reason why there is no number
    for on in _without_repeats(job.on for job in every):
        jobs = [job for job in every if job.on == on]
        try:
            splits = jobs[0].load(execution)
        except NotApplicableError as error:
            reason = str(error)
            answers |= {job: Unavailable(job.method, reason) for job in jobs}
            concerned[f"n/a: {reason}"] += [job.method for job in jobs]
            continue
        except (MissingDataError, MissingExtraError) as error:
            execution.load(jobs[0].data)  # without data to pre-train on, nothing can be run
            reason = _what_is_needed(error, execution)
            answers |= {job: Unavailable(job.method, reason) for job in jobs}
            concerned[reason].append(on)
            continue
        for job in jobs:
            refused = refusal(job, splits)
            if refused is not None:
                answers[job] = refused
                concerned[f"n/a: {refused.reason}"].append(job.method)
                continue
            result = stored(job, execution, splits)
            if result is not None:
                answers[job] = with_metric(job, result)
    for reason, names in concerned.items():
        log(f"[{', '.join(_without_repeats(names))}] {reason}")
    return answers, [job for job in every if job not in answers]


def _what_is_needed(error: MissingDataError | MissingExtraError, execution: Execution) -> str:
    """What is missing, without the folders of this machine: notebooks and reports are passed on."""
    kind = "data" if isinstance(error, MissingDataError) else "a package"
    root = str(data.data_root(execution.data_root))
    return f"needs {kind}: {error}".replace(root, "CONTRASTLAB_DATA")


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
