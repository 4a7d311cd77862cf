"""Everything about a run that is not the method: data size, encoder, optimiser, evaluation.

A published protocol is a :class:`Settings`; a profile (``smoke``, ``laptop``, ``paper``) is the
same protocol with some fields overridden. Nothing here is code: settings are read from the TOML
files of :mod:`contrastlab.papers` and stored, whole, with each result.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class _Data(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class LinearProbe(_Data):
    """How a frozen encoder is scored by a linear classifier.

    ``solver="sgd"`` is the papers' protocol (augmented images, SGD over epochs);
    ``solver="lbfgs"`` fits standardised features of un-augmented images once.
    """

    solver: Literal["sgd", "lbfgs"] = "sgd"
    features: Literal["map", "pooled"] = Field("map", description="before (512x7x7) or after pooling")
    epochs: int = Field(100, ge=1)
    batch_size: int = Field(256, ge=1)
    lr: float = Field(0.01, gt=0)
    momentum: float = Field(0.9, ge=0, lt=1)
    weight_decay: float = Field(0.0, ge=0)
    milestones: tuple[int, ...] = ()
    gamma: float = Field(0.1, gt=0, le=1)
    l2: float = Field(1e-3, ge=0, description="ridge penalty of the L-BFGS solver, on the mean loss")
    train_images: int | None = Field(None, ge=1, description="at most so many labelled images; None is all")


class Settings(_Data):
    """Protocol of one run."""

    # data
    train_images: int | None = Field(None, ge=2, description="at most so many images for pre-training; None is all")
    test_images: int | None = Field(None, ge=1, description="at most so many test images; None is all")
    image_size: int = Field(224, ge=8, description="side of an augmented view in pixels")
    augmentation: str = Field("instdisc", description="name in contrastlab.views.AUGMENTATIONS")
    # encoder
    arch: str = Field("resnet18", description="name in contrastlab.encoders.ARCHITECTURES")
    stem: Literal["imagenet", "cifar"] = "imagenet"
    head: Literal["linear", "mlp"] = "linear"
    dim: int = Field(128, ge=2, description="dimension of the unit embedding")
    # optimiser
    epochs: int = Field(300, ge=1)
    batch_size: int = Field(256, ge=2)
    lr: float = Field(0.03, gt=0)
    momentum: float = Field(0.9, ge=0, lt=1)
    weight_decay: float = Field(1e-4, ge=0)
    schedule: Literal["constant", "steps", "cosine", "plateau"] = "steps"
    milestones: tuple[int, ...] = Field((200, 250), description="epochs after which lr is multiplied by gamma")
    gamma: float = Field(0.1, gt=0, le=1)
    patience: int = Field(10, ge=1, description="epochs without a better 1-NN accuracy before a plateau step")
    drops: int = Field(2, ge=0, description="how many plateau steps are taken at most")
    warmup_epochs: int = Field(0, ge=0)
    precision: Literal["32-true", "bf16-mixed"] = "32-true"
    # method: part.field -> value, applied where the recipe has such a part and field
    parts: dict[str, Any] = Field(default_factory=dict)
    # evaluation
    knn_every: int = Field(1, ge=0, description="epochs between 1-NN evaluations; 0 is only at the end")
    linear: LinearProbe = LinearProbe()

    def override(self, **changes: Any) -> Settings:
        """A copy with ``changes`` applied, validated anew; ``linear`` and ``parts`` are merged, not replaced."""
        data = self.model_dump()
        for nested in ("linear", "parts"):
            if nested in changes:
                changes[nested] = {**data[nested], **changes[nested]}
        return Settings.model_validate({**data, **changes})
