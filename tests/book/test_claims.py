"""Claims: which there are, what is measured of them, what is said, and how others load it."""

import base64
import io
import math
import re
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from contrastbook.evidence import claims, differences, inference, words
from contrastbook.figures.results import forest
from contrastlab import __main__ as command
from contrastlab import methods, papers
from contrastlab.support.errors import ArgumentError
from contrastlab.tables import results
from contrastlab.tables.profiles import OWN
from test_report import PLAN, result

ROOT = Path(__file__).parents[2]
STORED = results.find(ROOT / "results")


def cells(method: str, values: list[float], profile: str = "laptop"):
    return [result(method, seed, value, profile=profile, items=200) for seed, value in enumerate(values)]


def protocol(table: str) -> str:
    return (Path(papers.__file__).parent / f"{table}.toml").read_text(encoding="utf-8")


def line(frame: pd.DataFrame, method: str, base: str, profile: str = "laptop", column: str = "cifar10") -> pd.Series:
    asked = "method == @method and base == @base and column == @column and table == '1' and profile in [@profile, '']"
    (found,) = frame.query(asked).to_dict("records")
    return pd.Series(found)


def test_every_claim_of_every_plan_has_a_line_and_none_without_a_published_gain_or_its_sign() -> None:
    frame = claims.frame([])
    assert list(frame.columns) == list(claims.COLUMNS)
    assert (frame["verdict"] == "not run").all()
    in_words = frame["published_from"] == "words"
    assert frame["published"].isna().tolist() == in_words.tolist()
    assert (frame["claimed_sign"][in_words].abs() == 1).all()
    signs = np.sign(frame["published"][~in_words])
    assert frame["claimed_sign"][~in_words].where(frame["claimed_sign"][~in_words] != 0, signs).eq(signs).all()
    said = set(frame["paper"][in_words] + frame["table"][in_words] + frame["method"][in_words])
    assert {"cmcfigure4cmc/views_3", "cmcfigure6cmc/k4096", "jclfigure2jcl/lambda0"} <= said
    assert "cmcfigure4cmc/views_1" not in said
    for plan in (papers.plan(*name) for name in papers.plans()):
        mine = frame[(frame["paper"] == plan.paper) & (frame["table"] == plan.table)]
        asked = {
            (column, *pair) for column, pair in product(plan.columns, plan.comparisons)
            if plan.published_difference(column, *pair)[0] is not None or pair[0] in plan.signs
        }  # fmt: skip
        here = {tuple(row) for row in mine[["column", "method", "base"]].to_numpy()}
        assert here <= asked
        for column, method, base in asked - here:  # another table of the paper has the same line
            keys = ["paper", "dataset", "metric", "method", "base", "published"]
            on = [plan.paper, plan.columns[column].data, plan.columns[column].metric, method, base]
            published = plan.published_difference(column, method, base)[0]
            assert (frame[keys] == [*on, published]).all(axis=1).sum() == 1
    assert not frame.duplicated(["paper", "table", "column", "method", "base"]).any()
    # a printed difference wins over the one of rounded rows, for the pair it is printed of and for no other
    assert line(frame, "ring/iring", "ring/ir")["published"] == 2.7
    against = line(frame, "ring/iring", "ring/la")
    assert against["published"] == pytest.approx(83.9 - PLAN.published_value("cifar10", "la"))
    assert against["published_from"] == "derived"


@pytest.mark.parametrize(("paper", "column", "method", "base", "published", "sign"), [
    ("fmicl", "cifar10", "fmicl/kl", "fmicl/simclr", 0.9, 1),
    ("fmicl", "cifar10", "fmicl/kl", "fmicl/au", 0.2, 0),  # printed deviations 0.47 and 0.26
    ("ring", "fashionmnist", "ring/iring", "ring/ir", 0.1, 0),  # rows 91.7 and 91.6
    ("ring", "fashionmnist", "ring/mocoring", "ring/moco", 0.4, 1),
    ("cmc", "nyu", "cmc/full_4", "cmc/core_4", 0.3, 0),  # "equally well"
    ("cmc", "nyu", "cmc/core_4", "cmc/scenes_random", 12.7, 1),
])  # fmt: skip
def test_a_difference_that_the_print_itself_calls_none_claims_no_sign(
    paper: str, column: str, method: str, base: str, published: float, sign: int
) -> None:
    asked = "paper == @paper and column == @column and method == @method and base == @base and table in ['2', '3']"
    (found,) = claims.frame([]).query(asked)[["published", "claimed_sign"]].to_numpy().tolist()
    assert found == [pytest.approx(published), sign]


