# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # How much noise takes two spirals apart?
#
# **Figure 6 of *On Mutual Information in Contrastive Learning for Visual Representations*** (`vince`, appendix G)
# shows its idea of good views on points of the plane. A point lies on one of two spirals; a view of it is the point
# plus noise, each coordinate by its own draw from U(0, η). An encoder with two outputs is trained with InfoNCE to tell
# a point's views from other points. It never sees the label, the spiral. Afterwards logistic regression is asked for
# the label, given the two outputs.
#
# The paper: with η = 0 "the transfer accuracy is near chance. As noise approaches 0.4 (lossy and unique), we find
# steady improvements to accuracy. […] only η = 0.4 has a (mostly) linear separation. However, as noise surpasses 0.4
# […] transfer accuracy recedes to chance."
#
# The idea: without noise nothing says which points belong together. With much noise views of one point
# reach the other spiral. In between, views reach along their own spiral only.
#
# **Place your bet:** the text prints every optimiser setting. Train what it says, at several η. Will the
# accuracy peak at 0.4?

# %% tags=["parameters"]
profile: str = "auto"  # auto (CONTRASTLAB_PROFILE, or quick) | smoke | quick | paper
out_dir: str = "runs"  # new results, from the project's root

# %% tags=["hide-cell"]
import os
from dataclasses import asdict
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import torch
from IPython.display import Markdown, display
from sklearn.linear_model import LogisticRegression

from contrastlab import reproduce
from contrastlab.studies import spirals
from contrastlab.theory.toys import shifted

torch.set_num_threads(1)
asked = os.environ.get(reproduce.PROFILE_VARIABLE) or "auto"
profile = asked if profile == "auto" else profile
profile = {"auto": "quick", "laptop": "quick"}.get(profile, profile)
root = next((p for p in [Path.cwd(), *Path.cwd().parents] if (p / "pyproject.toml").exists()), Path.cwd())
BLUE, ORANGE = "#0072B2", "#D55E00"

# %% [markdown]
# ## What the text leaves open
#
# Printed: five layers of 128 units, SGD at 0.03 with momentum 0.9, batches of 128, 10 000 iterations, 4096 negatives
# from a memory bank moved half-way to each new representation, temperature 0.07, 10 000 points within [−2, 2]².
#
# Not printed:
#
# * How do the spirals lie? "One spinning clockwise and one counter-clockwise", yet "interweaved". `same`: one turned
#   by 180° gives the other, and they never cross; `opposite`: it is mirrored, and they cross.
# * How many `turns` do they make? How are the points spread, evenly over the `angle` or evenly over the `length`?
# * Have representations norm one, as in the paper's image models? `sphere`: yes, they lie on a circle; `plane`: no.
# * What is the critic? `dot`: q·k/τ; `distance`: −‖q − k‖²/τ.
# * Is U(0, η) meant to push every view up and right, as it does when printed so? `centred`: U(−η/2, η/2).
# * Is the gradient clipped? Not at all, or to a largest norm, `clip`. No clipping is printed, and without it
#   models whose outputs have no norm to keep tend to collapse to one point.
#
# These readings are tried, those first that came closest in short runs:

# %%
readings = pd.DataFrame(map(asdict, spirals.READINGS.values()), index=pd.Index(spirals.READINGS, name="reading"))
readings.assign(clip=readings["clip"].map("{:g}".format).replace("nan", "none"))

# %% [markdown]
# ## The two geometries, and what noise does to them
#
# Each panel shows one view per point. Look where the two colours begin to mix: from there on a view no longer says
# which spiral it comes from, whatever the encoder.

# %%
shown = (0.0, 0.4, 1.6)
figure, panels = plt.subplots(2, 3, figsize=(9, 6), sharex=True, sharey=True, layout="constrained")
for line, hand in zip(panels, ("same", "opposite"), strict=True):
    kind = spirals.Reading(handedness=hand, turns=1.0)
    points, labels = spirals.points_of(kind, 500, seed=0)
    for panel, eta in zip(line, shown, strict=True):
        views = shifted(points, eta, torch.Generator().manual_seed(1))
        for label, colour, marker in ((0, BLUE, "o"), (1, ORANGE, "^")):
            own = views[labels == label]
            panel.scatter(*own.T, s=12, c=colour, marker=marker, label=f"spiral {label + 1}", linewidths=0)
        panel.set(title=f"{hand}, η = {eta:g}", aspect="equal", xlim=(-2.2, 3.8), ylim=(-2.2, 3.8))
    line[0].set_ylabel("second coordinate")
