# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Which combinations did nobody try?
#
# A contrastive method is five choices: **views × keys × negatives × positives × objective**. Each of the five papers
# changes one or two of them. So we can cross the choices of different papers. Which crosses can be computed, which have
# been published, and is a child of two methods better than its parents?
#
# **Place your bet.** Take one example of each kind of each choice. What share of the combinations can exist at all?
# And of those, what share is in the tables of the five papers?

# %% tags=["parameters"]
dataset: str = "shapes"  # shapes | cifar10 | cifar100 | stl10 | …; CMC needs colour
rows: str = "all"  # crosses by name, such as "jcl_ring,cmc_jcl"
profile: str = "auto"  # auto (paper with a GPU, laptop without) | smoke | laptop | paper
seeds: str = "0"  # such as "0,1,2"
data_root: str = ""  # folder of data sets; empty: CONTRASTLAB_DATA, or your cache
out_dir: str = "runs"  # new results, from the project's root

# %% tags=["hide-cell"]
import pandas as pd

from contrastbook.figures import tables as draw
from contrastbook.studies import crosses
from contrastlab.tables import notebook

nb = notebook.study("crosses", globals())
pd.options.display.max_colwidth = None
pd.options.display.float_format = "{:.2f}".format

# %% [markdown]
# ## The grid
#
# The kinds of each choice. Numbers inside a kind (how many negatives, how wide a ring, which divergence) do not decide
# whether a combination exists; as many views are taken as keys and positives ask for.

# %%
pd.Series({part: ", ".join(kinds) for part, kinds in crosses.CHOICES.items()}, name="kinds").to_frame()

# %% [markdown]
# A recipe refuses a combination that cannot be computed, and says why. So we try all of them:

# %%
grid = crosses.grid()
total = len(grid)
exist = grid["exists"].sum()
published = grid["published"].sum()
print(f"{total} combinations")
print(f"{exist} exist ({100 * exist / total:.0f} %)")
print(f"{published} are published ({100 * published / exist:.0f} % of those that exist)")

# %% [markdown]
# ## Why the others cannot exist
#
# The table counts the first objection to each combination; some have several.

# %%
crosses.objections(grid)

# %% [markdown]
# Two reasons exclude most combinations. **Clusters** need a memory bank, because only a bank has one row per image.
# **Several keys** of one image need the momentum encoder of a queue, which gets no gradient. A third reason is that
# JCL's closed form is an expectation of InfoNCE alone; with another objective, use the same keys as *many*.

# %% tags=["nbval-ignore-output"]
draw.crosses_grid(crosses.states(grid))

# %% [markdown]
# *Published* means printed in a table of the five papers or of their appendices, as far as this project has them.
# Rows that the project adds to a table do not count. That a combination exists does not mean that it is useful.
#
# ## Five children
#
# Each child takes every choice from one of its parents.

# %%
chosen = crosses.chosen(rows)
questions = {}
for cross in chosen.values():
    questions[cross.recipe.label] = (", ".join(cross.parents), cross.asks)
pd.DataFrame.from_dict(questions, orient="index", columns=["parents", "asks"])

# %%
next(iter(chosen.values())).recipe

# %% [markdown]
# ## Children beside parents
#
# All children and parents have one protocol: the same images, strength of views, encoder, head, optimiser and length.
# The best settings of a parent may differ. Stored results are read; the others are run.

# %% tags=["nbval-ignore-output"]
where = {"out_dir": nb.out_dir, "read_also": nb.read_also, "data_root": nb.data_root}
measured, missing = crosses.measured(chosen, dataset, nb.profile, nb.seeds, **where)
print(f"{len(measured)} runs, profile {nb.profile}, {dataset}")
print("; ".join(missing.values()) or "All exist here.")

# %% tags=["nbval-ignore-output"]
family = crosses.family(measured, chosen)
family

# %% [markdown]
# Percent of test images and points. A method with two encoders (L and ab) is compared with two random ones.

# %% tags=["nbval-ignore-output"]
draw.families(family)

# %% tags=["nbval-ignore-output"]
print(f"Profile {nb.profile}, seeds {', '.join(map(str, nb.seeds))}.")
if nb.profile == "smoke":
    print("A few steps show that every child trains, and nothing else.")

# %% tags=["check"]
# whatever is published exists; every impossible combination has a reason
assert grid.loc[grid["published"], "exists"].all()
assert (grid["reason"] != "").eq(~grid["exists"]).all()
# every cross and parent that can be run here was, and gave percentages
done = set(measured.index.get_level_values("name"))
wanted = set(chosen)
for cross in chosen.values():
    wanted |= set(cross.parents)
assert done | set(missing) >= wanted
for metric in ("linear", "knn200"):
    assert measured[metric].between(0, 100).all()
