"""Batches in chunks give the gradient of the whole one; every run says, without labels, how its embeddings lie."""

import math
import weakref
from dataclasses import replace

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import Tensor, nn
from torments import processes

from contrastlab import keys, methods
from contrastlab.encoders import Encoder
from contrastlab.support import host
from contrastlab.support.errors import ArgumentError
from contrastlab.train import Speed, checkpoint, pretrain
from contrastlab.train.learner import Learner
from contrastlab.train.spread import SpreadListener, spread
from made_runs import one_of_each_kind, quiet
from test_distributed import RECIPES
from test_pretrain import numbers, same

HAVE_A_MEMORY_OR_MAPS = keys.Bank | keys.Queue | keys.Locations | keys.Pixels | None
IN_BATCH = {
    name: processes.small(name, 1)
    for name in methods.names()
    if not isinstance(methods.get(name).keys, HAVE_A_MEMORY_OR_MAPS)
}


CHUNKED = IN_BATCH | RECIPES
# the kind of a recipe is what chunks meet: keys and objective, and whether batch-norm has groups
KINDS = {
    name: (type(recipe.keys), type(recipe.objective), getattr(recipe.keys, "shuffle_groups", 1) > 1)
    for name, recipe in CHUNKED.items()
}


@pytest.mark.parametrize("name", one_of_each_kind(KINDS))
def test_chunks_give_the_loss_the_gradient_and_the_keys_of_the_whole_batch(name: str) -> None:
    recipe = CHUNKED[name]
    expected = processes.train(recipe, 0, 1)[0]  # later steps begin elsewhere, by rounding: tests/test_distributed.py
    for chunks in (2, 4):
        if chunks > getattr(recipe.keys, "shuffle_groups", 1) > 1:
            with pytest.raises(ArgumentError, match=r"accumulate=4: expected at most 2, the groups of batch-norm"):
                processes.train(recipe, 0, 1, chunks=chunks)
            continue
        got = processes.train(recipe, 0, 1, chunks=chunks)[0]
        assert got.keys() == expected.keys()
        for key, value in expected.items():
            largest = float(value.nan_to_num().abs().max()) if value.is_floating_point() and value.numel() else 0.0
            # products of other sizes are summed in another order, which depends on the processor
            torch.testing.assert_close(got[key], value, rtol=0, atol=4e-6 * largest, equal_nan=True, msg=key)


def test_a_chunk_is_computed_twice_alike_counted_once_and_not_kept() -> None:
    net, plain = (nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3), nn.Dropout(0.5), nn.Tanh()) for _ in range(2))
    plain.load_state_dict(net.state_dict())
    x, given, kept = torch.randn(8, 5), list[Tensor](), list[weakref.ref[Tensor]]()
    net[0].register_forward_hook(lambda module, inputs, output: kept.append(weakref.ref(output)))
    net[2].register_forward_hook(lambda module, inputs, output: given.append(output.detach().clone()))
    torch.manual_seed(2)
    out = keys.Chunked(keys.Network(nn.ModuleList([net])), 4)(x)[0]
    assert [ref() for ref in kept] == [None, None]  # which batch-norm needs for its gradient
    after = [buffer.clone() for buffer in net.buffers()]
    torch.manual_seed(3)
    out.square().sum().backward()
    assert [any(torch.equal(again, once) for again in given[2:]) for once in given[:2]] == [True, True]
    assert int(net[1].num_batches_tracked) == 2
    torch.manual_seed(2)
    torch.cat([plain(part) for part in x.split(4)]).square().sum().backward()
    for one, other in zip(plain.parameters(), net.parameters(), strict=True):
        torch.testing.assert_close(other.grad, one.grad, rtol=1e-6, atol=1e-6)
    for now, once, expected in zip(net.buffers(), after, plain.buffers(), strict=True):
        assert torch.equal(now, expected)
        assert torch.equal(once, expected)


@pytest.mark.parametrize("name", ["ring/moco", "x/simclr", "x/mocov3"])
def test_the_loop_sees_and_scores_a_chunk_at_a_time(name, pictures, tiny, shrink, monkeypatch) -> None:
    recipe = shrink(methods.get("ring/moco"))
    if name != "ring/moco":
        recipe = replace(recipe, keys=keys.InBatch("across", momentum=None if name == "x/simclr" else 0.9))
    seen, scored, forward, scores = set[int](), set[int](), Encoder.forward, Learner._scores
    monkeypatch.setattr(Encoder, "forward", lambda self, x: (seen.add(len(x)), forward(self, x))[1])
    monkeypatch.setattr(
        Learner, "_scores", lambda self, d, *rest: (scored.add(len(d.query)), scores(self, d, *rest))[1]
    )
    settings = tiny.override(accumulate=4)
    done = pretrain(recipe, settings, pictures(48), seed=1, log=quiet)
    assert (seen, scored) == ({4 if name == "ring/moco" else 8}, {4})  # of a batch of 16, and both views of a stream
    if name != "ring/moco":
        return  # one compilation tells
    compiler = torch.compile
    monkeypatch.setattr(torch, "compile", lambda module, **options: compiler(module, backend="aot_eager", **options))
    monkeypatch.setattr(Encoder, "forward", forward)
    compiled = pretrain(recipe, settings, pictures(48), seed=1, speed=Speed(compile=True), log=quiet)
    assert [row["loss"] for row in compiled.history] == pytest.approx([row["loss"] for row in done.history], rel=1e-5)


