"""Counts agree with hand calculations, and the fitted constants with what was measured."""

import json
from dataclasses import replace
from pathlib import Path

import cost
import pytest
import torch
from torch import Tensor, nn

from contrastlab import encoders, keys, methods
from contrastlab.negatives import BatchRandom
from contrastlab.scores.candidates import DENSE_BYTES, FEW, Candidates, Chosen
from contrastlab.settings import Settings
from contrastlab.support import collectives
from contrastlab.support.errors import ArgumentError, NotApplicableError, UnknownNameError
from contrastlab.train.learner import Learner
from made_runs import refused

STORED = Path(__file__).parents[1] / "benchmarks" / "results" / "scale.json"
TINY = Settings(arch="tiny", stem="cifar", image_size=32, batch_size=64, dim=16)
NAMES = ("ring/ir", "ring/iring", "ring/cmc", "ring/moco", "ring/mocoring", "ring/simclr", "jcl/jcl", "fmicl/moco_v3")


def by_layers(arch: str, stem: str, side: int) -> tuple[int, int]:
    """Operations forward, and forward and backward, from the shapes of the layers."""
    forward, first = [], []

    def convolution(layer: nn.Conv2d, inputs: tuple[Tensor], out: Tensor) -> None:
        done = 2 * out[0].numel() * layer.in_channels * layer.kernel_size[0] * layer.kernel_size[1]
        forward.append(done)
        if layer.in_channels == 3:
            first.append(done)

    network = encoders.build(arch, stem=stem).eval()
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            layer.register_forward_hook(convolution)
        elif isinstance(layer, nn.Linear):
            forward.append(2 * layer.in_features * layer.out_features)
    with torch.no_grad():
        network(torch.zeros(1, 3, side, side))
    # backward has two products for each forward one, but no gradient of the pixels
    return sum(forward), 3 * sum(forward) - sum(first)


@pytest.mark.parametrize(
    ("arch", "stem", "side"), [("resnet18", "imagenet", 224), ("resnet18", "cifar", 32), ("resnet50", "imagenet", 64)]
)
def test_operations_are_those_of_the_layers(arch: str, stem: str, side: int) -> None:
    counts = cost.encoder(arch, stem=stem, side=side)
    assert (counts.forward, counts.training) == by_layers(arch, stem, side)
    assert counts.parameters == sum(p.numel() for p in encoders.build(arch, stem=stem).parameters())


def test_what_is_kept_for_the_backward_pass_of_a_small_network() -> None:
    # the views, and of each layer what goes into its batch norm and what comes out of its ReLU
    by_hand = 3 * 32**2 + 2 * (16 * 16**2 + 32 * 8**2 + 64 * 4**2 + 64 * 4**2)
    assert cost.encoder("tiny", stem="cifar", side=32).activations == pytest.approx(by_hand, rel=0.03)


def test_messages_and_negatives_by_hand() -> None:
    """A batch of 64 on four processes; embeddings of 16 numbers of four bytes, and pictures of 32 by 32 pixels."""
    assert cost.all_reduce(100, 2) == 100
    assert cost.all_reduce(100, 8) == 175
    assert cost.all_gather(100, 4) == 75

    parameters = cost.encoder("tiny", stem="cifar", dim=16, side=32).parameters
    number_of_row = 8
    embedding = 4 * 16
    picture = 4 * 3 * 32**2
    ir = cost.work(methods.get("ring/ir"), TINY, 1000, processes=4)
    assert ir.reduced == 2 * 3 / 4 * 4 * parameters
    assert ir.gathered == 3 / 4 * 64 * (number_of_row + embedding)
    # MoCo with shuffled batch norm sends the pictures of the keys, too; here there are five keys
    jcl = cost.work(methods.get("jcl/jcl"), TINY, 1000, processes=4)
    assert jcl.gathered == 3 / 4 * 64 * (embedding + 5 * (picture + embedding))

    mocoring = methods.get("ring/mocoring").override({"keys.size": 1000})
    moco = methods.get("ring/moco").override({"keys.size": 1000})
    seven = methods.get("ring/ir").override({"negatives.k": 7})
    seven_of_two_streams = methods.get("ring/cmc").override({"negatives.k": 7})
    assert cost.work(mocoring, TINY, 10_000, progress=0).drawn == 64 * 990
    assert cost.work(mocoring, TINY, 10_000).drawn == 64 * 90
    assert cost.work(moco, TINY, 10_000).drawn == 64 * 1000
    assert cost.work(seven, TINY, 10_000).drawn == 64 * 7
    assert cost.work(seven_of_two_streams, TINY, 10_000).drawn == 2 * 64 * 7


