"""Changes the formulas that the tests guard, one place at a time, and lists the changes that no test notices.

``make mutants`` reads ``mutants.toml`` and writes ``results/mutants.json``. The changes are those of cosmic-ray, and a
term left out of a sum. Every mutant is tried in a process of its own, forked from one that has imported what the
tests import, with the mutated module in place of the file; no file is changed. A run that is broken off goes on where
it was; a module, or a test, that has changed begins again.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import io
import json
import os
import random
import resource
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

import pytest

ROOT = Path(__file__).parents[1]
STORED = ROOT / "benchmarks" / "results" / "mutants.json"
STATE = ROOT / "runs" / "mutants.jsonl"
PLAN = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
OWN = ("contrastlab", "contrastbook")
"""Packages that a fork imports afresh: they may hold names of the mutated module."""


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


def source_of(module: str) -> str:
    """Text of a module, named by its path below ``src``."""
    return (ROOT / "src" / module).read_text(encoding="utf-8")


@functools.cache
def operators() -> dict[str, Any]:
    """Name to operator: those of cosmic-ray that the plan names, and a term left out."""
    import cosmic_ray.plugins
    from cosmic_ray.operators.operator import Operator

    class DropTerm(Operator):
        """``a + b`` to ``a``: what was added or taken away is missing."""

        def mutation_positions(self, node: Any) -> Any:
            if node.type != "arith_expr":
                return []
            signs = range(1, len(node.children), 2)
            return [(node.children[sign].start_pos, node.children[sign + 1].end_pos) for sign in signs]

        def mutate(self, node: Any, index: int) -> Any:
            sign = 2 * index + 1
            del node.children[sign : sign + 2]
            return node

        @classmethod
        def examples(cls) -> Any:
            return ()

    chosen = {name: cosmic_ray.plugins.get_operator(f"core/{name}")() for name in PLAN["operators"]}
    return {**chosen, "DropTerm": DropTerm()}


def mutated(module: str, operator: str, occurrence: int) -> str:
    """Text of a module after one change."""
    from cosmic_ray.mutating import mutate_code

    return mutate_code(source_of(module), operators()[operator], occurrence) or source_of(module)


def places(module: str) -> list[tuple[str, int, str]]:
    """Operator, occurrence and definition of all changes of a module, except in texts for people."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.ast.ast_query import ASTQuery

    lines = source_of(module).splitlines()
    tree = get_ast(source_of(module))
    every = []
    for name, operator in operators().items():
        positions = [(node, start) for node in ast_nodes(tree) for start, _ in operator.mutation_positions(node)]
        for occurrence, (node, (line, _)) in enumerate(positions):
            definition = ASTQuery(node).get_definition_name() or ""
            is_message = definition in PLAN["without"] or "raise " in lines[line - 1]
            if not is_message:
                every.append((name, occurrence, definition))
    return every


def sample(module: str, every: list[tuple[str, int, str]]) -> list[Mutant]:
    """As many as the plan says, each with the same probability, in a random but fixed order."""
    count = PLAN["sample"] or len(every)
    some = random.Random(PLAN["seed"]).sample(every, min(count, len(every)))
    before = source_of(module).splitlines()
    mutants = []
    for operator, occurrence, definition in some:
        after = mutated(module, operator, occurrence).splitlines()
        changed = [i for i, (old, new) in enumerate(zip(before, after, strict=False)) if old != new]
        if changed:
            line = changed[0]
            old, new = before[line].strip(), after[line].strip()
            mutants.append(Mutant(module, operator, occurrence, line + 1, definition, old, new))
    return mutants


class Loader(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Loads one module from another text."""

    def __init__(self, module: str, source: str) -> None:
        self.name = module.removesuffix(".py").replace("/", ".")
        self.path = ROOT / "src" / module
        self.source = source

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The one module, and no other."""
        if name != self.name:
            return None
        return importlib.util.spec_from_loader(name, self, origin=str(self.path))

    def get_source(self, name: str) -> str:
        """The other text."""
        return self.source


def run_pytest(*arguments: str) -> int:
    """Status of pytest, which prints nothing."""
    silence = io.StringIO()
    with redirect_stdout(silence), redirect_stderr(silence):
        return int(pytest.main(["-q", "-p", "no:cacheprovider", *arguments]))


def import_what_tests_import(files: list[str]) -> None:
    """Other packages stay imported, for the forks; the project's modules, programs and tests are forgotten."""
    run_pytest("--collect-only", *files)
    folders = (str(ROOT / "tests"), str(ROOT / "benchmarks"))
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None) or ""
        is_own = name.partition(".")[0] in OWN or path.startswith(folders)
        if is_own and name != "__main__":
            del sys.modules[name]


