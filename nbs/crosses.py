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
# The four papers read as one claim: a contrastive method is five choices, **views × keys × negatives × positives ×
# objective**, and each paper changes one of them. If so, the choices of different papers can be crossed. Which
# crosses exist, which have been published, and is a child of two methods better than its parents?
#
# **Place your bet.** Take one example of each kind of each choice. What share of the combinations can exist at all?
# And of those, what share is in the tables of the four papers?

# %% tags=["parameters"]
dataset: str = "shapes"  # shapes | cifar10 | cifar100 | stl10 | …; CMC needs colour
methods: str = "all"  # crosses by name, such as "jcl_ring,cmc_jcl"
profile: str = "auto"  # auto (CONTRASTLAB_PROFILE, or smoke) | smoke | laptop | paper
seeds: str = "0"  # such as "0,1,2"
data_root: str = ""  # folder of data sets; empty: CONTRASTLAB_DATA, or your cache
out_dir: str = "runs"  # new results, from the project's root

# %% tags=["hide-cell"]
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch

from contrastlab import report, reproduce
from contrastlab.errors import NotApplicableError
from contrastlab.studies import crosses

reproduce.check_parameters(globals())
if profile == "auto":
    profile = os.environ.get(reproduce.PROFILE_VARIABLE) or "smoke"
root = next((p for p in [Path.cwd(), *Path.cwd().parents] if (p / "pyproject.toml").exists()), Path.cwd())
BLUE, ORANGE, GREEN = "#0072B2", "#D55E00", "#009E73"
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
# A recipe refuses what cannot be computed and says why. So the grid is simply tried:

# %%
cells = crosses.grid()
frame = pd.DataFrame([cell.choices for cell in cells], columns=list(crosses.CHOICES))
frame["exists"] = [cell.recipe is not None for cell in cells]
frame["published"] = [bool(cell.tried) for cell in cells]
frame["reason"] = [cell.reason for cell in cells]
total, exist, published = len(frame), frame["exists"].sum(), frame["published"].sum()
print(f"{total} combinations, {exist} exist ({100 * exist / total:.0f} %),", end=" ")
print(f"{published} are published ({100 * published / exist:.0f} % of those that exist).")

# %% [markdown]
# ## Why the others cannot exist
#
# The first objection of each combination; some have several.

# %%
impossible = frame[~frame["exists"]]
examples = impossible.groupby("reason").agg(lambda column: column.iloc[0])[list(crosses.CHOICES)]
why = impossible["reason"].value_counts().rename("combinations").to_frame()
why["for example"] = examples.apply(" × ".join, axis=1)
why.rename_axis("because")

# %% [markdown]
# The two deep cuts: **clusters** belong to a memory bank, which alone has one row per image; **several keys** of one
# image belong to a queue's momentum encoder, without gradient. And JCL's closed form is an expectation of InfoNCE, not
# of any loss: with another objective, take the same keys as *many*.

# %%
rows = frame.assign(row=frame["views"] + ", " + frame["keys"] + ", " + frame["negatives"])
rows["column"] = rows["positives"] + ", " + rows["objective"]
rows["state"] = rows["exists"].astype(int) + rows["published"]
table = rows.pivot_table(index="row", columns="column", values="state", sort=False)

# %% tags=["hide-input", "nbval-ignore-output"]
figure, axes = plt.subplots(figsize=(8.2, 8.2), layout="constrained")
colours = ["0.93", "#56B4E9", ORANGE]
axes.pcolormesh(table, cmap=ListedColormap(colours), vmin=0, vmax=2, edgecolors="white", lw=0.8)
y, x = np.nonzero(table.to_numpy() == 2)
axes.plot(x + 0.5, y + 0.5, "ko", ms=3)
axes.set_xticks(np.arange(table.shape[1]) + 0.5, table.columns, rotation=90, fontsize=8)
axes.set_yticks(np.arange(table.shape[0]) + 0.5, table.index, fontsize=8)
axes.invert_yaxis()
names = ["cannot exist", "exists, not published", "published (dot)"]
handles = [Patch(color=c, label=n) for c, n in zip(colours, names, strict=True)]
figure.legend(handles=handles, loc="outside upper center", ncols=3)
plt.show()

# %% [markdown]
# *Published* means in a table of the four papers or of their appendices, as far as this project has them.
# A combination that exists need not be wise.
#
# ## Five children
#
# Each takes every choice from one of its parents.

# %%
short = {name.removeprefix("crosses/"): name for name in crosses.CROSSES}
asked = list(short) if methods == "all" else [name.strip() for name in methods.split(",")]
chosen = {crosses.recipe_of(name).name: crosses.CROSSES[crosses.recipe_of(f"crosses/{name}").name] for name in asked}
label = {p: crosses.recipe_of(p).label for c in chosen for p in (c, *chosen[c].parents, *crosses.REFERENCES)}
pd.DataFrame(
    {"parents": [", ".join(c.parents) for c in chosen.values()], "asks": [c.asks for c in chosen.values()]},
    [c.recipe.label for c in chosen.values()],
)

# %%
next(iter(chosen.values())).recipe

# %% [markdown]
# ## Children beside parents
#
# One protocol for all, parents included: same images, views' strength, encoder, head, optimiser and length. A parent's
# own best settings may differ. Stored results are read; the others are run.

