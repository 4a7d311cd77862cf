"""Counts agree with hand calculations, and the fitted constants with what was measured."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import cost
import pytest
import torch
from torch import Tensor, nn

from contrastlab import encoders, keys, methods
from contrastlab.negatives import BatchRandom
from contrastlab.scores.candidates import DENSE_BYTES, Chosen
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
    assert cost.all_reduce(100, 2) == 100
    assert cost.all_reduce(100, 8) == 175
    assert cost.all_gather(100, 4) == 75
    parameters = cost.encoder("tiny", stem="cifar", dim=16, side=32).parameters
    one = cost.work(methods.get("ring/ir"), TINY, 1000, processes=4)
    assert one.reduced == 2 * 3 / 4 * 4 * parameters
    assert one.gathered == 3 / 4 * 64 * (8 + 4 * 16)
    # MoCo with shuffled batch norm sends the pictures of the keys, too
    five = cost.work(methods.get("jcl/jcl"), TINY, 1000, processes=4)
    assert five.gathered == 3 / 4 * 64 * (4 * 16 + 5 * (4 * 3 * 32**2 + 4 * 16))
    ring = methods.get("ring/mocoring").override({"keys.size": 1000})
    assert cost.work(ring, TINY, 10_000, progress=0).drawn == 64 * 990
    assert cost.work(ring, TINY, 10_000).drawn == 64 * 90
    assert cost.work(methods.get("ring/moco").override({"keys.size": 1000}), TINY, 10_000).drawn == 64 * 1000
    assert cost.work(methods.get("ring/ir").override({"negatives.k": 7}), TINY, 10_000).drawn == 64 * 7
    assert cost.work(methods.get("ring/cmc").override({"negatives.k": 7}), TINY, 10_000).drawn == 2 * 64 * 7


@pytest.mark.parametrize("name", ["ring/ir", "ring/iring", "ring/cmc", "ring/moco", "ring/mocoring"])
def test_bytes_gathered_are_those_the_learner_gathers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = methods.get(name).override({"keys.size": 64, "negatives.k": 7})
    learner = Learner(recipe, TINY, image_channels=3, images=100, classes=2, seed=0)
    seen = []

    def gather(x: Tensor) -> Tensor:
        seen.append(x.nbytes)
        return x.detach()

    monkeypatch.setattr(collectives, "gather", gather)
    generator, split = torch.Generator().manual_seed(0), recipe.views.channels(3)
    views = [torch.rand(64, c, 32, 32, generator=generator) for _ in range(recipe.views.count) for c in split]
    rows = torch.arange(64)
    learner.commit(rows, learner.loss(tuple(views), rows, rows, BatchRandom(torch.Generator()), 1, 1))
    assert cost.work(recipe, TINY, 100, processes=2).gathered == sum(seen) / 2


@pytest.mark.parametrize("name", NAMES)
def test_one_process_sends_nothing_and_more_share_the_work(name: str) -> None:
    recipe = methods.get(name)
    works = [cost.work(recipe, TINY, 100_000, processes=n) for n in (1, 2, 8)]
    assert works[0].reduced == works[0].gathered == 0
    for few, many in pairwise(works):
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
        assert (bank.pairs, bank.stored, bank.steps) == (2 * base.pairs, 2 * base.stored, 2 * base.steps)


@pytest.mark.parametrize("images", [4 * 4095, 8 * 4095 + 1, DENSE_BYTES // 4 // 64, DENSE_BYTES // 4 // 64 + 1])
def test_kinds_are_those_of_the_learner(images: int) -> None:
    d, k = TINY.dim, 4095
    pool, query = torch.zeros(images, d), torch.zeros(64, d)
    seen = {}
    for name in ("ring/ir", "ring/iring"):
        learner = Learner(methods.get(name), TINY, image_channels=3, images=2, classes=2, seed=0)
        direction = keys.Direction(query, query[:, None], pool)
        found = learner._candidates(query, direction, torch.zeros(64), BatchRandom(torch.Generator()))
        if name == "ring/ir":
            found.read(Chosen(torch.zeros(64, k, dtype=torch.int64)))
        seen[name] = found
    every, few = "logits" in vars(seen["ring/ir"]), {True: "uniform", False: "uniform, few"}
    ir, ring = (cost.work(methods.get(name), TINY, images) for name in seen)
    assert ir.kind == few[every]
    assert ring.kind == ("region" if seen["ring/iring"].dense else "region, streamed")
    # a product of two numbers is two operations; of queries with all keys, or with the chosen ones
    assert ir.product == 2 * 64 * d * ((images + k) if every else 2 * k)
    assert ir.scores == (64 * images if every else 0)
    assert ring.product == 2 * 64 * d * (images + k * (1 if seen["ring/iring"].dense else 2))
    moco = cost.work(methods.get("ring/moco").override({"keys.size": images}), TINY, 1000)
    assert moco.product == 2 * 64 * d * images * 2


def machine(**rates: float) -> cost.Machine:
    rate = {name: cost.Rate(rates.get(name, 1e30), "1/s", "made up") for name in ("encoder", "product", "memory")}
    rate |= {name: cost.Rate(rates.get(name, 1e30), "1/s", "made up") for name in ("link", "images")}
    return cost.Machine(**rate, passes={k: cost.Rate(2, "passes", "made up") for k in (*cost.KINDS, "views")})


def test_seconds_are_counts_through_rates_and_decoding_runs_beside_the_rest() -> None:
    step = cost.work(methods.get("ring/ir"), TINY, 1000, processes=2)
    assert step.steps == 15
    assert cost.epoch(step, machine(encoder=step.encoder)).seconds == pytest.approx(15)
    assert cost.epoch(step, machine(product=step.product)).objective == pytest.approx(15)
    assert cost.epoch(step, machine(link=(step.reduced + step.gathered) / 2)).link == pytest.approx(30)
    assert cost.epoch(step, machine(images=32)).data == pytest.approx(15)
    moved = cost.epoch(step, machine(memory=1.0))
    assert moved.objective == pytest.approx(15 * (2 * 4 * 32 * 1000 + 32 * 4095 * (8 + 4 + 4 + 4 * 16)))
    assert moved.views == pytest.approx(15 * 2 * 4 * 32 * 3 * 32**2)
    assert cost.Epoch(5, 1, 1, 1, 1).seconds == 5
    assert cost.Epoch(3, 1, 1, 1, 1).seconds == 4
    assert cost.Epoch(3, 1, 1.5, 1, 1).bottleneck == "encoder"


@pytest.mark.parametrize("name", ["encoder", "images", "link", "product"])
def test_the_bottleneck_is_named(name: str) -> None:
    done = cost.epoch(cost.work(methods.get("ring/ir"), TINY, 1000, processes=2), machine(**{name: 1.0}))
    assert done.bottleneck == {"images": "data", "product": "objective"}.get(name, name)
    assert done.seconds == pytest.approx(sum(done.parts.values()))
    assert "estimate" in str(done)


def test_what_cannot_be_is_refused() -> None:
    ir, few = methods.get("ring/ir"), {k: cost.Rate(1, "", "") for k in cost.KINDS}
    refused(
        (lambda: cost.work(ir, TINY, 1000, processes=3), ArgumentError, "processes=3"),
        (lambda: cost.work(ir, TINY, 10), ArgumentError, "images=10"),
        (lambda: cost.work(ir, TINY, 1000, progress=2), ArgumentError, "progress=2"),
        (lambda: cost.work(methods.get("ours/random"), TINY, 1000), NotApplicableError, "."),
        (lambda: machine(link=0.0), ArgumentError, "link=0"),
        (lambda: replace(machine(), passes=few), UnknownNameError, "views"),
        (lambda: cost.predict({}, methods.get("ring/moco"), 10, 2), UnknownNameError, "every"),
    )


def test_a_known_law_is_found_again_and_the_fit_is_near_what_was_measured() -> None:
    recipe, law = methods.get("ring/iring"), cost.Fit(0.5, 2e-6, 3e-4)
    sizes = ((1000, 8), (5000, 8), (5000, 32), (50_000, 64), (200, 2))
    rows = [{"keys": size, "batch": batch, "cpu_s": law(batch * size, batch * 4095)} for size, batch in sizes]
    fit = cost.calibrate([(recipe, row) for row in rows])["region"]
    assert cost.predict({"region": fit}, recipe, 10_000, 16) == pytest.approx(law(160_000, 16 * 4095), rel=1e-6)
    assert fit.per_pair == pytest.approx(law.per_pair, rel=1e-6)
    stored = [row for row in json.loads(STORED.read_text())["rows"].values() if "cpu_s" in row and "method" in row]
    rows = [(methods.get(row["method"]), row) for row in stored]
    assert len(rows) > 10
    fits = cost.calibrate(rows)
    for recipe, row in rows:
        ratio = cost.predict(fits, recipe, row["keys"], row["batch"]) / row["cpu_s"]
        assert 1 / 2 < ratio < 2, f"{row}: {ratio}"


def test_memory_has_its_parts() -> None:
    step = cost.work(methods.get("ring/moco"), TINY, 1000)
    found = cost.memory(step, {"every": cost.Fit(1, 8, 0)}, activation_bytes=2)
    parameters = cost.encoder("tiny", stem="cifar", dim=16, side=32).parameters
    assert found["networks"] == 4 * 4 * parameters  # weights, gradients, momentum, slow network
    assert found["stored keys"] == 65_536 * 16 * 4
    assert found["objective"] == 1 + 8 * 64 * 65_536
    assert found["activations"] == 2 * 64 * cost.encoder("tiny", stem="cifar", dim=16, side=32).activations
    with pytest.raises(UnknownNameError):
        cost.memory(step, {})