def test_only_rows_above_an_untrained_encoder_decide_and_it_may_be_one_of_them() -> None:
    def said(untrained: float) -> pd.Series:
        made = cells("ring/ir", [40.0 + k / 10 for k in range(8)])
        made += cells("ring/iring", [50.3, *(50.0 + k / 10 for k in range(1, 8))])
        floor = cells("ours/random", [untrained + k / 100 for k in range(4)])
        return line(claims.frame([*made, *floor], [PLAN]), "ring/iring", "ring/ir")

    above, near, between, below = said(30.0), said(40.2), said(45.0), said(60.0)
    assert {row["p_holm"] < 0.05 for row in (above, near, between, below)} == {True}
    assert (above["above_untrained"], above["verdict"]) == (True, "same sign")
    for row in (near, between, below):  # the first is above it by less than the intervals
        assert (row["above_untrained"], row["verdict"]) == (False, "open")
        assert words.sentence(row) == "open (a row is not above an untrained encoder)"
    frame = claims.frame([r for r in STORED if r.table == "cmc/table2" and r.dataset == "clips"])
    found = frame[frame["base"].str.endswith("random") & frame["gain"].notna()]
    assert found["untrained"].isna().all()
    (clips,) = found.to_dict("records")  # appearance tells nothing there: no stand-in
    assert clips["p_holm"] < 0.05
    assert words.sentence(clips) == "open (clips cannot stand in)"


def test_lines_of_two_tables_and_columns_that_stand_for_others() -> None:
    frame = claims.frame([*cells("ring/ir", [40.0]), *cells("ring/iring", [50.0])])
    mine = frame.query("method == 'ring/iring' and base == 'ring/ir' and column == 'cifar10'")
    assert mine[["table", "gain"]].to_numpy().tolist() == [["1", 10.0]]
    assert set(frame.query("paper == 'vince' and metric == 'linear' and dataset == 'cifar10'")["table"]) == {"1"}
    plan = papers.plan("ring", "5c")
    assert plan.select("fsdd")["fsdd"].stands_for == "audiomnist"
    assert plan.published_value("fsdd", "ring/moco") is None
    assert set(claims.frame([], [plan])["stands_for"]) == {""}
    raw = protocol("ring/table5c")
    with pytest.raises(ArgumentError, match="stands_for 'audiomnits'; did you mean audiomnist"):
        papers.parse_plan(raw.replace('stands_for = "audiomnist"', 'stands_for = "audiomnits"'), "ring/table5c.toml")


def test_a_line_is_what_the_results_say() -> None:
    draw = np.random.default_rng(0)
    base = draw.normal(50, 0.5, 9)
    method = base + 2 + draw.normal(0, 0.3, 9)
    frame = claims.frame([*cells("ring/iring", method.tolist()), *cells("ring/ir", base.tolist()[:8])], [PLAN])
    found = line(frame, "ring/iring", "ring/ir")
    differences = (method - base)[:8]
    (at,) = inference.look(differences.tolist(), 2.7)
    assert found["gain"] == pytest.approx(differences.mean())
    assert (found["low"], found["high"]) == pytest.approx((at.difference.low, at.difference.high))
    assert (found["seeds"], found["used"]) == (8, 8)
    each = dict(part.split(":") for part in found["differences"].split())
    assert list(each) == [str(seed) for seed in range(8)]
    assert [float(v) for v in each.values()] == pytest.approx(differences, rel=1e-5)
    assert found["verdict"] == "same sign"
    # four claims of this table have a published gain on CIFAR-10; three were not run and count all the same
    assert found["p_holm"] == pytest.approx(4 * found["p"])
    assert words.sentence(found) == "same sign"


