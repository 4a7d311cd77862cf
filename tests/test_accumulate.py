"""Batches in chunks give the gradient of the whole one; every run says, without labels, how its embeddings lie."""

import copy
import math
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import Tensor, nn
from torch.nn import functional as F
from torments import processes

from contrastlab import keys, methods
from contrastlab.data import ImageSet
from contrastlab.encoders import Encoder
from contrastlab.methods import Recipe
from contrastlab.objectives import ALONE, Context, InfoNCE, Scores
from contrastlab.settings import Settings
from contrastlab.support import host
from contrastlab.support.errors import ArgumentError
from contrastlab.train import Speed, checkpoint, pretrain
from contrastlab.train import spread as spreads
from contrastlab.train.learner import Learner
from contrastlab.train.spread import SpreadListener, spread
from made_runs import one_of_each_kind, quiet
from test_distributed import RECIPES
from test_pretrain import numbers, same

# A batch in chunks ----------------------------------------------------------------------------------------------------

HAVE_A_MEMORY_OR_MAPS = keys.Bank | keys.Queue | keys.Locations | keys.Pixels | None
IN_BATCH = {
    name: processes.small(name, 1)
    for name in methods.names()
    if not isinstance(methods.get(name).keys, HAVE_A_MEMORY_OR_MAPS)
}
CHUNKED = IN_BATCH | RECIPES


def groups_of_batch_norm(recipe: Recipe) -> int:
    return getattr(recipe.keys, "shuffle_groups", 1)


def kind(recipe: Recipe) -> tuple[type, type, bool]:
    """What chunks meet: keys and objective, and whether batch-norm has groups."""
    return type(recipe.keys), type(recipe.objective), groups_of_batch_norm(recipe) > 1


IN_TWO = {name: kind(recipe) for name, recipe in CHUNKED.items()}
IN_FOUR = {name: kind(recipe) for name, recipe in CHUNKED.items() if groups_of_batch_norm(recipe) in (1, 4)}
OF_TWO_GROUPS = [name for name, recipe in CHUNKED.items() if groups_of_batch_norm(recipe) == 2]


def assert_chunks_change_nothing(recipe: Recipe, chunks: int) -> None:
    """Loss, gradients and keys of the first step; later steps begin elsewhere, by rounding."""
    expected = processes.train(recipe, 0, 1)[0]
    got = processes.train(recipe, 0, 1, chunks=chunks)[0]
    assert got.keys() == expected.keys()
    for key, value in expected.items():
        largest = 0.0
        if value.is_floating_point() and value.numel():
            largest = float(value.nan_to_num().abs().max())
        # products of other sizes are summed in another order, which depends on the processor
        torch.testing.assert_close(got[key], value, rtol=0, atol=4e-6 * largest, equal_nan=True, msg=key)


@pytest.mark.parametrize("name", one_of_each_kind(IN_TWO))
def test_two_chunks_give_the_loss_the_gradient_and_the_keys_of_the_whole_batch(name: str) -> None:
    assert_chunks_change_nothing(CHUNKED[name], 2)


@pytest.mark.parametrize("name", one_of_each_kind(IN_FOUR))
def test_four_chunks_give_the_loss_the_gradient_and_the_keys_of_the_whole_batch(name: str) -> None:
    assert_chunks_change_nothing(CHUNKED[name], 4)


@pytest.mark.parametrize("name", OF_TWO_GROUPS)
def test_more_chunks_than_groups_of_batch_norm_are_refused(name: str) -> None:
    with pytest.raises(ArgumentError, match=r"accumulate=4: expected at most 2, the groups of batch-norm"):
        processes.train(CHUNKED[name], 0, 1, chunks=4)


@dataclass(frozen=True)
class WeighedByItem(InfoNCE):
    """An objective of one's own whose losses depend on the numbers of the queries' items."""

    def __call__(self, scores: Scores, context: Context = ALONE) -> Tensor:
        assert context.items is not None
        return super().__call__(scores, context) * (1 + context.items)


def test_an_objective_is_told_which_items_are_in_a_chunk() -> None:
    assert_chunks_change_nothing(replace(CHUNKED["x/simclr"], objective=WeighedByItem()), 2)


# A network in chunks --------------------------------------------------------------------------------------------------


