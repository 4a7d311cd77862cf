"""Encoders from elsewhere are scored as ours are, ours leave for elsewhere, and a backbone of one's own trains."""

import copy
import importlib.util
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from contrastlab import __main__, data, encoders, methods, papers, report, reproduce, results, tasks
from contrastlab.encoders import foreign
from contrastlab.errors import ArgumentError, CorruptFileError, MissingDataError, NotApplicableError
from contrastlab.reproduce import export
from contrastlab.settings import LinearProbe, Settings
from made_runs import equal, generator, quiet, refused, unchanged

needs_timm = pytest.mark.skipif(importlib.util.find_spec("timm") is None, reason="timm is not installed (extra vit)")
FEW = Settings(image_size=16, linear=LinearProbe(solver="lbfgs", features="pooled"))
CHILDREN = ("conv1", "bn1", "relu", "maxpool", "layer1", "layer2", "layer3", "layer4")


@pytest.fixture(scope="module")
def shapes() -> data.Splits:
    return data.load("shapes", n_train=60, n_test=40)


def slim(seed: int = 0) -> encoders.Encoder:
    """A ResNet-18 with few channels and torchvision's names."""
    torch.manual_seed(seed)
    return encoders.build("resnet18", width=0.05, head="none")


def prefixed(prefix: str, rename: Callable[[str], str] = str) -> Callable[[str], str]:
    return lambda name: prefix + rename(name)


def as_child(name: str) -> str:
    first, _, rest = name.partition(".")
    return f"{CHILDREN.index(first)}.{rest}"


CHECKPOINTS: dict[str, tuple[Callable[[str], str], dict[str, Tensor], str]] = {
    "MoCo v2": (prefixed("module.encoder_q."), {
        "module.encoder_q.fc.0.weight": torch.zeros(3), "module.encoder_k.conv1.weight": torch.zeros(2),
        "module.queue": torch.zeros(4),
    }, "state_dict"),
    "lightly": (prefixed("backbone.", as_child), {"projection_head.layers.0.weight": torch.zeros(2)}, "state_dict"),
    "solo-learn": (prefixed("backbone."), {
        "projector.0.weight": torch.zeros(2), "momentum_backbone.conv1.weight": torch.zeros(2),
    }, "state_dict"),
    "itself": (str, {"fc.weight": torch.zeros(3)}, ""),
}  # fmt: skip


@pytest.mark.parametrize("trainer", CHECKPOINTS)
@pytest.mark.parametrize("suffix", [".safetensors", ".ckpt"])
def test_state_dicts_of_other_trainers_load_by_their_key_maps(trainer, suffix, tmp_path) -> None:
    theirs, ours, path = slim(1).backbone, slim(2).backbone, tmp_path / f"weights{suffix}"
    name_of, further, within = CHECKPOINTS[trainer]
    named = {name_of(name): value for name, value in theirs.state_dict().items()} | further
    if suffix == ".ckpt":
        torch.save({"epoch": 3, within: named, "hyper_parameters": {"lr": 0.1}} if within else named, path)
    else:
        save(named, path)
    assert not equal(theirs, ours)
    assert foreign.fill(ours, path, "resnet18") == trainer
    assert equal(theirs, ours)
    before = copy.deepcopy(ours)
    other = encoders.build("resnet18", width=0.1).backbone
    lacking = {name: value for name, value in named.items() if "layer3.0.conv1" not in name and "6.0.conv1" not in name}
    save(lacking, cut := tmp_path / "cut.safetensors")
    refused(
        (lambda: foreign.fill(other, path, "resnet18"), ArgumentError, f"arch='resnet18'.*{trainer}.*another shape"),
        (lambda: foreign.fill(ours, cut, "resnet18"), ArgumentError, "1 of .* tensors are absent.*layer3.0.conv1"),
    )
    assert equal(before, ours)


def save(tensors: dict[str, Tensor], path: Path) -> None:
    safetensors.torch.save_file({name: value.contiguous() for name, value in tensors.items()}, path)


