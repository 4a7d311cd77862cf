# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Does a ring of negatives hear better?
#
# **Table 5c of *Conditional Negative Sampling*** (`ring`) trains MoCo and MoCoRing on speech and asks six questions of
# the encoders: who speaks, which digit, which word, and the action, object and location of a command.
# The recipes are those of pictures; only the views are new: spectrograms with stretches of time and pitch left out.
#
# Place your bet: which of the six questions does an *untrained* network answer nearly as well?
#
# `papermill nbs/repro_ring_table5c.ipynb out.ipynb -p dataset fsdd -p profile laptop`

# %% tags=["parameters"]
dataset: str = "voices"  # of pre-training: voices | fsdd | librispeech | waves:<folder>
columns: str = "all"  # all, or columns by name: "voices_digit,voices_speaker"
rows: str = "all"  # all, or rows by name: "moco,mocoring"
profile: str = "auto"  # auto (paper with a GPU, laptop without) | smoke | first | laptop | paper
seeds: str = "0"  # such as "0,1,2"
jobs: str = "auto"  # cells at a time; auto: one a core, or a GPU
devices: str = "1"  # devices for one cell, or auto
data_root: str = ""  # folder of data sets; empty: CONTRASTLAB_DATA, or your cache
out_dir: str = "runs"  # new results and encoders, from the project's root

# %% tags=["hide-cell"]
from contrastlab.reproduce import notebook

nb = notebook.open("ring", "5c", globals())

# %%
nb.claim

# %% tags=["nbval-ignore-output"]
nb.kept()

# %% tags=["nbval-ignore-output"]
table = nb.run()
table

# %% [markdown]
# Read the line of the random encoder first. Pitch and throat are in every frame, so a speaker is told by almost any
# features, and a column that is nearly full cannot tell methods apart. A digit said by a person whom the classifier
# never heard is the harder question.

# %% tags=["check"]
nb.check()
