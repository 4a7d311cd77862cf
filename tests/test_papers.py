"""Published numbers and protocols: data that is read, checked and merged, never typed into code."""

import json
import math
import re
from itertools import product
from pathlib import Path

import pytest

from contrastlab import data, methods, papers
from contrastlab.domains.scenes.views import Channels
from contrastlab.pictures.augmentations import AUGMENTATIONS, augmentation
from contrastlab.settings import Settings
from contrastlab.support.errors import ArgumentError, NotApplicableError
from contrastlab.tables.plan import OWN, OwnSettings
from contrastlab.views import Split

PLANS = papers.plans()
PAPERS = Path(papers.__file__).parent
ALL = [papers.plan(*key) for key in PLANS]

MINIMAL = """
title = "t"
claim = "c"
metric = "linear"
[columns]
cifar10 = "CIFAR10"
[rows]
"ring/ir" = "IR"
"ring/iring" = "IRing"
[pairs]
"ring/iring" = "ring/ir"
[settings]
epochs = 1
batch_size = 11
lr = 1.0
dim = 11
image_size = 11
warmup_epochs = 1
overrides = { a = 1, b = 1 }
linear = { epochs = 1, batch_size = 1 }
[dataset.cifar10]
epochs = 2
batch_size = 12
lr = 2.0
dim = 12
image_size = 12
overrides = { b = 2, c = 2 }
[method."ring/iring"]
epochs = 3
batch_size = 13
lr = 3.0
dim = 13
linear = { epochs = 3 }
[profile.medium]
epochs = 4
batch_size = 14
lr = 4.0
[profile.medium.negatives.Ring]
lr = 4.5
batch_size = 99
[profile.medium.dataset.cifar10]
epochs = 5
batch_size = 15
[profile.medium.method."ring/iring"]
epochs = 6
"""


def test_every_table_is_read_ships_with_the_package_and_is_in_the_catalogue_once() -> None:
    frames = [papers.published(paper, table) for paper in papers.PAPERS for table in papers.tables(paper)]
    for frame in frames:
        assert len(frame)
        assert list(frame.columns) == ["paper", "table", "row", "column", "value", "std", "note"]
        assert frame["value"].map(math.isfinite).all()
        assert not frame.duplicated(["row", "column", "note"]).any()
    there = {(path.parent.name, path.stem) for path in PAPERS.glob("*/table*.csv")}
    assert {(paper, f"table{table}") for paper in papers.PAPERS for table in papers.tables(paper)} == there
    assert {(paper, table) for paper, table in papers.plans()} == {
        (path.parent.name, path.stem.removeprefix("table"))
        for pattern in ("*/table*.toml", "*/figure*.toml")
        for path in PAPERS.glob(pattern)
    }
    assert papers.PAPERS["ring"]["authors"][0] == "Mike Wu"
    entries = papers.catalogue()
    names = [entry.name for entry in entries]
    assert len(set(names)) == len(names)
    assert {name for name in names if "/table" in name} == {f"{paper}/{table}" for paper, table in there}
    root = Path(__file__).parents[1]
    named = {entry.notebook for entry in entries if entry.notebook}
    assert all((root / path).exists() for path in named)
    others = {"nbs/crosses.ipynb"}  # of no table
    assert {f"nbs/{path.name}" for path in (root / "nbs").glob("*.ipynb")} == named | others


@pytest.mark.parametrize("dataset", ["shapes", "silhouettes", "rooms", "clips", "voices", "grammar", "bccd", "lsp"])
def test_a_table_says_which_kinds_of_data_it_pre_trains_on(dataset: str) -> None:
    kind = data.modality_of(dataset)
    for plan in ALL:
        if kind in plan.modalities:
            assert {column.data for column in plan.select(dataset).values()} == {dataset}
        else:
            with pytest.raises(NotApplicableError, match=f"{plan.heading.lower()} has no column for data of {kind}s"):
                plan.select(dataset)


