"""What make does with all notebooks or pages in one process.

``pairing`` compares every notebook of ``nbs`` with its script. ``pages all`` writes each page of ``book`` that has code
as a notebook beside it, ``pages short`` all but the :data:`LONG` ones. ``serve`` starts kernels by forking a process
that has done what all of them do first (see :func:`serve`).
"""

from __future__ import annotations

import contextlib
import difflib
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Collection
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOCKET = "CONTRASTLAB_KERNELS"
"""Environment variable: the socket on which a server of kernels listens."""
ROWS = "CONTRASTLAB_ROWS"
"""Environment variable: how many rows of each table notebooks train (see :func:`_shorten`); by default all."""


def pairing() -> int:
    """Print how notebooks differ from their scripts; 1 where one does."""
    import jupytext

    wrong = 0
    for path in sorted((ROOT / "nbs").glob("*.ipynb")):
        made = jupytext.writes(jupytext.read(path), fmt="py:percent").splitlines()
        script = path.with_suffix(".py").read_text(encoding="utf-8").splitlines()
        differences = list(difflib.unified_diff(made, script, str(path), str(path.with_suffix(".py")), lineterm=""))
        if differences:
            print(*differences, sep="\n")
            print(f"{path} differs from its .py: change the .py, then jupytext --update --to ipynb")
            wrong = 1
    return wrong


LONG = ("atlas", "infonce", "later", "results", "ring", "senses", "views")
"""Pages that take longest, 25 seconds of processor time or more each; a build of the book runs them as well."""


def pages(left_out: Collection[str] = ()) -> int:
    """Write the notebook ``book/.<page>.ipynb`` of each page that has code and is not left out."""
    import jupytext

    for path in sorted((ROOT / "book").glob("*.md")):
        if path.stem not in left_out and "{code-cell}" in path.read_text(encoding="utf-8"):
            jupytext.write(jupytext.read(path), path.with_name(f".{path.stem}.ipynb"))
    return 0


PRELOADED = (
    "IPython",
    "anywidget",
    "contrastbook.evidence",
    "contrastbook.figures.panels",
    "contrastbook.figures.playground",
    "contrastbook.figures.widgets",
    "contrastlab.tables.notebook",
    "contrastlab.train.loop",
    "contrastlab.tasks",
    "faiss",
    "ipykernel.kernelapp",
    "ipywidgets",
    "lightning_fabric",
    "matplotlib.pyplot",
    "pandas",
    "plotly.express",
    "scipy.stats",
    "sklearn.linear_model",
    "torch",
    "torch._dynamo",
    "torch.utils.tensorboard",
    "torchvision",
)
"""What notebooks import, and ``torch._dynamo``, whose import takes three seconds of the first optimiser."""


def _warm_up() -> None:
    """Import the packages, and read what most notebooks read: stored results, plans and the usual pictures."""
    for name in PRELOADED:
        importlib.import_module(name)
    # pandas takes what imports it outside a kernel for a terminal, and leaves out columns by its width
    sys.modules["pandas"].set_option("display.max_columns", 20)
    from contrastbook.evidence import claims
    from contrastlab import data
    from contrastlab.tables import results

    claims.frame(results.find(ROOT / "results"))  # reads all plans, and hashes what most pages ask for again
    data.load("shapes")
    if os.environ.get(ROWS, "all") != "all":
        _shorten(int(os.environ[ROWS]))
    gc.freeze()  # no kernel looks through what all of them share


def _shorten(rows: int) -> None:
    """Let notebooks train the first rows of each table, beside its reference rows, and the runs that a check reads."""
    from contrastbook.studies import collapse
    from contrastlab.papers import REFERENCES
    from contrastlab.tables.notebook import Notebook

    every_row = Notebook.rows

    def first_rows(notebook: Notebook, number: int | str | None = None) -> tuple[str, ...]:
        asked = every_row(notebook, number)
        first = [row for row in asked if row not in REFERENCES][:rows]
        return tuple(row for row in asked if row in first or row in REFERENCES)

    Notebook.rows = first_rows
    collapse.RUNS = {label: collapse.RUNS[label] for label in ("untrained", "KL", "RKL", "Neyman")}


