"""Draws that a seed decides, and that leave everyone else's alone."""

import pytest
import torch

from contrastlab.support import seeds


def test_draws_within_begin_at_the_seed_and_draws_outside_go_on() -> None:
    torch.manual_seed(5)
    undisturbed = torch.rand(4)
    torch.manual_seed(5)
    first = torch.rand(2)
    with seeds.fixed(11):
        within = torch.rand(3)
    assert torch.equal(torch.cat([first, torch.rand(2)]), undisturbed)
    assert torch.equal(within, torch.rand(3, generator=torch.Generator().manual_seed(11)))
    made = [seeds.derive(seed, purpose, step) for seed in (0, 1) for purpose in ("a", "b") for step in (0, 1)]
    assert len(set(made)) == len(made)
    assert torch.equal(torch.rand(3, generator=seeds.generator(0, "a", 1)),
                       torch.rand(3, generator=torch.Generator().manual_seed(seeds.derive(0, "a", 1))))  # fmt: skip


def test_an_error_within_puts_the_draws_back() -> None:
    @seeds.fixed(11)
    def failing() -> None:
        torch.rand(1)
        raise ZeroDivisionError

    before = torch.get_rng_state()
    with pytest.raises(ZeroDivisionError):
        failing()
    assert torch.equal(torch.get_rng_state(), before)


def test_a_seed_on_the_cpu_leaves_the_generators_of_gpus_alone(monkeypatch) -> None:
    def touched(*given: object) -> None:
        raise AssertionError("a GPU's generator was seeded")

    for name in ("manual_seed", "manual_seed_all"):
        monkeypatch.setattr(torch.cuda, name, touched)
    with seeds.fixed(11):
        torch.rand(1)


def test_a_gpu_s_generator_is_seeded_and_put_back(monkeypatch) -> None:
    seen: list[object] = []

    class Entered:
        def __init__(self, device: torch.device) -> None:
            seen.append(("entered", device))

        def __enter__(self) -> None: ...

        def __exit__(self, *error: object) -> None: ...

    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: ("state of", device))
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: seen.append((state, device)))
    monkeypatch.setattr(torch.cuda, "device", Entered)
    monkeypatch.setattr(torch.cuda, "manual_seed", seen.append)
    device = torch.device("cuda", 1)
    with seeds.fixed(11, device):
        assert seen == [("entered", device), 11]
    assert seen[2:] == [(("state of", device), device)]