@pytest.mark.parametrize("name", ["ring/ir", "ring/iring", "ring/cmc", "ring/moco", "ring/mocoring"])
def test_bytes_gathered_are_those_the_learner_gathers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = methods.get(name).override({"keys.size": 64, "negatives.k": 7})
    learner = Learner(recipe, TINY, image_channels=3, images=100, classes=2, seed=0)
    seen = []

    def gather(x: Tensor) -> Tensor:
        seen.append(x.nbytes)
        return x.detach()

    monkeypatch.setattr(collectives, "gather", gather)
    generator = torch.Generator().manual_seed(0)
    views = []
    for _ in range(recipe.views.count):
        for channels in recipe.views.channels(3):
            views.append(torch.rand(64, channels, 32, 32, generator=generator))
    rows = torch.arange(64)
    loss = learner.loss(tuple(views), rows, rows, BatchRandom(torch.Generator()), 1, 1)
    learner.commit(rows, loss)
    assert cost.work(recipe, TINY, 100, processes=2).gathered == sum(seen) / 2


@pytest.mark.parametrize("name", NAMES)
def test_one_process_sends_nothing_and_more_share_the_work(name: str) -> None:
    recipe = methods.get(name)
    one, two, eight = (cost.work(recipe, TINY, 100_000, processes=n) for n in (1, 2, 8))
    assert one.reduced == 0
    assert one.gathered == 0
    for few, many in ((one, two), (two, eight)):
        assert many.reduced > few.reduced
        assert many.gathered > few.gathered
        assert many.encoder < few.encoder
        assert many.product < few.product
        assert many.stored == few.stored  # not shared out


@pytest.mark.parametrize("name", NAMES)
def test_larger_costs_more(name: str) -> None:
    recipe = methods.get(name)
    base = cost.work(recipe, TINY, 10_000)
    batch = cost.work(recipe, TINY.override(batch_size=128), 10_000)
    side = cost.work(recipe, TINY.override(image_size=64), 10_000)
    assert batch.encoder == 2 * base.encoder
    assert batch.pairs >= 2 * base.pairs
    assert batch.steps == base.steps // 2
    assert side.encoder > 3 * base.encoder
    assert side.activations > 3 * base.activations
    assert side.views == 4 * base.views
    if isinstance(recipe.keys, keys.Bank):
        bank = cost.work(recipe, TINY, 20_000)
        assert bank.pairs == 2 * base.pairs
        assert bank.stored == 2 * base.stored
        assert bank.steps == 2 * base.steps


def candidates_of_learner(name: str, images: int) -> Candidates:
    """What a learner chooses negatives from, for 64 queries and a bank of so many rows."""
    learner = Learner(methods.get(name), TINY, image_channels=3, images=2, classes=2, seed=0)
    queries = torch.zeros(64, TINY.dim)
    bank = torch.zeros(images, TINY.dim)
    direction = keys.Direction(queries, queries[:, None], bank)
    return learner._candidates(queries, direction, torch.zeros(64), BatchRandom(torch.Generator()))