def serve(command: list[str]) -> int:
    """Run a command whose Jupyter kernels are forks of this process, which has done once what all of them do first.

    A kernel's connection file, environment, folder and standard streams come over a socket from :func:`kernel`, the
    process that Jupyter starts and watches. Each of the two ends when the other has ended. At the end the notebooks
    that took most processor time are printed.
    """
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"  # as ipykernel sets it, before the import
    with tempfile.TemporaryDirectory() as folder:
        spec = Path(folder) / "kernels" / "python3" / "kernel.json"
        spec.parent.mkdir(parents=True)
        argv = [sys.executable, str(Path(__file__).resolve()), "kernel", "{connection_file}"]
        spec.write_text(json.dumps({"argv": argv, "display_name": "Python 3", "language": "python"}))
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(Path(folder) / "socket"))
        listener.listen()
        listener.settimeout(0.2)
        path = os.pathsep.join(filter(None, (folder, os.environ.get("JUPYTER_PATH"))))
        started = subprocess.Popen(command, env=os.environ | {SOCKET: listener.getsockname(), "JUPYTER_PATH": path})
        try:
            _warm_up()  # while the command starts and collects; kernels that it asks for wait in the socket's queue
        except BaseException:
            started.terminate()
            raise
        kernels: dict[int, str] = {}
        seconds: dict[str, float] = {}
        while started.poll() is None:
            _count_ended(kernels, seconds, os.WNOHANG)
            with contextlib.suppress(TimeoutError):
                asked, _ = listener.accept()
                with asked:
                    pid, notebook = _fork(asked, listener)
                    kernels[pid] = notebook
        _count_ended(kernels, seconds, 0)
        _print_longest(seconds)
        return started.returncode


def _count_ended(kernels: dict[int, str], seconds: dict[str, float], options: int) -> None:
    """Move the kernels that have ended into the processor seconds of their notebooks."""
    for pid, notebook in list(kernels.items()):
        ended, _, used = os.wait4(pid, options)
        if ended:
            seconds[notebook] = seconds.get(notebook, 0.0) + used.ru_utime + used.ru_stime
            del kernels[pid]


def _print_longest(seconds: dict[str, float], count: int = 15) -> None:
    """Print which notebooks took most processor time."""
    print(f"Processor seconds of {len(seconds)} notebooks: {sum(seconds.values()):.0f}, most of them in")
    for notebook in sorted(seconds, key=seconds.__getitem__, reverse=True)[:count]:
        print(f"  {seconds[notebook]:6.1f} {notebook}")


def _fork(asked: socket.socket, listener: socket.socket) -> tuple[int, str]:
    """Number of the process that became a kernel, and the notebook that pytest runs in it."""
    text, streams, *_ = socket.recv_fds(asked, 1 << 20, 3)
    given = json.loads(text)
    pid = os.fork()
    if pid:
        for stream in streams:
            os.close(stream)
        asked.sendall(str(pid).encode())
        notebook, *_ = given["environment"].get("PYTEST_CURRENT_TEST", "a notebook").split("::")
        return pid, notebook
    try:
        listener.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.environ.clear()
        os.environ.update(given["environment"])
        os.chdir(given["folder"])
        sys.path.insert(0, "")  # as for python -m
        threading.Thread(target=_end_with, args=(asked,), daemon=True).start()
        from ipykernel.kernelapp import IPKernelApp

        IPKernelApp.launch_instance(argv=["-f", given["file"]])
    finally:
        os._exit(0)


def _end_with(asked: socket.socket) -> None:
    while asked.recv(1):
        pass
    os._exit(1)


def kernel(file: str) -> int:
    """Ask the server for a kernel, pass signals on to it, and end when it ends."""
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(os.environ[SOCKET])
        given = {"file": file, "environment": dict(os.environ), "folder": str(Path.cwd())}
        socket.send_fds(server, [json.dumps(given).encode()], [0, 1, 2])
        pid = int(server.recv(32))
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _: os.kill(pid, number))
        server.recv(1)  # nothing comes before the kernel has ended
    return 0


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["pairing"]:
            sys.exit(pairing())
        case ["pages", "all"]:
            sys.exit(pages())
        case ["pages", "short"]:
            sys.exit(pages(left_out=LONG))
        case ["serve", *command] if command:
            code = serve(command)
            sys.stdout.flush()
            os._exit(code)  # without the end of an interpreter, at which a package complains of what gc.freeze keeps
        case ["kernel", file]:
            sys.exit(kernel(file))
    sys.exit("notebooks.py pairing | pages all | pages short | serve <command> | kernel <connection file>")
