"""Detections that are looked at: those of the table's own detectors, drawn where their score is high enough."""

import json
import math

import numpy as np
import pytest
import torch

from contrastbook.figures import pictures, sliding
from contrastbook.studies import Study, found_objects, scene_pictures
from contrastlab import data, papers
from contrastlab.domains.detection import task as training
from contrastlab.domains.scenes.task import confusion
from contrastlab.domains.scenes.views import labels
from contrastlab.support.errors import ArgumentError, CorruptFileError, NotApplicableError
from contrastlab.tasks import pixel_accuracy

ROWS = ("ours/random",)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> tuple[Study, object]:
    folder = tmp_path_factory.mktemp("runs")
    study = found_objects.study("silhouettes_mask", "shapes", rows=ROWS, out_dir=folder, read_also=())
    return study, folder


def test_rows_are_the_best_detections_of_each_picture(made) -> None:
    study, folder = made
    assert study.rows
    assert {row["picture"] for row in study.rows} <= {0, 1, 2}
    classes = data.load("silhouettes").test.classes
    for picture in range(3):
        scores = [row["score"] for row in study.rows if row["picture"] == picture]
        assert scores == sorted(scores, reverse=True)[:12]
    assert {row["label"] for row in study.rows} <= set(classes)
    assert all(json.loads(row["found"]).keys() == {"bbox", "segmentation"} for row in study.rows)
    # the detector is the table's, kept beside the encoder
    assert len(list(folder.glob(f"encoders/*/masks-*/{training.FILE}"))) == 1
    assert found_objects.study("silhouettes_mask", "shapes", rows=ROWS, out_dir=folder, read_also=()) == study


def test_what_is_stored_comes_with_its_pictures(made, tmp_path, monkeypatch) -> None:
    _, folder = made
    monkeypatch.setattr(found_objects, "ROWS", ROWS)
    wanted = [("silhouettes_mask", "shapes", "smoke"), ("silhouettes_mask", "shapes", "laptop")]
    ((study, test),) = found_objects.at_hand(wanted, [folder])
    assert (study.profile, test.name) == ("smoke", "silhouettes/test")
    assert found_objects.at_hand(wanted, [tmp_path]) == []


def test_a_column_of_something_else_and_classes_of_another_size_are_refused(tmp_path) -> None:
    plan = found_objects.papers.plan("ring", 4)
    column = plan.columns["silhouettes_mask"].model_copy(update={"metric": "linear", "on": ""})
    other = plan.model_copy(update={"columns": {"x": column}})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(found_objects.papers, "plan", lambda *_: other)
        with pytest.raises(NotApplicableError, match="x is a column of linear, which finds no objects"):
            found_objects.study("x", "shapes", out_dir=tmp_path)
    classes = torch.randint(0, 40, (3, 5, 7), generator=torch.Generator().manual_seed(0))
    text = scene_pictures.pack(classes)
    assert torch.equal(scene_pictures.unpack(text, (3, 5, 7)), classes)
    with pytest.raises(CorruptFileError, match=r"\(3, 5, 8\)"):
        scene_pictures.unpack(text, (3, 5, 8))


def test_a_detection_is_drawn_from_its_score_on(made) -> None:
    study, _ = made
    test = data.load("silhouettes").test
    scores = [row["score"] for row in study.rows if row["picture"] == 0]
    bare = [row | {"found": json.dumps({"bbox": json.loads(row["found"])["bbox"]})} for row in study.rows]
    for threshold in (0.0, scores[0], min(scores[0] + 1e-6, 1.0)):
        figure = pictures.objects(study.model_copy(update={"rows": bare}), test, threshold=threshold, pictures=1)
        assert len(figure.data) == len(figure.layout.images) == 2  # a picture is no trace, so no frame repeats it
        assert np.isnan(figure.data[1].x).sum() == sum(score >= threshold for score in scores)
        assert np.isnan(figure.data[0].x).sum() >= len(test.annotations.of_image[test.ids[0]])
    pixels, found = pictures.detections(study, test, 0, 0.0)
    assert np.array_equal(pixels, test[0].permute(1, 2, 0).numpy())
    mask = np.pad(test.target(0, masks=True)["masks"].bool().numpy(), ((0, 0), (1, 1), (1, 1)))
    for x, y in np.transpose(found["truth"])[~np.isnan(found["truth"][0])]:  # between a mask's pixel and one beside it
        assert {bool(m[to(y) + 1, to(x) + 1]) for m in mask for to in (math.floor, math.ceil)} == {True, False}
    with pytest.raises(ArgumentError, match="threshold"):
        pictures.objects(study, test, threshold=2)
    empty = pictures.objects(study.model_copy(update={"rows": ()}), test, pictures=1)
    assert [each.text for each in empty.layout.annotations] == ["truth", *ROWS]
    assert not len(empty.data[1].x)
    assert len(sliding(pictures.objects, "threshold", [0.1, 0.5], study=study, test=test).frames) == 2


def test_pictures_are_those_of_the_tables_rows_and_are_made_once(tmp_path) -> None:
    made = scene_pictures.study("rooms", "smoke", out_dir=tmp_path, read_also=())
    assert [row["row"] for row in made.rows] == list(scene_pictures.ROWS)
    assert set(scene_pictures.ROWS.values()) < set(papers.plan("cmc", 3).rows)
    test = data.load("rooms").test
    whole = test.items[:4].float()
    whole[:, :3] /= 255
    seen = scene_pictures.predictions(made, (4, 64, 96))
    for row, predicted in zip(made.rows, seen.values(), strict=True):
        share = pixel_accuracy(confusion(predicted, labels(whole), 5).sum(0))
        assert share == pytest.approx(row["pixels right"])
    assert not torch.equal(seen["random"], seen["supervised"])
    assert scene_pictures.study("rooms", "smoke", out_dir=tmp_path, read_also=()) == made
    figure = pictures.segmentations(whole, seen, test.pixel_classes)
    assert len(figure.axes) == 4 * 5
    assert figure.get_label().count("right in") == 3
    shown = pictures.channels(whole, test.pixel_classes)
    assert [axis.get_title() for axis in shown.axes[:6]] == ["picture", "L", "ab", "depth", "normal", "labels"]
    street = pictures.channels(whole[:1, :4], test.pixel_classes)
    assert [axis.get_title() for axis in street.axes] == ["picture", "L", "ab", "labels"]
