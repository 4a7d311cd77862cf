"""The playground: its module in Chromium computes what the library computes, says what it says, and can be used."""

import itertools
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from contrastbook import figures
from contrastbook.figures import playground
from contrastbook.figures.playground import CHOICES, PRESETS, STOPS, State
from contrastbook.figures.playground_data import source
from contrastlab import keys, methods, negatives, objectives, positives, scores, views
from contrastlab.information import exact
from contrastlab.negatives import BatchRandom
from contrastlab.objectives import Scores
from contrastlab.scores import divergences, schedules
from contrastlab.scores.candidates import Candidates
from contrastlab.support import errors

NAMED = (keys, methods, negatives, objectives, positives, scores, views)  # by the Python on the page
MODULES = {module.__name__.rpartition(".")[2]: module for module in NAMED}
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>playground</title>
<style>article {{ max-width: 701px; margin: auto }}</style><body><article>{}</article>
<div style="height: 3000px"></div></body></html>"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("page") / "playground.html"
    path.write_text(PAGE.format(playground.html()), encoding="utf-8")
    return path.as_uri()


@pytest.fixture
def open_page(offline_page: Callable[..., Any], address: str) -> Callable[..., Any]:
    """``open_page("#play-jcl", width=390)``: the page at a place, of some width."""

    def opened(place: str = "", width: int = 1300, motion: str = "no-preference") -> Any:
        until = f"() => {ROOT}.playground"
        return offline_page(address + place, until, width=width, reduced_motion=motion, has_touch=width < 600)

    return opened


ROOT = "document.getElementById('playground-live')"
HANDLE = f"{ROOT}.playground"


@pytest.fixture(scope="module")
def still(browser: Any, address: str) -> Iterator[Any]:
    """A page that is paused, for its functions."""
    page = browser.new_page()
    page.goto(address)
    page.evaluate(f"() => {HANDLE}.run(false)")
    yield page
    page.close()


# ------------------------------------------------------------------------------------------- what the library computes

GRAPH = {"circle": 7, "views": 4, "near": 1, "common": 1}
REGIONS: dict[str, dict[str, Any]] = {
    "every": {"negatives": "every"},
    "ball": {"negatives": "ball", "outer": 15},
    "ring": {"negatives": "ring", "inner": 5, "outer": 30},
    "annealed ring": {"negatives": "ring", "inner": 2, "outer": 15, "anneal": 1, "begin": 0.2, "width": 0.5},
}


