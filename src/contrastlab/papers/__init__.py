"""What the papers say: every published number, and the protocol behind each table, as data.

Numbers are CSV files in ``tables/``, one per table; protocols are TOML files in ``protocols/``. Neither is
ever typed into code, a chapter or a notebook.

    >>> published("ring", 1).query("row == 'IRing' and column == 'CIFAR10'").value.item()
    83.9
    >>> plan("ring", 1).settings("cifar10", "ring/iring", "paper").epochs
    300
"""

from contrastlab.papers.catalogue import Entry, catalogue
from contrastlab.papers.plans import parse_plan, plan, plans
from contrastlab.papers.profiles import SharedProfile, shared_profiles
from contrastlab.papers.published import PAPERS, Paper, published, tables
from contrastlab.papers.table_plan import REFERENCES, Column, TablePlan

__all__ = [
    "PAPERS",
    "REFERENCES",
    "Column",
    "Entry",
    "Paper",
    "SharedProfile",
    "TablePlan",
    "catalogue",
    "parse_plan",
    "plan",
    "plans",
    "published",
    "shared_profiles",
    "tables",
]
