"""What the papers say: every published number, and the protocol behind each table, as data: the public door.

One paper, one folder: numbers are CSV files, protocols TOML files, beside the methods of the tables' rows.

    >>> published("ring", 1).query("row == 'IRing' and column == 'CIFAR10'").value.item()
    83.9
    >>> plan("ring", 1).settings("cifar10", "ring/iring", "paper").epochs
    300
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from contrastlab.support import doors

if TYPE_CHECKING:
    from contrastlab.tables.plan import REFERENCES, Column, TablePlan, parse_plan, plan
    from contrastlab.tables.profiles import PROFILE_VARIABLE, SharedProfile, choose_profile, is_paper, shared_profiles
    from contrastlab.tables.published import (
        PAPERS,
        Entry,
        catalogue,
        parse_seeds,
        parse_target,
        plans,
        published,
        tables,
    )

__all__ = [
    "PAPERS",
    "PROFILE_VARIABLE",
    "REFERENCES",
    "Column",
    "Entry",
    "SharedProfile",
    "TablePlan",
    "catalogue",
    "choose_profile",
    "is_paper",
    "parse_plan",
    "parse_seeds",
    "parse_target",
    "plan",
    "plans",
    "published",
    "shared_profiles",
    "tables",
]

_HOMES = {
    **dict.fromkeys(
        ("PROFILE_VARIABLE", "SharedProfile", "choose_profile", "is_paper", "shared_profiles"),
        "contrastlab.tables.profiles",
    ),
    **dict.fromkeys(
        ("PAPERS", "Entry", "catalogue", "parse_seeds", "parse_target", "plans", "published", "tables"),
        "contrastlab.tables.published",
    ),
    **dict.fromkeys(("REFERENCES", "Column", "TablePlan", "parse_plan", "plan"), "contrastlab.tables.plan"),
}


def __getattr__(name: str) -> Any:
    return doors.look_up(__name__, _HOMES, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
