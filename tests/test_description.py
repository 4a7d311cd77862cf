"""A recipe as plain values, from which its parts can be made again: defaults leave no trace."""

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import pytest

from contrastlab import keys, methods, negatives, positives
from contrastlab.recipe import CHOICES, build, plain, types_of
from contrastlab.scores import choices
from contrastlab.scores.schedules import Linear
from contrastlab.support.errors import ArgumentError, UnknownNameError


def read(described: Mapping[str, Any]) -> dict[str, Any]:
    """The choices of a recipe that is made from its description, described anew."""
    parts = {name: described[name] and build(name, described[name], types_of(name)) for name in CHOICES}
    return {name: plain(part) for name, part in parts.items()}


def test_a_description_survives_storage_and_defaults_leave_no_trace() -> None:
    for name in methods.names():
        described = methods.get(name).describe()
        assert read(json.loads(json.dumps(described))) == {choice: described[choice] for choice in CHOICES}
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


def test_a_schedule_is_known_by_its_type() -> None:
    described = replace(methods.get("ring/ir"), negatives=negatives.Ball(Linear(9, 3, until=0.7))).describe()
    assert described["negatives"]["outer"] == {"type": "Linear", "start": 9, "end": 3, "until": 0.7}
    assert read(described)["negatives"] == described["negatives"]


@pytest.mark.parametrize(("change", "error", "message"), [
    ({"keys": {"type": "Bnak"}}, UnknownNameError, "type of keys 'Bnak'; did you mean Bank"),
    ({"keys": {"rate": 0.5}}, UnknownNameError, "type of keys ''"),
    ({"keys": {"type": "Bank", "rat": 0.5}}, UnknownNameError, "field of Bank 'rat'; did you mean rate"),
    ({"keys": {"type": "Bank", "rate": 3}}, ArgumentError, "rate=3"),
    ({"negatives": {"type": "Ball", "outer": {"start": 3}}}, UnknownNameError, "type of outer ''"),
])  # fmt: skip
def test_what_no_part_has_is_named(change: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        read({**methods.get("ring/ir").describe(), **change})


def test_defaults_are_what_stored_descriptions_leave_out() -> None:
    # a change here changes the meaning of every stored description that leaves the field out
    defaults = {
        kind.__name__: {f.name: f.default for f in fields(kind)} for choice in CHOICES
        for kind in types_of(choice).values() if fields(kind)
    }  # fmt: skip
    assert {
        "Augmented": {"count": 1}, "Split": {"space": "lab", "count": 1, "scaling": "range"},
        "Bank": {"rate": 0.5}, "Queue": {"size": 65536, "momentum": 0.999, "shuffle_groups": 1, "further_view": False},
        "Jigsaw": {"space": None, "count": 1, "weight": 0.5, "scaling": "range"},
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


def test_plans_name_the_choices_of_recipes() -> None:
    assert tuple(CHOICES) == choices.CHOICES  # what plans read without PyTorch
