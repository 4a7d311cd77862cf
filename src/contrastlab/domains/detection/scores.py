"""Average precision: COCO's and LVIS's by faster-coco-eval, PASCAL VOC's here; intervals over pictures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
Integers = NDArray[np.int64]
Detections = Sequence[Mapping[str, Any]]
Objects = Sequence[Mapping[str, Any]]
THRESHOLDS = np.linspace(0.5, 0.95, 10)  # overlaps at which a detection counts, of COCO's AP
_PLACES = {"": slice(None), "50": slice(0, 1), "75": slice(5, 6)}
# how many detections of a picture count, by falling score
_LVIS_DETECTIONS = 300
_COCO_DETECTIONS = 100
_COCO_PERSONS = 20


def _check(annotations: Annotations) -> None:
    if not annotations.objects:
        raise NotApplicableError("no object is annotated in the test pictures: there is nothing to find")


def _measured(precisions: Callable[[Tensor], Floats], pictures: int, draws: int) -> dict[str, Measured]:
    """AP over all overlaps, at 0.5 and at 0.75, of ``precisions``: picture numbers to AP ``[overlaps]``, 0 to 1."""

    def percent(numbers: Tensor) -> list[float]:
        by_overlap = precisions(numbers)
        return [100 * float(by_overlap[place].mean()) for place in _PLACES.values()]

    values, half_widths = bootstrap(percent, pictures, draws=draws)
    measured = {}
    for name, value, half_width in zip(_PLACES, values, half_widths, strict=True):
        measured[name] = Measured(value, pictures, half_width)
    return measured


def coco(
    annotations: Annotations,
    detections: Detections,
    what: Compared,
    *,
    draws: int = 200,
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
    evaluation = _matched(scorer, annotations, detections, what)
    # one entry for each class and picture, classes first, pictures by ascending id
    entries = evaluation._evalImgs_cpp
    ids = list(annotations.images)
    order = np.empty(pictures, dtype=np.int64)  # place of each picture among the ascending ids
    order[np.argsort(ids)] = np.arange(pictures)

    def precisions(numbers: Tensor) -> Floats:
        places = order[numbers.numpy()]
        drawn = []
        for first in range(0, len(entries), pictures):
            drawn += [entries[first + place] for place in places]
        evaluation._evalImgs_cpp = drawn
        evaluation.accumulate()
        by_class = np.asarray(evaluation.eval["precision"])[:, :, :, 0, -1]  # overlap, recall, class
        is_shown = (by_class > -1).any((0, 1))
        if not is_shown.any():
            return np.zeros(len(by_class))
        return np.asarray(by_class[:, :, is_shown].mean((1, 2)))

    return _measured(precisions, pictures, draws)


def _matched(scorer: Any, annotations: Annotations, detections: Detections, what: Compared) -> Any:
    """faster-coco-eval's evaluation, its detections matched with the objects of each picture."""
    of_keypoints = what == "keypoints"
    sigmas = None
    if of_keypoints and annotations.keypoints:
        sigmas = np.array(annotations.keypoints.sigmas)
    truth = scorer.COCO(annotations.plain(renumbered=True))
    evaluation = scorer.COCOeval_faster(
        truth,
        truth.loadRes([dict(detection) for detection in detections]),
        what,
        separate_eval=True,
        lvis_style=annotations.rule == "lvis" and not of_keypoints,
        kpt_oks_sigmas=sigmas,
        rle_iou_max_workers=1,
    )
    most = _COCO_DETECTIONS
    if of_keypoints:
        most = _COCO_PERSONS
    if evaluation.lvis_style:
        most = _LVIS_DETECTIONS
    parameters = evaluation.params
    parameters.maxDets = [most]
    parameters.areaRng = [parameters.areaRng[0]]
    parameters.areaRngLbl = ["all"]
    evaluation.evaluate()
    return evaluation


def voc_area(recall: Floats, precision: Floats, *, eleven: bool) -> float:
    """Average precision of one class, from recall and precision after each detection, by falling score.

    With ``eleven`` the mean of the best precision at recalls of at least 0, 0.1, …, 1 (2007), otherwise the area under
    the best precision at each recall or beyond (2010 and after).
    """
    if eleven:
        best = [_best_precision(recall, precision, least) for least in np.linspace(0, 1, 11)]
        return float(np.mean(best))
    edges = np.concatenate([[0.0], recall, [1.0]])
    envelope = np.concatenate([[0.0], precision, [0.0]])
    envelope = np.maximum.accumulate(envelope[::-1])[::-1]
    widths = edges[1:] - edges[:-1]
    return float((widths * envelope[1:]).sum())


def _best_precision(recall: Floats, precision: Floats, least: float) -> float:
    is_reached = recall >= least
    if not is_reached.any():
        return 0.0
    return float(precision[is_reached].max())