def survives(module: str, source: str, files: list[str]) -> bool:
    """Whether the tests pass with this text of a module, in a forked process of limited processor time."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setsid()
            used = time.process_time()
            limit = int(used + PLAN["cpu_seconds"])
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
            sys.meta_path.insert(0, Loader(module, source))
            status = run_pytest("-x", *files)
        finally:
            os._exit(int(status != 0))
    _, status = os.waitpid(child, 0)
    return os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0


def test_files(module: str) -> list[str]:
    """Tests that guard a module."""
    return [str(ROOT / "tests" / file) for file in PLAN["killers"][module]]


def fingerprint(module: str) -> str:
    """Of a module and of the tests that guard it: a try counts as long as it stays."""
    files = [ROOT / "src" / module, *map(Path, test_files(module))]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]


class Tries:
    """Whether mutants survived, kept in ``STATE`` line by line."""

    def __init__(self) -> None:
        self.fingerprints = {module: fingerprint(module) for module in PLAN["killers"]}
        self.outcomes: dict[tuple[str, str], bool] = {}
        if STATE.is_file():
            for line in STATE.read_text(encoding="utf-8").splitlines():
                entry = json.loads(line)
                self.outcomes[entry["fingerprint"], entry["name"]] = entry["survived"]

    def key(self, mutant: Mutant) -> tuple[str, str]:
        """Of the same change of the same text under the same tests."""
        return self.fingerprints[mutant.module], mutant.name

    def __contains__(self, mutant: Mutant) -> bool:
        return self.key(mutant) in self.outcomes

    def survived(self, mutant: Mutant) -> bool:
        """Outcome of a mutant that was tried."""
        return self.outcomes[self.key(mutant)]

    def add(self, mutant: Mutant, survived: bool) -> None:
        """Keep an outcome."""
        self.outcomes[self.key(mutant)] = survived
        mark, name = self.key(mutant)
        STATE.parent.mkdir(exist_ok=True)
        with STATE.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"fingerprint": mark, "name": name, "survived": survived}) + "\n")


def try_all(samples: dict[str, list[Mutant]], tries: Tries, minutes: float) -> None:
    """Try what was not tried, a mutant of each module in turn: a run that ends early has tried as many of each."""
    end = time.monotonic() + 60 * minutes
    sound: set[str] = set()
    turns = zip_longest(*samples.values())
    for mutant in (mutant for turn in turns for mutant in turn if mutant is not None):
        if mutant in tries:
            continue
        if time.monotonic() > end:
            return
        files = test_files(mutant.module)
        if mutant.module not in sound:
            if not survives(mutant.module, source_of(mutant.module), files):
                sys.exit(f"{mutant.module}: the tests fail without any change")
            sound.add(mutant.module)
        source = mutated(mutant.module, mutant.operator, mutant.occurrence)
        survived = survives(mutant.module, source, files)
        tries.add(mutant, survived)
        if survived:
            print(f"survived {mutant.name}, line {mutant.line}: {mutant.before} -> {mutant.after}", flush=True)


def commit() -> str:
    """What is checked out, by its short name."""
    revision = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(revision, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


def report(counts: dict[str, int], samples: dict[str, list[Mutant]], tries: Tries) -> dict[str, Any]:
    """What was tried, as it is stored: a row for each module, and every mutant that survived."""
    because = {(each["module"], each["before"], each["after"]): each["because"] for each in PLAN.get("explained", [])}
    rows, survivors = [], []
    for module, mutants in samples.items():
        done = [mutant for mutant in mutants if mutant in tries]
        left = [mutant for mutant in done if tries.survived(mutant)]
        row = {"module": module, "mutants": counts[module], "sampled": len(mutants), "tried": len(done)}
        rows.append({**row, "killed": len(done) - len(left), "survived": len(left)})
        for mutant in left:
            reason = because.get((module, mutant.before, mutant.after), "")
            survivors.append({**asdict(mutant), "because": reason})
    return {
        "date": date.today().isoformat(),
        "commit": commit(),
        "tool": f"cosmic-ray {importlib.metadata.version('cosmic-ray')}",
        "sample": PLAN["sample"],
        "seed": PLAN["seed"],
        "cases": PLAN["cases"],
        "modules": rows,
        "survivors": survivors,
    }


def main() -> None:
    """Try mutants, and store what came of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0, help="stop after this time; a further run goes on")
    parser.add_argument("--list", action="store_true", help="only count the mutants")
    given = parser.parse_args()
    os.environ["CONTRASTLAB_CASES"] = str(PLAN["cases"])
    os.chdir(ROOT)
    every = {module: places(module) for module in PLAN["killers"]}
    counts = {module: len(of_module) for module, of_module in every.items()}
    samples = {module: sample(module, of_module) for module, of_module in every.items()}
    if given.list:
        for module, count in counts.items():
            print(f"{module:40} {count:5} mutants, {len(samples[module])} sampled")
        return
    import_what_tests_import(sorted({file for module in samples for file in test_files(module)}))
    tries = Tries()
    try_all(samples, tries, given.minutes)
    record = report(counts, samples, tries)
    for row in record["modules"]:
        print(row)
    STORED.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    left = sum(row["sampled"] - row["tried"] for row in record["modules"])
    print(f"{STORED.relative_to(ROOT)}: {len(record['survivors'])} survivors; {left} mutants left for a further run")


if __name__ == "__main__":
    main()
