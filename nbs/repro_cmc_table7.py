# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Does the last layer forget?
#
# **Table 7 of *Contrastive Multiview Coding*** (`cmc`) cuts a small AlexNet in two halves for L and ab and trains it
# on STL-10 without labels. Classifiers predict the ten classes from conv5 and from fc7: a linear one, and one with a
# hidden layer of 200 units. Seven more rows are shown but not computed here. Six are numbers of other papers, and the
# authors of CMC trained SplitBrain again.
#
# **Place your bet:** SplitBrain loses nine points from conv5 to fc7. What happens to CMC?
#
# `papermill nbs/repro_cmc_table7.ipynb out.ipynb -p dataset cifar10 -p profile laptop -p seeds 0,1,2`

# %% tags=["parameters"]
dataset: str = "shapes"  # shapes | cifar10 | tinyimagenet32 | stl10 | folder:<path> | parquet:<path>
columns: str = "all"  # all, or columns by name
rows: str = "all"  # all, or rows by name: "stl10,stl10_patch"
profile: str = "auto"  # auto (paper with a GPU, laptop without) | smoke | first | laptop | paper
seeds: str = "0"  # such as "0,1,2"
jobs: str = "auto"  # cells at a time; auto: one a core, or a GPU
data_root: str = ""  # folder of data sets; empty: CONTRASTLAB_DATA, or your cache
out_dir: str = "runs"  # new results and encoders, from the project's root

# %% tags=["hide-cell"]
from contrastlab.tables import notebook

nb = notebook.open("cmc", 7, globals())

# %%
nb.claim

# %% tags=["nbval-ignore-output"]
nb.kept()

# %% tags=["hide-output", "nbval-ignore-output"]
table = nb.run()
table

# %% [markdown]
# *Patch* contrasts a whole view with places on the other network's map of conv2, *NCE* with 4,096 entries of a bank.
# They differ in more than the loss: Adam and 200 epochs against SGD and 320. The third published column, strided
# crops, cuts patches of 16 px. Our networks have no fc6 for such patches, so it is not computed.

# %% tags=["check"]
nb.check()
