"""Vision transformers of MoCo v3: fixed positions and patches, the predictor, and the loss against loops."""

import math
import sys
from importlib.util import find_spec

import pytest
import torch
from torch import nn

from contrastlab import encoders, keys, methods, papers
from contrastlab.negatives import BatchRandom
from contrastlab.pictures import networks
from contrastlab.settings import Settings
from contrastlab.support.errors import ArgumentError, MissingExtraError
from contrastlab.train import pretrain
from contrastlab.train.learner import Learner
from contrastlab.views import Augmented
from made_runs import equal, quiet, resumed

needs_timm = pytest.mark.skipif(find_spec("timm") is None, reason="timm is not installed (extra vit)")
V3 = methods.get("fmicl/moco_v3").override({"keys.predictor": 12, "keys.momentum": 0.9})


def network(arch: str = "vit_nano", head: str = "moco_v3", **options) -> encoders.Encoder:
    torch.manual_seed(0)
    return encoders.build(arch, head=head, dim=8, **options)


def images(count: int = 6, side: int = 32, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, 3, side, side, generator=torch.Generator().manual_seed(seed))


def test_positions_are_sines_and_cosines_of_column_and_row() -> None:
    made = networks.positions(8, 3)
    assert made.shape == (1, 10, 8)
    assert not made[0, 0].any()
    for row in range(3):
        for column in range(3):
            expected = []
            for value in (column, row):
                for function in (math.sin, math.cos):
                    expected += [function(value * 10_000 ** -(k / 2)) for k in range(2)]
            assert made[0, 1 + 3 * row + column].tolist() == pytest.approx(expected, abs=1e-6)
    with pytest.raises(ArgumentError, match="^dim=6: .*multiple of four"):
        networks.positions(6, 3)


@needs_timm
@pytest.mark.parametrize(("arch", "blocks", "tokens"), [("vit_nano", 2, 16), ("vit_mini", 6, 16)])
def test_shapes_and_what_is_not_trained(arch, blocks, tokens) -> None:
    made = network(arch)
    assert len(made.backbone.blocks) == blocks
    assert made.features(images(2), pooled=False).flatten(2).shape == (2, made.feature_dim, tokens)
    assert made.features(images(2)).shape == (2, made.feature_dim)
    still = {name for name, p in made.named_parameters() if not p.requires_grad}
    assert still == {"backbone.pos_embed", "backbone.patch_embed.proj.weight", "backbone.patch_embed.proj.bias"}
    bound = math.sqrt(6 / (3 * 64 + made.feature_dim))
    weight = made.backbone.patch_embed.proj.weight
    assert 0.9 * bound < weight.abs().max() <= bound
    with pytest.raises(ArgumentError, match=r"^image_size=\(30, 30\): .*multiples of 8"):
        made(images(2, 30))


@needs_timm
def test_the_published_networks_have_6_and_12_blocks_of_384() -> None:
    six, twelve = (encoders.ARCHITECTURES[name](3, "imagenet", 1.0) for name in ("vit_small_6", "vit_small"))
    assert (len(six.blocks), len(twelve.blocks)) == (6, 12)
    assert six.embed_dim == twelve.embed_dim == 384
    assert {block.attn.num_heads for block in twelve.blocks} == {12}
    assert six.patch_embed.num_patches == 14 * 14
    assert sum(p.numel() for p in twelve.parameters()) > 1.9 * sum(p.numel() for p in six.parameters())


@needs_timm
def test_a_stored_one_loads_into_timm_and_gives_its_features(tmp_path) -> None:
    from safetensors.torch import load_file
    from timm.models.vision_transformer import VisionTransformer

    made = network().eval()
    encoders.save(nn.ModuleList([made]), tmp_path, ("view",), {"arch": "vit_nano", "head": "moco_v3", "dim": 8})
    theirs = VisionTransformer(32, 8, num_classes=0, embed_dim=64, depth=2, num_heads=4).eval()
    state = load_file(tmp_path / "encoder.safetensors")
    answer = theirs.load_state_dict(state, strict=False)
    assert not answer.missing_keys
    assert all(name.startswith("head.") for name in answer.unexpected_keys)
    with torch.no_grad():
        torch.testing.assert_close(theirs(images(3)), made.features(images(3)))
        (again,) = encoders.load(tmp_path)
        assert torch.equal(again(images(3)), made(images(3)))