def test_no_table_pre_trains_on_annotated_pictures_and_each_of_them_says_what_it_is() -> None:
    assert {kind for plan in ALL for kind in plan.modalities} == {"image", "scene", "clip", "waveform", "sentence"}
    for name, row in data.PUBLISHED.items():
        reads_objects = row["read"].startswith("domains.detection.data.")
        assert (data.modality_of(name) == "annotated image") == reads_objects, name
    assert data.modality_of("annotated:pictures.json") == "annotated image"
    for name in ("shapes", "silhouettes", "rooms", "clips", "voices", "grammar"):
        assert data.load(name, n_train=20, n_test=20).pretrain.modality == data.modality_of(name)


def test_published_values_signs_and_missing_std() -> None:
    frame = papers.published("ring", 1).set_index(["row", "column"])
    assert frame.loc[("IRing", "CIFAR10"), "value"] == 83.9
    assert frame.loc[("IRing minus base (printed)", "CIFAR10"), "value"] == 2.7
    assert frame["std"].isna().all()
    assert papers.published("fmicl", "2")["std"].notna().any()
    frame = papers.published("ring", 1)
    frame.loc[:, "value"] = 0.0
    assert papers.published("ring", 1)["value"].max() > 80


DASHES = {("cmc/table2", "hmdb51", "cmc/video_v"), ("cmc/table2", "hmdb51", "cmc/video_d")}
"""Table, column and row where the paper prints a dash."""


@pytest.mark.parametrize("plan", ALL, ids=lambda plan: plan.name)
def test_every_row_has_a_published_number_and_every_cell_valid_settings(plan: papers.TablePlan) -> None:
    for (name, column), method in product(plan.columns.items(), plan.rows):
        row = plan.rows[method]
        printed = row != "" and column.in_paper and (column.published != "" or " / " in row)
        printed = printed and (plan.name, name, method) not in DASHES
        assert (plan.published_value(name, method) is not None) == printed, (name, method)
    # data sets of one modality that a plan does not name have the same layers
    named = {*plan.protocol.dataset, *(name for profile in plan.profile.values() for name in profile.dataset)}
    named.update({data.modality_of(name): name for name in data.names()}.values())
    for dataset, method, profile in product(sorted(named), (*plan.rows, *papers.REFERENCES), plan.profiles):
        assert isinstance(plan.settings(dataset, method, profile), Settings)
    assert {"smoke", "laptop", "paper"} <= set(plan.profiles)


@pytest.mark.parametrize("plan", ALL, ids=lambda plan: plan.name)
def test_every_printed_row_is_in_the_plan(plan: papers.TablePlan) -> None:
    if plan.table.startswith("figure"):
        assert not any(column.published for column in plan.columns.values())  # a figure prints no numbers
        return
    frame = papers.published(plan.paper, plan.table)
    frame = frame[~frame["row"].str.contains("(printed)", regex=False)]
    headings = [column.published for column in plan.columns.values()]
    suffixes = {column.suffix for column in plan.columns.values()}
    if suffixes != {""}:  # each row is printed once for every metric
        known = {row + suffix for row in plan.rows.values() if row for suffix in suffixes}
        assert set(frame["row"]) == known | set(plan.others)
        return
    if any(" / " in row for row in plan.rows.values()):
        printed = set(frame["row"] + " / " + frame["column"])
    else:
        names, datasets = ("column", "row") if plan.transposed else ("row", "column")
        printed = set(frame[frame[datasets].isin(headings)][names])
    assert printed == ({name for name in plan.rows.values() if name} | set(plan.others))


