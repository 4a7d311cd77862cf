"""Action recognition: the encoder of frames, fine-tuned up to conv5, scored over the frames of each test clip."""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.transforms.functional import ten_crop

from contrastlab import checkpoint, files
from contrastlab.data.image_operations import resize_center
from contrastlab.data.loading import Crops, Videos, batches
from contrastlab.encoders import Encoder
from contrastlab.encoders.networks import CaffeNet
from contrastlab.errors import CorruptFileError, NotApplicableError
from contrastlab.seeds import derive, fixed, generator
from contrastlab.settings import ActionRecognition, Settings
from contrastlab.tasks.base import Described, Measured, Metric, Setting, bootstrap
from contrastlab.tasks.neighbours import take

_SAVE_EVERY = 60.0  # seconds


def spatial_network(encoder: Encoder, classes: int, dropout: float, seed: int) -> nn.Module:
    """The network of single frames that is fine-tuned: a copy, so that the encoder stays as it is.

    CaffeNet keeps conv1 to conv5; fc6, fc7 and fc8 start anew (CMC, section 4.2). Another backbone is kept as a whole,
    averaged over positions, and followed by one new layer.

    Args:
        encoder: of frames.
        classes: number of actions.
        dropout: of the fully connected layers.
        seed: of the new weights.
    """
    backbone = copy.deepcopy(encoder.backbone)
    with fixed(seed):
        if isinstance(backbone, CaffeNet):
            fc6 = copy.deepcopy(backbone.fc6)
            for layer in fc6:
                if isinstance(layer, nn.Conv2d | nn.BatchNorm2d):
                    layer.reset_parameters()
            fc6[-1] = nn.Dropout(dropout)
            wide = backbone.features
            fc7 = nn.Sequential(nn.Linear(wide, wide), nn.ReLU(inplace=True), nn.Dropout(dropout))
            return nn.Sequential(backbone.convolutions, fc6, _Pooled(), fc7, nn.Linear(wide, classes))
        head = nn.Linear(encoder.feature_dim, classes)
        return nn.Sequential(backbone, _Pooled(), nn.Dropout(dropout), head)


class _Pooled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean((2, 3))


@dataclass(frozen=True)
class Action(Described):
    """Action recognition by fine-tuning the encoder of frames (CMC §4.2; Simonyan and Zisserman 2014, spatial network).

    A step shows a random frame of each clip. A test clip has the mean of the class probabilities of its frames. The
    score is the mean of the accuracies of all official splits, each with a network of its own.

    Args:
        training: length, rate, frames of a test clip and so on.
        test_images: at most so many test clips of each split; ``None`` is all.
    """

    training: ActionRecognition = field(default_factory=ActionRecognition)
    test_images: int | None = None

    name: ClassVar[str] = "action"
    modality: ClassVar[str] = "clip"
    tells_classes_apart: ClassVar[bool] = True
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric("action", "action recognition accuracy", error="bootstrap", items="test clips"),
    )

    @classmethod
    def of(cls, settings: Settings) -> Action:
        """The task as ``settings`` have it."""
        return cls(settings.action, settings.test_images)

    def score(self, encoders: nn.ModuleList, setting: Setting) -> dict[str, Measured]:
        """``action``, percent of test clips, averaged over the official splits.

        Raises:
            NotApplicableError: the first stream is not one of colour frames.
        """
        first: Any = encoders[0]
        if first.in_channels != 3:
            raise NotApplicableError(
                f"action recognition reads colour frames; the first encoder {first.in_channels} channels"
            )
        parts = []
        for fold, (train, test) in enumerate(setting.data.folds()):
            folder = None if setting.folder is None else setting.folder / f"split{fold + 1}"
            tuning = _FineTuning(self.training, first, train, setting, fold, folder)
            shown = take(test, self.test_images)
            known = tuning.stored(len(shown))
            if known is None:
                known = tuning.scores(shown).argmax(1).cpu() == shown.labels.cpu()
                if folder is not None:
                    files.write_tensors(folder / _DONE, {"correct": known}, {"origin": tuning.origin})
            if folder is not None:
                files.remove(folder / checkpoint.FILE)
            parts.append(known)
        correct = torch.cat(parts)
        fold_of = torch.cat([torch.full((len(part),), k) for k, part in enumerate(parts)])
        value, half_width = bootstrap(lambda rows: mean_over_folds(correct[rows], fold_of[rows]), len(correct))
        return {"action": Measured(value, len(correct), half_width, correct)}

    def protocol(self, setting: Setting) -> dict[str, Any]:
        """How the metric was taken."""
        how = self.training
        return {
            "encoder": "of frames, fine-tuned from conv5 down, fully connected layers new",
            "solver": f"sgd, {how.epochs} epochs, lr {how.lr:g}, momentum {how.momentum:g}, dropout {how.dropout:g}",
            "score": f"mean probability of {how.frames} frames x {how.crops} crops, mean over splits",
            "splits": len(setting.data.folds()),
        }


