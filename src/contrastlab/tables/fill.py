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
from contrastlab.pictures.items import Splits
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
from contrastlab.tables.plan import RANDOM, RANDOM_LAB, SUPERVISED, TablePlan
from contrastlab.tables.plan import plan as read_plan
from contrastlab.tables.profiles import OWN, PROFILE_VARIABLE, choose_profile, is_paper
from contrastlab.tables.published import parse_seeds
from contrastlab.tables.report import Report, Unavailable
from contrastlab.tables.results import digest
from contrastlab.train.loop import Log
from contrastlab.views import Split


def references(names: Iterable[str], profile: str) -> list[str]:
    """The reference rows that rows ask for: the parts of a colour space see more than one, and have their own floor."""
    references = [RANDOM]
    if any(isinstance(methods.get(name).views, Split) for name in names):
        references.append(RANDOM_LAB)
    if not is_paper(profile):
        references.append(SUPERVISED)
    return references


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
    """Run what is missing of a table, and return its published numbers beside the measured ones.

    Args:
        paper: short name, such as ``ring``.
        number: of the table.
        dataset: name in :func:`contrastlab.data.names`, or ``folder:<path>``, ``parquet:<path>``.
        rows: ``"all"``, ``"ir,iring"``, a recipe of your own, or a list of such. A recipe of your own has the settings
            of its kind of keys and views, and is computed in this process.
        columns: ``"all"``, or names of columns, where the data set fills several.
        profile: ``auto``, ``smoke``, ``first``, ``laptop``, ``tuned``, ``regime``, ``features``, ``fair``, ``pilot``,
            ``gpu``, ``paper-bf16`` or ``paper``.
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
    options = _execution(dataset, execution)
    names, own_recipes = _register(rows)
    _check_cluster(cluster, own_recipes)
    plan = read_plan(paper, number).with_rows(own_recipes).with_precision(precision)
    named_profile = choose_profile(profile, plan.profiles)
    plan = plan.with_settings(own_settings(named_profile, settings))
    every_row = _rows(plan, names, named_profile, references_too)
    profile_of_results = named_profile if plan.own is None else OWN
    jobs_of_table = expand(plan, dataset, every_row, parse_seeds(seeds), profile_of_results, columns)
    workers = 1 if own_recipes else pool.workers(jobs, options, len(jobs_of_table))
    answers, missing = look_up(jobs_of_table, options, log)
    _check_own_settings(plan, jobs_of_table, missing, options)
    log(_heading(plan, dataset, jobs_of_table, chosen_here=profile == "auto"))
    log(_data_in_words(jobs_of_table[0], options))
    log(_cells_in_words(len(jobs_of_table), len(missing), workers))
    log(_other_profiles(plan, profile_of_results))
    answers |= pool.run_all(missing, options, workers=workers, cluster=cluster, log=log)
    return _reports(plan, jobs_of_table, answers, dataset)


def _rows(plan: TablePlan, names: str | list[str], profile: str, references_too: bool) -> tuple[str, ...]:
    """Full names of the rows to fill, and behind them of the reference rows that they ask for."""
    rows = plan.resolve_all(names)
    if references_too and plan.references:
        rows = _without_repeats([*rows, *references(rows, profile)])
    return rows


def _reports(
    plan: TablePlan, every: Sequence[Job], answers: Mapping[Job, Answer], dataset: str
) -> Report | report.Reports:
    """A report of each column that has jobs."""
    profile = every[0].profile
    answers_by_column: dict[str, list[Answer]] = {}
    for job in every:
        answers_of_column = answers_by_column.setdefault(job.column, [])
        if job in answers:
            answers_of_column.append(answers[job])
    reports = []
    for column, answers_of_column in answers_by_column.items():
        reports.append(report.table(plan, answers_of_column, dataset, profile, column=column))
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
    execution = Execution(**options)
    own_data = not execution.skip_unreadable or ":" in dataset
    check(own_data, "skip_unreadable", True, f"False with {dataset}: True is for folder:<path> and the like")
    return execution


def _check_cluster(cluster: pool.Cluster | None, own_recipes: Sequence[str]) -> None:
    """Refuse a cluster for recipes of the caller's own: they are known in this process alone."""
    if own_recipes and cluster is not None:
        raise reject("cluster", cluster.name, f"None with a recipe of your own ({', '.join(own_recipes)})")


def _check_own_settings(plan: TablePlan, every: Sequence[Job], missing: Sequence[Job], execution: Execution) -> None:
    """Refuse settings of the caller's own that no recipe has, or that no encoder can be made of."""
    if plan.own is not None:
        check_changes(every, plan.own.changes)
        check_encoders(missing, execution)


def check_changes(every: Iterable[Job], changes: Mapping[str, Any]) -> None:
    """Refuse a change of a part's field that no recipe among the jobs has."""
    recipes = {job.method: job.recipe for job in every}
    for path, value in changes.get("overrides", {}).items():
        has_it = any(recipe.has(path) for recipe in recipes.values())
        check(has_it, path, value, f"a field of a part of {', '.join(recipes)}")


