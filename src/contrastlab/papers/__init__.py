"""What the papers say: every published number, and the protocol behind each table, as data.

Numbers are CSV files in ``tables/``; protocols are TOML files in ``protocols/``.

    >>> published("ring", 1).query("row == 'IRing' and column == 'CIFAR10'").value.item()
    83.9
    >>> plan("ring", 1).settings("cifar10", "ring/iring", "paper").epochs
    300
"""

from contrastlab import lab as _lab  # noqa: F401 - before what it looks for

# isort: split
from contrastlab.papers.profiles import SharedProfile, shared_profiles
from contrastlab.papers.published import PAPERS, Entry, catalogue, plans, published, tables
from contrastlab.papers.table_plan import REFERENCES, Column, TablePlan, parse_plan, plan

__all__ = [
    "PAPERS", "REFERENCES", "Column", "Entry", "SharedProfile", "TablePlan", "catalogue", "parse_plan",
    "plan", "plans", "published", "shared_profiles", "tables",
]  # fmt: skip
