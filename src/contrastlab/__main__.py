"""Command line: ``python -m contrastlab run ring/table1 --dataset cifar10 --rows iring --profile paper --seeds 0``.

Help and a mistyped argument need no PyTorch, which takes seconds to import: each command imports what it uses.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from datetime import datetime
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

from contrastlab import __version__
from contrastlab.support import escape, terminal
from contrastlab.support.errors import ContrastLabError, NotApplicableError, reject

FAULT = 70
"""Exit status of a fault of this package, as BSD's sysexits have it; 2 is for what was asked of it."""


_LEAST_ADDRESSES = 6 * 2**30  # bytes that a process may map
_NO_ROOM = ("allocate memory", "bad_alloc", "failed to map segment")  # of PyTorch, the C++ library, the loader


class _Parser(argparse.ArgumentParser):
    """Says what is wrong on one line, as every other error is said; a part of an option's name is no option."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"contrastlab: {escape.line(message)}; {self.prog} --help says what is accepted\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="contrastlab", description="Reproduce the tables of the five papers.")
    parser.add_argument("--version", action="version", version=f"contrastlab {__version__}")
    parser.add_argument("--debug", action="store_true", help="show where an error comes from")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (action, options, help_) in _COMMANDS.items():
        command = commands.add_parser(name, help=help_)
        command.set_defaults(action=action)
        options(command)
    for point in entry_points(group="contrastlab.commands"):
        point.load()(commands)
    for command in commands.choices.values():  # before the command and after it
        command.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help="as before the command")
        command.set_defaults(refuse=command.error)
    return parser


def _data_root(command: argparse.ArgumentParser) -> None:
    command.add_argument("--data-root", help="folder of data sets; default CONTRASTLAB_DATA or the user's cache")


def _open_closed_outputs() -> None:
    """Give the process the outputs that its shell has closed; nobody reads them."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - for as long as the process


