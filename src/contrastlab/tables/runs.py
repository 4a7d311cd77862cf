"""A run: recipe × settings × pre-training data × seed → trained encoders, which serve every task and table.

``<root>/encoders/<hash>/`` holds ``encoder.safetensors`` and ``run.json``, and during training a checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from PIL import Image
from torch import Tensor, nn

from contrastlab import encoders, methods, tasks
from contrastlab.domains.sets import load
from contrastlab.domains.stored_encoders import FILE
from contrastlab.pictures.domain import modality
from contrastlab.pictures.items import Splits
from contrastlab.pictures.sets import ImageSet, stack
from contrastlab.recipe import Recipe, build, types_of
from contrastlab.settings import Settings
from contrastlab.support import collectives, files
from contrastlab.support.errors import CorruptFileError, NotApplicableError, check, reject
from contrastlab.tables import results
from contrastlab.train import Speed, Trained, pretrain
from contrastlab.train.checkpoint import NEEDED, RUN, Artefact, describing, read_run
from contrastlab.train.loop import Log
from contrastlab.train.schedule import cpu_fabric, precision

if TYPE_CHECKING:
    from lightning_fabric import Fabric


_ANEW = "delete the folder and run the cell again"


class BusyError(Exception):
    """Another process computes this run."""


@dataclass(frozen=True)
class Run:
    """What decides a set of encoders: a recipe with the settings' overrides applied, settings, data and a seed."""

    recipe: Recipe
    settings: Settings
    data: Splits
    seed: int = 0
    root: Path | str = Path("runs")

    def __post_init__(self) -> None:
        kind = type(self.data).__name__
        check(isinstance(self.data, Splits), "data", kind, "what contrastlab.data.load gives, as of folder:<path>")

    @property
    def trains(self) -> bool:
        """Whether there is anything to train: encoders as initialised are made from the seed when asked for."""
        return self.recipe.keys is not None

    @property
    def parent(self) -> Run | None:
        """The run whose encoders this one starts from (``settings.start``); its keys are not taken over."""
        start = self.settings.start
        if start is None or not self.trains:
            return None
        settings = self.settings.override(start=None, epochs=start.epochs)
        return replace(self, recipe=methods.get(start.method).override(settings.overrides), settings=settings)

    @property
    def identity(self) -> dict[str, Any]:
        """What decides the encoders, as plain values; fields at their default and a single process leave no trace."""
        source = self.data.pretrain
        data = source.channels  # all that encoders as initialised depend on
        if self.trains:
            data = getattr(source, "fingerprint", source.name)
        decisive: dict[str, Any] = {
            "recipe": self.recipe.identity(),
            "settings": self.settings.identity(self.trains),
            "data": data,
            "seed": self.seed,
        }
        _, processes = collectives.world()
        if self.trains and processes > 1:  # each has its own views and batch-norm statistics
            decisive["processes"] = processes
        parent = self.parent
        if parent is not None:
            decisive["parent"] = parent.hash
        return decisive

    @cached_property
    def hash(self) -> str:
        """64 hexadecimal digits over :attr:`identity`."""
        return results.digest(self.identity)

    @property
    def artefact(self) -> Artefact:
        """Its files, there or not."""
        return Artefact(Path(self.root) / "encoders" / self.hash[:16], FILE, RUN, "run", NEEDED)

    @property
    def folder(self) -> Path:
        """Where the artefact is, or will be."""
        return self.artefact.folder

    @contextmanager
    def locked(self, fabric: Fabric, *, wait: bool, log: Log) -> Iterator[None]:
        """One program computes a run at a time, else ``BusyError``; of its processes the first holds the lock."""
        lock = None
        if fabric.is_global_zero:
            lock = self.artefact.lock(wait=False)
        is_busy = fabric.broadcast(fabric.is_global_zero and lock is None)
        if is_busy:
            if not wait:
                raise BusyError
            log(f"[{self.recipe.name} seed {self.seed}] waits for another process that computes this run")
            lock = collectives.by_first(self.artefact.lock)
        try:
            yield
        finally:
            if lock is not None:
                lock.release()

    def record(self) -> dict[str, Any]:
        """What ``run.json`` says; a ``CorruptFileError`` names one that is damaged, newer or of another run."""
        record = read_run(self.folder)
        if record["hash"] != self.hash:
            raise CorruptFileError(f"{self.folder / RUN} is of another run; {_ANEW}")
        return record

    def encoders(self, device: torch.device | str = "cpu") -> nn.ModuleList:
        """The trained encoders, one per stream, in evaluation mode, if they are those that ``run.json`` speaks of."""
        loaded = encoders.load(self, device)
        expected = self.record().get("encoder_checksum")  # of older runs there is none
        if expected not in (None, files.tensors_checksum(self.folder / FILE)):
            raise CorruptFileError(f"{self.folder / FILE} is not the file that {RUN} beside it speaks of; {_ANEW}")
        return loaded

    def store(self, trained: Trained, device: torch.device) -> None:
        """Write the artefact."""
        kind = modality(self.data.pretrain)
        path = encoders.save(trained.encoders, self.folder, self.recipe.views.streams, kind.build(self.settings))
        record = {
            "schema": 1,
            "hash": self.hash,
            "recipe": self.recipe.describe(),
            "settings": self.settings.model_dump(mode="json"),
            "dataset": self.data.name,
            "data_note": self.data.note,
            "data_fingerprint": self.identity["data"],
            "modality": kind.name,
            "seed": self.seed,
            "precision": precision(self.settings.precision, device.type),
            "history": trained.history,
            "seconds": trained.seconds,
            "images": trained.images,
            "provenance": results.provenance(device),
            "encoder_checksum": files.tensors_checksum(path),
        }
        self.artefact.write_record(record)
        self.artefact.remove_checkpoint()

    def train(
        self,
        fabric: Fabric | None = None,
        *,
        resume: bool = True,
        max_minutes: float | None = None,
        speed: Speed | None = None,
        log: Log | None = None,
    ) -> Trained:
        """The encoders, read if they are stored, else trained by :func:`contrastlab.train.pretrain` and stored."""
        fabric = fabric or cpu_fabric(self.settings.precision)
        if fabric.broadcast(resume and self.trains and self.artefact.finished):
            record = self.record()
            self.artefact.remove_checkpoint(may_stay=True)
            return Trained(self.encoders(fabric.device), record["history"], record["seconds"], record["images"])
        start = None
        parent = self.parent
        if parent is not None:
            with parent.locked(fabric, wait=True, log=log or print):
                start = parent.train(fabric, max_minutes=max_minutes, speed=speed, log=log).encoders
        folder = self.folder if self.trains else None
        trained = pretrain(
            self.recipe,
            self.settings,
            self.data.pretrain,
            self._test_items(),
            seed=self.seed,
            folder=folder,
            fabric=fabric,
            resume=resume,
            max_minutes=max_minutes,
            speed=speed,
            log=log,
            start=start,
        )
        if self.trains and fabric.is_global_zero:
            self.store(trained, fabric.device)
        return trained

    def _test_items(self) -> Any:
        """Test items whose neighbours are looked at during training; ``None`` without labels."""
        if not self.data.labelled:
            return None
        return self.data.test.take(self.settings.test_images)

    def to(self, device: torch.device) -> Run:
        """The same run with its resident data on a device."""
        moved = replace(self, data=self.data.to(device))
        moved.__dict__["hash"] = self.hash  # no pixel changes on the way
        return moved


