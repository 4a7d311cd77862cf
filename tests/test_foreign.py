"""Encoders from elsewhere are scored as ours are, and ours leave for elsewhere."""

import copy
import importlib.util
import json
import math
import os
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from contrastlab import __main__, data, encoders, methods, papers, tables, tasks
from contrastlab.pictures import foreign_networks as foreign
from contrastlab.pictures.augmentations import augmentation
from contrastlab.pictures.items import fingerprint
from contrastlab.settings import LinearProbe, Settings
from contrastlab.support import files
from contrastlab.support.errors import (
    ArgumentError,
    CorruptFileError,
    NonFiniteLossError,
    NotApplicableError,
    UnknownNameError,
)
from contrastlab.tables import exchange, report, results
from contrastlab.train import checkpoint
from made_runs import equal, generator, quiet, refused, unchanged

needs_timm = pytest.mark.skipif(importlib.util.find_spec("timm") is None, reason="timm is not installed (extra vit)")
FEW = Settings(image_size=16, linear=LinearProbe(solver="lbfgs", features="pooled"))
CHILDREN = ("conv1", "bn1", "relu", "maxpool", "layer1", "layer2", "layer3", "layer4")
CHECKPOINTS = {  # trainer: what stands before a name, and what else is in the file
    "MoCo v2": ("module.encoder_q.", ("module.encoder_q.fc.0.weight", "module.encoder_k.conv1.weight", "module.queue")),
    "lightly": ("backbone.", ("projection_head.layers.0.weight",)),
    "solo-learn": ("backbone.", ("projector.0.weight", "momentum_backbone.conv1.weight")),
    "itself": ("", ("fc.weight",)),
}


@pytest.fixture(scope="module")
def shapes() -> data.Splits:
    return data.load("shapes", n_train=60, n_test=40)


def slim(seed: int, width: float = 0.05) -> nn.Module:
    """A ResNet-18 with few channels and torchvision's names."""
    torch.manual_seed(seed)
    return encoders.build("resnet18", width=width).backbone


def save(tensors: dict[str, Tensor], path: Path) -> Path:
    if path.suffix == ".safetensors":
        safetensors.torch.save_file({name: value.contiguous() for name, value in tensors.items()}, path)
    else:
        torch.save({"epoch": 3, "state_dict": tensors, "hyper_parameters": {"lr": 0.1}}, path)
    return path


@pytest.mark.parametrize("trainer", CHECKPOINTS)
@pytest.mark.parametrize("suffix", [".safetensors", ".ckpt"])
def test_state_dicts_of_other_trainers_load_by_their_key_maps(trainer, suffix, tmp_path) -> None:
    theirs, ours, (prefix, further) = slim(1), slim(2), CHECKPOINTS[trainer]
    named = {name: torch.zeros(3) for name in further}
    for name, value in theirs.state_dict().items():
        first, _, rest = name.partition(".")
        named[prefix + (f"{CHILDREN.index(first)}.{rest}" if trainer == "lightly" else name)] = value
    path = save(named, tmp_path / f"weights{suffix}")
    assert not equal(theirs, ours)
    assert foreign.fill(ours, path, "resnet18") == trainer
    assert equal(theirs, ours)
    less = {
        key: value for key, value in named.items() if not key.endswith(("layer3.0.conv1.weight", "6.0.conv1.weight"))
    }
    cut, other = save(less, tmp_path / f"cut{suffix}"), slim(3)
    refused(
        (lambda: foreign.fill(slim(1, 0.1), path, "resnet18"), ArgumentError, f"'resnet18'.*{trainer}.*another shape"),
        (lambda: foreign.fill(other, cut, "resnet18"), ArgumentError, "1 of .* tensors are absent.*layer3.0.conv1"),
    )
    assert equal(other, slim(3))