def _escape_what_no_terminal_has() -> None:
    """Let a terminal whose encoding has no λ show its number, where it would raise an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _warn_of_an_address_limit() -> None:
    """Say that PyTorch may abort without a word where a process may map little memory."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < _LEAST_ADDRESSES:
        given = f"ulimit -v={limit // 1024}: PyTorch maps more memory than it uses and may abort"
        print(f"contrastlab: {given}; at least {_LEAST_ADDRESSES // 1024} is enough", file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status is 0, 2 (cannot be done as asked), 130 (Ctrl-C) or :data:`FAULT`."""
    _open_closed_outputs()
    args, unrecognized = _parser().parse_known_args(arguments)
    if unrecognized:  # told by the command, whose help lists what it takes
        args.refuse(f"unrecognized arguments: {' '.join(unrecognized)}")
    _escape_what_no_terminal_has()
    # a job that is asked to end stops after the step in hand, as for Ctrl-C
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        args.action(args)
    except KeyboardInterrupt as stop:
        # The training loop says itself where it stopped and how to continue; of the commands only run can continue.
        interrupted = "interrupted; run again to continue" if args.command == "run" else "interrupted"
        print(f"contrastlab: {str(stop) or interrupted}", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of a list has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if args.command == "run":
            print("contrastlab: nobody reads the output any more; run again to continue", file=sys.stderr)
            return 2
    except Exception as error:
        if args.debug:
            raise
        status, words = _explain(error)
        print(f"contrastlab: {words}", file=sys.stderr)
        return status
    finally:
        if "contrastlab.tables.recipes" in sys.modules:  # so that the next list needs no PyTorch
            sys.modules["contrastlab.tables.recipes"].keep()
    return 0


def _explain(error: Exception) -> tuple[int, str]:
    """The exit status for an error, and its line."""
    line = escape.line(error)
    if isinstance(error, ContrastLabError | OSError):  # as of a file that may not be read
        return 2, line
    if "gloo" in line or type(error).__name__.startswith("Dist"):  # of torch.distributed
        return 2, f"another process of this run has ended ({line}); run again to continue"
    if _is_lack_of_memory(error, line):
        return 2, f"there is not enough memory ({line}); fewer --jobs and a smaller profile need less"
    kind = type(error).__name__
    what = escape.line(f"{kind}: {error}") if str(error) else kind
    fault = "This is a fault of contrastlab, not of what was asked; --debug shows where it comes from"
    return FAULT, f"{what}. {fault}, and 'contrastlab doctor' what a report of it needs"


def _is_lack_of_memory(error: Exception, line: str) -> bool:
    """Of Python, or of PyTorch, on a device or not."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return any(words in line for words in _NO_ROOM)


# list -----------------------------------------------------------------------------------------------------------------


def _list_options(command: argparse.ArgumentParser) -> None:
    terminal.add_forms(command, results=True)


def _list(args: argparse.Namespace) -> None:
    from contrastlab import papers
    from contrastlab.tables import report, results

    stored = results.headings(terminal.folders("results", args.results))
    records, rows = [], []
    for entry in papers.catalogue():
        title = ""
        if (entry.paper, entry.table) in papers.plans():
            title = papers.plan(entry.paper, entry.table).title
        evidence = report.evidence(entry, stored)
        for each in evidence or (None,):
            of_data = {name: getattr(each, name, None) for name in ("dataset", "profile", "rows", "of", "seeds")}
            records.append({"table": entry.name, "title": title, "notebook": entry.notebook, **of_data})
        rows.append(
            {
                "table": entry.name,
                "title": title or "–",
                "notebook": Path(entry.notebook).stem or "–",
                "stored": ", ".join(f"{each.dataset} {each.profile}" for each in evidence) or "–",
            }
        )
    terminal.show(args, records, rows)


# methods --------------------------------------------------------------------------------------------------------------


def _methods_options(command: argparse.ArgumentParser) -> None:
    """None."""


def _methods(args: argparse.Namespace) -> None:
    from contrastlab.tables.recipes import facts, method_names

    for name in method_names():
        print(f"{name:34s}{facts(name).label}")


# encoders -------------------------------------------------------------------------------------------------------------


def _encoders_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--out", action="append", help="folder of runs; default runs and results")
    terminal.add_forms(command)


def _encoders(args: argparse.Namespace) -> None:
    from contrastlab.train import checkpoint

    roots = terminal.folders("out", args.out)
    scores_by_last_epoch = _scores_by_last_epoch(roots)
    rows = []
    for folder, record in checkpoint.runs(roots):
        last_epoch = record["history"][-1:]
        scores = scores_by_last_epoch.get(str(last_epoch))
        if not scores:
            scores = [("", f"nn1 {row['nn1']:.2f}") for row in last_epoch if "nn1" in row]
        rows.append(
            {
                "encoder": str(folder),
                "method": record["recipe"]["name"],
                "data": record["dataset"],
                "profile": ", ".join(sorted({profile for profile, _ in scores})),
                "epochs": len(record["history"]),
                "seed": record["seed"],
                "score": ", ".join(score for _, score in scores),
                "date": _date(folder / "run.json"),
            }
        )
    terminal.show(args, rows, rows)


def _scores_by_last_epoch(roots: Sequence[Path | str]) -> dict[str, list[tuple[str, str]]]:
    """(profile, first metric in words) of results, by the last epoch of their runs.

    With its seconds, the last epoch tells one run from another, and results have it, too.
    """
    from contrastlab.tables import results

    scores: dict[str, list[tuple[str, str]]] = {}
    for result in results.find(root for root in roots if Path(root, "encoders").is_dir()):
        for name, value in list(result.metrics.items())[:1]:
            text = f"{name} {value:.2f}"
            if result.on:
                text += f" on {result.on}"
            scores.setdefault(str(result.curve[-1:]), []).append((result.profile, text))
    return scores


def _date(path: Path) -> str:
    try:
        return str(datetime.fromtimestamp(path.stat().st_mtime).date())
    except (ValueError, OverflowError, OSError):  # a file system may say any time, such as the year 36,812
        return "unknown"


# score ----------------------------------------------------------------------------------------------------------------


def _score_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("task", help="such as linear or neighbours")
    command.add_argument("--encoder", required=True, help="timm:<name>, torchvision:<name>, or a file of weights")
    command.add_argument("--arch", default="", help="architecture of the file, such as resnet50 or timm:resnet50")
    command.add_argument("--stem", default="imagenet", help="imagenet, or cifar: a ResNet's for small pictures")
    command.add_argument("--data", default="shapes", help="such as cifar10, shapes, folder:<path>")
    command.add_argument("--table", default="ring/table1", help="whose protocol is taken")
    command.add_argument("--profile", default="auto", help="of the table")
    command.add_argument("--image-size", type=int, help="side of the views; default: the profile's")
    command.add_argument("--seed", default="0", help="of the untrained weights and of what the task draws")
    command.add_argument("--out", default="runs", help="folder for results")


def _score(args: argparse.Namespace) -> None:
    _warn_of_an_address_limit()
    from contrastlab.tables import exchange

    report = exchange.score(
        args.task,
        args.encoder,
        args.data,
        arch=args.arch,
        stem=args.stem,
        table=args.table,
        profile=args.profile,
        image_size=args.image_size,
        seed=args.seed,
        out_dir=args.out,
    )
    print(report.text(terminal.width()))


# export ---------------------------------------------------------------------------------------------------------------


def _export_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("run", type=Path, help="its folder, as contrastlab encoders lists it")
    command.add_argument("--to", required=True, help="timm, torchvision, torch (a plain state dict) or hub-folder")
    command.add_argument("--out", type=Path, help="new folder; default: here, by the run's name")


def _export(args: argparse.Namespace) -> None:
    from contrastlab.tables import exchange

    print(f"Written: {exchange.export(args.run, args.to, args.out)}; its README.md says how to load it")


# doctor ---------------------------------------------------------------------------------------------------------------


def _doctor_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--data", action="store_true", help="read every data set, which can take minutes")
    command.add_argument("--folder", help="list every picture, sound and row of parquet below it that cannot be read")
    command.add_argument("--out", default="runs", help="folder for results, encoders and checkpoints")
    command.add_argument("--json", action="store_true", help="print JSON, a field for each line")
    _data_root(command)


def _doctor(args: argparse.Namespace) -> None:
    from contrastlab.support import doctor

    if args.folder is not None:
        for line in doctor.unreadable(args.folder):
            print(line, flush=True)
        return
    if args.json:
        facts = dict(doctor.facts(args.out, args.data_root, read_data=args.data))
        print(json.dumps(facts, indent=1, ensure_ascii=False))
        return
    for line in doctor.lines(args.out, args.data_root, read_data=args.data):
        print(line, flush=True)  # a data set that is read can take minutes


# notebook -------------------------------------------------------------------------------------------------------------


def _notebook_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("table", help="such as ring/table1, or a notebook by its name")
    command.add_argument("--to", type=Path, help="file that ends in .ipynb, or a folder; default: here, by its name")


def _notebook(args: argparse.Namespace) -> None:
    from contrastlab.tables import notebook

    path = escape.line(notebook.write(args.table, args.to))
    print(f"Written: {path}. Open it in JupyterLab, or: papermill {path} out.ipynb -p profile smoke")
    if find_spec("jupyterlab") is None:
        print("JupyterLab and papermill are not installed: pip install 'contrastlab[notebook]'")


# show -----------------------------------------------------------------------------------------------------------------


def _show_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("table")
    command.add_argument("--dataset", help="default: that of the best evidence that is stored")
    command.add_argument("--columns", default="all")
    command.add_argument("--profile", help="default: that of the best evidence that is stored")
    _set_option(command)
    command.add_argument("--format", choices=("text", "markdown", "html"), default="text")
    terminal.add_forms(command, results=True)


def _show(args: argparse.Namespace) -> None:
    from contrastlab import papers
    from contrastlab.tables import report, results
    from contrastlab.tables.own import own_settings
    from contrastlab.tables.profiles import OWN

    plan = papers.plan(*papers.parse_target(args.table))
    if args.set:
        base = papers.choose_profile(args.profile or "auto", plan.profiles)
        plan = plan.with_settings(own_settings(base, args.set))
        args.profile = OWN
    if args.profile is not None:
        papers.choose_profile(args.profile, plan.profiles)
    folders = terminal.folders("results", args.results)
    dataset, profile = _best(args, plan, folders)
    stored = results.find(folders, dataset=dataset, profile=profile)
    columns = plan.select(dataset, args.columns)
    reports = [report.table(plan, stored, dataset, profile, column=name) for name in columns]
    _print_reports(args, report.Reports(tuple(reports)))
    form = args.form or args.format
    file = sys.stdout if form == "text" else sys.stderr
    for line in _unregistered(stored, dataset, profile):
        print(escape.line(line), file=file)


def _print_reports(args: argparse.Namespace, reports: Any) -> None:
    """Print reports in the form that was asked for."""
    if args.form == "csv":
        print(reports.frame.to_csv(index=False))
    elif args.form == "json":
        print(reports.frame.to_json(orient="records", force_ascii=False))
    elif args.format == "markdown":
        print(reports.markdown())
    elif args.format == "html":
        print(reports.page())
    else:
        print(reports.whole(terminal.width()))
        training = reports.training(terminal.width()).strip()
        if training:
            print(training)


def _best(args: argparse.Namespace, plan: Any, folders: Iterable[Path | str]) -> tuple[str, str]:
    """Data set and profile that are shown: what was asked for, else those of the best evidence."""
    from contrastlab.tables import report, results

    if args.dataset is not None and args.profile is not None:
        return args.dataset, args.profile
    asked = []
    for heading in results.headings(folders):
        if args.dataset in (None, heading.dataset) and args.profile in (None, heading.profile):
            asked.append(heading)
    evidence = report.evidence(plan, asked)
    ranked = [*report.best_first(evidence), *evidence]
    if not ranked:
        return args.dataset or "shapes", args.profile or "laptop"
    return args.dataset or ranked[0].dataset, args.profile or ranked[0].profile


def _unregistered(stored: Sequence[Any], dataset: str, profile: str) -> Iterator[str]:
    """A line for each recipe that results are stored of and that is not registered in this process."""
    from contrastlab.tables import report, results
    from contrastlab.tables.recipes import method_names

    registered = method_names()
    groups: dict[tuple[str, ...], list[dict[str, float]]] = {}
    for result in stored:
        is_foreign = result.method.startswith(results.FOREIGN)
        if (result.dataset, result.profile) != (dataset, profile) or is_foreign or result.method in registered:
            continue
        group = (result.method, result.on or dataset, result.task, result.setup_hash)
        groups.setdefault(group, []).append(result.metrics)
    for (method, scored_on, *_), metrics_of_seeds in groups.items():
        numbers = []
        for name in metrics_of_seeds[0]:
            mean, half_width = report.interval([metrics[name] for metrics in metrics_of_seeds])
            estimate = report.Estimate(mean, half_width, len(metrics_of_seeds))
            numbers.append(f"{name} {estimate.text()}")
        what = "Also stored, by a recipe that is not registered here"
        yield f"{what}: {method}, {scored_on}: {', '.join(numbers)} [{len(metrics_of_seeds)}]"


# replay ---------------------------------------------------------------------------------------------------------------


def _replay_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("table")
    command.add_argument("--dataset", help="default: all that results are stored for")
    command.add_argument("--profile", help="default: all that results are stored for")
    command.add_argument("--seeds", help="seed or seeds; default all that are stored")
    command.add_argument("--limit-minutes", type=float, default=5.0, help="the shortest cells that fit; default 5")
    terminal.add_forms(command, results=True)
    _data_root(command)


def _replay(args: argparse.Namespace) -> None:
    from contrastlab import papers
    from contrastlab.tables import results

    plan = papers.plan(*papers.parse_target(args.table))
    folders = terminal.folders("results", args.results)
    stored = results.find(folders, table=plan.name, dataset=args.dataset, profile=args.profile)
    if args.seeds:
        seeds = papers.parse_seeds(args.seeds)
        stored = [result for result in stored if result.seed in seeds]
    from contrastlab import tables

    replays = tables.replay(stored, minutes=args.limit_minutes, data_root=args.data_root)
    records = [_replay_record(replay) for replay in replays]
    terminal.show(args, records, records)


def _replay_record(replay: Any) -> dict[str, Any]:
    """A replayed cell beside the stored one, as it is listed."""
    before = replay.stored
    metric = replay.metric
    data = before.dataset
    if before.on:
        data = f"{before.dataset} to {before.on}"
    return {
        "row": before.method,
        "data": data,
        "profile": before.profile,
        "seed": before.seed,
        "metric": metric,
        "stored": round(before.metrics[metric], 2),
        "replayed": round(replay.again.metrics[metric], 2),
        "difference": round(replay.difference, 2) + 0.0,
        "tolerance": round(replay.tolerance, 2),
        "holds": "yes" if replay.holds else "no",
        "differs": "; ".join(replay.differs) or "nothing",
    }


# run ------------------------------------------------------------------------------------------------------------------


def _run_options(command: argparse.ArgumentParser) -> None:
    profiles = "auto, smoke, first, laptop, tuned, regime, features, fair, pilot, gpu, paper-bf16 or paper"
    command.add_argument("table", help="such as ring/table1")
    command.add_argument("--dataset", default="shapes", help="such as cifar10, shapes, folder:<path>, parquet:<path>")
    command.add_argument("--rows", default="all", help="row or rows, such as iring or ir,iring; default all")
    command.add_argument("--columns", default="all", help="columns by name, where the data set fills several")
    command.add_argument("--profile", default="auto", help=profiles)
    _set_option(command)
    command.add_argument("--precision", help="of the encoders: 32-true, bf16-mixed or auto; default: the profile's")
    command.add_argument("--seeds", default="0", help="seed or seeds, such as 0 or 0,1,2")
    command.add_argument("--jobs", default="auto", help="cells at a time; default all cores, or all GPUs")
    command.add_argument("--out", default="runs", help="folder for results, encoders and checkpoints")
    command.add_argument("--accelerator", default="auto", help="auto, cpu, cuda")
    command.add_argument("--devices", default="1", help="devices of each machine for one cell, or auto")
    command.add_argument("--num-nodes", type=int, default=1, help="machines for one cell")
    command.add_argument("--strategy", default="auto", help="of several devices: auto or ddp")
    command.add_argument("--max-minutes", type=float, help="stop in good order after this time; run again to continue")
    command.add_argument("--fresh", action="store_true", help="ignore stored results, encoders and checkpoints")
    command.add_argument(
        "--skip-unreadable",
        action="store_true",
        help="of pictures and sounds of yours leave out what cannot be read",
    )
    command.add_argument("--no-references", action="store_true", help="leave out the random and supervised rows")
    command.add_argument("--picture", type=Path, help="also write the figure to this file (png, svg, pdf)")
    _speed_options(command.add_argument_group("speed", "switches that change how long it takes and no number"))
    _cluster_options(command.add_argument_group("cluster", "one job for each missing cell, through submitit"))
    _data_root(command)


def _set_option(command: argparse.ArgumentParser) -> None:
    own = "a setting of your own, such as epochs=50, arch=timm:resnet18 or negatives.k=512; also several times"
    command.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help=own)


