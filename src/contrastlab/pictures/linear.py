"""Classifiers on frozen features: linear, on single layers, and on data that the encoders were not trained on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contrastlab.pictures import encoder as enc
from contrastlab.pictures.augmentations import augmentation as named
from contrastlab.pictures.definitions import HIDDEN, LAYERS, Layers, Linear, Transfer
from contrastlab.pictures.fitting import Fitting, descend, fit
from contrastlab.pictures.items import ItemSet
from contrastlab.pictures.loading import batches, subset_order
from contrastlab.pictures.representations import (
    check_classified,
    check_features,
    check_labels,
    encode,
    frozen,
    represent,
    standardised,
    take,
)
from contrastlab.pictures.sets import StreamedImages
from contrastlab.pictures.task import Measured, Setting
from contrastlab.settings import LayerProbe, LinearProbe
from contrastlab.support.errors import NotApplicableError, check, reject
from contrastlab.support.seeds import fixed
from contrastlab.support.tensors import check_finite


def correct(scores: Tensor, labels: Tensor, top: int = 1) -> Tensor:
    """Whether a row's label is among its ``top`` largest scores: ``[N, C]`` and ``[N]`` to boolean ``[N]``."""
    check(scores.shape[1] >= 2, "scores", tuple(scores.shape), "a tensor of shape [N, C] with at least two classes C")
    if not 1 <= top < scores.shape[1]:
        raise reject("top", top, f"an integer from 1 to {scores.shape[1] - 1}, below the {scores.shape[1]} classes")
    check_finite(scores=scores)
    return (scores.topk(top, 1).indices == labels[:, None]).any(1)


