"""Annotated pictures: each published form, a user's own, the generated ones, and what is said of damage."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from contrastbook.made import shapes, silhouettes
from contrastlab import data
from contrastlab.domains.detection import coco
from contrastlab.domains.detection import data as annotated
from contrastlab.support.errors import ArgumentError, CorruptFileError, MissingDataError, NotApplicableError
from made_runs import refused


def picture(path: Path, size: tuple[int, int] = (20, 16)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.zeros((size[1], size[0], 3), np.uint8)).save(path)


def raw(**changes) -> dict:
    """Two pictures, three categories with holes in their ids, three objects."""
    made = {
        "images": [{"id": 7, "file_name": "a.png", "width": 20, "height": 16},
                   {"id": 3, "file_name": "b.png", "width": 20, "height": 16}],
        "categories": [{"id": 90, "name": "z"}, {"id": 2, "name": "b"}, {"id": 5, "name": "c"}],
        "annotations": [
            {"id": 1, "image_id": 7, "category_id": 90, "bbox": [2, 3, 5, 4], "area": 20, "iscrowd": 0,
             "segmentation": [[2, 3, 7, 3, 7, 7, 2, 7]]},
            {"id": 2, "image_id": 7, "category_id": 2, "bbox": [0, 0, 20, 16], "area": 300, "iscrowd": 1,
             "segmentation": {"size": [16, 20], "counts": [0, 320]}},
            {"id": 3, "image_id": 3, "category_id": 5, "bbox": [1, 1, 2, 2], "area": 4, "iscrowd": 0,
             "segmentation": {"size": [16, 20], "counts": [17, 2, 14, 2, 285]}},
        ],
    }  # fmt: skip
    return made | changes


def with_object(**changes) -> dict:
    made = raw()
    made["annotations"][0] |= changes
    return made


def own(folder: Path, content: dict) -> Path:
    for part in ("train", "test"):
        for image in content["images"]:
            picture(folder / part / image["file_name"])
        (folder / f"{part}.json").write_text(json.dumps(content))
    return folder


LAYOUTS = {
    "coco": ("annotations/instances_{}2017.json", "{}2017", ("train", "val")),
    "years": ("annotations/instances_{}2017.json", "images/{}2017", ("train", "val")),
    "roboflow": ("{}/_annotations.coco.json", "{}", ("train", "valid")),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_of_coco_itself_and_of_roboflow_are_read(layout: str, tmp_path) -> None:
    annotations, pictures, parts = LAYOUTS[layout]
    for part in parts:
        path = tmp_path / annotations.format(part)
        path.parent.mkdir(exist_ok=True)
        for image in raw()["images"]:
            picture(tmp_path / pictures.format(part) / image["file_name"])
        path.write_text(json.dumps(raw()))
    if layout == "years":
        (tmp_path / "annotations/instances_train2014.json").write_text("{}")
        (tmp_path / "annotations/captions_train2017.json").write_text("{}")
    splits = data.load(f"annotated:{tmp_path}")
    assert splits.train.folder == tmp_path / pictures.format(parts[0])
    assert splits.test.folder == tmp_path / pictures.format(parts[1])
    assert splits.train.annotations.plain() == splits.test.annotations.plain()
    assert splits.test[1].shape[0] == 3


def test_coco_s_form_is_read_with_holes_in_the_ids_and_written_as_it_was(tmp_path) -> None:
    part = data.load(f"annotated:{own(tmp_path, raw())}").train
    assert part.classes == ("b", "c", "z")
    first, second = (part.target(k, masks=True) for k in range(2))
    assert first["labels"].tolist() == [3]  # the crowd is not trained on
    assert first["boxes"].tolist() == [[2, 3, 7, 7]]
    assert second["labels"].tolist() == [2]
    for target, rows, columns in ((first, slice(3, 7), slice(2, 7)), (second, slice(1, 3), slice(1, 3))):
        expected = torch.zeros(16, 20, dtype=torch.uint8)
        expected[rows, columns] = 1
        assert torch.equal(target["masks"][0], expected)
    assert part[0].shape == (3, 16, 20)
    once = coco.parse(raw(), "made")
    (tmp_path / "a.json").write_text(json.dumps(once.plain()))
    again = coco.read_coco(tmp_path / "a.json")
    assert (again.plain(), again.fingerprint) == (once.plain(), once.fingerprint)
    assert coco.parse(with_object(bbox=[2, 3, 5, 5]), "made").fingerprint != once.fingerprint


def voc(folder: Path, difficult: int = 0, xmin: int = 1) -> Path:
    body = "<annotation><size><width>20</width><height>16</height></size>{}</annotation>"
    one = "<object><name>{}</name><difficult>{}</difficult><bndbox><xmin>{}</xmin><ymin>3</ymin><xmax>{}</xmax>"
    one += "<ymax>6</ymax></bndbox></object>"
    (folder / "Annotations").mkdir(parents=True)
    (folder / "ImageSets" / "Main").mkdir(parents=True)
    objects = (one.format("dog", 0, xmin, 20) + one.format("cat", difficult, 5, 40), one.format("cat", 0, 2, 4))
    for name, text in zip("ab", objects, strict=True):
        (folder / "Annotations" / f"{name}.xml").write_text(body.format(text))
        picture(folder / "JPEGImages" / f"{name}.jpg")
    for part, stem in (("train", "a"), ("val", "b")):
        (folder / "ImageSets" / "Main" / f"{part}.txt").write_text(f"{stem}\n")
    return folder


def test_voc_s_and_lvis_s_forms_are_told_apart(tmp_path) -> None:
    splits = data.load(f"annotated:{voc(tmp_path, difficult=1)}")
    assert splits.train.classes == splits.test.classes == ("cat", "dog")
    assert splits.train.target(0)["boxes"].tolist() == [[0, 2, 20, 6], [4, 2, 20, 6]]  # 40 is cut at the border
    assert splits.train.target(0)["labels"].tolist() == [2, 1]
    assert [each["difficult"] for each in splits.train.annotations.objects] == [0, 1]
    assert splits.test.target(0)["boxes"].tolist() == [[1, 2, 4, 6]]
    assert splits.train.annotations.rule == "voc12"
    made = raw()
    del made["images"][0]["file_name"]
    made["images"][0] |= {"coco_url": "http://images.org/val2017/000000000007.jpg", "neg_category_ids": [5]}
    made["images"][1] |= {"file_name": "COCO_val2014_000000000003.jpg"}
    found = coco.parse(made, "lvis")
    assert found.rule == "lvis"
    assert [image["file_name"] for image in found.images.values()] == ["val2017/000000000007.jpg", "000000000003.jpg"]


def test_what_is_not_there_or_not_annotated_is_refused(tmp_path) -> None:
    names = ["coco_instances", "coco_keypoints", "voc07", "lvis", "bccd", "bccd_val", "coco200_things", "lsp"]
    for name in [*names, "coco200_persons"]:
        with pytest.raises(MissingDataError, match=f"{tmp_path}.*CONTRASTLAB_DATA"):
            data.load(name, tmp_path)
    made = raw()
    for each in made["annotations"]:
        del each["segmentation"]
    kind, shown = annotated.AnnotatedImages, (torch.zeros(3, 16, 20),)
    part = kind("made", coco.parse(made, "made"), None, 2 * shown)
    refused(
        (lambda: part.target(0, masks=True), NotApplicableError, "made has no masks"),
        (lambda: part.target(0, keypoints=True), NotApplicableError, "made has no keypoints"),
        (lambda: kind("made", part.annotations, None, shown), ArgumentError, "pictures=1: expected 2"),
    )


def test_a_picture_of_another_size_is_named_with_its_file(tmp_path) -> None:
    folder = own(tmp_path, raw())
    picture(folder / "test" / "b.png", (21, 16))
    with pytest.raises(CorruptFileError, match="b.png has 21x16 pixels; its annotations say 20x16"):
        _ = data.load(f"annotated:{folder}").test[1]


def test_boxes_without_area_are_left_out_of_published_sets_and_keypoints_are_counted() -> None:
    found = coco.parse(with_object(bbox=[2, 3, 0, 4]), "made", strict=False)
    assert [each["id"] for each in found.objects] == [2, 3]
    assert found.left_out == 1
    made = with_object(keypoints=[1, 2, 2, 3, 4, 0])
    made["categories"][0]["keypoints"] = ["left_a", "right_a"]
    found = coco.parse(made, "made")
    assert found.keypoints is not None
    assert (found.keypoints.mirrored, found.objects[0]["num_keypoints"]) == ((1, 0), 1)


def test_masks_boxes_areas_and_owners_of_pixels_equal_loops() -> None:
    pictures, known = silhouettes.make(silhouettes.SetSpec((3, 1)))["train"]
    assert len(pictures) == 3
    side = range(silhouettes.SIDE)
    for number, image in enumerate(known.images):
        scene = silhouettes.render(number)
        assert int((scene.owner == len(scene.kinds) - 1).sum()) > 0  # the last that is painted is on top
        for k, each in enumerate(known.of_image[image]):
            pixels = [(row, column) for row in side for column in side if int(scene.owner[row, column]) == k]
            rows, columns = zip(*pixels, strict=True)
            box = [min(columns), min(rows), max(columns) + 1 - min(columns), max(rows) + 1 - min(rows)]
            assert each["bbox"] == box
            assert each["area"] == len(pixels)
            mask = annotated.draw(each["segmentation"], silhouettes.SIDE, silhouettes.SIDE)
            assert {(r, c) for r, c in mask.nonzero().tolist()} == set(pixels)
            assert known.classes[known.number[each["category_id"]]] == scene.kinds[k]
    for index in range(3):
        scene = silhouettes.render(index)
        for row in range(0, silhouettes.SIDE, 3):
            for column in range(1, silhouettes.SIDE, 3):
                owner = -1
                for k, (kind, (cx, cy, radius, turn)) in enumerate(zip(scene.kinds, scene.places, strict=True)):
                    dx, dy = column + 0.5 - cx, row + 0.5 - cy
                    u = (math.cos(turn) * dx + math.sin(turn) * dy) / radius
                    v = (math.cos(turn) * dy - math.sin(turn) * dx) / radius
                    one = (torch.tensor([value], dtype=torch.float64) for value in (u, v))
                    if float(shapes.silhouette(kind, *one)) < 0:
                        owner = k
                assert int(scene.owner[row, column]) == owner, (index, row, column)


def test_corners_of_an_ell_lie_at_the_edge_of_its_mask_or_are_covered() -> None:
    seen = 0
    for index in range(12):
        scene = silhouettes.render(index, kinds=("disc", "ell"))
        assert scene.corners[0] is None
        corners = scene.corners[1]
        pixels = (scene.owner == 1).nonzero().flip(1).double() + 0.5
        for x, y, v in corners.tolist():
            if v == 2:
                seen += 1
                nearest = (pixels - torch.tensor([x, y])).norm(dim=1).min()
                assert nearest < 1.6  # pixels
        # the two tips are as far apart as arms of length 2 at a right angle have it: 2·sqrt(2)
        corner, left, right = corners[0, :2], corners[2, :2], corners[3, :2]
        assert (left - corner).norm() == pytest.approx(float((right - corner).norm()), rel=1e-9)
        assert ((left - corner) @ (right - corner)).abs() < 1e-6
    assert seen > 40
    scenes = (silhouettes.render(index, kinds=("ell", "disc", "disc")) for index in range(60))
    states = [v for scene in scenes for v in scene.corners[0][:, 2].tolist()]
    assert states.count(1.0) > 5
    assert states.count(2.0) > states.count(1.0)


def test_generated_sets_are_the_same_every_time_and_can_be_cut() -> None:
    spec = silhouettes.SetSpec((4, 4))
    once, again = silhouettes.make(spec), silhouettes.make(spec)
    assert all(torch.equal(a, b) for a, b in zip(once["train"][0], again["train"][0], strict=True))
    assert once["train"][1].fingerprint == again["train"][1].fingerprint
    assert not any(torch.equal(a, b) for a, b in zip(once["train"][0], once["test"][0], strict=True))
    part = data.load("silhouettes", n_train=5).train
    chosen = part.subset([3, 1])
    assert torch.equal(chosen[0], part[3])
    assert torch.equal(chosen.target(1)["boxes"], part.target(1)["boxes"])
    assert len(data.load("silhouettes", n_test=4).test) == 4


def test_the_lvis_set_has_zipf_s_classes_and_federated_lists() -> None:
    parts = silhouettes.make(silhouettes.SETS["silhouettes_lvis"])
    known = parts["train"][1]
    assert len(known.classes) == 40
    assert known.rule == "lvis"
    numbers = [known.number[each["category_id"]] for each in known.objects]
    assert sum(number < 4 for number in numbers) > sum(number >= 20 for number in numbers)
    assert {c["frequency"] for c in known.categories} == {"r", "c"}
    assert known.categories == parts["test"][1].categories
    partly = 0
    for image, about in known.images.items():
        present = {each["category_id"] for each in known.of_image[image]}
        assert not present & set(about["neg_category_ids"])
        assert set(about["not_exhaustive_category_ids"]) <= present
        partly += bool(about["not_exhaustive_category_ids"])
    assert partly > 10


def test_keypoint_pictures_show_one_annotated_kind_and_are_written_as_a_user_s_own(tmp_path) -> None:
    part = data.load("silhouettes_keypoints").train
    assert part.classes == ("ell",)
    assert all(len(part.target(k, keypoints=True)["labels"]) for k in range(len(part)))
    assert part.target(0, keypoints=True)["keypoints"].shape[1:] == (6, 3)
    silhouettes.write(tmp_path, "silhouettes_keypoints")
    read, made = data.load(f"annotated:{tmp_path}"), data.load("silhouettes_keypoints")
    assert read.train.annotations.plain() == made.train.annotations.plain()
    assert all(torch.equal(read.train[k], made.train[k]) for k in range(3))
    assert len(read.test) == len(made.test)
