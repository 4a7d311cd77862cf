# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Which part of the ring does the work?
#
# **Table 2 of *Conditional Negative Sampling*** (`ring`) takes IRing apart: without annealing the outer edge (*No
# Anneal*), and without the hole in the middle (*l = 0*: a ball instead of a ring).
#
# **Place your bet:** a ring of the closest 1–10 % from the very first step, when the embeddings are still random.
# Does it help, hurt, or make no difference?

# %% tags=["parameters"]
dataset: str = "shapes"  # shapes | digits | cifar10 | cifar100 | stl10 | imagenet | folder:<path> | parquet:<path>
rows: str = "all"  # all, or rows by name: "ir,iring"
profile: str = "auto"  # auto (paper with a GPU, laptop without) | smoke | first | laptop | paper
seeds: str = "0"  # such as "0,1,2"
jobs: str = "auto"  # cells at a time; auto: one a core, or a GPU
data_root: str = ""  # folder of data sets; empty: CONTRASTLAB_DATA, or your cache
out_dir: str = "runs"  # new results and encoders, from the project's root

# %% tags=["hide-cell"]
from contrastlab import methods
from contrastlab.tables import notebook

nb = notebook.open("ring", 2, globals())

# %%
nb.claim

# %% tags=["nbval-ignore-output"]
nb.kept()

# %%
methods.get("ring/iring_noanneal")

# %% tags=["hide-output", "nbval-ignore-output"]
table = nb.run()
table

# %% tags=["hide-output", "nbval-ignore-output"]
table.figure()

# %% tags=["hide-output", "nbval-ignore-output"]
table.summary

# %% [markdown]
# The hole removes the keys most likely to be the same thing as the query. Annealing waits with the selection until
# nearness means something. At the sizes `smoke` and `laptop` neither effect has to show, because one percent of few
# images is a handful of keys. Protocol, two of the rows and their runs are those of Table 1.

# %% tags=["check"]
nb.check()
