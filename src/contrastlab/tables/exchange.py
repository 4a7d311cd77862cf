"""Trained encoders that leave for other libraries (``contrastlab export``) and come from them (``contrastlab score``).

One that leaves is a folder: safetensors, ``config.json`` and a model card (``README.md``).
"""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from contrastlab import data, encoders, tasks
from contrastlab.domains.stored_encoders import FILE as TENSORS
from contrastlab.pictures import foreign_networks as foreign
from contrastlab.pictures.augmentations import augmentation
from contrastlab.recipe import CHOICES, Recipe, build, types_of
from contrastlab.settings import Settings
from contrastlab.support import escape, files, shipped
from contrastlab.support.errors import NotApplicableError, check, check_name
from contrastlab.support.paths import own_path
from contrastlab.support.seeds import fixed
from contrastlab.tables import report, results
from contrastlab.tables.execution import say
from contrastlab.tables.foreign import Question, result_of
from contrastlab.tables.plan import Column, TablePlan
from contrastlab.tables.plan import plan as read_plan
from contrastlab.tables.profiles import choose_profile
from contrastlab.tables.published import parse_seeds, parse_target
from contrastlab.train.checkpoint import describing, read_run

FILE = "model.safetensors"
STATE_DICT = "model.pth"
_LOADS = {
    "timm": f"network = timm.create_model({{name!r}}, checkpoint_path={FILE!r}, {{given}}).eval()",
    "torchvision": f"network = torchvision.models.{{name}}({{given}})  # a classifier stays untrained\n"
    f"network.load_state_dict(safetensors.torch.load_file({FILE!r}), strict=False)\n"
    "network.eval()",
    "torch": f"state = torch.load({STATE_DICT!r}, weights_only=True)  # name to tensor; {{names}}",
    "hub-folder": f"networks = contrastlab.encoders.load({FILE!r})  # one for each stream, in evaluation mode",
}


def export(run: Path | str, to: str, out: Path | str | None = None) -> Path:
    """Write the encoder of a run for ``timm``, for ``torchvision``, or whole; gives the folder, which must be new.

    For other libraries it is the backbone of one stream, under their names, as far as they have such a network. Whole,
    with all streams and heads, it is a ``hub-folder`` for this package, or for ``torch`` a plain state dict.
    """
    check(to in _LOADS, "to", to, " or ".join(_LOADS))
    run = Path(run)
    record = read_run(run)
    networks = encoders.load(run)
    recipe_name = record["recipe"]["name"].replace("/", "-")
    folder = own_path("out", out or f"{recipe_name}-{to}")
    check(not folder.exists(), "out", str(folder), "a folder that does not exist yet")
    with describing(run):
        settings = Settings.model_validate(record["settings"])
    if to in ("hub-folder", "torch"):
        content = _whole(run, settings, to)
    elif len(networks) > 1:
        raise NotApplicableError(f"{run} has {len(networks)} encoders and {to} takes one; hub-folder has them all")
    else:
        content = _for_library(networks[0], settings, to)
    model_card = card(run, record, to, content.load)  # before anything is written
    if to == "torch":
        _write_state_dict(folder / STATE_DICT, content.tensors)
    else:
        files.write_tensors(folder / FILE, content.tensors, content.values)
    config = {**content.config, "recipe": record["recipe"]}
    files.write_whole(folder / "config.json", json.dumps(config, indent=1) + "\n")
    files.write_whole(folder / "README.md", model_card)
    return folder


@dataclass(frozen=True)
class _Content:
    """What is written of a run: tensors and values beside them, ``config.json``, and the Python that loads it."""

    tensors: dict[str, Any]
    values: dict[str, Any]
    config: dict[str, Any]
    load: str


def _whole(run: Path, settings: Settings, to: str) -> _Content:
    """All streams and heads of a run."""
    tensors, values = files.read_tensors(run / TENSORS)
    heads = set()
    for name in tensors:
        before, head, _ = name.partition("head.")
        if head:
            heads.add(before + head)
    load = _LOADS[to].format(names=f"those of a head begin with {' or '.join(sorted(heads))}")
    return _Content(tensors, values, {"architecture": settings.arch}, load)


def _write_state_dict(path: Path, tensors: dict[str, Any]) -> None:
    """A file that ``torch.load(path, weights_only=True)`` reads; whole or not there."""
    content = io.BytesIO()
    torch.save(tensors, content)
    files.write_whole(path, content.getvalue())


