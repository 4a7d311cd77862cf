"""What the tests of the core share: one thread, fixed examples, a few small pictures."""

import errno
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import hypothesis
import pandas as pd
import pytest
import torch
import torch._dynamo  # takes three seconds, at the first optimiser: forked processes find it there

from contrastbook.evidence import claims
from contrastlab import data
from contrastlab.data import ImageSet, Splits
from contrastlab.methods import Recipe
from contrastlab.papers import TablePlan
from contrastlab.settings import Settings
from contrastlab.support import host
from contrastlab.support.errors import MissingDataError
from contrastlab.tables.results import Result

sys.path += [str(Path(__file__).parents[1] / folder) for folder in ("book", "book/_ext")]
torch.set_num_threads(1)
hypothesis.settings.register_profile("fixed", deadline=None, derandomize=True, database=None, max_examples=80)
hypothesis.settings.load_profile("fixed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests go first, so that no worker is alone with a long file at the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture
def pictures() -> Callable[..., ImageSet]:
    """Random pictures, ``pictures(count, channels, seed)``; labels go round two classes."""

    def make(count: int = 48, channels: int = 3, seed: int = 0) -> ImageSet:
        generator = torch.Generator().manual_seed(seed)
        pixels = torch.randint(0, 256, (count, channels, 16, 16), generator=generator).to(torch.uint8)
        return ImageSet(f"pictures/{seed}", pixels, torch.arange(count) % 2, ("even", "odd"))

    return make


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch, pictures: Callable[..., ImageSet]) -> None:
    """Every data set is a few random pictures, grey ones where the real ones are grey."""

    def load(name: str, root: object = None) -> Splits:
        if name == "cifar100":
            raise MissingDataError("cifar100 is not at /nowhere")
        channels, seed = (1, 0) if name == "digits" else (3, 2 * len(name))
        train, test = pictures(192, channels, seed), pictures(64, channels, seed + 1)
        return Splits(name=name, pretrain=train, train=train, test=test, note="random pictures")

    monkeypatch.setattr(data, "load", load)
    monkeypatch.delenv("CONTRASTLAB_PROFILE", raising=False)


COMPUTED: dict[tuple[int, ...], tuple[list[Result], pd.DataFrame]] = {}


@pytest.fixture(scope="module")
def claims_once() -> Iterator[None]:
    """Claims of all tables are computed once by modules that ask about the same results again."""
    frame = claims.frame

    def once(results: Sequence[Result], plans: Iterable[TablePlan] | None = None) -> pd.DataFrame:
        if plans is not None:
            return frame(results, plans)
        key = tuple(map(id, results))
        if key not in COMPUTED:
            COMPUTED[key] = list(results), frame(results)  # the results are held, so that no other has their id
        return COMPUTED[key][1].copy()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(claims, "frame", once)
        yield


@pytest.fixture
def deny(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``deny(function, path)``: ``function`` says of ``path`` what the system says of what a user may not read.

    Rights alone would not do: CI's user may read all.
    """

    def deny(function: str, denied: Path, module: object = os) -> None:
        allowed = getattr(module, function)

        def asked(path: object = ".", *arguments: object, **options: object) -> object:
            if isinstance(path, str | os.PathLike) and Path(path) == denied:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            return allowed(path, *arguments, **options)

        monkeypatch.setattr(module, function, asked)

    return deny


@pytest.fixture(scope="module", params=["host", "device"])
def branch(request: pytest.FixtureRequest) -> Iterator[str]:
    """Tests that use this run twice: as on a CPU, and by the ways of a GPU, which the CPU then computes."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "device":
            patch.setattr(host, "TYPE", "none")
        yield request.param


@pytest.fixture
def tiny() -> Settings:
    """Two epochs of three steps."""
    return Settings(
        image_size=16, arch="tiny", stem="cifar", dim=16, epochs=2, batch_size=16, milestones=(), knn_every=0
    )


@pytest.fixture
def shrink() -> Callable[[Recipe], Recipe]:
    """A recipe with as few keys, draws and clusters as 48 pictures allow."""
    changes = {
        "negatives.k": 16, "negatives.nearest": 16, "keys.size": 20, "negatives.clusters": 4,
        "positives.clusters": 4, "negatives.runs": 2, "positives.runs": 2, "views.distance": 0,
    }  # fmt: skip
    return lambda recipe: recipe.override(changes)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, for pages that a person would see; as book/check.py opens it."""
    play = pytest.importorskip(
        "playwright.sync_api", reason="playwright is in the group book: make check-book installs it"
    )
    from check import browser_path

    path = browser_path()
    if path is None:
        pytest.skip("no Chromium: install one, or name it in CHROMIUM")
    with play.sync_playwright() as started:
        launched = started.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield launched
        launched.close()
