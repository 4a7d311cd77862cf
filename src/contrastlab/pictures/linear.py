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
    represent,
    standardised,
)
from contrastlab.pictures.sets import StreamedImages
from contrastlab.pictures.task import Evaluation, Measured
from contrastlab.settings import LayerProbe, LinearProbe
from contrastlab.support.errors import NotApplicableError, check, reject
from contrastlab.support.seeds import fixed
from contrastlab.support.tensors import check_finite, frozen


def correct(scores: Tensor, labels: Tensor, top: int = 1) -> Tensor:
    """Whether a row's label is among its ``top`` largest scores: ``[N, C]`` and ``[N]`` to boolean ``[N]``."""
    shape = tuple(scores.shape)
    classes = scores.shape[1]
    check(classes >= 2, "scores", shape, "a tensor of shape [N, C] with at least two classes C")
    if not 1 <= top < classes:
        raise reject("top", top, f"an integer from 1 to {classes - 1}, below the {classes} classes")
    check_finite(scores=scores)
    predicted = scores.topk(top, 1).indices
    return (predicted == labels[:, None]).any(1)


def linear_lbfgs(train: Tensor, labels: Tensor, test: Tensor, *, l2: float = 1e-3) -> Tensor:
    """Scores ``[M, C]`` of ``test`` ``[M, F]`` by softmax regression on standardised features, fitted by L-BFGS.

    ``train`` is ``[N, F]``, its labels are from 0 to C − 1. The mean loss has a ridge penalty ``l2/2·‖W‖²``.
    """
    check_classified(train, labels, test)
    train, test = standardised(train, test)
    classes = int(labels.max()) + 1
    features = train.shape[1]
    # the last column is the bias
    parameters = torch.zeros(classes, features + 1, device=train.device, requires_grad=True)
    solver = torch.optim.LBFGS([parameters], max_iter=200, history_size=10, line_search_fn="strong_wolfe")

    def scores(rows: Tensor) -> Tensor:
        return F.linear(rows, parameters[:, :-1], parameters[:, -1])

    def closure() -> Tensor:
        solver.zero_grad()
        error = F.cross_entropy(scores(train), labels)
        loss = error + l2 / 2 * parameters[:, :-1].square().sum()
        loss.backward()
        return loss

    with torch.enable_grad():
        solver.step(closure)
    with torch.no_grad():
        return scores(test)


def _two_layers(inputs: int, classes: int, how: LayerProbe, seed: int, device: torch.device | str) -> Fitting:
    """A classifier with a hidden layer, fitted by Adam with β of 0.5 and 0.999 (CMC, E.1)."""
    with fixed(seed):
        network = nn.Sequential(
            nn.Linear(inputs, how.hidden),
            nn.ReLU(inplace=True),
            nn.Linear(how.hidden, classes),
        )
    network.to(device)
    adam = torch.optim.Adam(network.parameters(), how.mlp_lr, betas=(0.5, 0.999))
    constant = torch.optim.lr_scheduler.ConstantLR(adam, 1.0)
    return Fitting(network, adam, constant)


def mlp(
    train: Tensor, labels: Tensor, test: Tensor, how: LayerProbe, *, classes: int, batch_size: int = 256, seed: int = 0
) -> Tensor:
    """As :func:`linear_lbfgs`, by a classifier with a hidden layer."""
    check_classified(train, labels, test)
    train, test = standardised(train, test)
    fitting = _two_layers(train.shape[1], classes, how, seed, train.device)
    generator = torch.Generator().manual_seed(seed)
    with torch.enable_grad():
        for _ in range(how.mlp_epochs):
            order = torch.randperm(len(train), generator=generator).to(train.device)
            for rows in order.split(batch_size):
                scores = fitting.network(train[rows])
                descend(fitting.optimiser, F.cross_entropy(scores, labels[rows]))
    with torch.no_grad():
        return fitting.network(test)


def _linear(inputs: int, probe: LinearProbe, evaluation: Evaluation) -> Fitting:
    classes = len(evaluation.data.train.classes)
    with fixed(evaluation.seed):
        network = nn.Linear(inputs, classes)
    network.to(evaluation.device)
    sgd = torch.optim.SGD(network.parameters(), probe.lr, probe.momentum, weight_decay=probe.weight_decay)
    schedule = torch.optim.lr_scheduler.MultiStepLR(sgd, list(probe.milestones), probe.gamma)
    return Fitting(network, sgd, schedule)


