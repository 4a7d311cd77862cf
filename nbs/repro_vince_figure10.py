# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # What does the temperature decide?
#
# **Figure 10 of *On Mutual Information in Contrastive Learning*** (`vince`) shows the 1-NN accuracy of IR for several
# temperatures, on ImageNet and CIFAR-10. "We find the best ω to be dataset dependent." The figure has no numbers.
#
# **Place your bet:** every table of the paper has τ = 0.07. Is it the best of these values here?
#
# `papermill nbs/repro_vince_figure10.ipynb out.ipynb -p dataset cifar10 -p profile laptop -p columns all`

# %% tags=["parameters"]
dataset: str = "shapes"  # shapes | digits | cifar10 | tinyimagenet32 | imagenet | folder:<path> | parquet:<path>
columns: str = "tau0.05,tau0.07,tau0.2,tau1"  # all, or columns by name
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

nb = notebook.open("vince", "figure10", globals())

# %%
nb.claim

# %% tags=["nbval-ignore-output"]
nb.kept()

# %% tags=["hide-output", "nbval-ignore-output"]
table = nb.run(references_too=False)
lines = sweep.frame(table.plan, nb.results(), nb.dataset, nb.profile, columns)
lines.pivot_table(index="column", columns="label", values="accuracy", sort=False).round(1)

# %% tags=["nbval-ignore-output"]
draw.by_value(lines, "τ, the temperature", f"{nb.dataset}, profile {nb.profile}", logarithmic=True)

# %% [markdown]
# Embeddings have length one, so a score lies between −1/τ and 1/τ. With τ = 1 the loss cannot fall far: even if the
# positive equals the query and all other keys are opposite to it, the positive outweighs them only by e² to *K* − 1.
# With a small τ only the nearest keys count. A ring of negatives does the same by rank.

# %% tags=["check"]
nb.check()