@needs_timm
def test_an_efficientnet_loads_under_the_names_of_efficientnet_pytorch(tmp_path) -> None:
    theirs, ours = (encoders.build("timm:tf_efficientnet_b0").backbone for _ in range(2))
    layers = {
        "conv_pw": "expand_conv", "bn1": "bn0", "conv_dw": "depthwise_conv", "bn2": "bn1", "conv_pwl": "project_conv",
        "bn3": "bn2", "se.conv_reduce": "se_reduce", "se.conv_expand": "se_expand",
    }  # fmt: skip
    of_first_block = {**layers, "conv_pw": "project_conv", "bn1": "bn1", "bn2": "bn2"}
    outside = {"conv_stem": "conv_stem", "bn1": "bn0", "conv_head": "conv_head", "bn2": "bn1"}
    places = [f"{stage}.{index}" for stage, blocks in enumerate(theirs.blocks) for index in range(len(blocks))]
    named = {"_fc.weight": torch.zeros(3)}
    for name, value in theirs.state_dict().items():
        layer, _, kind = name.rpartition(".")
        if layer.startswith("blocks."):
            _, stage, index, layer = layer.split(".", 3)
            number = places.index(f"{stage}.{index}")
            names = layers if number else of_first_block
            named[f"_blocks.{number}._{names[layer]}.{kind}"] = value
        else:
            named[f"_{outside[layer]}.{kind}"] = value
    path = save(named, tmp_path / "efficientnet.safetensors")  # whose tensors are in another order
    assert not equal(theirs, ours)
    assert foreign.fill(ours, path, "timm:tf_efficientnet_b0") == "EfficientNet-PyTorch"
    assert equal(theirs, ours)
    more = {name.replace("_blocks.15.", "_blocks.99."): value for name, value in named.items()}
    with pytest.raises(ArgumentError, match="tensors are absent"):
        foreign.fill(ours, save(more, tmp_path / "more.pth"), "timm:tf_efficientnet_b0")


class Trap:
    """An object that a pickle makes by running code."""

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return Path.touch, (Path("sprung"),)


def test_of_a_checkpoint_nothing_is_run(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"state_dict": slim(1).state_dict(), "callbacks": Trap()}, "trap.pth")
    with pytest.raises(CorruptFileError, match=r"trap.pth holds no state dict .*; other objects are not read"):
        foreign.read(Path("trap.pth"))
    assert not Path("sprung").exists()


def test_weights_behind_a_prefix_of_many_words_are_found(tmp_path) -> None:
    state = slim(1).state_dict()
    torch.save({f"a.b.c.d.e.{name}": value for name, value in state.items()}, tmp_path / "deep.pth")
    torch.jit.save(torch.jit.script(nn.Linear(2, 2)), tmp_path / "script.pth")
    assert foreign.fill(slim(2), tmp_path / "deep.pth", "resnet18") == "itself, behind a.b.c.d.e."
    with pytest.raises(CorruptFileError, match="script.pth holds no state dict .it is a TorchScript archive"):
        foreign.read(tmp_path / "script.pth")


def test_a_whole_encoder_of_an_unknown_architecture_is_not_to_be_run_anew(tmp_path) -> None:
    encoders.register("mine/here", lambda in_channels: slim(1))
    made = encoders.build("mine/here")
    encoders.save(nn.ModuleList([made]), tmp_path, ("rgb",), {"arch": "mine/here"})
    assert len(encoders.load(tmp_path)) == 1
    foreign._OWN.pop("mine/here")
    with pytest.raises(UnknownNameError, match="is whole, .*architecture 'mine/here'.*encoders.register") as error:
        encoders.load(tmp_path)
    assert "anew" not in str(error.value)


class Mean(nn.Module):
    """Any network: a map, or its mean; with or without a weight that no layer draws."""

    def __init__(self, form: str = "map", bare: bool = False) -> None:
        super().__init__()
        self.layer, self.form, self.scale = nn.Conv2d(3, 6, 3, 2), form, nn.Parameter(torch.ones(1)) if bare else None

    def forward(self, x: Tensor) -> Tensor:
        made = self.layer(x)
        return {"map": made, "features": made.mean((2, 3)), "tokens": made.flatten(2)}[self.form]


