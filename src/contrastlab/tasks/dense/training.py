"""A detector is trained and asked: counted randomness, so that a stopped training resumes to the same bits on a CPU."""

from __future__ import annotations

import itertools
import json
import math
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from contrastlab import checkpoint, files
from contrastlab.data.annotated import AnnotatedImages
from contrastlab.data.loading import WORKERS
from contrastlab.errors import CorruptFileError, MissingDataError, NonFiniteLossError, NotApplicableError, import_extra
from contrastlab.seeds import derive, fixed, generator
from contrastlab.settings import Detector
from contrastlab.tasks.base import Log
from contrastlab.tasks.dense.detectors import Kind

FILE, RECORD = "detector.safetensors", "detector.json"
_SAVE_EVERY, _SPEAK_EVERY = 60.0, 10.0  # seconds
_ALONE = "body.networks.0."


def learning_rate(settings: Detector, step: int) -> float:
    """Of a step, from 0: a linear warm-up, and drops at the milestones."""
    share = 1.0
    if step < settings.warmup_steps:
        done = step / settings.warmup_steps
        share = settings.warmup_from * (1 - done) + done
    return settings.lr * share * settings.gamma ** sum(step >= milestone for milestone in settings.milestones)


def repeats(data: AnnotatedImages, usable: Sequence[int], threshold: float) -> Tensor:
    """How often each picture is shown in an epoch, ``[n]``: LVIS's repeat factors (Gupta et al. 2019, section 5).

    A class in a share ``f`` of the pictures asks for ``max(1, sqrt(threshold / f))``; a picture is shown as often as
    the class that asks most.
    """
    of_image = [
        {each["category_id"] for each in data.annotations.of_image[data.ids[index]] if not each["iscrowd"]}
        for index in usable
    ]
    count: dict[int, int] = {}
    for classes in of_image:
        for category in classes:
            count[category] = count.get(category, 0) + 1
    asked = {category: max(1.0, math.sqrt(threshold * len(usable) / n)) for category, n in count.items()}
    return torch.tensor([max((asked[c] for c in classes), default=1.0) for classes in of_image], dtype=torch.float64)


