"""A recipe as plain values: defaults leave no trace, and what was stored with all fields is still understood."""

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import pytest

from contrastlab import keys, methods, negatives, positives
from contrastlab.methods import CHOICES, canonical
from contrastlab.methods.recipe import plain, types_of
from contrastlab.schedules import Linear

# as stored before defaults were left out: ring Table 1 and fmicl Table 2 on CIFAR-10 at profile pilot
OLD: Mapping[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "ring/iring": (
        {
            "name": "ring/iring", "temperature": 0.07, "views": {"type": "Augmented", "count": 1},
            "keys": {"type": "Bank", "rate": 0.0},
            "negatives": {
                "type": "Ring", "inner": 1, "outer": {"start": 100, "end": 10, "until": 0.5, "begin": 0.0}, "k": 1023,
                "inner_of": "keys", "own": "excluded",
            },
            "positives": {"type": "One"}, "objective": {"type": "InfoNCE", "positive_in_denominator": True},
        },
        {"negatives.k": 1023},
    ),
    "jcl/jcl": (
        {
            "name": "jcl/jcl", "temperature": 0.2, "views": {"type": "Augmented", "count": 6},
            "keys": {"type": "Queue", "size": 4096, "momentum": 0.99, "parts": 8}, "negatives": {"type": "Every"},
            "positives": {"type": "Joint", "count": 5, "strength": 4.0},
            "objective": {"type": "InfoNCE", "positive_in_denominator": True},
        },
        {"keys.size": 4096, "keys.momentum": 0.99},
    ),
    "fmicl/kl": (
        {
            "name": "fmicl/kl", "temperature": 0.5, "views": {"type": "Augmented", "count": 2},
            "keys": {"type": "InBatch", "against": "within", "symmetric": False, "momentum": None},
            "negatives": {"type": "Every"}, "positives": {"type": "One"},
            "objective": {"type": "FMICL", "divergence": "kl", "order": None, "weight": 40.0, "mu": 1.0,
                          "similarity": "gaussian"},
        },
        {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OLD)
def test_an_old_description_is_read_as_todays(name: str) -> None:
    old, changes = OLD[name]
    assert canonical(old) == methods.get(name).override(changes).describe()
    assert canonical(old) != old


def test_a_description_survives_storage_and_defaults_leave_no_trace() -> None:
    for name in methods.names():
        described = methods.get(name).describe()
        assert canonical(json.loads(json.dumps(described))) == described
    assert methods.get("ring/iring").describe() == {
        "name": "ring/iring", "temperature": 0.07, "views": {"type": "Augmented"},
        "keys": {"type": "Bank", "rate": 0},
        "negatives": {"type": "Ring", "outer": {"type": "Linear", "start": 100, "end": 10}, "k": 4095},
        "positives": {"type": "One"}, "objective": {"type": "InfoNCE"},
    }  # fmt: skip
    assert methods.get("random").describe()["keys"] is None


def test_an_identity_has_no_name_and_equal_recipes_one_spelling() -> None:
    one, two = methods.get("ring/la"), methods.get("vince/la")
    assert one.describe() != two.describe()
    assert one.identity() == two.identity()
    assert {"name": "vince/la", **two.identity()} == two.describe()
    assert replace(two, temperature=0.1).identity() != two.identity()
    recipe = methods.get("jcl/jcl")
    whole = replace(recipe, positives=positives.Joint(5, 4), temperature=1)
    real = replace(recipe, positives=positives.Joint(5, 4.0), temperature=1.0)
    assert json.dumps(whole.describe()) == json.dumps(real.describe())


@pytest.mark.parametrize("schedule", [Linear(9, 3, until=0.7), Linear(100, 10)])
def test_a_schedule_is_known_by_its_type_and_in_old_descriptions_by_its_fields(schedule) -> None:
    described = replace(methods.get("ring/ir"), negatives=negatives.Ball(schedule)).describe()
    assert described["negatives"]["outer"]["type"] == type(schedule).__name__
    old = {f.name: getattr(schedule, f.name) for f in fields(schedule)}
    assert canonical({**described, "negatives": {"type": "Ball", "outer": old}}) == described


def test_defaults_are_what_stored_descriptions_leave_out() -> None:
    # a change here changes the meaning of every stored description that leaves the field out
    defaults = {
        kind.__name__: {f.name: f.default for f in fields(kind)} for choice in CHOICES
        for kind in types_of(choice).values() if fields(kind)
    }  # fmt: skip
    assert {
        "Augmented": {"count": 1}, "Split": {"space": "lab", "count": 1, "scaling": "range"},
        "Bank": {"rate": 0.5}, "Queue": {"size": 65536, "momentum": 0.999, "shuffle_groups": 1, "further_view": False},
        "Jigsaw": {"space": None, "count": 1, "weight": 0.5, "against": "own", "scaling": "range"},
        "Offset": {"distance": 64},
        "InBatch": {"against": "both", "symmetric": True, "momentum": None, "predictor": None},
        "Uniform": {"k": 4096, "own": "excluded"},
        "Ring": {"inner": 1.0, "outer": 10.0, "k": 4096, "inner_of": "keys", "own": "excluded"},
        "Ball": {"outer": 10.0, "nearest": None, "k": 4096, "own": "excluded"},
        "Cave": {"outer": 10.0, "k": 4096, "clusters": 300, "runs": 10},
        "Neighbours": {"inner": 1.0, "k": None}, "SameCluster": {"clusters": 300, "runs": 10},
        "Many": {"count": 5}, "Joint": {"count": 5, "strength": 4.0},
        "InfoNCE": {"positive_in_denominator": True}, "BinaryNCE": {"kappa": 2876934.2 / 1281167},
        "LocalAggregation": {"floor": 1e-7},
        "FMICL": {"divergence": "kl", "order": None, "weight": 40.0, "mu": 1.0, "similarity": "gaussian"},
        "AlignUniform": {"align": 1.0, "uniform": 1.0, "t": 2.0},
    }.items() <= defaults.items()  # fmt: skip
    assert plain(keys.Queue()) == {"type": "Queue"}