def test_any_network_is_scored_as_a_loop_scores_it_beside_itself_untrained(shapes, tmp_path) -> None:
    network, shown = Mean(), augmentation("instdisc", 16)
    with unchanged(network):
        scored = tasks.score(network, "linear", shapes, settings=FEW, name="mine")
        other = tasks.score(Mean("features"), "linear", shapes, settings=FEW, untrained=network)
    with torch.no_grad():
        seen = [network(shown.normalise(shown.plain(part.items))).mean((2, 3)) for part in (shapes.train, shapes.test)]
    right = tasks.linear_lbfgs(seen[0], shapes.train.labels, seen[1]).argmax(1) == shapes.test.labels
    assert scored.encoder.metrics["linear"] == pytest.approx(100 * float(right.double().mean()))
    assert results.bits(scored.encoder.correct["linear"]).tolist() == right.tolist()
    assert other.untrained.metrics == scored.encoder.metrics  # its floor was given
    assert len({each.config_hash for each in (*scored, *other)}) == 4
    again = tasks.score(copy.deepcopy(network), "linear", shapes, settings=FEW, name="mine")
    assert [(r.config_hash, r.metrics) for r in again] == [(r.config_hash, r.metrics) for r in scored]
    assert repr(scored).startswith(f"linear accuracy: {scored.encoder.metrics['linear']:.2f} ± ")
    for each in scored:
        assert results.read(results.save(each, tmp_path)) == each
        assert each.provenance.data_fingerprint == fingerprint(shapes)
        assert each.half_widths.keys() == each.metrics.keys()
    score: Callable[..., object] = lambda *given: tasks.score(*given, settings=FEW)  # noqa: E731
    refused(
        (lambda: score(Mean("tokens"), "linear", shapes), NotApplicableError, "it gives .2, 6, 49."),
        (lambda: score(nn.Linear(9, 2), "linear", shapes), NotApplicableError, "is not scored.*shapes"),
        (lambda: score(Mean(bare=True), "linear", shapes), ArgumentError, "untrained=None.* draws scale anew"),
        (lambda: score(network, "linear", "shapes"), ArgumentError, "'shapes'.*what data.load gives"),
    )


def test_a_row_from_elsewhere_stands_beside_ours_with_its_own_floor(shapes, tmp_path) -> None:
    plan = papers.plan("ring", 1)
    settings = plan.settings("shapes", plan.floor, "smoke")
    scored = tasks.score(Mean(), "linear", shapes, settings=settings, name="theirs", profile="smoke")
    for each in (*scored, *tasks.score(Mean(), "linear", shapes, settings=FEW, name="otherwise", profile="smoke")):
        results.save(each, tmp_path)
    made = report.table(plan, results.find(tmp_path), "shapes", "smoke")
    row, floor = (next(row for row in made.rows if row.label == label) for label in ("theirs", "theirs untrained"))
    assert row.versus_random == pytest.approx(scored.encoder.metrics["linear"] - scored.untrained.metrics["linear"])
    assert (row.note, floor.versus_random) == ("read against theirs untrained", None)
    assert row.measured is not None
    assert row.measured.sampling == pytest.approx(scored.encoder.half_widths["linear"])
    assert "otherwise" not in made.text()  # another probe


