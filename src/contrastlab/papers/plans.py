"""How published tables are made: rows, columns and the protocol behind each, read from TOML."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import PurePath
from typing import Any

from pydantic import ValidationError

from contrastlab import errors
from contrastlab.papers.published import HERE, PAPERS, stems
from contrastlab.papers.table_plan import REFERENCES, TablePlan


def plans() -> tuple[tuple[str, str], ...]:
    """The (paper, table) pairs whose protocol is at hand."""
    return tuple(stems("protocols", "toml"))


def parse_plan(text: str, name: str) -> TablePlan:
    """A plan from the text of a TOML file called ``<paper>_table<k>.toml``.

    ``protocol_of = "2"`` takes settings, data sets, methods and profiles from that table of the same paper, as far as
    they concern this table's rows; what this file says beside it wins field by field.

    Raises:
        ArgumentError: the file breaks a rule; the message names the file and the field.
    """
    paper, _, table = PurePath(name).stem.partition("_")
    table = table.removeprefix("table")
    try:
        raw = tomllib.loads(text)
        return TablePlan.model_validate({"paper": paper, "table": table, **_with_protocol(paper, table, raw)})
    except tomllib.TOMLDecodeError as error:
        raise errors.ArgumentError(f"{name} is not TOML: {error}") from error
    except errors.ContrastLabError as error:
        raise errors.ArgumentError(f"{name}: {error}") from error
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'file'}: {e['msg']}" for e in error.errors())
        raise errors.ArgumentError(f"{name}: {problems}") from error


def _with_protocol(paper: str, table: str, raw: dict[str, Any]) -> dict[str, Any]:
    """A plan's raw data with the protocol of the table that ``protocol_of`` names, if any."""
    other = raw.pop("protocol_of", None)
    if other is None:
        return raw
    known = [number for name, number in plans() if name == paper and number != table]
    if other not in known:
        raise errors.unknown(f"protocol_of: table of {paper} with a protocol", str(other), known)
    source = tomllib.loads(_protocol_text(paper, other))
    if "protocol_of" in source:
        raise errors.reject("protocol_of", other, "a table that has a protocol of its own")
    rows = {*raw.get("rows", {}), *REFERENCES}
    protocol = ("settings", "modality", "dataset", "method", "profile")
    shared: dict[str, Any] = {name: source[name] for name in protocol if name in source}
    scopes = [shared, *shared.get("profile", {}).values()]
    for holder in (*scopes, *(kind for scope in scopes for kind in scope.get("modality", {}).values())):
        holder["method"] = {name: changes for name, changes in holder.get("method", {}).items() if name in rows}
    return _merged(shared, raw)


def _merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    inner = [key for key in changes if isinstance(changes[key], dict) and isinstance(base.get(key), dict)]
    return base | changes | {key: _merged(base[key], changes[key]) for key in inner}


def _protocol_text(paper: str, table: str) -> str:
    return (HERE / "protocols" / stems("protocols", "toml")[paper, table]).read_text(encoding="utf-8")


@cache
def _plan(paper: str, table: str) -> TablePlan:
    return parse_plan(_protocol_text(paper, table), stems("protocols", "toml")[paper, table])


def plan(paper: str, table: int | str) -> TablePlan:
    """The rows, columns and protocol of one published table.

    Args:
        paper: short name.
        table: ``1``, ``"5a"``, ``"figure2"``; ``"table1"`` is ``1``.

    Raises:
        UnknownNameError: no such paper, or no protocol for that table.
    """
    if paper not in PAPERS:
        raise errors.unknown("paper", paper, PAPERS)
    known = [each for name, each in plans() if name == paper]
    number = str(table).removeprefix("table")
    if number not in known:
        raise errors.unknown(f"table of {paper} with a protocol", str(table), known)
    return _plan(paper, number)
