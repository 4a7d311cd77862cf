"""Augmentations of one's own: functions and pipelines of torchvision by name, seeded like any other, hashed by name."""

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torchvision.transforms import v2

from contrastlab import methods
from contrastlab.pictures import augmentations
from contrastlab.pictures.augmentations import AUGMENTATIONS, augmentation, register
from contrastlab.support.errors import ArgumentError, UnknownNameError
from contrastlab.train import pretrain
from contrastlab.views import Augmented
from made_runs import equal, generator, quiet, resumed


def pipeline(size: int) -> v2.Transform:
    crop = v2.RandomResizedCrop(size, antialias=True)
    return v2.Compose(
        [crop, v2.RandomHorizontalFlip(), v2.ColorJitter(0.4, 0.4), v2.ToDtype(torch.float32, scale=True)]
    )


def noisy(size: int):
    def view(picture: Tensor) -> Tensor:
        return picture[:, :size, :size] / 255 + torch.rand(picture.shape[0], size, size)

    return view


@pytest.fixture(autouse=True)
def own(monkeypatch) -> None:
    monkeypatch.setattr(augmentations, "_OWN", {})
    register("mine/pipeline", pipeline)
    register("mine/noise", noisy)


def test_each_picture_has_draws_of_its_own_that_depend_on_the_generator_alone(pictures) -> None:
    same = pictures(4).items[:1].expand(4, -1, -1, -1)
    made = augmentation("mine/pipeline", 12)
    views = made.random(same, generator(1))
    assert views.shape == (4, 3, 12, 12)
    assert len({view.sum().item() for view in views}) == 4
    state = torch.random.get_rng_state()
    torch.rand(3)
    assert torch.equal(made.random(same, generator(1)), views)
    torch.random.set_rng_state(state)
    assert not torch.equal(made.random(same, generator(2)), views)
    torch.manual_seed(int(torch.randint(2**31, (), generator=generator(1))))
    assert torch.equal(torch.stack([pipeline(12)(picture) for picture in same]), views)


def test_probes_see_the_plain_view_and_encoders_the_normalised_one(pictures) -> None:
    images = pictures(3).items
    made, plain = augmentation("mine/noise", 16), augmentation("none", 16)
    assert torch.equal(made.plain(images), plain.plain(images))
    (view,) = Augmented(1).make(images, made, generator(0))
    assert torch.equal(view, made.normalise(made.random(images, generator(0))))
    crops = torch.stack([images, 255 - images], 1)
    assert torch.equal(made.random(crops, generator(0), view=1), made.random(255 - images, generator(0)))


def test_a_run_resumes_to_the_same_bits_and_is_hashed_by_the_name(pictures, tiny, tmp_path: Path) -> None:
    settings = tiny.override(augmentation="mine/pipeline", epochs=2)
    images, recipe = pictures(32), methods.get("decoupled/simclr")
    whole = pretrain(recipe, settings, images, seed=3, log=quiet)
    pieces, _ = resumed(
        lambda: pretrain(recipe, settings, images, seed=3, folder=tmp_path, max_minutes=0, log=quiet),
        between=lambda: torch.rand(7),
    )
    assert equal(whole.encoders, pieces.encoders)
    assert settings.identity()["augmentation"] == "mine/pipeline"
    assert settings.identity() != settings.override(augmentation="mine/noise").identity()


def test_the_entry_point_of_a_package_is_known(monkeypatch) -> None:
    class Point:
        def load(self):
            return noisy

    def points(group: str, name: str) -> list[Point]:
        return [Point()] if (group, name) == ("contrastlab.augmentations", "theirs/noise") else []

    monkeypatch.setattr(augmentations.metadata, "entry_points", points)
    assert augmentation("theirs/noise", 8).size == 8


def test_what_cannot_be_is_refused(pictures) -> None:
    images = pictures(2).items
    for name in ("crops", 3, "/mine"):
        with pytest.raises(ArgumentError, match="^name=.*: expected a name of your own such as 'mine/crops'"):
            register(name, noisy)  # type: ignore[arg-type]
    with pytest.raises(UnknownNameError, match="unknown augmentation 'mine/pipelin'; did you mean mine/pipeline"):
        augmentation("mine/pipelin", 8)
    register("mine/raw", lambda size: lambda picture: picture)
    with pytest.raises(
        ArgumentError, match=r"^mine/raw=.*: expected a function that gives floats of shape \[3, 8, 8\]"
    ):
        augmentation("mine/raw", 8).random(images)
    assert not any("/" in name for name in AUGMENTATIONS)
