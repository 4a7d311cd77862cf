# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # How many negatives are enough?
#
# **Figure 6 of *Contrastive Multiview Coding*** (`cmc`) varies the number of negatives per query from 64 to 8,192,
# with NCE and half AlexNets on ImageNet-100. The paper gives one number: accuracy saturates at about 60.3 %, with
# 4,096 negatives.
#
# **Place your bet:** the bound on the information grows with the logarithm of their number. Does accuracy?
#
# `papermill nbs/repro_cmc_figure6.ipynb out.ipynb -p dataset cifar10 -p profile laptop -p seeds 0,1,2`

# %% tags=["parameters"]
dataset: str = "shapes"  # shapes | cifar10 | tinyimagenet32 | imagenet100 | folder:<path> | parquet:<path>
rows: str = "all"  # all, or rows by name: "k64,k4096"
profile: str = "auto"  # auto (paper with a GPU, laptop without) | smoke | first | laptop | paper
seeds: str = "0"  # such as "0,1,2"
jobs: str = "auto"  # cells at a time; auto: one a core, or a GPU
data_root: str = ""  # folder of data sets; empty: CONTRASTLAB_DATA, or your cache
out_dir: str = "runs"  # new results and encoders, from the project's root

# %% tags=["hide-cell"]
from contrastlab.tables import notebook

nb = notebook.open("cmc", "figure6", globals())

# %%
nb.claim

# %% tags=["nbval-ignore-output"]
nb.kept()

# %% tags=["hide-output", "nbval-ignore-output"]
table = nb.run()
table

# %% tags=["hide-output", "nbval-ignore-output"]
table.figure()

# %% tags=["hide-output", "nbval-ignore-output"]
table.summary

# %% [markdown]
# Negatives are drawn with replacement. If there are fewer pictures than negatives, most keys are drawn more than
# once, and more negatives add little. Each bank here has as many rows as there are pictures.

# %% tags=["check"]
nb.check()