def embed(
    folder: Path | str,
    images: Any,
    *,
    kind: Literal["embedding", "pooled", "map"] = "embedding",
    device: torch.device | str = "cpu",
) -> Tensor:
    """Representations of your own pictures by a stored run, with the size and normalisation it was trained with.

    Images are a uint8 tensor ``[N, C, H, W]``, not normalised, a folder, paths or Pillow's. Of a folder every picture
    below it has a row, in the order of :func:`contrastlab.data.pictures_in`. They give ``[N, F]`` float32, the streams
    side by side: the unit output of the head, or the features behind it after (``pooled``) or before pooling
    (``map``).
    """
    check(kind in ("embedding", "pooled", "map"), "kind", kind, "'embedding', 'pooled' or 'map'")
    source = _as_set(images)
    networks = encoders.load(Path(folder), device)
    record = read_run(Path(folder))
    if record.get("modality", "image") != "image":
        raise reject("folder", str(folder), f"a run of pictures; this one is of the modality {record['modality']}")
    with describing(Path(folder)):
        views = build("views", record["recipe"]["views"], types_of("views"))
        settings = Settings.model_validate(record["settings"])
    encoder_channels = [network.in_channels for network in networks]
    view_channels = list(views.channels(source.channels))
    if view_channels != encoder_channels:
        problem = f"{folder}: encoders of {encoder_channels} channels"
        raise NotApplicableError(f"{problem}; pictures of {source.channels} have views of {view_channels}")
    augmentation = modality(source).augmentation(settings)
    embeddings, _ = tasks.encode(networks, views, augmentation, source, kind=kind, device=device)
    return embeddings


def _as_set(images: Any) -> Any:
    """A user's pictures in any of the accepted forms as a set without labels."""
    if isinstance(images, str | Path) and Path(images).is_dir():
        return load(f"unlabelled:{images}").pretrain
    if isinstance(images, _PICTURE):
        images = [images]
    if isinstance(images, list | tuple) and images and all(isinstance(each, _PICTURE) for each in images):
        images = stack([(_source(picture), "") for picture in images])
    if not isinstance(images, Tensor) or images.dim() != 4 or images.dtype != torch.uint8 or not len(images):
        accepted = "a uint8 tensor of shape [N, C, H, W], a folder, paths or Pillow's images, at least one"
        raise reject("images", getattr(images, "shape", type(images).__name__), accepted)
    return ImageSet("own", images, torch.full((len(images),), -1), ())


_PICTURE = (str, Path, Image.Image)


def _source(picture: str | Path | Image.Image) -> Path | Image.Image:
    """What a picture is decoded from."""
    if isinstance(picture, str):
        return Path(picture)
    return picture
