"""Detectors on our encoders: the same as torchvision's, frozen, resumable; average precision against hand and loop."""

import copy
import sys
from collections import OrderedDict
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from torch import nn
from torchvision.models import resnet18
from torchvision.models.detection import FasterRCNN, MaskRCNN
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.backbone_utils import BackboneWithFPN

from contrastlab import data, encoders, methods, papers, tables, tasks
from contrastlab.data import Splits
from contrastlab.domains.detection import coco, scores
from contrastlab.domains.detection import data as annotated
from contrastlab.domains.detection import network as detectors
from contrastlab.domains.detection import task as training
from contrastlab.domains.detection.data import AnnotatedImages
from contrastlab.pictures import fitting
from contrastlab.pictures.augmentations import augmentation
from contrastlab.settings import Detector, Settings
from contrastlab.support import errors, files
from contrastlab.support.errors import NotApplicableError
from contrastlab.tables import Run
from contrastlab.train import checkpoint
from contrastlab.train.checkpoint import Artefact
from contrastlab.views import Augmented, Split
from made_runs import LOCAL, equal, generator, quiet, refused, unchanged

VIEW = augmentation("instdisc", 32)
SMALL = Detector(
    channels=16, box_features=32, mask_layers=(16,), keypoint_layers=(16,), shorter=(48, 64), test_shorter=64,
    longest=128, anchors=(8, 16, 32, 64, 128), before_nms=(100, 50), proposals=(50, 20), region_sample=16, steps=4,
    batch_size=2, lr=0.01, milestones=(3,), warmup_steps=2, draws=20, test_pictures=4, anchor_sample=32,
)  # fmt: skip


def norms(network: nn.Module) -> list[nn.BatchNorm2d]:
    return [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]


def networks(part: Augmented | Split = Augmented(1), seed: int = 0, **options) -> nn.ModuleList:  # noqa: B008
    """Half-trained encoders: their batch-norms have seen something."""
    torch.manual_seed(seed)
    channels = options.pop("channels", 3)
    made = encoders.build_for(part, channels, **{"arch": "resnet18", "width": 0.125, "dim": 8, **options})
    for module in norms(made):
        module.running_mean.normal_()
        module.running_var.uniform_(0.5, 2)
        nn.init.uniform_(module.weight, 0.5, 1.5)
        nn.init.normal_(module.bias)
    return made


@pytest.fixture(scope="module")
def scenes() -> Splits:
    return data.load("silhouettes", n_train=12, n_test=6)


@pytest.fixture(scope="module")
def corners() -> Splits:
    return data.load("silhouettes_keypoints", n_train=12, n_test=6)


def evaluation(data_: Splits, part: Augmented | Split = Augmented(1), **options) -> tasks.Evaluation:  # noqa: B008
    return tasks.Evaluation(part, VIEW, data_, **options)


@pytest.mark.parametrize("kind", ["boxes", pytest.param("masks", marks=pytest.mark.nightly)])
def test_a_detector_on_our_resnet_is_torchvision_s_with_the_same_weights(kind, tmp_path) -> None:
    nets = networks(width=1.0)
    made = detectors.build(kind, nets, Augmented(1), VIEW, Detector(box_features=1024), classes=3)
    made.transform.min_size, made.transform.max_size = (64,), 128
    training.store(made, Artefact(tmp_path, training.FILE, training.RECORD), {"kind": kind, "classes": ["a", "b", "c"]})
    body = resnet18(norm_layer=detectors.FrozenBatchNorm2d)
    pyramid = BackboneWithFPN(body, {f"layer{k}": str(k - 1) for k in range(1, 5)}, [64, 128, 256, 512], 256)
    anchors = AnchorGenerator(tuple((a,) for a in Detector().anchors), ((0.5, 1.0, 2.0),) * 5)
    theirs = {"boxes": FasterRCNN, "masks": MaskRCNN}[kind](
        pyramid, 4, min_size=64, max_size=128, rpn_anchor_generator=anchors, image_mean=VIEW.mean, image_std=VIEW.std,
        rpn_post_nms_top_n_train=1000,
    )  # fmt: skip
    theirs.load_state_dict(files.read_tensors(tmp_path / training.FILE)[0])  # none is missing, and none is left over
    # in single precision a box at a whole pixel can be rounded either way, and its mask is pasted a pixel apart
    made.double().eval(), theirs.double().eval()
    made.roi_heads.score_thresh = theirs.roi_heads.score_thresh = 0.0
    picture = torch.rand(3, 60, 80, generator=generator(3), dtype=torch.double)
    with torch.no_grad():
        (own,), (their,) = made([picture]), theirs([picture])
    assert len(own["boxes"]) > 10
    for name in their:
        assert torch.allclose(own[name], their[name], rtol=1e-8, atol=1e-8), name