def test_few_seeds_and_settings_that_were_not_searched_decide_nothing() -> None:
    frame = claims.frame([*cells("ring/ir", [40.0, 40.1, 40.2]), *cells("ring/iring", [50.0, 50.1, 50.3])], [PLAN])
    found = line(frame, "ring/iring", "ring/ir")
    assert (words.sentence(found), found["p"]) == ("open (3 of 8 seeds)", 1)
    assert found["low"] > 9

    def clear(profile: str) -> pd.Series:
        arms = [cells(n, [v + k / 10 for k in range(8)], profile) for n, v in (("ring/ir", 40.0), ("ring/iring", 50.0))]
        arms[1][0] = result("ring/iring", 0, 50.3, profile=profile, items=200)
        found = line(claims.frame([*arms[0], *arms[1]], [PLAN]), "ring/iring", "ring/ir", profile)
        assert found["p_holm"] < 0.05
        return found

    assert words.sentence(clear("paper")) == "same sign"
    assert clear("laptop")[["search", "verdict"]].tolist() == ["bank", "same sign"]
    unsearched = clear("laptop").to_dict() | {"search": "", "verdict": "open"}
    assert words.sentence(unsearched) == "open (settings not searched for both rows)"


def test_other_data_stand_for_those_of_the_paper_and_say_so() -> None:
    def cells_on(dataset: str, method: str, base: float) -> list[results.Result]:
        return [result(method, seed, base + seed / 10, dataset=dataset, profile="laptop") for seed in range(8)]

    made = cells_on("tinyimagenet32", "ring/ir", 40.0) + cells_on("tinyimagenet32", "ring/iring", 50.0)
    made[0] = result("ring/ir", 0, 40.3, dataset="tinyimagenet32", profile="laptop")
    frame = claims.frame(made, [PLAN])
    (found,) = frame[frame["stands_for"] == "cifar10"].to_dict("records")
    assert (found["column"], found["dataset"]) == ("tinyimagenet32", "tinyimagenet32")
    assert found["published"] == 2.7
    assert words.sentence(found) == "same sign, on tinyimagenet32"
    assert "ring 1: IRing − IR, tinyimagenet32 for cifar10" in words.html(frame)
    assert "tinyimagenet32 for cifar10" in forest(frame).axes[0].get_yticklabels()[0].get_text()
    # the paper's own data are still not run, and are not filled by others
    assert line(frame, "ring/iring", "ring/ir")["verdict"] == "not run"
    # data of a folder that this machine has no kind for
    claims.frame([r.model_copy(update={"dataset": "nowhere"}) for r in made], [PLAN])


def test_where_a_paper_says_a_sign_and_no_number_only_zero_can_be_excluded(monkeypatch) -> None:
    plan = papers.plan("cmc", "figure4")
    monkeypatch.setattr(differences, "_rows_of", lambda search: ("cmc/views_2", "cmc/views_3"))
    stored = next(r for r in STORED if (r.dataset, r.profile, r.method) == ("rooms", "laptop", "cmc/core_4"))

    def cell(method: str, seed: int, value: float) -> results.Result:
        settings = plan.settings("rooms", method, "laptop")
        recipe = methods.get(method).override(settings.overrides).describe()
        made = {"settings": settings.model_dump(mode="json"), "recipe": recipe, "metrics": {"miou_L": value}}
        return results.Result.model_validate(
            stored.model_dump(exclude={"config_hash"}) | {"method": method, "seed": seed} | made
        )

    def frame_of(gains: list[float]) -> pd.DataFrame:
        arms = [(cell("cmc/views_2", k, 50.0), cell("cmc/views_3", k, 50.0 + gain)) for k, gain in enumerate(gains)]
        return claims.frame([each for arm in arms for each in arm], [plan]).dropna(subset=["gain"])

    rise = [3.0, 3.1, 2.9, 3.2, 2.8, 3.0, 3.3, 2.7]
    for gains, verdict in ((rise, "same sign"), ([-gain for gain in rise], "opposite sign")):
        frame = frame_of(gains)
        (found,) = frame.to_dict("records")
        assert (found["verdict"], found["claimed_sign"]) == (verdict, 1)
        assert math.isnan(found["published"])
        assert "above 0, in words" in words.html(frame)
        assert [x.get_xdata()[0] for x in forest(frame).axes[0].lines if x.get_marker() == ">"] == [0]
    # an interval around 0 excludes nothing, however narrow: the looks go on, and no size is named
    (found,) = frame_of([0.01, -0.01] * 8).to_dict("records")
    assert (found["verdict"], found["used"]) == ("open", 16)


