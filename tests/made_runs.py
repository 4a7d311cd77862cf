"""What tests of networks and runs share: seeded generators, networks watched for changes, runs stopped and resumed."""

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest
import torch
from torch import nn

from contrastlab.methods import Recipe

Result = TypeVar("Result")

LOCAL = {"profile": "smoke", "references_too": False, "jobs": 1, "read_also": (), "accelerator": "cpu"}
"""How a table is made in a test: small, here, and of nothing that was stored before."""


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def part_types(recipe: Recipe) -> tuple[type, ...]:
    """The type of each part of a recipe."""
    return tuple(type(part) for part in recipe.choices().values())


def one_of_each_kind(kinds: Mapping[str, Hashable]) -> list[Any]:
    """Names for ``parametrize``, from name to kind: the first of each kind; all others are nightly."""
    seen: set[Hashable] = set()
    names: list[Any] = []
    for name, kind in kinds.items():
        names.append(pytest.param(name, marks=pytest.mark.nightly) if kind in seen else name)
        seen.add(kind)
    return names


def quiet(line: str) -> None:
    """No lines of progress."""


def equal(one: nn.Module, other: nn.Module) -> bool:
    """Whether two networks have the same tensors under the same names, bit for bit."""
    a, b = one.state_dict(), other.state_dict()
    return a.keys() == b.keys() and all(torch.equal(value, b[name]) for name, value in a.items())


@contextmanager
def unchanged(network: nn.Module) -> Iterator[None]:
    """No tensor and no mode of a network is another one after the block, and no parameter has a gradient."""
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    modes = [module.training for module in network.modules()]
    yield
    after = network.state_dict()
    assert [name for name, tensor in before.items() if not torch.equal(tensor, after[name])] == []
    assert [module.training for module in network.modules()] == modes
    assert all(p.grad is None for p in network.parameters())


def resumed(train: Callable[[], Result], between: Callable[[], Any] = lambda: None) -> tuple[Result, int]:
    """Call ``train`` until no stop interrupts it: its result, and how often it was stopped."""
    for stops in range(1000):
        try:
            return train(), stops
        except KeyboardInterrupt:
            between()
    raise AssertionError("a thousand stops: nothing goes on where it was cut off")


def one_network(networks: Any, number: int) -> nn.Sequential:
    """One of the networks that a study trains at once, as linear layers with ReLUs between."""
    layers: list[nn.Module] = []
    for weight, bias in zip(networks.weights, networks.biases, strict=True):
        layer = nn.Linear(*weight.shape[1:])
        layer.weight.data, layer.bias.data = weight[number].detach().T.clone(), bias[number].detach()[0].clone()
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def spread_batch_norms(networks: nn.Module, seed: int) -> None:
    """Give batch-norms means that are not the initial ones, the same draws to each."""
    for module in networks.modules():
        if isinstance(module, nn.BatchNorm2d):
            assert module.running_mean is not None
            module.running_mean.normal_(generator=generator(seed))


def refused(*rows: tuple[Callable[[], Any], type[Exception], str]) -> None:
    """Each call is refused with an error of its kind that says these words."""
    for call, kind, words in rows:
        with pytest.raises(kind, match=words):
            call()
