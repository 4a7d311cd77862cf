# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Do harder negatives teach anything about other pictures?
#
# **Table 3 of *Conditional Negative Sampling*** (`ring`) takes the encoders of its Table 1, trained on CIFAR-10, and
# fits a linear classifier on nine sets they never saw, from aircraft and fungi to digits and traffic signs.
#
# **Place your bet:** on which of the nine does a method gain by merely recognising a picture it has almost seen?
#
# `papermill nbs/repro_ring_table3.ipynb out.ipynb -p dataset cifar10 -p profile laptop`

# %% tags=["parameters"]
dataset: str = "shapes"  # of pre-training: shapes | cifar10 | tinyimagenet32 | folder:<path> | parquet:<path>
columns: str = "all"  # all, or columns by name: "fashionmnist,trafficsign,trafficsign_tracks"
rows: str = "all"  # all, or rows by name: "ir,iring"
profile: str = "auto"  # auto (paper with a GPU, laptop without) | smoke | first | laptop | paper
seeds: str = "0"  # such as "0,1,2"
jobs: str = "auto"  # cells at a time; auto: one a core, or a GPU
data_root: str = ""  # folder of data sets; empty: CONTRASTLAB_DATA, or your cache
out_dir: str = "runs"  # new results and encoders, from the project's root

# %% tags=["hide-cell"]
import pandas as pd

from contrastbook.studies import trafficsign
from contrastlab.tables import notebook

nb = notebook.open("ring", 3, globals())

# %%
nb.claim

# %% tags=["nbval-ignore-output"]
nb.kept()

# %% tags=["hide-output", "nbval-ignore-output"]
table = nb.run()
table

# %% [markdown]
# If the data of a column are missing, the column says where we looked for them. What does the column of traffic signs
# measure? The signs are filmed: thirty frames in a row show one sign. The next table has no encoder. Each test image
# gets the label of the training image with the nearest pixels; the numbers are percent of the test images:

# %%
leak = trafficsign.study(data_root=nb.data_root, out_dir=nb.out_dir, read_also=nb.read_also)
pd.DataFrame(leak.rows).drop(columns=["note", "fingerprint"]).round(1)

# %% tags=["check"]
nb.check()
