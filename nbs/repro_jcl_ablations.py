# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Which part of JCL does the work?
#
# **Figures 2 and 3 of *Joint Contrastive Learning with Infinite Possibilities*** (`jcl`). JCL has three numbers: how
# many keys M′ of an image are encoded, the strength λ of their covariance, the temperature τ. Figure 2 turns one at
# a time. Figure 3 asks whether views of one image end up closer to each other than under MoCo v2.
#
# **Place your bet:** the paper trains with 65,536 negatives. Of the gradient at that size, how much comes from the
# covariance, the part that gives JCL its name?

# %% tags=["parameters"]
dataset: str = "shapes"  # shapes | digits | cifar10 | cifar100 | stl10 | imagenet | folder:<path> | parquet:<path>
methods: str = "jcl,keys9,lambda0,tau0.07,moco_v2"  # all, or rows by name (also released, vanilla, …)
profile: str = "auto"  # auto (paper with a GPU, laptop without) | smoke | laptop | paper
seeds: str = "0"  # such as "0,1,2"
devices: str = "1"  # devices of this machine, or auto
data_root: str = ""  # folder of data sets; empty: CONTRASTLAB_DATA, or your cache
out_dir: str = "runs"  # new results and checkpoints, from the project's root

# %% tags=["hide-cell"]
import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from IPython.display import Markdown, display
from lightning_fabric import Fabric
from numpy.polynomial.hermite_e import hermegauss
from scipy.special import expit, hyp0f1
from torch.nn import functional as F

from contrastlab import data, papers, report, reproduce, results, tasks
from contrastlab.data.images.augmentations import augmentation
from contrastlab.data.loading import batches, generator, subset_order
from contrastlab.methods import get
from contrastlab.objectives import multi_key_info_nce
from contrastlab.pretrain import pretrain
from contrastlab.views import Augmented

reproduce.check_parameters(globals())
root = next((p for p in [Path.cwd(), *Path.cwd().parents] if (p / "pyproject.toml").exists()), Path.cwd())
plan = papers.plan("jcl", "figure2")
BLUE, ORANGE, GREEN = "#0072B2", "#D55E00", "#009E73"

# %% [markdown]
# ## What the figures claim
#
# Figure 2 prints no numbers. Its text: JCL "performs reasonably well when M′ is in the range of [5, 11]"; "the
# performance is relatively stable in a wide range of [0.2, 4.0]" of λ; "the optimal τ turns out to be around 0.2".

# %%
display(Markdown(plan.claim))
pd.DataFrame({plan.label(name): get(name).choices() for name in plan.methods}).T[["views", "positives"]]

# %% [markdown]
# ## One method, as five choices
#
# The row with λ = 0 keeps all keys and drops their covariance: InfoNCE with the mean key.

# %%
get("jcl/lambda0")

# %% [markdown]
# ## The exact study: one number decides
#
# Of a key only $a=q^\top k^+$ enters the loss. If $a\sim N(m,v)$, the loss of infinitely many keys is a one-dimensional
# integral, and Gauss–Hermite quadrature gives it to machine precision. `c` is the log of the sum over the negatives.

# %%
nodes, weights = hermegauss(120)
weights = weights / weights.sum()


def limit(m, v, c, tau):  # Eq. 4
    a = (m + np.sqrt(v) * nodes) / tau
    return float(weights @ (np.logaddexp(a, c) - a))


def joint(m, v, c, tau, strength):  # Eq. 8; strength 0 is the mean key
    return np.logaddexp(m / tau + strength * v / (2 * tau**2), c) - m / tau


# %% [markdown]
# First with few negatives, 64 at right angles to the query, where the loss is easy to see. Then at the paper's own
# size, 65,536 keys spread evenly over the sphere of 128 dimensions.

# %%
m, tau, d = 0.8, 0.2, 128
spread = float(np.log(hyp0f1(d / 2, 1 / (4 * tau**2))))  # log of the mean of exp(q·k/τ) over the sphere
few, paper = np.log(64.0), np.log(65536.0) + spread
variances = np.linspace(0, 0.04, 41)
figure, axes = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
for panel, c, title in (
    (axes[0], few, "64 orthogonal negatives"),
    (axes[1], paper, "65,536 negatives, as in the paper"),
):
    base = joint(m, 0, c, tau, 0)
    exact = [limit(m, v, c, tau) - base for v in variances]
    panel.plot(variances, exact, color="0", linewidth=2.5, label="infinitely many keys")
    panel.axhline(0, color=GREEN, linestyle="-.", label="mean key, λ = 0")
    for strength, style in ((0.5, ":"), (1, "-"), (4, "--")):
        bound = joint(m, variances, c, tau, strength) - base
        panel.plot(variances, bound, color=ORANGE, linestyle=style, label=f"JCL, λ = {strength}")
    panel.set(title=title, xlabel="variance of q·k⁺", ylabel="loss − loss of the mean key (nats)")