def _for_library(network: Any, settings: Settings, to: str) -> _Content:
    """The backbone of one stream, as another library takes it."""
    name, arguments = _elsewhere(network, settings, to)
    size = settings.image_size
    pixels = augmentation(settings.augmentation, size)
    config = {
        "architecture": name,
        "num_classes": 0,
        "model_args": arguments,
        "pretrained_cfg": {
            "input_size": [network.in_channels, size, size],
            "mean": pixels.mean,
            "std": pixels.std,
            "num_classes": 0,
        },
    }
    if to == "timm":
        arguments = {"num_classes": 0, **arguments}  # a new dictionary: the config keeps its own
    listed = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
    load = _LOADS[to].format(name=name, given=listed)
    load += f"\n# reads pixels from 0 to 1, less {pixels.mean}, over {pixels.std}"
    return _Content(network.backbone.state_dict(), {}, config, load)


def _elsewhere(network: Any, settings: Settings, to: str) -> tuple[str, dict[str, Any]]:
    """What a library calls the architecture, and the arguments that make it there."""
    channels = {} if network.in_channels == 3 else {"in_chans": network.in_channels}
    if settings.stem == "imagenet" and _exists_elsewhere(settings, to, has_rgb=not channels):
        _, colon, name = settings.arch.partition(":")
        return name if colon else settings.arch, {**channels, **settings.arch_options}
    if to == "timm" and settings.arch.startswith("vit_"):
        vit = network.backbone
        sizes = {
            "img_size": vit.patch_embed.img_size[0],
            "patch_size": vit.patch,
            "embed_dim": vit.embed_dim,
            "depth": len(vit.blocks),
            "num_heads": vit.blocks[0].attn.num_heads,
        }
        return "vit_small_patch16_224", {**sizes, **channels}
    what = f"arch={settings.arch}, stem={settings.stem}, width={settings.width:g}, {network.in_channels} channels"
    raise NotApplicableError(f"{to} has no network with {what}; use --to hub-folder")


def _exists_elsewhere(settings: Settings, to: str, *, has_rgb: bool) -> bool:
    """Whether a library has this architecture: its own, and ResNets, which torchvision has for three channels only."""
    library, _, _ = settings.arch.partition(":")
    if library == to:
        return True
    is_shared = settings.arch in ("resnet18", "resnet50") and settings.width == 1
    return is_shared and (to == "timm" or has_rgb)


def card(run: Path, record: dict[str, Any], to: str, load: str) -> str:
    """Markdown: the method's equation and parts, data, settings, and the numbers of tasks with their profiles."""
    with describing(run):
        settings = Settings.model_validate(record["settings"])
        recipe = _recipe(record["recipe"])
    library = "timm" if to == "timm" else "contrastlab"
    data = escape.markdown(f"{record['dataset']}: {record.get('data_note') or 'no note'}")
    lines = [
        "---",
        f"library_name: {library}",
        "tags: [contrastive-learning]",
        "---",
        f"# {recipe.name}, seed {record['seed']}",
        "",
        recipe._repr_markdown_(),
        "",
        "```python",
        load,
        "```",
        "",
        f"- Data: {data}; fingerprint `{record.get('data_fingerprint')}`",
        f"- Architecture {settings.arch}, stem {settings.stem}, views of {settings.image_size} pixels",
        f"- Training: epochs {settings.epochs}, batch size {settings.batch_size}; run `{record['hash']}`",
        "",
        *_numbers(run, record),
        "",
    ]
    return "\n".join(lines)


def _recipe(description: dict[str, Any]) -> Recipe:
    """The recipe that ``Recipe.describe`` describes, called by its full name."""
    parts = {}
    for choice in CHOICES:
        part = description[choice]
        parts[choice] = part and build(choice, part, types_of(choice))
    return Recipe(description["name"], description["name"], temperature=description["temperature"], **parts)


def _numbers(run: Path, record: dict[str, Any]) -> list[str]:
    """Lines of a table in Markdown with the numbers of a run."""
    rows = []
    for result in stored(run, record):
        rows += [_row(name, result) for name in result.metrics]
    if not rows:
        return ["No task has scored this run where it lies."]
    return ["| number | value | profile | test items |", "| --- | --- | --- | --- |", *rows]