def test_a_missing_timm_names_its_extra(monkeypatch) -> None:
    networks._vit_class.cache_clear()
    monkeypatch.setitem(sys.modules, "timm.models.vision_transformer", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'contrastlab\[vit\]'"):
        network()


def test_layers_of_head_and_predictor_are_those_of_moco_v3() -> None:
    layers = list(keys.batch.normed_layers(5, 7, 7, 3))
    kinds = [*["Linear", "BatchNorm1d", "ReLU"] * 2, "Linear", "BatchNorm1d"]
    assert [type(layer).__name__ for layer in layers] == kinds
    assert all(layer.bias is None for layer in layers if isinstance(layer, nn.Linear))
    assert [layer.affine for layer in layers if isinstance(layer, nn.BatchNorm1d)] == [True, True, False]
    plan = papers.plan("fmicl", 3)
    base, rows, fair = (
        plan.settings("imagenet", f"fmicl/{name}") for name in ("moco_v3", "moco_v3_kl", "moco_v3_six_blocks")
    )
    assert fair == rows
    assert (base.arch, base.epochs, base.batch_size) == ("vit_small", 300, 4096)
    assert (rows.arch, rows.epochs, rows.batch_size) == ("vit_small_6", 1000, 1024)
    assert set(plan.pairs.values()) == {"fmicl/moco_v3_six_blocks"}


@needs_timm
@pytest.mark.parametrize("name", ["fmicl/moco_v3", "fmicl/moco_v3_kl"])
def test_a_step_is_that_of_loops(name) -> None:
    recipe = methods.get(name).override({"keys.predictor": 12, "keys.momentum": 0.9})
    learner = Learner(
        recipe, Settings(dim=8), images=6, classes=2, seed=0, encoders=nn.ModuleList([network()])
    ).double()  # fmt: skip
    slow, fast = learner.keys.slow[0], learner.network.encoders[0]
    with torch.no_grad():
        for parameter in fast.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)).double())
    before = {n: p.clone() for n, p in slow.named_parameters()}
    views = images(seed=1).double(), images(seed=2).double()
    draws = BatchRandom(torch.Generator().manual_seed(0), 0, 6)
    done = learner.loss(views, torch.arange(6), torch.zeros(6, dtype=torch.int64), draws, 0, 1)
    for parameter_name, parameter in slow.named_parameters():
        moved = 0.9 * before[parameter_name] + 0.1 * dict(fast.named_parameters())[parameter_name]
        torch.testing.assert_close(parameter, moved)
    unit = nn.functional.normalize
    queries = [unit(learner.network.keys_module(fast.project(v)), dim=1) for v in views]
    targets = unit(slow.head(slow.features(torch.cat(views))), dim=1).chunk(2)
    total = 0.0
    for q, k in ((queries[0], targets[1]), (queries[1], targets[0])):
        for i in range(6):
            scores = [float(q[i] @ k[j]) / recipe.temperature for j in range(6)]
            others = [s for j, s in enumerate(scores) if j != i]
            if name == "fmicl/moco_v3":
                total += math.log(sum(math.exp(s) for s in scores)) - scores[i]
            else:
                us = [math.exp(s - 2) for s in others]
                total += -(1 + scores[i] - 2) + 40 * sum(us) / len(us)
    assert float(done.loss) == pytest.approx(total / 12, rel=1e-5)
    done.loss.backward()
    assert all(p.grad is not None for p in learner.network.keys_module.parameters())
    assert fast.backbone.patch_embed.proj.weight.grad is None


@needs_timm
def test_a_run_leaves_positions_and_patches_alone_and_resumes(pictures, tmp_path) -> None:
    settings = Settings(
        image_size=16, arch="vit_nano", head="moco_v3", dim=8, epochs=2, batch_size=16, knn_every=0, schedule="linear",
        lr=1e-3, weight_decay=0.1, optimiser={"name": "adamw"},
    )  # fmt: skip
    how = {"seed": 0, "log": quiet}
    whole = pretrain(V3, settings, pictures(32), **how)
    pieces, _ = resumed(lambda: pretrain(V3, settings, pictures(32), folder=tmp_path, max_minutes=0, **how))
    assert equal(whole.encoders, pieces.encoders)
    torch.manual_seed(0)
    start = encoders.build_for(Augmented(2), 3, arch="vit_nano", head="moco_v3", dim=8)[0].state_dict()
    ends = whole.encoders[0].state_dict()
    for name in ("backbone.pos_embed", "backbone.patch_embed.proj.weight"):
        assert torch.equal(ends[name], start[name])
    assert not torch.equal(ends["backbone.blocks.0.mlp.fc1.weight"], start["backbone.blocks.0.mlp.fc1.weight"])


def test_a_predictor_has_draws_of_its_own() -> None:
    def start(seed: int) -> torch.Tensor:
        setup = keys.Setup(nn.ModuleList(), None, 9, 2, 8, torch.Generator().manual_seed(seed))
        return torch.cat([parameter.flatten() for parameter in V3.keys.module(setup).parameters()])

    state = torch.random.get_rng_state()
    assert torch.equal(start(0), start(0))
    assert not torch.equal(start(0), start(1))
    assert torch.equal(state, torch.random.get_rng_state())


@needs_timm
def test_few_patches_are_attended_to_by_plain_products_with_the_same_result() -> None:
    from timm.layers import use_fused_attn

    small, large = (
        encoders.ARCHITECTURES[name](3, "cifar", width) for name, width in (("vit_nano", 1.0), ("vit_small_6", 0.25))
    )
    assert {block.attn.fused_attn for block in small.blocks} == {False}
    # timm's own choice, which the environment can turn off
    assert {block.attn.fused_attn for block in large.blocks} == {use_fused_attn()}
    x = torch.randn(5, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    plain = small.pooled(x)
    for block in small.blocks:
        block.attn.fused_attn = True
    torch.testing.assert_close(small.pooled(x), plain, rtol=1e-5, atol=1e-5)
