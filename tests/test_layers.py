"""Half AlexNets against the printed tables, their layers, and classifiers on single layers."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from contrastbook.figures import architecture
from contrastlab import encoders, papers, tasks
from contrastlab.data import Splits
from contrastlab.pictures import encoder as encoder_module
from contrastlab.pictures import networks
from contrastlab.pictures.augmentations import augmentation
from contrastlab.pictures.linear import layer_features, layers_sgd, mlp
from contrastlab.settings import LayerProbe, LinearProbe, Settings
from contrastlab.support import errors
from contrastlab.tasks import Layers
from contrastlab.views import Split
from made_runs import generator, unchanged

TABLES = {"10": ("half_alexnet64", 64, 64), "11": ("half_alexnet", 224, 128), "12": ("scene", 128, 256)}


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("channels", [1, 2, 3])
def test_every_row_of_the_printed_table_is_what_the_network_has(table: str, channels: int) -> None:
    arch, pixels, dim = TABLES[table]
    encoder = encoders.build(arch, in_channels=channels, dim=dim).eval()
    printed = papers.published("cmc", table).pivot_table(index="row", columns="column", values="value", sort=False)
    ours = architecture.rows(encoder, torch.zeros(1, channels, pixels, pixels))
    assert printed.loc["data", "X (spatial)"] == pixels
    assert list(ours.index) == [name for name in printed.index if name != "data"]
    assert ours.equals(printed.loc[ours.index, list(architecture.COLUMNS)])


def test_rows_of_any_module_show_what_differs() -> None:
    blocks = (networks.Block(48, 5, 1, 2, True), *networks.TABLE_10[1:])
    network = networks.HalfAlexNet((blocks, 7, 64), (blocks, 7, 64), 1, "imagenet", 1.0)
    view = torch.zeros(1, 1, 64, 64)
    changed = architecture.rows(encoders.Encoder(network, network.num_features, dim=64, in_channels=1), view)
    whole = architecture.rows(encoders.build("half_alexnet64", in_channels=1, dim=64), view)
    assert list(whole.index[(changed != whole).any(axis=1)]) == ["conv1"]
    net = nn.Sequential()
    net.add_module("one", nn.Sequential(nn.Conv2d(2, 5, 3, 2, 1), nn.ReLU()))
    net.add_module("pool", nn.MaxPool2d(3, 1))
    net.add_module("fc", nn.Sequential(nn.Flatten(), nn.Linear(20, 7)))
    rows = architecture.rows(net, torch.zeros(1, 2, 8, 8))
    assert rows.T.to_dict("list") == {"one": [4, 5, 3, 2, 1], "pool": [2, 5, 3, 1, 0], "fc": [1, 7, 2, 1, 0]}


def test_the_two_halves_have_half_the_parameters() -> None:
    """CMC D.2: each layer connects to half of the neurons in the previous one, so parameters halve."""
    pair = encoders.build_for(Split(), 3, arch="half_alexnet")
    inner = ("conv2", "conv3", "conv4", "conv5", "fc6", "fc7")

    def weights(encoder: Any) -> int:
        layers = encoders.named_layers(encoder)
        return sum(p.numel() for name in inner for p in layers[name].parameters() if p.dim() > 1)

    whole = encoders.build("half_alexnet", width=2.0)
    assert sum(weights(e) for e in pair) * 2 == weights(whole)


@pytest.mark.parametrize(("width", "millions"), [(0.5, 11.8), (1, 47.0), (2, 187.7)])
def test_resnets_of_table_1_have_the_parameters_of_table_9(width: float, millions: float) -> None:
    with torch.device("meta"):
        pair = [encoders.ARCHITECTURES["resnet50"](c, "imagenet", width) for c in (1, 2)]
        one = encoders.ARCHITECTURES["resnet50"](3, "imagenet", 1.0)
    count = sum(p.numel() for network in pair for p in network.parameters())
    assert round(count / 1e6, 1) == millions
    if width == 0.5:  # printed: 12M for the pair, 24M for the one network of MoCo and PIRL
        printed = papers.published("cmc", "9").query("column == 'params (M)'").set_index("row")["value"]
        assert {name: round(count / 1e6) for name in printed.index if name.startswith("CMC")} == {
            name: value for name, value in printed.items() if name.startswith("CMC")
        }
        assert round(sum(p.numel() for p in one.parameters()) / 1e6) == printed["MoCo"] == printed["PIRL"]


def test_values_of_the_probes_are_those_of_the_released_code() -> None:
    pair = encoders.build_for(Split(), 3, arch="half_alexnet").eval()
    names = ("conv1", "conv2", "conv3", "conv4", "conv5")
    with torch.no_grad():
        made = encoders.pooled_layers(pair, (torch.randn(1, 1, 224, 224), torch.randn(1, 2, 224, 224)), names)
    assert [made[name].shape[1] for name in names] == [9600, 9216, 9600, 9600, 9216]
    assert [encoder_module.side_within(c, 55, 9600) for c in (96, 256, 384, 384, 256)] == [10, 6, 5, 5, 6]
    assert encoder_module.side_within(20000, 7, 9600) == 1
    assert encoder_module.side_within(8, 4, 9600) == 4


def test_a_layer_is_what_the_network_computes_there() -> None:
    encoder = encoders.build("half_alexnet64", stem="cifar", in_channels=3, dim=8).eval()
    x = torch.randn(3, 3, 32, 32)
    with torch.no_grad():
        made = encoder_module.layer_outputs(encoder, x, ("conv2", "conv5", "fc7"))
        slow = encoder.backbone[1](encoder.backbone[0](x))
        torch.testing.assert_close(made["conv2"], slow)
        for block in list(encoder.backbone)[2:]:
            slow = block(slow)
        torch.testing.assert_close(made["conv5"], slow)
        torch.testing.assert_close(made["fc7"], encoder.head.fc7(encoder.head.fc6(slow.flatten(1))))
        pooled = encoders.pooled_layers(nn.ModuleList([encoder]), (x,), ("conv2",), limit=96 * 9)["conv2"]
        torch.testing.assert_close(pooled, F.adaptive_max_pool2d(made["conv2"], 3).flatten(1))
    assert tuple(encoders.named_layers(encoders.build("resnet18"))) == ("conv1", "conv2", "conv3", "conv4", "conv5")
    assert tuple(encoders.named_layers(encoders.build("tiny"))) == ("conv1", "conv2", "conv3", "conv4")


def test_a_network_of_other_names_cannot_be_probed_by_layers() -> None:
    boxed = encoders.build("tiny")
    boxed.backbone = nn.ModuleDict({"patches": boxed.backbone})  # as a transformer's: no sequence
    with pytest.raises(errors.NotApplicableError, match="^ModuleDict names no layers that could be probed"):
        encoders.named_layers(boxed)


@pytest.fixture
def evaluation(pictures) -> tasks.Evaluation:
    """Dark and light pictures, two classes."""
    train, test = pictures(80), pictures(40, seed=1)
    for part in (train, test):
        part.items[:] = part.items // 4 + (part.labels * 150).to(torch.uint8)[:, None, None, None]
    return tasks.Evaluation(Split(), augmentation("cmc", 16), Splits("dark", train, train, test, "made"), seed=3)


def pair(arch: str = "tiny") -> nn.ModuleList:
    torch.manual_seed(0)
    return encoders.build_for(Split(), 3, arch=arch, stem="cifar", dim=8)


@pytest.mark.parametrize("solver", ["lbfgs", "sgd"])
def test_every_layer_has_a_linear_number_and_one_of_a_hidden_layer(solver: Any, evaluation: tasks.Evaluation) -> None:
    probe = LinearProbe(solver=solver, epochs=4, batch_size=16, lr=0.05)
    task = Layers(probe, LayerProbe(names=("conv1", "conv4"), values=512, hidden=20, mlp_epochs=5))
    encoders_ = pair()
    with unchanged(encoders_):
        measured = task.score(encoders_, evaluation)
    assert set(measured) == {"conv1", "conv1_mlp", "conv4", "conv4_mlp"}
    assert all(m.items == 40 for m in measured.values())
    assert measured["conv1"].value > 90
    assert measured["conv1_mlp"].value > 90
    assert encoders_.training
    again = task.score(encoders_, evaluation)
    assert {name: m.value for name, m in again.items()} == {name: m.value for name, m in measured.items()}


def test_a_linear_probe_of_a_layer_is_softmax_regression_on_its_pooled_map(evaluation: tasks.Evaluation) -> None:
    encoders_ = pair()
    task = Layers(LinearProbe(solver="lbfgs"), LayerProbe(names=("conv2",), values=100))
    features = []
    for part in (evaluation.data.train, evaluation.data.test):
        views = evaluation.views.plain(part.items, evaluation.augmentation)
        encoders_.eval()
        with torch.no_grad():
            maps = [e.backbone[1](e.backbone[0](v)) for e, v in zip(encoders_, views, strict=True)]
            side = int((100 / sum(m.shape[1] for m in maps)) ** 0.5)
            features.append(torch.cat([F.adaptive_max_pool2d(m, side).flatten(1) for m in maps], 1))
    scores = tasks.linear_lbfgs(features[0], evaluation.data.train.labels, features[1])
    expected = 100 * (scores.argmax(1) == evaluation.data.test.labels).double().mean()
    assert task.score(encoders_, evaluation)["conv2"].value == pytest.approx(expected.item())


def test_a_hidden_layer_separates_what_no_line_does() -> None:
    x = torch.randn(600, 2, generator=generator())
    labels = (x[:, 0] * x[:, 1] > 0).long()
    how = LayerProbe(hidden=20, mlp_epochs=60, mlp_lr=1e-2)
    scores = mlp(x[:400], labels[:400], x[400:], how, classes=2, batch_size=50)
    line = tasks.linear_lbfgs(x[:400], labels[:400], x[400:])
    assert (scores.argmax(1) == labels[400:]).double().mean() > 0.9
    assert (line.argmax(1) == labels[400:]).double().mean() < 0.7


def test_the_test_part_decides_nothing_and_layers_that_are_not_there_are_left_out(evaluation: tasks.Evaluation) -> None:
    task, nets = Layers(LinearProbe(epochs=2, batch_size=16), LayerProbe(hidden=5)), pair()
    test = evaluation.data.test
    some, few = (layers_sgd(task, nets, evaluation, part, ("conv2",)) for part in (test, test.subset(torch.arange(7))))
    for name, scores in few.items():
        torch.testing.assert_close(scores, some[name][:7], rtol=1e-4, atol=1e-4)
    task = Layers(LinearProbe(solver="lbfgs"), LayerProbe(names=("fc7", "conv1"), values=64))
    assert set(task.score(pair(), evaluation)) == {"conv1"}
    with pytest.raises(errors.NotApplicableError, match="layers fc7: the encoders have conv1, conv2"):
        Layers(layers=LayerProbe(names=("fc7",))).score(pair(), evaluation)


def test_names_settings_and_features(evaluation: tasks.Evaluation) -> None:
    settings = Settings(layers={"hidden": 200, "names": ("conv5", "fc7")}, test_images=9)
    task = tasks.get("layers", settings)
    assert task == Layers(settings.linear, settings.layers, 9)
    assert "layers" not in settings.identity()
    assert tasks.task_of("fc7_mlp") == tasks.task_of("conv1") == "layers"
    chosen = torch.tensor([5, 2])
    made, labels = layer_features(pair(), evaluation, evaluation.data.test, ("conv4",), 9600, indices=chosen)
    assert made["conv4"].shape[0] == 2
    assert torch.equal(labels, evaluation.data.test.labels[[5, 2]])