def _train(
    read: Callable[[tuple[Tensor, ...]], dict[str, Tensor]],
    begin: Callable[[str, int], Fitting],
    evaluation: Evaluation,
    probe: LinearProbe,
    name: str,
) -> dict[str, nn.Module]:
    """Classifiers on features of the same augmented single views, all of the last epoch.

    ``read`` makes frozen features ``[B, F]`` of the views of a batch, by the name of their classifier; ``begin`` makes
    a classifier of name and F.
    """
    train = evaluation.data.train
    single = evaluation.views.single()
    augmentation = _probe_augmentation(probe, evaluation)
    indices = subset_order(train.labels, probe.train_images, evaluation.seed)
    check_labels(indices, train.labels[indices])
    labels = train.labels.to(evaluation.device)
    fits: dict[str, Fitting] = {}

    def losses(index: Tensor, images: Tensor, draws: torch.Generator) -> dict[str, Tensor]:
        features = read(single.make(images, augmentation, draws))
        loss_of_classifier = {}
        for key, rows in features.items():
            if key not in fits:  # the first batch says how many features a classifier reads
                fits[key] = begin(key, rows.shape[1])
            scores = fits[key].network(rows)
            loss_of_classifier[key] = F.cross_entropy(scores, labels[index])
        return loss_of_classifier

    crops = None
    if isinstance(train, StreamedImages):
        crops = (augmentation, single.count)
    fit(losses, fits, evaluation, indices, probe, name, crops)
    return {key: fitting.network for key, fitting in fits.items()}


def _probe_augmentation(probe: LinearProbe, evaluation: Evaluation) -> Any:
    """The augmentation of a classifier's images, in the size and statistics of that of pre-training."""
    pretraining: Any = evaluation.augmentation
    if not probe.augmentation:
        return pretraining
    by_name = named(probe.augmentation, pretraining.size)
    return replace(by_name, mean=pretraining.mean, std=pretraining.std)


def linear_sgd(encoders: nn.ModuleList, evaluation: Evaluation, test: ItemSet, probe: LinearProbe) -> Tensor:
    """Scores ``[M, C]`` of test images by a linear classifier trained with SGD on augmented images (ring §5).

    The encoder is frozen in evaluation mode; the classifier is that of the last epoch, not of the best one.
    """
    name = "linear probe"
    kind = probe.features

    def read(views: tuple[Tensor, ...]) -> dict[str, Tensor]:
        with frozen(encoders):
            return {name: represent(encoders, views, kind).float()}

    def begin(_: str, inputs: int) -> Fitting:
        return _linear(inputs, probe, evaluation)

    network = _train(read, begin, evaluation, probe, name)[name]
    single = evaluation.views.single()
    augmentation = _probe_augmentation(probe, evaluation)
    rows, _ = encode(encoders, single, augmentation, test, kind=kind, device=evaluation.device)
    with torch.no_grad():
        return torch.cat([network(part) for part in rows.split(512)])


def _linear_lbfgs_scores(encoders: nn.ModuleList, evaluation: Evaluation, test: ItemSet, probe: LinearProbe) -> Tensor:
    """Scores ``[M, C]`` of test images by :func:`linear_lbfgs` on plain views."""
    train = evaluation.data.train
    indices = subset_order(train.labels, probe.train_images, evaluation.seed)
    encode_plain = partial(
        encode,
        encoders,
        evaluation.views,
        evaluation.augmentation,
        kind=probe.features,
        device=evaluation.device,
    )
    train_rows, labels = encode_plain(train, indices=indices)
    test_rows, _ = encode_plain(test)
    return linear_lbfgs(train_rows, labels, test_rows, l2=probe.l2)


def score(task: Linear, encoders: nn.ModuleList, evaluation: Evaluation) -> dict[str, Measured]:
    """``linear``, percent of test images, and with more than five classes ``linear5``."""
    test = evaluation.data.test.take(task.test_images)
    if task.probe.solver == "sgd":
        scores = linear_sgd(encoders, evaluation, test, task.probe)
    else:
        scores = _linear_lbfgs_scores(encoders, evaluation, test, task.probe)
    truth = test.labels.to(evaluation.device)
    measured = {"linear": Measured.share(correct(scores, truth))}
    if scores.shape[1] > 5:
        measured["linear5"] = Measured.share(correct(scores, truth, 5))
    return measured


def layer_features(
    encoders: nn.ModuleList,
    evaluation: Evaluation,
    source: ItemSet,
    names: tuple[str, ...],
    values: int,
    *,
    indices: Tensor | None = None,
) -> tuple[dict[str, Tensor], Tensor]:
    """Layer to features ``[N, F]`` of plain single views, and labels ``[N]``; see ``encoder.pooled_layers``."""
    if indices is None:
        indices = torch.arange(len(source))
    single = evaluation.views.single()
    rows: dict[str, list[Tensor]] = {name: [] for name in names}
    with frozen(encoders):
        for _, images in batches(source, indices, 256, evaluation.device, drop_last=False):
            views = single.plain(images, evaluation.augmentation)
            pooled = enc.pooled_layers(encoders, views, names, values)
            for name in names:
                rows[name].append(pooled[name])
    features = {name: torch.cat(parts) for name, parts in rows.items()}
    for layer in features.values():
        check_features(layer)
    return features, source.labels[indices].to(evaluation.device)


