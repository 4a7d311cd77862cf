# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # How much of the labels is in what the views share?
#
# **Table 3 of *Contrastive Multiview Coding*** (`cmc`) contrasts a luminance encoder with colour, depth and normals
# of the same room, along a core view or the full graph. A decoder then predicts classes of pixels from the frozen
# encoder.
#
# **Place your bet:** does it matter whether colour is also compared with depth?
#
# `papermill nbs/repro_cmc_table3.ipynb out.ipynb -p dataset rooms -p profile laptop -p seeds 0,1,2`

# %% tags=["parameters"]
dataset: str = "rooms"  # of pre-training: rooms | nyu_depth_v2 | camvid (no depth)
columns: str = "all"  # all, or columns by name
rows: str = "all"  # all, or rows by name: "core_4,full_4"
profile: str = "auto"  # auto (paper with a GPU, laptop without) | smoke | first | laptop | paper
seeds: str = "0"  # such as "0,1,2"
jobs: str = "auto"  # cells at a time; auto: one a core, or a GPU
data_root: str = ""  # folder of data sets; empty: CONTRASTLAB_DATA, or your cache
out_dir: str = "runs"  # new results and encoders, from the project's root

# %% tags=["hide-cell"]
from contrastlab import methods
from contrastlab.tables import notebook

nb = notebook.open("cmc", 3, globals())

# %%
nb.claim

# %% tags=["nbval-ignore-output"]
nb.kept()

# %% [markdown]
# The recipe contrasts each encoder's last layer with all places in the batch; those of the same room are the
# positives.

# %%
methods.get("cmc/core_4")

# %% tags=["hide-output", "nbval-ignore-output"]
table = nb.run()
table

# %% [markdown]
# The paper trains decoders for 200 epochs on contrasted encoders and for 1,000 on random and supervised ones, so its
# rows differ in training as well as in method. Profiles `smoke`, `first` and `laptop` give these rows the same
# length. Two more rows, *trained longer*, are the baselines with five times that length. On rooms there is a second
# difference: contrasted encoders saw 1,000 rooms without labels, and the supervised one the 200 rooms with labels
# that all decoders are trained on.

# %% tags=["check"]
nb.check()