def overlaps(boxes: Floats, others: Floats) -> Floats:
    """IoU ``[n, m]`` of boxes ``[n, 4]`` and ``[m, 4]`` of left, top, width, height."""
    boxes = boxes[:, None]
    corners = boxes[..., :2]
    sizes = boxes[..., 2:]
    other_corners = others[:, :2]
    other_sizes = others[:, 2:]
    low = np.maximum(corners, other_corners)
    high = np.minimum(corners + sizes, other_corners + other_sizes)
    intersection = np.clip(high - low, 0, None).prod(2)
    union = sizes.prod(2) + other_sizes.prod(1) - intersection
    return np.asarray(intersection / union)


@dataclass(frozen=True)
class _JudgedClass:
    """The detections of one class, by falling score."""

    counts: Floats  #: ``[pictures]`` objects to find in each picture, without the difficult ones
    pictures: Integers  #: ``[detections]`` places of the pictures
    verdicts: Integers  #: ``[overlaps, detections]``: 1 right, −1 wrong, 0 not counted

    def precisions(self, times: Floats, *, eleven: bool) -> list[float] | None:
        """AP by overlap, where picture i is taken ``times[i]`` times; ``None`` if these show no object."""
        total = float((self.counts * times).sum())
        if not total:
            return None
        weight = times[self.pictures]
        hits = np.cumsum(weight * (self.verdicts > 0), axis=1)
        misses = np.cumsum(weight * (self.verdicts < 0), axis=1)
        shown = np.maximum(hits + misses, 1e-12)
        recalls = hits / total
        precisions = hits / shown
        areas = []
        for recall, precision in zip(recalls, precisions, strict=True):
            areas.append(voc_area(recall, precision, eleven=eleven))
        return areas


def voc(
    annotations: Annotations,
    detections: Detections,
    *,
    eleven: bool,
    draws: int = 200,
) -> dict[str, Measured]:
    """VOC's average precision, percent, as Detectron2 reports it: its mean over COCO's ten overlaps, and at 0.5, 0.75.

    By falling score, a detection takes the object that it overlaps most, and is right if that overlap exceeds the
    threshold and the object was not taken. Difficult objects count neither way. COCO's rule differs: a detection takes
    the best object that is still free, and precision is read at 101 recalls. See :func:`coco` and :func:`voc_area`.
    """
    _check(annotations)
    place = {image: k for k, image in enumerate(annotations.images)}
    judged_classes = []
    for category, objects_of in sorted(_objects_by_class(annotations, place).items()):
        of_class = [detection for detection in detections if detection["category_id"] == category]
        of_class.sort(key=lambda detection: -detection["score"])
        judged_classes.append(_judge_class(of_class, objects_of, place))

    def precisions(numbers: Tensor) -> Floats:
        times = np.bincount(numbers.numpy(), minlength=len(place)).astype(np.float64)
        by_class = []
        for judged in judged_classes:
            areas = judged.precisions(times, eleven=eleven)
            if areas is not None:
                by_class.append(areas)
        if not by_class:
            return np.zeros(len(THRESHOLDS))
        return np.asarray(np.mean(by_class, axis=0))

    return _measured(precisions, len(place), draws)


def _objects_by_class(annotations: Annotations, place: Mapping[int, int]) -> dict[int, dict[int, list[Any]]]:
    """The objects of a class in a picture, by category id and by the picture's place."""
    objects: dict[int, dict[int, list[Any]]] = {}
    for each in annotations.objects:
        of_class = objects.setdefault(each["category_id"], {})
        in_picture = of_class.setdefault(place[each["image_id"]], [])
        in_picture.append(each)
    return objects


def _judge_class(
    detections: Detections,
    objects_of: Mapping[int, Objects],
    place: Mapping[int, int],
) -> _JudgedClass:
    """Judge the detections of one class, which are in falling order of their scores."""
    counts = np.zeros(len(place))
    for picture, objects in objects_of.items():
        counts[picture] = sum(not _is_difficult(each) for each in objects)
    pictures = np.array([place[detection["image_id"]] for detection in detections], dtype=np.int64)
    return _JudgedClass(counts, pictures, _verdicts(detections, pictures, objects_of))


def _verdicts(detections: Detections, pictures: Integers, objects_of: Mapping[int, Objects]) -> Integers:
    """1 right, −1 wrong, 0 not counted, ``[overlaps, detections]``."""
    verdicts = np.full((len(THRESHOLDS), len(detections)), -1)
    is_taken = {}
    for picture, objects in objects_of.items():
        is_taken[picture] = np.zeros((len(THRESHOLDS), len(objects)), bool)
    for k, detection in enumerate(detections):
        picture = int(pictures[k])
        objects = objects_of.get(picture, ())
        if not objects:
            continue
        box = np.array([detection["bbox"]], dtype=np.float64)
        boxes = np.array([each["bbox"] for each in objects], dtype=np.float64)
        shares = overlaps(box, boxes)[0]
        best = int(shares.argmax())
        is_close = shares[best] > THRESHOLDS
        if _is_difficult(objects[best]):
            verdicts[is_close, k] = 0
            continue
        is_free = ~is_taken[picture][:, best]
        verdicts[is_close & is_free, k] = 1
        is_taken[picture][is_close, best] = True
    return verdicts


def _is_difficult(each: Mapping[str, Any]) -> bool:
    return bool(each.get("difficult", 0))