for panel in panels[1]:
    panel.set_xlabel("first coordinate")
panels[0, 0].legend(loc="upper right")
figure.suptitle("One view per point, spirals of one turn")
plt.show()

# %% [markdown]
# ## Train every reading
#
# One reading is one batched network: a copy for every η and seed, all trained side by side on the same draws.
# Curves that are stored are read, the others are trained and stored.

# %% tags=["nbval-ignore-output"]
places = [root / out_dir, root / "results"]
curves = {profile: spirals.study(profile, out_dir=places[0], read_also=places[1:])}
if profile != "paper" and (full := spirals.stored("paper", places)):
    curves["paper"] = full
for name, found in curves.items():
    size = spirals.PROFILES[name]
    print(
        f"{name}: {len(found)} readings, {len(size.seeds)} seeds, {size.iterations} iterations, "
        f"{size.negatives} negatives, {size.points} points, "
        f"{sum(s.provenance['cpu_s'] for s in found):.0f} s of one core"
    )

# %% [markdown]
# ## Accuracy against noise
#
# A dot is one seed, a line their mean; 50 % is chance. The grey bar stands where the published curve has its peak.
# Compare with two references: logistic regression on the coordinates themselves (raw), and on an encoder that
# was never trained. A cross at 50 % is a model that collapsed to one point or diverged.

# %% tags=["nbval-ignore-output"]
order = list(dict.fromkeys(str(study.rows[0]["reading"]) for found in curves.values() for study in found))
styles = {"smoke": ("0.35", "s", "--"), "quick": (ORANGE, "s", "--"), "paper": (BLUE, "o", "-")}
etas = sorted(
    {float(row["eta"]) for found in curves.values() for s in found for row in s.rows if row["eta"] is not None}
)
place = {eta: number for number, eta in enumerate(etas)}  # evenly spaced: no scale shows 0, 0.1 and 5


def frame(study):
    rows = pd.DataFrame(study.rows)
    trained = rows[rows["encoder"] == "trained"].astype({"eta": float, "accuracy": float, "mi_bound": float})
    return rows, trained.assign(place=trained["eta"].map(place))