def _speed_options(group: argparse._ArgumentGroup) -> None:
    switch: dict[str, Any] = {"action": argparse.BooleanOptionalAction, "default": argparse.SUPPRESS}
    group.add_argument("--channels-last", **switch, help="memory format of images and weights")
    group.add_argument("--fused", **switch, help="the optimiser step as one kernel")
    group.add_argument("--cudnn-benchmark", **switch, help="on CUDA, cuDNN tries which of its kernels is fastest")
    group.add_argument("--compile", **switch, help="torch.compile of the encoders")
    group.add_argument("--workers", type=int, default=argparse.SUPPRESS, help="processes that decode, for each device")


def _cluster_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--cluster", help="slurm; local and debug are for trying it out")
    group.add_argument("--partition", help="of SLURM")
    group.add_argument("--time", type=int, help="minutes of a job, which SLURM needs; a cut off one is queued again")
    group.add_argument("--cpus", type=int, help="of a job; default: one for each of --workers, and one")
    group.add_argument("--gpus", type=int, help="of a job")
    group.add_argument("--no-wait", action="store_true", help="hand the jobs over and return")


def _run(args: argparse.Namespace) -> None:
    from contrastlab import papers
    from contrastlab.tables.own import parse as parse_settings

    _warn_of_an_address_limit()
    plan = papers.plan(*papers.parse_target(args.table))  # what cannot be is refused before PyTorch is imported
    plan.select(args.dataset, args.columns)
    plan.resolve_all(args.rows)
    plan.with_precision(args.precision)
    papers.parse_seeds(args.seeds)
    parse_settings(args.set)
    if args.profile != "auto":
        papers.choose_profile(args.profile, plan.profiles)
    from contrastlab import tables

    cluster = _cluster(args)
    if args.picture is not None:
        _prepare_picture(args.picture, args.dataset)
    done = tables.table(
        plan.paper,
        plan.table,
        args.dataset,
        rows=args.rows,
        columns=args.columns,
        profile=args.profile,
        settings=args.set,
        precision=args.precision,
        seeds=args.seeds,
        references_too=not args.no_references,
        jobs=args.jobs,
        cluster=cluster,
        out_dir=args.out,
        data_root=args.data_root,
        accelerator=args.accelerator,
        devices=tables.parse_devices(args.devices),
        num_nodes=args.num_nodes,
        strategy=args.strategy,
        resume=not args.fresh,
        max_minutes=args.max_minutes,
        speed=_speed(args),
        skip_unreadable=args.skip_unreadable,
    )
    if tables.first_process():
        print(repr(done))
        if args.picture is not None:
            _write_picture(args.picture, done.figure())
    if not args.no_wait:
        reasons = [row.status for row in done.rows if row.status.startswith("n/a: ")]
        if reasons and not any(row.measured for row in done.rows):  # what was asked for cannot be
            raise NotApplicableError(f"nothing has been run: {reasons[0].removeprefix('n/a: ')}")


