# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Which settings of f-MICL can be taken over?
#
# **Table 7 of *f-MICL*** (`fmicl`) lists the settings behind all results of the paper: batch, dimension, learning
# rate, $\mu$, $1/2\sigma^2$, $\alpha$, epochs, and the number of neighbours of the k-NN classifier. We compare each of
# them with the protocol of this package. A test repeats the comparison.
#
# **Place your bet:** does the table have a number with which no run can have worked?

# %% tags=["parameters"]
profile: str = "auto"  # auto (paper with a GPU, laptop without) | smoke | laptop | paper

# %% tags=["hide-cell"]
import pandas as pd

from contrastbook.studies import fmicl_tables
from contrastlab.tables import notebook

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