def score_layers(task: Layers, encoders: nn.ModuleList, evaluation: Evaluation) -> dict[str, Measured]:
    """Percent of test images by layer, with ``_mlp`` behind the name for the classifier with a hidden layer."""
    existing = enc.named_layers(encoders[0])  # type: ignore[arg-type]
    wanted = task.layers.names or LAYERS
    names = tuple(name for name in wanted if name in existing)
    if not names:
        raise NotApplicableError(f"layers {', '.join(task.layers.names)}: the encoders have {', '.join(existing)}")
    test = evaluation.data.test.take(task.test_images)
    if task.probe.solver == "sgd":
        scores = layers_sgd(task, encoders, evaluation, test, names)
    else:
        scores = _layers_lbfgs(task, encoders, evaluation, test, names)
    truth = test.labels.to(evaluation.device)
    return {name: Measured.share(correct(rows, truth)) for name, rows in scores.items()}


def layers_sgd(
    task: Layers, encoders: nn.ModuleList, evaluation: Evaluation, test: ItemSet, names: tuple[str, ...]
) -> dict[str, Tensor]:
    """Scores ``[M, C]`` by classifiers on each layer, linear ones trained by SGD, those with a hidden layer by Adam."""
    probe = task.probe
    layers = task.layers
    classes = len(evaluation.data.train.classes)
    with_hidden: tuple[str, ...] = ()
    if layers.hidden:
        with_hidden = tuple(name + HIDDEN for name in names)

    def read(views: tuple[Tensor, ...]) -> dict[str, Tensor]:
        with frozen(encoders):
            features = enc.pooled_layers(encoders, views, names, layers.values)
        for name in with_hidden:
            features[name] = features[name.removesuffix(HIDDEN)]
        return features

    def begin(name: str, inputs: int) -> Fitting:
        if name in with_hidden:
            return _two_layers(inputs, classes, layers, evaluation.seed, evaluation.device)
        return _linear(inputs, probe, evaluation)

    networks = _train(read, begin, evaluation, probe, f"probes of {len(names)} layers")
    probe_evaluation = replace(evaluation, augmentation=_probe_augmentation(probe, evaluation))
    features, _ = layer_features(encoders, probe_evaluation, test, names, layers.values)
    with torch.no_grad():
        return {name: network(features[name.removesuffix(HIDDEN)]) for name, network in networks.items()}


def _layers_lbfgs(
    task: Layers, encoders: nn.ModuleList, evaluation: Evaluation, test: ItemSet, names: tuple[str, ...]
) -> dict[str, Tensor]:
    train = evaluation.data.train
    probe = task.probe
    layers = task.layers
    indices = subset_order(train.labels, probe.train_images, evaluation.seed)
    train_features, labels = layer_features(encoders, evaluation, train, names, layers.values, indices=indices)
    test_features, _ = layer_features(encoders, evaluation, test, names, layers.values)
    scores = {}
    for name in names:
        seen = train_features[name]
        unseen = test_features[name]
        scores[name] = linear_lbfgs(seen, labels, unseen, l2=probe.l2)
        if layers.hidden:
            scores[name + HIDDEN] = mlp(
                seen,
                labels,
                unseen,
                layers,
                classes=len(train.classes),
                batch_size=probe.batch_size,
                seed=evaluation.seed,
            )
        evaluation.log(f"probe of {name}: {seen.shape[1]} values")
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
    deviation = variance.clamp(min=1).sqrt()
    return tuple((mean / 255).tolist()), tuple((deviation / 255).tolist())


def adapt(task: Transfer, encoders: nn.ModuleList, evaluation: Evaluation) -> Evaluation:
    """The evaluation on images of as many channels as the encoders read, and with the target's augmentation.

    Mean and variance are those of the training images (or waveforms) that the classifier sees. A colour split has fixed
    ranges in their place (:class:`contrastlab.views.Split`), which are the same for every data set.
    """
    train = evaluation.data.train
    test = evaluation.data.test
    view: Any = evaluation.augmentation
    indices = subset_order(train.labels, task.probe.train_images, evaluation.seed)
    fits_target = task.view.normalise == "target"
    if train.modality == "waveform":
        if fits_target:
            view = view.fitted(train, indices, evaluation.device)
        return replace(evaluation, augmentation=view)
    # the encoders of a split share the channels of one image
    if sum(encoder.in_channels for encoder in encoders) == 3:  # type: ignore[misc]
        train = train.coloured()
        test = test.coloured()
    elif 3 in (train.channels, test.channels):
        raise NotApplicableError(f"the encoders read grey images, and {evaluation.data.name} has colours")
    if task.view.augmentation:
        view = named(task.view.augmentation, view.size)
    if fits_target:
        mean, std = channel_statistics(train, indices, evaluation.device)
        view = replace(view, mean=mean, std=std)
    data = replace(evaluation.data, train=train, test=test)
    return replace(evaluation, data=data, augmentation=view)


def score_transfer(task: Transfer, encoders: nn.ModuleList, evaluation: Evaluation) -> dict[str, Measured]:
    """``transfer``, percent of the target's test items."""
    linear = Linear(task.probe, task.test_images)
    measured = score(linear, encoders, adapt(task, encoders, evaluation))
    return {"transfer": measured["linear"]}