@pytest.mark.parametrize("chunks", [3, 16])
def test_chunks_that_do_not_fit_the_batch_are_refused(chunks, pictures, tiny, shrink) -> None:
    with pytest.raises(ArgumentError, match=f"accumulate={chunks}: expected 1, or a divisor of 16, the batch of"):
        pretrain(shrink(methods.get("ring/moco")), tiny.override(accumulate=chunks), pictures(48), log=quiet)
    for changes, why in (({"accumulate": 4}, "accumulate=4"), ({"overrides": {"keys.shuffle_groups": 2}}, "groups=2")):
        synced = tiny.override(sync_batch_norm=True, **changes)
        with pytest.raises(ArgumentError, match=f"sync_batch_norm=True: expected False with .*{why}"):
            pretrain(shrink(methods.get("ring/moco")).override(synced.overrides), synced, pictures(48), log=quiet)
    assert tiny.override(accumulate=1).identity() == tiny.identity()
    assert tiny.override(accumulate=chunks).identity() == tiny.identity() | {"accumulate": chunks}


def test_how_embeddings_lie_is_what_loops_say() -> None:
    draws = torch.Generator().manual_seed(0)
    q, k = (nn.functional.normalize(torch.randn(*shape, generator=draws), dim=-1) for shape in ((7, 4), (7, 2, 4)))
    pairs = [(i, j) for i in range(7) for j in range(7) if i != j]
    apart = [float((q[i] - q[j]).square().sum()) for i, j in pairs]
    share = np.linalg.svd(q.double().numpy(), compute_uv=False)
    share = share / share.sum()
    assert spread(q, k) == pytest.approx({
        "alignment": np.mean([[float((q[i] - k[i, m]).square().sum()) for m in range(2)] for i in range(7)]),
        "uniformity": math.log(np.mean(np.exp(-2 * np.array(apart)))),
        "mean_cosine": np.mean([float(q[i] @ q[j]) for i, j in pairs]),
        "effective_rank": math.exp(-sum(share * np.log(share))),
    }, rel=1e-5)  # fmt: skip
    one = spread(q[:1].expand(5, 4), q[:1, None].expand(5, 1, 4))
    assert one == pytest.approx({"alignment": 0, "uniformity": 0, "mean_cosine": 1, "effective_rank": 1}, abs=1e-5)


def test_every_run_says_how_its_embeddings_lie_and_is_the_run_it_was(pictures, tiny, shrink, tmp_path, monkeypatch):
    recipe, images, lines = shrink(methods.get("ring/cmc")), pictures(48), list[str]()
    done = pretrain(recipe, tiny, images, seed=1, folder=tmp_path, log=lines.append)
    (folder,) = (tmp_path / "tensorboard").iterdir()
    board = EventAccumulator(str(folder)).Reload()
    for name in ("alignment", "uniformity", "mean_cosine", "effective_rank", "mi_bound"):
        assert [event.value for event in board.Scalars(name)] == pytest.approx([row[name] for row in done.history])
        assert name in (tmp_path / "metrics.csv").read_text()
    assert all(" bound " in line and " rank " in line for line in lines)
    state = checkpoint.load(tmp_path / checkpoint.FILE)
    del state["progress"]["spread"]  # of an older version, which stopped before the end of its last epoch
    state["progress"]["epoch"], state["history"], state["sums"] = 1, state["history"][:1], torch.ones(2).double()
    checkpoint.save(state, tmp_path / checkpoint.FILE)
    older = pretrain(recipe, tiny, images, seed=1, folder=tmp_path, log=quiet)
    assert ["effective_rank" in row for row in older.history] == [True, False]
    monkeypatch.setattr(SpreadListener, "after_step", lambda self: None)
    before = pretrain(recipe, tiny, images, seed=1, log=quiet)
    rows = zip(done.history, before.history, strict=True)
    same(replace(done, history=[{name: row[name] for name in old} for row, old in rows]), before)


def test_a_device_is_asked_for_the_spectrum_in_some_epochs(pictures, tiny, shrink, monkeypatch) -> None:
    recipe, settings = shrink(methods.get("ring/moco")), tiny.override(epochs=12, lr=1e-6)
    here = pretrain(recipe, settings, pictures(32), log=quiet)
    assert all("effective_rank" in row for row in here.history)
    monkeypatch.setattr(host, "TYPE", "none")
    there = pretrain(recipe, settings, pictures(32), log=quiet)
    assert [row["epoch"] for row in there.history if "effective_rank" in row] == [1, 10, 12]
    alike = replace(pictures(32), items=torch.zeros(32, 3, 16, 16, dtype=torch.uint8))
    collapsed = pretrain(recipe, settings.override(augmentation="none"), alike, log=quiet)
    assert all({"collapsed", "effective_rank"} <= row.keys() for row in collapsed.history)


def test_a_run_that_collapses_says_so_once_and_in_words(pictures, tiny, shrink) -> None:
    recipe, alike, lines = shrink(methods.get("ring/moco")), pictures(48), list[str]()
    alike = replace(alike, items=torch.zeros_like(alike.items))
    settings = tiny.override(augmentation="none", lr=1e-6)
    done = pretrain(recipe, settings, alike, log=lines.append)
    said = [line for line in lines if "collapsed" in line]
    assert len(said) == 1
    for words in ("after epoch 1, 3 steps", "mean cosine of two items is 1.000", "rank 1.0 of 16", "rate (1e-06)"):
        assert words in said[0]
    assert [row["collapsed"] for row in done.history] == [1.0, 1.0]
    assert "collapsed" not in numbers(pretrain(recipe, settings, pictures(48), log=quiet))[-1]