@pytest.mark.parametrize("plan", ALL, ids=lambda plan: plan.name)
def test_rows_augmentations_and_part_fields_exist_in_the_library(plan: papers.TablePlan) -> None:
    tried = set()
    for dataset, name, profile in product(plan.datasets, plan.rows, plan.profiles):
        settings = plan.settings(dataset, name, profile)
        changes = (name, repr(settings.overrides))
        recipe = methods.get(name)
        # a table may print a shorter or longer name than another table has for the same method
        first = re.split(r"[-\s^,(]", recipe.label)[0].casefold()
        assert first in plan.label(name).casefold() or name in papers.REFERENCES
        if changes not in tried:
            recipe.override(settings.overrides)
            tried.add(changes)
        if data.modality_of(dataset) not in ("scene", "clip"):
            assert settings.augmentation in AUGMENTATIONS


@pytest.mark.parametrize("plan", ALL, ids=lambda plan: plan.name)
def test_both_arms_of_a_pair_have_the_same_settings(plan: papers.TablePlan) -> None:
    # the papers' own: longer training of decoders on encoders that were not trained; what makes MoCo v2 of MoCo
    longer = {"segmentation"}
    known = {"cmc/table3": longer, "cmc/table4": longer, "jcl/table2": {"augmentation", "head"}}
    stated = known.get(plan.name, set())
    for method, base in plan.pairs.items():
        pair = [plan.settings("plain_shapes", name, "first") for name in (method, base)]
        one, two = (settings.model_dump(exclude={"overrides"} | stated) for settings in pair)
        assert one == two
        # a change may be of the one choice in which the recipes differ
        left, right = (methods.get(name).choices() for name in (method, base))
        same = [name for name in left if left[name] == right[name]]
        one, two = ({k: v for k, v in s.overrides.items() if k.partition(".")[0] in same} for s in pair)
        assert one == two


def test_settings_of_first_are_those_that_were_searched() -> None:
    def made(method: str, settings: Settings) -> tuple[dict, dict]:
        # how often accuracy is watched is no part of what is trained; auto was bf16-mixed where the search ran
        recipe = methods.get(method).override(settings.overrides).describe()
        return recipe, settings.model_dump(exclude={"overrides", "knn_every", "precision"})

    stored = json.loads((Path(__file__).parents[1] / "results/searches/first.json").read_text())["runs"]
    plan = papers.plan("ring", 1)
    for method in plan.rows:
        if plan.rows[method] == "":  # printed by no paper, and so no part of that search
            continue
        chosen = made(method, plan.settings("plain_shapes", method, "first"))
        runs = [run for run in stored if (run["data"], run["method"]) == ("plain_shapes", method)]
        same = [run for run in runs if made(method, Settings(**run["settings"])) == chosen]
        assert same, f"{method}: results/searches/first.json has no run with the settings of first"
        floor = "ours/random_lab" if "cmc" in method else "ours/random"
        [random] = [r["accuracy"] for r in stored if (r["data"], r["method"]) == ("plain_shapes", floor)]
        assert same[0]["accuracy"] > random + 10, method


def test_two_stream_methods_never_lose_their_colours() -> None:
    split = 0
    for plan in ALL:
        for method in plan.rows:
            views = methods.get(method).views
            if isinstance(views, Split) or getattr(views, "space", None) is not None:
                split += 1
                for profile in plan.profiles:
                    assert augmentation(plan.settings("cifar10", method, profile).augmentation, 32).grayscale == 0
    assert split > 30


def test_a_column_may_change_settings_and_add_to_the_name_of_a_row() -> None:
    plan = papers.plan("cmc", 1)
    widths = {name: plan.settings("imagenet", "lab", "paper", column) for name, column in plan.columns.items()}
    assert [s.width for s in widths.values()] == [0.5, 1.0, 2.0, 0.5, 1.0, 2.0]
    assert (widths["two"].linear.lr, widths["two"].linear.epochs, widths["one"].linear.lr) == (50.0, 100, 30.0)
    # top-1 and top-5 of one width are one cell; another width is another one, which keeps its name on other data
    hashes = {name: plan.setup_hash(column, "lab") for name, column in plan.columns.items()}
    assert len(set(hashes.values())) == 3
    assert hashes["half"] == hashes["half_top5"]
    assert list(plan.select("cifar10")) == ["half", "one", "two", "half_top5", "one_top5", "two_top5"]
    assert (plan.published_value("two_top5", "ydbdr_ra"), plan.published_value("half", "lab")) == (89.7, 57.5)
    seven = papers.plan("cmc", 7)
    assert (seven.published_value("conv5", "stl10"), seven.published_value("conv5_mlp", "stl10")) == (83.28, 84.64)