class Trap:
    """An object that a pickle would make by running code."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (Path("sprung"),)  # type: ignore[return-value]


def test_of_a_checkpoint_nothing_is_run(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"state_dict": slim().backbone.state_dict(), "callbacks": Trap()}, "trap.pth")
    with pytest.raises(CorruptFileError, match=r"trap.pth holds no state dict.*would be run, so they are refused"):
        foreign.read(Path("trap.pth"))
    assert not Path("sprung").exists()


class Mean(nn.Module):
    """Any network: a map, or its mean; with or without a weight that no layer draws."""

    def __init__(self, form: str = "map", bare: bool = False) -> None:
        super().__init__()
        self.layer, self.form = nn.Conv2d(3, 6, 3, 2), form
        if bare:
            self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        made = self.layer(x)
        return {"map": made, "features": made.mean((2, 3)), "tokens": made.flatten(2)}[self.form]


def test_any_network_is_scored_as_a_loop_scores_it_beside_itself_untrained(shapes, tmp_path) -> None:
    torch.manual_seed(0)
    network = Mean()
    with unchanged(network):
        scored = tasks.score(network, "linear", shapes, settings=FEW, name="mine")
        same = tasks.score(Mean("features").requires_grad_(False), "linear", shapes, settings=FEW, untrained=network)
    shown = tasks.foreign.modality(shapes.train).augmentation(FEW)
    with torch.no_grad():
        train, test = (network(shown.normalise(shown.plain(part.items))).mean((2, 3)) for part in
                       (shapes.train, shapes.test))  # fmt: skip
    right = tasks.linear_lbfgs(train, shapes.train.labels, test).argmax(1) == shapes.test.labels
    assert scored.encoder.metrics["linear"] == pytest.approx(100 * float(right.double().mean()))
    assert results.bits(scored.encoder.correct["linear"]).tolist() == right.tolist()
    assert same.untrained.metrics == scored.encoder.metrics  # its floor was given
    assert len({each.config_hash for each in (*scored, *same)}) == 4  # weights and floors are apart
    again = tasks.score(copy.deepcopy(network), "linear", shapes, settings=FEW, name="mine")
    assert [each.config_hash for each in again] == [each.config_hash for each in scored]
    assert again.untrained.metrics == scored.untrained.metrics
    assert repr(scored).startswith("linear accuracy: ")
    assert repr(scored).count("(± ") == 2 * len(scored.encoder.metrics)
    for each in scored:
        assert results.read(results.save(each, tmp_path)) == each
        assert each.provenance.data_fingerprint == reproduce.fingerprint(shapes)
    refused(
        (lambda: tasks.score(Mean("tokens"), "linear", shapes, settings=FEW), NotApplicableError, "it gives .2, 6, 49."),
        (lambda: tasks.score(nn.Linear(9, 2), "linear", shapes, settings=FEW), NotApplicableError, "is not scored.*shape"),
        (lambda: tasks.score(Mean(bare=True), "linear", shapes, settings=FEW), ArgumentError, "untrained=None.*scale"),
        (lambda: tasks.score("resnet18", "linear", shapes), ArgumentError, "module='str'"),  # type: ignore[arg-type]
        (lambda: tasks.score(network, "linear", "shapes"), ArgumentError, "data='shapes'"),  # type: ignore[arg-type]
    )  # fmt: skip


def test_a_row_from_elsewhere_stands_beside_ours_with_its_own_floor(shapes, tmp_path) -> None:
    plan = papers.plan("ring", 1)
    settings = plan.settings("shapes", plan.floor, "smoke")
    scored = tasks.score(Mean(), "linear", shapes, settings=settings, name="theirs", profile="smoke")
    other = tasks.score(Mean(), "linear", shapes, settings=FEW, name="otherwise", profile="smoke")
    for each in (*scored, *other):
        results.save(each, tmp_path)
    made = report.table(plan, results.find(tmp_path), "shapes", "smoke")
    row, floor = (next(row for row in made.rows if row.label == label) for label in ("theirs", "theirs untrained"))
    assert row.measured is not None
    assert row.measured.sampling is not None
    assert row.versus_random == pytest.approx(scored.encoder.metrics["linear"] - scored.untrained.metrics["linear"])
    assert "read against theirs untrained" in row.note
    assert floor.versus_random is None
    assert "otherwise" not in made.text()  # another probe


@needs_timm
def test_the_command_scores_a_file_and_its_floor(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    load = data.load
    monkeypatch.setattr(data, "load", lambda name, root=None: load(name, n_train=60, n_test=40))
    theirs = encoders.build("timm:test_resnet", head="none").backbone
    save(theirs.state_dict(), Path("weights.safetensors"))
    line = ["score", "linear", "--data", "shapes", "--profile", "smoke", "--encoder"]
    assert __main__.main([*line, "weights.safetensors", "--arch", "timm:test_resnet"]) == 0
    said = capsys.readouterr().out
    assert "ring Table 1" in said
    assert "weights.safetensors (timm:test_resnet): read against timm:test_resnet untrained" in said
    stored = results.find("runs")
    assert {r.method for r in stored} == {
        "foreign/weights.safetensors (timm:test_resnet)", "foreign/timm:test_resnet untrained"
    }  # fmt: skip
    assert __main__.main(["show", "ring/table1", "--dataset", "shapes", "--profile", "smoke"]) == 0
    told = capsys.readouterr()
    assert "timm:test_resnet untrained  " in told.out
    assert "not registered" not in told.err
    assert __main__.main([*line, "timm:test_resnet"]) == 0  # the same floor once more
    assert "timm:test_resnet has no weights, so it is scored untrained" in capsys.readouterr().out
    assert {r.config_hash for r in results.find("runs")} == {r.config_hash for r in stored}
    with pytest.raises(MissingDataError, match=r"hf download timm/resnet18.a1_in1k model.safetensors"):
        encoders.build("timm:resnet18.a1_in1k")


@pytest.fixture(scope="module")
def trained(shapes, tmp_path_factory) -> Callable[..., reproduce.Run]:
    root = tmp_path_factory.mktemp("runs")

    def train(name: str = "ring/ir", **changes: object) -> reproduce.Run:
        settings = papers.plan("ring", 1).settings("shapes", name, "smoke")
        settings = settings.override(epochs=1, batch_size=16, train_images=16, test_images=8, **changes)
        run = reproduce.Run(
            methods.get(name).override(settings.overrides | {"negatives.k": 8}), settings, shapes, 0, root
        )
        run.train(log=quiet)
        return run

    return train


@needs_timm
@pytest.mark.parametrize("arch", ["resnet18", "vit_nano", "timm:test_resnet"])
def test_timm_makes_an_exported_encoder_again(arch, trained, tmp_path) -> None:
    import timm

    run = trained(arch=arch, stem="imagenet")
    (ours,) = run.encoders()
    folder = export.write(run.folder, "timm", tmp_path / "out")
    config = json.loads((folder / "config.json").read_text())
    options, views = config["model_args"], torch.randn(2, 3, 32, 32, generator=generator())
    with torch.no_grad():
        for made in (
            timm.create_model(
                config["architecture"], checkpoint_path=str(folder / export.FILE), num_classes=0, **options
            ),
            timm.create_model(f"local-dir:{folder}", pretrained=True),
        ):
            torch.testing.assert_close(made.eval()(views), ours.features(views), rtol=1e-4, atol=1e-4)
    text = (folder / "README.md").read_text()
    assert f"timm.create_model('{config['architecture']}', checkpoint_path='model.safetensors', num_classes=0" in text
    refused(
        (lambda: export.write(run.folder, "timm", folder), ArgumentError, "a folder that does not exist yet"),
        (
            lambda: export.write(run.folder, "keras"),
            ArgumentError,
            "to='keras': accepted is timm or torchvision or hub",
        ),
    )


def test_a_hub_folder_is_whole_and_its_card_has_equation_data_and_numbers(trained, shapes, tmp_path) -> None:
    run = trained("ring/cmc")
    scored = tasks.score(Mean(), "linear", shapes, settings=FEW, profile="smoke").encoder
    told = {"settings": run.settings.model_dump(mode="json"), "recipe": run.recipe.describe(), "method": "ring/cmc"}
    result = scored.model_copy(update=told)
    results.save(results.Result.model_validate(result.model_dump(by_alias=True, exclude={"config_hash"})), run.root)
    folder = export.write(run.folder, "hub-folder", tmp_path / "out")
    assert equal(encoders.load(folder / export.FILE), run.encoders())
    text = (folder / "README.md").read_text()
    assert run.recipe.equation in text
    assert "shapes" in text
    assert f"| {result.metrics['linear']:.2f} (±" in text
    assert "| `smoke` | 40 |" in text
    refused(
        (lambda: export.write(run.folder, "timm", tmp_path / "x"), NotApplicableError, "2 encoders and timm takes one")
    )
    single = trained(arch="resnet18", stem="cifar")
    refused((lambda: export.write(single.folder, "torchvision", tmp_path / "y"), NotApplicableError, "stem=cifar"))
