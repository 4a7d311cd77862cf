# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Where are the parameters of half an AlexNet?
#
# **Tables 10 and 11 of *Contrastive Multiview Coding*** (`cmc`) print the two halves of an AlexNet, for STL-10 and
# for ImageNet. Here the same columns are read off the modules while they see a picture: side X of the output,
# channels C, kernel K, stride S, padding P.
#
# **Place your bet:** which layer has most of the parameters of one half?

# %% tags=["parameters"]
profile: str = "auto"  # auto (paper with a GPU, laptop without) | smoke | first | laptop | paper

# %% tags=["hide-cell"]
import pandas as pd
import torch

from contrastbook.figures import architecture
from contrastlab import encoders
from contrastlab.tables import notebook

nb = notebook.study("cmc_tables10_11", globals(), profiles=("smoke", "first", "laptop", "paper"))

# %%
small = encoders.build("half_alexnet64", in_channels=1, dim=64)
table10 = architecture.beside_published("cmc", 10, architecture.rows(small, torch.zeros(1, 1, 64, 64)))
table10

# %%
large = encoders.build("half_alexnet", in_channels=1, dim=128)
table11 = architecture.beside_published("cmc", 11, architecture.rows(large, torch.zeros(1, 1, 224, 224)))
table11

# %% [markdown]
# Parameters in millions. Nearly all are in fc6 and fc7, although these are halved twice, in inputs and outputs. The
# five convolutional blocks have few.

# %%
layers = {"Table 10": encoders.named_layers(small), "Table 11": encoders.named_layers(large)}
count = {k: {n: sum(p.numel() for p in m.parameters()) / 1e6 for n, m in named.items()} for k, named in layers.items()}
pd.DataFrame(count).round(2)

# %% tags=["check"]
for table in (table10, table11):
    inside = table.drop(index="data")
    assert inside.xs("code", axis=1, level=1).equals(inside.xs("printed", axis=1, level=1))
