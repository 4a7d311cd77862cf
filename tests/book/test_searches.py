"""Recorded searches: who wins, what a profile takes from that, and results that took something else."""

import importlib
import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from contrastbook.evidence import searches
from contrastlab import data, methods, papers
from contrastlab.data import Splits
from contrastlab.papers import SharedProfile, shared_profiles
from contrastlab.settings import Settings
from contrastlab.support.errors import ArgumentError, CorruptFileError, MissingDataError
from contrastlab.tables import results
from contrastlab.tables.profiles import UNSEARCHED, Scope
from contrastlab.tables.recipes import facts
from contrastlab.tasks import Masks
from test_report import result

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "results/searches"
STORED = results.find(ROOT / "results")
COMPARED = {"lesions": {"ring/iring"}}
"""Rows that a search repeats beside its own, and whose settings another search chose: here the same ones."""
SEARCHED = [
    (p, kind) for p in ("laptop", "tuned") for kind, scope in shared_profiles()[p].kinds.items() if scope.search
]


def off_profile(stored: Iterable[results.Result], folder: Path) -> list[str]:
    """Results of searched profiles that were not computed with what a search chose, a line each with the reason.

    Looked at are those of ``laptop``, ``tuned`` and ``fair`` on data that a search of their row was made on.
    """
    out: list[str] = []
    read = cache(searches.read)
    chosen_by = cache(_chosen)
    setups: dict[tuple[str, ...], set[str]] = {}
    for each in stored:
        if each.profile not in ("laptop", "tuned", "fair"):
            continue
        name = f"{each.method} seed {each.seed} on {each.dataset}, {each.profile}, {each.task}"
        detector = folder / f"detector-{each.task}.json"
        if detector.exists() and read(detector).data == each.dataset:
            differ = _differing(searches.section(detector)[each.task], each.protocol)
            out += [f"{name}: search {detector.stem} chose otherwise: {', '.join(differ)}"] if differ else []
        paper, _, number = each.table.partition("/")
        plan = papers.plan(paper, number.removeprefix("table"))
        search = plan.search(each.dataset, each.method, each.profile)
        if not search:
            continue
        key = (plan.name, each.dataset, each.method, each.profile)
        if key not in setups:  # of every seed and column alike
            columns = plan.select(each.dataset).values()
            setups[key] = {plan.setup_hash(column, each.method, each.profile) for column in columns}
        path = folder / f"{search}.json"
        if each.setup_hash not in setups[key]:
            out.append(f"{name}: its settings are not those of the profile today")
        elif methods.get(each.method).keys is None:  # nothing is trained, by whatever settings
            continue
        elif each.dataset == read(path).data:
            chosen = dict(chosen_by(path, each.method, printed=each.profile == "laptop"))
            inner = chosen.pop("overrides")
            differ = [*_differing(chosen, each.settings), *_differing(inner, each.settings["overrides"])]
            out += [f"{name}: search {search} chose otherwise: {', '.join(differ)}"] if differ else []
    return out


def _chosen(path: Path, method: str, *, printed: bool) -> dict[str, Any]:
    """What a search chose for a row: its own winner's settings where each row has one."""
    row = method if searches.read(path).by_row else ""
    return searches.section(path, row=row, printed=printed)


def _differing(chosen: Mapping[str, Any], used: Mapping[str, Any]) -> list[str]:
    """What a result has in place of what a search chose."""
    said = {key: f"{key} = {used.get(key)!r} instead of {value!r}" for key, value in chosen.items()}
    return [text for key, text in said.items() if used.get(key) != chosen[key]]


def made(folder: Path, accuracies: dict[str, tuple[float | None, ...]]) -> Path:
    """A search of two rows; trial ``x…`` leaves alone what the paper prints."""
    runs: list[dict[str, Any]] = []
    for k, (trial, values) in enumerate(accuracies.items()):
        overrides = {"negatives.k": 255} | ({} if trial.startswith("x") else {"temperature": 0.1 + k / 10})
        settings = {"train_images": 1000, "epochs": 4 + k, "lr": 0.1, "overrides": overrides}
        for row, value in zip(("ring/ir", "ring/iring"), values, strict=False):
            runs.append({"data": "cifar10", "trial": trial, "method": row, "accuracy": value, "settings": settings})
    path = folder / "made.json"
    head = {"held_out": 500, "rows": ["ring/ir", "ring/iring"], "ranges": {"lr": [0.1]}, "free": {"temperature": [1]}}
    path.write_text(json.dumps({**head, "runs": runs}))
    return path


