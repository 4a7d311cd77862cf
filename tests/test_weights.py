"""Runs that begin with the weights of a file: what they begin with, what is hashed, and what is refused."""

import shutil
from pathlib import Path

import pytest
import torch
import torchvision
from safetensors.torch import save_file

from contrastlab import methods
from contrastlab.pictures.items import Splits
from contrastlab.settings import Settings
from contrastlab.support.errors import ArgumentError, CorruptFileError, MissingDataError
from contrastlab.tables.runs import Run
from contrastlab.train import pretrain
from made_runs import quiet

RANDOM = methods.get("ours/random")


@pytest.fixture
def resnet(tmp_path: Path) -> tuple[Path, dict[str, torch.Tensor]]:
    """A file of torchvision's names, and what is in it."""
    torch.manual_seed(5)
    state = torchvision.models.resnet18().state_dict()
    path = tmp_path / "resnet18.pth"
    torch.save({"state_dict": state, "epoch": 3}, path)
    return path, state


def settings(path: Path, **changes) -> Settings:
    about = {"image_size": 32, "arch": "resnet18", "dim": 8, "epochs": 1, "batch_size": 8, "knn_every": 0}
    return Settings.model_validate({**about, "milestones": (), "weights": {"file": str(path)}, **changes})


@pytest.mark.parametrize("arch", ["resnet18", "timm:resnet18", "torchvision:resnet18"])
def test_encoders_begin_with_the_weights_of_a_file(arch: str, resnet, pictures) -> None:
    if arch.startswith("timm"):
        pytest.importorskip("timm")
    path, state = resnet
    (encoder,) = pretrain(RANDOM, settings(path, arch=arch), pictures(16), log=quiet).encoders
    first = encoder.backbone.state_dict()
    assert torch.equal(first["layer2.0.conv1.weight"], state["layer2.0.conv1.weight"])
    assert torch.equal(first["conv1.weight"], state["conv1.weight"])


def test_training_goes_on_from_them_and_not_from_a_draw(resnet, pictures) -> None:
    path, state = resnet
    still = settings(path, lr=1e-12, weight_decay=0.0)
    (encoder,) = pretrain(methods.get("decoupled/simclr"), still, pictures(16), log=quiet).encoders
    torch.testing.assert_close(encoder.backbone.state_dict()["conv1.weight"], state["conv1.weight"])


def test_the_content_of_the_file_is_hashed_and_not_its_place(resnet, tmp_path: Path, pictures) -> None:
    path, state = resnet
    elsewhere = tmp_path / "moved.pth"
    shutil.copy(path, elsewhere)
    other = tmp_path / "other.safetensors"
    save_file({name: tensor + 1 for name, tensor in state.items()}, other)
    images = pictures(16)
    splits = Splits.of("few", images, images, "")

    def identity(given: Settings, method: str = "decoupled/simclr") -> str:
        return Run(methods.get(method), given, splits).hash

    assert identity(settings(path)) == identity(settings(elsewhere))
    hashes = {identity(each) for each in (settings(path), settings(other), settings(path, weights=None))}
    assert len(hashes) == 3
    assert identity(settings(path), "ours/random") != identity(settings(path, weights=None), "ours/random")
    assert (
        settings(path, weights=None).identity()
        == Settings.model_validate(settings(path).model_dump() | {"weights": None}).identity()
    )
    stored = settings(path).model_dump(mode="json")
    path.unlink()
    again = Settings.model_validate(stored)  # a stored result is read where the file is not
    assert again.identity()["weights"] == stored["weights"]["sha256"]


def test_what_cannot_be_is_refused(resnet, tmp_path: Path, pictures) -> None:
    path, state = resnet
    with pytest.raises(MissingDataError, match="nothing.pth does not exist"):
        settings(tmp_path / "nothing.pth")
    with pytest.raises(CorruptFileError, match="is a folder: expected a file"):
        settings(tmp_path)
    with pytest.raises(ArgumentError, match="^arch=.*: expected the architecture of"):
        pretrain(RANDOM, settings(path, arch="resnet50"), pictures(16), log=quiet)
    given = settings(path)
    torch.save({name: tensor + 1 for name, tensor in state.items()}, path)
    with pytest.raises(CorruptFileError, match="is another file: its SHA-256 begins with"):
        pretrain(RANDOM, given, pictures(16), log=quiet)