# %% tags=["nbval-ignore-output"]
wanted = dict.fromkeys(n for c in chosen for n in (crosses.floor(c), *map(crosses.floor, chosen[c].parents)))
wanted |= dict.fromkeys(n for c, cross in chosen.items() for n in (*cross.parents, c))
found, missing = [], {}
for seed in reproduce.parse_seeds(seeds):
    for name in wanted:
        where = {"out_dir": root / out_dir, "read_also": [root / "results"], "data_root": data_root or None}
        try:
            found += crosses.study(name, dataset, profile, seed, **where).rows
        except NotApplicableError as reason:
            missing[name] = str(reason)
measured = pd.DataFrame(found).set_index(["name", "seed"]).sort_index()
print(f"{len(measured)} runs, profile {profile}, {dataset};", "; ".join(missing.values()) or "none impossible here")


# %%
def mean(name, metric):
    return measured.loc[name, metric].mean() if name in measured.index else np.nan


def line(name, cross, role):
    numbers = {metric: mean(name, metric) for metric in ("linear", "knn200")}
    gain = {f"{metric} − random": value - mean(crosses.floor(name), metric) for metric, value in numbers.items()}
    return {"cross": label[cross], "role": role, "method": label[name], **numbers, **gain}


# %% tags=["nbval-ignore-output"]
family = [
    line(name, c, role)
    for c, cross in chosen.items()
    for name, role in ((c, "child"), *((p, "parent") for p in cross.parents), (crosses.floor(c), "random"))
]
pd.DataFrame(family).set_index(["cross", "role", "method"])

# %% [markdown]
# Percent of test images and points. A method with two encoders (L and ab) is read against two random ones.

# %% tags=["hide-input", "nbval-ignore-output"]
figure, axes = plt.subplots(1, 2, figsize=(9, 1.2 + 1.05 * len(chosen)), layout="constrained", sharey=True)
for panel, metric, title in zip(axes, ("linear", "knn200"), ("linear probe", "200-NN"), strict=True):
    for place, (c, cross) in enumerate(chosen.items()):
        for shift, parent in zip((-0.22, 0.22), cross.parents, strict=True):
            value = mean(parent, metric)
            panel.plot(value, place + shift, "s", color=ORANGE, mfc="none", label="parent" * (not place and shift < 0))
            panel.annotate(label[parent], (value, place + shift), (7, -3), textcoords="offset points", fontsize=8)
        base = mean(crosses.floor(c), metric)
        panel.plot([base] * 2, [place - 0.4, place + 0.4], ":", color="0.3", label="" if place else "random encoder")
        panel.plot(mean(c, metric), place, "o", color=BLUE, ms=8, label="" if place else "child")
    panel.set(title=title, xlabel="accuracy (% of test images)", ylim=(len(chosen) - 0.5, -0.5))
    panel.margins(x=0.18)
axes[0].set_yticks(range(len(chosen)), [label[c] for c in chosen])
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
plt.show()

# %% [markdown]
# ## Verdict
#
# A child beats a parent if the paired difference of linear accuracy is above its 95 % interval over seeds; with one
# seed, above what two test samples of this size may differ by. Anything less is no difference that was measured.


# %%
def differs(one, other, metric="linear"):
    if one not in measured.index or other not in measured.index:
        return "not run", np.nan
    gaps = (measured.loc[one, metric] - measured.loc[other, metric]).dropna().tolist()
    gap, half = report.interval(gaps)
    if half is None:
        images = int(measured["test_images"].iloc[0])
        half = np.hypot(*(report.binomial_half_width(mean(name, metric), images) for name in (one, other)))
    return "above" if gap > half else "below" if gap < -half else "level with", gap


# %% tags=["nbval-ignore-output"]
for c, cross in chosen.items():
    against = {label[p]: differs(c, p) for p in cross.parents} | {"random": differs(c, crosses.floor(c))}
    print(f"{label[c]}: " + ", ".join(f"{word} {who} ({gap:+.1f})" for who, (word, gap) in against.items()) + ".")
better = [label[c] for c, cross in chosen.items() if all(differs(c, p)[0] == "above" for p in cross.parents)]
learnt = [label[c] for c in chosen if differs(c, crosses.floor(c))[0] == "above"]
print(f"Above both parents: {', '.join(better) or 'none'}.")
print(f"Above the random encoder, so that a comparison says anything: {', '.join(learnt) or 'none'}.")
count = len(reproduce.parse_seeds(seeds))
print(f"Profile {profile}, {count} seed{'s' * (count > 1)}.", end=" ")
print("Plumbing only: a few steps show that every child trains." if profile == "smoke" else "")

# %% tags=["check", "nbval-ignore-output"]
# the grid is whole; whatever is published exists; every impossible combination has a reason
assert total == np.prod([len(kinds) for kinds in crosses.CHOICES.values()])
assert frame.loc[frame["published"], "exists"].all()
assert (frame["reason"] != "").eq(~frame["exists"]).all()
# everything that can be run here was, and gave percentages and a finite loss
done = set(measured.index.get_level_values("name"))
assert done | set(missing) == set(wanted)
assert measured[["linear", "knn200"]].apply(lambda column: column.between(0, 100)).all(axis=None)
assert np.isfinite(measured["loss"].dropna().astype(float)).all()