def linear_lbfgs(train: Tensor, labels: Tensor, test: Tensor, *, l2: float = 1e-3) -> Tensor:
    """Scores ``[M, C]`` of ``test`` ``[M, F]`` by softmax regression on standardised features, fitted by L-BFGS.

    ``train`` is ``[N, F]``, its labels are from 0 to C − 1. The mean loss has a ridge penalty ``l2/2·‖W‖²``.
    """
    check_classified(train, labels, test)
    x, unseen = standardised(train, test)
    weight = torch.zeros(int(labels.max()) + 1, x.shape[1] + 1, device=x.device, requires_grad=True)
    solver = torch.optim.LBFGS([weight], max_iter=200, history_size=10, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        solver.zero_grad()
        error = F.cross_entropy(F.linear(x, weight[:, :-1], weight[:, -1]), labels)
        loss = error + l2 / 2 * weight[:, :-1].square().sum()
        loss.backward()
        return loss

    with torch.enable_grad():
        solver.step(closure)
    with torch.no_grad():
        return F.linear(unseen, weight[:, :-1], weight[:, -1])


def _two_layers(inputs: int, classes: int, how: LayerProbe, seed: int, device: torch.device | str) -> Fitting:
    """A classifier with a hidden layer, fitted by Adam with β of 0.5 and 0.999 (CMC, E.1)."""
    with fixed(seed):
        layers = nn.Linear(inputs, how.hidden), nn.ReLU(inplace=True), nn.Linear(how.hidden, classes)
    network = nn.Sequential(*layers).to(device)
    adam = torch.optim.Adam(network.parameters(), how.mlp_lr, betas=(0.5, 0.999))
    return Fitting(network, adam, torch.optim.lr_scheduler.ConstantLR(adam, 1.0))


def mlp(
    train: Tensor, labels: Tensor, test: Tensor, how: LayerProbe, *, classes: int, batch_size: int = 256, seed: int = 0
) -> Tensor:
    """As :func:`linear_lbfgs`, by a classifier with a hidden layer."""
    check_classified(train, labels, test)
    x, unseen = standardised(train, test)
    fitted = _two_layers(x.shape[1], classes, how, seed, x.device)
    order = torch.Generator().manual_seed(seed)
    with torch.enable_grad():
        for _ in range(how.mlp_epochs):
            for rows in torch.randperm(len(x), generator=order).to(x.device).split(batch_size):
                descend(fitted.optimiser, F.cross_entropy(fitted.network(x[rows]), labels[rows]))
    with torch.no_grad():
        return fitted.network(unseen)


def _linear(inputs: int, probe: LinearProbe, setting: Setting) -> Fitting:
    with fixed(setting.seed):
        network = nn.Linear(inputs, len(setting.data.train.classes)).to(setting.device)
    sgd = torch.optim.SGD(network.parameters(), probe.lr, probe.momentum, weight_decay=probe.weight_decay)
    return Fitting(network, sgd, torch.optim.lr_scheduler.MultiStepLR(sgd, list(probe.milestones), probe.gamma))


def _train(
    read: Callable[[tuple[Tensor, ...]], dict[str, Tensor]], begin: Callable[[str, int], Fitting], setting: Setting,
    probe: LinearProbe, name: str,
) -> dict[str, nn.Module]:  # fmt: skip
    """Classifiers on features of the same augmented single views, all of the last epoch.

    ``read`` makes frozen features ``[B, F]`` of the views of a batch, by the name of their classifier; ``begin`` makes
    a classifier of name and F.
    """
    train, part, shown = setting.data.train, setting.views.single(), _probed(probe, setting)
    chosen = subset_order(train.labels, probe.train_images, setting.seed)
    check_labels(chosen, train.labels[chosen])
    known = train.labels.to(setting.device)
    fits: dict[str, Fitting] = {}

    def losses(index: Tensor, images: Tensor, draws: torch.Generator) -> dict[str, Tensor]:
        features = read(part.make(images, shown, draws))
        if not fits:
            fits.update({key: begin(key, rows.shape[1]) for key, rows in features.items()})
        return {key: F.cross_entropy(fits[key].network(rows), known[index]) for key, rows in features.items()}

    fit(losses, fits, setting, chosen, probe, name, (shown, part.count) if isinstance(train, StreamedImages) else None)
    return {key: each.network for key, each in fits.items()}


def _probed(probe: LinearProbe, setting: Setting) -> Any:
    """The augmentation of a classifier's images, in the size and statistics of that of pre-training."""
    known: Any = setting.augmentation
    if not probe.augmentation:
        return known
    return replace(named(probe.augmentation, known.size), mean=known.mean, std=known.std)


def linear_sgd(encoders: nn.ModuleList, setting: Setting, test: ItemSet, probe: LinearProbe) -> Tensor:
    """Scores ``[M, C]`` of test images by a linear classifier trained with SGD on augmented images (ring §5).

    The encoder is frozen in evaluation mode; the classifier is that of the last epoch, not of the best one.
    """
    kind, name = probe.features, "linear probe"

    def read(views: tuple[Tensor, ...]) -> dict[str, Tensor]:
        with frozen(encoders):
            return {name: represent(encoders, views, kind).float()}

    network = _train(read, lambda _, inputs: _linear(inputs, probe, setting), setting, probe, name)[name]
    single, shown = setting.views.single(), _probed(probe, setting)
    rows, _ = encode(encoders, single, shown, test, kind=kind, device=setting.device)
    with torch.no_grad():
        return torch.cat([network(part) for part in rows.split(512)])


def score(task: Linear, encoders: nn.ModuleList, setting: Setting) -> dict[str, Measured]:
    """``linear``, percent of test images, and with more than five classes ``linear5``."""
    train, test, probe = setting.data.train, take(setting.data.test, task.test_images), task.probe
    if probe.solver == "sgd":
        scores = linear_sgd(encoders, setting, test, probe)
    else:
        kind, device = probe.features, setting.device
        rows = partial(encode, encoders, setting.views, setting.augmentation, kind=kind, device=device)
        x, y = rows(train, indices=subset_order(train.labels, probe.train_images, setting.seed))
        scores = linear_lbfgs(x, y, rows(test)[0], l2=probe.l2)
    truth = test.labels.to(setting.device)
    measured = {"linear": Measured.share(correct(scores, truth))}
    if scores.shape[1] > 5:
        measured["linear5"] = Measured.share(correct(scores, truth, 5))
    return measured


def layer_features(
    encoders: nn.ModuleList, setting: Setting, source: ItemSet, names: tuple[str, ...], values: int, *,
    indices: Tensor | None = None,
) -> tuple[dict[str, Tensor], Tensor]:  # fmt: skip
    """Layer to features ``[N, F]`` of plain single views, and labels ``[N]``; see ``encoder.pooled_layers``."""
    order = torch.arange(len(source)) if indices is None else indices
    rows: dict[str, list[Tensor]] = {name: [] for name in names}
    with frozen(encoders):
        for _, images in batches(source, order, 256, setting.device, drop_last=False):
            views = setting.views.single().plain(images, setting.augmentation)
            for name, features in enc.pooled_layers(encoders, views, names, values).items():
                rows[name].append(features)
    joined = {name: torch.cat(parts) for name, parts in rows.items()}
    for layer in joined.values():
        check_features(layer)
    return joined, source.labels[order].to(setting.device)


def score_layers(task: Layers, encoders: nn.ModuleList, setting: Setting) -> dict[str, Measured]:
    """Percent of test images by layer, with ``_mlp`` behind the name for the classifier with a hidden layer."""
    known = enc.named_layers(encoders[0])  # type: ignore[arg-type]
    names = tuple(name for name in task.layers.names or LAYERS if name in known)
    if not names:
        raise NotApplicableError(f"layers {', '.join(task.layers.names)}: the encoders have {', '.join(known)}")
    test = take(setting.data.test, task.test_images)
    scores = (layers_sgd if task.probe.solver == "sgd" else _layers_lbfgs)(task, encoders, setting, test, names)
    truth = test.labels.to(setting.device)
    return {name: Measured.share(correct(rows, truth)) for name, rows in scores.items()}


def layers_sgd(
    task: Layers, encoders: nn.ModuleList, setting: Setting, test: ItemSet, names: tuple[str, ...]
) -> dict[str, Tensor]:
    """Scores ``[M, C]`` by classifiers on each layer, linear ones trained by SGD, those with a hidden layer by Adam."""
    probe, layers = task.probe, task.layers
    wide = tuple(name + HIDDEN for name in names) if layers.hidden else ()

    def read(shown: tuple[Tensor, ...]) -> dict[str, Tensor]:
        with frozen(encoders):
            made = enc.pooled_layers(encoders, shown, names, layers.values)
        return {**made, **{name: made[name.removesuffix(HIDDEN)] for name in wide}}

    def begin(name: str, inputs: int) -> Fitting:
        if name not in wide:
            return _linear(inputs, probe, setting)
        return _two_layers(inputs, len(setting.data.train.classes), layers, setting.seed, setting.device)

    fitted = _train(read, begin, setting, probe, f"probes of {len(names)} layers")
    shown = replace(setting, augmentation=_probed(probe, setting))
    features, _ = layer_features(encoders, shown, test, names, layers.values)
    with torch.no_grad():
        return {name: network(features[name.removesuffix(HIDDEN)]) for name, network in fitted.items()}


def _layers_lbfgs(
    task: Layers, encoders: nn.ModuleList, setting: Setting, test: ItemSet, names: tuple[str, ...]
) -> dict[str, Tensor]:
    train, probe, layers = setting.data.train, task.probe, task.layers
    chosen = subset_order(train.labels, probe.train_images, setting.seed)
    seen, labels = layer_features(encoders, setting, train, names, layers.values, indices=chosen)
    unseen, _ = layer_features(encoders, setting, test, names, layers.values)
    scores = {}
    for name in names:
        scores[name] = linear_lbfgs(seen[name], labels, unseen[name], l2=probe.l2)
        if layers.hidden:
            how = {"classes": len(train.classes), "batch_size": probe.batch_size, "seed": setting.seed}
            scores[name + HIDDEN] = mlp(seen[name], labels, unseen[name], layers, **how)
        setting.log(f"probe of {name}: {seen[name].shape[1]} values")
    return scores


def channel_statistics(
    source: ItemSet, indices: Tensor, device: torch.device | str = "cpu"
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel over all pixels of some images, as fractions of full scale.

    Deviations are of the population; that of a constant channel is one grey level, so that it can be divided by.
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


def adapt(task: Transfer, encoders: nn.ModuleList, setting: Setting) -> Setting:
    """The setting with images of as many channels as the encoders read, and with the target's augmentation.

    Mean and variance are those of the training images (or waveforms) that the classifier sees. A colour split has fixed
    ranges in their place (:class:`contrastlab.views.Split`), which are the same for every data set.
    """
    train, test = setting.data.train, setting.data.test
    shown: Any = setting.augmentation
    chosen = subset_order(train.labels, task.probe.train_images, setting.seed)
    own = task.view.normalise == "target"
    if train.modality == "waveform":
        return replace(setting, augmentation=shown.fitted(train, chosen, setting.device) if own else shown)
    # the encoders of a split share the channels of one image
    if sum(encoder.in_channels for encoder in encoders) == 3:  # type: ignore[misc]
        train, test = train.coloured(), test.coloured()
    elif 3 in (train.channels, test.channels):
        raise NotApplicableError(f"the encoders read grey images, and {setting.data.name} has colours")
    if task.view.augmentation:
        shown = named(task.view.augmentation, shown.size)
    if own:
        mean, std = channel_statistics(train, chosen, setting.device)
        shown = replace(shown, mean=mean, std=std)
    return replace(setting, data=replace(setting.data, train=train, test=test), augmentation=shown)


def score_transfer(task: Transfer, encoders: nn.ModuleList, setting: Setting) -> dict[str, Measured]:
    """``transfer``, percent of the target's test items."""
    linear = Linear(task.probe, task.test_images)
    return {"transfer": score(linear, encoders, adapt(task, encoders, setting))["linear"]}