def test_the_mean_over_finished_rows_wins_and_no_row_alone(tmp_path: Path) -> None:
    path = made(tmp_path, {"x0": (40, 41), "x1": (39, 45), "2": (60, 10), "3": (41, 44)})
    assert searches.winner(path)[0] == "3"
    assert searches.winner(path, printed=True)[0] == "x1"
    won = searches.section(path)
    assert won == {"train_images": 1000, "epochs": 21, "lr": 0.1, "overrides": {"temperature": 0.4}}
    assert searches.section(path, printed=True) == {"train_images": 1000, "epochs": 15, "lr": 0.1, "overrides": {}}
    Settings().override(**won)
    wide = searches.table(path)
    assert list(wide.columns) == ["temperature", "ir", "iring", "± (one run)"]  # the rate is the same in all trials
    assert wide.loc["x0"].tolist() == ["as printed", 40, 41, 2.2]
    assert wide.loc["2"].tolist() == [pytest.approx(0.3), 60, 10, 2.2]
    path = made(tmp_path, {"x0": (40, 41), "x1": (90,), "2": (None, 90)})
    assert searches.winner(path)[0] == "x0"
    with pytest.raises(ArgumentError, match="all of its rows have finished"):
        searches.winner(made(tmp_path, {"x0": (40,)}))
    with pytest.raises(ArgumentError, match="random search"):
        searches.winner(FOLDER / "first.json")


def test_each_row_may_have_its_own_winner_but_never_by_default(tmp_path: Path) -> None:
    path = made(tmp_path, {"x0": (40, 41), "x1": (39, 45), "2": (60, 10), "3": (None, 44)})
    assert searches.winner(path, row="ring/ir")[0] == "2"
    assert searches.winner(path, row="ring/iring")[0] == "x1"
    assert searches.winner(path, row="ring/ir", printed=True)[0] == "x0"
    assert searches.section(path, row="ring/ir")["overrides"] == {"temperature": pytest.approx(0.3)}
    with pytest.raises(ArgumentError, match="row='ring/moco': expected one of ring/ir, ring/iring"):
        searches.winner(path, row="ring/moco")
    path.write_text(json.dumps({**json.loads(path.read_text()), "by_row": True}))
    with pytest.raises(ArgumentError, match="each row of this search has its own winner"):
        searches.winner(path)
    assert searches.winner(path, row="ring/iring")[0] == "x1"
    assert searches.sentence(path).endswith("each row has its own winner.")


def test_a_search_says_what_it_cost_and_what_is_none_is_named(tmp_path: Path) -> None:
    path = made(tmp_path, {"x0": (40, 41), "1": (50, 51)})
    stored = json.loads(path.read_text())
    for run in stored["runs"]:
        run |= {"train_cpu_s": 80.0, "probe_cpu_s": 10.0}
    path.write_text(json.dumps(stored))
    assert searches.sentence(path) == "4 runs, 6 core-minutes; highest mean so far, laptop: trial x0, tuned: trial 1."
    assert "laptop: no trial has finished" in searches.sentence(made(tmp_path, {"1": (50, 51)}))
    with pytest.raises(MissingDataError, match="nowhere"):
        searches.read(tmp_path / "nowhere.json")
    for text in ("{", "[]", '{"runs": [{"trial": "1"}], "held_out": 5}', '{"runs": []}'):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(CorruptFileError, match="no stored search"):
            searches.read(tmp_path / "bad.json")


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_a_stored_search_whose_number_is_altered_is_refused(path: Path, tmp_path: Path) -> None:
    text = path.read_text()
    at = re.search(r'"accuracy": (\d)', text)
    assert at is not None
    altered = tmp_path / path.name
    altered.write_text(text[: at.start(1)] + str((int(at[1]) + 1) % 10) + text[at.end(1) :])
    with pytest.raises(CorruptFileError, match="altered"):
        searches.read(altered)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_rows_of_a_stored_search_had_equal_budgets(path: Path) -> None:
    stored = searches.read(path)
    seeds = [(run["trial"], run["method"], run["seed"]) for run in searches.record(path)["runs"]]
    assert len(set(seeds)) == len(seeds) or not stored.rows
    for trial in {run.trial for run in stored.runs} if stored.rows else ():
        runs = [run for run in stored.runs if run.trial == trial]
        assert all(run.settings == runs[0].settings for run in runs)
        assert {run.method for run in runs} <= set(stored.rows)


