"""What learning from dropout does to a network that has read nothing before: similarity, shared words, neighbours."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contrastlab import data, keys, methods, tasks
from contrastlab.domains.text.data import Texts
from contrastlab.domains.text.task import cosines
from contrastlab.pictures.domain import modality
from contrastlab.settings import Settings
from contrastlab.support.seeds import fixed
from contrastlab.train import pretrain
from contrastlab.views import Dropout


@dataclass(frozen=True)
class BeforeAfter:
    """A network before and after it was trained on the sentences of a grammar."""

    settings: Settings
    before: nn.ModuleList
    after: nn.ModuleList
    similarity: tuple[float, float]  # Spearman × 100 on the grammar's test pairs, before and after


def settings(sentences: int = 1280, epochs: int = 2, dropout: float = 0.1) -> Settings:
    """A BERT of two layers from scratch."""
    return Settings(
        train_images=sentences,
        dim=64,
        head="mlp",
        epochs=epochs,
        batch_size=64,
        lr=1e-3,
        weight_decay=0.0,
        schedule="linear",
        milestones=(),
        knn_every=0,
        optimiser={"name": "adamw"},
        text={"layers": 2, "width": 64, "length": 16, "plain_length": 16, "dropout": dropout},
    )


def study(how: Settings, method: str = "fmicl/sentences_infonce", seed: int = 0) -> BeforeAfter:
    """Train ``method`` on the grammar, and score its similarity before and after; needs the extra for text."""
    recipe = methods.get(method)
    source = data.load("grammar").pretrain
    pairs = data.load("grammar_pairs")
    kind = modality(source)
    with fixed(seed):
        before = kind.encoders(recipe.views, source, how)
    after = pretrain(recipe, how, source, seed=seed, log=lambda line: None).encoders
    evaluation = tasks.Evaluation(Dropout(1), kind.augmentation(how), pairs)
    truth = pairs.test.scores.numpy()
    score_before = tasks.spearman(cosines(before, evaluation, pairs.test), truth)
    score_after = tasks.spearman(cosines(after, evaluation, pairs.test), truth)
    return BeforeAfter(how, before.eval(), after, (score_before, score_after))


def dropout_gap(rate: float, texts: Texts, seed: int = 0) -> float:
    """Largest difference of two embeddings of the same sentences by an untrained network in training mode."""
    source = data.load("grammar").pretrain
    how = settings(dropout=rate)
    kind = modality(source)
    with fixed(seed):
        nets = kind.encoders(Dropout(2), source, how).train()
        views = Dropout(2).make(texts, kind.augmentation(how))
        with torch.no_grad():
            first, second = keys.embed(nets, views)
    return float((first - second).abs().max())


def _features(nets: nn.ModuleList, sentences: list[str], how: Settings) -> Tensor:
    """Unit features of sentences, ``[N, d]``."""
    augmentation = modality(data.load("grammar").pretrain).augmentation(how)
    views = (augmentation.plain(Texts(sentences)),)
    with tasks.frozen(nets):
        features = tasks.represent(nets, views, "pooled")
        return F.normalize(features.double(), dim=1)


def nearest(networks: BeforeAfter, query: str, others: list[str], count: int = 3) -> pd.DataFrame:
    """The sentences nearest to ``query``, before and after training, with their cosines about the mean sentence."""
    columns = {}
    for name, nets in (("before", networks.before), ("after", networks.after)):
        rows = _features(nets, [query, *others], networks.settings)
        rows = F.normalize(rows - rows.mean(0), dim=1)
        values, best = (rows[1:] @ rows[0]).topk(count)
        columns[name] = [others[k] for k in best.tolist()]
        columns[f"cosine {name}"] = [round(value, 5) for value in values.tolist()]
    return pd.DataFrame(columns)


def shared_words(networks: BeforeAfter, sentences: list[str]) -> tuple[float, float]:
    """Spearman × 100 of cosines and shared words, k/√(nm) of n and m, over all pairs, before and after training."""
    bags = [set(re.findall(r"\w+", line.lower())) for line in sentences]
    shared = [len(a & b) / (len(a) * len(b)) ** 0.5 for a, b in itertools.combinations(bags, 2)]
    upper = torch.triu_indices(len(bags), len(bags), 1)

    def correlation(nets: nn.ModuleList) -> float:
        features = _features(nets, sentences, networks.settings)
        cosines_of_pairs = (features[upper[0]] * features[upper[1]]).sum(1)
        return tasks.spearman(cosines_of_pairs, np.array(shared))

    return correlation(networks.before), correlation(networks.after)
