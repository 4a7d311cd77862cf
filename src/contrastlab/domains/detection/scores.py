"""Average precision: COCO's and LVIS's by faster-coco-eval, PASCAL VOC's here; intervals over pictures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from contrastlab.domains.detection.coco import Annotations
from contrastlab.domains.detection.definitions import Compared
from contrastlab.pictures.representations import bootstrap
from contrastlab.pictures.task import Measured
from contrastlab.support.errors import NotApplicableError, import_extra

Floats = NDArray[np.float64]
THRESHOLDS = np.linspace(0.5, 0.95, 10)  # overlaps at which a detection counts, of COCO's AP
_PLACES = {"": slice(None), "50": slice(0, 1), "75": slice(5, 6)}
_LVIS_DETECTIONS, _COCO_DETECTIONS, _COCO_PERSONS = 300, 100, 20


def _check(annotations: Annotations) -> None:
    if not annotations.objects:
        raise NotApplicableError("no object is annotated in the test pictures: there is nothing to find")


def _measured(precisions: Callable[[Tensor], Floats], pictures: int, draws: int) -> dict[str, Measured]:
    """AP over all overlaps, at 0.5 and at 0.75, of ``precisions``: picture numbers to AP ``[overlaps]``, 0 to 1."""

    def percent(numbers: Tensor) -> list[float]:
        every = precisions(numbers)
        return [100 * float(every[place].mean()) for place in _PLACES.values()]

    each = zip(_PLACES, *bootstrap(percent, pictures, draws=draws), strict=True)
    return {name: Measured(value, pictures, half) for name, value, half in each}


def coco(
    annotations: Annotations, detections: Sequence[Mapping[str, Any]], what: Compared, *, draws: int = 200
) -> dict[str, Measured]:
    """COCO's AP (``""``), AP50 and AP75, percent; for annotations of LVIS by its federated rule.

    LVIS's rule: in a picture, a class was looked for if it is annotated or on the list of absent ones, and detections
    of other classes do not count; where not all objects of a class are annotated, unmatched detections do not count.

    Detections are in COCO's form: ``image_id``, ``category_id``, ``score``, and ``bbox``, ``segmentation`` or
    ``keypoints``. Boxes and masks are compared by IoU, keypoints by object keypoint similarity. Half-widths come from
    ``draws`` samples of the pictures. A class that a sample does not show is left out of that sample's mean.
    """
    scorer = import_extra("faster_coco_eval", "dense")
    pictures = len(annotations.images)
    _check(annotations)
    if not detections:
        return {name: Measured(0.0, pictures, 0.0) for name in _PLACES}
    truth = scorer.COCO(annotations.plain(renumbered=True))
    kind = annotations.keypoints
    evaluation = scorer.COCOeval_faster(
        truth, truth.loadRes([dict(each) for each in detections]), what, separate_eval=True,
        lvis_style=annotations.rule == "lvis" and what != "keypoints",
        kpt_oks_sigmas=np.array(kind.sigmas) if what == "keypoints" and kind else None, rle_iou_max_workers=1,
    )  # fmt: skip
    most = _COCO_PERSONS if what == "keypoints" else _COCO_DETECTIONS
    parameters = evaluation.params
    parameters.maxDets = [_LVIS_DETECTIONS if evaluation.lvis_style else most]
    parameters.areaRng, parameters.areaRngLbl = [parameters.areaRng[0]], ["all"]
    evaluation.evaluate()
    # one entry a class and picture, pictures in ascending id
    entries, order = evaluation._evalImgs_cpp, np.argsort(np.argsort(list(annotations.images)))
    classes = len(entries) // pictures

    def precisions(numbers: Tensor) -> Floats:
        places = order[numbers.numpy()]
        evaluation._evalImgs_cpp = [entries[k * pictures + i] for k in range(classes) for i in places]
        evaluation.accumulate()
        found = np.asarray(evaluation.eval["precision"])[:, :, :, 0, -1]  # overlap, recall, class
        seen = (found > -1).any((0, 1))
        return np.asarray(found[:, :, seen].mean((1, 2))) if seen.any() else np.zeros(len(found))

    return _measured(precisions, pictures, draws)


def voc_area(recall: Floats, precision: Floats, *, eleven: bool) -> float:
    """Average precision of one class, from recall and precision after each detection, by falling score.

    With ``eleven`` the mean of the best precision at recalls of at least 0, 0.1, …, 1 (2007), otherwise the area under
    the best precision at each recall or beyond (2010 and after).
    """
    if eleven:
        best = [precision[recall >= r].max() if (recall >= r).any() else 0.0 for r in np.linspace(0, 1, 11)]
        return float(np.mean(best))
    edges = np.concatenate([[0.0], recall, [1.0]])
    envelope = np.concatenate([[0.0], precision, [0.0]])
    envelope = np.maximum.accumulate(envelope[::-1])[::-1]
    return float(((edges[1:] - edges[:-1]) * envelope[1:]).sum())


def overlaps(boxes: Floats, others: Floats) -> Floats:
    """IoU ``[n, m]`` of boxes ``[n, 4]`` and ``[m, 4]`` of left, top, width, height."""
    boxes = boxes[:, None]
    low = np.maximum(boxes[..., :2], others[:, :2])
    high = np.minimum(boxes[..., :2] + boxes[..., 2:], others[:, :2] + others[:, 2:])
    inner = np.clip(high - low, 0, None).prod(2)
    return np.asarray(inner / (boxes[..., 2:].prod(2) + others[:, 2:].prod(1) - inner))


def voc(
    annotations: Annotations, detections: Sequence[Mapping[str, Any]], *, eleven: bool, draws: int = 200
) -> dict[str, Measured]:
    """VOC's average precision, percent, as Detectron2 reports it: its mean over COCO's ten overlaps, and at 0.5, 0.75.

    By falling score, a detection takes the object that it overlaps most, and is right if that overlap exceeds the
    threshold and the object was not taken. Difficult objects count neither way. COCO's rule differs: a detection takes
    the best object that is still free, and precision is read at 101 recalls. See :func:`coco` and :func:`voc_area`.
    """
    _check(annotations)
    place = {image: k for k, image in enumerate(annotations.images)}
    objects_of: dict[int, dict[int, list[Mapping[str, Any]]]] = {}
    for each in annotations.objects:
        objects_of.setdefault(each["category_id"], {}).setdefault(place[each["image_id"]], []).append(each)
    tables = []
    for category, truth in sorted(objects_of.items()):
        mine = sorted((d for d in detections if d["category_id"] == category), key=lambda d: -d["score"])
        counted = np.zeros(len(place))
        for picture, objects in truth.items():
            counted[picture] = sum(not each.get("difficult", 0) for each in objects)
        pictures = np.array([place[d["image_id"]] for d in mine], dtype=np.int64)
        tables.append((counted, pictures, _judge(mine, pictures, truth)))

    def precisions(numbers: Tensor) -> Floats:
        times = np.bincount(numbers.numpy(), minlength=len(place)).astype(np.float64)
        values = []
        for counted, pictures, verdicts in tables:
            total, weight = float((counted * times).sum()), times[pictures]
            if not total:
                continue
            hits, misses = (np.cumsum(weight * (verdicts * sign > 0), axis=1) for sign in (1, -1))
            shown = np.maximum(hits + misses, 1e-12)
            values.append([voc_area(h / total, h / s, eleven=eleven) for h, s in zip(hits, shown, strict=True)])
        return np.mean(values, axis=0) if values else np.zeros(len(THRESHOLDS))

    return _measured(precisions, len(place), draws)


def _judge(
    detections: Sequence[Mapping[str, Any]], pictures: NDArray[np.int64],
    truth: Mapping[int, Sequence[Mapping[str, Any]]],
) -> NDArray[np.int64]:  # fmt: skip
    """1 right, −1 wrong, 0 not counted, ``[overlaps, detections]``."""
    verdicts = np.full((len(THRESHOLDS), len(detections)), -1)
    taken = {picture: np.zeros((len(THRESHOLDS), len(objects)), bool) for picture, objects in truth.items()}
    for k, each in enumerate(detections):
        objects = truth.get(int(pictures[k]))
        if not objects:
            continue
        boxes = np.array([o["bbox"] for o in objects], dtype=np.float64)
        share = overlaps(np.array([each["bbox"]], dtype=np.float64), boxes)[0]
        best = int(share.argmax())
        close = share[best] > THRESHOLDS
        if objects[best].get("difficult", 0):
            verdicts[close, k] = 0
            continue
        free = ~taken[int(pictures[k])][:, best]
        verdicts[close & free, k] = 1
        taken[int(pictures[k])][close, best] = True
    return verdicts
