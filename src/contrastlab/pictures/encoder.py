"""View to embedding: a backbone, a projection head and a unit norm; and the layers that probes read one by one.

Convolutions start as in torchvision's ResNet and MoCo (He et al. 2015, normal, fan-out), batch norms at one and zero,
linear layers as PyTorch's default.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.models import ResNet

from contrastlab.keys.batch import normed_layers
from contrastlab.pictures import foreign_networks as foreign
from contrastlab.pictures.networks import ARCHITECTURES, Decoder, Stem
from contrastlab.settings import Weights
from contrastlab.support import errors, files
from contrastlab.views import Views

Head = Literal["linear", "mlp", "mlp3", "moco_v3", "none"]


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


def _head(kind: Head, feature_dim: int, dim: int) -> nn.Module:
    if kind == "none":
        return nn.Identity()
    if kind == "linear":
        return nn.Linear(feature_dim, dim)
    if kind == "moco_v3":
        hidden = 4096 if feature_dim >= 384 else 4 * feature_dim
        return normed_layers(feature_dim, hidden, hidden, dim)
    layers: list[nn.Module] = [nn.Linear(feature_dim, feature_dim), nn.ReLU(inplace=True)]
    if kind == "mlp3":
        layers += [nn.Linear(feature_dim, feature_dim), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.Linear(feature_dim, dim))


class Encoder(nn.Module):
    """A backbone, global average pooling, a head and a unit norm.

    A backbone with a method ``fully_connected(dim)`` brings its own head, which reads the map before any pooling.

    Args:
        backbone: images ``[B, C, H, W]`` to a map ``[B, F, h, w]``, or to features ``[B, F]``.
        feature_dim: F.
        head: ``"linear"`` (one layer), ``"mlp"`` (F to F, ReLU, F to dim), ``"mlp3"`` (F to F, ReLU, twice, then F to
            dim) or ``"moco_v3"`` (three layers, each with batch-norm; 4,096 wide, or 4F below F = 384); ``"none"``
            leaves the features as they are.
        dim: dimension of the embedding.
        pieces: patches that a second head reads (PIRL); 0 for none.
    """

    def __init__(
        self,
        backbone: nn.Module,
        feature_dim: int,
        head: Head = "linear",
        dim: int = 128,
        in_channels: int = 3,
        pieces: int = 0,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.feature_dim = feature_dim
        self.dim = dim
        self.in_channels = in_channels
        self.layout = torch.channels_last
        fully_connected = getattr(backbone, "fully_connected", None)
        self.head_reads_map = fully_connected is not None
        self.head: nn.Module
        if fully_connected is not None:
            self.head = fully_connected(dim)
        else:
            self.head = _head(head, feature_dim, dim)
        if pieces:
            self.patch_head = _head(head, feature_dim, dim)
            self.puzzle_head = nn.Linear(pieces * dim, dim)

    def features(self, x: Tensor, pooled: bool = True) -> Tensor:
        """What a probe reads of normalised views ``[B, C, H, W]``.

        Pooled, ``[B, F]``: the average over positions, or a class token; before pooling, ``[B, F, h, w]``.
        """
        x = x.contiguous(memory_format=self.layout)
        if pooled and hasattr(self.backbone, "pooled"):
            return self.backbone.pooled(x)  # type: ignore[operator]
        features = self.backbone(x)
        is_map = features.dim() != 2
        if pooled:
            return features.mean((2, 3)) if is_map else features
        return features if is_map else features[:, :, None, None]

    def forward(self, x: Tensor) -> Tensor:
        """Unit embeddings ``[B, dim]``; float32 also under autocast, since losses divide by small temperatures.

        ``x`` is normalised views ``[B, C, H, W]``; or patches ``[B, pieces, C, H, W]``, which are seen one by one and
        whose concatenated embeddings a second head reads.
        """
        if x.dim() == 5:
            patches = x.flatten(0, 1)
            embeddings = self.patch_head(self.features(patches))
            return _unit(self.puzzle_head(embeddings.view(len(x), -1)))
        return _unit(self.project(x))

    def project(self, x: Tensor) -> Tensor:
        """The head's output ``[B, dim]`` before it has unit length; a predictor reads it (MoCo v3)."""
        return self.head(self.features(x, pooled=not self.head_reads_map))

    def stages(self, x: Tensor) -> dict[str, Tensor]:
        """The map ``[B, C, h, w]`` of each block of the backbone by name, from the finest to the coarsest."""
        stages = self._of_blocks("stages")
        return stages(x.contiguous(memory_format=self.layout))

    def decoder(self, outputs: int, width: int, *, skips: bool = True) -> Decoder:
        """A new decoder from this encoder's maps; see :class:`contrastlab.pictures.networks.Decoder`."""
        channels = self._of_blocks("stage_channels")
        return Decoder(channels, outputs, width, skips=skips)

    def _of_blocks(self, attribute: str) -> Any:
        if not hasattr(self.backbone, attribute):
            raise errors.NotApplicableError(f"{type(self.backbone).__name__} names no blocks whose maps could be read")
        return getattr(self.backbone, attribute)

    def embed_with_map(self, x: Tensor, block: str) -> tuple[Tensor, Tensor]:
        """Unit embeddings ``[B, dim]`` as :meth:`forward` gives them, and one block's map ``[B, C, h, w]``."""
        stages = self.stages(x)
        errors.check_name("block of the encoder", block, stages)
        features = list(stages.values())[-1]
        if not self.head_reads_map:
            features = features.mean((2, 3))
        return _unit(self.head(features)), stages[block]


