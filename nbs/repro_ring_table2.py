# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Which part of the ring does the work?
#
# **Table 2 of *Conditional Negative Sampling*** (`ring`) takes IRing apart: without annealing the outer edge
# (*No Anneal*), and without the hole in the middle (*l = 0*: a ball instead of a ring).
#
# Place your bet: a ring of the closest 1–10 % from the very first step, when the embeddings are still random. Does
# it help, hurt, or make no difference?

# %% tags=["parameters"]
dataset: str = "shapes"  # shapes | digits | cifar10 | cifar100 | stl10 | imagenet | folder:<path> | parquet:<path>
methods: str = "all"  # all, or rows by name
profile: str = "auto"  # auto (paper with a GPU, laptop without) | smoke | laptop | paper
seeds: str = "0"  # such as "0,1,2"
devices: str = "1"  # devices of this machine, or auto
data_root: str = ""  # folder of data sets; empty: CONTRASTLAB_DATA, or your cache
out_dir: str = "runs"  # new results and checkpoints, from the project's root

# %% tags=["hide-cell"]
from pathlib import Path

from IPython.display import Markdown, display

from contrastlab import papers, report, reproduce
from contrastlab.methods import get

reproduce.check_parameters(globals())
root = next((p for p in [Path.cwd(), *Path.cwd().parents] if (p / "pyproject.toml").exists()), Path.cwd())
plan = papers.plan("ring", "2")

# %% [markdown]
# ## What the table claims

# %%
display(Markdown(plan.claim))
papers.published("ring", "2").pivot_table(index="row", columns="column", values="value", sort=False)

# %% [markdown]
# ## One method, as five choices
#
# Every row is a recipe: what is compared, where the keys live, which of them are negatives and positives,
# and how scores become a loss. Change one choice and you have another row.

# %%
get("ring/iring_noanneal")

# %% [markdown]
# ## Run what is missing
#
# Stored cells are read, cut-off cells are resumed. The first lines say which profile was taken and how long it
# will take.

# %% tags=["nbval-ignore-output"]
table = reproduce.table(
    "ring",
    "2",
    dataset,
    methods_=methods,
    profile=profile,
    seeds=seeds,
    data_root=data_root or None,
    out_dir=root / out_dir,
    read_also=[root / "results"],
    devices=int(devices) if str(devices).isdigit() else devices,
)

# %% [markdown]
# ## Published beside measured

# %% tags=["nbval-ignore-output"]
table

# %% tags=["nbval-ignore-output"]
table.figure()

# %% [markdown]
# ## What was measured, and what it cannot show

# %% tags=["nbval-ignore-output"]
print(*report.summary_sentences(table), sep="\n")


# %% [markdown]
# The hole removes the keys most likely to be the same thing as the query. Annealing waits with the selection until
# nearness means something. At `smoke` and `laptop` size neither effect need show: few images mean that one percent is a
# handful of keys.

# %% tags=["check", "nbval-ignore-output"]
rows = {row.method: row for row in table.rows}
asked = plan.resolve_all(methods)
assert set(asked) <= set(rows)
# every row asked for has a number between 0 and 100, or the reason why it cannot exist
for method in asked:
    row = rows[method]
    assert row.status.startswith("n/a") or (row.measured is not None and 0 <= row.measured.mean <= 100), row
# the random encoder is the floor that every other number is read against
assert rows["ours/random"].measured is not None