axes[0].legend(fontsize="small")
plt.show()

# %% [markdown]
# Mind the two scales. On the left the covariance matters, and only λ ≥ 1 is sure to lie above the limit. On the right
# everything happens within a hair.
#
# Why? The variance acts through $p^+$, the softmax weight of the positive in the denominator:
# $\partial\bar{\mathcal L}/\partial v=\lambda p^+/2\tau^2$, while
# $\partial\bar{\mathcal L}/\partial m=-(1-p^+)/\tau$. With many negatives $p^+$ is small:

# %%
v = 0.02
lines = []
for keys in (64, 1024, 4096, 65536):
    c = np.log(keys) + spread
    for strength in (0, 1, 4, 10):
        p = float(expit(m / tau + strength * v / (2 * tau**2) - c))
        added = float(joint(m, v, c, tau, strength) - joint(m, v, c, tau, 0))
        slope = (strength * p / (2 * tau**2)) / ((1 - p) / tau)
        lines.append({"negatives": keys, "λ": strength, "p⁺": p, "added (nats)": added, "slope by v / by m": slope})
inert = pd.DataFrame(lines).set_index(["negatives", "λ"])
inert.map("{:.3g}".format)

# %%
ours = inert.loc[(65536, 4)]
half = (paper - m / tau) * 2 * tau**2 / 4  # the variance at which the covariance lifts p⁺ to one half
print(
    f"At the paper's K, τ and λ, with m = {m} and v = {v}: p⁺ = {ours['p⁺']:.1e}, and the covariance adds"
    f" {ours['added (nats)']:.1e} nats to {joint(m, v, paper, tau, 0):.1f}.\nA change of the variance weighs"
    f" {ours['slope by v / by m']:.1e} of the same change of the mean."
    f"\np⁺ is one half from v = {half:.2f} on, a standard deviation of {half**0.5:.2f} of the cosine."
)

# %% [markdown]
# So at that size the covariance is nearly inert, unless the views of an image lie far apart. What then sets JCL apart
# from MoCo v2 is the mean key: less noise in the positive, and mean keys in the queue. That is why the row λ = 0
# belongs in every reproduction. The profiles here have far fewer negatives, where λ matters more.
#
# ## Figure 2: run what is missing
#
# Stored cells are read, cut-off cells are resumed. The first lines say which profile was taken and how long it
# will take. `methods="all"` adds the other values, the released script (`released`: λ grows from 0 to 2, four keys)
# and the plain mean of five losses (`vanilla`).

# %% tags=["nbval-ignore-output"]
table = reproduce.table(
    "jcl",
    "figure2",
    dataset,
    methods_=[*plan.resolve_all(methods), "random"],
    profile=profile,
    seeds=seeds,
    references=False,
    data_root=data_root or None,
    out_dir=root / out_dir,
    read_also=[root / "results"],
    devices=int(devices) if str(devices).isdigit() else devices,
)

# %% tags=["nbval-ignore-output"]
table

# %% tags=["nbval-ignore-output"]
measured = {row.method: row.measured for row in table.rows if row.measured is not None}
panels = {
    "keys, M′": ({"jcl/keys2": 2, "jcl/jcl": 5, "jcl/keys9": 9}, (5, 11)),
    "strength, λ": ({"jcl/lambda0": 0, "jcl/lambda1": 1, "jcl/jcl": 4, "jcl/lambda10": 10}, (0.2, 4)),
    "temperature, τ": ({"jcl/tau0.07": 0.07, "jcl/jcl": 0.2, "jcl/tau0.5": 0.5}, (0.19, 0.21)),
}

# %% tags=["nbval-ignore-output"]
figure, axes = plt.subplots(1, 3, figsize=(10, 3.4), sharey=True, layout="constrained")
for panel, (name, (values, good)) in zip(axes, panels.items(), strict=True):
    panel.axvspan(*good, color="0.9", label="good, says the paper")
    shown = [(x, measured[method]) for method, x in values.items() if method in measured]
    width = [(e.half_width if e.half_width is not None else e.sampling) or 0 for _, e in shown]
    panel.errorbar([x for x, _ in shown], [e.mean for _, e in shown], yerr=width, fmt="o-", color=BLUE, label="JCL")
    for method, colour, style in (("jcl/moco_v2", ORANGE, "--"), ("ours/random", "0.4", ":")):
        if method in measured:
            panel.axhline(measured[method].mean, color=colour, linestyle=style, label=plan.label(method))
    panel.set_xlabel(name)
