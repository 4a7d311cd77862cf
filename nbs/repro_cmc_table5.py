# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Predict the other view, or tell it apart?
#
# **Table 5 of *Contrastive Multiview Coding*** (`cmc`) trains two luminance encoders alike: one predicts depth,
# normals or labels pixel by pixel, the other is contrasted with them. Then a linear classifier is trained on the
# features of both, on pictures of another kind.
#
# **Place your bet:** which of the two is better on pictures that it never saw?
#
# `papermill nbs/repro_cmc_table5.ipynb out.ipynb -p dataset rooms -p profile laptop -p seeds 0,1,2`

# %% tags=["parameters"]
dataset: str = "rooms"  # of pre-training: rooms | nyu_depth_v2
columns: str = "all"  # all, or columns by name: stl10, cifar10, "rooms linear_L"
rows: str = "all"  # all, or rows by name: "predict_depth,contrast_depth"
profile: str = "auto"  # auto (paper with a GPU, laptop without) | smoke | first | laptop | paper
seeds: str = "0"  # such as "0,1,2"
jobs: str = "auto"  # cells at a time; auto: one a core, or a GPU
data_root: str = ""  # folder of data sets; empty: CONTRASTLAB_DATA, or your cache
out_dir: str = "runs"  # new results and encoders, from the project's root

# %% tags=["hide-cell"]
from contrastlab import methods
from contrastlab.tables import notebook

nb = notebook.open("cmc", 5, globals())

# %%
nb.claim

# %% tags=["nbval-ignore-output"]
nb.kept()

# %% [markdown]
# Predicting is a recipe, too: the only key is the other view itself, and there are no negatives.

# %%
methods.get("cmc/predict_depth")

# %% tags=["hide-output", "nbval-ignore-output"]
table = nb.run()
table

# %% [markdown]
# If STL-10 is missing, its column says where we looked for it. The other columns are classes of CIFAR-10 and the
# content of rooms.

# %% tags=["check"]
nb.check()
