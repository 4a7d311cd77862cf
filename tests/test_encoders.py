"""Shapes, stems, streams and parameter counts of the encoders."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contrastlab import encoders
from contrastlab.support.errors import ArgumentError
from contrastlab.views import Augmented, Split

SMALL = ("tiny", "small")
CONVOLUTIONAL = [name for name in sorted(encoders.ARCHITECTURES) if not name.startswith("vit")]


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def shapes(module: nn.Module) -> list[tuple[int, ...]]:
    return [tuple(parameter.shape) for parameter in module.parameters()]


def assert_unit_length(embedding: Tensor) -> None:
    torch.testing.assert_close(embedding.norm(dim=1), torch.ones(len(embedding)))


# Small networks -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stem", ["imagenet", "cifar"])
@pytest.mark.parametrize("head", ["linear", "mlp", "mlp3"])
@pytest.mark.parametrize("arch", SMALL)
def test_small_networks_give_unit_embeddings_and_all_their_parameters_learn(arch, head, stem):
    encoder = encoders.build(arch, stem=stem, head=head, dim=48)
    embedding = encoder(torch.randn(4, 3, 32, 32))
    assert embedding.shape == (4, 48)
    assert_unit_length(embedding)
    embedding.sum().backward()
    for name, parameter in encoder.named_parameters():
        assert bool(parameter.grad.isfinite().all()), name
        assert bool(parameter.grad.any()), name


@pytest.mark.parametrize(("stem", "side"), [("imagenet", 2), ("cifar", 4)])
@pytest.mark.parametrize("arch", SMALL)
def test_features_are_the_mean_of_the_map_whose_side_depends_on_the_stem(arch, stem, side):
    encoder = encoders.build(arch, stem=stem).eval()
    views = torch.randn(4, 3, 32, 32)
    with torch.no_grad():
        feature_map = encoder.features(views, pooled=False)
        features = encoder.features(views)
    assert feature_map.shape == (4, encoder.feature_dim, side, side)
    torch.testing.assert_close(features, feature_map.mean((2, 3)))


@pytest.mark.parametrize("size", [8, 33, 96])
@pytest.mark.parametrize("stem", ["imagenet", "cifar"])
@pytest.mark.parametrize("arch", SMALL)
def test_small_networks_take_views_of_any_side(arch, stem, size):
    encoder = encoders.build(arch, stem=stem).eval()
    with torch.no_grad():
        assert encoder.features(torch.randn(2, 3, size, size)).shape == (2, encoder.feature_dim)


# ResNets --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("stem", "size", "side"), [("imagenet", 224, 7), ("imagenet", 32, 1), ("cifar", 32, 4)])
def test_resnet18_has_512_features_at_each_place_of_its_map(stem, size, side):
    encoder = encoders.build("resnet18", stem=stem).eval()
    views = torch.randn(1, 3, size, size)
    with torch.no_grad():
        assert encoder.features(views, pooled=False).shape == (1, 512, side, side)
        assert encoder.features(views).shape == (1, 512)


@pytest.mark.parametrize(
    ("stem", "kernel", "stride", "pooling"), [("imagenet", 7, 2, nn.MaxPool2d), ("cifar", 3, 1, nn.Identity)]
)
def test_the_stem_of_a_resnet(stem, kernel, stride, pooling):
    backbone = encoders.build("resnet18", stem=stem).backbone
    assert backbone.conv1.kernel_size == (kernel, kernel)
    assert backbone.conv1.stride == (stride, stride)
    assert type(backbone.maxpool) is pooling


def test_half_a_resnet_has_half_of_the_channels_behind_its_stem():
    half = encoders.build("resnet18", width=0.5).eval()
    assert half.backbone.conv1.out_channels == 64
    assert half.feature_dim == 256
    with torch.no_grad():
        assert half.features(torch.randn(1, 3, 32, 32)).shape == (1, 256)
        assert half(torch.randn(1, 3, 32, 32)).shape == (1, 128)
    assert encoders.build("resnet50", width=0.5).feature_dim == 1024


def test_a_small_network_of_twice_the_width_has_twice_the_features():
    assert encoders.build("small", width=2).feature_dim == 2 * encoders.build("small").feature_dim


# Heads and starts -----------------------------------------------------------------------------------------------------


HEADS = {
    "linear": [(64, 512), (64,)],
    "mlp": [(512, 512), (512,), (64, 512), (64,)],
    "mlp3": [(512, 512), (512,), (512, 512), (512,), (64, 512), (64,)],
    "none": [],
}


@pytest.mark.parametrize("head", HEADS)
def test_heads_have_the_layers_that_are_stated(head):
    assert shapes(encoders.build("resnet18", head=head, dim=64).head) == HEADS[head]


def test_a_head_of_one_hidden_layer_is_a_rectifier_between_two_linear_layers():
    head = encoders.build("tiny", head="mlp", dim=8).head
    first, _, last = head
    features = torch.randn(5, first.in_features)
    expected = last(F.relu(first(features)))
    torch.testing.assert_close(head(features), expected)


@pytest.mark.parametrize("arch", CONVOLUTIONAL)
@pytest.mark.parametrize("stem", ["imagenet", "cifar"])
def test_convolutions_start_like_torchvision(arch, stem):
    encoder = encoders.build(arch, stem=stem, in_channels=2)
    for part in encoder.modules():
        if isinstance(part, nn.Conv2d) and part.weight.numel() > 4000:
            fan_out = part.out_channels * part.kernel_size[0] * part.kernel_size[1]
            assert part.weight.std().item() == pytest.approx((2 / fan_out) ** 0.5, rel=0.1)
        if isinstance(part, nn.BatchNorm2d):
            assert bool((part.weight == 1).all())
            assert bool((part.bias == 0).all())


# Unit length ----------------------------------------------------------------------------------------------------------


def test_an_embedding_is_the_heads_output_divided_by_its_length():
    encoder = encoders.build("tiny", dim=8).eval()
    views = torch.randn(4, 3, 32, 32)
    with torch.no_grad():
        output = encoder.project(views)
        torch.testing.assert_close(encoder(views), output / output.norm(dim=1, keepdim=True))


def test_an_output_of_zero_has_the_embedding_zero():
    encoder = encoders.build("tiny").eval()
    for parameter in encoder.head.parameters():
        nn.init.zeros_(parameter)
    embedding = encoder(torch.randn(2, 3, 32, 32))
    assert torch.equal(embedding, torch.zeros(2, 128))


def test_embeddings_are_float32_and_of_unit_length_under_autocast():
    encoder = encoders.build("tiny").eval()
    with torch.autocast("cpu", torch.bfloat16):
        embedding = encoder(torch.randn(4, 3, 32, 32))
    assert embedding.dtype == torch.float32
    assert_unit_length(embedding)


# The network of scenes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [64, 96, 33])
def test_the_network_of_scenes_takes_any_side_and_its_fourth_map_is_as_deep_as_its_embedding(size):
    half = encoders.build("scene", in_channels=1, width=0.5, dim=128).eval()
    with torch.no_grad():
        assert half(torch.zeros(2, 1, size, size)).shape == (2, 128)
        assert half.stages(torch.zeros(1, 1, size, size))["conv4"].shape[1] == 128


def test_the_network_of_scenes_gives_embeddings_and_maps_of_one_pass():
    encoder = encoders.build("scene", in_channels=3, dim=256).eval()
    views = torch.randn(2, 3, 128, 128)
    with torch.no_grad():
        stages = encoder.stages(views)
        embedding, seen = encoder.embed_with_map(views, "conv4")
        assert torch.equal(stages["conv5"], encoder.features(views, pooled=False))
        assert torch.equal(embedding, encoder(views))
    assert torch.equal(seen, stages["conv4"])
    assert_unit_length(embedding)


# One encoder for each stream ------------------------------------------------------------------------------------------

RESNET = {"arch": "resnet18", "stem": "cifar", "head": "linear", "dim": 128}


def test_a_colour_split_has_two_whole_encoders_that_start_differently():
    (one,) = encoders.build_for(Augmented(2), 3, **RESNET)
    luminance, chrominance = encoders.build_for(Split(), 3, **RESNET)
    assert luminance.backbone.conv1.in_channels == 1
    assert chrominance.backbone.conv1.in_channels == 2
    assert count(luminance) + count(chrominance) == pytest.approx(2 * count(one), rel=1e-3)
    assert not torch.equal(luminance.head.weight, chrominance.head.weight)


def test_features_of_two_encoders_lie_side_by_side():
    split = encoders.build_for(Split(), 3, arch="tiny", stem="cifar").eval()
    luminance, chrominance = split
    views = (torch.randn(2, 1, 32, 32), torch.randn(2, 2, 32, 32))
    with torch.no_grad():
        for pooled in (True, False):
            both = encoders.features(split, views, pooled=pooled)
            first, second = both.chunk(2, dim=1)
            assert torch.equal(first, luminance.features(views[0], pooled))
            assert torch.equal(second, chrominance.features(views[1], pooled))


def test_features_of_one_encoder_are_its_own():
    alone = encoders.build_for(Augmented(1), 1, arch="tiny").eval()
    grey = torch.randn(3, 1, 32, 32)
    with torch.no_grad():
        assert torch.equal(encoders.features(alone, (grey,)), alone[0].features(grey))


def test_another_number_of_views_than_of_encoders_is_refused():
    alone = encoders.build_for(Augmented(1), 1, arch="tiny").eval()
    grey = torch.randn(3, 1, 32, 32)
    with pytest.raises(ArgumentError, match="views='2 tensors': expected 1, one per encoder"):
        encoders.features(alone, (grey, grey))
