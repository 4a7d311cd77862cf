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
# **Table 5c of *Conditional Negative Sampling*** (`ring`) trains MoCo and MoCoRing on speech and asks the encoders
# six questions: who speaks, which digit, which word, and the action, object and location of a command. The recipes
# are those for pictures. Only the views are new: spectrograms in which stretches of time and pitch are left out.
#
# **Place your bet:** which of the six questions does an *untrained* network answer nearly as well?
#
# `papermill nbs/repro_ring_table5c.ipynb out.ipynb -p dataset fsdd -p profile laptop`

# %% tags=["parameters"]
dataset: str = "voices"  # of pre-training: voices | fsdd | librispeech | waves:<folder>
columns: str = "all"  # all, or columns by name: "voices_digit,voices_speaker"
rows: str = "all"  # all, or rows by name: "moco,mocoring"
profile: str = "auto"  # auto (paper with a GPU, laptop without) | smoke | first | laptop | paper
seeds: str = "0"  # such as "0,1,2"
jobs: str = "auto"  # cells at a time; auto: one a core, or a GPU
data_root: str = ""  # folder of data sets; empty: CONTRASTLAB_DATA, or your cache
out_dir: str = "runs"  # new results and encoders, from the project's root

# %% tags=["hide-cell"]
from contrastlab.tables import notebook

nb = notebook.open("ring", "5c", globals())

# %%
nb.claim

# %% tags=["nbval-ignore-output"]
nb.kept()

# %% tags=["hide-output", "nbval-ignore-output"]
table = nb.run()
table

# %% [markdown]
# Read the random encoder first. If it is nearly right in a column, that column cannot tell methods apart. Which
# column this is depends on the data. For the recordings of `fsdd` (profile `laptop`) it is the speaker, whose pitch
# is in every frame. For the generated voices of profile `smoke` it is the digit.
#
# The harder question is a digit said by a person whom the classifier never heard (`fsdd_unseen`). There MoCo,
# MoCoRing and the supervised encoder all lie far *below* the random one. The random encoder has two seeds that differ
# a good deal, and each of them is above both methods. So these runs do not show that training helps on speech.

# %% tags=["check"]
nb.check()
