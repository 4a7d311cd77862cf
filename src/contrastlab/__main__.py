"""Command line: ``python -m contrastlab run ring/table1 --dataset cifar10 --rows iring --profile paper --seeds 0``.

Help and a mistyped argument need no PyTorch, which takes seconds to import: each command imports what it uses.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
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


_NO_ROOM = ("allocate memory", "bad_alloc", "failed to map segment")  # of PyTorch, the C++ library, the loader


class _Parser(argparse.ArgumentParser):
    """Says what is wrong on one line, as every other error is said; a part of an option's name is no option."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"contrastlab: {escape.line(message)}; {self.prog} --help says what is accepted\n")


def _parser() -> argparse.ArgumentParser:  # noqa: PLR0915
    parser = _Parser(prog="contrastlab", description="Reproduce the tables of the five papers.")
    parser.add_argument("--version", action="version", version=f"contrastlab {__version__}")
    parser.add_argument("--debug", action="store_true", help="show where an error comes from")
    commands = parser.add_subparsers(dest="command", required=True)

    def add(action: Callable[[argparse.Namespace], None], help_: str) -> argparse.ArgumentParser:
        command = commands.add_parser(action.__name__.removeprefix("_"), help=help_)
        command.set_defaults(action=action)
        return command

    run = add(_run, "run the missing cells of a table and print it")
    run.add_argument("table", help="such as ring/table1")
    run.add_argument("--dataset", default="shapes", help="such as cifar10, shapes, folder:<path>, parquet:<path>")
    run.add_argument("--rows", default="all", help="row or rows, such as iring or ir,iring; default all")
    run.add_argument("--columns", default="all", help="columns by name, where the data set fills several")
    profiles = "auto, smoke, first, laptop, tuned, regime, pilot, gpu, paper-bf16 or paper"
    run.add_argument("--profile", default="auto", help=profiles)
    run.add_argument("--precision", help="of the encoders: 32-true, bf16-mixed or auto; default: the profile's")
    run.add_argument("--seeds", default="0", help="seed or seeds, such as 0 or 0,1,2")
    run.add_argument("--jobs", default="auto", help="cells at a time; default all cores, or all GPUs")
    run.add_argument("--out", default="runs", help="folder for results, encoders and checkpoints")
    run.add_argument("--accelerator", default="auto", help="auto, cpu, cuda")
    run.add_argument("--devices", default="1", help="devices of each machine for one cell, or auto")
    run.add_argument("--num-nodes", type=int, default=1, help="machines for one cell")
    run.add_argument("--strategy", default="auto", help="of several devices: auto or ddp")
    run.add_argument("--max-minutes", type=float, help="stop in good order after this time; run again to continue")
    run.add_argument("--fresh", action="store_true", help="ignore stored results, encoders and checkpoints")
    run.add_argument("--no-references", action="store_true", help="leave out the random and supervised rows")
    run.add_argument("--picture", type=Path, help="also write the figure to this file (png, svg, pdf)")
    speed = run.add_argument_group("speed", "switches that change how long it takes and no number")
    switch: dict[str, Any] = {"action": argparse.BooleanOptionalAction, "default": argparse.SUPPRESS}
    speed.add_argument("--channels-last", **switch, help="memory format of images and weights")
    speed.add_argument("--fused", **switch, help="the optimiser step as one kernel")
    speed.add_argument("--compile", **switch, help="torch.compile of the encoders")
    speed.add_argument("--workers", type=int, default=argparse.SUPPRESS, help="processes that decode, for each device")
    cluster = run.add_argument_group("cluster", "one job for each missing cell, through submitit")
    cluster.add_argument("--cluster", help="slurm; local and debug are for trying it out")
    cluster.add_argument("--partition", help="of SLURM")
    cluster.add_argument("--time", type=int, help="minutes of a job, which SLURM needs; a cut off one is queued again")
    cluster.add_argument("--cpus", type=int, help="of a job; default: one for each of --workers, and one")
    cluster.add_argument("--gpus", type=int, help="of a job")
    cluster.add_argument("--no-wait", action="store_true", help="hand the jobs over and return")
    show = add(_show, "print a table from stored results")
    show.add_argument("table")
    show.add_argument("--dataset", help="default: that of the best evidence that is stored")
    show.add_argument("--columns", default="all")
    show.add_argument("--profile", help="default: that of the best evidence that is stored")
    show.add_argument("--format", choices=("text", "markdown", "html"), default="text")
    terminal.add_forms(show, results=True)
    again = add(_replay, "train stored cells of a table again and set the numbers beside the stored ones")
    again.add_argument("table")
    again.add_argument("--dataset", help="default: all that results are stored for")
    again.add_argument("--profile", help="default: all that results are stored for")
    again.add_argument("--seeds", help="seed or seeds; default all that are stored")
    again.add_argument("--limit-minutes", type=float, default=5.0, help="the shortest cells that fit; default 5")
    terminal.add_forms(again, results=True)
    listed = add(_list, "list every published table and figure: its notebook, and what is stored")
    terminal.add_forms(listed, results=True)
    add(_methods, "list the recipes")
    copied = add(_notebook, "write the notebook of a table, to run and change")
    copied.add_argument("table", help="such as ring/table1, or a notebook by its name")
    copied.add_argument("--to", type=Path, help="file that ends in .ipynb, or a folder; default: here, by its name")
    check = add(_doctor, "print what this installation has, for a bug report")
    check.add_argument("--data", action="store_true", help="read every data set, which can take minutes")
    check.add_argument("--out", default="runs", help="folder for results, encoders and checkpoints")
    check.add_argument("--json", action="store_true", help="print JSON, a field for each line")
    scored = add(_score, "score an encoder from elsewhere, beside the same architecture untrained")
    scored.add_argument("task", help="such as linear or neighbours")
    scored.add_argument("--encoder", required=True, help="timm:<name>, torchvision:<name>, or a file of weights")
    scored.add_argument("--arch", default="", help="architecture of the file, such as resnet50 or timm:resnet50")
    scored.add_argument("--stem", default="imagenet", help="imagenet, or cifar: a ResNet's for small pictures")
    scored.add_argument("--data", default="shapes", help="such as cifar10, shapes, folder:<path>")
    scored.add_argument("--table", default="ring/table1", help="whose protocol is taken")
    scored.add_argument("--profile", default="auto", help="of the table")
    scored.add_argument("--image-size", type=int, help="side of the views; default: the profile's")
    scored.add_argument("--seed", default="0", help="of the untrained weights and of what the task draws")
    scored.add_argument("--out", default="runs", help="folder for results")
    exported = add(_export, "write a trained encoder for another library, with a model card")
    exported.add_argument("run", type=Path, help="its folder, as contrastlab encoders lists it")
    exported.add_argument("--to", required=True, help="timm, torchvision or hub-folder (all streams, with their heads)")
    exported.add_argument("--out", type=Path, help="new folder; default: here, by the run's name")
    stored = add(_encoders, "list the trained encoders")
    stored.add_argument("--out", action="append", help="folder of runs; default runs and results")
    terminal.add_forms(stored)
    for command in (run, again, check):
        command.add_argument("--data-root", help="folder of data sets; default CONTRASTLAB_DATA or the user's cache")
    for point in entry_points(group="contrastlab.commands"):
        point.load()(commands)
    for command in commands.choices.values():  # before the command and after it
        command.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help="as before the command")
        command.set_defaults(refuse=command.error)
    return parser


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