def test_ring_table1_is_the_papers_protocol() -> None:
    plan = papers.plan("ring", 1)
    settings = plan.settings("cifar10", "ir")
    assert (settings.epochs, settings.batch_size, settings.lr, settings.milestones) == (300, 256, 0.03, (200, 250))
    assert (settings.linear.features, settings.linear.weight_decay, settings.linear.epochs) == ("map", 0.0, 100)
    assert plan.settings("cifar10", "cmcring").batch_size == 128
    assert plan.published_difference("cifar10", "iring") == (2.7, "printed")
    assert plan.published_note("cifar10", "cmc") == "two encoders (2x params)"
    assert papers.plan("ring", 2).published_difference("cifar10", "iring_l0") == (-1.8, "derived")
    assert plan.published_value("shapes", "ir") is None
    assert plan.published_difference("shapes", "iring") == (None, "")
    one, two = papers.plan("ring", 1), papers.plan("ring", 2)
    for method in ("ir", "iring"):
        assert one.settings("cifar10", method) == two.settings("cifar10", method)


def test_settings_merge_in_the_documented_order() -> None:
    plan = papers.parse_plan(MINIMAL, "ring/table1.toml")
    cell = plan.settings("cifar10", "iring", "medium")
    assert (cell.epochs, cell.batch_size, cell.lr, cell.dim, cell.image_size) == (6, 15, 4.5, 13, 12)
    assert plan.settings("shapes", "iring", "medium").batch_size == 99
    assert plan.settings("cifar10", "ir", "medium").lr == 4.0
    assert plan.settings("shapes", "ir", "medium").batch_size == 14
    assert cell.warmup_epochs == 1
    assert cell.overrides == {"a": 1, "b": 2, "c": 2}
    assert (cell.linear.epochs, cell.linear.batch_size) == (3, 1)
    assert plan.settings("cifar10", "ir", "medium").epochs == 5
    assert plan.settings("shapes", "ir", "medium").epochs == 4
    # the profiles shared by all tables come after the protocol and before the table's own
    smoke = papers.plan("ring", 1).settings("cifar10", "ir", "smoke").epochs
    own = papers.parse_plan(MINIMAL.replace("profile.medium", "profile.smoke"), "ring/table1.toml")
    assert plan.settings("shapes", "ir", "smoke").epochs == smoke != own.settings("shapes", "ir", "smoke").epochs == 4
    assert plan.settings("cifar10", "iring", "paper").epochs == 3
    assert plan.settings("cifar10", "ir", "paper").epochs == 2
    assert plan.settings("shapes", "ir", "paper").epochs == 1


def test_methods_are_a_string_or_a_list_and_tables_have_the_names_of_stored_results() -> None:
    plan = papers.plan("ring", 1)
    assert plan.resolve_all("all") == tuple(plan.rows)
    assert plan.resolve_all("ir, mocoring,ir") == ("ring/ir", "ring/mocoring")
    assert plan.resolve_all(["ring/la"]) == ("ring/la",)
    assert plan.resolve("random") == "ours/random"
    assert papers.plan("ring", "table1") is papers.plan("ring", 1)
    assert papers.plan("ring", "table5b") is papers.plan("ring", "5b")


LONG = """
title = "t"
claim = "c"

[columns]
cifar10 = "CIFAR10"
digits = { data = "cifar10", on = "digits", metric = "nn1" }
here = { data = "shapes", metric = "knn200" }

[rows]
"ring/ir" = "IR"

[settings]
epochs = 3
"""


