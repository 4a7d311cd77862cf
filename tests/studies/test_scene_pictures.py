"""Pictures of what segmenters see: packed without loss, those of the table's cells, stored once."""

from __future__ import annotations

import pytest
import torch

from contrastbook.figures import pictures
from contrastbook.studies import scene_pictures
from contrastlab import data, papers
from contrastlab.errors import CorruptFileError
from contrastlab.tasks import pixel_accuracy
from contrastlab.tasks.segmentation import confusion
from contrastlab.views.channels import labels


def test_classes_are_packed_without_loss() -> None:
    classes = torch.randint(0, 40, (3, 5, 7), generator=torch.Generator().manual_seed(0))
    text = scene_pictures.pack(classes)
    assert torch.equal(scene_pictures.unpack(text, (3, 5, 7)), classes)
    with pytest.raises(CorruptFileError, match=r"\(3, 5, 8\)"):
        scene_pictures.unpack(text, (3, 5, 8))


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
    again = scene_pictures.study("rooms", "smoke", out_dir=tmp_path, read_also=())
    assert again == made
    figure = pictures.segmentations(whole, seen, test.pixel_classes)
    assert len(figure.axes) == 4 * 5
    assert figure.get_label().count("right in") == 3
    shown = pictures.channels(whole, test.pixel_classes)
    assert [axis.get_title() for axis in shown.axes[:6]] == ["picture", "L", "ab", "depth", "normal", "labels"]
    street = pictures.channels(whole[:1, :4], test.pixel_classes)
    assert [axis.get_title() for axis in street.axes] == ["picture", "L", "ab", "labels"]
