"""Tables whose columns turn one knob: what a column changes in a run, and what is drawn of it."""

from __future__ import annotations

import pytest

from contrastbook.figures import tables as draw
from contrastbook.studies import sweep
from contrastlab import methods as recipes
from contrastlab import papers, results, tasks
from contrastlab.data.augmentations import augmentation
from test_report import MACHINE, NOW

VIEWS, RATES, HEAT = (papers.plan("vince", f"figure{number}") for number in (4, 7, 10))


def run(plan, column: str, method: str, seed: int, accuracy: float, bound: float | None = None) -> results.Result:
    asked = plan.select("cifar10")[column]
    settings = plan.settings("cifar10", method, "laptop", asked)
    curve = [] if bound is None else [{"epoch": 1.0, "mi_bound": -1.0}, {"epoch": 2.0, "mi_bound": bound}]
    return results.Result(
        table=plan.name.replace("_", "/"), dataset="cifar10", method=method, seed=seed, profile="laptop",
        task="neighbours", task_config=tasks.get("neighbours", settings).identity(), protocol={}, items=100,
        settings=settings.model_dump(mode="json"), recipe=recipes.get(method).override(settings.overrides).describe(),
        metrics={"nn1": accuracy}, curve=curve, precision="32-true",
        provenance=results.Provenance(
            **MACHINE, data_fingerprint="d", data_note="", started=NOW, finished=NOW, wall_s=1.0
        ),
    )  # fmt: skip


@pytest.mark.parametrize("profile", ["paper", "laptop", "tuned", "first", "smoke"])
def test_a_column_turns_its_knob_in_every_profile(profile: str) -> None:
    for name, column in RATES.columns.items():
        recipe = recipes.get("vince/ir_nce")
        settings = RATES.settings("cifar10", "vince/ir_nce", profile, column)
        assert recipe.override(settings.overrides).keys.rate == sweep.value(name)
    for name, column in HEAT.columns.items():
        settings = HEAT.settings("cifar10", "vince/ball_anneal", profile, column)
        assert recipes.get("vince/ball_anneal").override(settings.overrides).temperature == sweep.value(name)
    for name, column in VIEWS.columns.items():
        assert VIEWS.settings("cifar10", "vince/cmc_nce", profile, column).augmentation == name


def test_a_view_set_changes_one_thing_alone() -> None:
    plain = augmentation("none", 32)
    fields = ("scale", "ratio", "flip", "jitter", "grayscale", "blur", "randaugment")
    changed = {
        name: {field for field in fields if getattr(augmentation(name, 32), field) != getattr(plain, field)}
        for name in VIEWS.columns
    }
    assert changed["none"] == set()
    assert changed["grey"] == {"grayscale"}
    assert changed["flip"] == {"flip"}
    for name in VIEWS.columns:
        if name.startswith("jitter"):
            assert changed[name] == {"jitter"}
            assert augmentation(name, 32).jitter[:3] == (sweep.value(name),) * 3
        if name.startswith("crop"):
            assert changed[name] == {"scale", "ratio"}
    assert augmentation("crop0.2", 32).scale == (0.2, 1.0)
    assert augmentation("crop0.04to0.3", 32).scale == (0.04, 0.3)


def test_a_line_for_each_run_with_its_last_bound() -> None:
    made = [
        run(RATES, "alpha0", "vince/ir_nce", 0, 30.0, 2.0), run(RATES, "alpha0", "vince/ir_nce", 1, 34.0, 2.5),
        run(RATES, "alpha0.9", "vince/ir_nce", 0, 40.0, 1.5), run(RATES, "alpha0.9", "ours/random", 0, 25.0),
    ]  # fmt: skip
    lines = sweep.frame(RATES, made, "cifar10", "laptop")
    trained = lines[lines["method"] == "vince/ir_nce"]
    assert trained[["column", "seed", "accuracy", "bound"]].to_numpy().tolist() == [
        ["alpha0", 0, 30.0, 2.0], ["alpha0", 1, 34.0, 2.5], ["alpha0.9", 0, 40.0, 1.5],
    ]  # fmt: skip
    # an untrained encoder has no bank, and is the same in every column
    random = lines[lines["method"] == "ours/random"]
    assert random["column"].tolist() == list(RATES.columns)
    assert random["bound"].isna().all()
    # no column takes the runs of another
    other = sweep.frame(RATES, made, "cifar10", "laptop", "alpha0.25")
    assert other["method"].tolist() == ["ours/random"]

    drawn = draw.by_value(lines, "α", "cifar10, laptop")
    curve = next(line for line in drawn.axes[0].lines if list(line.get_xdata()) == [0.0, 0.9])
    assert list(curve.get_ydata()) == [32.0, 40.0]
    assert "IR^nce is highest at 0.9" in drawn.get_label()

    points = draw.against_bound(lines, "cifar10, laptop").axes[0]
    dots = {(x, y) for line in points.lines if line.get_marker() == "o" for x, y in line.get_xydata()}
    assert dots == {(2.25, 32.0), (1.5, 40.0)}
    assert {text.get_text() for text in points.texts} == {"alpha0", "alpha0.9"}
    floor = next(line for line in points.lines if line.get_linestyle() == "--")
    assert set(floor.get_ydata()) == {25.0}


def test_nothing_run_is_an_empty_picture() -> None:
    lines = sweep.frame(HEAT, [], "cifar10", "laptop")
    assert draw.by_value(lines, "τ", "cifar10, laptop", logarithmic=True).get_label().endswith("Nothing run.")
    draw.against_bound(lines, "cifar10, laptop").canvas.draw()
