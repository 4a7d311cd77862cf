"""A detector trained, stored and scored; its draws are counted, so that it resumes to the same bits on a CPU."""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from contrastlab.domains.detection import scores
from contrastlab.domains.detection.data import AnnotatedImages
from contrastlab.domains.detection.definitions import Detection
from contrastlab.domains.detection.network import Kind, build
from contrastlab.pictures.fitting import SPEAK_EVERY_S, Resumable, tensors_of
from contrastlab.pictures.loading import WORKERS
from contrastlab.pictures.task import Log, Measured, Setting
from contrastlab.settings import Detector
from contrastlab.support import files
from contrastlab.support.errors import CorruptFileError, NotApplicableError, import_extra
from contrastlab.support.seeds import derive, fixed, generator
from contrastlab.train.checkpoint import Artefact

FILE, RECORD = "detector.safetensors", "detector.json"
_FIELDS = {"kind": str, "classes": list, "losses": list}
_ALONE = "body.networks.0."


def learning_rate(settings: Detector, step: int) -> float:
    """Of a step, from 0: a linear warm-up, and drops at the milestones."""
    done = step / settings.warmup_steps if step < settings.warmup_steps else 1.0
    share = settings.warmup_from * (1 - done) + done
    return settings.lr * share * settings.gamma ** sum(step >= milestone for milestone in settings.milestones)


def repeats(data: AnnotatedImages, usable: Sequence[int], threshold: float) -> Tensor:
    """How often each picture is shown in an epoch, ``[n]``: LVIS's repeat factors (Gupta et al. 2019, section 5).

    A class in a share f of the pictures wants ``max(1, sqrt(threshold / f))``; the class that wants most decides.
    """
    of_image = [
        {each["category_id"] for each in data.annotations.of_image[data.ids[index]] if not each["iscrowd"]}
        for index in usable
    ]
    count = Counter(category for classes in of_image for category in classes)
    wanted = {category: max(1.0, math.sqrt(threshold * len(usable) / n)) for category, n in count.items()}
    return torch.tensor([max((wanted[c] for c in classes), default=1.0) for classes in of_image], dtype=torch.float64)


def order(data: AnnotatedImages, usable: Sequence[int], settings: Detector, seed: int) -> Iterator[int]:
    """Pictures without end, epoch after epoch, each epoch in an order of its own."""
    shown = repeats(data, usable, settings.repeat_threshold)
    numbers = torch.tensor(list(usable))
    for epoch in itertools.count():
        rng = generator(seed, "detector order", epoch)
        times = shown.floor() + (torch.rand(len(shown), generator=rng, dtype=torch.float64) < shown - shown.floor())
        every = numbers.repeat_interleave(times.long())
        yield from every[torch.randperm(len(every), generator=rng)].tolist()


def mirrored(picture: Tensor, target: dict[str, Tensor], points: Sequence[int]) -> tuple[Tensor, dict[str, Tensor]]:
    """A picture ``[3, H, W]`` and its objects, left and right exchanged; ``points`` is which keypoint stands where."""
    width = picture.shape[-1]
    out = {**target, "boxes": target["boxes"].clone()}
    out["boxes"][:, [0, 2]] = width - target["boxes"][:, [2, 0]]
    if "masks" in target:
        out["masks"] = target["masks"].flip(-1)
    if "keypoints" in target:
        turned = target["keypoints"][:, list(points)].clone()
        turned[..., 0] = torch.where(turned[..., 2] > 0, width - turned[..., 0], 0.0)
        out["keypoints"] = turned
    return picture.flip(-1), out


def usable_pictures(data: AnnotatedImages, kind: Kind) -> list[int]:
    """Numbers of the pictures that show what is looked for: Detectron2 trains on no others."""
    if kind == "masks" and not data.annotations.masks:
        raise NotApplicableError(f"{data.name} has no masks")
    if kind == "keypoints" and data.annotations.keypoints is None:
        raise NotApplicableError(f"{data.name} has no keypoints")

    def shows(image: int) -> bool:
        single = (each for each in data.annotations.of_image[image] if not each["iscrowd"])
        return any(kind != "keypoints" or each.get("num_keypoints", 0) > 0 for each in single)

    if chosen := [index for index, image in enumerate(data.ids) if shows(image)]:
        return chosen
    raise NotApplicableError(f"{data.name} shows no object to train on")