def _lies_in(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.expanduser().resolve())


def _explain(error: Exception) -> tuple[int, str]:
    """The exit status for an error, and its line."""
    line = escape.line(error)
    if isinstance(error, ContrastLabError | OSError):  # as of a file that may not be read
        return 2, line
    if "gloo" in line or type(error).__name__.startswith("Dist"):  # of torch.distributed
        return 2, f"another process of this run has ended ({line}); run again to continue"
    # PyTorch's, on a device or not
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or any(w in line for w in _NO_ROOM):
        return 2, f"there is not enough memory ({line}); fewer --jobs and a smaller profile need less"
    what = escape.line(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
    fault = "This is a fault of contrastlab, not of what was asked; --debug shows where it comes from"
    return FAULT, f"{what}. {fault}, and 'contrastlab doctor' what a report of it needs"


def _list(args: argparse.Namespace) -> None:
    from contrastlab import papers
    from contrastlab.tables import report, results

    stored = results.find(terminal.folders("results", args.results))
    records, rows, plans = [], [], papers.plans()
    for entry in papers.catalogue():
        found, key = report.evidence(entry, stored), (entry.paper, entry.table)
        title = papers.plan(*key).title if key in plans else ""
        for each in found or (None,):
            of_data = {name: getattr(each, name, None) for name in ("dataset", "profile", "rows", "of", "seeds")}
            records.append({"table": entry.name, "title": title, "notebook": entry.notebook, **of_data})
        kept = ", ".join(f"{each.dataset} {each.profile}" for each in found)
        name = Path(entry.notebook).stem or "–"
        rows.append({"table": entry.name, "title": title or "–", "notebook": name, "stored": kept or "–"})
    terminal.show(args, records, rows)


def _methods(args: argparse.Namespace) -> None:
    from contrastlab.tables.recipes import facts, kinds

    for name in kinds("method"):
        print(f"{name:34s}{facts(name).label}")


def _encoders(args: argparse.Namespace) -> None:
    from contrastlab.tables import results
    from contrastlab.train import checkpoint

    roots, scored, rows = terminal.folders("out", args.out), dict[str, list[tuple[str, str]]](), list[dict[str, Any]]()
    for r in results.find(root for root in roots if Path(root, "encoders").is_dir()):
        scores = [(r.profile, f"{name} {value:.2f}" + (r.on and f" on {r.on}")) for name, value in r.metrics.items()]
        scored.setdefault(str(r.curve[-1:]), []).extend(scores[:1])
    for folder, record in checkpoint.runs(roots):
        last = record["history"][-1:]  # with its seconds it tells one run from another; a result has it, too
        found = scored.get(str(last)) or [("", f"nn1 {row['nn1']:.2f}") for row in last if "nn1" in row]
        rows.append({
            "encoder": str(folder), "method": record["recipe"]["name"], "data": record["dataset"],
            "profile": ", ".join(sorted({profile for profile, _ in found})), "epochs": len(record["history"]),
            "seed": record["seed"], "score": ", ".join(score for _, score in found),
            "date": _date(folder / "run.json"),
        })  # fmt: skip
    terminal.show(args, rows, rows)


def _date(path: Path) -> str:
    try:
        return str(datetime.fromtimestamp(path.stat().st_mtime).date())
    except (ValueError, OverflowError, OSError):  # a file system may say any time, such as the year 36,812
        return "unknown"


def _score(args: argparse.Namespace) -> None:
    from contrastlab.tables import exchange

    print(exchange.score(
        args.task, args.encoder, args.data, arch=args.arch, stem=args.stem, table=args.table, profile=args.profile,
        image_size=args.image_size, seed=args.seed, out_dir=args.out,
    ).text(terminal.width()))  # fmt: skip


def _export(args: argparse.Namespace) -> None:
    from contrastlab.tables import exchange

    print(f"Written: {exchange.export(args.run, args.to, args.out)}; its README.md says how to load it")


def _doctor(args: argparse.Namespace) -> None:
    from contrastlab.support import doctor

    if args.json:
        facts = dict(doctor.facts(args.out, args.data_root, read_data=args.data))
        print(json.dumps(facts, indent=1, ensure_ascii=False))
        return
    for line in doctor.lines(args.out, args.data_root, read_data=args.data):
        print(line, flush=True)  # a data set that is read can take minutes


def _notebook(args: argparse.Namespace) -> None:
    from contrastlab.tables import notebook

    path = escape.line(notebook.write(args.table, args.to))
    print(f"Written: {path}. Open it in JupyterLab, or: papermill {path} out.ipynb -p profile smoke")
    if find_spec("jupyterlab") is None:
        print("JupyterLab and papermill are not installed: pip install 'contrastlab[notebook]'")


def _show(args: argparse.Namespace) -> None:
    from contrastlab import papers
    from contrastlab.tables import report, results
    from contrastlab.tables.recipes import kinds

    plan, folders = papers.plan(*papers.parse_target(args.table)), terminal.folders("results", args.results)
    stored = results.find(folders, dataset=args.dataset, profile=args.profile)
    known = report.evidence(plan, stored)
    most = next(iter((*report.best_first(known), *known)), None)
    dataset = args.dataset or (most.dataset if most else "shapes")
    profile = args.profile or (most.profile if most else "laptop")
    columns = plan.select(dataset, args.columns)
    made = report.Reports(tuple(report.table(plan, stored, dataset, profile, column=name) for name in columns))
    if args.form == "csv":
        print(made.frame.to_csv(index=False))
    elif args.form == "json":
        print(made.frame.to_json(orient="records", force_ascii=False))
    else:
        whole = {"text": made.whole(terminal.width()), "markdown": made.markdown(), "html": made.page()}
        print(whole[args.format])
        if args.format == "text" and (training := made.training(terminal.width()).strip()):
            print(training)
    own: dict[tuple[str, ...], list[dict[str, float]]] = {}
    for r in stored:
        foreign = r.method.startswith(results.FOREIGN)
        if (r.dataset, r.profile) == (dataset, profile) and not foreign and r.method not in kinds("method"):
            own.setdefault((r.method, r.on or dataset, r.task, r.setup), []).append(r.metrics)
    for (method, on, *_), found in own.items():
        means = {m: report.Estimate(*report.interval([v[m] for v in found]), len(found)) for m in found[0]}
        numbers = ", ".join(f"{m} {mean.text()}" for m, mean in means.items())
        line = f"Also stored, by a recipe that is not registered here: {method}, {on}: {numbers} [{len(found)}]"
        print(escape.line(line), file=sys.stdout if (args.form or args.format) == "text" else sys.stderr)


def _replay(args: argparse.Namespace) -> None:
    from contrastlab import papers
    from contrastlab.tables import results

    plan = papers.plan(*papers.parse_target(args.table))
    seeds = args.seeds and papers.parse_seeds(args.seeds)
    stored = results.find(
        terminal.folders("results", args.results), table=plan.name, dataset=args.dataset, profile=args.profile
    )
    chosen = [r for r in stored if not seeds or r.seed in seeds]
    from contrastlab import tables

    records = []
    for each in tables.replay(chosen, minutes=args.limit_minutes, data_root=args.data_root):
        was = each.stored
        records.append({
            "row": was.method, "data": f"{was.dataset} to {was.on}" if was.on else was.dataset, "profile": was.profile,
            "seed": was.seed, "metric": each.metric, "stored": round(was.metrics[each.metric], 2),
            "replayed": round(each.again.metrics[each.metric], 2), "difference": round(each.difference, 2) + 0.0,
            "tolerance": round(each.tolerance, 2), "holds": "yes" if each.holds else "no",
            "differs": "; ".join(each.differs) or "nothing",
        })  # fmt: skip
    terminal.show(args, records, records)


def _run(args: argparse.Namespace) -> None:
    from contrastlab import papers
    from contrastlab.support import files

    plan = papers.plan(*papers.parse_target(args.table))  # what cannot be is refused before PyTorch is imported
    plan.select(args.dataset, args.columns)
    plan.resolve_all(args.rows)
    plan.with_precision(args.precision)
    papers.parse_seeds(args.seeds)
    if args.profile != "auto":
        papers.choose_profile(args.profile, plan.profiles)
    from contrastlab import tables
    from contrastlab.train import Speed

    cluster = None
    if args.cluster is not None:
        options = {"slurm_partition": args.partition, "timeout_min": args.time, "gpus_per_node": args.gpus,
                   "cpus_per_task": args.cpus}  # fmt: skip
        options = {name: value for name, value in options.items() if value is not None}
        cluster = tables.Cluster(args.cluster, options, wait=not args.no_wait)
    if args.picture is not None:
        if args.picture.suffix not in (".png", ".svg", ".pdf"):
            raise reject("picture", str(args.picture), "a file that ends in .png, .svg or .pdf")
        kind, _, place = args.dataset.partition(":")
        read = kind in ("folder", "unlabelled") and place and args.picture.suffix == ".png"
        if read and _lies_in(args.picture, Path(place)):
            raise reject("picture", str(args.picture), f"a file outside {place}: it would be a picture of the set")
        files.make_folder(args.picture.parent)
    done = tables.table(
        plan.paper, plan.table, args.dataset, rows=args.rows, columns=args.columns, profile=args.profile,
        precision=args.precision, seeds=args.seeds, references_too=not args.no_references, jobs=args.jobs,
        cluster=cluster, out_dir=args.out, data_root=args.data_root, accelerator=args.accelerator,
        devices=tables.parse_devices(args.devices), num_nodes=args.num_nodes, strategy=args.strategy,
        resume=not args.fresh, max_minutes=args.max_minutes,
        speed=Speed(**{each.name: getattr(args, each.name) for each in fields(Speed) if hasattr(args, each.name)}),
    )  # fmt: skip
    if tables.first_process():
        print(repr(done))
        if args.picture is not None:
            content = io.BytesIO()
            done.figure().savefig(content, format=args.picture.suffix[1:], dpi=150)
            print(f"Picture: {escape.line(files.write_whole(args.picture, content.getvalue()))}")
    if not args.no_wait:
        reasons = [row.status for row in done.rows if row.status.startswith("n/a: ")]
        if reasons and not any(row.measured for row in done.rows):  # what was asked for cannot be
            raise NotApplicableError(f"nothing has been run: {reasons[0].removeprefix('n/a: ')}")


if __name__ == "__main__":
    sys.exit(main())
