"""Trained encoders that leave for other libraries (``contrastlab export``) and come from them (``contrastlab score``).

One that leaves is a folder: safetensors, ``config.json`` and a model card (``README.md``).
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import torch

from contrastlab import data, encoders, tasks
from contrastlab.domains.export import FILE as TENSORS
from contrastlab.pictures import foreign_networks as foreign
from contrastlab.pictures.augmentations import augmentation
from contrastlab.pictures.limits import own_path
from contrastlab.recipe import CHOICES, Recipe, build, types_of
from contrastlab.settings import Settings
from contrastlab.support import escape, files, shipped
from contrastlab.support.errors import NotApplicableError, check, check_name
from contrastlab.support.seeds import fixed
from contrastlab.tables import report, results
from contrastlab.tables.execution import say
from contrastlab.tables.foreign import one
from contrastlab.tables.plan import plan as read_plan
from contrastlab.tables.profiles import choose_profile
from contrastlab.tables.published import parse_seeds, parse_target
from contrastlab.train.checkpoint import describing, read_run

FILE = "model.safetensors"
_LOADS = {
    "timm": f"network = timm.create_model({{name!r}}, checkpoint_path={FILE!r}, {{given}})",
    "torchvision": f"network = torchvision.models.{{name}}({{given}})  # a classifier stays untrained\n"
    f"network.load_state_dict(safetensors.torch.load_file({FILE!r}), strict=False)",
    "hub-folder": f"networks = contrastlab.encoders.load({FILE!r})  # one for each stream",
}


def export(run: Path | str, to: str, out: Path | str | None = None) -> Path:
    """Write the encoder of a run for ``timm``, for ``torchvision``, or whole as a ``hub-folder``; gives the folder.

    For other libraries it is the backbone of one stream, under their names, as far as they have such a network. The
    folder must be new.
    """
    check(to in _LOADS, "to", to, " or ".join(_LOADS))
    record, networks = read_run(Path(run)), encoders.load(Path(run))
    folder = own_path("out", out or f"{record['recipe']['name'].replace('/', '-')}-{to}")
    check(not folder.exists(), "out", str(folder), "a folder that does not exist yet")
    with describing(Path(run)):
        settings = Settings.model_validate(record["settings"])
    first = networks[0]
    config: dict[str, Any] = {"architecture": settings.arch}
    load, (tensors, values) = _LOADS[to], files.read_tensors(Path(run) / TENSORS)
    if to != "hub-folder":
        if len(networks) > 1:
            raise NotApplicableError(f"{run} has {len(networks)} encoders and {to} takes one; hub-folder has them all")
        name, arguments = _elsewhere(first, settings, to)
        shown, size = augmentation(settings.augmentation, settings.image_size), settings.image_size
        seen = {"input_size": [first.in_channels, size, size], "mean": shown.mean, "std": shown.std, "num_classes": 0}
        config |= {"architecture": name, "num_classes": 0, "model_args": arguments, "pretrained_cfg": seen}
        tensors, values = first.backbone.state_dict(), {}  # type: ignore[union-attr]
        every = {"num_classes": 0, **arguments} if to == "timm" else arguments
        given = ", ".join(f"{key}={value!r}" for key, value in every.items())
        load = f"{load.format(name=name, given=given)}\n# reads pixels from 0 to 1, less {shown.mean}, over {shown.std}"
    text = card(Path(run), record, to, load)  # before anything is written
    files.write_tensors(folder / FILE, tensors, values)
    files.write_whole(folder / "config.json", json.dumps({**config, "recipe": record["recipe"]}, indent=1) + "\n")
    files.write_whole(folder / "README.md", text)
    return folder


def _elsewhere(network: Any, settings: Settings, to: str) -> tuple[str, dict[str, Any]]:
    """What a library calls the architecture, and the arguments that make it there."""
    library, colon, name = settings.arch.partition(":")
    channels = {} if network.in_channels == 3 else {"in_chans": network.in_channels}
    shared = settings.arch in ("resnet18", "resnet50") and settings.width == 1 and (to == "timm" or not channels)
    if settings.stem == "imagenet" and (shared or library == to):
        return name if colon else settings.arch, {**channels, **settings.arch_options}
    if to == "timm" and settings.arch.startswith("vit_"):
        vit = network.backbone
        sizes = {"img_size": vit.patch_embed.img_size[0], "patch_size": vit.patch, "embed_dim": vit.embed_dim}
        heads = {"depth": len(vit.blocks), "num_heads": vit.blocks[0].attn.num_heads}
        return "vit_small_patch16_224", {**sizes, **heads, **channels}
    what = f"arch={settings.arch}, stem={settings.stem}, width={settings.width:g}, {network.in_channels} channels"
    raise NotApplicableError(f"{to} has no network with {what}; accepted is --to hub-folder")


def card(run: Path, record: dict[str, Any], to: str, load: str) -> str:
    """Markdown: the method's equation and parts, data, settings, and the numbers of tasks with their profiles."""
    described = record["recipe"]
    with describing(run):
        settings = Settings.model_validate(record["settings"])
        parts = {name: described[name] and build(name, described[name], types_of(name)) for name in CHOICES}
        recipe = Recipe(described["name"], described["name"], temperature=described["temperature"], **parts)
    rows = [_row(name, result) for result in stored(run, record) for name in result.metrics]
    heads = ["| number | value | profile | test items |", "| --- | --- | --- | --- |"]
    data = escape.markdown(f"{record['dataset']}: {record.get('data_note') or 'no note'}")
    return "\n".join((
        "---", f"library_name: {to if to == 'timm' else 'contrastlab'}", "tags: [contrastive-learning]", "---",
        f"# {recipe.name}, seed {record['seed']}", "", recipe._repr_markdown_(), "", "```python", load, "```", "",
        f"- Data: {data}; fingerprint `{record.get('data_fingerprint')}`",
        f"- Architecture {settings.arch}, stem {settings.stem}, views of {settings.image_size} pixels",
        f"- Training: epochs {settings.epochs}, batch size {settings.batch_size}; run `{record['hash']}`", "",
        *((*heads, *rows) if rows else ("No task has scored this run where it lies.",)), "",
    ))  # fmt: skip


