# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # What is a frozen encoder worth to a detector?
#
# **Table 4 of *Conditional Negative Sampling*** (`ring`) freezes encoders of ImageNet and trains Detectron2's
# detectors on them: boxes and masks (Mask R-CNN), keypoints (Keypoint R-CNN), and VOC's boxes on the third stage
# alone (C4).
#
# **Place your bet:** which of the four columns sees the least of the encoder?
#
# `papermill nbs/repro_ring_table4.ipynb out.ipynb -p dataset tinyimagenet32 -p profile laptop`

# %% tags=["parameters"]
dataset: str = "shapes"  # of pre-training: shapes | tinyimagenet32 | imagenet | folder:<path> | parquet:<path>
columns: str = "all"  # all, or columns by name, see `nb.plan().columns`
rows: str = "ir,moco"  # all, or rows by name
profile: str = "auto"  # auto (paper with a GPU, laptop without) | smoke | first | laptop | paper
seeds: str = "0"  # such as "0,1"
jobs: str = "auto"  # cells at a time; auto: one a core, or a GPU
data_root: str = ""  # folder of data sets; empty: CONTRASTLAB_DATA, or your cache
out_dir: str = "runs"  # new results, encoders and detectors, from the project's root

# %% tags=["hide-cell"]
import pandas as pd

from contrastlab import encoders
from contrastlab.domains.detection import network as detectors
from contrastlab.tables import notebook

nb = notebook.open("ring", 4, globals())

# %%
nb.claim

# %% tags=["nbval-ignore-output"]
nb.kept()

# %% tags=["hide-output", "nbval-ignore-output"]
table = nb.run()
table

# %% [markdown]
# The answer is VOC. Detectron2 builds the region head of ResNet-18-C4 from three bottleneck blocks, but the encoder's
# last stage has two basic blocks. The loader takes the weights that agree in name and shape. How many are these?

# %%
network = detectors.residual_network(encoders.build("resnet18"))
head = detectors.fifth_stage(network, "new")
filled = detectors.filled_by_loader(network.layer4, head)
weights = {name: f"{tensor.numel():,}" for name, tensor in head.named_parameters() if tensor.ndim == 4}
pd.DataFrame([{"weights of": name, "number": n, "from the encoder": name in filled} for name, n in weights.items()])

# %% tags=["check"]
nb.check()
