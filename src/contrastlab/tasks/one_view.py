"""A linear classifier on the encoder of one view, on data it may never have seen (CMC, Table 5)."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contrastlab.data.loading import batches, subset_order
from contrastlab.seeds import fixed
from contrastlab.settings import LinearProbe, SegmentationProbe, Settings
from contrastlab.tasks.base import Described, Measured, Metric, Setting
from contrastlab.tasks.fitting import fit
from contrastlab.tasks.linear import Linear, correct
from contrastlab.tasks.neighbours import take
from contrastlab.tasks.segmentation import stream_of
from contrastlab.views import Channels


@dataclass(frozen=True)
class OneView(Described):
    """A linear classifier on the frozen convolutions of the L encoder; end to end, the reference with labels.

    The scenes of pre-training need not have classes: the classifier's data may be colour pictures, whose luminance is
    computed.

    Args:
        probe: solver, features and so on of the classifier.
        training: epochs, batch, rate and ``end_to_end`` of the reference.
        test_images: at most so many test images; ``None`` is all.
    """

    probe: LinearProbe = field(default_factory=LinearProbe)
    training: SegmentationProbe = field(default_factory=SegmentationProbe)
    test_images: int | None = None

    view: ClassVar[str] = "L"
    name: ClassVar[str] = "one_view"
    modality: ClassVar[str] = "any"
    tells_classes_apart: ClassVar[bool] = True
    metrics: ClassVar[tuple[Metric, ...]] = (Metric("linear_L", "linear accuracy from L", items="test items"),)

    @classmethod
    def of(cls, settings: Settings) -> OneView:
        """The probe of ``settings``; what decides a decoder alone leaves no trace."""
        own = settings.segmentation if settings.segmentation.end_to_end else SegmentationProbe()
        return cls(settings.linear, own, settings.test_images)

    def score(self, encoders: nn.ModuleList, setting: Setting) -> dict[str, Measured]:
        """``linear_L``, percent of test items.

        Raises:
            NotApplicableError: the recipe has no encoder of L, or the pictures are grey.
        """
        encoder, setting = stream_of(encoders, setting, self.view), replace(setting, views=Channels((self.view,)))
        setting.views.channels(setting.data.test.channels)
        if not self.training.end_to_end:
            scored = Linear(self.probe, self.test_images).score(nn.ModuleList([encoder]), setting)
            return {"linear_L": scored["linear"]}
        return {"linear_L": self._end_to_end(encoder, setting)}

    def _end_to_end(self, encoder: nn.Module, setting: Setting) -> Measured:
        train, test = setting.data.train, take(setting.data.test, self.test_images)
        with fixed(setting.seed):
            model = copy.deepcopy(encoder).to(setting.device)
            classifier = nn.Linear(model.feature_dim, len(train.classes)).to(setting.device)  # type: ignore[arg-type]
        known = train.labels.to(setting.device)
        model.train()

        def loss(index: Tensor, items: Tensor, draws: torch.Generator) -> Tensor:
            (view,) = setting.views.make(items, setting.augmentation, draws)
            return F.cross_entropy(classifier(model.features(view)), known[index])  # type: ignore[operator]

        t = self.training
        fit(
            loss, [*model.backbone.parameters(), *classifier.parameters()], train,  # type: ignore[union-attr]
            subset_order(train.labels, self.probe.train_images, setting.seed), epochs=t.epochs,
            batch_size=t.batch_size, lr=t.lr, betas=t.betas, seed=setting.seed, device=setting.device,
        )  # fmt: skip
        model.eval()
        scores = []
        with torch.no_grad():
            for _, items in batches(test, torch.arange(len(test)), 256, setting.device, drop_last=False):
                (view,) = setting.views.plain(items, setting.augmentation)
                scores.append(classifier(model.features(view)))  # type: ignore[operator]
        return Measured.share(correct(torch.cat(scores), test.labels.to(setting.device)))

    def protocol(self, setting: Setting) -> dict[str, Any]:
        """How the metric was taken."""
        if self.training.end_to_end:
            return {
                **self.training.model_dump(mode="json", include={"epochs", "batch_size", "lr", "betas"}),
                "encoder": "trained with the classifier, from its start", "view": self.view, "which_epoch": "last",
            }  # fmt: skip
        return {**Linear(self.probe).protocol(setting), "view": self.view}