def _cluster(args: argparse.Namespace) -> Any:
    from contrastlab import tables

    if args.cluster is None:
        return None
    options = {
        "slurm_partition": args.partition,
        "timeout_min": args.time,
        "gpus_per_node": args.gpus,
        "cpus_per_task": args.cpus,
    }
    options = {name: value for name, value in options.items() if value is not None}
    return tables.Cluster(args.cluster, options, wait=not args.no_wait)


def _speed(args: argparse.Namespace) -> Any:
    from contrastlab.train import Speed

    switches = [each.name for each in fields(Speed)]
    return Speed(**{name: getattr(args, name) for name in switches if hasattr(args, name)})


def _prepare_picture(picture: Path, dataset: str) -> None:
    """Refuse a picture that cannot be written, or that would join the data; make its folder."""
    from contrastlab.support import files

    if picture.suffix not in (".png", ".svg", ".pdf"):
        raise reject("picture", str(picture), "a file that ends in .png, .svg or .pdf")
    kind, _, place = dataset.partition(":")
    is_read = kind in ("folder", "unlabelled") and place and picture.suffix == ".png"
    if is_read and picture.resolve().is_relative_to(Path(place).expanduser().resolve()):
        raise reject("picture", str(picture), f"a file outside {place}: it would be a picture of the set")
    files.make_folder(picture.parent)