def _unit(embedding: Tensor) -> Tensor:
    return F.normalize(embedding.float(), dim=1, eps=1e-8)


class Shared(nn.Module):
    """A stream's encoder that is the encoder of another stream: it has no parameters, buffers or state of its own.

    Beside its encoder in one ``ModuleList`` it is copied, moved and trained along with it.
    """

    encoder: Encoder

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        object.__setattr__(self, "encoder", encoder)  # registered, every parameter would be in the state twice
        self.in_channels = encoder.in_channels

    def features(self, x: Tensor, pooled: bool = True) -> Tensor:
        """See :meth:`Encoder.features`."""
        return self.encoder.features(x, pooled)

    def forward(self, x: Tensor) -> Tensor:
        """See :meth:`Encoder.forward`."""
        return self.encoder(x)


def set_memory_format(module: nn.Module, *, channels_last: bool) -> None:
    """Choose the memory format of every encoder in ``module``, for weights and inputs alike."""
    layout = torch.channels_last if channels_last else torch.contiguous_format
    for encoder in module.modules():
        if isinstance(encoder, Encoder):
            encoder.layout = layout
            encoder.to(memory_format=layout)


def build(
    arch: str,
    *,
    in_channels: int = 3,
    stem: Stem = "imagenet",
    head: Head = "linear",
    dim: int = 128,
    width: float = 1.0,
    pieces: int = 0,
    options: Mapping[str, Any] = MappingProxyType({}),
) -> Encoder:
    """A new encoder of :data:`ARCHITECTURES` in channels-last memory format, on the CPU, in training mode.

    ``arch`` may also be ``timm:<name>``, ``torchvision:<name>`` or a name of :func:`contrastlab.encoders.register`,
    whose maker takes ``options``.

    The stem is ``"imagenet"`` (for ResNets 7x7 stride 2 and max pooling) or ``"cifar"`` (3x3 stride 1, no pooling);
    small networks shrink their input twice as fast with ``"imagenet"``. ``width`` is a factor on the channels; a
    ResNet's stem keeps 64 (CMC's half-width networks are 0.5). The rest is as in :class:`Encoder`.
    """
    make = ARCHITECTURES.get(arch)
    if make is not None:
        errors.check(not options, "arch_options", dict(options), f"none with {arch}")
    else:
        make = foreign.network(arch, options)
    if make is None:
        raise errors.unknown("architecture", arch, (*ARCHITECTURES, "timm:<name>", "torchvision:<name>"))
    errors.check_choice("stem", stem, get_args(Stem))
    errors.check_choice("head", head, get_args(Head))
    errors.check_positive(in_channels=in_channels, dim=dim, width=width)
    backbone: Any = make(in_channels, stem, width)
    feature_dim = _feature_dim(arch, backbone)
    if arch in ARCHITECTURES and not getattr(backbone, "initialises_itself", False):
        backbone.apply(_initialise)
    encoder = Encoder(backbone, feature_dim, head, dim, in_channels, pieces)
    encoder.head.apply(_initialise)
    return encoder.to(memory_format=torch.channels_last)


def _feature_dim(arch: str, backbone: Any) -> int:
    """Number of features that a backbone says it has; one that is no module, or does not say, is refused."""
    feature_dim = getattr(backbone, "head_hidden_size", None) or getattr(backbone, "num_features", None)
    if not isinstance(backbone, nn.Module) or not isinstance(feature_dim, int):
        raise errors.reject("arch", arch, "one that makes a torch.nn.Module with a number of features num_features")
    return feature_dim


