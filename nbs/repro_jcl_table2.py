# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Does a detector that may change its encoder still care where it came from?
#
# **Table 2 of *Joint Contrastive Learning*** (`jcl`) fine-tunes ResNet-50 on COCO: Faster, Mask and Keypoint R-CNN
# with a pyramid, batch-norm trained. Its row *random* is fine-tuned, too: it is no floor of a frozen encoder.
#
# **Place your bet:** JCL against MoCo v2 on boxes, masks and keypoints, in points of average precision?
#
# `papermill nbs/repro_jcl_table2.ipynb out.ipynb -p dataset tinyimagenet32 -p profile laptop`

# %% tags=["parameters"]
dataset: str = "shapes"  # of pre-training: shapes | tinyimagenet32 | imagenet | folder:<path> | parquet:<path>
columns: str = "all"  # all, or columns by name, see `nb.plan().columns`
rows: str = "random,moco_v2,jcl"  # all, or rows by name
profile: str = "auto"  # auto (paper with a GPU, laptop without) | smoke | first | laptop | paper
seeds: str = "0"  # such as "0,1"
jobs: str = "auto"  # cells at a time; auto: one a core, or a GPU
data_root: str = ""  # folder of data sets; empty: CONTRASTLAB_DATA, or your cache
out_dir: str = "runs"  # new results, encoders and detectors, from the project's root

# %% tags=["hide-cell"]
from contrastlab.tables import notebook

nb = notebook.open("jcl", 2, globals())

# %%
nb.claim

# %% tags=["nbval-ignore-output"]
nb.kept()

# %% tags=["hide-output", "nbval-ignore-output"]
table = nb.run(references_too=False)
table

# %% [markdown]
# The paper's detection code is not published. Where its text leaves a choice open, we take the default of Detectron2;
# batch-norm learns within one process. If the data of a column are missing, the column says where we looked for them.

# %% tags=["check"]
nb.check()
