# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Twenty-six algorithms, one bound?
#
# **Table 1 of *On Mutual Information in Contrastive Learning for Visual Representations*** (`vince`) reads instance
# discrimination (IR), local aggregation (LA) and contrastive multiview coding (CMC) as one objective, and crosses
# views and negatives: BALL, CAVE and RING, neighbours as positives (*s-neigh*), annealed percentages, L/ab views.
#
# **Place your bet:** the original IR is a binary classification with a fixed constant κ, and IR^nce is a softmax over
# the same scores. By how many points do they differ on CIFAR-10?

# %% tags=["parameters"]
dataset: str = "shapes"  # shapes | digits | cifar10 | cifar100 | stl10 | imagenet | folder:<path> | parquet:<path>
rows: str = "ir,ir_nce,la_nce,ball_anneal,cave_anneal,ring_anneal,cmc_nce,ring_lab_anneal"  # one of a kind, or all
profile: str = "auto"  # auto (paper with a GPU, laptop without) | smoke | first | laptop | paper
seeds: str = "0"  # such as "0,1,2"
jobs: str = "auto"  # cells at a time; auto: one a core, or a GPU
data_root: str = ""  # folder of data sets; empty: CONTRASTLAB_DATA, or your cache
out_dir: str = "runs"  # new results and encoders, from the project's root

# %% tags=["hide-cell"]
from contrastlab import methods
from contrastlab.tables import notebook

nb = notebook.open("vince", (1, 5), globals())

# %%
nb.claim

# %% tags=["nbval-ignore-output"]
display(nb.kept(), nb.kept(5))

# %%
methods.get("vince/ring_sneigh_anneal")

# %% tags=["hide-output", "nbval-ignore-output"]
table = nb.run()
table

# %% tags=["hide-output", "nbval-ignore-output"]
table.figure()

# %% tags=["hide-output", "nbval-ignore-output"]
display(table.summary, nb.run(5))  # Table 5: top-5 accuracy of the same encoders

# %% [markdown]
# The appendix *Softmax or logistic?* of the book explains why the original IR falls behind its softmax form. The
# neighbours of *s-neigh* are in the numerator but not in the denominator. The loss can therefore fall below zero, and
# is then no bound on the mutual information. In the annealed rows the ball of neighbours grows with the inner edge of
# the ring.

# %% tags=["check"]
nb.check()