def order(data: AnnotatedImages, usable: Sequence[int], settings: Detector, seed: int) -> Iterator[int]:
    """Pictures without end, epoch after epoch, each epoch in an order of its own."""
    shown = repeats(data, usable, settings.repeat_threshold)
    numbers = torch.tensor(list(usable))
    epoch = 0
    while True:
        rng = generator(seed, "detector order", epoch)
        times = shown.floor() + (torch.rand(len(shown), generator=rng, dtype=torch.float64) < shown - shown.floor())
        every = numbers.repeat_interleave(times.long())
        yield from every[torch.randperm(len(every), generator=rng)].tolist()
        epoch += 1


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
    """Numbers of the pictures that show what is looked for: Detectron2 trains on no others.

    Raises:
        NotApplicableError: there are none, or masks or keypoints are not annotated.
    """
    if kind == "masks" and not data.annotations.masks:
        raise NotApplicableError(f"{data.name} has no masks")
    if kind == "keypoints" and data.annotations.keypoints is None:
        raise NotApplicableError(f"{data.name} has no keypoints")

    def shows(image: int) -> bool:
        found = (each for each in data.annotations.of_image[image] if not each["iscrowd"])
        return any(kind != "keypoints" or each.get("num_keypoints", 0) > 0 for each in found)

    chosen = [index for index, image in enumerate(data.ids) if shows(image)]
    if not chosen:
        raise NotApplicableError(f"{data.name} shows no object to train on")
    return chosen


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
    """Train a detector, from its checkpoint if there is one.

    Args:
        model: of :func:`contrastlab.tasks.dense.detectors.build`, changed in place.
        data: annotated pictures.
        kind: what is looked for.
        settings: of the schedule.
        seed: of order, mirroring, sides and samples; each step's come from (seed, step) alone.
        device: to compute on.
        folder: of checkpoint and finished detector; ``None`` keeps neither.
        log: takes lines of progress.

    Returns:
        The loss of each step, in nats and their like.

    Raises:
        NonFiniteLossError: a loss became NaN or infinite; nothing more is stored.
        CorruptFileError: a file of the folder is damaged, or of another training.
    """
    usable = usable_pictures(data, kind)
    model.to(device).train()  # before there is a momentum, which lies where its parameter does
    learning = [p for p in model.parameters() if p.requires_grad]
    optimiser = torch.optim.SGD(
        learning, lr=settings.lr, momentum=settings.momentum, weight_decay=settings.weight_decay
    )
    losses: list[float] = []
    origin = "" if folder is None else _origin(model, data, kind, settings, seed)
    if folder is not None and (folder / FILE).exists():
        restore(model, folder / FILE, origin)
        known = record(folder)
        checkpoint.check_origin(known, origin, folder / RECORD)
        files.remove(folder / checkpoint.FILE)  # of a process that was killed after its last file
        return list(known["losses"])
    if folder is not None and (folder / checkpoint.FILE).exists():
        losses = _resume(model, optimiser, folder / checkpoint.FILE, origin)
        log(f"detector of {kind}: resumed at step {len(losses)}")
    began = saved = spoke = time.monotonic()
    first = len(losses)
    for step, read in enumerate(examples(data, usable, kind, settings, seed, first), first):
        pictures = [picture.to(device).float() / 255 for picture, _ in read]
        targets = [{name: value.to(device) for name, value in target.items()} for _, target in read]
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(settings, step)
        with fixed(derive(seed, "detector step", step), device):
            loss = sum(model(pictures, targets).values())
        if not math.isfinite(value := float(loss.detach())):
            raise NonFiniteLossError(f"detector of {kind}: the loss is {value} at step {step + 1}")
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(value)
        now = time.monotonic()
        if now - spoke > _SPEAK_EVERY:
            left = (now - began) / (step + 1 - first) * (settings.steps - step - 1)
            log(f"detector of {kind}: step {step + 1}/{settings.steps} loss {value:.3f}"
                f" eta {int(left // 60)}:{int(left % 60):02d}")  # fmt: skip
            spoke = now
        if folder is not None and now - saved > _SAVE_EVERY and step + 1 < settings.steps:
            state = {"model": _tensors(model), "optimiser": optimiser.state_dict(), "losses": losses}
            checkpoint.save(state, folder / checkpoint.FILE, origin)
            saved = time.monotonic()
    if folder is not None:
        about = {"kind": kind, "classes": data.classes, "losses": losses, "settings": settings, "origin": origin}
        store(model, folder, about)
    return losses


def _origin(model: nn.Module, data: AnnotatedImages, kind: Kind, settings: Detector, seed: int) -> str:
    """What decides a training: no file of another one is taken for its own."""
    about = {"kind": kind, "data": data.fingerprint, "settings": settings.model_dump(mode="json"), "seed": seed}
    return files.fingerprint(_tensors(model), about)


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    """Every tensor once, by name."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def _resume(model: nn.Module, optimiser: torch.optim.Optimizer, path: Path, origin: str) -> list[float]:
    state = checkpoint.load(path, origin=origin)
    with torch.no_grad():
        for name, tensor in _tensors(model).items():
            tensor.copy_(state["model"][name])
    checkpoint.fill_optimiser(optimiser, state["optimiser"])
    return list(state["losses"])


def store(model: nn.Module, folder: Path, about: dict[str, Any]) -> Path:
    """Write a detector: ``detector.safetensors``, with torchvision's names for one encoder, and ``detector.json``."""
    alone = len(model.backbone.body.networks) == 1  # type: ignore[union-attr, arg-type]
    tensors = {name.replace(_ALONE, "body.") if alone else name: t for name, t in _tensors(model).items()}
    settings = about["settings"].model_dump(mode="json")
    stored = files.with_checksum({**about, "settings": settings, "schema": 1})
    files.write_whole(folder / RECORD, json.dumps(stored, indent=1, allow_nan=False) + "\n")
    values = {"kind": about["kind"], "classes": list(about["classes"]), "origin": about["origin"]}
    path = files.write_tensors(folder / FILE, tensors, values)
    files.remove(folder / checkpoint.FILE)
    return path


