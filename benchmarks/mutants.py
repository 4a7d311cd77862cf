"""Changes the formulas that the tests guard, one place at a time, and lists the changes that no test notices.

``make mutants`` reads ``mutants.toml`` and writes ``results/mutants.json``. The changes are those of cosmic-ray, and a
term left out of a sum. Every mutant is tried in a process of its own, forked from one that has imported what the
library needs, with the mutated module in place of the file; no file is changed. A run that is broken off goes on where
it was; a module, or a test, that has changed begins again.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import io
import json
import os
import random
import signal
import subprocess
import sys
import time
import tomllib
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass
from datetime import date
from itertools import zip_longest
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
STORED = ROOT / "benchmarks" / "results" / "mutants.json"
STATE = ROOT / "runs" / "mutants.jsonl"
PLAN = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Mutant:
    """One change of one module."""

    module: str
    operator: str
    occurrence: int
    line: int
    definition: str
    before: str
    after: str

    @property
    def name(self) -> str:
        """Module, operator and occurrence."""
        return f"{self.module}:{self.operator}:{self.occurrence}"


def operators() -> dict[str, Any]:
    """Name to operator: those of cosmic-ray that the plan names, and a term left out."""
    import cosmic_ray.plugins
    from cosmic_ray.operators.operator import Operator

    class DropTerm(Operator):
        """``a + b`` to ``a``: what was added or taken away is missing."""

        def mutation_positions(self, node: Any) -> Any:
            signs = range(1, len(node.children), 2) if node.type == "arith_expr" else ()
            return [(node.children[i].start_pos, node.children[i + 1].end_pos) for i in signs]

        def mutate(self, node: Any, index: int) -> Any:
            del node.children[2 * index + 1 : 2 * index + 3]
            return node

        @classmethod
        def examples(cls) -> Any:
            return ()

    chosen = {name: cosmic_ray.plugins.get_operator(f"core/{name}")() for name in PLAN["operators"]}
    return {**chosen, "DropTerm": DropTerm()}


def places(module: str) -> list[tuple[str, int, str]]:
    """Operator, occurrence and definition of all changes of a module, but for texts that are made for people."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.ast.ast_query import ASTQuery

    source = (ROOT / "src" / module).read_text(encoding="utf-8")
    lines, tree, found = source.splitlines(), get_ast(source), []
    for name, operator in operators().items():
        positions = [(node, start) for node in ast_nodes(tree) for start, _ in operator.mutation_positions(node)]
        for occurrence, (node, (line, _)) in enumerate(positions):
            definition = ASTQuery(node).get_definition_name() or ""
            if definition not in PLAN["without"] and "raise " not in lines[line - 1]:
                found.append((name, occurrence, definition))
    return found


def sampled(module: str, every: list[tuple[str, int, str]]) -> list[Mutant]:
    """As many as the plan says, all alike likely, in a random but fixed order."""
    from cosmic_ray.mutating import mutate_code

    lines = (source := (ROOT / "src" / module).read_text(encoding="utf-8")).splitlines()
    some = random.Random(PLAN["seed"]).sample(every, min(PLAN["sample"] or len(every), len(every)))
    found = []
    for name, occurrence, definition in some:
        changed = (mutate_code(source, operators()[name], occurrence) or source).splitlines()
        at = next((i for i, (a, b) in enumerate(zip(lines, changed, strict=False)) if a != b), None)
        if at is not None:
            found.append(Mutant(module, name, occurrence, at + 1, definition, lines[at].strip(), changed[at].strip()))
    return found


class Loader(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Gives one module another source."""

    def __init__(self, name: str, source: str, path: Path) -> None:
        self.name, self.source, self.path = name, source, path

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The one module, and no other."""
        return importlib.util.spec_from_loader(name, self, origin=str(self.path)) if name == self.name else None

    def get_source(self, name: str) -> str:
        """The other source."""
        return self.source


def survives(mutant: Mutant | None, files: list[str], module: str) -> bool:
    """Whether the tests pass, in a forked process; ``None`` is the module as it is."""
    from cosmic_ray.mutating import mutate_code

    path = ROOT / "src" / module
    source = path.read_text(encoding="utf-8")
    if mutant is not None:
        source = mutate_code(source, operators()[mutant.operator], mutant.occurrence) or source
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setsid()
            signal.alarm(PLAN["seconds"])
            for name in [n for n in sys.modules if n.split(".")[0] == "contrastlab"]:
                del sys.modules[name]
            dotted = module.removesuffix(".py").replace("/", ".")
            sys.meta_path.insert(0, Loader(dotted, source, path))
            import pytest

            silence = io.StringIO()
            with redirect_stdout(silence), redirect_stderr(silence):
                arguments = ["-x", "-q", "-p", "no:cacheprovider", *(str(ROOT / "tests" / file) for file in files)]
                code = int(pytest.main(arguments) != 0)
        except BaseException:
            code = 1
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0


def fingerprint(module: str) -> str:
    """Of a module and of the tests that guard it: what was tried before counts while it stays."""
    files = [ROOT / "src" / module, *(ROOT / "tests" / f for f in PLAN["killers"][module])]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]


