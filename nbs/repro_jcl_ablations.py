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
# **Figures 2 and 3 of *Joint Contrastive Learning with Infinite Possibilities*** (`jcl`). JCL has three parameters: the
# number M′ of encoded keys of an image, the strength λ of their covariance, and the temperature τ. Figure 2 changes one
# of them at a time. Figure 3 asks whether views of one image end up closer to each other than with MoCo v2.
#
# **Place your bet:** the paper trains with 65,536 negatives. How much of the gradient comes from the covariance then,
# the part that distinguishes JCL from a mean of keys? The exact study below gives the answer: nearly nothing.

# %% tags=["parameters"]
dataset: str = "shapes"  # shapes | digits | cifar10 | cifar100 | stl10 | imagenet | folder:<path> | parquet:<path>
rows: str = "jcl,keys9,lambda0,tau0.07,moco_v2"  # all, or rows by name (also released, vanilla, …)
profile: str = "auto"  # auto (paper with a GPU, laptop without) | smoke | first | laptop | paper
seeds: str = "0"  # such as "0,1,2"
jobs: str = "auto"  # cells at a time; auto: one a core, or a GPU
data_root: str = ""  # folder of data sets; empty: CONTRASTLAB_DATA, or your cache
out_dir: str = "runs"  # new results and encoders, from the project's root

# %% tags=["hide-cell"]
import math

import pandas as pd
import torch

from contrastbook.figures import tables as draw
from contrastbook.studies import joint_keys
from contrastbook.theory import joint
from contrastlab import methods, papers
from contrastlab.tables import notebook

nb = notebook.open("jcl", "figure2", globals())
pd.options.display.max_colwidth = None

# %% [markdown]
# ## What the figures claim
#
# Figure 2 has no numbers. Its text says: JCL "performs reasonably well when M′ is in the range of [5, 11]"; "the
# performance is relatively stable in a wide range of [0.2, 4.0]" of λ; "the optimal τ turns out to be around 0.2".

# %%
nb.claim

# %% [markdown]
# Table 3 of the paper lists what each panel of Figure 2 held fixed. A dash marks what it changed.

# %%
fixed = papers.published("jcl", "3")
fixed = fixed.pivot_table(index="row", columns="column", values="value")
fixed.map("{:g}".format).replace("nan", "–")

# %% tags=["nbval-ignore-output"]
nb.kept()

# %%
recipes = {nb.plan().label(name): methods.get(name) for name in nb.plan().rows}
choices = {k: recipe.choices() | {"τ": recipe.temperature} for k, recipe in recipes.items()}
pd.DataFrame(choices).T[["views", "positives", "τ"]]

# %% [markdown]
# The row with λ = 0 keeps all keys and drops their covariance: InfoNCE with the mean key.

# %%
methods.get("jcl/lambda0")

# %% [markdown]
# ## The exact study: one number decides
#
# A key enters the loss only through $a=q^\top k^+$. If $a\sim N(m,v)$, the loss of infinitely many keys is a
# one-dimensional integral, and Gauss–Hermite quadrature gives it to machine precision. First with few negatives, 64 at
# right angles to the query, where the loss is easy to see. Then at the paper's own size, 65,536 keys spread evenly over
# the sphere.

# %%
few, paper = math.log(64), joint.log_sum_on_sphere(65536, 128, 0.2)
draw.covariance(**{"64 orthogonal negatives": joint_keys.sweep(few), "65,536 negatives": joint_keys.sweep(paper)})

# %% [markdown]
# The two panels have different scales. On the left the covariance matters, and only λ ≥ 1 is sure to lie above the
# limit. On the right the curves hardly differ. Why? The variance acts through $p^+$, the softmax weight of the positive
# in the denominator: $\partial\bar{\mathcal L}/\partial v=\lambda p^+/2\tau^2$, while $\partial\bar{\mathcal
# L}/\partial m=-(1-p^+)/\tau$. With many negatives $p^+$ is small:

# %%
inert = joint_keys.inertness()
inert.map("{:.3g}".format)

# %% [markdown]
# So at the paper's size the covariance is nearly inert, unless the views of an image lie far apart. What then
# distinguishes JCL from MoCo v2 is the mean key: it has less noise as a positive, and the queue holds mean keys. So
# every reproduction needs the row λ = 0. The profiles here have far fewer negatives, where λ matters more.
#
# ## Figure 2

# %% tags=["hide-output", "nbval-ignore-output"]
table = nb.run()
table

# %% tags=["hide-output", "nbval-ignore-output"]
draw.ablations(table, joint_keys.SAID_GOOD)

# %% tags=["hide-output", "nbval-ignore-output"]
table.summary

# %% [markdown]
# ## Figure 3: are views of one image closer?
#
# The paper encodes 32 augmentations of 32,768 images. For each image it takes (a) the mean of all 32 × 32 cosines, and
# (b) the mean of the diagonal of the covariance. JCL with nine keys is compared with MoCo v2. We add an untrained
# encoder. The paper does not say whether "features" are those before the head (`pooled`) or the unit embedding after
# it. Both:

# %% tags=["nbval-ignore-output"]
count = {"smoke": 256, "laptop": 1024}.get(nb.profile, 32768)
runs = {nb.plan().label(row): nb.pretrained(row) for row in ("keys9", "moco_v2", "random")}
numbers = {label: joint_keys.view_statistics(*run, count) for label, run in runs.items()}
draw.closeness(numbers, f"{dataset}, profile {nb.profile}: {count} images, 32 views each")

# %% [markdown]
# **Two histograms, one number.** The mean over all pairs of unit vectors is $\lVert\mu\rVert^2$, and the mean of the
# diagonal of their covariance is $(1-\lVert\mu\rVert^2)/d$. So Figure 3(b) is Figure 3(a) mirrored and rescaled: it
# confirms nothing that (a) does not say. **Close to what?** Views of an image are close in a network that maps
# everything to one place, too. What counts is the distance to other images:

# %% tags=["nbval-ignore-output"]
joint_keys.closeness(numbers).round(3)

# %% [markdown]
# The last table returns to the exact study with the m and v of these encoders. It shows the softmax weight of the
# positive at the paper's K, with and without the covariance.

# %% tags=["nbval-ignore-output"]
joint_keys.weights(numbers, paper).map("{:.2g}".format)

# %% tags=["check"]
nb.check()
# Figure 3(b) is Figure 3(a), exactly
for of in (of for kinds in numbers.values() for of in kinds.values()):
    assert torch.allclose(of.variance, (1 - of.cosine) / of.centre.shape[1], atol=1e-6)
# at the paper's size the covariance hardly enters
assert inert.loc[(65536, 4), "p⁺"] < 0.01
assert inert.loc[(65536, 4), "added (nats)"] < 0.01