@needs_timm
def test_the_command_scores_a_file_and_its_floor(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    load = data.load
    monkeypatch.setattr(data, "load", lambda name: load(name, n_train=60, n_test=40))
    save(encoders.build("timm:test_resnet").backbone.state_dict(), Path("w.safetensors"))
    line = ["score", "linear", "--data", "shapes", "--profile", "smoke", "--encoder"]
    assert __main__.main([*line, "w.safetensors", "--arch", "timm:test_resnet"]) == 0
    assert __main__.main([*line, "timm:test_resnet"]) == 0  # the same floor once more
    said = capsys.readouterr().out
    assert "w.safetensors (timm:test_resnet): read against timm:test_resnet untrained" in said
    assert "timm:test_resnet has no weights, so it is scored untrained" in said
    names = {"foreign/w.safetensors (timm:test_resnet)", "foreign/timm:test_resnet untrained"}
    assert {r.method for r in results.find("runs")} == names
    assert len(results.find("runs")) == 2
    assert __main__.main(["show", "ring/table1", "--dataset", "shapes", "--profile", "smoke"]) == 0
    told = capsys.readouterr()
    assert "timm:test_resnet untrained  " in told.out
    assert "not registered" not in told.err


@pytest.fixture(scope="module")
def trained(shapes, tmp_path_factory) -> Callable[..., tables.Run]:
    root = tmp_path_factory.mktemp("runs")

    def train(name: str, **changes: object) -> tables.Run:
        settings = papers.plan("ring", 1).settings("shapes", name, "smoke")
        settings = settings.override(epochs=1, batch_size=16, train_images=16, test_images=8, **changes)
        recipe = methods.get(name).override(settings.overrides | {"negatives.k": 8})
        run = tables.Run(recipe, settings, shapes, 0, root)
        run.train(log=quiet)
        return run

    return train


@needs_timm
@pytest.mark.parametrize("arch", ["resnet18", "vit_nano", "timm:test_resnet"])
def test_timm_makes_an_exported_encoder_again(arch, trained, tmp_path) -> None:
    import timm

    run = trained("ring/ir", arch=arch, stem="imagenet")
    folder = exchange.export(run.folder, "timm", tmp_path / "out")
    config, views = json.loads((folder / "config.json").read_text()), torch.randn(2, 3, 32, 32, generator=generator())
    name, given = config["architecture"], {"checkpoint_path": str(folder / exchange.FILE), **config["model_args"]}
    for theirs in (timm.create_model(name, num_classes=0, **given), timm.create_model(f"local-dir:{folder}", True)):
        with torch.no_grad():
            torch.testing.assert_close(theirs.eval()(views), run.encoders()[0].features(views), rtol=1e-4, atol=1e-4)
    line = f"timm.create_model('{name}', checkpoint_path='model.safetensors', num_classes=0"
    card = (folder / "README.md").read_text()
    assert line in card
    assert card.count(".eval()") == 1
    refused(
        (lambda: exchange.export(run.folder, "timm", folder), ArgumentError, "a folder that does not exist yet"),
        (
            lambda: exchange.export(run.folder, "keras"),
            ArgumentError,
            "to='keras': expected timm or torchvision or torch or hub",
        ),
    )


def test_a_hub_folder_is_whole_and_its_card_has_equation_data_and_numbers(trained, shapes, tmp_path) -> None:
    run, single = trained("ring/cmc"), trained("ring/ir", arch="resnet18", stem="cifar")
    told = {"settings": run.settings.model_dump(mode="json"), "recipe": run.recipe.describe(), "method": "ring/cmc"}
    scored = tasks.score(Mean(), "linear", shapes, settings=FEW, profile="smoke").encoder.model_copy(update=told)
    results.save(results.Result.model_validate(scored.model_dump(by_alias=True, exclude={"config_hash"})), run.root)
    folder = exchange.export(run.folder, "hub-folder", tmp_path / "out")
    assert equal(encoders.load(folder / exchange.FILE), run.encoders())
    text = (folder / "README.md").read_text()
    for part in (run.recipe.equation, "Data: shapes", f"| {scored.metrics['linear']:.2f} (±", "| `smoke` | 40 |"):
        assert part in text
    refused(
        (lambda: exchange.export(run.folder, "timm", tmp_path / "x"), NotApplicableError, "2 encoders and timm takes"),
        (lambda: exchange.export(single.folder, "torchvision", tmp_path / "x"), NotApplicableError, "stem=cifar"),
    )


@pytest.mark.parametrize("row", ["ring/ir", "ring/cmc"])
def test_a_plain_state_dict_holds_all_streams_and_heads(row, trained, tmp_path) -> None:
    run = trained(row)
    folder = exchange.export(run.folder, "torch", tmp_path / "out")
    state = torch.load(folder / exchange.STATE_DICT, weights_only=True)
    stored, _ = files.read_tensors(run.folder / "encoder.safetensors")
    assert state.keys() == stored.keys()
    assert all(torch.equal(value, stored[name]) for name, value in state.items())
    heads = [name for name in state if "head." in name]
    card = (folder / "README.md").read_text()
    assert "torch.load('model.pth', weights_only=True)" in card
    said = card.partition("those of a head begin with ")[2].partition("\n")[0].split(" or ")
    assert len(said) == len(run.encoders())
    assert all(name.startswith(tuple(said)) for name in heads)
    assert not (folder / exchange.FILE).exists()


def own_names(seed: int, **changes: Tensor) -> dict[str, Tensor]:
    return {**slim(seed).state_dict(), **changes}


@pytest.mark.parametrize("wrap", [
    lambda w: {"model_state_dict": w, "epoch": 3, "optimizer_state_dict": {"state": {0: {"exp_avg": torch.zeros(2)}}}},
    lambda w: {"net": w, "acc": 91.0},
    lambda w: {"state_dict": w, "best_acc1": torch.tensor(71.0)},
    lambda w: {"epoch": 1, "trainer": {"weights": w, "steps": torch.tensor(3)}},
    lambda w: {f"module.backbone.{name}": value for name, value in w.items()},
    lambda w: {"state_dict": {f"model.encoder.{name}": value for name, value in w.items()}},
    lambda w: {f"online.backbone.{CHILDREN.index(n.partition('.')[0])}.{n.partition('.')[2]}": w[n] for n in w},
], ids=["model_state_dict", "net", "scalar beside", "nested", "two prefixes", "two in one", "numbers"])  # fmt: skip
def test_checkpoints_that_people_have_load(wrap, tmp_path) -> None:
    theirs, ours = slim(1), slim(2)
    torch.save(wrap(theirs.state_dict()), tmp_path / "weights.pth")
    foreign.fill(ours, tmp_path / "weights.pth", "resnet18")
    assert equal(theirs, ours)


def test_a_checkpoint_that_holds_itself_is_read_once(tmp_path) -> None:
    theirs, ours = slim(1), slim(2)
    cyclic: dict[str, object] = {"weights": theirs.state_dict(), "epoch": 3}
    cyclic["trainer"] = {"checkpoint": cyclic}
    torch.save(cyclic, tmp_path / "weights.pth")
    foreign.fill(ours, tmp_path / "weights.pth", "resnet18")
    assert equal(theirs, ours)


@pytest.mark.parametrize(("change", "words"), [
    (lambda w: w * math.nan, "not finite in torch.float32"),
    (lambda w: w + math.inf, "not finite"),
    (lambda w: w.double() + 1e300, "not finite in torch.float32"),
    (lambda w: w.to(torch.complex64), "torch.complex64"),
    (lambda w: w.to(torch.int8), "torch.int8"),
    (lambda w: w.to(torch.uint8), "torch.uint8"),
    (lambda w: w.long(), "torch.int64"),
    (lambda w: w > 0, "torch.bool"),
    (lambda w: w.to("meta"), "device meta"),
    (lambda w: w.to_sparse(), "torch.sparse_coo"),
    (lambda w: torch.quantize_per_tensor(w, 0.1, 0, torch.qint8), "torch.qint8"),
])  # fmt: skip
def test_weights_that_are_no_finite_numbers_are_named(change, words, tmp_path) -> None:
    whole = slim(1).state_dict()
    torch.save({**whole, "layer1.0.conv1.weight": change(whole["layer1.0.conv1.weight"])}, tmp_path / "weights.pth")
    ours = slim(2)
    with pytest.raises(CorruptFileError, match=rf"weights.pth: layer1.0.conv1.weight is .*{words}.*accepted are dense"):
        foreign.fill(ours, tmp_path / "weights.pth", "resnet18")
    assert equal(ours, slim(2))


def test_weights_of_another_kind_are_refused_with_what_the_file_has(tmp_path) -> None:
    ours, path = slim(2), tmp_path / "weights.pth"

    def saved(content: object) -> Callable[[], str]:
        def fill() -> str:
            torch.save(content, path)
            return foreign.fill(ours, path, "resnet18")

        return fill

    variances = own_names(1)
    variances["bn1.running_var"] = -variances["bn1.running_var"]
    refused(
        (saved(variances), CorruptFileError, "bn1.running_var is a negative variance"),
        (saved({"a.b": torch.ones(2), "c": torch.ones(3)}), ArgumentError, "which has a.b, c: read as of"),
        (saved({"args": Namespace(lr=0.1), "net": own_names(1)}), CorruptFileError,
         r"an object of argparse.Namespace beside tensors; .*torch.save\(model.state_dict\(\)"),
        (saved({"epoch": 3}), CorruptFileError, "no tensor is in it"),
        (saved([1, 2]), CorruptFileError, "it is a list, not a dictionary"),
        (saved(torch.ones(3)), CorruptFileError, "it is a Tensor, not a dictionary"),
    )  # fmt: skip


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_a_pipe_is_never_waited_for(suffix, tmp_path) -> None:
    pipe = tmp_path / f"weights{suffix}"
    os.mkfifo(pipe)
    run = tmp_path / "encoders" / "a"
    run.mkdir(parents=True)
    for name in ("encoder.safetensors", "run.json"):
        os.mkfifo(run / name)
    cell = tmp_path / "cells" / "digits" / "smoke" / "ring-ir-seed0-linear-00000000.json"
    cell.parent.mkdir(parents=True)
    os.mkfifo(cell)
    refused(
        (lambda: foreign.fill(slim(1), pipe, "resnet18"), CorruptFileError, "is no regular file"),
        (lambda: encoders.load(run), CorruptFileError, "is no regular file"),
        (lambda: checkpoint.read_run(run), CorruptFileError, "is no regular file"),
        (lambda: results.find(tmp_path), CorruptFileError, "is no regular file"),
    )


class Overflowing(nn.Module):
    """Features that are finite for a black picture only, as where weights are 1e38."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean((2, 3)) * 1e38 * 1e38 if bool(x.any()) else x.mean((2, 3))


@pytest.mark.parametrize("task", ["linear", "neighbours", "layers"])
@pytest.mark.parametrize("solver", ["sgd", "lbfgs"])
def test_features_that_are_not_finite_are_no_score(task, solver, shapes) -> None:
    settings = FEW.override(linear=LinearProbe(solver=solver, features="pooled", epochs=1, batch_size=32))
    network = slim(1) if task == "layers" else Overflowing()
    if task == "layers":
        with torch.no_grad():
            network.conv1.weight.mul_(1e38)
            network.bn1.weight.mul_(1e38)
    with pytest.raises((ArgumentError, NonFiniteLossError), match="features.*finite|features finite"):
        tasks.score(network, task, shapes, untrained=copy.deepcopy(network), settings=settings)


def test_a_network_of_ones_own_is_called_by_its_class_unless_it_has_a_name(shapes) -> None:
    assert tasks.score(Mean(), "linear", shapes, settings=FEW).encoder.method == f"foreign/{__name__}.Mean"