columns = 3
lines = -(-len(order) // columns)
figure, panels = plt.subplots(
    lines, columns, figsize=(10.5, 2.9 * lines), sharex=True, sharey=True, squeeze=False, layout="constrained"
)
for panel, reading in zip(panels.flat, order, strict=False):
    for name, found in curves.items():
        colour, marker, dash = styles[name]
        for study in (s for s in found if s.rows[0]["reading"] == reading):
            rows, trained = frame(study)
            shift = 0.12 if name == "paper" else -0.12
            panel.plot(trained["place"] + shift, trained["accuracy"], marker, color=colour, ms=4, alpha=0.7)
            mean = trained.groupby("place")["accuracy"].mean()
            panel.plot(mean.index + shift, mean, dash, color=colour, lw=1.6, label=name)
            lost = trained[trained["outcome"] != "trained"]
            panel.plot(lost["place"] + shift, [50] * len(lost), "x", color="black", ms=7)
    for encoder, dash in (("raw", "-."), ("untrained", ":")):  # of the last profile: the longest
        panel.axhline(
            rows.loc[rows["encoder"] == encoder, "accuracy"].mean(), color="0.3", ls=dash, lw=1.2, label=encoder
        )
    panel.axvspan(place[0.4] - 0.3, place[0.4] + 0.3, color="0.9", zorder=0, label="published peak")
    panel.set_title(
        reading.replace("plane", "\nplane").replace("sphere", "\nsphere").replace(", \n", ",\n"), fontsize=9
    )
    panel.set(ylim=(35, 100), xticks=range(len(etas)), xticklabels=[f"{eta:g}" for eta in etas])
for panel in panels.flat[len(order) :]:
    panel.set_axis_off()
for panel in panels[:, 0]:
    panel.set_ylabel("accuracy [%]")
for panel in panels.flat[max(0, len(order) - columns) : len(order)]:
    panel.set_xlabel("η, width of the noise")
    panel.tick_params(labelbottom=True)
legend = {text: mark for panel in panels.flat for mark, text in zip(*panel.get_legend_handles_labels(), strict=True)}
figure.legend(legend.values(), legend.keys(), loc="outside upper center", ncols=len(legend))
plt.show()

# %% [markdown]
# ## More noise, less information
#
# The second half of the paper's figure: "With more noise, MI is lower." InfoNCE gives the bound log K − loss.
# On the circle it cannot be high, whatever the views: at temperature 0.07 only so many places on
# a circle can be told apart.

# %% tags=["nbval-ignore-output"]
name = list(curves)[-1]
figure, panel = plt.subplots(figsize=(8, 3.8), layout="constrained")
marks = "osD^v<>pP*XhH"
for number, study in enumerate(curves[name]):
    trained = frame(study)[1]
    mean = trained.groupby("place")["mi_bound"].mean()
    circle = "sphere" in str(study.rows[0]["reading"])
    panel.plot(
        mean.index, mean, marker=marks[number % len(marks)], ls="--" if circle else "-",
        color=plt.get_cmap("viridis")(number / len(curves[name])), label=study.rows[0]["reading"],
    )  # fmt: skip
panel.axhline(torch.tensor(spirals.PROFILES[name].negatives).log(), color="0.3", ls=":", lw=1.2)
panel.annotate("log K, the ceiling", (0, torch.tensor(spirals.PROFILES[name].negatives).log()), va="bottom", fontsize=8)
panel.set(
    xlabel="η, width of the noise", ylabel="bound log K − loss [nats]", xticks=range(len(etas)),
    xticklabels=[f"{eta:g}" for eta in etas], title=f"Profile {name}, mean over seeds",
)  # fmt: skip
panel.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8)
plt.show()

# %% [markdown]
# ## The learned plane
#
# What logistic regression sees: held-out points under the encoders of the reading that comes closest to
# the published curve, a row for each seed. Dashed: the line that logistic regression draws, and above each panel the
# share of the points shown that lie on their own side. A line that keeps the colours apart is what the paper reports at
# η = 0.4.

# %% tags=["nbval-ignore-output"]
judged = {name: {s.rows[0]["reading"]: spirals.peak(s.rows) for s in found} for name, found in curves.items()}
closest = {n: min(p.values(), key=lambda p: (len(p.missing), -p.accuracy)).reading for n, p in judged.items()}
drawn = {profile: spirals.representations(profile, closest[profile], out_dir=places[0], read_also=places[1:])}
if profile != "paper" and "paper" in closest:
    drawn["paper"] = spirals.representations("paper", closest["paper"], out_dir=None, read_also=places)
for name, found in drawn.items():
    if found is None:  # not measured
        continue
    rows = pd.DataFrame(found.rows).dropna()
    figure, panels = plt.subplots(
        rows["seed"].nunique(), 3, figsize=(10, 3.3 * rows["seed"].nunique()), squeeze=False, layout="constrained"
    )
    for line, (seed, of_seed) in zip(panels, rows.groupby("seed"), strict=True):
        for panel, (eta, own) in zip(line, of_seed.groupby("eta"), strict=False):
            for label, colour, marker in ((0, BLUE, "o"), (1, ORANGE, "^")):
                some = own[own["label"] == label]
                panel.scatter(some["x"], some["y"], s=14, c=colour, marker=marker, label=f"spiral {label + 1}", lw=0)
            panel.margins(0.08)
            window = {"xlim": panel.get_xlim(), "ylim": panel.get_ylim()}
            inputs = own[["x", "y"]].to_numpy()
            scale = inputs.std(0).max() or 1.0
            probe = LogisticRegression(C=1e4).fit(inputs / scale, own["label"])
            right = 100 * probe.score(inputs / scale, own["label"])
            (first, second), offset = probe.coef_[0] / scale, probe.intercept_[0]
            if abs(second) > 1e-9:
                panel.axline((0, -offset / second), slope=-first / second, color="black", ls="--", lw=1.2)
            panel.set(title=f"seed {seed}, η = {eta:g}: {right:.0f} %", **window)
        line[0].set_ylabel("second output")
    for panel in panels[-1]:
        panel.set_xlabel("first output")
    panels[0, 0].legend(fontsize=8)
    figure.suptitle(f"{closest[name]} (profile {name})")
    plt.show()