Example = tuple[Tensor, dict[str, Tensor]]


def examples(
    data: AnnotatedImages, usable: Sequence[int], kind: Kind, settings: Detector, seed: int, first: int = 0
) -> Iterator[list[Example]]:
    """Pictures and targets of the steps from ``first`` on, half of them mirrored; a step's are read during the last."""
    shown = itertools.islice(order(data, usable, settings, seed), first * settings.batch_size, None)
    points = data.annotations.keypoints.mirrored if data.annotations.keypoints else ()

    def read(index: int, flip: bool) -> Example:
        target = data.target(index, masks=kind == "masks", keypoints=kind == "keypoints")
        return mirrored(data[index], target, points) if flip else (data[index], target)

    with ThreadPoolExecutor(WORKERS) as readers:
        coming: list[Future[Example]] = []
        for step in range(first, settings.steps + 1):
            ready = coming
            if step < settings.steps:
                flips = torch.rand(settings.batch_size, generator=generator(seed, "detector flip", step)) < 0.5
                coming = [readers.submit(read, next(shown), flip) for flip in flips.tolist()]
            if step > first:
                yield [each.result() for each in ready]


def fit(
    model: nn.Module, data: AnnotatedImages, kind: Kind, settings: Detector, *, seed: int,
    device: torch.device | str = "cpu", folder: Path | None = None, log: Log = lambda line: None,
) -> list[float]:  # fmt: skip
    """Train a detector in place, from its checkpoint if there is one, and give the loss of each step.

    Order, mirroring, sides and samples of a step come from (seed, step) alone. ``folder`` is that of the checkpoint and
    the finished detector; ``None`` keeps neither.
    """
    usable = usable_pictures(data, kind)
    model.to(device).train()  # before there is a momentum, which lies where its parameter does
    kept = None
    if folder is not None:  # its origin is what decides the training: no file of another one is taken for its own
        about = {"kind": kind, "data": data.fingerprint, "settings": settings.model_dump(mode="json"), "seed": seed}
        kept = Artefact(folder, FILE, RECORD, "detector", _FIELDS, files.fingerprint(tensors_of(model), about))
        if kept.finished:
            restore(model, kept)
            known = list(kept.read()["losses"])
            kept.finish()
            return known

    def steps(first: int) -> Iterator[float]:
        for step, read in enumerate(examples(data, usable, kind, settings, seed, first), first):
            pictures = [picture.to(device).float() / 255 for picture, _ in read]
            targets = [{name: value.to(device) for name, value in target.items()} for _, target in read]
            with fixed(derive(seed, "detector step", step), device):
                loss = sum(model(pictures, targets).values())
            yield training.descend(loss, learning_rate(settings, step))

    training = Resumable(model, settings, f"detector of {kind}", kept)
    losses = training.run(steps, settings.steps, log)
    if kept is not None:
        how = settings.model_dump(mode="json")
        store(model, kept, {"kind": kind, "classes": list(data.classes), "losses": losses, "settings": how})
    return losses


def store(model: nn.Module, kept: Artefact, record: dict[str, Any]) -> None:
    """Write ``detector.safetensors``, with torchvision's names for one encoder, and ``detector.json``."""
    alone = len(model.backbone.body.networks) == 1  # type: ignore[union-attr, arg-type]
    tensors = {name.replace(_ALONE, "body.") if alone else name: t for name, t in tensors_of(model).items()}
    kept.write(tensors, {"kind": record["kind"], "classes": record["classes"]})
    kept.finish(record)


