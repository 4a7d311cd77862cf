# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # How fast should a bank forget?
#
# **Figures 2 and 7 of *On Mutual Information in Contrastive Learning*** (`vince`) are about the memory bank. A row of
# it moves towards the new embedding of its image and keeps a share *α* of the old one. The figures vary α "from 0 (no
# memory bank) to near 1" for IR, LA and CMC, and compare the original IR with the one with InfoNCE, in 1-NN accuracy.
# The text names only the values 0 and 0.5.
#
# **Place your bet:** with α = 0 a row is the last embedding of one random view. With α = 0.99 it is the mean of a
# hundred, most of them by a network that has changed a lot since. Which loses more accuracy?
#
# `papermill nbs/repro_vince_figure7.ipynb out.ipynb -p dataset cifar10 -p profile laptop -p columns all -p rows all`

# %% tags=["parameters"]
dataset: str = "shapes"  # shapes | digits | cifar10 | tinyimagenet32 | imagenet | folder:<path> | parquet:<path>
columns: str = "alpha0,alpha0.5,alpha0.99"  # all, or columns by name
rows: str = "ir_nce,cmc_nce,random"  # all, or rows by name
profile: str = "auto"  # auto (paper with a GPU, laptop without) | smoke | first | laptop | paper
seeds: str = "0"  # such as "0,1,2"
jobs: str = "auto"  # cells at a time; auto: one a core, or a GPU
data_root: str = ""  # folder of data sets; empty: CONTRASTLAB_DATA, or your cache
out_dir: str = "runs"  # new results and encoders, from the project's root

# %% tags=["hide-cell"]
from contrastbook.figures import tables as draw
from contrastbook.studies import sweep
from contrastlab.tables import notebook

nb = notebook.open("vince", "figure7", globals())

# %%
nb.claim

# %% tags=["nbval-ignore-output"]
nb.kept()

# %% tags=["hide-output", "nbval-ignore-output"]
table = nb.run(references_too=False)
lines = sweep.frame(table.plan, nb.results(), nb.dataset, nb.profile, columns)
lines.pivot_table(index="column", columns="label", values="accuracy", sort=False).round(1)

# %% tags=["nbval-ignore-output"]
draw.by_value(lines, "α, the share of its old row that a row keeps", f"{nb.dataset}, profile {nb.profile}")

# %% [markdown]
# An image is seen once per epoch. After *n* epochs the newest embedding has the weight 1 − α and the first one α to
# the power *n* − 1, before the row is scaled to length one. With α = 0.99 and ten epochs the start is still most of
# the row. So the effect of α depends on the length of training, and a short run does not show the curve of a long
# one.

# %% tags=["check"]
nb.check()
