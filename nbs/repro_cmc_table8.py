# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # At which layer are the classes?
#
# **Table 8 of *Contrastive Multiview Coding*** (`cmc`) fits five linear classifiers on the five layers of two half
# AlexNets. A layer's map is max-pooled to about 9,600 values, so that no layer wins by its size. Thirteen more rows
# are numbers of other papers; they are shown but not computed here.
#
# **Place your bet:** in a pair of *random* networks, which layer is best, and is the last one better than the first?
#
# `papermill nbs/repro_cmc_table8.ipynb out.ipynb -p dataset cifar10 -p profile laptop -p seeds 0,1,2`

# %% tags=["parameters"]
dataset: str = "shapes"  # shapes | cifar10 | tinyimagenet32 | imagenet | folder:<path> | parquet:<path>
columns: str = "all"  # all, or columns by name
rows: str = "all"  # all, or rows by name: "alexnet,random_lab"
profile: str = "auto"  # auto (paper with a GPU, laptop without) | smoke | first | laptop | paper
seeds: str = "0"  # such as "0,1,2"
jobs: str = "auto"  # cells at a time; auto: one a core, or a GPU
data_root: str = ""  # folder of data sets; empty: CONTRASTLAB_DATA, or your cache
out_dir: str = "runs"  # new results and encoders, from the project's root

# %% tags=["hide-cell"]
from contrastlab.tables import notebook

nb = notebook.open("cmc", 8, globals())

# %%
nb.claim

# %% tags=["nbval-ignore-output"]
nb.kept()

# %% tags=["hide-output", "nbval-ignore-output"]
table = nb.run()
table

# %% [markdown]
# The published random network (11.6 to 17.1 %) is one whole AlexNet, quoted from another paper. Here the floor is
# what CMC starts from: two random halves. Compare each layer with them: the gain of training need not grow with the
# depth. In the stored runs of profile `laptop` (CIFAR-10, one seed) it adds next to nothing at conv1 and a few points
# at each later layer. There CMC is best at conv2 and falls from there to conv5, as the random halves do: the claim
# does not hold at this size. Only the supervised encoder is best at conv5.

# %% tags=["check"]
nb.check()
