"""Shapes, stems, streams and parameter counts of the encoders."""

import pytest
import torch
from torch import nn

from contrastlab import encoders
from contrastlab.views import Augmented, Split

SMALL = ("tiny", "small")


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize("stem", ["imagenet", "cifar"])
@pytest.mark.parametrize("head", ["linear", "mlp", "mlp3"])
@pytest.mark.parametrize("arch", SMALL)
def test_small_networks(arch, head, stem):
    encoder = encoders.build(arch, stem=stem, head=head, dim=48)
    views = torch.randn(4, 3, 32, 32)
    embedding = encoder(views)
    assert embedding.shape == (4, 48)
    assert torch.allclose(embedding.norm(dim=1), torch.ones(4), atol=1e-5)
    assert encoder.features(views).shape == (4, encoder.feature_dim)
    feature_map = encoder.features(views, pooled=False)
    assert feature_map.shape[:2] == (4, encoder.feature_dim)
    assert feature_map.shape[2] == (4 if stem == "cifar" else 2)
    for size in (8, 33, 96):
        assert encoder.features(torch.randn(2, 3, size, size)).shape == (2, encoder.feature_dim)
    embedding.sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in encoder.parameters())


@pytest.mark.parametrize(("stem", "size", "side"), [("imagenet", 224, 7), ("imagenet", 32, 1), ("cifar", 32, 4)])
def test_resnet18_feature_map(stem, size, side):
    encoder = encoders.build("resnet18", stem=stem).eval()
    with torch.no_grad():
        assert encoder.features(torch.randn(1, 3, size, size), pooled=False).shape == (1, 512, side, side)
        assert encoder.features(torch.randn(1, 3, size, size)).shape == (1, 512)


def test_stems():
    for stem, *shape in (("imagenet", (7, 7), (2, 2), nn.MaxPool2d), ("cifar", (3, 3), (1, 1), nn.Identity)):
        net = encoders.build("resnet18", stem=stem).backbone
        assert [net.conv1.kernel_size, net.conv1.stride, type(net.maxpool)] == shape


@pytest.mark.parametrize("arch", [n for n in sorted(encoders.ARCHITECTURES) if not n.startswith("vit")])
@pytest.mark.parametrize("stem", ["imagenet", "cifar"])
def test_convolutions_start_like_torchvision(arch, stem):
    encoder = encoders.build(arch, stem=stem, in_channels=2)
    for part in encoder.modules():
        if isinstance(part, nn.Conv2d) and part.weight.numel() > 4000:
            fan_out = part.out_channels * part.kernel_size[0] * part.kernel_size[1]
            assert part.weight.std().item() == pytest.approx((2 / fan_out) ** 0.5, rel=0.1)
        if isinstance(part, nn.BatchNorm2d):
            assert bool((part.weight == 1).all() and (part.bias == 0).all())


def test_scene_network_takes_any_size_and_gives_its_blocks():
    for size in (64, 96, 33):
        half = encoders.build("scene", in_channels=1, width=0.5, dim=128).eval()
        assert half(torch.zeros(2, 1, size, size)).shape == (2, 128)
        assert half.stages(torch.zeros(1, 1, size, size))["conv4"].shape[1] == half.dim
    whole = encoders.build("scene", in_channels=3, dim=256).eval()
    view = torch.randn(2, 3, 128, 128)
    stages = whole.stages(view)
    assert torch.equal(stages["conv5"], whole.features(view, pooled=False))
    embedded, seen = whole.embed_with_map(view, "conv4")
    assert torch.equal(embedded, whole(view))
    assert torch.equal(seen, stages["conv4"])
    torch.testing.assert_close(embedded.norm(dim=1), torch.ones(2))


def test_heads_and_half_widths():
    head = encoders.build("resnet18", head="mlp", dim=64).head
    assert [tuple(p.shape) for p in head.parameters()] == [(512, 512), (512,), (64, 512), (64,)]
    assert [tuple(p.shape) for p in encoders.build("resnet18", dim=64).head.parameters()] == [(64, 512), (64,)]
    half = encoders.build("resnet18", width=0.5).eval()
    assert half.feature_dim == 256
    assert half.backbone.conv1.out_channels == 64
    assert half(torch.randn(1, 3, 32, 32)).shape == (1, 128)
    assert encoders.build("resnet50", width=0.5).feature_dim == 1024
    assert encoders.build("small", width=2).feature_dim == 2 * encoders.build("small").feature_dim


def test_two_streams_for_a_colour_split_and_one_for_a_picture():
    one = encoders.build_for(Augmented(2), 3, arch="resnet18", stem="cifar", head="linear", dim=128)
    two = encoders.build_for(Split(), 3, arch="resnet18", stem="cifar", head="linear", dim=128).eval()
    assert len(one) == 1
    assert [e.backbone.conv1.in_channels for e in two] == [1, 2]
    assert count(two) == pytest.approx(2 * count(one), rel=1e-3)
    views = (torch.randn(2, 1, 32, 32), torch.randn(2, 2, 32, 32))
    with torch.no_grad():
        assert encoders.features(two, views, pooled=True).shape == (2, 1024)
        assert encoders.features(two, views, pooled=False).shape == (2, 1024, 4, 4)
        both = encoders.features(two, views)
        torch.testing.assert_close(both[:, 512:], two[1].features(views[1]))
    assert not torch.equal(two[0].head.weight, two[1].head.weight)
    alone, grey = encoders.build_for(Augmented(1), 1, arch="tiny").eval(), torch.randn(3, 1, 32, 32)
    assert torch.equal(encoders.features(alone, (grey,)), alone[0].features(grey))


def test_unit_norm_survives_zero_and_autocast():
    encoder = encoders.build("tiny").eval()
    for p in encoder.head.parameters():
        nn.init.zeros_(p)
    assert bool((encoder(torch.randn(2, 3, 32, 32)) == 0).all())
    encoder = encoders.build("tiny").eval()
    with torch.autocast("cpu", torch.bfloat16):
        embedding = encoder(torch.randn(4, 3, 32, 32))
    assert embedding.dtype == torch.float32
    assert torch.allclose(embedding.norm(dim=1), torch.ones(4), atol=1e-5)
