# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Does the order of CIFAR-10 hold on ImageNet?
#
# **Table 2a of *On Mutual Information in Contrastive Learning for Visual Representations*** (`vince`) takes eleven of
# its algorithms to ImageNet and fits a linear classifier: top-1 and top-5 accuracy.
#
# **Place your bet:** how far is BALL from IR, and how far again with annealing?
#
# `papermill nbs/repro_vince_table2a.ipynb out.ipynb -p dataset tinyimagenet32 -p profile laptop`

# %% tags=["parameters"]
dataset: str = "shapes"  # of pre-training: shapes | tinyimagenet32 | imagenet | folder:<path> | parquet:<path>
columns: str = "all"  # all, or columns by name, see `nb.plan().columns`
rows: str = "ir_nce,ball_anneal"  # all, or rows by name
profile: str = "auto"  # auto (paper with a GPU, laptop without) | smoke | first | laptop | paper
seeds: str = "0"  # such as "0,1"
jobs: str = "auto"  # cells at a time; auto: one a core, or a GPU
data_root: str = ""  # folder of data sets; empty: CONTRASTLAB_DATA, or your cache
out_dir: str = "runs"  # new results, encoders and detectors, from the project's root

# %% tags=["hide-cell"]
from contrastlab.tables import notebook

nb = notebook.open("vince", "2a", globals())

# %%
nb.claim

# %% tags=["nbval-ignore-output"]
nb.kept()

# %% tags=["hide-output", "nbval-ignore-output"]
table = nb.run()
table

# %% [markdown]
# Balls hold 0.3 % of ImageNet's rows, about 3,800 pictures; on a tenth of the pictures the same share is a tenth of
# them, so small profiles keep CIFAR-10's 10 %. With five classes or fewer, top-5 accuracy is n/a.

# %% tags=["check"]
nb.check()
