"""The linear classifier on images of another data set, shown to the encoders as that set's own statistics say."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from contrastlab.data.augmentations import augmentation
from contrastlab.data.loading import Source, batches, subset_order
from contrastlab.errors import NotApplicableError
from contrastlab.settings import LinearProbe, Settings, TransferView
from contrastlab.tasks.base import Described, Measured, Metric, Setting
from contrastlab.tasks.linear import Linear


def channel_statistics(
    source: Source, indices: Tensor, device: torch.device | str = "cpu"
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel over all pixels of some images, as fractions of full scale.

    Args:
        source: images; a streaming set's are the squares that evaluation sees.
        indices: of the images, ``[n]``.
        device: to compute on.

    Returns:
        Means and standard deviations (of the population), a value a channel. A channel that is constant has a
        deviation of one grey level, so that it can be divided by.
    """
    levels = torch.arange(256, dtype=torch.float64)
    counts = torch.zeros(source.channels, 256, dtype=torch.float64)
    for _, images in batches(source, indices, 512, device, drop_last=False):
        for channel, pixels in enumerate(images.unbind(1)):
            counts[channel] += pixels.flatten().bincount(minlength=256).cpu()
    shares = counts / counts.sum(1, keepdim=True)
    mean = shares @ levels
    variance = (shares * (levels - mean[:, None]).square()).sum(1)
    return tuple((mean / 255).tolist()), tuple((variance.clamp(min=1).sqrt() / 255).tolist())


@dataclass(frozen=True)
class Transfer(Described):
    """A linear classifier on frozen features of data that the encoders were not trained on (ring §5, Table 3).

    Args:
        probe: solver, features, length and so on.
        view: how the classifier's images are augmented and normalised.
        test_images: at most so many test images; ``None`` is all.
    """

    probe: LinearProbe = field(default_factory=LinearProbe)
    view: TransferView = field(default_factory=TransferView)
    test_images: int | None = None

    name: ClassVar[str] = "transfer"
    modality: ClassVar[str] = "any"
    tells_classes_apart: ClassVar[bool] = True
    metrics: ClassVar[tuple[Metric, ...]] = (Metric("transfer", "transfer accuracy", items="test items"),)

    @classmethod
    def of(cls, settings: Settings) -> Transfer:
        """The probe of ``settings``."""
        return cls(settings.linear, settings.transfer, settings.test_images)

    def score(self, encoders: nn.ModuleList, setting: Setting) -> dict[str, Measured]:
        """``transfer``, percent of the target's test items.

        Raises:
            NotApplicableError: the encoders read grey images and the target has colours, or it has sentences.
        """
        linear = Linear(self.probe, self.test_images)
        return {"transfer": linear.score(encoders, self.adapt(encoders, setting))["linear"]}

    def adapt(self, encoders: nn.ModuleList, setting: Setting) -> Setting:
        """The setting with images of as many channels as the encoders read, and with the target's augmentation.

        Mean and variance are those of the training images that the classifier sees. A colour split has fixed ranges in
        their place (:class:`contrastlab.views.Split`), which are the same for every data set.
        """
        train, test = setting.data.train, setting.data.test
        if train.modality == "waveform":
            return self._adapt_speech(setting)
        if train.modality != "image":
            raise NotApplicableError(f"transfer is for images and waveforms; {setting.data.name} has {train.modality}s")
        # the encoders of a split share the channels of one image
        if sum(encoder.in_channels for encoder in encoders) == 3:  # type: ignore[misc]
            train, test = train.coloured(), test.coloured()
        elif 3 in (train.channels, test.channels):
            raise NotApplicableError(f"the encoders read grey images, and {setting.data.name} has colours")
        shown: Any = setting.augmentation
        if self.view.augmentation:
            shown = augmentation(self.view.augmentation, shown.size)
        if self.view.normalise == "target":
            chosen = subset_order(train.labels, self.probe.train_images, setting.seed)
            mean, std = channel_statistics(train, chosen, setting.device)
            shown = replace(shown, mean=mean, std=std)
        data = replace(setting.data, train=train, test=test)
        return replace(setting, data=data, augmentation=shown)

    def _adapt_speech(self, setting: Setting) -> Setting:
        shown: Any = setting.augmentation
        if self.view.normalise == "target":
            train = setting.data.train
            chosen = subset_order(train.labels, self.probe.train_images, setting.seed)
            shown = shown.fitted(train, chosen, setting.device)
        return replace(setting, augmentation=shown)

    def protocol(self, setting: Setting) -> dict[str, Any]:
        """How the metric was taken."""
        own = "mean and variance of the target's training images; a colour split keeps its fixed ranges"
        return {
            **Linear(self.probe).protocol(setting),
            "train_view": self.view.augmentation or "as in pre-training",
            "normalised_by": own if self.view.normalise == "target" else "the statistics of pre-training",
        }