def test_batch_norm_becomes_constants_that_are_the_checkpoint_s() -> None:
    network = networks()[0].backbone
    frozen = detectors.freeze_batch_norm(detectors.residual_network(network))
    fixed = [module for module in frozen.modules() if isinstance(module, detectors.FrozenBatchNorm2d)]
    assert len(fixed) == 21
    for own, theirs in zip(fixed, norms(network), strict=True):
        assert own.eps == theirs.eps
        for key in ("weight", "bias", "running_mean", "running_var"):
            assert torch.equal(getattr(own, key), getattr(theirs, key))
            assert getattr(own, key).data_ptr() != getattr(theirs, key).data_ptr()
    x = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        assert torch.allclose(frozen.train()(x), network.eval()(x), atol=1e-4)


def trained(scenes: Splits, kind: str, **options) -> tuple[nn.Module, list[str], list[str]]:
    """A detector after a few steps that leave the encoders as they are, and what changed in its body and its rpn."""
    nets, settings = networks(), SMALL.model_copy(update=options)
    model = detectors.build(kind, nets, Augmented(1), VIEW, settings, classes=10)
    before = copy.deepcopy((model.backbone.body.state_dict(), model.rpn.state_dict()))
    with unchanged(nets):
        training.fit(model, scenes.train, kind, settings, seed=0)
    after = model.backbone.body.state_dict(), model.rpn.state_dict()
    body, heads = ([n for n, t in a.items() if not torch.equal(t, b[n])] for a, b in zip(after, before, strict=True))
    return model, body, heads


@pytest.mark.parametrize("backbone", ["fpn", "c4"])
def test_frozen_means_that_no_tensor_of_the_encoder_changes(backbone, scenes) -> None:
    _, body, heads = trained(scenes, "masks", backbone=backbone, lr=0.05, weight_decay=0.1)
    assert body == []
    assert heads


def test_trained_means_that_copies_of_the_encoder_learn_with_batch_norm_in_the_pyramid(scenes) -> None:
    model, body, _ = trained(scenes, "boxes", trained=True, batch_norm=True)
    assert len(norms(model.backbone.fpn)) == 8
    assert len(body) > 100
    assert any("running_mean" in name for name in body)


def outputs(kind: str, settings: Detector, nets: nn.ModuleList) -> dict[str, torch.Tensor]:
    torch.manual_seed(7)
    model = detectors.build(kind, nets, Augmented(1), VIEW, settings, classes=3).eval()
    features = OrderedDict([("0", torch.rand(1, 32, 4, 4, generator=generator(1)))])
    with torch.no_grad():
        pooled = model.roi_heads.box_roi_pool(features, [torch.tensor([[0.0, 0, 40, 40]])], [(64, 64)])
        return model.roi_heads.box_head(pooled)


def test_the_published_c4_head_takes_from_the_last_stage_what_agrees_in_name_and_shape() -> None:
    full = encoders.build("resnet18").backbone
    head = detectors.fifth_stage(full, "new")
    filled = set(detectors.filled_by_loader(full.layer4, head))
    convolutions = {name for name, p in head.named_parameters() if p.ndim == 4}
    assert filled & convolutions == {"0.conv2.weight", "1.conv2.weight", "0.downsample.0.weight"}
    assert not any(name.startswith("2.") for name in filled)
    assert not any("conv1" in name or "conv3" in name or "bn3" in name for name in filled)
    assert {name.rpartition(".")[0] for name in filled if name not in convolutions} == {
        "0.bn1", "0.bn2", "1.bn1", "1.bn2", "0.downsample.1",
    }  # fmt: skip
    assert [tuple(head.get_submodule(f"{k}.conv1").weight.shape) for k in range(3)] == [
        (512, 256, 1, 1), (512, 512, 1, 1), (512, 512, 1, 1),
    ]  # fmt: skip
    published = detectors.fifth_stage(full, "published").state_dict()
    for name, tensor in published.items():
        same = name in full.layer4.state_dict() and torch.equal(tensor, full.layer4.state_dict()[name])
        # a new batch-norm has ones and zeros, as the encoder's untrained ones have
        assert same == (name in filled) or "bn" in name or "downsample.1" in name or "tracked" in name, name


