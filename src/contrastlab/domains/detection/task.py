"""A detector trained, stored and scored; its draws are counted, so that it resumes to the same bits on a CPU."""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
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
from contrastlab.pictures.task import Evaluation, Log, Measured
from contrastlab.settings import Detector
from contrastlab.support import files
from contrastlab.support.errors import CorruptFileError, NotApplicableError, import_extra
from contrastlab.support.seeds import derive, fixed, generator
from contrastlab.train.checkpoint import Artefact

FILE = "detector.safetensors"
RECORD = "detector.json"
_FIELDS = {"kind": str, "classes": list, "losses": list}
_ALONE = "body.networks.0."  # in the names of a single encoder's tensors; torchvision's names have "body." alone


def learning_rate(settings: Detector, step: int) -> float:
    """Of a step, from 0: a linear warm-up, and drops at the milestones."""
    done = 1.0
    if step < settings.warmup_steps:
        done = step / settings.warmup_steps
    warm = settings.warmup_from * (1 - done) + done
    drops = sum(step >= milestone for milestone in settings.milestones)
    return settings.lr * warm * settings.gamma**drops


def repeats(data: AnnotatedImages, usable: Sequence[int], threshold: float) -> Tensor:
    """How often each picture is shown in an epoch, ``[n]``: LVIS's repeat factors (Gupta et al. 2019, section 5).

    A class in a share f of the pictures wants ``max(1, sqrt(threshold / f))``; the class that wants most decides.
    """
    categories_of = []
    for index in usable:
        objects = data.annotations.of_image[data.ids[index]]
        single = [each for each in objects if not each["iscrowd"]]
        categories_of.append({each["category_id"] for each in single})
    count: Counter[int] = Counter()
    for categories in categories_of:
        count.update(categories)
    wanted = {}
    for category, pictures in count.items():
        wanted[category] = max(1.0, math.sqrt(threshold * len(usable) / pictures))
    times = []
    for categories in categories_of:
        most = max((wanted[category] for category in categories), default=1.0)
        times.append(most)
    return torch.tensor(times, dtype=torch.float64)


def order(data: AnnotatedImages, usable: Sequence[int], settings: Detector, seed: int) -> Iterator[int]:
    """Pictures without end, epoch after epoch, each epoch in an order of its own."""
    wanted = repeats(data, usable, settings.repeat_threshold)
    whole = wanted.floor()
    rest = wanted - whole
    numbers = torch.tensor(list(usable))
    for epoch in itertools.count():
        rng = generator(seed, "detector order", epoch)
        is_once_more = torch.rand(len(wanted), generator=rng, dtype=torch.float64) < rest
        times = (whole + is_once_more).long()
        shown = numbers.repeat_interleave(times)
        yield from shown[torch.randperm(len(shown), generator=rng)].tolist()


def mirrored(picture: Tensor, target: dict[str, Tensor], points: Sequence[int]) -> tuple[Tensor, dict[str, Tensor]]:
    """A picture ``[3, H, W]`` and its objects, left and right exchanged; ``points`` is which keypoint stands where."""
    width = picture.shape[-1]
    boxes = target["boxes"].clone()
    boxes[:, [0, 2]] = width - target["boxes"][:, [2, 0]]
    mirrored_target = {**target, "boxes": boxes}
    if "masks" in target:
        mirrored_target["masks"] = target["masks"].flip(-1)
    if "keypoints" in target:
        keypoints = target["keypoints"][:, list(points)].clone()
        is_seen = keypoints[..., 2] > 0
        keypoints[..., 0] = torch.where(is_seen, width - keypoints[..., 0], 0.0)
        mirrored_target["keypoints"] = keypoints
    return picture.flip(-1), mirrored_target


def usable_pictures(data: AnnotatedImages, kind: Kind) -> list[int]:
    """Numbers of the pictures that show what is looked for: Detectron2 trains on no others."""
    if kind == "masks" and not data.annotations.masks:
        raise NotApplicableError(f"{data.name} has no masks")
    if kind == "keypoints" and data.annotations.keypoints is None:
        raise NotApplicableError(f"{data.name} has no keypoints")

    usable = []
    for index, image in enumerate(data.ids):
        objects = data.annotations.of_image[image]
        if any(_is_wanted(each, kind) for each in objects):
            usable.append(index)
    if not usable:
        raise NotApplicableError(f"{data.name} shows no object to train on")
    return usable


def _is_wanted(each: Mapping[str, Any], kind: Kind) -> bool:
    """Whether a detector is trained on an object."""
    if each["iscrowd"]:
        return False
    return kind != "keypoints" or each.get("num_keypoints", 0) > 0


Example = tuple[Tensor, dict[str, Tensor]]
"""A picture, uint8 ``[3, H, W]``, and its objects."""


