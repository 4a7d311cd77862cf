"""What the papers say: every published number, and the protocol behind each table, as data.

Numbers are CSV files in ``tables/``; protocols are TOML files in ``protocols/``.

    >>> published("ring", 1).query("row == 'IRing' and column == 'CIFAR10'").value.item()
    83.9
    >>> plan("ring", 1).settings("cifar10", "ring/iring", "paper").epochs
    300
"""

import contrastlab.lab  # noqa: F401

from contrastlab.papers.profiles import PROFILE_VARIABLE, SharedProfile, choose_profile, is_paper, shared_profiles
from contrastlab.papers.published import PAPERS, Entry, catalogue, parse_seeds, parse_target, plans, published, tables
from contrastlab.papers.table_plan import REFERENCES, Column, TablePlan, parse_plan, plan

__all__ = [
    "PAPERS", "PROFILE_VARIABLE", "REFERENCES", "Column", "Entry", "SharedProfile", "TablePlan", "catalogue",
    "choose_profile", "is_paper", "parse_plan", "parse_seeds", "parse_target", "plan", "plans", "published",
    "shared_profiles", "tables",
]  # fmt: skip
