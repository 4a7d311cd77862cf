# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # What does a fourth view add?
#
# **Figure 4 of *Contrastive Multiview Coding*** (`cmc`) adds colour, depth and normals to luminance in contrastive
# training, one after the other. Each time a decoder predicts classes of pixels from the luminance encoder.
#
# **Place your bet:** which of the three adds most?
#
# `papermill nbs/repro_cmc_figure4.ipynb out.ipynb -p dataset rooms -p profile laptop -p seeds 0,1,2`

# %% tags=["parameters"]
dataset: str = "rooms"  # of pre-training: rooms | nyu_depth_v2 | camvid (one and two views)
columns: str = "all"  # all, or columns by name
rows: str = "all"  # all, or rows by name: "views_1,core_4"
profile: str = "auto"  # auto (paper with a GPU, laptop without) | smoke | first | laptop | paper
seeds: str = "0"  # such as "0,1,2"
jobs: str = "auto"  # cells at a time; auto: one a core, or a GPU
data_root: str = ""  # folder of data sets; empty: CONTRASTLAB_DATA, or your cache
out_dir: str = "runs"  # new results and encoders, from the project's root

# %% tags=["hide-cell"]
import torch

from contrastbook.figures import pictures
from contrastbook.studies import scene_pictures
from contrastlab import data, methods
from contrastlab.tables import notebook

nb = notebook.open("cmc", "figure4", globals())

# %%
nb.claim

# %% tags=["nbval-ignore-output"]
nb.kept()

# %% [markdown]
# A scene is a picture with further channels, registered pixel by pixel. These are generated: rays meet floor, walls,
# spheres and turned boxes, so depth, normals and classes are exact.

# %%
splits = data.load(dataset, nb.data_root)
test = splits.test.subset(torch.arange(4))
whole = torch.stack([test[k] for k in range(4)]).float()
whole[:, :3] /= 255
pictures.channels(whole, test.pixel_classes)

# %% [markdown]
# The last layer of one encoder is contrasted with places on the other encoder's map: places of the same room are
# positives, those of other rooms negatives. A view alone is contrasted with its own map, which is local DIM.
# Information that all four views share counts three times with a core view and six times in the full graph. What only
# luminance and colour share counts once in both.
#
# Only the luminance encoder is evaluated, so all rows have the same floor, a random encoder of luminance. An added
# view can help by what it teaches, and not by being seen at the test.

# %%
methods.get("cmc/core_4")

# %% tags=["hide-output", "nbval-ignore-output"]
table = nb.run()
table

# %% [markdown]
# The pictures show what a decoder predicts from a random, a contrasted and a supervised encoder of luminance (profile
# `laptop`, where the project keeps them):

# %% tags=["nbval-ignore-output"]
seen = scene_pictures.study(dataset, nb.profile, data_root=nb.data_root, out_dir=nb.out_dir, read_also=nb.read_also)
pictures.segmentations(whole, scene_pictures.predictions(seen, (4, *whole.shape[2:])), test.pixel_classes)

# %% tags=["check"]
nb.check()