def check_encoders(missing: Iterable[Job], execution: Execution) -> None:
    """Refuse settings that no views or encoders can be made of, before anything is computed."""
    checked = set()
    for job in missing:
        source = job.load(execution)[0].pretrain
        views = job.effective_recipe.views
        decisive = {"channels": views.channels(source.channels), "settings": job.settings.identity(False)}
        if digest(decisive) in checked:
            continue
        checked.add(digest(decisive))
        kind = modality(source)
        kind.augmentation(job.settings)
        with torch.random.fork_rng(devices=[]):
            kind.encoders(views, source, job.settings)


def _register(rows: str | Recipe | Iterable[str | Recipe]) -> tuple[str | list[str], list[str]]:
    """Names of rows, and of those among them that are recipes of the caller's own, which are registered here."""
    if isinstance(rows, str):
        return rows, []
    if isinstance(rows, Recipe):
        rows = [rows]
    names = []
    own_recipes = []
    for row in rows:
        if isinstance(row, Recipe):
            recipe = methods.add(row)
            own_recipes.append(recipe.name)
            names.append(recipe.name)
        else:
            names.append(row)
    return names, own_recipes


def look_up(every: Sequence[Job], execution: Execution, log: Log) -> tuple[dict[Job, Answer], list[Job]]:
    """What is stored or cannot be, and the jobs that are left to run."""
    answers: dict[Job, Answer] = {}
    names_by_reason: defaultdict[str, list[str]] = defaultdict(list)  # methods or data, by why there is no number
    for scored_on, jobs in _by_scored_data(every).items():
        try:
            splits = jobs[0].load(execution)
        except NotApplicableError as error:
            answers |= _unavailable(jobs, str(error))
            names_by_reason[f"n/a: {error}"] += [job.method for job in jobs]
        except (MissingDataError, MissingExtraError) as error:
            execution.load(jobs[0].data)  # without data to pre-train on, nothing can be run
            reason = _what_is_needed(error, execution)
            answers |= _unavailable(jobs, reason)
            names_by_reason[reason].append(scored_on)
        else:
            answers |= _look_up_on(splits, jobs, execution, names_by_reason)
    for reason, names in names_by_reason.items():
        log(f"[{', '.join(_without_repeats(names))}] {reason}")
    return answers, [job for job in every if job not in answers]


def _by_scored_data(every: Iterable[Job]) -> dict[str, list[Job]]:
    """The jobs by the data that their task scores on."""
    groups: dict[str, list[Job]] = {}
    for job in every:
        groups.setdefault(job.on, []).append(job)
    return groups


def _unavailable(jobs: Iterable[Job], reason: str) -> dict[Job, Answer]:
    """The same reason as the answer of each job."""
    return {job: Unavailable(job.method, reason) for job in jobs}


def _look_up_on(
    splits: tuple[Splits, Splits], jobs: Iterable[Job], execution: Execution, names_by_reason: dict[str, list[str]]
) -> dict[Job, Answer]:
    """Refusals and stored results of jobs on data that are there; refused methods are added to ``names_by_reason``."""
    answers: dict[Job, Answer] = {}
    for job in jobs:
        refused = refusal(job, splits)
        if refused is not None:
            answers[job] = refused
            names_by_reason[f"n/a: {refused.reason}"].append(job.method)
            continue
        result = stored(job, execution, splits)
        if result is not None:
            answers[job] = with_metric(job, result)
    return answers


def _what_is_needed(error: MissingDataError | MissingExtraError, execution: Execution) -> str:
    """What is missing, without the folders of this machine: notebooks and reports are passed on."""
    kind = "data" if isinstance(error, MissingDataError) else "a package"
    root = str(data.data_root(execution.data_root))
    return f"needs {kind}: {error}".replace(root, "CONTRASTLAB_DATA")


def _heading(plan: TablePlan, dataset: str, jobs: Sequence[Job], *, chosen_here: bool) -> str:
    """What will be run: table, data, profile, and why it is that one where nobody chose it, and seeds."""
    profile = f"profile {jobs[0].profile}"
    if chosen_here:
        profile = f"{profile} (auto: {_reason_of_auto()})"
    seeds = ", ".join(_without_repeats(str(job.seed) for job in jobs))
    return f"{plan.paper} {plan.heading.lower()}, {dataset}, {profile}, seeds {seeds}"


def _data_in_words(job: Job, execution: Execution) -> str:
    """What encoders are trained on, as the data set's note has it."""
    splits = execution.load(job.data)
    return f"data: {splits.note or splits.name}"


def _cells_in_words(count: int, missing: int, workers: int) -> str:
    """How many cells are stored already, and how many are run at a time."""
    line = f"{count - missing} of {count} cells need no run; {missing} to run"
    if workers > 1 and missing > 1:
        line = f"{line}, {workers} at a time"
    return line


def _other_profiles(plan: TablePlan, profile: str) -> str:
    """How to choose another profile, and how to stop."""
    others = ", ".join(name for name in plan.profiles if name != profile)
    option = "--profile NAME, or -p profile NAME with papermill"
    return f"other profiles: {others} ({option}); stop with Ctrl-C and run again to continue"


def _reason_of_auto() -> str:
    """Why the profile ``auto`` is what it is."""
    if os.environ.get(PROFILE_VARIABLE):
        return f"{PROFILE_VARIABLE} says so"
    if torch.cuda.is_available():
        return "a GPU here"
    return "no GPU here"