def begin_with(encoders: Iterable[nn.Module], weights: Weights, arch: str) -> None:
    """Give the backbones of pictures the weights of a file, whose content has to be what the settings speak of."""
    path = Path(weights.file)
    content = files.content_hash(path)
    if content != weights.sha256:
        reason = f"its SHA-256 begins with {content}; the settings speak of {weights.sha256}"
        raise errors.CorruptFileError(f"{path} is another file: {reason}")
    backbones = [encoder.backbone for encoder in encoders if isinstance(encoder, Encoder)]
    errors.check(backbones, "weights.file", weights.file, "None where no encoder is one of pictures")
    for backbone in backbones:
        foreign.fill(backbone, path, arch)


def build_for(views: Views, image_channels: int, *, arch: str, **options: Any) -> nn.ModuleList:
    """One encoder per stream of the recipe part "views", for images with so many channels; see :func:`build`.

    A colour split has two full-width networks (Ring, Table 1: "two encoders"); CMC's own have ``width=0.5``.
    """
    encoders = []
    for channels in views.channels(image_channels):
        encoders.append(build(arch, in_channels=channels, pieces=views.pieces, **options))
    return nn.ModuleList(encoders)


def features(encoders: nn.ModuleList, views: tuple[Tensor, ...], pooled: bool = True) -> Tensor:
    """Features of one view for each encoder, side by side: ``[B, sum of F]``, or unpooled ``[B, sum of F, h, w]``."""
    parts = [encoder.features(view, pooled) for encoder, view in _pairs(encoders, views)]
    if len(parts) == 1:
        return parts[0]
    return torch.cat(parts, dim=1)


def _pairs(encoders: nn.ModuleList, views: tuple[Tensor, ...]) -> Iterator[tuple[Any, Tensor]]:
    errors.check(len(views) == len(encoders), "views", f"{len(views)} tensors", f"{len(encoders)}, one per encoder")
    return zip(encoders, views, strict=True)


# Layer by layer, as probes of single layers read an encoder -----------------------------------------------------------


def named_layers(encoder: Encoder) -> Mapping[str, nn.Module]:
    """The layers of an encoder that can be probed, in order; of a transformer there are none.

    A half AlexNet has conv1 … conv5 (each with its pooling), fc6 and fc7; a ResNet conv1 (its stem with the pooling)
    and its four stages conv2 … conv5; a plain sequence of blocks conv1, conv2, ….
    """
    backbone = encoder.backbone
    if isinstance(backbone, ResNet):
        stem = backbone.maxpool
        blocks = [stem, backbone.layer1, backbone.layer2, backbone.layer3, backbone.layer4]
    elif isinstance(backbone, nn.Sequential):
        blocks = [block for name, block in backbone.named_children() if not name.startswith("pool")]
    else:
        raise errors.NotApplicableError(f"{type(backbone).__name__} names no layers that could be probed")
    layers = {f"conv{number}": block for number, block in enumerate(blocks, 1)}
    for name, module in encoder.head.named_children():
        if name in ("fc6", "fc7"):
            layers[name] = module
    return layers


def layer_outputs(encoder: Encoder, x: Tensor, names: Sequence[str]) -> dict[str, Tensor]:
    """What some of the :func:`named_layers` give: maps ``[B, C, h, w]`` or, of fully connected layers, ``[B, C]``."""
    layers = named_layers(encoder)
    outputs = {}

    def keep(name: str, module: nn.Module, inputs: object, output: Tensor) -> None:
        outputs[name] = output.clone()  # a ReLU behind may work in place

    with ExitStack() as hooks:
        for name in names:
            errors.check(name in layers, "layers", name, f"those of the encoder: {', '.join(layers)}")
            hook = layers[name].register_forward_hook(partial(keep, name))
            hooks.enter_context(hook)
        encoder(x)
    return {name: outputs[name] for name in names}


def side_within(channels: int, side: int, limit: int) -> int:
    """The largest side of a map of ``channels`` with at most ``limit`` values, not more than ``side``, and at least 1.

    With 9,600 values it is 10, 6, 5, 5, 6 for the five layers of the two halves of an AlexNet, the sizes of CMC's code.
    """
    return max(1, min(side, math.isqrt(limit // channels)))


def pooled_layers(
    encoders: nn.ModuleList, views: tuple[Tensor, ...], names: Sequence[str], limit: int = 9600
) -> dict[str, Tensor]:
    """Features ``[B, F]`` of some layers, those of all streams side by side.

    A map is max-pooled to the largest square with at most ``limit`` values over all streams.
    """
    outputs = [layer_outputs(encoder, view, names) for encoder, view in _pairs(encoders, views)]
    features = {}
    for name in names:
        layers = [by_name[name].float() for by_name in outputs]
        if layers[0].dim() == 4:
            channels = sum(layer.shape[1] for layer in layers)
            side = side_within(channels, min(layers[0].shape[2:]), limit)
            layers = [F.adaptive_max_pool2d(layer, side).flatten(1) for layer in layers]
        features[name] = torch.cat(layers, 1)
    return features
