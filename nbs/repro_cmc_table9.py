# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # What do other methods add to two views?
#
# **Table 9 of *Contrastive Multiview Coding*** (`cmc`) adds to CMC a momentum encoder and a queue for each view
# (MoCo), a second head that sees nine shuffled patches (PIRL), both, and RandAugment. CMC has two half networks; the
# other methods have one whole ResNet-50.
#
# **Place your bet:** which of the two ideas adds more, and do their gains add up?
#
# `papermill nbs/repro_cmc_table9.ipynb out.ipynb -p dataset cifar10 -p profile laptop -p seeds 0,1,2`

# %% tags=["parameters"]
dataset: str = "shapes"  # shapes | cifar10 | tinyimagenet32 | imagenet100 | folder:<path> | parquet:<path>
rows: str = "all"  # all, or rows by name: "cmc,cmc_moco"
profile: str = "auto"  # auto (paper with a GPU, laptop without) | smoke | first | laptop | paper
seeds: str = "0"  # such as "0,1,2"
jobs: str = "auto"  # cells at a time; auto: one a core, or a GPU
data_root: str = ""  # folder of data sets; empty: CONTRASTLAB_DATA, or your cache
out_dir: str = "runs"  # new results and encoders, from the project's root

# %% tags=["hide-cell"]
from contrastlab import methods
from contrastlab.tables import notebook

nb = notebook.open("cmc", 9, globals())

# %%
nb.claim

# %% tags=["nbval-ignore-output"]
nb.kept()

# %%
methods.get("cmc/cmc_moco_pirl")

# %% tags=["hide-output", "nbval-ignore-output"]
table = nb.run()
table

# %% tags=["hide-output", "nbval-ignore-output"]
table.summary

# %% [markdown]
# The text says "the same contrastive loss"; the code shows that it is a softmax without Z₀. Rows without a published
# number are ours: InsDis, the NCE loss on a queue, and CMCv2 as released. The released code does one thing that no
# text mentions: it passes the patches' embeddings in swapped order. So patches of Y are contrasted with keys of Y,
# and no longer with those of DbDr.

# %% tags=["check"]
nb.check()
