# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # What was set, and what is set here?
#
# **Table 7 of *f-MICL*** (`fmicl`) prints no result but the settings behind all others: batch, dimension, learning
# rate, $\mu$, $1/2\sigma^2$, $\alpha$, epochs, and the neighbours of the k-NN classifier.
# Here each of its numbers stands beside the one that the protocol of this package has. A test compares them, too.
#
# Place your bet: is there a number in it that no run can have had?

# %% tags=["parameters"]
profile: str = "auto"  # auto (paper with a GPU, laptop without) | smoke | laptop | paper

# %% tags=["hide-cell"]
import pandas as pd

from contrastbook.studies import fmicl_tables
from contrastlab.reproduce import notebook

nb = notebook.study("fmicl_table7", globals())
pd.options.display.max_colwidth = None

# %%
cells = fmicl_tables.table()
printed = cells.pivot_table(index=["data", "encoder"], columns="setting", values="printed")
printed.map("{:g}".format).replace("nan", "–")

# %%
protocol = cells.pivot_table(index=["data", "encoder"], columns="setting", values="protocol")
protocol.map("{:g}".format).replace("nan", "–")

# %% [markdown]
# Cells that differ, and why:

# %%
cells[~cells["equal"]]

# %% tags=["check"]
assert (cells["equal"] | cells["why"].ne("")).all()