def _write_picture(picture: Path, figure: Any) -> None:
    from contrastlab.support import files

    content = io.BytesIO()
    figure.savefig(content, format=picture.suffix[1:], dpi=150)
    print(f"Picture: {escape.line(files.write_whole(picture, content.getvalue()))}")


_Action = Callable[[argparse.Namespace], None]
_Options = Callable[[argparse.ArgumentParser], None]
_COMMANDS: dict[str, tuple[_Action, _Options, str]] = {
    "run": (_run, _run_options, "run the missing cells of a table and print it"),
    "show": (_show, _show_options, "print a table from stored results"),
    "replay": (
        _replay,
        _replay_options,
        "train stored cells of a table again and set the numbers beside the stored ones",
    ),
    "list": (_list, _list_options, "list every published table and figure: its notebook, and what is stored"),
    "methods": (_methods, _methods_options, "list the recipes"),
    "notebook": (_notebook, _notebook_options, "write the notebook of a table, to run and change"),
    "doctor": (_doctor, _doctor_options, "print what this installation has, for a bug report"),
    "score": (_score, _score_options, "score an encoder from elsewhere, beside the same architecture untrained"),
    "export": (_export, _export_options, "write a trained encoder for another library, with a model card"),
    "encoders": (_encoders, _encoders_options, "list the trained encoders"),
}
"""By name: what it does, the options it takes, and what help says."""


if __name__ == "__main__":
    sys.exit(main())