@pytest.mark.parametrize(("profile", "kind"), SEARCHED, ids=str)
def test_a_searched_profile_is_what_its_search_chose(profile: str, kind: tuple[str, str]) -> None:
    shared = shared_profiles()[profile]
    path = FOLDER / f"{shared.kinds[kind].search}.json"
    assert shared.kinds[kind].settings == searches.section(path, printed=profile == "laptop")
    # what all trials shared is the same in the profile, as far as it decides what is trained
    _, won = searches.winner(path, printed=profile == "laptop")
    for method in searches.read(path).rows:
        for plan in (papers.plan(*name) for name in papers.plans()):
            if method not in plan.rows or "cifar10" not in plan.datasets:
                continue
            settings = plan.settings("cifar10", method, profile)
            tried = Settings(**won).override(epochs=settings.epochs, precision=settings.precision)
            assert settings.identity() == tried.identity(), plan.name
            recipe = methods.get(method)
            assert recipe.override(settings.overrides).identity() == recipe.override(tried.overrides).identity()


def test_what_a_shared_profile_says_of_a_kind_of_part_or_a_name_wins_in_order(monkeypatch) -> None:
    base = SharedProfile.model_validate({"lr": 0.1, "epochs": 5, "keys": {"Queue": {"lr": 0.2, "search": "queue"}}})
    more = {
        "extends": "base", "epochs": 6, "views": {"Split": {"lr": 0.3}},
        "method": {"jcl/jcl": {"lr": 0.4, "search": "jcl"}},
    }  # fmt: skip
    profiles = {"base": base, "more": SharedProfile.model_validate(more)}
    monkeypatch.setattr("contrastlab.tables.profiles.shared_profiles", lambda: profiles)

    def made(profile: str, method: str) -> tuple[float, int, str]:
        recipe, settings = facts(method), Settings()
        for changes in profiles[profile].layers(recipe):
            settings = settings.override(**changes)
        return settings.lr, settings.epochs, profiles[profile].chosen_by(recipe)

    assert [made("base", m) for m in ("ring/ir", "ring/moco", "jcl/jcl")] == [
        (0.1, 5, ""), (0.2, 5, "queue"), (0.2, 5, "queue")
    ]  # fmt: skip
    # what a profile extends comes first, all of it
    assert [made("more", m) for m in ("ring/cmc", "ring/moco", "jcl/jcl")] == [
        (0.3, 6, ""), (0.2, 6, "queue"), (0.4, 6, "jcl")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("place", "applies"),
    [
        (("keys", "Bank"), True),
        (("keys", "Queue"), False),
        (("modality", "image"), True),
        (("modality", "sentence"), False),
        (("dataset", "cifar10"), True),
        (("dataset", "stl10"), False),
        (("method", "ring/ir"), True),
        (("method", "ring/moco"), False),
        (("modality", "image", "method", "ring/ir"), True),
        (("dataset", "cifar10", "method", "ring/ir"), True),
        (("dataset", "stl10", "method", "ring/ir"), False),
    ],
    ids=lambda value: ".".join(value) if isinstance(value, tuple) else "",
)
def test_a_search_counts_where_the_settings_of_its_scope_do(place: tuple[str, ...], applies: bool) -> None:
    inner: dict[str, Any] = {"search": "inner", "lr": 0.5}
    for name in reversed(place):
        inner = {name: inner}
    scope = Scope.model_validate({"search": "outer", "lr": 0.1, **inner})
    recipe = facts("ring/ir")
    (*_, rate) = [layer["lr"] for layer in scope.layers(recipe, "cifar10", "image") if "lr" in layer]
    chosen = scope.search_for(recipe, "cifar10", "image")
    assert (chosen, rate) == (("inner", 0.5) if applies else ("outer", 0.1))