@pytest.mark.parametrize(("head", "path", "matters"), [
    ("published", "layer4.0.conv1.weight", False),  # 3x3 in the encoder, 1x1 in the head: left behind
    ("published", "layer4.1.conv1.weight", False),
    ("published", "layer4.0.conv2.weight", True),
    ("published", "layer4.1.bn1.running_mean", True),
    ("new", "layer4.0.conv2.weight", False),
    ("new", "layer4.1.bn1.running_mean", False),
    ("layer4", "layer4.0.conv1.weight", True),
    ("layer4", "layer4.1.conv2.weight", True),
])  # fmt: skip
def test_which_tensors_of_the_last_stage_a_c4_detector_uses(head, path, matters) -> None:
    settings = SMALL.model_copy(update={"backbone": "c4", "c4_head": head})
    nets = networks()
    one = outputs("boxes", settings, nets)
    with torch.no_grad():
        nets[0].backbone.state_dict()[path].add_(1.0)
    assert torch.equal(one, outputs("boxes", settings, nets)) != matters


def test_two_streams_give_their_maps_side_by_side() -> None:
    part = Split("lab")
    nets = networks(part)
    model = detectors.build("boxes", nets, part, VIEW, SMALL, classes=3).eval()
    picture = torch.rand(3, 64, 64, generator=generator(0))
    images, _ = model.transform([picture])
    maps = model.backbone.body(images.tensors)
    halves = part.plain(torch.nn.functional.interpolate(picture[None], (64, 64)), detectors.AS_THEY_ARE)
    with torch.no_grad():
        alone = [net.eval().backbone(half) for net, half in zip(nets, halves, strict=True)]
        assert torch.allclose(maps["3"], torch.cat(alone, 1), atol=1e-4)
    assert [m.shape[1] for m in maps.values()] == [16, 32, 64, 128]


def test_encoders_and_data_that_do_not_fit_get_a_reason(scenes) -> None:
    for options, words in (
        ({"arch": "tiny", "width": 1.0}, "four stages .a ResNet.; this one is a Tiny"),
        ({"arch": "small", "width": 1.0}, "four stages"),
        ({"arch": "vit_nano", "width": 1.0, "head": "moco_v3"}, "four stages .a ResNet."),
        ({"channels": 1}, "a detector sees colours; the encoders read 1 channel"),
    ):
        with pytest.raises(NotApplicableError, match=words):
            tasks.Boxes(SMALL).score(networks(**options), evaluation(scenes))
    nets, known = networks(), scenes.train.annotations
    corner, shapes = (data.load(name, n_train=2, n_test=2) for name in ("silhouettes_keypoints", "shapes"))
    plain = tuple({k: v for k, v in o.items() if k != "segmentation"} for o in known.objects)
    bare, empty = (replace(scenes.train, annotations=replace(known, objects=some)) for some in (plain, ()))

    def score(task: type[tasks.Task], part: Splits, **options) -> None:
        task(SMALL.model_copy(update=options)).score(nets, evaluation(part))

    def of(part: AnnotatedImages) -> Splits:
        return Splits.of("x", part, part, "")

    none, c4 = "silhouettes/train has no keypoints", "Detectron2 has no keypoint detector on the third stage"
    refused(
        (lambda: score(tasks.Keypoints, scenes), NotApplicableError, none),
        (lambda: score(tasks.Masks, of(bare)), NotApplicableError, "has no masks"),
        (lambda: score(tasks.Keypoints, corner, backbone="c4"), NotApplicableError, c4),
        (lambda: score(tasks.Boxes, of(empty)), NotApplicableError, "shows no object to train on"),
        (lambda: score(tasks.Boxes, shapes), NotApplicableError, "a task for annotated images; shapes has images"),
        (lambda: scores.coco(empty.annotations, [], "bbox"), NotApplicableError, "nothing to find"),
        (lambda: scores.voc(empty.annotations, [], eleven=True), NotApplicableError, "nothing to find"),
    )


def test_the_pixel_mean_of_the_settings_is_used_and_otherwise_that_of_pre_training() -> None:
    nets = networks()
    own = detectors.build("boxes", nets, Augmented(1), VIEW, SMALL, classes=3).transform
    assert tuple(own.image_mean) == tuple(VIEW.mean)
    for paper, table, kind in (("vince", "2b", "masks"), ("vince", "2d", "boxes"), ("ring", "4", "keypoints")):
        plan = papers.plan(paper, table)
        row = next(iter(plan.rows))
        printed = getattr(plan.settings("imagenet", row, "paper"), kind)
        # vince C.4 prints red, blue, green; Detectron2's own mean of RGB pictures is 123.675, 116.28, 103.53
        assert printed.pixel_mean == (123.675, 103.53, 116.28)
        own_mean = SMALL.model_copy(update={"pixel_mean": printed.pixel_mean})
        made = detectors.build("boxes", nets, Augmented(1), VIEW, own_mean, classes=3).transform
        shift = [255 * (a - b) for a, b in zip(made.image_mean, VIEW.mean, strict=True)]
        assert shift == pytest.approx([0, -12.75, 12.75], abs=0.02)
        assert getattr(plan.settings("imagenet", row, "laptop"), kind).pixel_mean is None