@pytest.fixture
def network() -> nn.Sequential:
    """One that draws (dropout), counts (batch-norm), and whose gradients need activations."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3), nn.Dropout(0.5), nn.Tanh())


@pytest.fixture
def items() -> Tensor:
    return torch.randn(8, 5, generator=torch.Generator().manual_seed(0))


def in_chunks_of_four(network: nn.Sequential, items: Tensor) -> Tensor:
    """The embeddings of eight items, dropout from seed 2."""
    chunked = keys.Chunked(keys.Network(nn.ModuleList([network])), 4)
    torch.manual_seed(2)
    (embeddings,) = chunked(items)
    return embeddings


def one_chunk_after_the_other(network: nn.Sequential, items: Tensor) -> Tensor:
    """The same embeddings, all activations kept."""
    torch.manual_seed(2)
    return torch.cat([network(items[:4]), network(items[4:])])


def test_activations_of_a_chunk_are_not_kept(network, items) -> None:
    outputs: list[weakref.ref[Tensor]] = []
    network[0].register_forward_hook(lambda module, inputs, output: outputs.append(weakref.ref(output)))
    embeddings = in_chunks_of_four(network, items)
    assert embeddings.requires_grad
    assert [output() for output in outputs] == [None, None]  # which batch-norm needs for its gradient


def test_a_chunk_that_is_computed_again_has_the_dropout_of_the_first_time(network, items) -> None:
    outputs: list[Tensor] = []
    network[2].register_forward_hook(lambda module, inputs, output: outputs.append(output.detach().clone()))
    embeddings = in_chunks_of_four(network, items)
    torch.manual_seed(3)
    embeddings.sum().backward()
    first, second, *again = outputs  # backward goes through the chunks in an order of its own
    assert len(again) == 2
    assert any(torch.equal(output, first) for output in again)
    assert any(torch.equal(output, second) for output in again)


def test_gradients_of_a_network_in_chunks_are_those_of_one_that_keeps_its_activations(network, items) -> None:
    plain = copy.deepcopy(network)
    one_chunk_after_the_other(plain, items).square().sum().backward()
    in_chunks_of_four(network, items).square().sum().backward()
    for parameter, expected in zip(network.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, expected.grad, rtol=1e-6, atol=1e-6)


def test_running_statistics_take_in_each_chunk_once(network, items) -> None:
    plain = copy.deepcopy(network)
    one_chunk_after_the_other(plain, items)
    expected = [*plain.buffers()]

    embeddings = in_chunks_of_four(network, items)
    after_forward = [buffer.clone() for buffer in network.buffers()]
    embeddings.sum().backward()
    after_backward = [*network.buffers()]

    assert int(network[1].num_batches_tracked) == 2
    for buffer, forward, backward in zip(expected, after_forward, after_backward, strict=True):
        assert torch.equal(forward, buffer)
        assert torch.equal(backward, buffer)


# The loop in chunks ---------------------------------------------------------------------------------------------------


def moco(shrink: Callable[[Recipe], Recipe]) -> Recipe:
    return shrink(methods.get("ring/moco"))


def simclr(shrink: Callable[[Recipe], Recipe]) -> Recipe:
    return replace(moco(shrink), keys=keys.InBatch("across"))


def moco_v3(shrink: Callable[[Recipe], Recipe]) -> Recipe:
    return replace(moco(shrink), keys=keys.InBatch("across", momentum=0.9))


@pytest.mark.parametrize(
    ("make", "images_at_once"),
    [(moco, 4), (simclr, 8), (moco_v3, 8)],  # simclr and moco_v3 embed both views of a chunk together
)
def test_the_loop_embeds_and_scores_a_chunk_at_a_time(
    make, images_at_once, pictures, tiny, shrink, monkeypatch
) -> None:
    seen: set[int] = set()
    scored: set[int] = set()
    embed = Encoder.forward
    score = Learner._scores

    def watched_embed(self: Encoder, images: Tensor) -> Tensor:
        seen.add(len(images))
        return embed(self, images)

    def watched_score(self: Learner, direction: keys.Direction, *rest: object) -> object:
        scored.add(len(direction.query))
        return score(self, direction, *rest)

    monkeypatch.setattr(Encoder, "forward", watched_embed)
    monkeypatch.setattr(Learner, "_scores", watched_score)
    pretrain(make(shrink), tiny.override(accumulate=4), pictures(48), seed=1, log=quiet)
    assert seen == {images_at_once}  # of a batch of 16
    assert scored == {4}


def test_a_compiled_run_in_chunks_has_the_losses_of_one_that_is_not(pictures, tiny, shrink, monkeypatch) -> None:
    compiler = torch.compile
    monkeypatch.setattr(torch, "compile", lambda module, **options: compiler(module, backend="aot_eager", **options))
    settings = tiny.override(accumulate=4)
    plain = pretrain(moco(shrink), settings, pictures(48), seed=1, log=quiet)
    compiled = pretrain(moco(shrink), settings, pictures(48), seed=1, speed=Speed(compile=True), log=quiet)
    assert losses(compiled.history) == pytest.approx(losses(plain.history), rel=1e-5)


def losses(history: list[dict[str, float]]) -> list[float]:
    return [row["loss"] for row in history]


@pytest.mark.parametrize("chunks", [3, 16])
def test_chunks_that_do_not_fit_the_batch_are_refused(chunks, pictures, tiny, shrink) -> None:
    expected = f"accumulate={chunks}: expected 1, or a divisor of 16, the batch of a process, that leaves two items"
    with pytest.raises(ArgumentError, match=expected):
        pretrain(moco(shrink), tiny.override(accumulate=chunks), pictures(48), log=quiet)


def test_batch_norm_that_sees_the_global_batch_is_refused_with_chunks(pictures, tiny, shrink) -> None:
    settings = tiny.override(sync_batch_norm=True, accumulate=4)
    with pytest.raises(ArgumentError, match="sync_batch_norm=True: expected False with accumulate=4"):
        pretrain(moco(shrink), settings, pictures(48), log=quiet)


def test_batch_norm_that_sees_the_global_batch_is_refused_with_groups(pictures, tiny, shrink) -> None:
    recipe = moco(shrink).override({"keys.shuffle_groups": 2})
    settings = tiny.override(sync_batch_norm=True)
    with pytest.raises(ArgumentError, match="sync_batch_norm=True: expected False with .*groups=2"):
        pretrain(recipe, settings, pictures(48), log=quiet)


def test_chunks_are_part_of_a_runs_identity_unless_there_is_one(tiny) -> None:
    assert tiny.override(accumulate=1).identity() == tiny.identity()
    assert tiny.override(accumulate=4).identity() == tiny.identity() | {"accumulate": 4}


# How embeddings lie ---------------------------------------------------------------------------------------------------

SPREAD = ("alignment", "uniformity", "mean_cosine", "effective_rank")


def spread_by_loops(query: Tensor, positive: Tensor) -> dict[str, float]:
    """The four numbers of :func:`spread` in float64, pair by pair."""
    query = query.double()
    positive = positive.double()
    to_positives = []
    for q, own in zip(query, positive, strict=True):
        for k in own:
            to_positives.append((q - k).square().sum().item())
    potentials = []
    cosines = []
    for i, q in enumerate(query):
        for j, other in enumerate(query):
            if i == j:
                continue
            potentials.append(math.exp(-2 * (q - other).square().sum().item()))
            cosines.append((q @ other).item())
    values = torch.linalg.svdvals(query).tolist()
    entropy = 0.0
    for value in values:
        share = value / sum(values)
        entropy -= share * math.log(share)
    return {
        "alignment": sum(to_positives) / len(to_positives),
        "uniformity": math.log(sum(potentials) / len(potentials)),
        "mean_cosine": sum(cosines) / len(cosines),
        "effective_rank": math.exp(entropy),
    }


def test_how_embeddings_lie_is_what_loops_say() -> None:
    draws = torch.Generator().manual_seed(0)
    query = F.normalize(torch.randn(7, 4, generator=draws), dim=-1)
    positive = F.normalize(torch.randn(7, 2, 4, generator=draws), dim=-1)
    assert spread(query, positive) == pytest.approx(spread_by_loops(query, positive), rel=1e-5)


def test_equal_embeddings_have_rank_one_and_no_distance() -> None:
    one = torch.tensor([0.6, 0.0, 0.8, 0.0])
    lies = spread(one.expand(5, 4), one.expand(5, 1, 4))
    assert lies == pytest.approx({"alignment": 0, "uniformity": 0, "mean_cosine": 1, "effective_rank": 1}, abs=1e-5)


def test_orthogonal_embeddings_have_full_rank() -> None:
    query = torch.eye(4)
    lies = spread(query, query[:, None])
    assert lies == pytest.approx({"alignment": 0, "uniformity": -4, "mean_cosine": 0, "effective_rank": 4}, abs=1e-5)


def test_of_several_directions_the_alignment_is_the_mean_and_the_rest_the_worst(
    pictures, tiny, shrink, monkeypatch
) -> None:
    measured: list[dict[str, float]] = []

    def watched(*arguments: object, **options: object) -> dict[str, float]:
        measured.append(spread(*arguments, **options))
        return measured[-1]

    monkeypatch.setattr(spreads, "spread", watched)
    done = pretrain(shrink(methods.get("ring/cmc")), tiny.override(epochs=1), pictures(48), seed=1, log=quiet)
    one, other = measured
    (row,) = done.history
    assert row["alignment"] == pytest.approx((one["alignment"] + other["alignment"]) / 2)
    assert row["uniformity"] == max(one["uniformity"], other["uniformity"])
    assert row["mean_cosine"] == max(one["mean_cosine"], other["mean_cosine"])
    assert row["effective_rank"] == min(one["effective_rank"], other["effective_rank"])
    for name in SPREAD:
        assert one[name] != other[name]


@pytest.mark.parametrize("most", [5, 1024])
def test_of_a_batch_a_limited_number_of_queries_is_looked_at(most, pictures, tiny, shrink, monkeypatch) -> None:
    seen: set[tuple[int, int]] = set()

    def watched(query: Tensor, positive: Tensor, **options: object) -> dict[str, float]:
        seen.add((len(query), len(positive)))
        return spread(query, positive, **options)

    monkeypatch.setattr(spreads, "spread", watched)
    monkeypatch.setattr(spreads, "QUERIES", most)
    pretrain(moco(shrink), tiny, pictures(48), log=quiet)
    looked_at = min(most, tiny.batch_size)
    assert seen == {(looked_at, looked_at)}


# What a run says of it ------------------------------------------------------------------------------------------------


def test_every_run_says_how_its_embeddings_lie(pictures, tiny, shrink, tmp_path) -> None:
    lines: list[str] = []
    done = pretrain(shrink(methods.get("ring/cmc")), tiny, pictures(48), folder=tmp_path, log=lines.append)
    (folder,) = (tmp_path / "tensorboard").iterdir()
    board = EventAccumulator(str(folder)).Reload()
    columns = (tmp_path / "metrics.csv").read_text().splitlines()[0].split(",")
    for name in (*SPREAD, "mi_bound"):
        drawn = [event.value for event in board.Scalars(name)]
        assert drawn == pytest.approx([row[name] for row in done.history])
        assert name in columns
    assert " bound " in lines[-1]
    assert " rank " in lines[-1]


def test_to_say_so_changes_nothing_of_a_run(pictures, tiny, shrink, monkeypatch) -> None:
    recipe = shrink(methods.get("ring/cmc"))
    done = pretrain(recipe, tiny, pictures(48), seed=1, log=quiet)
    monkeypatch.setattr(SpreadListener, "after_step", lambda self: None)
    silent = pretrain(recipe, tiny, pictures(48), seed=1, log=quiet)
    without_spread = []
    for row in done.history:
        without_spread.append({name: value for name, value in row.items() if name not in SPREAD})
    same(replace(done, history=without_spread), silent)


def test_a_run_of_an_older_version_that_stopped_within_an_epoch_goes_on(pictures, tiny, shrink, tmp_path) -> None:
    recipe = shrink(methods.get("ring/cmc"))
    pretrain(recipe, tiny, pictures(48), seed=1, folder=tmp_path, log=quiet)
    state = checkpoint.load(tmp_path / checkpoint.FILE)
    # all steps are made, the last epoch is not closed, and nothing was taken of its embeddings
    del state["progress"]["spread"]
    state["progress"]["epoch"] = 1
    state["history"] = state["history"][:1]
    state["sums"] = torch.ones(2, dtype=torch.float64)
    checkpoint.save(state, tmp_path / checkpoint.FILE)
    resumed = pretrain(recipe, tiny, pictures(48), seed=1, folder=tmp_path, log=quiet)
    first, second = resumed.history
    assert "effective_rank" in first
    assert "effective_rank" not in second


def epochs_with_rank(history: list[dict[str, float]]) -> list[float]:
    return [row["epoch"] for row in history if "effective_rank" in row]


def test_a_cpu_takes_the_spectrum_in_every_epoch(pictures, tiny, shrink) -> None:
    done = pretrain(moco(shrink), tiny.override(epochs=3), pictures(32), log=quiet)
    assert epochs_with_rank(done.history) == [1, 2, 3]


def test_a_device_is_asked_for_the_spectrum_in_some_epochs(pictures, tiny, shrink, monkeypatch) -> None:
    monkeypatch.setattr(host, "TYPE", "none")
    done = pretrain(moco(shrink), tiny.override(epochs=12, lr=1e-6), pictures(32), log=quiet)
    assert epochs_with_rank(done.history) == [1, 10, 12]


# Collapse -------------------------------------------------------------------------------------------------------------


def black(pictures: Callable[[int], ImageSet], count: int) -> ImageSet:
    """Pictures that are all alike, whose embeddings are, too."""
    images = pictures(count)
    return replace(images, items=torch.zeros_like(images.items))


def unaugmented(tiny: Settings, **changes: object) -> Settings:
    return tiny.override(augmentation="none", lr=1e-6, **changes)


def test_a_device_is_asked_for_the_spectrum_of_a_collapse_in_every_epoch(pictures, tiny, shrink, monkeypatch) -> None:
    monkeypatch.setattr(host, "TYPE", "none")
    done = pretrain(moco(shrink), unaugmented(tiny, epochs=4), black(pictures, 32), log=quiet)
    assert epochs_with_rank(done.history) == [1, 2, 3, 4]
    for row in done.history:
        assert "collapsed" in row


def test_a_run_that_collapses_says_so_once_and_in_words(pictures, tiny, shrink) -> None:
    lines: list[str] = []
    done = pretrain(moco(shrink), unaugmented(tiny), black(pictures, 48), log=lines.append)
    (said,) = [line for line in lines if "collapsed" in line]
    assert "after epoch 1, 3 steps" in said
    assert "mean cosine of two items is 1.000" in said
    assert "rank 1.0 of 16" in said
    assert "rate (1e-06)" in said
    assert [row["collapsed"] for row in done.history] == [1.0, 1.0]


def test_a_run_of_different_pictures_has_not_collapsed(pictures, tiny, shrink) -> None:
    done = pretrain(moco(shrink), unaugmented(tiny), pictures(48), log=quiet)
    for row in numbers(done):
        assert "collapsed" not in row


@pytest.mark.parametrize(
    ("cosine", "rank", "collapsed"),
    [(0.9951, 9.0, True), (0.9949, 9.0, False), (0.3, 1.49, True), (0.3, 1.51, False)],
)
def test_a_collapse_is_a_mean_cosine_near_one_or_a_rank_near_one(
    cosine, rank, collapsed, pictures, tiny, shrink, monkeypatch
) -> None:
    lies = {"alignment": 0.1, "uniformity": -1.0, "mean_cosine": cosine, "effective_rank": rank}
    monkeypatch.setattr(spreads, "spread", lambda *arguments, **options: dict(lies))
    done = pretrain(moco(shrink), tiny.override(epochs=1), pictures(48), log=quiet)
    assert ("collapsed" in done.history[0]) is collapsed


@pytest.mark.parametrize(("cosine", "collapsed"), [(0.3, False), (0.9951, True)])
def test_two_classes_that_a_recipe_tells_apart_by_labels_are_no_collapse_of_rank(
    cosine, collapsed, pictures, tiny, shrink, monkeypatch
) -> None:
    recipe = shrink(methods.get("ours/supervised"))
    assert recipe.reads_labels
    lies = {"alignment": 0.1, "uniformity": -1.0, "mean_cosine": cosine, "effective_rank": 1.0}
    monkeypatch.setattr(spreads, "spread", lambda *arguments, **options: dict(lies))
    done = pretrain(recipe, tiny.override(epochs=1), pictures(48), log=quiet)
    assert ("collapsed" in done.history[0]) is collapsed
