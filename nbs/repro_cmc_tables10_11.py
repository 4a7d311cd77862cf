# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # The half networks, layer by layer
#
# **Tables 10 and 11 of *Contrastive Multiview Coding*** (`cmc`) print the two halves of an AlexNet, for STL-10 and for
# ImageNet. Here the same columns are read off the modules while they see a picture: side X of the output, channels C,
# kernel K, stride S, padding P.
#
# Place your bet: most of the parameters of one half are in which layer?

# %% tags=["parameters"]
profile: str = "auto"  # auto (paper with a GPU, laptop without) | smoke | first | laptop | paper

# %% tags=["hide-cell"]
import pandas as pd

from contrastlab import encoders, papers
from contrastlab.reproduce import notebook

nb = notebook.study("cmc_tables10_11", globals(), profiles=("smoke", "first", "laptop", "paper"))

# %%
halves = {
    "10": encoders.build("half_alexnet64", in_channels=1, dim=64).eval(),
    "11": encoders.build("half_alexnet", in_channels=1, dim=128).eval(),
}
modules = {k: pd.DataFrame(encoders.architecture(e, {"10": 64, "11": 224}[k])) for k, e in halves.items()}
printed = {}
for k, rows in modules.items():
    numbers = papers.published("cmc", k).assign(column=lambda t: t["column"].str[0])
    wide = numbers.pivot_table(index="row", columns="column", values="value", sort=False)
    printed[k] = wide.reindex(rows["layer"])[list("XCKSP")]
pd.concat({"printed": printed["10"], "modules": modules["10"].set_index("layer")}, axis=1)

# %%
pd.concat({"printed": printed["11"], "modules": modules["11"].set_index("layer")}, axis=1)

# %% [markdown]
# Parameters in millions. Nearly all are in fc6 and fc7, which are halved twice, in and out; the five blocks hold few.

# %%
pd.DataFrame(
    {f"Table {k}": {n: sum(p.numel() for p in m.parameters()) / 1e6 for n, m in encoders.named_layers(e).items()}
     for k, e in halves.items()}
).round(2)  # fmt: skip

# %% tags=["check"]
for k, rows in modules.items():
    ours = rows.set_index("layer")[list("XCKSP")]
    ours.loc["data", "C"] = float("nan")  # printed as *: 1 for L, 2 for ab
    assert ours.astype(float).equals(printed[k].astype(float))