axes[0].set_ylabel(f"linear accuracy (% of test images)\n{dataset}, {table.profile}")
axes[2].legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
plt.show()

# %% [markdown]
# Bars: 95 % t interval over seeds, or for one seed the test set's sampling error.

# %% tags=["nbval-ignore-output"]
print(*report.summary_sentences(table), sep="\n")

# %% [markdown]
# ## Figure 3: are views of one image closer?
#
# The paper encodes 32 augmentations of 32,768 images. For each image it takes (a) the mean of all 32 × 32 cosines, and
# (b) the mean of the diagonal of the covariance. JCL with nine keys is set against MoCo v2. An untrained encoder
# stands beside them here.

# %% tags=["nbval-ignore-output"]
splits = data.load(dataset, data_root or None)
seed, here = reproduce.parse_seeds(seeds)[0], table.profile
test = splits.test.take(min(plan.settings(dataset, "jcl", here).test_images or len(splits.test), len(splits.test)))


def trained(method):
    """The encoders of a cell of Figure 2, from its checkpoint where there is one."""
    settings = plan.settings(dataset, method, here)
    recipe = get(method).override(settings.parts)
    told = json.loads(json.dumps(recipe.describe()))
    key = results.config_hash(settings.model_dump(mode="json"), told, reproduce.fingerprint(splits))
    folder = results.location(root / out_dir / "cells", paper="jcl", table="figure2", dataset=dataset, profile=here,
                              method=method, seed=seed, hash_=key).with_suffix("")  # fmt: skip
    fabric = Fabric(accelerator="auto", devices=1, precision=settings.precision)
    done = pretrain(recipe, settings, splits.pretrain, test, seed=seed, folder=folder, fabric=fabric)
    return done.encoders, augmentation(settings.augmentation, settings.image_size), fabric.device


# %% tags=["nbval-ignore-output"]
KINDS = ("embedding", "pooled")


def views_of(method, count, copies=32):
    """``[images, copies, d]`` unit features of random views, a batch at a time, for each kind."""
    encoders, view, device = trained(method)
    order = subset_order(splits.pretrain.labels, count, seed=0)
    for number, (_, pixels) in enumerate(batches(splits.pretrain, order, 128, device, drop_last=False)):
        draw = generator(seed, "figure 3", number, device)
        with tasks.frozen(encoders):
            made = [Augmented(1).make(pixels, view, draw) for _ in range(copies)]
            for kind in KINDS:
                z = torch.stack([F.normalize(tasks.represent(encoders, x, kind), dim=1) for x in made], 1)
                yield kind, z.double()


# %% tags=["nbval-ignore-output"]
def statistics(z):
    """For each image: mean of all cosines, variance of a coordinate, mean view; then m and v of one query's keys."""
    pairs, copies = z @ z.mT, z.shape[1]
    m = (pairs.sum(2) - 1) / (copies - 1)  # without the view itself, whose cosine is 1
    v = (pairs.square().sum(2) - 1) / (copies - 1) - m.square()
    return pairs.mean((1, 2)), z.var(1, correction=0).mean(1), z.mean(1), m.mean(1), v.mean(1)


# %% tags=["nbval-ignore-output"]
count = min({"smoke": 256, "laptop": 1024}.get(here, 32768), len(splits.pretrain))
numbers = {}
for method in ("jcl/keys9", "jcl/moco_v2", "ours/random"):
    parts = {kind: [] for kind in KINDS}
    for kind, z in views_of(method, count):
        parts[kind].append(statistics(z))
    for kind, found in parts.items():
        numbers[plan.label(method), kind] = [torch.cat(x).cpu() for x in zip(*found, strict=True)]

# %% [markdown]
# The paper does not say whether "features" are those before the head (`pooled`) or the unit embedding after it. Both:

