# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # How hard should sentences push each other apart?
#
# **Table 9 of *f-MICL*** (`fmicl`) learns sentences from dropout alone: the same sentence passes BERT twice, with
# other neurons dropped. The weight $\alpha$ of the negatives' term goes from 1 to a million, for KL and for Pearson.
# With $1/2\sigma^2=20$ two sentences at right angles have $u=e^{-40}$, so the term vanishes without a large weight.
#
# **Place your bet:** is a weight of 409,600 right for any encoder, or for the length of one run?
#
# `papermill nbs/repro_fmicl_table9.ipynb out.ipynb -p dataset wikisplit -p profile laptop -p rows all`

# %% tags=["parameters"]
dataset: str = "grammar"  # grammar | wikisplit | wikipedia | sentences:<file>
columns: str = "all"  # all, or columns by name
rows: str = "sentences_infonce,sentences_kl_alpha1,sentences_kl_alpha409600,sentences_pearson_alpha409600"  # or all
profile: str = "auto"  # auto (paper with a GPU, laptop without) | smoke | first | laptop | paper
seeds: str = "0"  # such as "0,1,2"
jobs: str = "auto"  # cells at a time; auto: one a core, or a GPU
data_root: str = ""  # folder of data sets; empty: CONTRASTLAB_DATA, or your cache
out_dir: str = "runs"  # new results and encoders, from the project's root

# %% tags=["hide-cell"]
from contrastlab import methods
from contrastlab.tables import notebook

nb = notebook.open("fmicl", 9, globals())

# %%
nb.claim

# %% tags=["nbval-ignore-output"]
nb.kept()

# %%
methods.get("fmicl/sentences_kl_alpha409600")

# %% tags=["hide-output", "nbval-ignore-output"]
table = nb.run()
table

# %% [markdown]
# The stored runs of profile `laptop` start from a pretrained network, and 300 steps of training harm it with every α
# and with InfoNCE. α = 1 harms it least, for KL and for Pearson; with two seeds that is only a hint. So the published
# weight fits the paper's long run from BERT, and not every encoder.
#
# Profile `smoke` starts from scratch. An untrained network adds up random vectors of words, so sentences that share
# words are near each other from the start. The page *Sound and sentences* shows what training does to
# that.

# %% tags=["check"]
nb.check()