def searches_of(profile: Scope) -> set[str]:
    """Searches that a table's profile names, for all its rows, a data set or a single row of it."""
    scopes = [profile, *profile.kinds.values(), *profile.dataset.values()]
    rows = [row for scope in scopes for row in scope.method.values()]
    return {scope.search for scope in (*scopes, *rows)} - {"", UNSEARCHED}


TABLE_SEARCHES = [
    (plan, name, search)
    for plan in (papers.plan(*name) for name in papers.plans())
    for name, profile in plan.profile.items()
    for search in sorted(searches_of(profile))
]


@pytest.mark.parametrize(("plan", "profile", "name"), TABLE_SEARCHES, ids=lambda value: getattr(value, "name", value))
def test_a_table_takes_what_its_own_search_chose(plan: papers.TablePlan, profile: str, name: str) -> None:
    path = FOLDER / f"{name}.json"
    stored = searches.read(path)
    rows = set(stored.rows) & set(plan.rows)
    credited = {method for method in rows if plan.search(stored.data, method, profile) == name}
    assert bool(credited) == bool(rows)
    assert rows - credited <= COMPARED.get(name, set())
    for method in rows:
        row = method if stored.by_row else ""
        chosen = searches.section(path, row=row, printed=profile == "laptop")
        _, won = searches.winner(path, row=row, printed=profile == "laptop")
        settings = plan.settings(stored.data, method, profile)
        tried = Settings(**won).override(epochs=chosen.get("epochs", settings.epochs))
        assert settings.identity() == tried.identity()
        if "epochs" not in chosen:  # a search of a task's settings, which trains no encoder
            (task,) = chosen
            assert getattr(settings, task) == getattr(tried, task)
        recipe = methods.get(method)
        # the settings of older searches left out parts that their rows do not have
        if row and recipe.keys is not None:
            assert recipe.override(settings.overrides).identity() == recipe.override(tried.overrides).identity()


def test_a_search_is_credited_for_its_own_settings_and_data_only() -> None:
    plan = papers.plan("cmc", 8)
    assert shared_profiles()["laptop"].chosen_by(facts("cmc/alexnet")) == "two-stream"
    assert plan.search("cifar10", "cmc/alexnet", "laptop") == ""
    assert plan.search("cifar10", "cmc/alexnet", "tuned") == "two-stream"
    plan = papers.plan("fmicl", 2)
    assert plan.search("cifar10", "fmicl/kl", "laptop") == "in-batch"
    assert plan.search("wikisplit", "fmicl/kl", "laptop") == ""
    assert papers.plan("vince", 1).search("cifar10", "vince/ir", "laptop") == "vince"
    assert papers.plan("vince", 1).search("fashionmnist", "vince/ir", "laptop") == "bank"


def test_every_stored_result_of_a_searched_profile_took_what_was_chosen() -> None:
    assert off_profile(STORED, FOLDER) == []
    (floor, *_) = (r for r in STORED if (r.table, r.profile, r.method) == ("cmc/table1", "laptop", "ours/random_lab"))
    other = floor.model_copy(update={"settings": {**floor.settings, "lr": 3.0}})
    assert off_profile([floor, other], FOLDER) == []
    pilot = next(r for r in STORED if (r.profile, r.method, r.task) == ("pilot", "ring/iring", "linear"))
    for profile in ("laptop", "tuned"):
        (line,) = off_profile([pilot.model_copy(update={"profile": profile})], FOLDER)
        assert line.startswith(f"ring/iring seed {pilot.seed} on cifar10, {profile}, linear: ")
    assert off_profile([pilot], FOLDER) == []
    found = [r for r in STORED if (r.dataset, r.profile, r.task) == ("tinyimagenet32", "laptop", "masks")]
    other = [r.model_copy(update={"protocol": {**r.protocol, "lr": 0.005}}) for r in found]
    lines = off_profile(other, FOLDER)
    assert len(lines) == len(other) >= 3  # random and supervised encoders, too
    chosen = searches.section(FOLDER / "detector-masks.json")["masks"]["lr"]
    assert all(f"search detector-masks chose otherwise: lr = 0.005 instead of {chosen}" in line for line in lines)


