"""Command line: ``python -m contrastlab run ring/table1 --dataset cifar10 --method iring --profile paper --seed 0``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from contrastlab import methods, papers, report, reproduce, results
from contrastlab.errors import ContrastLabError
from contrastlab.pretrain import Speed


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="contrastlab", description="Reproduce the tables of the five papers.")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run the missing cells of a table and print it")
    run.add_argument("table", help="such as ring/table1")
    run.add_argument("--dataset", default="shapes", help="such as cifar10, shapes, folder:<path>, parquet:<path>")
    run.add_argument("--method", default="all", help="row or rows, such as iring or ir,iring; default all")
    run.add_argument("--profile", default="auto", help="auto, smoke, laptop or paper")
    run.add_argument("--seed", default="0", help="seed or seeds, such as 0 or 0,1,2")
    run.add_argument("--data-root", help="folder of data sets; default CONTRASTLAB_DATA or the user's cache")
    run.add_argument("--out", default="runs", help="folder for results and checkpoints")
    run.add_argument("--accelerator", default="auto", help="auto, cpu, cuda")
    run.add_argument("--devices", default="1", help="devices of each machine, or auto")
    run.add_argument("--num-nodes", type=int, default=1, help="machines")
    run.add_argument("--strategy", default="auto", help="Fabric's: auto, ddp, fsdp, …")
    run.add_argument("--max-minutes", type=float, help="stop in good order after this time; run again to continue")
    run.add_argument("--fresh", action="store_true", help="ignore stored results and checkpoints")
    run.add_argument("--no-references", action="store_true", help="leave out the random and supervised rows")
    speed = run.add_argument_group("speed", "switches that change how long it takes and no number")
    for name, help_ in (
        ("channels_last", "memory format of images and weights"),
        ("fused", "the optimiser step as one kernel"),
        ("compile", "torch.compile of the encoders"),
    ):
        flag = f"--{name.replace('_', '-')}"
        speed.add_argument(flag, action=argparse.BooleanOptionalAction, default=getattr(Speed, name), help=help_)
    speed.add_argument("--workers", type=int, default=Speed.workers, help="processes that decode, for each device")
    show = commands.add_parser("show", help="print a table from stored results")
    show.add_argument("table")
    show.add_argument("--dataset", default="shapes")
    show.add_argument("--profile", default="laptop")
    show.add_argument("--results", action="append", help="folder of results; default runs and results")
    commands.add_parser("list", help="list methods and tables")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    args = _parser().parse_args(arguments)
    try:
        if args.command == "list":
            for name in methods.names():
                print(f"{name:34s}{methods.get(name).label}")
            print(*(f"{paper}/table{number}" for paper, number in papers.plans()), sep="\n")
        elif args.command == "show":
            paper, number = reproduce.parse_target(args.table)
            found = [r for root in args.results or ["runs", "results"] for r in results.find(root, paper=paper)]
            found = list({(r.method, r.seed, r.config_hash): r for r in found if r.table == number}.values())
            _print(report.table(papers.plan(paper, number), found, args.dataset, args.profile))
        else:
            paper, number = reproduce.parse_target(args.table)
            done = reproduce.table(
                paper, number, args.dataset, methods_=args.method, profile=args.profile, seeds=args.seed,
                references=not args.no_references, data_root=args.data_root, out_dir=args.out,
                accelerator=args.accelerator, devices=int(args.devices) if args.devices.isdigit() else args.devices,
                num_nodes=args.num_nodes, strategy=args.strategy, resume=not args.fresh,
                max_minutes=args.max_minutes,
                speed=Speed(args.channels_last, args.fused, args.compile, args.workers),
            )  # fmt: skip
            _print(done)
    except ContrastLabError as error:
        print(f"contrastlab: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        print(f"contrastlab: {stop or 'interrupted'}", file=sys.stderr)
        return 130
    return 0


def _print(done: report.Report) -> None:
    if not reproduce.first_process():
        return
    print(done.markdown())
    print(*report.summary_sentences(done), sep="\n")


if __name__ == "__main__":
    sys.exit(main())