@pytest.mark.parametrize(
    "images", [4 * 4095, FEW * 4095, FEW * 4095 + 1, DENSE_BYTES // 4 // 64, DENSE_BYTES // 4 // 64 + 1]
)
def test_kinds_are_those_of_the_learner(images: int) -> None:
    """The kind is how the learner scores: IR all keys or the drawn ones, IRing all keys at once or in one pass.

    Products are of queries with all keys, and with the k chosen ones for the gradient, or to score them.
    """
    k = 4095
    product = 2 * 64 * TINY.dim  # 64 queries with a key; of two numbers it is two operations
    of_ir = candidates_of_learner("ring/ir", images)
    of_ir.read(Chosen(torch.zeros(64, k, dtype=torch.int64)))
    ir = cost.work(methods.get("ring/ir"), TINY, images)
    if "logits" in vars(of_ir):  # scores of all keys were made
        assert ir.kind == "uniform"
        assert ir.product == product * (images + k)
        assert ir.scores == 64 * images
    else:
        assert ir.kind == "uniform, few"
        assert ir.product == product * 2 * k
        assert ir.scores == 0

    iring = cost.work(methods.get("ring/iring"), TINY, images)
    if candidates_of_learner("ring/iring", images).dense:
        assert iring.kind == "region"
        assert iring.product == product * (images + k)
    else:
        assert iring.kind == "region, streamed"
        assert iring.product == product * (images + 2 * k)

    moco = cost.work(methods.get("ring/moco").override({"keys.size": images}), TINY, 1000)
    assert moco.product == product * 2 * images


def machine(**rates: float) -> cost.Machine:
    """A machine that is no bottleneck but for these rates, and that passes twice over scores and pixels."""
    all_rates = dict.fromkeys(("encoder", "product", "memory", "link", "images"), 1e30) | rates
    two_passes = dict.fromkeys((*cost.KINDS, "views"), cost.Rate(2, "passes", "made up"))
    return cost.Machine(
        **{name: cost.Rate(rate, "1/s", "made up") for name, rate in all_rates.items()}, passes=two_passes
    )


def test_seconds_are_counts_through_rates_and_decoding_runs_beside_the_rest() -> None:
    """Of 15 steps, each with 32 of the 64 queries on either of two processes."""
    step = cost.work(methods.get("ring/ir"), TINY, 1000, processes=2)
    assert step.steps == 15
    with_encoder = cost.epoch(step, machine(encoder=step.encoder))
    assert with_encoder.seconds == pytest.approx(15)
    with_product = cost.epoch(step, machine(product=step.product))
    assert with_product.objective == pytest.approx(15)
    with_link = cost.epoch(step, machine(link=(step.reduced + step.gathered) / 2))
    assert with_link.link == pytest.approx(30)
    with_images = cost.epoch(step, machine(images=32))
    assert with_images.data == pytest.approx(15)

    with_memory = cost.epoch(step, machine(memory=1.0))
    key = 4 * 16
    index = 8
    value_and_gradient = 4 + 4
    scores = 2 * 4 * 32 * 1000  # bytes, passed twice
    drawn = 32 * 4095 * (index + value_and_gradient + key)
    pixels = 2 * 4 * 32 * 3 * 32**2
    assert with_memory.objective == pytest.approx(15 * (scores + drawn))
    assert with_memory.views == pytest.approx(15 * pixels)

    decoding_is_slowest = cost.Epoch(data=5, views=1, encoder=1, objective=1, link=1)
    assert decoding_is_slowest.seconds == 5
    decoding_is_hidden = cost.Epoch(data=3, views=1, encoder=1, objective=1, link=1)
    assert decoding_is_hidden.seconds == 4
    encoder_is_slowest = cost.Epoch(data=3, views=1, encoder=1.5, objective=1, link=1)
    assert encoder_is_slowest.bottleneck == "encoder"


@pytest.mark.parametrize("name", ["encoder", "images", "link", "product"])
def test_the_bottleneck_is_named(name: str) -> None:
    step = cost.work(methods.get("ring/ir"), TINY, 1000, processes=2)
    epoch = cost.epoch(step, machine(**{name: 1.0}))
    parts = {"encoder": "encoder", "images": "data", "link": "link", "product": "objective"}
    assert epoch.bottleneck == parts[name]
    assert epoch.seconds == pytest.approx(sum(epoch.parts.values()))
    assert "estimate" in str(epoch)


def test_what_cannot_be_is_refused() -> None:
    ir = methods.get("ring/ir")
    random = methods.get("ours/random")
    moco = methods.get("ring/moco")
    without_views = dict.fromkeys(cost.KINDS, cost.Rate(1, "", ""))
    refused(
        (lambda: cost.work(ir, TINY, 1000, processes=3), ArgumentError, "processes=3"),
        (lambda: cost.work(ir, TINY, 10), ArgumentError, "images=10"),
        (lambda: cost.work(ir, TINY, 1000, progress=2), ArgumentError, "progress=2"),
        (lambda: cost.work(random, TINY, 1000), NotApplicableError, "no stored embeddings"),
        (lambda: machine(link=0.0), ArgumentError, "link=0"),
        (lambda: replace(machine(), passes=without_views), UnknownNameError, "views"),
        (lambda: cost.predict({}, moco, 10, 2), UnknownNameError, "every"),
    )


def test_a_known_law_is_found_again_and_the_fit_is_near_what_was_measured() -> None:
    """The fit of a made law predicts what it says elsewhere; stored times are met up to a factor of two."""
    iring = methods.get("ring/iring")
    law = cost.Fit(0.5, 2e-6, 3e-4)
    made = []
    for size, batch in ((1000, 8), (5000, 8), (5000, 32), (50_000, 64), (200, 2)):
        seconds = law(batch * size, batch * 4095)
        made.append((iring, {"keys": size, "batch": batch, "cpu_s": seconds}))
    fits = cost.calibrate(made)
    assert fits["region"].per_pair == pytest.approx(law.per_pair, rel=1e-6)
    expected = law(16 * 10_000, 16 * 4095)
    assert cost.predict(fits, iring, 10_000, 16) == pytest.approx(expected, rel=1e-6)

    stored = json.loads(STORED.read_text())["rows"].values()
    measured = [(methods.get(row["method"]), row) for row in stored if "cpu_s" in row and "method" in row]
    assert len(measured) > 10
    fits = cost.calibrate(measured)
    for recipe, row in measured:
        ratio = cost.predict(fits, recipe, row["keys"], row["batch"]) / row["cpu_s"]
        assert 1 / 2 < ratio < 2, f"{row}: {ratio}"


def test_memory_has_its_parts() -> None:
    moco = cost.work(methods.get("ring/moco"), TINY, 1000)
    memory = cost.memory(moco, {"every": cost.Fit(1, 8, 0)}, activation_bytes=2)
    encoder = cost.encoder("tiny", stem="cifar", dim=16, side=32)
    assert memory["networks"] == 4 * 4 * encoder.parameters  # weights, gradients, momentum, slow network
    assert memory["stored keys"] == 65_536 * 16 * 4
    assert memory["objective"] == 1 + 8 * 64 * 65_536
    assert memory["activations"] == 2 * 64 * encoder.activations
    with pytest.raises(UnknownNameError):
        cost.memory(moco, {})