def restore(model: nn.Module, kept: Artefact) -> None:
    """Fill a detector of the same layout from a stored one."""
    tensors, _ = kept.load()
    with torch.no_grad():
        for name, tensor in tensors_of(model).items():
            stored = tensors.get(name, tensors.get(name.replace(_ALONE, "body.")))
            if stored is None or stored.shape != tensor.shape:
                path = kept.folder / kept.tensors
                raise CorruptFileError(f"{path} is of another detector: {name} is missing or of another shape")
            tensor.copy_(stored)


@torch.no_grad()
def predict(
    model: nn.Module, data: AnnotatedImages, kind: Kind, *, device: torch.device | str = "cpu",
    log: Log = lambda line: None,
) -> list[dict[str, Any]]:  # fmt: skip
    """Detections of all pictures, in COCO's form: ``bbox``, and ``segmentation`` or ``keypoints``."""
    model.to(device).eval()
    ids = [category["id"] for category in data.annotations.categories]
    out: list[dict[str, Any]] = []
    spoke = time.monotonic()
    for index, image in enumerate(data.ids):
        (found,) = model([data[index].float().to(device) / 255])
        found = {name: value.cpu() for name, value in found.items()}
        boxes = found["boxes"].clone()
        boxes[:, 2:] -= boxes[:, :2]
        columns = {"bbox": boxes.tolist(), "score": found["scores"].tolist()}
        if kind == "masks":
            columns["segmentation"] = encoded(found["masks"][:, 0] > 0.5)
        elif kind == "keypoints":
            columns["keypoints"] = found["keypoints"].flatten(1).tolist()
        for k, label in enumerate(found["labels"].tolist()):
            out.append({"image_id": image, "category_id": ids[label - 1], **{key: v[k] for key, v in columns.items()}})
        if time.monotonic() - spoke > SPEAK_EVERY_S:
            log(f"detector of {kind}: {index + 1}/{len(data)} test pictures")
            spoke = time.monotonic()
    return out


def encoded(masks: Tensor) -> list[dict[str, Any]]:
    """Packed run lengths of boolean masks ``[n, H, W]``."""
    if not len(masks):
        return []
    functions = import_extra("faster_coco_eval", "dense").mask
    packed = functions.encode(masks.permute(1, 2, 0).to(torch.uint8).numpy().copy(order="F"))
    return [{**each, "counts": each["counts"].decode()} for each in packed]


def trained_detector(task: Detection, encoders: nn.ModuleList, setting: Setting) -> tuple[nn.Module, AnnotatedImages]:
    """A detector on copies of encoders, read from ``setting.folder`` or trained there, and its test pictures."""
    kind, settings, data = cast("Kind", task.name), task.detector, setting.data
    train, test = data.train.take(settings.train_pictures, setting.seed), data.test.take(settings.test_pictures)
    points = train.annotations.keypoints
    usable_pictures(train, kind)
    with fixed(derive(setting.seed, "detector")):
        model = build(
            kind, encoders, setting.views, setting.augmentation, settings, classes=len(train.classes),
            keypoints=len(points.names) if points else 0,
        )  # fmt: skip
    fit(model, train, kind, settings, seed=setting.seed, device=setting.device, folder=setting.folder, log=setting.log)
    return model, test


def score(task: Detection, encoders: nn.ModuleList, setting: Setting) -> dict[str, Measured]:
    """``detection_ap`` and so on by the rule of the data; for VOC's also ``detection_coco_ap``, by COCO's rule."""
    model, test = trained_detector(task, encoders, setting)
    detections = predict(model, test, cast("Kind", task.name), device=setting.device, log=setting.log)
    rule, draws, out = test.annotations.rule, task.detector.draws, {}
    for stem, what in task.stems.items():
        other = {"bbox": "segmentation", "segm": "bbox"}.get(what)
        own = [{key: value for key, value in each.items() if key != other} for each in detections]
        measured = scores.coco(test.annotations, own, what, draws=draws)
        if task.name == "boxes" and rule in ("voc07", "voc12"):
            out["detection_coco_ap"] = measured[""]
            measured = scores.voc(test.annotations, own, eleven=rule == "voc07", draws=draws)
        out |= {f"{stem}_ap{key}": value for key, value in measured.items()}
    return out
