# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Which colours, how wide, how much augmentation?
#
# **Table 1 of *Contrastive Multiview Coding*** (`cmc`) trains one ResNet-50 on luminance and another on chrominance,
# of half, single and double width. One linear classifier predicts ImageNet's classes from both pooled maps.
#
# **Place your bet:** two untrained networks on L and ab, small pictures. Does a linear classifier gain from their
# width?
#
# `papermill nbs/repro_cmc_table1.ipynb out.ipynb -p dataset cifar10 -p profile laptop`

# %% tags=["parameters"]
dataset: str = "shapes"  # shapes | cifar10 | tinyimagenet32 | imagenet | folder:<path> | parquet:<path>
columns: str = "all"  # all, or columns by name
rows: str = "all"  # all, or rows by name: "lab,ydbdr"
profile: str = "auto"  # auto (paper with a GPU, laptop without) | smoke | first | laptop | paper
seeds: str = "0"  # such as "0,1,2"
jobs: str = "auto"  # cells at a time; auto: one a core, or a GPU
data_root: str = ""  # folder of data sets; empty: CONTRASTLAB_DATA, or your cache
out_dir: str = "runs"  # new results and encoders, from the project's root

# %% tags=["hide-cell"]
from contrastlab import methods
from contrastlab.tables import notebook

nb = notebook.open("cmc", 1, globals())

# %%
nb.claim

# %% tags=["nbval-ignore-output"]
nb.kept()

# %%
methods.get("cmc/ydbdr")

# %% tags=["hide-output", "nbval-ignore-output"]
table = nb.run()
table

# %% [markdown]
# The floor has as many random encoders as there are views. They see L and ab, and the rows of {Y,DbDr} are compared
# with them, too. YDbDr is scaled by constants that the authors released with another repository, years later: their
# mean for Db is −0.082, not the middle of its range, 0. RandAugment is theirs, too. It has two operations that change
# no colour, because a changed colour would change the information that one view has about the other.

# %% tags=["check"]
nb.check()
