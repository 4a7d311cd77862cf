# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Does every view learn from the others?
#
# **Table 4 of *Contrastive Multiview Coding*** (`cmc`) trains four encoders on the full graph: luminance,
# chrominance, depth, normals. A decoder predicts classes of pixels from each of them alone.
#
# **Place your bet:** which view gains most over its own random encoder?
#
# `papermill nbs/repro_cmc_table4.ipynb out.ipynb -p dataset rooms -p profile laptop -p seeds 0,1,2`

# %% tags=["parameters"]
dataset: str = "rooms"  # of pre-training: rooms | nyu_depth_v2 | camvid (L and ab)
columns: str = "all"  # all, or columns by name
rows: str = "all"  # all, or rows by name: "full_4,scenes_random"
profile: str = "auto"  # auto (paper with a GPU, laptop without) | smoke | first | laptop | paper
seeds: str = "0"  # such as "0,1,2"
jobs: str = "auto"  # cells at a time; auto: one a core, or a GPU
data_root: str = ""  # folder of data sets; empty: CONTRASTLAB_DATA, or your cache
out_dir: str = "runs"  # new results and encoders, from the project's root

# %% tags=["hide-cell"]
from contrastlab import papers
from contrastlab.tables import notebook

nb = notebook.open("cmc", 4, globals())

# %%
nb.claim

# %% tags=["nbval-ignore-output"]
nb.kept()

# %% [markdown]
# The paper calls end-to-end training an upper bound. It is not one: a decoder that is fitted on few labels can do
# better on features that were learnt without labels. The published numbers already show this in some cells (points of
# CMC above Supervised):

# %%
printed = papers.published("cmc", 4).pivot_table(index="row", columns="column", values="value", sort=False)
gaps = {m: printed.loc[f"CMC {m}"] - printed.loc[f"Supervised {m}"] for m in ("mIoU", "pix. acc.")}
{(m, view): round(float(gap), 1) for m, row in gaps.items() for view, gap in row.items() if gap > 0}

# %% tags=["hide-output", "nbval-ignore-output"]
table = nb.run()
table

# %% tags=["check"]
nb.check()
