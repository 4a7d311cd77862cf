"""A trained encoder leaves the package whole: torchvision reads it, and it comes back as it was."""

from pathlib import Path

import pytest
import torch
import torchvision
from safetensors.torch import load_file
from torch import nn

from contrastlab import encoders
from contrastlab.support.errors import CorruptFileError, MissingDataError
from contrastlab.views import Augmented, Split
from made_runs import equal

BUILD = {"arch": "tiny", "stem": "cifar", "head": "mlp", "dim": 16}


def stored(folder: Path, views: Augmented | Split, **build) -> nn.ModuleList:
    torch.manual_seed(3)
    nets = encoders.build_for(views, 3, **build)
    for module in nets.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
    encoders.save(nets, folder, views.streams, build)
    return nets.eval()


@pytest.mark.parametrize("views", [Augmented(2), Split("lab")], ids=["one stream", "two streams"])
@pytest.mark.parametrize("arch", ["tiny", "small", pytest.param("resnet18", marks=pytest.mark.nightly), "scene"])
def test_encoders_come_back_as_they_were(views, arch, tmp_path) -> None:
    nets = stored(tmp_path, views, **{**BUILD, "arch": arch})
    for given in (tmp_path, tmp_path / "encoder.safetensors", str(tmp_path)):
        again = encoders.load(given)
        assert equal(nets, again)
        assert not any(module.training for module in again.modules())


@pytest.mark.parametrize("name", ["resnet18", pytest.param("resnet50", marks=pytest.mark.nightly)])
def test_a_resnet_loads_into_torchvision_with_nothing_missing_but_fc(name, tmp_path) -> None:
    (net,) = stored(tmp_path, Augmented(1), arch=name, stem="imagenet", head="linear", dim=8)
    theirs = getattr(torchvision.models, name)()
    answer = theirs.load_state_dict(load_file(tmp_path / "encoder.safetensors"), strict=False)
    assert answer.missing_keys == ["fc.weight", "fc.bias"]
    assert all(key.startswith("head.") for key in answer.unexpected_keys)
    theirs.fc = nn.Identity()
    images = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(theirs.eval()(images), net.features(images), rtol=1e-4, atol=1e-4)


def test_what_is_no_encoder_is_named(tmp_path) -> None:
    with pytest.raises(MissingDataError, match=str(tmp_path)):
        encoders.load(tmp_path)
    stored(tmp_path, Augmented(1), **BUILD)
    path = tmp_path / "encoder.safetensors"
    whole = path.read_bytes()
    for broken in (b"", b"x" * 100, whole[: len(whole) // 2], whole[:-1], whole[:8] + b"[]" + whole[10:]):
        path.write_bytes(broken)
        with pytest.raises(CorruptFileError, match=str(path)):
            encoders.load(tmp_path)