def test_all_claims_of_a_table_on_one_data_set_share_the_chance_of_a_wrong_sign() -> None:
    raw = protocol("ring/table1")
    second = 'cifar100 = { data = "cifar10", metric = "linear5", published = "CIFAR100" }'
    plan = papers.parse_plan(raw.replace('cifar100 = "CIFAR100"', second), "ring/table1.toml")
    draw = np.random.default_rng(1)
    arms = [
        r.model_copy(update={"metrics": r.metrics | {"linear5": r.metrics["linear"] + draw.normal()}})
        for method, level in (("ring/ir", 50.0), ("ring/iring", 51.0))
        for r in cells(method, (level + draw.normal(0, 0.5, 8)).tolist())
    ]
    frame = claims.frame(arms, [plan])
    here = frame[frame["seeds"] == 8]
    assert sorted(here["metric"]) == ["linear", "linear5"]
    # four claims a column; six of the eight were not run, and count with p = 1
    least = here["p"].idxmin()
    assert here.loc[least, "p_holm"] == pytest.approx(8 * here.loc[least, "p"])
    assert here["p_holm"].tolist() == pytest.approx(inference.holm([*here["p"], *[1.0] * 6])[:2])


@pytest.fixture(scope="module")
def every(claims_once) -> pd.DataFrame:
    """The lines of all stored results, which take seconds."""
    return claims.frame(STORED)


def test_readers_are_told_of_every_profile() -> None:
    names = {profile for name in papers.plans() for profile in papers.plan(*name).profiles}
    cells = [line.split(" | ") for line in words.profiles().splitlines()[2:]]
    assert {profile.strip("|` ") for profile, _, _ in cells} == {*names, OWN}
    assert all(says.endswith(". |") for _, _, says in cells)


def test_the_stored_runs_have_lines_and_a_picture(every) -> None:
    shown = every[every["gain"].notna()].sort_values("gain", kind="stable", ascending=False)
    assert {("ring", "1"), ("fmicl", "2")} <= set(zip(shown["paper"], shown["table"], strict=True))
    shown = shown.iloc[::5]
    axes = forest(every[every["gain"].isna() | every.index.isin(shown.index)]).axes[0]
    assert len(axes.get_yticks()) == len(shown)

    def marked(marker: str) -> list:
        return [line.get_xdata() for line in axes.lines if line.get_marker() == marker]

    assert list(map(len, marked("|"))) == shown["seeds"].tolist()
    assert [x[0] for x in marked("D")] == shown["published"].dropna().tolist()
    assert [x[0] for x in marked("o")] == pytest.approx(shown["gain"].tolist())
    forest(every.iloc[:0]).canvas.draw()
    axes = forest(shown.head(30).assign(gain=[1000.0, *shown["gain"][1:30]])).axes[0]
    assert (axes.get_xlim()[1] < 100, axes.texts[0].get_text()) == (True, "+1000")  # it flattens no other


def test_no_interval_and_no_seed_is_cut_in_silence(every) -> None:
    for (paper, table), mine in every[every["gain"].notna()].groupby(["paper", "table"]):
        axes = forest(mine).axes[0]
        low, high = axes.get_xlim()
        cut = {line.get_ydata()[0] for line in axes.lines[:-1] if any(x < low or x > high for x in line.get_xdata())}
        assert cut == {text.get_position()[1] for text in axes.texts}, (paper, table)
    jcl = every[(every["paper"] == "jcl") & every["low"].notna()]
    assert (axis := forest(jcl).axes[0].get_xlim())[0] < jcl["low"].min() < jcl["high"].max() < axis[1]


