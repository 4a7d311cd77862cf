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
from contrastlab.pictures.representations import bootstrap
from contrastlab.pictures.task import Evaluation, Measured
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
            width = backbone.num_features
            fc6 = backbone.fc6
            for layer in fc6:
                if isinstance(layer, nn.Conv2d | nn.BatchNorm2d):
                    layer.reset_parameters()
            fc6[-1] = nn.Dropout(dropout)
            fc7 = nn.Sequential(nn.Linear(width, width), nn.ReLU(inplace=True), nn.Dropout(dropout))
            fc8 = nn.Linear(width, classes)
            return nn.Sequential(backbone.convolutions, fc6, Pooled(), fc7, fc8)
        head = nn.Linear(encoder.feature_dim, classes)
        return nn.Sequential(backbone, Pooled(), nn.Dropout(dropout), head)


def score(task: Action, encoders: nn.ModuleList, evaluation: Evaluation) -> dict[str, Measured]:
    """``action``, percent of test clips, averaged over the official splits."""
    first: Any = encoders[0]
    if first.in_channels != 3:
        raise NotApplicableError(f"a recogniser reads colour frames; the first encoder {first.in_channels} channels")
    correct_by_fold = []
    for fold, (train, test) in enumerate(evaluation.data.folds()):
        tuning = FineTuning(task.training, first, train, evaluation, fold)
        correct_by_fold.append(tuning.correct(test.take(task.test_images)))
    correct = torch.cat(correct_by_fold)
    sizes = torch.tensor([len(of_fold) for of_fold in correct_by_fold])
    fold_of = torch.arange(len(correct_by_fold)).repeat_interleave(sizes)

    def accuracy(rows: Tensor) -> float:
        return mean_over_folds(correct[rows], fold_of[rows])

    value, half_width = bootstrap(accuracy, len(correct))
    return {"action": Measured(value, len(correct), half_width, correct)}


def mean_over_folds(correct: Tensor, fold: Tensor) -> float:
    """Percent correct of each fold, averaged over the folds that have items: boolean ``[N]`` and int64 ``[N]``."""
    counts = torch.bincount(fold).double()
    right = torch.bincount(fold, correct.double(), len(counts))
    has_items = counts > 0
    shares = right[has_items] / counts[has_items]
    return 100 * float(shares.mean())


class FineTuning:
    """The network of one official split (``fold``, from 0), whose draws are counted by epoch and step."""

    def __init__(
        self, how: ActionRecognition, encoder: Encoder, train: Any, evaluation: Evaluation, fold: int = 0
    ) -> None:
        self.how = how
        self.evaluation = evaluation
        self.seed = derive(evaluation.seed, "action", fold) % 2**31
        self.train = train.take(how.train_clips, self.seed).still()
        if len(self.train) == 0:
            raise NotApplicableError("action recognition: the training set is empty")
        self.labels = self.train.labels.to(evaluation.device)
        new_weights = derive(self.seed, "weights") % 2**31
        network = spatial_network(encoder, len(train.classes), how.dropout, new_weights)
        self.network = network.to(evaluation.device)
        kind = "fine-tuning"
        self.artefact = None
        if evaluation.folder is not None:
            decisive = {"training": how.model_dump(mode="json"), "data": train.fingerprint, "seed": self.seed}
            origin = files.fingerprint(self.network.state_dict(), decisive)
            folder = evaluation.folder / f"split{fold + 1}"
            self.artefact = Artefact(folder, DONE, kind=kind, origin=origin)
        self.training = Resumable(self.network, how, kind, self.artefact, "epoch")

    def correct(self, test: Any) -> Tensor:
        """Which test clips are right, boolean ``[M]``: read from the folder, or of the network trained to its end."""
        artefact = self.artefact
        if artefact is None:
            return self._is_right(test)
        if not artefact.finished:
            artefact.write_tensors({"correct": self._is_right(test)}, {})
        tensors, _ = artefact.read_tensors()
        if len(tensors.get("correct", ())) != len(test):
            raise CorruptFileError(f"{artefact.folder / DONE} is of other clips; delete {artefact.folder}")
        artefact.remove_checkpoint(may_stay=True)
        return tensors["correct"].bool()

    def _is_right(self, test: Any) -> Tensor:
        predicted = self.scores(test).argmax(1).cpu()
        return predicted == test.labels.cpu()

    def _epochs(self, first: int) -> Iterator[float]:
        """Train the epochs from a number on, and give the mean loss of each."""
        for epoch in range(first, self.how.epochs):
            yield self._epoch(epoch)

    def _epoch(self, epoch: int) -> float:
        how = self.how
        views: Any = self.evaluation.augmentation
        count = len(self.train)
        size = min(how.batch_size, count)
        steps = count // size
        drops = sum(epoch >= milestone for milestone in how.milestones)
        lr = how.lr * how.gamma**drops
        order = torch.randperm(count, generator=generator(self.seed, "order", epoch))
        crop = None
        if isinstance(self.train, VideoFiles):
            crop = Crops(views, 1, self.seed, epoch * count)
        stream = batches(self.train, order, size, self.evaluation.device, drop_last=True, crop=crop)
        self.network.train()
        total = 0.0
        for step, (index, clips) in enumerate(stream, epoch * steps):
            loss = self._loss(step, index, clips)
            total += self.training.descend(loss, lr)
        return total / steps

    def _loss(self, step: int, index: Tensor, clips: Tensor) -> Tensor:
        """Cross-entropy of a random frame of each clip."""
        device = self.evaluation.device
        views: Any = self.evaluation.augmentation
        frames = views.random(clips, generator(self.seed, "views", step, device))
        frames = views.normalise(frames)
        with fixed(derive(self.seed, "dropout", step), device):
            return F.cross_entropy(self.network(frames), self.labels[index])

    def scores(self, test: Any) -> Tensor:
        """``[M, C]`` mean class probabilities of test clips, after the last epoch."""
        self.training.run(self._epochs, self.how.epochs, self.evaluation.log)
        self.training.save()
        self.network.eval()
        few = test.spread(self.how.frames)
        every = torch.arange(len(few))
        means = []
        with torch.no_grad():
            for _, clips in batches(few, every, 32, self.evaluation.device, drop_last=False):
                frames = clips[:, :, :3].flatten(0, 1)
                crops = self.evaluation.augmentation.normalise(self._crops(frames))
                probabilities = self.network(crops).float().softmax(1)
                # crops come first, then clips, then their frames
                by_clip = probabilities.view(-1, len(clips), self.how.frames, probabilities.shape[1])
                means.append(by_clip.mean((0, 2)))
        return torch.cat(means)

    def _crops(self, frames: Tensor) -> Tensor:
        image: Any = self.evaluation.augmentation.image  # type: ignore[attr-defined]
        if self.how.crops == 1:
            return image.plain(frames)
        side = image.resize or min(frames.shape[2:])
        square = resize_center(frames, image.resize, side)
        square = square.mul_(1 / 255).clamp_(0, 1)
        crops = ten_crop(square, [image.size, image.size])
        return torch.cat(crops)