def _row(name: str, result: results.Result) -> str:
    metric, value = tasks.metric(name), result.metrics[name]
    half = metric.half_width(value, result.items, result.half_widths.get(name))
    label, text = f"{metric.label} on {result.on or result.dataset}", report.Estimate(value, None, 1, half).text()
    return f"| {escape.markdown(label)} | {text} {metric.unit} | `{result.profile}` | {result.items} |"


def stored(run: Path, record: dict[str, Any]) -> list[results.Result]:
    """The results of all tasks that scored a run, of those beside it and those that came with the package."""
    with describing(run):
        wanted = Settings.model_validate(record["settings"]).identity(), {**record["recipe"], "name": ""}
    beside = run.resolve().parents[1:2]  # none of a run at the root of a disk
    every = results.find((*beside, *shipped.RESULTS), dataset=record["dataset"], seed=record["seed"])
    own = [(r, (Settings.model_validate(r.settings).identity(), {**r.recipe, "name": ""})) for r in every]
    return [r for r, what in own if what == wanted]


def score(
    task: str, encoder: str, dataset: str, *, arch: str = "", stem: encoders.Stem = "imagenet",
    table: str = "ring/table1", profile: str = "auto", image_size: int | None = None, seed: int | str = 0,
    out_dir: str | Path = "runs",
) -> report.Report:  # fmt: skip
    """Score an encoder from elsewhere and its untrained floor, store both results, and give the table they stand in.

    ``encoder`` is ``timm:resnet18``, ``torchvision:resnet50`` or another architecture, which has no weights and is the
    floor alone; or a file of weights of the architecture ``arch``, ``.safetensors`` or of ``torch.save``. ``stem`` is
    of our ResNets; ``cifar`` is for small pictures. ``table`` has the task, and its protocol is taken; ``image_size``
    is the side of the views, by default the profile's. ``seed`` decides the untrained weights and what the task draws.
    """
    check_name("task", task, tasks.TASKS)
    plan, path, architecture = read_plan(*parse_target(table)), Path(encoder), arch or encoder
    every = ((name, c) for name, c in {**plan.columns, **plan.select(dataset)}.items() if c.task == task)
    name, column = next((each for each in every if (each[1].on or each[1].data) == dataset), ("", None))
    if column is None:
        raise NotApplicableError(f"{table} has no column of the task {task} on {dataset}; another --table may")
    file = path.suffix in (".safetensors", ".pth", ".pt", ".tar", ".ckpt")
    check(arch or not file, "arch", arch, f"the architecture of {encoder}, such as resnet50 or timm:resnet50")
    chosen, (drawn, *_) = choose_profile(profile, plan.profiles), parse_seeds(seed)
    settings = plan.settings(column.data, plan.floor, chosen, column).override(arch=architecture, stem=stem, width=1.0)
    settings = settings if image_size is None else settings.override(image_size=image_size)
    splits, device = data.load(dataset), "cuda" if torch.cuda.is_available() else "cpu"
    with fixed(drawn):
        floor = encoders.build(architecture, in_channels=splits.test.channels, stem=stem, head="none")
    given = (settings, chosen, drawn, device)
    if arch:
        network = copy.deepcopy(floor)
        say(f"{path.name}: tensors by the names of {foreign.fill(network.backbone, path, arch)}")
        results.save(one(network, task, splits, f"{path.name} ({arch})", *given), out_dir)
    else:
        say(f"{encoder} has no weights, so it is scored untrained; --encoder FILE --arch {encoder} scores trained ones")
    results.save(one(floor, task, splits, architecture, *given, weights=results.UNTRAINED), out_dir)
    known = results.find((out_dir, *shipped.RESULTS), profile=chosen)
    return report.table(plan, known, column.data, chosen, column=name)