def _row(name: str, result: results.Result) -> str:
    """One number of a result as a row of a table in Markdown."""
    metric = tasks.metric(name)
    value = result.metrics[name]
    half_width = metric.half_width(value, result.items, result.half_widths.get(name))
    label = escape.markdown(f"{metric.label} on {result.on or result.dataset}")
    number = report.Estimate(value, None, 1, half_width).text()
    return f"| {label} | {number} {metric.unit} | `{result.profile}` | {result.items} |"


def stored(run: Path, record: dict[str, Any]) -> list[results.Result]:
    """The results of all tasks that scored a run, of those beside it and those that came with the package."""
    with describing(run):
        trained = _what_is_trained(record["settings"], record["recipe"])
    beside = run.resolve().parents[1:2]  # none of a run at the root of a disk
    results_of_run = []
    for result in results.find((*beside, *shipped.RESULTS), dataset=record["dataset"], seed=record["seed"]):
        if _what_is_trained(result.settings, result.recipe) == trained:
            results_of_run.append(result)
    return results_of_run


def _what_is_trained(settings: dict[str, Any], recipe: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What decides the encoders beside data and seed: settings of training, and the recipe under whatever name."""
    return Settings.model_validate(settings).identity(), {**recipe, "name": ""}


def score(
    task: str,
    encoder: str,
    dataset: str,
    *,
    arch: str = "",
    stem: encoders.Stem = "imagenet",
    table: str = "ring/table1",
    profile: str = "auto",
    image_size: int | None = None,
    seed: int | str = 0,
    out_dir: str | Path = "runs",
) -> report.Report:
    """Score an encoder from elsewhere and its untrained floor, store both results, and give the table they stand in.

    ``encoder`` is ``timm:resnet18``, ``torchvision:resnet50`` or another architecture, which has no weights and is the
    floor alone; or a file of weights of the architecture ``arch``, ``.safetensors`` or of ``torch.save``. ``stem`` is
    of our ResNets; ``cifar`` is for small pictures. ``table`` has the task, and its protocol is taken; ``image_size``
    is the side of the views, by default the profile's. ``seed`` decides the untrained weights and what the task draws.
    """
    check_name("task", task, tasks.TASKS)
    plan = read_plan(*parse_target(table))
    column_name, column = _column(plan, task, dataset)
    _check_architecture(encoder, arch)
    profile = choose_profile(profile, plan.profiles)
    first_seed, *_ = parse_seeds(seed)
    settings = plan.settings(column.data, plan.floor, profile, column)
    settings = settings.override(arch=arch or encoder, stem=stem, width=1.0)
    if image_size is not None:
        settings = settings.override(image_size=image_size)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    question = Question(task, data.load(dataset), settings, profile, first_seed, device)
    for result in _results(question, encoder, arch):
        results.save(result, out_dir)
    stored = results.find((out_dir, *shipped.RESULTS), profile=profile)
    return report.table(plan, stored, column.data, profile, column=column_name)


def _check_architecture(encoder: str, arch: str) -> None:
    """Refuse a file of weights without the architecture that they are of."""
    is_file = Path(encoder).suffix in (".safetensors", ".pth", ".pt", ".tar", ".ckpt")
    check(arch or not is_file, "arch", arch, f"the architecture of {encoder}, such as resnet50 or timm:resnet50")


def _results(question: Question, encoder: str, arch: str) -> Iterator[results.Result]:
    """The result of the trained network, where there is one, and that of the same network untrained."""
    settings = question.settings
    with fixed(question.seed):
        floor = encoders.build(settings.arch, in_channels=question.data.test.channels, stem=settings.stem, head="none")
    if arch:
        path = Path(encoder)
        network = copy.deepcopy(floor)
        spelling = foreign.fill(network.backbone, path, arch)
        say(f"{path.name}: tensors by the names of {spelling}")
        yield result_of(network, question, f"{path.name} ({arch})")
    else:
        say(f"{encoder} has no weights, so it is scored untrained; --encoder FILE --arch {encoder} scores trained ones")
    yield result_of(floor, question, settings.arch, weights=results.UNTRAINED)


def _column(plan: TablePlan, task: str, dataset: str) -> tuple[str, Column]:
    """The column of a table whose task scores on a data set, with its name."""
    for name, column in {**plan.columns, **plan.select(dataset)}.items():
        if column.task == task and (column.on or column.data) == dataset:
            return name, column
    raise NotApplicableError(f"{plan.name} has no column of the task {task} on {dataset}; another --table may")