def test_rare_classes_are_shown_more_often_and_the_learning_rate_drops() -> None:
    part = data.load("silhouettes_lvis").train
    usable = training.usable_pictures(part, "masks")
    once, often = (
        training.order(part, usable, SMALL.model_copy(update={"repeat_threshold": t}), 0) for t in (0.0, 0.05)
    )
    assert sorted(next(once) for _ in usable) == usable
    seen = [{o["category_id"] for o in part.annotations.of_image[part.ids[k]]} for k in usable]
    share = {category: sum(category in each for each in seen) / len(usable) for category in set.union(*seen)}
    slow = [max(max(1, (0.05 / share[category]) ** 0.5) for category in each) for each in seen]
    assert training.repeats(part, usable, 0.05).tolist() == pytest.approx(slow)
    assert max(slow) > 2
    counts = np.bincount([next(often) for _ in range(40 * len(usable))], minlength=len(part))[usable]
    assert np.corrcoef(counts, 40 * len(usable) * np.array(slow) / sum(slow))[0, 1] > 0.98
    rates = [training.learning_rate(Detector(), step) for step in (0, 500, 1000, 59999, 60000, 80000)]
    assert rates == pytest.approx([2e-5, 0.01001, 0.02, 0.02, 0.002, 2e-4])


def test_a_mirrored_picture_has_mirrored_objects(corners) -> None:
    picture, target = corners.train[0], corners.train.target(0, masks=True, keypoints=True)
    points = corners.train.annotations.keypoints.mirrored
    assert points == (0, 1, 3, 2, 5, 4)
    turned, out = training.mirrored(picture, target, points)
    assert torch.equal(turned, picture.flip(2))
    for before, after in zip(target["masks"], out["masks"], strict=True):
        columns = after.any(0).nonzero().flatten()
        assert (columns[0], columns[-1] + 1) == (out["boxes"][0, 0], out["boxes"][0, 2])
        assert torch.equal(after, before.flip(1))
    # where the left tip was, mirrored, is now the right tip
    assert out["keypoints"][0, 3, 0] == 96 - target["keypoints"][0, 2, 0] or target["keypoints"][0, 2, 2] == 0
    again, twice = training.mirrored(turned, out, points)
    assert torch.equal(again, picture)
    for name in target:
        assert torch.allclose(twice[name].float(), target[name].float(), atol=1e-4)


@pytest.mark.parametrize("trained", [False, True])
def test_a_stopped_training_resumes_to_the_same_bits(trained, scenes, tmp_path, monkeypatch) -> None:
    settings = SMALL.model_copy(update={"trained": trained, "batch_norm": trained, "steps": 5})

    def model() -> nn.Module:
        torch.manual_seed(3)
        return detectors.build("masks", networks(), Augmented(1), VIEW, settings, classes=10)

    whole = model()
    losses = training.fit(whole, scenes.train, "masks", settings, seed=1)
    assert len(losses) == 5
    monkeypatch.setattr(fitting, "SAVE_EVERY_S", -1.0)
    keep = checkpoint.save

    def stop(state, path, origin) -> None:
        keep(state, path, origin)
        if len(state["losses"]) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "save", stop)
    with pytest.raises(KeyboardInterrupt):
        training.fit(model(), scenes.train, "masks", settings, seed=1, folder=tmp_path)
    lines: list[str] = []
    resumed = model()
    torch.rand(7)  # torch's own generator is elsewhere than it was
    assert training.fit(resumed, scenes.train, "masks", settings, seed=1, folder=tmp_path, log=lines.append) == losses
    assert lines[0] == "detector of masks: resumed at step 2"
    assert lines[1].startswith("detector of masks: step 5/5 loss ")
    assert equal(whole, resumed)
    assert not (tmp_path / checkpoint.FILE).exists()
    # the detector is an artefact: it is read, not trained
    again = model()
    assert training.fit(again, scenes.train, "masks", settings, seed=1, folder=tmp_path) == losses
    assert equal(whole, again)
    assert files.read_record(tmp_path / training.RECORD)["classes"] == list(scenes.train.classes)


