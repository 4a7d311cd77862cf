# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # What should two views have in common?
#
# **Figure 4 of *On Mutual Information in Contrastive Learning*** (`vince`) trains IR on CIFAR-10 with one kind of
# view at a time. It plots 1-NN accuracy against the information between the views. Lemma 3.1 estimates that
# information: the logarithm of the number of terms minus the loss. The paper does not say how strong each kind of
# view is.
#
# **Place your bet:** from *no change at all* to *a tenth of the picture*, the bound falls. Where is accuracy highest?
#
# `papermill nbs/repro_vince_figure4.ipynb out.ipynb -p dataset cifar10 -p profile laptop -p columns all`

# %% tags=["parameters"]
dataset: str = "shapes"  # shapes | digits | cifar10 | tinyimagenet32 | imagenet | folder:<path> | parquet:<path>
columns: str = "none,grey,jitter0.5,crop0.6,crop0.2,crop0.04to0.1"  # all, or columns by name
rows: str = "ir_nce,random"  # all, or rows by name
profile: str = "auto"  # auto (paper with a GPU, laptop without) | smoke | first | laptop | paper
seeds: str = "0"  # such as "0,1,2"
jobs: str = "auto"  # cells at a time; auto: one a core, or a GPU
data_root: str = ""  # folder of data sets; empty: CONTRASTLAB_DATA, or your cache
out_dir: str = "runs"  # new results and encoders, from the project's root

# %% tags=["hide-cell"]
from contrastbook.figures import tables as draw
from contrastbook.studies import sweep
from contrastlab.tables import notebook

nb = notebook.open("vince", "figure4", globals())

# %%
nb.claim

# %% tags=["nbval-ignore-output"]
nb.kept()

# %% tags=["hide-output", "nbval-ignore-output"]
table = nb.run(references_too=False)
lines = sweep.frame(table.plan, nb.results(), nb.dataset, nb.profile, columns)
lines.pivot_table(index="column", columns="label", values="accuracy", sort=False).round(1)

# %% tags=["nbval-ignore-output"]
draw.against_bound(lines, f"{nb.dataset}, profile {nb.profile}")

# %% [markdown]
# If a view changes nothing, any encoder that tells pictures apart brings the bound to its ceiling, whatever it does
# with classes. The paper speaks of a sweet spot, where two views share just what makes a class. The bound does not
# depend on classes, so it cannot say where that spot is. `cmc_nce` in column `none` has L and ab as its views; its
# bound is the mean over the two directions.

# %% tags=["check"]
nb.check()