def points(kind: str, count: int, generator: torch.Generator) -> Tensor:
    """``[count, 3]`` unit vectors."""
    z = torch.randn(count, 3, generator=generator, dtype=torch.float64)
    if kind == "near collapse":
        z = 1e-4 * z + torch.tensor([0.6, 0.0, 0.8], dtype=torch.float64)
    elif kind == "collapse":
        z = torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64).repeat(count, 1)
    elif kind == "axes":
        axis = torch.randint(6, (count,), generator=generator)
        z = (1 - 2 * (axis % 2).double())[:, None] * F.one_hot(axis // 2, 3).double()
    elif kind == "mirrored":
        z[::2, 2] = 0
        z[3::4] = z[1::4][: len(z[3::4])] * torch.tensor([1.0, 1.0, -1.0], dtype=torch.float64)
    return F.normalize(z, dim=1)


KINDS = ("random", "near collapse", "collapse", "axes", "mirrored")


def accepted(make: Callable[[], Any]) -> bool:
    try:
        make()
    except errors.ContrastLabError:
        return False
    return True


def configurations() -> list[State]:
    """Every combination of keys, positives, objective, divergence and region that the library does not refuse."""
    found = []
    losses = [(loss, "kl") for loss in CHOICES["objective"] if loss != "fmicl"]
    losses += [("fmicl", divergence) for divergence in CHOICES["divergence"]]
    for where, same, (loss, divergence), region in itertools.product(
        CHOICES["keys"], CHOICES["positives"], losses, REGIONS.values()
    ):
        if region.get("anneal") and loss == "fmicl" and divergence not in ("kl", "tsallis"):
            continue
        state = State(
            keys=where, positives=same, objective=loss, divergence=divergence, size=30, count=3, strength=2, closest=10,
            order=1.7, weight=5, sigma2=0.3, align=0.5, uniform=2, t=3, tau=0.15, steps=200, **GRAPH, **region,
        )  # fmt: skip
        if not accepted(state.check):
            continue
        found.append(state)
        if same == "joint":
            found.append(replace(state, strength=0))
    found.append(State(keys="queue", positives="joint", strength=0, objective="without", size=30, **GRAPH))
    return found


def batch_of(state: State, generator: torch.Generator) -> dict[str, Any]:
    """Queries, M keys of each, and a queue, by chance."""
    table = torch.from_numpy(figures.view_table(state.near, state.common, views=state.views, circle=state.circle))
    order = torch.rand(2, *table.shape, generator=generator).argsort(2)
    many = state.count if state.positives in ("many", "joint") else 1
    drawn = [table.gather(1, o) for o in order]
    queue = torch.randn(state.size, 3, generator=generator, dtype=torch.float64)
    return {"queries": drawn[0][:, 0], "keys": drawn[1][:, :many].T, "queue": F.normalize(queue, dim=1)}


def reference(state: State, z: Tensor, batch: dict[str, Any], step: int) -> tuple[float, Tensor, list[list[int]]]:
    """Loss, gradient and chosen keys as the training loop gets them, with scores summed in the page's order."""
    recipe = state.check()
    free = z.clone().requires_grad_()
    unit = F.normalize(free, dim=1)
    q = unit[batch["queries"]]
    stored = state.keys == "queue"
    own_keys = unit.detach()[batch["keys"]] if stored else unit[batch["keys"]]  # [M, B, 3]
    rows = torch.arange(len(q))
    pool, own, banned = {
        "across": lambda: (own_keys[0], rows, None),
        "both": lambda: (torch.cat([own_keys[0], q]), rows, rows[:, None] + len(q)),
        "within": lambda: (q, None, rows[:, None]),
        "queue": lambda: (batch["queue"], None, None),
    }[state.keys]()

    def scores(a: Tensor, b: Tensor) -> Tensor:
        return (a[..., 0] * b[..., 0] + a[..., 1] * b[..., 1] + a[..., 2] * b[..., 2]) / recipe.temperature

    found = Candidates(scores(q[:, None], pool[None]), own, banned=banned)
    draws = BatchRandom(torch.Generator().manual_seed(0))
    chosen = recipe.negatives.select(found, draws, step, state.steps)
    others = recipe.positives.select(found, chosen, draws, step, state.steps)
    pair, lift = scores(q, own_keys[0]), None
    if isinstance(recipe.positives, positives.Many | positives.Joint):
        pair, lift = recipe.positives.pair(scores(q[:, None], own_keys.transpose(0, 1)), step, state.steps)
    taken = None if others is None else found.read(others)
    values = found.read(chosen)
    size = chosen.count(found.shape[1])
    rows_ = recipe.objective(Scores(pair, values, taken, size, lift, 1 / recipe.temperature))
    reduce = recipe.objective.reduce if isinstance(recipe.objective, objectives.AlignUniform) else torch.mean
    loss = reduce(rows_)
    (gradient,) = torch.autograd.grad(loss, free, allow_unused=True)
    inside = values.detach() > objectives.ABSENT / 2
    if chosen.indices is None:
        sets = [row.nonzero()[:, 0].tolist() for row in inside]
    else:
        sets = [sorted(row.tolist()) for row in chosen.indices]
    return loss.item(), gradient, sets


@pytest.mark.slow
def test_loss_gradient_and_chosen_keys_are_those_of_the_library(still: Any) -> None:
    states = configurations()
    assert len(states) >= 190
    assert {(s.objective, s.negatives, s.positives) for s in states} >= {
        ("infonce", "ring", "joint"), ("without", "ball", "neighbours"), ("fmicl", "ring", "many"),
        ("au", "every", "many"), ("spectral", "ball", "one"),
    }  # fmt: skip
    cases = []
    for number, state in enumerate(states):
        for kind in {KINDS[number % 5], KINDS[(number + 3) % 5]}:
            generator = torch.Generator().manual_seed(number)
            z = points(kind, int(state.table.max()) + 1, generator)
            cases.append((kind, state, z, batch_of(state, generator), int(number % 3 * 60)))
    sent = [
        {
            "state": asdict(state), "step": step, "z": z.flatten().tolist(), "queries": batch["queries"].tolist(),
            "keys": batch["keys"].tolist(), "queue": batch["queue"].flatten().tolist(),
        }
        for _, state, z, batch, step in cases
    ]  # fmt: skip
    computed = still.evaluate(
        f"""cases => cases.map(c => {{
          const batch = {{queries: c.queries, keys: c.keys, queue: Float64Array.from(c.queue)}};
          const out = {HANDLE}.engine.batchLoss(Float64Array.from(c.z), batch, c.state, c.step, c.state.steps);
          return [out.loss, [...out.gradient], out.chosen];
        }})""",
        sent,
    )
    for (kind, state, z, batch, step), (loss, gradient, chosen) in zip(cases, computed, strict=True):
        where = f"{kind}: {state}"
        expected, slope, sets = reference(state, z, batch, step)
        assert chosen == sets, where
        assert abs(loss - expected) <= 1e-9 * max(1, abs(expected)), where
        got = torch.tensor(gradient, dtype=torch.float64).reshape(-1, 3)
        largest = slope.abs().max().item()
        assert (got - slope).abs().max() <= 1e-9 * max(1, largest), where
        if kind in ("random", "axes", "mirrored"):
            assert (got - slope).abs().max() <= 1e-9 * largest, where


def joint_of(state: State) -> exact.Joint:
    """Of two views of one item."""
    given = F.one_hot(torch.from_numpy(state.table)).double().mean(1)
    return exact.Joint.of(given.T @ given)


def test_the_graph_and_its_information_are_exact(still: Any) -> None:
    numbers = itertools.product((7, 10, 12), (2, 4, 6), (0, 1, 2, 3), (0, 1, 3, 5))
    asked = [dict(zip(("circle", "views", "near", "common"), each, strict=True)) for each in numbers]
    states = [State(**each) for each in asked if accepted(lambda each=each: State(**each))]
    assert len(states) > 30
    sent = [asdict(state) for state in states]
    engine = f"{HANDLE}.engine"
    tables = still.evaluate(f"states => states.map(s => {engine}.viewTable(s))", sent)
    nats = still.evaluate(
        f"states => states.map(s => {engine}.information({engine}.viewTable(s))).map(i => [i.nats, [...i.alone]])", sent
    )
    for state, table, (information, alone) in zip(states, tables, nats, strict=True):
        assert table == state.table.tolist()
        joint = joint_of(state)
        assert abs(joint.mutual_information - information) < 1e-12
        assert np.abs(joint.x - alone).max() < 1e-15


def test_the_schedule_is_the_library_s(still: Any) -> None:
    cases = [
        (start, end, begin, until, step, total)
        for start, end in ((100, 15), (10, 50))
        for begin, until in ((0, 0.1), (0.5, 0.6), (0.3, 1))
        for total in (100, 500)
        for step in (0, 1, total // 10, total // 2, total // 2 + 7, total - 1, 2 * total)
    ]
    got = still.evaluate(f"cases => cases.map(c => {HANDLE}.engine.linear(...c))", [list(case) for case in cases])
    for (start, end, begin, until, step, total), value in zip(cases, got, strict=True):
        assert abs(schedules.Linear(start, end, until, begin).value(step, total) - value) < 1e-12


def test_measures_are_what_they_are_called(still: Any) -> None:
    state = replace(PRESETS[2].state, seed=3)
    z, table, measured = still.evaluate(
        f"""state => {{ const world = new ({HANDLE}.engine.World)(state);
          for (let i = 0; i < 40; i++) world.step(state);
          return [[...world.z], world.table, world.measures(state, true)]; }}""",
        asdict(state),
    )
    x = torch.tensor(z, dtype=torch.float64).reshape(-1, 3)
    slots = x[torch.tensor(table)]  # [60, 4, 3]
    pairs = (slots[:, :, None] - slots[:, None]).square().sum(3)
    assert abs(pairs.mean().item() - measured["alignment"]) < 1e-12
    weight = F.one_hot(torch.tensor(table)).double().mean((0, 1))
    kernel = (-2 * (x[:, None] - x[None]).square().sum(2)).exp()
    assert abs((weight @ kernel @ weight).log().item() - measured["uniformity"]) < 1e-12
    item = F.normalize(slots.mean(1), dim=1)
    cosines = item @ item.T - 9 * torch.eye(60)
    nearest = cosines > cosines.amax(1, keepdim=True) - 1e-5
    label = torch.arange(60) // 10
    right = (nearest & (label[:, None] == label)).sum(1) / nearest.sum(1)
    assert abs(100 * right.mean().item() - measured["right"]) < 1e-4
    assert abs(np.log(60) - measured["loss"] - measured["bound"]) < 1e-12


def turned_states() -> list[State]:
    """Every combination of choices, each with other numbers, and every stop of every number at least once."""
    rng = random.Random(0)
    unused = {name: list(stops) for name, stops in STOPS.items()}

    def numbers() -> dict[str, Any]:
        drawn = {}
        for name, stops in STOPS.items():
            if name not in ("circle", "views", "near", "common", "anneal"):
                drawn[name] = unused[name].pop() if unused[name] else rng.choice(stops)
        return drawn

    names = ("keys", "positives", "objective", "divergence", "negatives")
    return [
        State(**dict(zip(names, chosen, strict=True)), anneal=anneal, **numbers())
        for chosen in itertools.product(*(CHOICES[name] for name in names))
        for anneal in (0, 1)
        if chosen[2] == "fmicl" or chosen[3] == "kl"
    ]


def test_equation_python_and_refusals_are_the_library_s(still: Any) -> None:
    states = turned_states()
    said = still.evaluate(
        f"""states => {{ const {{engine, data}} = {HANDLE};
          return states.map(s => [engine.equation(s, data), engine.python(s, data), engine.refusal(s, data),
                                  engine.bounded(s, data)]); }}""",
        [asdict(state) for state in states],
    )
    accepted = 0
    for state, (equation, code, refusal, bounded) in zip(states, said, strict=True):
        reason, recipe = "", None
        try:
            recipe = state.check()
        except errors.ContrastLabError as error:
            reason = str(error).removeprefix("playground/mine: ")
        assert refusal == reason, state
        if recipe is None:
            continue
        accepted += 1
        assert equation == recipe.equation
        made = eval(code, dict(MODULES))  # the Python on the page
        assert made == recipe
        known = recipe.bounds_information and recipe.objective.bound(0.0, 2) is not None
        assert bounded == (known and state.keys != "both")  # a batch of all items twice has more terms than items
    assert accepted > 300
    assert len(states) - accepted > 300


def test_a_graph_is_refused_in_the_library_s_words(still: Any) -> None:
    for graph in ({"views": 3, "near": 2}, {"near": 1, "common": 3}, {"circle": 12, "views": 6, "near": 0}):
        refused = still.evaluate(
            f"g => {HANDLE}.engine.refusal({{...{HANDLE}.data.defaults, ...g}}, {HANDLE}.data)", graph
        )
        with pytest.raises(errors.ArgumentError) as caught:
            State(**graph)
        assert refused == str(caught.value)


def test_source_makes_the_part() -> None:
    for part in (
        keys.InBatch("within", symmetric=False), negatives.Ring(2, schedules.Linear(100, 15, 0.7, 0.2), k=None),
        objectives.InfoNCE(False), objectives.FMICL("tsallis", 1.5, 3.0), positives.Joint(3, 0.5), views.Augmented(4),
    ):  # fmt: skip
        assert eval(source(part), dict(MODULES)) == part


def test_every_equation_is_set(still: Any) -> None:
    rows = still.evaluate(
        f"""() => {{ const {{engine, data}} = {HANDLE}, out = [];
          for (const piece of Object.values(data.pieces)) for (const [tex] of Object.values(piece))
            for (const f of Object.values(data.functions)) out.push(engine.mathml(
              tex.replace("&", "").replaceAll("@f@", f).replace(/@[a-z0-9+-]+@/g, "3.5")));
          return out; }}"""
    )
    assert len(rows) > 100
    assert not [row for row in rows if "\\" in row or "undefined" in row]
    parsed = still.evaluate(
        """rows => rows.map(row => `<math xmlns="http://www.w3.org/1998/Math/MathML">${row}</math>`).filter(
          row => new DOMParser().parseFromString(row, "application/xml").querySelector("parsererror"))""",
        rows,
    )
    assert not parsed


def runs(still: Any, state: State, seeds: range = range(3)) -> dict[str, list[float]]:
    """Measures at the end of a run of each seed, and the share of views at the centre of mass."""
    found = still.evaluate(
        f"""([state, seeds]) => seeds.map(seed => {{
          const mine = {{...state, seed}}, world = new ({HANDLE}.engine.World)(mine);
          for (let i = 0; i < mine.steps; i++) world.step(mine);
          const centre = [0, 0, 0];
          world.z.forEach((x, k) => centre[k % 3] += x / world.views);
          const {{places}} = world.items(), around = [];
          for (let a = 0; a < 6; a++) {{  // mean place of each class
            const m = [0, 0, 0];
            for (let i = 3 * a * mine.circle; i < 3 * (a + 1) * mine.circle; i++) m[i % 3] += places[i];
            around.push(m.map(x => x / (Math.hypot(...m) || 1)));
          }}
          const angles = around.flatMap((m, a) => around.slice(a + 1).map(
            n => Math.acos(Math.min(1, m[0] * n[0] + m[1] * n[1] + m[2] * n[2])) * 180 / Math.PI));
          return {{...world.measures(mine, true), centre: Math.hypot(...centre), narrowest: Math.min(...angles)}};
        }})""",
        [asdict(state), list(seeds)],
    )
    return {name: [row[name] for row in found] for name in found[0]}


def preset(slug: str, **changes: Any) -> State:
    return replace(playground.preset(slug).state, **changes)


def test_there_are_eleven_presets_with_a_knob_each() -> None:
    assert len(PRESETS) == len({p.slug for p in PRESETS}) == 11
    for p in PRESETS:
        p.state.check()
        assert p.knob in STOPS or p.knob in CHOICES
        assert p.sentence.count(".") == 1
    assert set(playground.data()["hints"]) == set(playground.data()["labels"]) == set(asdict(State()))
    joint = joint_of(preset("one-point"))
    assert abs(np.linalg.eigvalsh(joint.table / np.sqrt(joint.product))[-2] - 0.5) < 1e-12


@pytest.mark.slow
def test_presets_show_what_they_say(still: Any) -> None:
    # margins from eight seeds: far outside their range
    even, chance = np.log(np.sinh(4) / 4) - 4, 100 * 9 / 59
    private = runs(still, preset("private"))
    assert max(abs(u - even) for u in private["uniformity"]) < 0.01
    assert abs(np.mean(private["right"]) - chance) < 8
    dense = runs(still, preset("dense"))
    assert min(dense["uniformity"]) > -0.4
    assert min(dense["centre"]) > 0.9
    circles = runs(still, preset("circles"))
    assert min(circles["right"]) > 70
    assert min(circles["right"]) > max(private["right"]) + 30
    early, late = runs(still, preset("early-ring")), runs(still, preset("early-ring", begin=0.5))
    assert max(early["right"]) < min(66, np.mean(late["right"]) - 15)
    poles, kl = runs(still, preset("poles")), runs(still, preset("poles", divergence="kl"))
    assert max(abs(u - np.log((1 + np.exp(-8)) / 2)) for u in poles["uniformity"]) < 0.01
    assert max(abs(u - even) for u in kl["uniformity"]) < 0.02
    uneven = runs(still, preset("uneven"))
    assert max(uneven["narrowest"]) < 70
    assert max(uneven["centre"]) < 0.02
    assert max(uneven["alignment"]) < 0.01
    octahedron, loose = runs(still, preset("uneven", divergence="js")), runs(still, preset("uneven", divergence="kl"))
    assert min(octahedron["narrowest"]) > 80
    assert max(octahedron["alignment"]) < 0.005 < min(loose["alignment"])
    point, opened = runs(still, preset("one-point")), runs(still, preset("one-point", weight=0.6))
    assert min(point["uniformity"]) > -0.01
    assert max(opened["uniformity"]) < -0.08
    cap = runs(still, preset("cap", steps=100))
    assert max(cap["uniformity"]) < even + 0.1
    crowd = [np.mean(runs(still, preset("jcl", strength=s))["uniformity"]) for s in (0, 1, 4, 16)]
    assert (np.diff(crowd) > 0.1).all()
    assert crowd[0] < -1.4
    cold, warm = runs(still, preset("cold")), runs(still, preset("cold", tau=0.2))
    assert min(cold["centre"]) > 0.5
    assert max(warm["centre"]) < 0.1
    hot = runs(still, preset("hot"))
    assert max(hot["alignment"]) < 0.02
    assert min(hot["right"]) > 99.9
    assert max(hot["bound"]) < min(runs(still, preset("circles"))["bound"]) - 1


@pytest.mark.slow
def test_views_stay_on_the_sphere_at_the_ends_of_every_knob(still: Any) -> None:
    states = []
    for base in ({}, {"negatives": "ring"}, {"keys": "queue", "positives": "joint"}, {"objective": "au"},
                 {"objective": "spectral"}, {"positives": "neighbours"}, {"objective": "without", "keys": "both"},
                 *({"objective": "fmicl", "divergence": d} for d in divergences.names())):  # fmt: skip
        for name, stops in STOPS.items():
            for end in (stops[0], stops[-1]):
                state = {"circle": 7, **base, name: end, "origin": "cap" if end == stops[0] else "random"}
                if accepted(lambda state=state: State(**state).check()):
                    states.append(asdict(State(**state)))
    worst = still.evaluate(
        f"""states => states.map(state => {{ const world = new ({HANDLE}.engine.World)(state);
          for (let i = 0; i < 3; i++) world.step(state);
          let off = Number.isFinite(world.loss) ? 0 : 1;
          for (let v = 0; v < world.z.length; v += 3) {{
            const error = Math.abs(Math.hypot(world.z[v], world.z[v + 1], world.z[v + 2]) - 1);
            off = error < 1e-12 ? off : 1;
          }}
          return off; }})""",
        states,
    )
    assert len(states) > 500
    assert [state for state, off in zip(states, worst, strict=True) if off] == []


def test_the_page_is_small_and_whole() -> None:
    script = playground.html().split('<script type="module">')[1]
    assert len(script.encode()) <= 64_000
    assert script.lower().count("</script") == 1
    assert "import" not in playground.module().split("export")[0]
    compact = playground.html("jcl", compact=True)
    assert '"compact": true' in compact
    with pytest.raises(errors.UnknownNameError, match="circles"):
        playground.html("circle")


def test_state_survives_its_address(still: Any) -> None:
    for p in PRESETS:
        for changes in ({}, {"tau": 0.3, "seed": 4}, {"rate": 0.005, "circle": 8}):
            state = asdict(replace(p.state, **changes))
            place, back = still.evaluate(
                f"""([slug, state]) => {{ const {{engine, data}} = {HANDLE};
                  const place = engine.toAddress(state, data.presets.find(p => p.slug === slug), data);
                  const found = engine.fromAddress(place, data);
                  return [place, [found.preset.slug, found.state]]; }}""",
                [p.slug, state],
            )
            assert back == [p.slug, state]
            assert place.startswith(f"#play-{p.slug}")
            assert place.count("&") == sum(value != getattr(p.state, name) for name, value in state.items())
    wrong = "#play-circles&tau=9&nothing=1&objective=best&near=1.5&views=x&outer=&positives=joint"
    found = still.evaluate(f"place => {HANDLE}.engine.fromAddress(place, {HANDLE}.data).state", wrong)
    assert found == asdict(preset("circles"))


def test_an_address_opens_what_it_names(open_page: Callable[..., Any]) -> None:
    page = open_page("#play-one-point&weight=0.8")
    assert page.evaluate(f"() => [{HANDLE}.preset, {HANDLE}.state.weight]") == ["one-point", 0.8]
    page.locator("[data-knob=weight] input").first.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("() => location.hash.includes('weight=1')")
    page.evaluate("() => { location.hash = '#play-hot'; }")
    page.wait_for_function(f"() => {HANDLE}.preset === 'hot'")
    assert page.evaluate(f"() => {HANDLE}.state.tau") == 1


@pytest.mark.slow
def test_it_moves_until_the_run_ends_or_it_is_out_of_sight(open_page: Callable[..., Any]) -> None:
    page = open_page("#play-private")
    page.wait_for_timeout(400)
    assert page.evaluate(f"() => {HANDLE}.world.step_") == 0
    page.locator(".clp-play").click()
    page.wait_for_function(f"() => {HANDLE}.world.step_ > 5")
    page.evaluate("() => window.scrollTo(0, 2500)")
    page.wait_for_timeout(400)
    before = page.evaluate(f"() => [{HANDLE}.world.step_, {HANDLE}.frames]")
    page.wait_for_timeout(400)
    assert page.evaluate(f"() => [{HANDLE}.world.step_, {HANDLE}.frames]") == before
    assert before[0] < 300
    page.evaluate("() => window.scrollTo(0, 0)")
    page.wait_for_function(f"() => !{HANDLE}.playing", timeout=60_000)
    assert page.evaluate(f"() => {HANDLE}.world.step_") == 300
    assert "after 300 steps" in page.locator("[role=status]").text_content()


def test_reduced_motion_shows_the_end_of_a_run_at_once_and_its_numbers(open_page: Callable[..., Any]) -> None:
    page = open_page("#play-circles", motion="reduce")
    page.locator(".clp-play").click()
    page.wait_for_function(f"() => {HANDLE}.world.step_ === 300 && !{HANDLE}.playing")
    page.wait_for_timeout(100)
    label = page.locator(".clp-sphere").get_attribute("aria-label")
    now = page.evaluate(f"() => {HANDLE}.world.measures({HANDLE}.state, true)")
    assert "120 views of 60 items" in label
    for name in ("loss", "alignment", "uniformity"):
        assert f"{name} {now[name]:.3f}" in label
    assert f"nearest right {now['right']:.0f} %" in label
    assert page.evaluate(f"() => {HANDLE}.frames") <= 8
    page.locator("[data-knob=near] input").first.press("ArrowLeft")
    said = "startsWith('Your choice, shared with either neighbour 1: ')"
    page.wait_for_function(f"() => document.querySelector('[role=status]').textContent.{said}")
    page.wait_for_function(f"() => document.querySelector('.clp-sphere').ariaLabel.{said}")


@pytest.mark.parametrize("width", [1300, 390])
def test_knobs_answer_to_keys_and_refused_choices_give_their_reason(open_page: Callable[..., Any], width: int) -> None:
    page = open_page("#play-early-ring", width=width)
    for fold in page.locator("#playground-live > div > details").all():
        if fold.get_attribute("open") is None:
            fold.locator("summary").first.click()
    knobs = page.locator(".clp-knobs")
    joint = knobs.locator("[data-knob=positives] option[value=joint]")
    assert joint.is_disabled()
    assert "keys must be a Queue" in knobs.locator("[data-knob=positives] ul").text_content()
    knobs.locator("[data-knob=keys] select").select_option("queue")
    assert not joint.is_disabled()
    slider = knobs.locator("[data-knob=inner] input")
    slider.focus()
    page.keyboard.press("End")
    assert "percentages below 15" in page.locator(".clp-why").text_content()
    assert page.evaluate(f"() => {HANDLE}.state.inner") == 2
    assert slider.get_attribute("aria-valuetext") == "ℓ (%) 2"
    page.keyboard.press("ArrowRight")
    assert page.evaluate(f"() => {HANDLE}.state.inner") == 5
    assert page.locator(".clp-why").text_content() == ""
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")


def test_arrows_turn_the_sphere_and_a_click_asks_another_item(open_page: Callable[..., Any]) -> None:
    page = open_page("#play-hot", motion="reduce")
    page.wait_for_function(f"() => !{HANDLE}.playing")
    picture = "() => document.querySelector('.clp-sphere').toDataURL()"
    page.wait_for_timeout(100)
    before = page.evaluate(picture)
    page.locator(".clp-sphere").focus()
    page.keyboard.press("ArrowLeft")
    page.wait_for_timeout(100)
    assert page.evaluate(picture) != before
    asked = page.locator(".clp-side .clp-cap").nth(1)
    assert asked.text_content().startswith("Item 1 asks")
    page.keyboard.press("n")
    page.wait_for_timeout(100)
    assert asked.text_content().startswith("Item 2 asks")


# --------------------------------------------------------------------------------------------------------- JupyterLab

MODEL = """(values) => { const heard = {}; const model = {
  values, saved: 0, get: name => values[name], set: (name, value) => { values[name] = value; },
  save_changes: () => { model.saved++; },
  on: (name, act) => { heard[name] = act; }, off: name => { delete heard[name]; },
  say: name => heard[name] && heard[name](), heard }; return model; }"""


def test_the_widget_follows_python_and_tells_it(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "lab.html"
    source = json.dumps(playground.module())
    path.write_text(
        f"""<!doctype html><meta charset="utf-8"><div id="cell"></div><script type="module">
        const blob = new Blob([{source}], {{type: "text/javascript"}});
        window.module = (await import(URL.createObjectURL(blob))).default; </script>""",
        encoding="utf-8",
    )
    page = browser.new_page()
    page.goto(path.as_uri())
    page.wait_for_function("() => window.module")
    state = asdict(preset("jcl"))
    page.evaluate(
        f"""([data, state]) => {{ window.model = ({MODEL})({{data, state, preset: "jcl"}});
          window.stop = window.module.render({{model, el: document.getElementById("cell")}}); }}""",
        [playground.data(), state],
    )
    handle = "document.getElementById('cell').playground"
    assert page.evaluate(f"() => [{handle}.preset, {handle}.state]") == ["jcl", state]
    page.evaluate("() => { model.values.state = {...model.values.state, strength: 4}; model.say('change:state'); }")
    assert page.evaluate(f"() => {handle}.state.strength") == 4
    page.evaluate(f"() => {{ {handle}.change({{tau: 0.5}}); }}")
    page.wait_for_function("() => model.saved > 0 && model.values.state.tau === 0.5")
    assert "#" not in page.evaluate("() => location.href")
    page.evaluate("() => window.stop()")
    left = "() => [document.getElementById('cell').childElementCount, Object.keys(model.heard).length]"
    assert page.evaluate(left) == [0, 0]
    page.close()


def test_the_widget_holds_a_checked_state_and_its_recipe() -> None:
    pytest.importorskip("anywidget")
    import traitlets

    shown = playground.widget("jcl", strength=4)
    assert shown.recipe == preset("jcl", strength=4).recipe()
    assert shown.preset == "jcl"
    assert shown.recipe.positives == positives.Joint(4, 4)
    shown.state = {**shown.state, "tau": 0.5}
    assert shown.recipe.temperature == 0.5
    with pytest.raises((errors.ArgumentError, traitlets.TraitError)):
        shown.state = {**shown.state, "tau": -1}
    with pytest.raises(errors.NotApplicableError, match="must be a Queue"):
        playground.widget("circles", positives="joint")
    with pytest.raises(errors.UnknownNameError, match="temperature"):
        playground.widget("circles", temperature=1)


def test_without_anywidget_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "anywidget", None)
    playground._widget_class.cache_clear()
    with pytest.raises(ImportError, match="anywidget"):
        playground.widget()
    playground._widget_class.cache_clear()
