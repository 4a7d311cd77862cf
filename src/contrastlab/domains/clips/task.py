"""Action recognition: the encoder of frames, fine-tuned up to conv5, scored over the frames of each test clip."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.transforms.functional import ten_crop

from contrastlab.domains.clips.data import VideoFiles
from contrastlab.domains.clips.definitions import Action
from contrastlab.pictures.encoder import Encoder
from contrastlab.pictures.fitting import Pooled, Resumable
from contrastlab.pictures.loading import Crops, batches
from contrastlab.pictures.networks import CaffeNet
from contrastlab.pictures.operations import resize_center
from contrastlab.pictures.representations import bootstrap, take
from contrastlab.pictures.task import Measured, Setting
from contrastlab.settings import ActionRecognition
from contrastlab.support import files
from contrastlab.support.errors import CorruptFileError, NotApplicableError
from contrastlab.support.seeds import derive, fixed, generator
from contrastlab.train.checkpoint import Artefact

DONE = "correct.safetensors"  # which test clips of a split are right


def spatial_network(encoder: Encoder, classes: int, dropout: float, seed: int) -> nn.Module:
    """A copy of the encoder of single frames, to be fine-tuned; ``seed`` decides its new weights.

    CaffeNet keeps conv1 to conv5; fc6, fc7 and fc8 start anew (CMC, section 4.2). Another backbone is kept as a whole,
    averaged over positions, and followed by one new layer.
    """
    backbone = copy.deepcopy(encoder.backbone)
    with fixed(seed):
        if isinstance(backbone, CaffeNet):
            fc6, wide = backbone.fc6, backbone.num_features
            for layer in fc6:
                if isinstance(layer, nn.Conv2d | nn.BatchNorm2d):
                    layer.reset_parameters()
            fc6[-1] = nn.Dropout(dropout)
            fc7 = nn.Sequential(nn.Linear(wide, wide), nn.ReLU(inplace=True), nn.Dropout(dropout))
            return nn.Sequential(backbone.convolutions, fc6, Pooled(), fc7, nn.Linear(wide, classes))
        head = nn.Linear(encoder.feature_dim, classes)
        return nn.Sequential(backbone, Pooled(), nn.Dropout(dropout), head)


def score(task: Action, encoders: nn.ModuleList, setting: Setting) -> dict[str, Measured]:
    """``action``, percent of test clips, averaged over the official splits."""
    first: Any = encoders[0]
    if first.in_channels != 3:
        raise NotApplicableError(f"a recogniser reads colour frames; the first encoder {first.in_channels} channels")
    parts = []
    for fold, (train, test) in enumerate(setting.data.folds()):
        tuning = FineTuning(task.training, first, train, setting, fold)
        parts.append(tuning.correct(take(test, task.test_images)))
    correct = torch.cat(parts)
    fold_of = torch.arange(len(parts)).repeat_interleave(torch.tensor([len(part) for part in parts]))
    value, half_width = bootstrap(lambda rows: mean_over_folds(correct[rows], fold_of[rows]), len(correct))
    return {"action": Measured(value, len(correct), half_width, correct)}


def mean_over_folds(correct: Tensor, fold: Tensor) -> float:
    """Percent correct of each fold, averaged over the folds that have items: boolean ``[N]`` and int64 ``[N]``."""
    counts = torch.bincount(fold).double()
    right = torch.bincount(fold, correct.double(), len(counts))
    return 100 * float((right[counts > 0] / counts[counts > 0]).mean())


class FineTuning:
    """The network of one official split (``fold``, from 0), whose draws are counted by epoch and step."""

    def __init__(self, how: ActionRecognition, encoder: Encoder, train: Any, setting: Setting, fold: int = 0) -> None:
        self.how, self.setting = how, setting
        self.seed = derive(setting.seed, "action", fold) % 2**31
        self.train = take(train, how.train_clips, self.seed).still()
        if len(self.train) == 0:
            raise NotApplicableError("action recognition: the training set is empty")
        network = spatial_network(encoder, len(train.classes), how.dropout, derive(self.seed, "weights") % 2**31)
        self.network = network.to(setting.device)
        about = {"training": how.model_dump(mode="json"), "data": train.fingerprint, "seed": self.seed}
        kind, origin = "fine-tuning", files.fingerprint(self.network.state_dict(), about)
        folder = None if setting.folder is None else setting.folder / f"split{fold + 1}"
        self.artefact = None if folder is None else Artefact(folder, DONE, kind=kind, origin=origin)
        self.training = Resumable(self.network, how, kind, self.artefact, "epoch")

    def correct(self, test: Any) -> Tensor:
        """Which test clips are right, boolean ``[M]``: read from the folder, or of the network trained to its end."""
        kept = self.artefact
        if kept is None or not kept.finished:
            right: Tensor = self.scores(test).argmax(1).cpu() == test.labels.cpu()
            if kept is None:
                return right
            kept.write({"correct": right}, {})
        tensors, _ = kept.load()
        if len(tensors.get("correct", ())) != len(test):
            raise CorruptFileError(f"{kept.folder / DONE} is of other clips; delete {kept.folder}")
        kept.finish()
        return tensors["correct"].bool()

    def _epochs(self, first: int) -> Iterator[float]:
        how, device = self.how, self.setting.device
        views: Any = self.setting.augmentation
        count, size = len(self.train), min(how.batch_size, len(self.train))
        steps, labels = count // size, self.train.labels.to(device)
        for epoch in range(first, how.epochs):
            self.network.train()
            lr = how.lr * how.gamma ** sum(epoch >= milestone for milestone in how.milestones)
            order = torch.randperm(count, generator=generator(self.seed, "order", epoch))
            crop = Crops(views, 1, self.seed, epoch * count) if isinstance(self.train, VideoFiles) else None
            stream, total = batches(self.train, order, size, device, drop_last=True, crop=crop), 0.0
            for step, (index, clips) in enumerate(stream, epoch * steps):
                frames = views.normalise(views.random(clips, generator(self.seed, "views", step, device)))
                with fixed(derive(self.seed, "dropout", step), device):
                    loss = F.cross_entropy(self.network(frames), labels[index])
                total += self.training.descend(loss, lr)
            yield total / steps

    def scores(self, test: Any) -> Tensor:
        """``[M, C]`` mean class probabilities of test clips, after the last epoch."""
        self.training.run(self._epochs, self.how.epochs, self.setting.log)
        self.training.save()
        self.network.eval()
        few, rows = test.spread(self.how.frames), []
        with torch.no_grad():
            for _, clips in batches(few, torch.arange(len(few)), 32, self.setting.device, drop_last=False):
                seen = self._crops(clips[:, :, :3].flatten(0, 1))
                probabilities = self.network(self.setting.augmentation.normalise(seen)).float().softmax(1)
                # crops come first, then clips, then their frames
                rows.append(probabilities.view(-1, len(clips), self.how.frames, probabilities.shape[1]).mean((0, 2)))
        return torch.cat(rows)

    def _crops(self, frames: Tensor) -> Tensor:
        image: Any = self.setting.augmentation.image  # type: ignore[attr-defined]
        if self.how.crops == 1:
            return image.plain(frames)
        side = image.resize or min(frames.shape[2:])
        square = resize_center(frames, image.resize, side).mul_(1 / 255).clamp_(0, 1)
        return torch.cat(ten_crop(square, [image.size, image.size]))