def tried() -> dict[tuple[str, str], bool]:
    """(fingerprint, name) to whether a mutant survived."""
    if not STATE.is_file():
        return {}
    lines = map(json.loads, STATE.read_text(encoding="utf-8").splitlines())
    return {(entry["fingerprint"], entry["name"]): entry["survived"] for entry in lines}


def table(rows: list[dict[str, Any]], survivors: list[dict[str, Any]]) -> dict[str, Any]:
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()  # fmt: skip
    return {
        "date": date.today().isoformat(), "commit": commit,
        "tool": f"cosmic-ray {importlib.metadata.version('cosmic-ray')}",
        "sample": PLAN["sample"], "seed": PLAN["seed"], "cases": PLAN["cases"],
        "modules": rows, "survivors": survivors,
    }  # fmt: skip


def main() -> None:  # noqa: C901
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=40.0, help="stop after this time; a further run goes on")
    parser.add_argument("--only", default="", help="part of a module's name")
    parser.add_argument("--list", action="store_true", help="only count the mutants")
    chosen = parser.parse_args()
    end = time.monotonic() + 60 * chosen.minutes
    os.environ["CONTRASTLAB_CASES"] = str(PLAN["cases"])
    os.chdir(ROOT)
    known, rows, survivors = tried(), [], []
    explained = {(e["module"], e["before"], e["after"]): e["because"] for e in PLAN.get("explained", [])}
    if not chosen.list:
        for name in (
            "contrastlab.tables.plan",
            "contrastlab.methods",
            "contrastlab.information.bounds",
            "hypothesis",
            "pytest",
        ):
            importlib.import_module(name)
    every = {module: places(module) for module in PLAN["killers"]}
    some = {module: sampled(module, all_of_it) for module, all_of_it in every.items()}
    if chosen.list:
        for module in every:
            print(f"{module:32} {len(every[module]):5} mutants, {len(some[module])} tried")
        return
    marks = {module: fingerprint(module) for module in every}
    names = [(marks[m.module], m.name) for own in some.values() for m in own]
    outcome = {name: known[mark, name] for mark, name in names if (mark, name) in known}
    sound: set[str] = set()
    # one mutant of every module in turn, so that a run that ends early has tried as many of each
    for mutant in (m for turn in zip_longest(*some.values()) for m in turn if m is not None):
        module, files = mutant.module, PLAN["killers"][mutant.module]
        if mutant.name in outcome or chosen.only not in module or time.monotonic() > end:
            continue
        if module not in sound and not survives(None, files, module):
            sys.exit(f"{module}: the tests fail without any change")
        sound.add(module)
        outcome[mutant.name] = survives(mutant, files, module)
        STATE.parent.mkdir(exist_ok=True)
        with STATE.open("a", encoding="utf-8") as file:
            entry = {"fingerprint": marks[module], "name": mutant.name, "survived": outcome[mutant.name]}
            file.write(json.dumps(entry) + "\n")
        if outcome[mutant.name]:
            print(f"survived {mutant.name}, line {mutant.line}: {mutant.before} -> {mutant.after}", flush=True)
    for module, own in some.items():
        done = [m for m in own if m.name in outcome]
        left = [m for m in done if outcome[m.name]]
        rows.append({
            "module": module, "mutants": len(every[module]), "sampled": len(own), "tried": len(done),
            "killed": len(done) - len(left), "survived": len(left),
        })  # fmt: skip
        for m in left:
            survivors.append({**asdict(m), "because": explained.get((module, m.before, m.after), "")})
        print(rows[-1], flush=True)
    STORED.write_text(json.dumps(table(rows, survivors), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    unfinished = sum(row["sampled"] - row["tried"] for row in rows)
    print(f"{STORED.relative_to(ROOT)}: {len(survivors)} survivors; {unfinished} mutants left for a further run")


if __name__ == "__main__":
    main()
