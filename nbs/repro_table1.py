# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Is a harder negative a better teacher?
#
# **Table 1 of *Conditional Negative Sampling for Contrastive Learning of Visual Representations*** (`ring`) compares
# seven methods. A linear classifier scores the frozen features of each.
#
# **Place your bet:** contrast each image only with those that look *most like it* already, but not with the very
# closest. Do the features get better, worse, or no different?

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

nb = notebook.open("ring", 1, globals())

# %%
nb.claim

# %% tags=["nbval-ignore-output"]
nb.kept()

# %%
methods.get("ring/iring")

# %% tags=["hide-output", "nbval-ignore-output"]
table = nb.run()
table

# %% tags=["hide-output", "nbval-ignore-output"]
table.figure()

# %% tags=["hide-output", "nbval-ignore-output"]
table.summary

# %% [markdown]
# Read the differences (ring − base). Both methods of a pair share data, order and initial weights, seed by seed. The
# paper gives no spread over seeds. It describes the method in three ways: in the text, in Algorithm 1 and in the
# released code. The recipe's note says which one we took.

# %% tags=["check"]
nb.check()