# %% tags=["nbval-ignore-output"]
colours = {"jcl/keys9": BLUE, "jcl/moco_v2": ORANGE, "ours/random": "0.5"}
figure, axes = plt.subplots(2, 2, figsize=(10, 6), layout="constrained")
for line, kind in zip(axes, KINDS, strict=True):
    for i, (panel, name) in enumerate(
        zip(line, ("mean cosine of two views", "mean variance of a coordinate"), strict=True)
    ):
        edges = np.histogram_bin_edges(torch.cat([numbers[plan.label(x), kind][i] for x in colours]), 50)
        for method, colour in colours.items():
            style = {"histtype": "step", "linewidth": 2, "linestyle": "-" if method != "jcl/moco_v2" else "--"}
            panel.hist(numbers[plan.label(method), kind][i], edges, color=colour, label=plan.label(method), **style)
        panel.set(xlabel=f"{name} of an image, {kind}", ylabel="images")
axes[0, 0].legend(fontsize="small")
figure.suptitle(f"{dataset}, profile {here}: {count} images, 32 views each")
plt.show()

# %% [markdown]
# **Two histograms, one number.** The mean over all pairs of unit vectors is $\lVert\mu\rVert^2$, and the mean of the
# diagonal of their covariance is $(1-\lVert\mu\rVert^2)/d$. So Figure 3(b) is Figure 3(a) mirrored and rescaled: it
# confirms nothing that (a) does not say.
#
# **Close to what?** Views of an image are close in a network that maps everything to one place, too. What counts is the
# distance to other images:

# %% tags=["nbval-ignore-output"]
lines = {}
for name, (pairs, _, means, *_) in numbers.items():
    n = len(means)
    other = float((means.sum(0) @ means.sum(0) - (means * means).sum()) / (n * (n - 1)))
    same = float(pairs.mean())
    lines[name] = {"same image": same, "other images": other, "apart": same - other}
close = pd.DataFrame(lines).T.rename_axis(["row", "features"])
close.round(3)

# %% tags=["nbval-ignore-output"]
for kind in KINDS:
    part = close.xs(kind, level="features")
    print(
        f"{kind}: views of one image are closest in {part['same image'].idxmax()};"
        f" same and other images are furthest apart in {part['apart'].idxmax()}."
    )
if not table.comparable:
    print(table.banner)

# %% [markdown]
# Back to the exact study, with the m and v that these encoders have: the softmax weight of the positive at the paper's
# K, with and without the covariance.

# %% tags=["nbval-ignore-output"]
lines = {}
for method in ("jcl/keys9", "jcl/moco_v2"):
    ms, vs = (x.numpy() for x in numbers[plan.label(method), "embedding"][3:])
    weight = {f"p⁺, λ = {strength}": expit(ms / tau + strength * vs / (2 * tau**2) - paper) for strength in (0, 4)}
    lines[plan.label(method)] = {name: x.mean() for name, x in {"m": ms, "v": vs, **weight}.items()}
pd.DataFrame(lines).T.map("{:.2g}".format)

# %% tags=["check", "nbval-ignore-output"]
for method in (*plan.resolve_all(methods), "ours/random"):
    row = next(row for row in table.rows if row.method == method)
    # a number between 0 and 100, or the reason why it cannot exist
    assert row.status.startswith("n/a") or (row.measured is not None and 0 <= row.measured.mean <= 100), row
# Figure 3(b) is Figure 3(a), exactly
for (_, kind), (pairs, variance, means, *_) in numbers.items():
    assert torch.allclose(variance, (1 - pairs) / means.shape[1], atol=1e-6), kind

# %% tags=["check"]
grid = [
    (m, v, np.log(k), t) for m in (0.2, 0.8) for v in (0.0, 0.005, 0.02) for k in (4, 64, 65536) for t in (0.07, 0.2)
]
for case in grid:
    # an upper bound from λ = 1 on, a lower one at λ = 0, and all alike without variance (quadrature: 1e-9)
    assert joint(*case, 0) - 1e-9 <= limit(*case) <= joint(*case, 1) + 1e-9 <= joint(*case, 4) + 2e-9
    assert case[1] or abs(joint(*case, 4) - limit(*case)) < 1e-9
# at the paper's size the covariance hardly enters
assert ours["p⁺"] < 0.01
assert ours["added (nats)"] < 0.01

# %% tags=["check"]
# the library computes the same Eq. 8
keys = np.array([[0.5, 0.8, 0.9]])
own, lift = get("jcl/jcl").positives.pair(torch.tensor(keys / tau), 0, 1)
library = multi_key_info_nce(own, torch.zeros(1, 64, dtype=torch.float64), lift)
assert np.isclose(library.item(), joint(keys.mean(), keys.var(), few, tau, 4), rtol=1e-12)
