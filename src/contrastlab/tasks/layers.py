"""Classifiers on single layers of frozen encoders, linear and with one hidden layer (CMC, Tables 7 and 8)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contrastlab import encoders as enc
from contrastlab.data.loading import Source, batches, subset_order
from contrastlab.errors import NotApplicableError
from contrastlab.seeds import fixed
from contrastlab.settings import LayerProbe, LinearProbe, Settings
from contrastlab.tasks.base import Described, Log, Measured, Metric, Setting
from contrastlab.tasks.linear import Fitting, correct, linear_lbfgs, probed, side_by_side
from contrastlab.tasks.neighbours import take
from contrastlab.tasks.representations import check_labels, frozen, standardised
from contrastlab.views import Augmentation, Views

NAMES = ("conv1", "conv2", "conv3", "conv4", "conv5", "fc6", "fc7")
"""Layers that have a metric."""

_BETAS = (0.5, 0.999)
_MLP = "_mlp"


def two_layers(inputs: int, hidden: int, classes: int, seed: int) -> nn.Module:
    """A hidden layer with ReLU and an output layer, new from ``seed``."""
    with fixed(seed):
        return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(inplace=True), nn.Linear(hidden, classes))


def mlp(
    train: Tensor, labels: Tensor, test: Tensor, *, classes: int, hidden: int = 200, epochs: int = 100,
    lr: float = 1e-3, batch_size: int = 256, seed: int = 0,
) -> Tensor:  # fmt: skip
    """Scores ``[M, C]`` by a network with one hidden layer, fitted to standardised features by Adam.

    Args:
        train: ``[N, F]``.
        labels: ``[N]``.
        test: ``[M, F]``.
        classes: C.
        hidden: units.
        epochs: passes over the training rows.
        lr: of Adam, with β of 0.5 and 0.999 (CMC, E.1).
        batch_size: rows a step.
        seed: of initial weights and order.

    Raises:
        ArgumentError: fewer than two training rows, or rows without one label each.
    """
    check_labels(train, labels)
    x, unseen = standardised(train, test)
    network = two_layers(x.shape[1], hidden, classes, seed).to(x.device)
    optimiser = torch.optim.Adam(network.parameters(), lr=lr, betas=_BETAS)
    order = torch.Generator().manual_seed(seed)
    with torch.enable_grad():
        for _ in range(epochs):
            for rows in torch.randperm(len(x), generator=order).to(x.device).split(batch_size):
                optimiser.zero_grad()
                F.cross_entropy(network(x[rows]), labels[rows]).backward()
                optimiser.step()
    with torch.no_grad():
        scores: Tensor = network(unseen)
    return scores


def layer_features(
    encoders: nn.ModuleList, views: Views, augmentation: Augmentation, source: Source, names: tuple[str, ...],
    values: int, *, device: torch.device | str = "cpu", indices: Tensor | None = None,
) -> tuple[dict[str, Tensor], Tensor]:  # fmt: skip
    """Features of the plain views of items, layer by layer; see :func:`contrastlab.encoders.pooled_layers`.

    Returns:
        Layer to ``[N, F]`` float32, and ``[N]`` labels, on ``device``.
    """
    order = torch.arange(len(source)) if indices is None else indices
    rows: dict[str, list[Tensor]] = {name: [] for name in names}
    with frozen(encoders):
        for _, images in batches(source, order, 256, device, drop_last=False):
            made = enc.pooled_layers(encoders, views.plain(images, augmentation), names, values)
            for name, features in made.items():
                rows[name].append(features)
    return {name: torch.cat(parts) for name, parts in rows.items()}, source.labels[order].to(device)


def by_sgd(
    encoders: nn.ModuleList, views: Views, augmentation: Augmentation, train: Source, test: Source,
    names: tuple[str, ...], probe: LinearProbe, layers: LayerProbe, *, seed: int,
    device: torch.device | str = "cpu", log: Log | None = None,
) -> dict[str, Tensor]:  # fmt: skip
    """Scores ``[M, C]`` of test images by a classifier on each layer, all trained side by side on augmented images.

    Linear ones by SGD as ``probe`` says, those with a hidden layer by Adam; all are those of the last epoch.

    Returns:
        Name of the layer, with ``_mlp`` behind it for a hidden layer, to scores.

    Raises:
        NotApplicableError: the training set is empty.
    """
    single, augmentation = views.single(), probed(probe, augmentation)

    def read(shown: tuple[Tensor, ...]) -> dict[str, Tensor]:
        with frozen(encoders):
            made = enc.pooled_layers(encoders, shown, names, layers.values)
        return {**made, **({name + _MLP: made[name] for name in names} if layers.hidden else {})}

    def begin(features: dict[str, Tensor]) -> dict[str, Fitting]:
        inputs, classes = {name: features[name].shape[1] for name in names}, len(train.classes)
        fits = {name: Fitting.linear(inputs[name], classes, probe, seed, device) for name in names}
        for name in names if layers.hidden else ():
            network = two_layers(inputs[name], layers.hidden, classes, seed).to(device)
            adam = torch.optim.Adam(network.parameters(), layers.mlp_lr, betas=_BETAS)
            fits[name + _MLP] = Fitting(network, adam, torch.optim.lr_scheduler.ConstantLR(adam, 1.0))
        return fits

    fitted = side_by_side(
        read, begin, single, augmentation, train, probe, seed=seed, device=device, log=log,
        name=f"probes of {len(names)} layers",
    )  # fmt: skip
    features, _ = layer_features(encoders, single, augmentation, test, names, layers.values, device=device)
    with torch.no_grad():
        return {name: network(features[name.removesuffix(_MLP)]) for name, network in fitted.items()}


@dataclass(frozen=True)
class Layers(Described):
    """A classifier on each layer of the frozen encoders.

    Args:
        probe: how the linear ones are fitted; ``features`` is not read.
        layers: which layers, how they are pooled, and the classifiers with a hidden layer.
        test_images: at most so many test images; ``None`` is all.
    """

    probe: LinearProbe = field(default_factory=LinearProbe)
    layers: LayerProbe = field(default_factory=LayerProbe)
    test_images: int | None = None

    name: ClassVar[str] = "layers"
    modality: ClassVar[str] = "image"
    tells_classes_apart: ClassVar[bool] = True
    metrics: ClassVar[tuple[Metric, ...]] = (
        *(Metric(name, f"linear accuracy at {name}") for name in NAMES),
        *(Metric(name + _MLP, f"accuracy with a hidden layer at {name}") for name in NAMES),
    )

    @classmethod
    def of(cls, settings: Settings) -> Layers:
        """The probes of ``settings``."""
        return cls(settings.linear, settings.layers, settings.test_images)

    def names(self, encoders: nn.ModuleList) -> tuple[str, ...]:
        """The layers that are probed.

        Raises:
            NotApplicableError: none of those asked for is there, or the encoders name none.
        """
        there = enc.named_layers(encoders[0])  # type: ignore[arg-type]
        chosen = tuple(name for name in self.layers.names or NAMES if name in there)
        if not chosen:
            asked = ", ".join(self.layers.names)
            raise NotApplicableError(f"layers {asked}: the encoders have {', '.join(there)}")
        return chosen

    def score(self, encoders: nn.ModuleList, setting: Setting) -> dict[str, Measured]:
        """Percent of test images by layer, with ``_mlp`` behind the name for the classifier with a hidden layer.

        Raises:
            NotApplicableError: none of the layers asked for is there.
        """
        names = self.names(encoders)
        train, test = setting.data.train, take(setting.data.test, self.test_images)
        truth = test.labels.to(setting.device)
        if self.probe.solver == "sgd":
            scores = by_sgd(
                encoders, setting.views, setting.augmentation, train, test, names, self.probe, self.layers,
                seed=setting.seed, device=setting.device, log=setting.log,
            )  # fmt: skip
        else:
            scores = self._at_once(encoders, setting, names, train, test)
        return {name: Measured.share(correct(rows, truth)) for name, rows in scores.items()}

    def _at_once(
        self, encoders: nn.ModuleList, setting: Setting, names: tuple[str, ...], train: Any, test: Any
    ) -> dict[str, Tensor]:
        single, values = setting.views.single(), self.layers.values
        chosen = subset_order(train.labels, self.probe.train_images, setting.seed)
        shown = (encoders, single, setting.augmentation)
        fit, labels = layer_features(*shown, train, names, values, device=setting.device, indices=chosen)
        unseen, _ = layer_features(*shown, test, names, values, device=setting.device)
        scores = {}
        for name in names:
            scores[name] = linear_lbfgs(fit[name], labels, unseen[name], l2=self.probe.l2)
            if self.layers.hidden:
                scores[name + _MLP] = mlp(
                    fit[name], labels, unseen[name], classes=len(train.classes), hidden=self.layers.hidden,
                    epochs=self.layers.mlp_epochs, lr=self.layers.mlp_lr, batch_size=self.probe.batch_size,
                    seed=setting.seed,
                )  # fmt: skip
            setting.log(f"probe of {name}: {fit[name].shape[1]} values")
        return scores

    def protocol(self, setting: Setting) -> dict[str, Any]:
        """How the metrics were taken."""
        return {
            **self.probe.model_dump(mode="json", exclude={"features"}),
            "layers": self.layers.model_dump(mode="json"), "encoder": "frozen, evaluation mode",
            "pooling": f"adaptive max, at most {self.layers.values} values a layer", "which_epoch": "last",
        }  # fmt: skip