def test_a_column_names_data_task_metric_and_printed_column() -> None:
    plan = papers.parse_plan(LONG, "ring/table1.toml")
    short, long = plan.columns["cifar10"], plan.columns["digits"]
    facts = [(c.data, c.on, c.metric, c.task, c.published) for c in (short, long)]
    assert facts == [("cifar10", "", "linear", "linear", "CIFAR10"), ("cifar10", "digits", "nn1", "neighbours", "")]
    assert list(plan.select("cifar10")) == ["cifar10", "digits"]
    assert list(plan.select("cifar10", "digits")) == ["digits"]
    assert list(plan.select("shapes")) == ["here"]
    assert plan.datasets == ("cifar10", "shapes")
    # data that no column names fill each kind of column, without printed numbers
    others = plan.select("fashionmnist")
    assert {(c.data, c.on, c.metric, c.published) for c in others.values()} == {
        ("fashionmnist", "", "linear", ""), ("fashionmnist", "digits", "nn1", ""), ("fashionmnist", "", "knn200", ""),
    }  # fmt: skip
    assert len({plan.setup_hash(c, "ir") for c in plan.select("cifar10").values()}) == 2


def test_the_full_graph_of_pictures_without_depth_is_that_of_their_two_channels() -> None:
    plan = papers.plan("cmc", 4)
    for profile in plan.profiles:
        for name in plan.rows:
            recipe = methods.get(name)
            for dataset, channels in (("camvid", ("L", "ab")), ("rooms", ("L", "ab", "depth", "normal"))):
                made = recipe.override(plan.settings(dataset, name, profile).overrides)
                assert made.views == Channels(channels, "full")


@pytest.mark.parametrize(("paper", "table"), papers.plans())
def test_a_protocol_in_bfloat16_differs_in_precision_alone(paper, table) -> None:
    plan = papers.plan(paper, table)
    for dataset in plan.datasets or ("shapes",):
        for method in plan.rows:
            printed = plan.settings(dataset, method, "paper")
            assert plan.settings(dataset, method, "paper-bf16") == printed.override(precision="bf16-mixed")


def test_precision_is_one_of_a_run_and_part_of_its_setup() -> None:
    plan = papers.plan("ring", 1)
    (column,) = plan.select("cifar10").values()
    mixed = plan.with_precision("bf16-mixed")
    assert plan.with_precision(None) == plan
    assert mixed.settings("cifar10", "ir", "smoke").precision == "bf16-mixed"
    assert mixed.setup_hash(column, "ir", "paper") == plan.setup_hash(column, "ir", "paper-bf16")
    assert mixed.setup_hash(column, "ir", "paper") != plan.setup_hash(column, "ir", "paper")
    with pytest.raises(ArgumentError, match="precision='16': expected None, 32-true, bf16-mixed or auto"):
        plan.with_precision("16")
    assert [papers.is_paper(name) for name in ("paper", "paper-bf16", "laptop", "regime")] == [True, True, False, False]


SWEEPS = [plan for plan in ALL if plan.sweep]
assert {("cmc", "figure6"), ("fmicl", "8")} <= {(plan.paper, plan.table) for plan in SWEEPS}


@pytest.mark.parametrize("plan", SWEEPS, ids=lambda plan: f"{plan.paper} {plan.table}")
def test_no_profile_changes_what_the_rows_of_a_sweep_vary(plan) -> None:
    choice, _, field = plan.sweep.partition(".")
    assert len({getattr(getattr(methods.get(row), choice), field) for row in plan.rows}) > 2
    for profile, (name, column), row in product(plan.profiles, plan.columns.items(), plan.rows):
        assert plan.sweep not in plan.settings(column.data or name, row, profile, column).overrides, (profile, row)
    own = plan.with_settings(OwnSettings(profile="smoke", changes={"overrides": {plan.sweep: 3}}))
    assert own.settings("shapes", next(iter(plan.rows)), OWN).overrides[plan.sweep] == 3