def mean_over_folds(correct: Tensor, fold: Tensor) -> float:
    """Percent correct of each fold, averaged over the folds that have items: boolean ``[N]`` and int64 ``[N]``."""
    counts = torch.bincount(fold).double()
    right = torch.bincount(fold, correct.double(), len(counts))
    return 100 * float((right[counts > 0] / counts[counts > 0]).mean())


_DONE = "correct.safetensors"


class _FineTuning:
    """One network between its epochs. Its draws are counted, so that a resumed one goes on to the same bits."""

    def __init__(
        self, how: ActionRecognition, encoder: Encoder, train: Any, setting: Setting, fold: int, folder: Path | None
    ) -> None:  # fmt: skip
        self.how, self.setting, self.folder = how, setting, folder
        self.seed = derive(setting.seed, "action", fold) % 2**31
        count = min(how.train_clips or len(train), len(train))
        self.train = (train if count == len(train) else train.take(count, self.seed)).still()
        if len(self.train) == 0:
            raise NotApplicableError("action recognition: the training set is empty")
        network = spatial_network(encoder, len(train.classes), how.dropout, derive(self.seed, "weights") % 2**31)
        self.network = network.to(setting.device)
        self.optimiser = torch.optim.SGD(
            self.network.parameters(), lr=how.lr, momentum=how.momentum, weight_decay=how.weight_decay
        )
        self.epoch = 0
        about = {"training": how.model_dump(mode="json"), "data": train.fingerprint, "seed": self.seed}
        self.origin = files.fingerprint(self.network.state_dict(), about)

    def stored(self, items: int) -> Tensor | None:
        """Which of ``items`` test clips a finished network has right; ``None`` where none is stored.

        Raises:
            CorruptFileError: the file is damaged, or of another training.
        """
        if self.folder is None or not (self.folder / _DONE).exists():
            return None
        tensors, values = files.read_tensors(self.folder / _DONE)
        checkpoint.check_origin(values, self.origin, self.folder / _DONE)
        if "correct" not in tensors or len(tensors["correct"]) != items:
            raise CorruptFileError(f"{self.folder / _DONE} is of other clips; delete {self.folder}")
        return tensors["correct"].bool()

    def _resume(self) -> None:
        if self.folder is None or not (self.folder / checkpoint.FILE).exists():
            return
        state = checkpoint.load(self.folder / checkpoint.FILE, self.setting.device, self.origin)
        self.network.load_state_dict(state["network"])
        checkpoint.fill_optimiser(self.optimiser, state["optimiser"])
        self.epoch = state["epoch"]

    def _save(self) -> None:
        if self.folder is not None:
            state = {
                "network": self.network.state_dict(),
                "optimiser": self.optimiser.state_dict(),
                "epoch": self.epoch,
            }
            checkpoint.save(state, self.folder / checkpoint.FILE, self.origin)

    def _lr(self) -> float:
        return self.how.lr * self.how.gamma ** sum(self.epoch >= m for m in self.how.milestones)

    def _epoch(self) -> float:
        how, device = self.how, self.setting.device
        self.network.train()
        for group in self.optimiser.param_groups:
            group["lr"] = self._lr()
        count, size = len(self.train), min(how.batch_size, len(self.train))
        order = torch.randperm(count, generator=generator(self.seed, "order", self.epoch))
        steps = count // size
        crop = Crops(self.setting.augmentation, 1, self.seed, self.epoch * count)
        labels, total = self.train.labels.to(device), 0.0
        stream = batches(
            self.train, order, size, device, drop_last=True, crop=crop if isinstance(self.train, Videos) else None
        )
        for step, (index, clips) in enumerate(stream, self.epoch * steps):
            draws = generator(self.seed, "views", step, device)
            views = self.setting.augmentation
            frames = views.normalise(views.random(clips, draws))
            with fixed(derive(self.seed, "dropout", step), device):
                loss = F.cross_entropy(self.network(frames), labels[index])
            self.optimiser.zero_grad()
            loss.backward()
            self.optimiser.step()
            total += float(loss.detach())
        self.epoch += 1
        return total / steps

    def scores(self, test: Any) -> Tensor:
        """``[M, C]`` mean class probabilities of test clips, after the last epoch."""
        self._resume()
        said = time.monotonic()
        with torch.enable_grad():
            while self.epoch < self.how.epochs:
                loss = self._epoch()
                if time.monotonic() - said > _SAVE_EVERY or self.epoch == self.how.epochs:
                    said = time.monotonic()
                    self.setting.log(f"fine-tuning, epoch {self.epoch}/{self.how.epochs}, loss {loss:.3f}")
                    self._save()
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
        augmentation: Any = self.setting.augmentation
        image = augmentation.image
        if self.how.crops == 1:
            seen: Tensor = image.plain(frames)
            return seen
        side = image.resize or min(frames.shape[2:])
        square = resize_center(frames, image.resize, side).mul_(1 / 255).clamp_(0, 1)
        return torch.cat(ten_crop(square, [image.size, image.size]))