def examples(
    data: AnnotatedImages,
    usable: Sequence[int],
    kind: Kind,
    settings: Detector,
    seed: int,
    first: int = 0,
) -> Iterator[list[Example]]:
    """Pictures and targets of the steps from ``first`` on, half of them mirrored; a step's are read during the last."""
    skipped = first * settings.batch_size
    shown = itertools.islice(order(data, usable, settings, seed), skipped, None)
    points: Sequence[int] = ()
    if data.annotations.keypoints:
        points = data.annotations.keypoints.mirrored

    def read(index: int, flip: bool) -> Example:
        target = data.target(index, masks=kind == "masks", keypoints=kind == "keypoints")
        if flip:
            return mirrored(data[index], target, points)
        return data[index], target

    with ThreadPoolExecutor(WORKERS) as readers:
        coming: list[Future[Example]] = []
        for step in range(first, settings.steps + 1):
            ready = coming
            if step < settings.steps:
                draws = torch.rand(settings.batch_size, generator=generator(seed, "detector flip", step))
                coming = [readers.submit(read, next(shown), draw < 0.5) for draw in draws.tolist()]
            if step > first:
                yield [future.result() for future in ready]


def fit(
    model: nn.Module,
    data: AnnotatedImages,
    kind: Kind,
    settings: Detector,
    *,
    seed: int,
    device: torch.device | str = "cpu",
    folder: Path | None = None,
    log: Log = lambda line: None,
) -> list[float]:
    """Train a detector in place, from its checkpoint if there is one, and give the loss of each step.

    Order, mirroring, sides and samples of a step come from (seed, step) alone. ``folder`` is that of the checkpoint and
    the finished detector; ``None`` keeps neither.
    """
    usable = usable_pictures(data, kind)
    model.to(device).train()  # before there is a momentum, which lies where its parameter does
    artefact = None
    if folder is not None:
        artefact = _artefact(folder, model, data, kind, settings, seed)
        if artefact.finished:
            restore(model, artefact)
            stored_losses = list(artefact.read_record()["losses"])
            artefact.remove_checkpoint(may_stay=True)
            return stored_losses

    def steps(first: int) -> Iterator[float]:
        batches = examples(data, usable, kind, settings, seed, first)
        for step, batch in enumerate(batches, first):
            pictures = [picture.to(device).float() / 255 for picture, _ in batch]
            targets = [_on_device(target, device) for _, target in batch]
            with fixed(derive(seed, "detector step", step), device):
                loss = sum(model(pictures, targets).values())
            yield training.descend(loss, learning_rate(settings, step))

    training = Resumable(model, settings, f"detector of {kind}", artefact)
    losses = training.run(steps, settings.steps, log)
    if artefact is not None:
        record = {
            "kind": kind,
            "classes": list(data.classes),
            "losses": losses,
            "settings": settings.model_dump(mode="json"),
        }
        store(model, artefact, record)
    return losses


def _artefact(
    folder: Path, model: nn.Module, data: AnnotatedImages, kind: Kind, settings: Detector, seed: int
) -> Artefact:
    """The folder of a training, whose origin is what decides the training: files of another one are refused."""
    decisive = {
        "kind": kind,
        "data": data.fingerprint,
        "settings": settings.model_dump(mode="json"),
        "seed": seed,
    }
    origin = files.fingerprint(tensors_of(model), decisive)
    return Artefact(folder, FILE, RECORD, "detector", _FIELDS, origin)


def _on_device(target: dict[str, Tensor], device: torch.device | str) -> dict[str, Tensor]:
    return {name: value.to(device) for name, value in target.items()}


def store(model: nn.Module, artefact: Artefact, record: dict[str, Any]) -> None:
    """Write ``detector.safetensors``, with torchvision's names for one encoder, and ``detector.json``."""
    is_alone = len(model.backbone.body.networks) == 1  # type: ignore[union-attr, arg-type]
    tensors = {}
    for name, tensor in tensors_of(model).items():
        if is_alone:
            name = _torchvision_name(name)
        tensors[name] = tensor
    artefact.write_tensors(tensors, {"kind": record["kind"], "classes": record["classes"]})
    artefact.write_record(record)
    artefact.remove_checkpoint()


def _torchvision_name(name: str) -> str:
    return name.replace(_ALONE, "body.")


def restore(model: nn.Module, artefact: Artefact) -> None:
    """Fill a detector of the same layout from a stored one."""
    tensors, _ = artefact.read_tensors()
    with torch.no_grad():
        for name, tensor in tensors_of(model).items():
            stored = tensors.get(name, tensors.get(_torchvision_name(name)))
            if stored is None or stored.shape != tensor.shape:
                path = artefact.folder / artefact.tensors
                raise CorruptFileError(f"{path} is of another detector: {name} is missing or of another shape")
            tensor.copy_(stored)