def test_a_profile_that_is_not_its_searchs_winner_is_refused(tmp_path: Path) -> None:
    ours = [result("ring/iring", seed, 50.0, profile="laptop") for seed in range(2)]
    assert off_profile(ours, FOLDER) == []
    stored = searches.record(FOLDER / "bank.json")
    for run in stored["runs"]:
        run["accuracy"] += 50 * (run["settings"].get("lr") == 0.24)
    (tmp_path / "bank.json").write_text(json.dumps(stored))
    for line in off_profile(ours, tmp_path):
        assert "search bank chose otherwise: " in line
        assert "lr = 0.06 instead of 0.24" in line
    assert len(off_profile(ours, tmp_path)) == len(ours)


@pytest.fixture
def bench(monkeypatch):
    """The modules of the search."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("search"), importlib.import_module("search_spaces")


def test_a_search_reads_no_test_image_stores_each_run_and_repeats_none(bench, pictures, tmp_path, monkeypatch) -> None:
    search, spaces = bench
    made_of = pictures(120, 3, 16)
    trained: list[int] = []
    pretrain = search.pretrain

    def watched(recipe, settings, images, **options):
        trained.append(len(images))
        return pretrain(recipe, settings, images, **options)

    monkeypatch.setattr(search, "FOLDER", tmp_path)
    monkeypatch.setattr(search, "pretrain", watched)
    whole = object.__new__(Splits)  # there is no test part
    object.__setattr__(whole, "train", made_of)
    monkeypatch.setattr(search.data, "load", lambda name: whole)
    start = {
        "image_size": 16, "arch": "tiny", "stem": "cifar", "batch_size": 16, "schedule": "constant", "knn_every": 0,
        "linear": {"solver": "lbfgs", "features": "pooled"}, "overrides": {"negatives.k": 15},
    }  # fmt: skip
    tried = spaces.Search(
        "made", "made", 30, start, rows=("ring/ir", "ours/random"), ranges={"lr": (0.1, 0.2)},
        free={"temperature": (0.5,)}, lengths=((60, 1),), count=4,
    )  # fmt: skip
    search.complete(tried, [0], "as printed", [])
    stored = searches.read(tmp_path / "made.json")
    assert [(run.trial, run.method) for run in stored.runs] == [
        (f"{k} as printed", row) for k in range(2) for row in tried.rows
    ]
    assert sorted(run.settings["lr"] for run in stored.runs) == [0.1, 0.1, 0.2, 0.2]
    assert set(trained) == {90}
    before = (tmp_path / "made.json").read_text()
    search.complete(tried, [0], "as printed", [])
    assert (tmp_path / "made.json").read_text() == before
    search.complete(tried, [0], "", [])
    runs = searches.read(tmp_path / "made.json").runs
    assert len(runs) == 8
    assert {run.settings["overrides"].get("temperature") for run in runs[4:]} == {0.5}


def test_a_search_of_detectors_sees_training_pictures_alone_and_changes_the_task(bench, tmp_path, monkeypatch) -> None:
    search, spaces = bench
    whole, own = data.load("silhouettes", n_train=12, n_test=2), data.load("shapes", n_train=256, n_test=10)
    blind = object.__new__(Splits)  # there is no test part
    for name in ("name", "train", "pretrain"):
        object.__setattr__(blind, name, getattr(whole, name))
    monkeypatch.setattr(search, "FOLDER", tmp_path / "searches")
    monkeypatch.setattr(search.data, "load", {"silhouettes": blind, "shapes": own}.__getitem__)
    scored: list[Splits] = []
    score = Masks.score
    monkeypatch.setattr(Masks, "score", lambda self, e, given: scored.append(given.data) or score(self, e, given))
    short = {"steps": 1, "shorter": [64], "test_shorter": 64, "batch_size": 2, "warmup_steps": 0, "milestones": []}
    tried = spaces.Search(
        "made", "made", 4, {"masks": short}, rows=("ours/random",), ranges={"masks.lr": (0.001, 0.002)},
        metric="mask_ap", data="shapes", longer=1, column="silhouettes_mask",
    )  # fmt: skip
    search.complete(tried, [100], "", [])
    stored = searches.read(tmp_path / "searches/made.json")
    assert [run.settings["masks"]["lr"] for run in stored.runs] == [0.001, 0.002]
    assert stored.runs[0].settings["masks"].items() >= {"steps": 1, "channels": 64}.items()  # the profile's
    for parts in scored:
        assert [parts.train.ids, parts.test.ids] == [whole.train.ids[:8], whole.train.ids[8:]]
    assert len(scored) == 2
    table = searches.table(tmp_path / "searches/made.json")
    assert list(table.columns) == ["masks.lr", "random"]  # an AP is no share of items
    chosen = searches.section(tmp_path / "searches/made.json")
    assert chosen.keys() == {"masks"}
    assert chosen["masks"].keys() == {"lr"}


@pytest.mark.parametrize("path", sorted(FOLDER.glob("detector-*.json")), ids=lambda path: path.stem)
def test_the_profiles_detectors_learn_at_the_rate_that_their_search_chose(path: Path) -> None:
    ((kind, chosen),) = searches.section(path).items()
    for table, paper in ((4, "ring"), (2, "jcl")):
        plan = papers.plan(paper, table)
        settings = plan.settings("tinyimagenet32", next(iter(plan.rows)), "laptop")
        assert getattr(settings, kind).lr == chosen["lr"]


def test_a_search_of_a_tasks_settings_prints_the_section_of_the_task(bench) -> None:
    search, spaces = bench
    printed = search.section(spaces.SEARCHES["rooms-supervised"], row="cmc/scenes_supervised")
    assert printed.splitlines() == ["# trial 1 of rooms-supervised", "[…segmentation]", "lr = 0.003"]


def test_held_out_are_the_last_images_of_each_class_and_all_trials_can_be_made(bench) -> None:
    held_out, searches_ = bench[0].held_out, bench[1].SEARCHES
    labels = torch.tensor([0, 1, 2] * 40)[torch.randperm(120, generator=torch.Generator().manual_seed(0))]
    mask = held_out(labels, 30)
    assert torch.bincount(labels[mask]).tolist() == [10, 10, 10]
    for label in range(3):
        mine = (labels == label).nonzero().flatten()
        assert mask[mine].tolist() == [False] * 30 + [True] * 10
    for search in searches_.values():
        drawn = list(search.trials())
        assert len({(trial, row) for trial, _, row, _ in drawn}) == len(drawn)
        for _, _, row, changes in drawn:
            methods.get(row).override(Settings().override(**search.start).override(**changes).overrides)


def test_a_climb_ends_where_every_neighbour_was_tried_and_none_is_better() -> None:
    spaces = importlib.import_module("search_spaces")
    search = spaces.Search(
        "hill",
        "",
        0,
        {},
        rows=("fmicl/kl",),
        ranges={"lr": (1, 2, 4, 8, 16), "temperature": (0.1, 0.2, 0.5, 1.0)},
        climbs_from={"lr": 2, "temperature": 0.5},
    )

    def climbed(height: dict[tuple[float, float], float | None]) -> dict[str, float | None]:
        measured: dict[str, float | None] = {}
        while (trial := search.next_of_climb(measured)) is not None:
            name, dataset, row, changes = trial
            assert (dataset, row) == ("cifar10", "fmicl/kl")
            assert name not in measured
            at = (changes["lr"], changes["overrides"]["temperature"])
            assert name == f"lr = {at[0]}, temperature = {at[1]}"
            measured[name] = height.get(at, 0.0)
        return measured

    measured = climbed({(2, 0.5): 30.0, (4, 0.5): 40.0, (4, 0.2): 50.0, (1, 0.5): None})
    assert max(measured, key=lambda name: measured[name] or 0) == "lr = 4, temperature = 0.2"
    around = {f"lr = {lr}, temperature = {t}" for lr, t in ((2, 0.2), (8, 0.2), (4, 0.1), (4, 0.5))}
    assert around < set(measured)
    with pytest.raises(ValueError, match=r"the best lr, 1, lies at the end of \(1, 2, 4, 8, 16\)"):
        climbed({(2, 0.5): 30.0, (1, 0.5): 40.0})