def test_progress_is_said_and_a_loss_that_is_not_finite_stops(scenes, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(fitting, "SPEAK_EVERY_S", -1.0)
    lines: list[str] = []
    model = detectors.build("boxes", networks(), Augmented(1), VIEW, SMALL, classes=10)
    training.fit(model, scenes.train, "boxes", SMALL, seed=0, log=lines.append)
    assert lines[-1].startswith("detector of boxes: step 4/4 loss ")
    assert "eta 0:00" in lines[-1]
    with torch.no_grad():
        model.rpn.head.cls_logits.bias.fill_(float("nan"))
    with pytest.raises((errors.NonFiniteLossError, AssertionError)):
        training.fit(model, scenes.train, "boxes", SMALL, seed=0, folder=tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_score_is_the_same_for_the_same_seed(corners, tmp_path) -> None:
    nets = networks()
    one, two = (tasks.Keypoints(SMALL).score(nets, evaluation(corners, seed=4)) for _ in range(2))
    assert one == two
    assert set(one) == {"keypoint_ap", "keypoint_ap50", "keypoint_ap75"}
    assert one["keypoint_ap"].items == 4


def truth(rule: coco.Rule = "coco", **of_image) -> coco.Annotations:
    """Two pictures, two classes; squares of 40 pixels."""
    objects = [(1, 1, [10, 10, 40, 40]), (1, 2, [60, 60, 40, 40]), (2, 1, [20, 20, 40, 40])]
    known = coco.parse(
        {
            "images": [{"id": i, "file_name": f"{i}.png", "width": 120, "height": 120, **of_image.get(f"i{i}", {})}
                       for i in (1, 2)],
            "categories": [{"id": k, "name": str(k)} for k in (1, 2)],
            "annotations": [
                {"id": n, "image_id": i, "category_id": c, "bbox": b, "area": 1600, "iscrowd": 0,
                 "segmentation": [[b[0], b[1], b[0] + 40, b[1], b[0] + 40, b[1] + 40, b[0], b[1] + 40]]}
                for n, (i, c, b) in enumerate(objects, 1)
            ],
        },
        "made",
    )  # fmt: skip
    return replace(known, rule=rule)


def found(annotations: coco.Annotations, shift: float = 0, score: float = 0.9) -> list[dict]:
    return [
        {"image_id": o["image_id"], "category_id": o["category_id"], "score": score,
         "bbox": [o["bbox"][0] + shift, *o["bbox"][1:]]}
        for o in annotations.objects
    ]  # fmt: skip


def three(got: dict) -> list[float]:
    return [got[key].value for key in ("", "50", "75")]


@pytest.mark.parametrize("rule", ["coco", "voc07", "voc12"])
def test_a_perfect_an_empty_and_a_shifted_prediction(rule) -> None:
    known = truth(rule)

    def ap(detections: list[dict]) -> list[float]:
        if rule == "coco":
            return three(scores.coco(known, detections, "bbox", draws=5))
        return three(scores.voc(known, detections, eleven=rule == "voc07", draws=5))

    assert ap(found(known)) == pytest.approx([100, 100, 100])
    assert ap([]) == [0, 0, 0]
    # 6 of 40 pixels aside: an overlap of 34/46 = 0.739, right at 0.5 to 0.7
    assert ap(found(known, shift=6)) == pytest.approx([50, 100, 0])


def test_masks_are_compared_by_their_pixels_and_keypoints_by_their_sigmas() -> None:
    known = truth()
    masks = []
    for o in known.objects:
        x, y, w, h = map(int, o["bbox"])
        mask = torch.zeros(1, 120, 120, dtype=torch.bool)
        mask[0, y : y + h, x : x + w // 2 + 8] = True  # 28 of 40 columns: an overlap of 0.7
        masks.append({"image_id": o["image_id"], "category_id": o["category_id"], "score": 0.5,
                      "segmentation": training.encoded(mask)[0]})  # fmt: skip
    assert three(scores.coco(known, masks, "segm", draws=5)) == pytest.approx([50, 100, 0])
    """Every point off by d pixels: a similarity of exp(−d²/(2·area·(2σ)²))."""
    kind = coco.KeypointKind(("a", "b"), (0.05, 0.05))
    known = truth()
    objects = tuple(
        {**o, "category_id": 1, "keypoints": [o["bbox"][0], o["bbox"][1], 2, o["bbox"][0] + 20, o["bbox"][1], 1],
         "num_keypoints": 2} for o in known.objects
    )  # fmt: skip
    known = replace(known, objects=objects, categories=known.categories[:1], keypoints=kind)
    off = (-np.log(0.72) * 2 * 1600 * 0.1**2) ** 0.5  # a similarity of 0.72: right at 0.5 to 0.7
    guesses = [
        {"image_id": o["image_id"], "category_id": 1, "score": 0.9,
         "keypoints": [o["keypoints"][0] + off, o["keypoints"][1], 1, o["keypoints"][3], o["keypoints"][4] + off, 1]}
        for o in objects
    ]  # fmt: skip
    assert three(scores.coco(known, guesses, "keypoints", draws=5)) == pytest.approx([50, 100, 0])
    wide = replace(known, keypoints=replace(kind, sigmas=(0.5, 0.5)))
    assert scores.coco(wide, guesses, "keypoints", draws=5)[""].value == pytest.approx(100)


def ap_by_loops(known: coco.Annotations, detections: list[dict]) -> float:
    """COCO's: by falling score, a detection takes the best object of its picture and class that is free."""
    values = []
    for kind, least in product({o["category_id"] for o in known.objects}, scores.THRESHOLDS):
        free = {k: o for k, o in enumerate(known.objects) if o["category_id"] == kind}
        count, right = len(free), []
        for d in sorted((d for d in detections if d["category_id"] == kind), key=lambda d: -d["score"]):
            box, near = np.array([d["bbox"]]), [k for k, o in free.items() if o["image_id"] == d["image_id"]]
            shares = [(scores.overlaps(box, np.array([free[k]["bbox"]]))[0, 0], k) for k in near]
            share, taken = max(shares, default=(0, None))
            right.append(bool(share >= least and free.pop(taken)))
        precision = (hits := np.cumsum(right)) / np.arange(1, len(right) + 1)
        values.append(np.mean([max(precision[hits >= r * count], default=0) for r in np.linspace(0, 1, 101)]))
    return 100 * float(np.mean(values))


@pytest.mark.parametrize("what", ["bbox", "segm"])
@pytest.mark.parametrize("ids", [range(30), range(7, -23, -1), [k // 2 for k in range(30)], [0, 1, 2] * 10, [5] * 30])
def test_the_ids_of_annotations_do_not_change_average_precision(scenes, ids, what) -> None:
    known = scenes.train.annotations
    known = known.subset([i for i in known.images if known.of_image[i]][:8])
    odd = replace(known, objects=tuple({**o, "id": ids[k]} for k, o in enumerate(known.objects)))
    assert len(known.objects) <= len(ids)
    exact = [{**d, "segmentation": o["segmentation"]} for d, o in zip(found(known), known.objects, strict=True)]
    assert scores.coco(odd, exact, what, draws=2)[""].value == pytest.approx(100)
    rough = [{**d, "segmentation": known.objects[0]["segmentation"]} for d in noisy(known)]
    assert scores.coco(odd, rough, what, draws=4) == (got := scores.coco(known, rough, what, draws=4))
    assert what == "segm" or got[""].value == pytest.approx(ap_by_loops(known, rough))


def test_voc_takes_the_best_object_that_is_half_covered_and_its_area_is_that_by_hand() -> None:
    # right, wrong, right, of three objects: eleven points are recalls 0 to 0.3, then 0.4 to 0.6
    recall, precision = np.array([1, 1, 2]) / 3, np.array([1, 1 / 2, 2 / 3])
    for eleven, expected in ((True, (4 * 1 + 3 * 2 / 3) / 11), (False, 1 / 3 * 1 + 1 / 3 * 2 / 3)):
        assert scores.voc_area(recall, precision, eleven=eleven) == pytest.approx(expected)
        assert scores.voc_area(np.array([]), np.array([]), eleven=eleven) == 0
    known = truth("voc07")

    def ap(detections: list[dict], known: coco.Annotations = known) -> float:
        return scores.voc(known, detections, eleven=False, draws=5)["50"].value

    assert ap(found(known) + found(known, score=0.5)) == pytest.approx(100)  # the second of each, wrong, comes later
    assert ap(found(known, score=0.5) + found(known, shift=1, score=0.9)) == pytest.approx(100)
    hard = replace(known, objects=tuple({**o, "difficult": int(o["id"] == 3)} for o in known.objects))
    missed = [d for d in found(known) if d["image_id"] == 1]
    assert ap(missed) == pytest.approx(75)
    assert ap(missed, hard) == ap(found(known), hard) == pytest.approx(100)
    # an object is found by more than half in common
    assert scores.overlaps(np.array([[0.0, 0, 10, 5]]), np.array([[0.0, 0, 10, 10]])) == 0.5
    half, more = ([{**d, "bbox": [*d["bbox"][:3], h * d["bbox"][3]]} for d in found(known)] for h in (0.5, 0.55))
    assert (ap(half), ap(more)) == (0, pytest.approx(100))


def test_lvis_counts_only_what_was_looked_for() -> None:
    def ap(category: int, **lists) -> float:
        """Class 1 is annotated in both pictures, class 2 in the first; one wrong detection is in the second."""
        known = truth("lvis", i2=lists)
        wrong = {"image_id": 2, "category_id": category, "score": 0.99, "bbox": [70, 10, 30, 30]}
        return scores.coco(known, [*found(known), wrong], "bbox", draws=5)["50"].value

    assert ap(2) == pytest.approx(100)  # nobody looked for it there
    # known to be absent: one wrong above the right one, so precision 1/2 for class 2
    assert ap(2, neg_category_ids=[2], not_exhaustive_category_ids=[]) == pytest.approx(75)
    # two right ones of class 1 below one wrong: precision 1/2 then 2/3, so 2/3 at every recall
    assert ap(1, neg_category_ids=[]) == pytest.approx((100 * 2 / 3 + 100) / 2)
    assert ap(1, not_exhaustive_category_ids=[1]) == pytest.approx(100)


def noisy(known: coco.Annotations, seed: int = 0) -> list[dict]:
    rng = np.random.default_rng(seed)
    made = []
    for o in known.objects:
        for _ in range(int(rng.integers(0, 3))):
            box = np.array(o["bbox"], float) + rng.normal(0, 4, 4)
            kind = o["category_id"] if rng.random() < 0.8 else 1
            made.append({"image_id": o["image_id"], "category_id": kind, "score": float(rng.random()),
                         "bbox": [*box[:2], *box[2:].clip(5)]})  # fmt: skip
    return made


def test_the_interval_is_that_of_pictures_drawn_anew(scenes) -> None:
    known = scenes.train.annotations
    detections = noisy(known)
    assert 0 < scores.coco(known, detections, "bbox", draws=60)[""].half_width < 40

    # one sample by hand: its pictures as a set of their own, each copy with an id of its own
    draws = []
    tasks.bootstrap(lambda numbers: draws.append(numbers.clone()) or 0.0, len(known.images), draws=1)
    ids = [list(known.images)[number] for number in draws[0].tolist()]
    images = {new: {**known.images[i], "id": new} for new, i in enumerate(ids)}
    objects = [(new, k, o) for new, i in enumerate(ids) for k, o in enumerate(known.of_image[i])]
    moved = [{**d, "image_id": new} for new, i in enumerate(ids) for d in detections if d["image_id"] == i]
    copies = tuple({**o, "image_id": new, "id": 1000 * new + k + 1} for new, k, o in objects)
    sample = replace(known, images=images, objects=copies)
    for score, options in ((scores.coco, {"what": "bbox"}), (scores.voc, {"eleven": False})):
        kept = []

        def spy(statistic, items, *, kept=kept, **_):
            kept.append(statistic(draws[0]))
            return statistic(torch.arange(items)), (0.0, 0.0, 0.0)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(scores, "bootstrap", spy)
            score(known, detections, draws=2, **options)
        assert kept[0][0] == pytest.approx(score(sample, moved, draws=2, **options)[""].value)


def test_without_the_extra_its_name_is_said(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "faster_coco_eval", None)
    with pytest.raises(errors.ContrastLabError, match=r"pip install 'contrastlab\[dense\]'"):
        scores.coco(truth(), found(truth()), "bbox")
    with pytest.raises(errors.ContrastLabError, match=r"contrastlab\[dense\]"):
        annotated.draw([[0, 0, 4, 0, 4, 4]], 8, 8)


@pytest.mark.parametrize("name", ["ring 4", "jcl 2", *(f"vince {n}" for n in ("2a", "2b", "2c", "2d", "2e", "4"))])
def test_every_printed_column_has_one(name) -> None:
    paper, table = name.split()
    columns = papers.plan(paper, table).columns.values()
    assert {c.published for c in columns} - {""} == set(papers.published(paper, table)["column"])
    assert {c.on for c in columns} <= {"", *data.names()}


SHARED = [
    # tables, the data of the encoders, and rows and profiles where not all of them are shared
    ("vince", ("2b", "2a", "2c", "2d", "2e", "4"), "imagenet", (), ("smoke", "laptop", "paper")),
    ("ring", ("3", "1"), "cifar10", (), ()),
    ("ring", ("3", "1"), "shapes", (), ()),
    ("ring", ("4", "1"), "imagenet", ("ring/ir", "ring/moco"), ("paper",)),
    ("jcl", ("2", "1"), "imagenet", ("jcl/jcl",), ("paper",)),
]


@pytest.mark.parametrize(("paper", "tables", "dataset", "rows", "profiles"), SHARED)
def test_tables_of_a_paper_share_their_encoders(paper, tables, dataset, rows, profiles, own, tmp_path) -> None:
    plans = [papers.plan(paper, table) for table in tables]
    references = papers.REFERENCES if paper == "ring" else ()
    for row, profile in product(rows or (*plans[0].rows, *references), profiles or plans[0].profiles):
        each = [plan.settings(dataset, row, profile) for plan in plans]
        hashes = {Run(methods.get(row).override(s.overrides), s, own, 0, tmp_path).hash for s in each}
        assert len(hashes) == 1, (row, profile)


@pytest.fixture
def own(pictures) -> Splits:
    part = pictures(48)
    return Splits("pictures", part, part, part, "")


def test_protocols_are_as_the_papers_say() -> None:
    plan = papers.plan("vince", "2a")

    def outer(row: str, profile: str):
        return methods.get(f"vince/{row}").override(plan.settings("imagenet", row, profile).overrides).negatives.outer

    assert outer("ball", "paper") == outer("cave_lab", "paper") == 0.3
    assert (outer("cave_anneal", "paper").start, outer("cave_anneal", "paper").end) == (100, 0.3)
    assert outer("ball", "laptop") == 10
    assert outer("ball_lab_anneal", "laptop").end == 10
    for paper, table, trained in (("ring", "4", False), ("vince", "2b", False), ("jcl", "2", True)):
        plan = papers.plan(paper, table)
        for profile in ("smoke", "laptop", "paper"):
            settings = plan.settings("imagenet", next(iter(plan.rows)), profile)
            for kind in (settings.boxes, settings.masks, settings.keypoints):
                assert (kind.trained, kind.batch_norm) == (trained, trained)
    assert papers.plan("vince", "2e").settings("imagenet", "la", "paper").masks.repeat_threshold == 0.001
    assert papers.plan("ring", "4").settings("imagenet", "ir", "paper").boxes.backbone == "c4"
    assert papers.plan("ring", "4").settings("imagenet", "ir", "paper").masks.backbone == "fpn"


@pytest.fixture
def few(monkeypatch, pictures) -> None:
    load = data.load

    def some(name: str, root=None, **options) -> Splits:
        if name in ("shapes", "four"):
            train, test = pictures(64), pictures(32, seed=1)
            return Splits(name, train, train, test, "random pictures")
        return load(name, root, **options)

    monkeypatch.setattr(data, "load", some)


def untrained(made) -> list:
    """The row of the random encoder in each column's report."""
    return [{row.method: row for row in report.rows}["ours/random"] for report in made.reports]


def test_one_detector_serves_two_columns_and_is_kept_beside_its_encoder(few, tmp_path) -> None:
    lines: list[str] = []
    columns = "silhouettes_box,silhouettes_mask"
    options = {"rows": "random", "out_dir": tmp_path, "log": lines.append, **LOCAL}
    made = tables.table("ring", 4, "shapes", columns=columns, **options)
    assert sum("stored" in line and "mask AP" in line for line in lines) == 1
    assert all(row.measured is not None for row in untrained(made))
    assert len(list(tmp_path.glob(f"encoders/*/masks-*/{training.FILE}"))) == 1
    assert len(list(tmp_path.glob("cells/shapes/smoke/*masks*.json"))) == 1


def test_cells_that_cannot_be_say_why(few, tmp_path, monkeypatch) -> None:
    made = tables.table("vince", "2a", "shapes", rows="random", out_dir=tmp_path, log=quiet, **LOCAL)
    rows = untrained(made)
    assert rows[0].measured is not None
    assert rows[1].status == "n/a: top-5 accuracy needs more than five classes"
    lines: list[str] = []
    options = {"rows": "random", "out_dir": tmp_path, "data_root": tmp_path, "log": lines.append, **LOCAL}
    made = tables.table("ring", 4, "digits", columns="coco_box_ap,voc_ap,silhouettes_box", **options)
    rows = [row.status for row in untrained(made)]
    assert rows[0].startswith("n/a: needs data: ")
    assert "annotations_trainval2017.zip" in rows[0]
    assert "CONTRASTLAB_DATA" in rows[0]
    assert not [row for row in rows if str(tmp_path) in row]  # a report is passed on
    assert rows[1].startswith("n/a: needs data: ")
    assert "a detector sees colours" in rows[2]
    settings = papers.TablePlan.settings
    monkeypatch.setattr(papers.TablePlan, "settings", lambda *given: settings(*given).override(arch="tiny"))
    made = tables.table("ring", 4, "shapes", columns="silhouettes_box", **options)
    assert any("four stages" in row.status for row in made.rows)


@pytest.mark.parametrize(("task", "changes"), [
    ("masks", {"masks": {"steps": 7}, "boxes": {"backbone": "c4"}, "keypoints": {"trained": True}}),
    ("transfer", {"transfer": {"normalise": "pretraining"}}),
])  # fmt: skip
def test_how_a_task_is_set_decides_its_number_and_not_the_encoders(task, changes, own, tmp_path) -> None:
    plain = Settings(image_size=16, arch="resnet18", width=0.125)
    other = plain.override(**changes)
    one, two = (Run(methods.get("ring/ir"), settings, own, 0, tmp_path).hash for settings in (plain, other))
    assert one == two
    assert tasks.get(task, plain).identity() == {}
    assert tasks.get(task, other).identity() != {}
