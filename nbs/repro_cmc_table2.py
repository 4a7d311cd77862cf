# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # What does a frame learn from its motion?
#
# **Table 2 of *Contrastive Multiview Coding*** (`cmc`) trains on videos without labels. The frame $i_t$ is
# distinguished from frames of other videos by the frame $i_{t+k}$ of its own (V), by its optical flow $f_t$ (D), or
# by both (V+D). Then the network of frames is fine-tuned to name actions, and sees single frames only.
#
# **Place your bet:** can flow, which knows no colour, teach the network of frames more than another frame does?
#
# `papermill nbs/repro_cmc_table2.ipynb out.ipynb -p dataset ucf101 -p profile paper`

# %% tags=["parameters"]
dataset: str = "clips"  # of pre-training: clips | gtsrb32_clips | ucf101
columns: str = "all"  # all, or columns by name: "ucf101,hmdb51"
rows: str = "all"  # all, or rows by name: "video_v,video_d"
profile: str = "auto"  # auto (paper with a GPU, laptop without) | smoke | first | laptop | paper
seeds: str = "0"  # such as "0,1,2"
jobs: str = "auto"  # cells at a time; auto: one a core, or a GPU
data_root: str = ""  # folder of data sets; empty: CONTRASTLAB_DATA, or your cache
out_dir: str = "runs"  # new results and encoders, from the project's root

# %% tags=["hide-cell"]
from contrastbook.figures import pictures as draw
from contrastbook.made import actions
from contrastlab import data
from contrastlab.domains.clips import flow
from contrastlab.tables import notebook

nb = notebook.open("cmc", 2, globals())

# %%
nb.claim

# %% tags=["nbval-ignore-output"]
nb.kept()

# %% [markdown]
# Nine of the thirteen rows are numbers of other papers, some with other networks. The other four are computed below.
# The picture shows a generated clip: a silhouette moves over a drifting texture, so the flow is known. TV-L1
# estimates it from pixels.

# %%
clip = data.load("clips", n_train=8, n_test=8).train[actions.ACTIONS.index("rotate")]
shown = {"exact flow": flow.restore(clip[:, 3:], actions.BOUND), "TV-L1": flow.tvl1(clip[:, :3])}
draw.strip(clip[:, :3], shown, range(0, 15, 2), title="rotate")

# %%
f"By its silhouette alone a network of frames can name {actions.FRAME_CEILING:.1f} % of the generated clips."

# %% tags=["hide-output", "nbval-ignore-output"]
table = nb.run()
table

# %% [markdown]
# Later frames of a generated clip share its texture and colours. These identify the clip but not the action. Flow
# shows what moves, and no texture. Filmed traffic signs are the opposite case: the sign is what stays the same from
# frame to frame.
#
# Profile `laptop` has stored runs on the clips above and, with one seed, on the signs (`gtsrb32_clips`). On clips D
# is best, V+D is below D, and V is below the random encoder. This contradicts the claim that more views are better.
# On the one seed of signs D is the lowest row, and V and V+D are about as good as random.

# %% tags=["check"]
nb.check()
