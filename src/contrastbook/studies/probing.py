"""What studies of encoders share: a recipe trained on a data set, and what a task needs to score its encoders."""

from __future__ import annotations

from lightning_fabric import Fabric

from contrastlab import tasks
from contrastlab.data import Splits
from contrastlab.methods import Recipe
from contrastlab.pictures.domain import modality
from contrastlab.settings import Settings
from contrastlab.support.seeds import derive
from contrastlab.train import Trained, pretrain
from contrastlab.train.loop import Log


def train(
    recipe: Recipe, settings: Settings, splits: Splits, seed: int, fabric: Fabric, log: Log
) -> tuple[Trained, tasks.Evaluation]:
    """Encoders trained on the pre-training part, and the evaluation of them with these settings; seeded alike."""
    trained = pretrain(recipe, settings, splits.pretrain, seed=seed, fabric=fabric, log=log)
    view = modality(splits.train).augmentation(settings)
    evaluation = tasks.Evaluation(recipe.views, view, splits, seed=derive(seed, "probe") % 2**31)
    return trained, evaluation