@torch.no_grad()
def predict(
    model: nn.Module,
    data: AnnotatedImages,
    kind: Kind,
    *,
    device: torch.device | str = "cpu",
    log: Log = lambda line: None,
) -> list[dict[str, Any]]:
    """Detections of all pictures, in COCO's form: ``bbox``, and ``segmentation`` or ``keypoints``."""
    model.to(device).eval()
    categories = [category["id"] for category in data.annotations.categories]
    detections: list[dict[str, Any]] = []
    spoke = time.monotonic()
    for index, image in enumerate(data.ids):
        picture = data[index].float().to(device) / 255
        (output,) = model([picture])
        output = {name: value.cpu() for name, value in output.items()}
        columns = _columns(output, kind)
        for k, label in enumerate(output["labels"].tolist()):
            detection = {"image_id": image, "category_id": categories[label - 1]}
            for name, values in columns.items():
                detection[name] = values[k]
            detections.append(detection)
        if time.monotonic() - spoke > SPEAK_EVERY_S:
            log(f"detector of {kind}: {index + 1}/{len(data)} test pictures")
            spoke = time.monotonic()
    return detections


def _columns(output: Mapping[str, Tensor], kind: Kind) -> dict[str, list[Any]]:
    """Fields of the detections in one picture, from the output of torchvision's detector."""
    boxes = output["boxes"].clone()
    boxes[:, 2:] -= boxes[:, :2]
    columns = {"bbox": boxes.tolist(), "score": output["scores"].tolist()}
    if kind == "masks":
        columns["segmentation"] = encoded(output["masks"][:, 0] > 0.5)
    if kind == "keypoints":
        columns["keypoints"] = output["keypoints"].flatten(1).tolist()
    return columns


def encoded(masks: Tensor) -> list[dict[str, Any]]:
    """Packed run lengths of boolean masks ``[n, H, W]``."""
    if not len(masks):
        return []
    functions = import_extra("faster_coco_eval", "dense").mask
    pixels = masks.permute(1, 2, 0).to(torch.uint8).numpy()
    packed = functions.encode(pixels.copy(order="F"))
    return [{**mask, "counts": mask["counts"].decode()} for mask in packed]


def trained_detector(
    task: Detection, encoders: nn.ModuleList, evaluation: Evaluation
) -> tuple[nn.Module, AnnotatedImages]:
    """A detector on copies of encoders, read from ``evaluation.folder`` or trained there, and its test pictures."""
    kind = cast("Kind", task.name)
    settings = task.detector
    train = evaluation.data.train.take(settings.train_pictures, evaluation.seed)
    test = evaluation.data.test.take(settings.test_pictures)
    usable_pictures(train, kind)  # refused before a model is made
    keypoints = 0
    if train.annotations.keypoints is not None:
        keypoints = len(train.annotations.keypoints.names)
    with fixed(derive(evaluation.seed, "detector")):
        model = build(
            kind,
            encoders,
            evaluation.views,
            evaluation.augmentation,
            settings,
            classes=len(train.classes),
            keypoints=keypoints,
        )
    fit(
        model,
        train,
        kind,
        settings,
        seed=evaluation.seed,
        device=evaluation.device,
        folder=evaluation.folder,
        log=evaluation.log,
    )
    return model, test


_LEFT_OUT = {"bbox": "segmentation", "segm": "bbox"}
"""The field that a detection loses before boxes, or masks, are compared."""


def score(task: Detection, encoders: nn.ModuleList, evaluation: Evaluation) -> dict[str, Measured]:
    """``detection_ap`` and so on by the rule of the data; for VOC's also ``detection_coco_ap``, by COCO's rule."""
    model, test = trained_detector(task, encoders, evaluation)
    detections = predict(model, test, cast("Kind", task.name), device=evaluation.device, log=evaluation.log)
    rule = test.annotations.rule
    draws = task.detector.draws
    results = {}
    for stem, what in task.stems.items():
        compared = _without(detections, _LEFT_OUT.get(what))
        measured = scores.coco(test.annotations, compared, what, draws=draws)
        if task.name == "boxes" and rule in ("voc07", "voc12"):
            results["detection_coco_ap"] = measured[""]
            measured = scores.voc(test.annotations, compared, eleven=rule == "voc07", draws=draws)
        for key, value in measured.items():
            results[f"{stem}_ap{key}"] = value
    return results


def _without(detections: Sequence[dict[str, Any]], field: str | None) -> list[dict[str, Any]]:
    without = []
    for detection in detections:
        without.append({name: value for name, value in detection.items() if name != field})
    return without