def record(folder: Path) -> dict[str, Any]:
    """What ``detector.json`` of a folder says.

    Raises:
        MissingDataError: no detector is there.
        CorruptFileError: the file is damaged.
    """
    path = folder / RECORD
    if not path.exists():
        raise MissingDataError(f"no detector at {folder}: has its training been finished?")
    try:
        known = files.verified(json.loads(path.read_text(encoding="utf-8")))
        if not {"kind", "classes", "losses"} <= known.keys():
            raise ValueError("fields are missing")
    except files.DAMAGED as error:
        raise CorruptFileError(f"{path} is no record of a detector ({error}); delete {folder}") from error
    return known


def restore(model: nn.Module, path: Path, origin: str) -> None:
    """Fill a detector of the same layout from ``detector.safetensors``.

    Raises:
        CorruptFileError: the file is damaged, or of a training that began from something else.
    """
    tensors, values = files.read_tensors(path)
    checkpoint.check_origin(values, origin, path)
    with torch.no_grad():
        for name, tensor in _tensors(model).items():
            stored = tensors.get(name, tensors.get(name.replace(_ALONE, "body.")))
            if stored is None or stored.shape != tensor.shape:
                raise CorruptFileError(f"{path} is of another detector: {name} is missing or of another shape")
            tensor.copy_(stored)


@torch.no_grad()
def predict(
    model: nn.Module, data: AnnotatedImages, kind: Kind, *, device: torch.device | str = "cpu",
    log: Log = lambda line: None,
) -> list[dict[str, Any]]:  # fmt: skip
    """Detections of all pictures, in COCO's form: ``bbox``, and ``segmentation`` or ``keypoints``.

    Args:
        model: a trained detector.
        data: annotated pictures; only their pixels are seen.
        kind: what is looked for.
        device: to compute on.
        log: takes lines of progress.
    """
    model.to(device).eval()
    ids = [category["id"] for category in data.annotations.categories]
    out: list[dict[str, Any]] = []
    spoke = time.monotonic()
    for index, image in enumerate(data.ids):
        (found,) = model([data[index].float().to(device) / 255])
        found = {name: value.cpu() for name, value in found.items()}
        boxes = found["boxes"].clone()
        boxes[:, 2:] -= boxes[:, :2]
        masks = encoded(found["masks"][:, 0] > 0.5) if kind == "masks" else []
        for k, (box, label, score) in enumerate(
            zip(boxes.tolist(), found["labels"].tolist(), found["scores"].tolist(), strict=True)
        ):
            each = {"image_id": image, "category_id": ids[label - 1], "bbox": box, "score": score}
            if kind == "masks":
                each["segmentation"] = masks[k]
            elif kind == "keypoints":
                each["keypoints"] = found["keypoints"][k].flatten().tolist()
            out.append(each)
        if time.monotonic() - spoke > _SPEAK_EVERY:
            log(f"detector of {kind}: {index + 1}/{len(data)} test pictures")
            spoke = time.monotonic()
    return out


def encoded(masks: Tensor) -> list[dict[str, Any]]:
    """Packed run lengths of boolean masks ``[n, H, W]``."""
    if not len(masks):
        return []
    functions = import_extra("faster_coco_eval", "dense").mask
    packed = functions.encode(masks.permute(1, 2, 0).to(torch.uint8).numpy().copy(order="F"))
    return [{**each, "counts": _text(each["counts"])} for each in packed]


def _text(counts: Any) -> str:
    return counts.decode() if isinstance(counts, bytes) else str(counts)