# %% [markdown]
# ## The verdict
#
# A curve shows the published peak if (1) its best η lies between 0.2 and 0.8, (2) it separates the spirals there
# with at least 75 %, half-way from chance to certainty, (3) every seed is there above both ends
# of the curve and above the raw coordinates, and (4) both ends are below 60 %, "near chance".

# %% tags=["nbval-ignore-output"]
for name, peaks in judged.items():
    table = pd.DataFrame(
        {
            "best η": p.eta,
            "accuracy there [%]": p.accuracy,
            "η smallest [%]": p.ends[0],
            "η largest [%]": p.ends[1],
            "raw coordinates [%]": p.raw,
            "what is missing": "; ".join(p.missing) or "nothing",
        }
        for p in peaks.values()
    ).set_index(pd.Index(peaks, name=f"reading (profile {name})"))
    display(table.style.format(precision=1).set_properties(**{"text-align": "left"}, subset=["what is missing"]))

# %% tags=["nbval-ignore-output"]
for name, peaks in judged.items():
    size = spirals.PROFILES[name]
    there = [p for p in peaks.values() if not p.missing]
    best = peaks[closest[name]]
    sentence = (
        "shown by " + "; ".join(f"*{p.reading}* ({p.accuracy:.0f} % at η = {p.eta:g})" for p in there)
        if there
        else f"shown by none. Closest is *{best.reading}*, highest at η = {best.eta:g} with {best.accuracy:.0f} %: "
        + "; ".join(best.missing)
    )
    runs = [spirals.peak([r for r in s.rows if r["seed"] == seed]) for s in curves[name] for seed in size.seeds]
    lucky = sum(not p.missing for p in runs)
    on_views = [
        p.reading for p in (spirals.peak(s.rows, accuracy="accuracy_views") for s in curves[name]) if not p.missing
    ]
    display(
        Markdown(
            f"**Profile {name}** ({len(peaks)} readings, seeds {', '.join(map(str, size.seeds))}, {size.iterations} "
            f"iterations): the published peak is {sentence}. Of the {len(runs)} curves of one seed each, {lucky} "
            f"{'has' if lucky == 1 else 'have'} the published shape. Probed on views in place of the points, it is "
            f"shown by {', '.join(f'*{reading}*' for reading in on_views) or 'none'}."
        )
    )

# %% [markdown]
# Look at the learned plane again. InfoNCE asks that the views of a point stay together and that all points spread
# out. Without noise a curve may be torn to spread it; noise joins neighbours, and the spirals stay whole curves. So
# far the paper's argument holds. But nothing in the objective puts the two curves on two sides of one *straight*
# line: where they come to lie hangs on the draws, and seeds disagree. A figure of one seed can show a peak, or
# none, by chance.
#
# A reading that is missing here may still be the paper's, whose text comes without code for this figure.
#
# Exercises. (1) A view of η = 0.4 can reach at most that far: at how many turns is the other spiral within reach?
# (2) Add a reading to `spirals.READINGS`, such as ELU in place of ReLU. (3) Why is the circle's bound
# capped well below log K?

# %% tags=["check", "nbval-ignore-output"]
for name, found in curves.items():
    size = spirals.PROFILES[name]
    for study in found:
        rows, trained = frame(study)
        # every η and seed has a number, or says why it has none
        assert len(trained) == len(size.etas) * len(size.seeds), name
        numbers = trained[trained["outcome"] != "diverged"]
        assert numbers[["accuracy", "accuracy_views", "loss"]].notna().all(axis=None)
        assert numbers["accuracy"].between(0, 100).all()
        # the bound never passes its ceiling, up to the positive's own place in the denominator
        assert (numbers["mi_bound"] <= torch.tensor(size.negatives).log().item() + 1e-6).all()
        # the raw coordinates do not separate two spirals
        assert rows.loc[rows["encoder"] == "raw", "accuracy"].max() < 80