def test_others_load_the_same_lines(every, monkeypatch, capsys) -> None:
    monkeypatch.setattr(claims, "frame", lambda stored: every if len(stored) == len(STORED) else pytest.fail("others"))
    assert command.main(["claims", "--results", str(ROOT / "results"), "--csv"]) == 0
    loaded = pd.read_csv(io.StringIO(capsys.readouterr().out), keep_default_na=False, na_values=[""])
    assert list(loaded.columns) == list(every.columns)
    assert loaded["gain"].to_numpy(float) == pytest.approx(every["gain"].to_numpy(float), nan_ok=True)
    assert loaded["claim"].tolist() == every["claim"].tolist()
    assert command.main(["claims", "--results", str(ROOT / "results")]) == 0
    printed = capsys.readouterr().out
    assert "ring 1, cifar10: IRing − IR" in printed
    assert "cmc Figure 4, " in printed


def test_what_has_no_verdict_has_a_price_and_nothing_else_has(every, monkeypatch, capsys) -> None:
    def both(gains: list[float]) -> pd.Series:
        made = [*cells("ring/ir", [40.0] * 4), *cells("ring/iring", gains)]
        cost = made[0].provenance.model_copy(update={"cpu_s": 90.0})
        frame = claims.frame([r.model_copy(update={"provenance": cost}) for r in made], [PLAN])
        return line(frame, "ring/iring", "ring/ir")

    far, near = (both(gains) for gains in ([20.0, 60.0, 20.0, 60.0], [43.0, 43.1, 42.9, 43.0]))
    assert every["core_hours"].notna().tolist() == every["verdict"].isin(("open", "not run")).tolist()
    monkeypatch.setattr(claims, "frame", lambda stored: every)
    assert command.main(["claims", "--prices"]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert len(lines) == every["core_hours"].notna().sum()
    assert all("core-hours" in text or "out of reach on two cores" in text for text in lines)
    assert math.isinf(far["core_hours"])
    # four of eight seeds are there, and one of both rows takes 180 seconds
    assert (near["seeds_needed"], near["core_hours"]) == (8, pytest.approx(0.2))


def test_a_transfer_to_data_on_which_nothing_was_scored_is_out_of_reach(every) -> None:
    transfers = every[(every["paper"] == "ring") & (every["table"] == "3") & (every["dataset"] == "cifar10")]
    not_run = transfers[transfers["verdict"] == "not run"]
    scored_on = set(transfers.loc[transfers["gain"].notna(), "on"])
    assert "fashionmnist" in scored_on
    assert {"dtd", "vggflower"} <= set(not_run["on"]) - scored_on
    assert np.isinf(not_run.loc[~not_run["on"].isin(scored_on), "core_hours"]).all()


def test_the_page_has_a_line_for_each_claim_and_the_files() -> None:
    frame = claims.frame([*cells("ring/ir", [50.0] * 8), *cells("ring/iring", [50.5, 51.0] * 4)], [PLAN])
    texts = re.findall("<td>(.*?)</td>", words.html(frame))
    assert texts[:4] == ["same sign", "ring 1: IRing − IR, cifar10", "+2.7", "+0.75 (+0.48 to +1.02)"]
    assert texts[4:] == ["8", "laptop"]
    assert f"1 of {len(frame)} lines" in words.html(frame)
    content = re.findall(r'download="(.*?)" href="data:.*?;base64,(.*?)"', words.links(frame))
    files = {name: base64.b64decode(text) for name, text in content}
    assert pd.read_csv(io.BytesIO(files["claims.csv"]))["claim"].tolist() == frame["claim"].tolist()
    assert len(pd.read_csv(io.BytesIO(files["claims-columns.csv"]))) == len(claims.COLUMNS)
