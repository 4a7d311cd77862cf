# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Do the published networks fit together?
#
# **Table 12 of *Contrastive Multiview Coding*** (`cmc`) describes a network: a row for each layer, with its size,
# channels, kernel, stride and padding. We built it and compare each row with the module itself.
#
# **Place your bet:** how many of the published sizes are wrong?

# %% tags=["parameters"]
profile: str = "auto"  # auto (paper with a GPU, laptop without) | smoke | paper

# %% tags=["hide-cell"]
import torch

from contrastbook.figures import architecture
from contrastlab import encoders, papers
from contrastlab.domains.scenes.views import Channels
from contrastlab.tables import notebook

nb = notebook.study("architectures", globals())

# %% [markdown]
# ## Table 12: one channel of a scene
#
# Five convolutions and two fully connected layers for patches of 128 px; the first layer has as many input channels as
# the view: 1 for luminance, 2 for chrominance, 1 for depth, 3 for normals, 1 for a map of classes.

# %%
views = ("L", "ab", "depth", "normal", "label")
built = {view: encoders.build_for(Channels((view,)), 8, arch="scene", dim=256)[0] for view in views}
made = architecture.rows(built["L"], torch.zeros(1, 1, 128, 128))
architecture.beside_published("cmc", 12, made)

# %%
{view: (encoder.in_channels, sum(p.numel() for p in encoder.parameters())) for view, encoder in built.items()}

# %%
printed = papers.published("cmc", 12).pivot_table(index="row", columns="column", values="value").drop(index="data")
wrong = int((printed.loc[made.index, made.columns] != made).to_numpy().sum())
f"{wrong} of {made.size} printed sizes differ from those of the module."

# %% tags=["check"]
assert wrong == 0
