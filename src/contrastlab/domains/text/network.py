"""Transformers that embed sentences: BERT and its kin, with the weights of a model folder or new ones."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from safetensors import SafetensorError
from torch import Tensor, nn
from torch.nn import functional as F

from contrastlab.support import errors, host


class SentenceEncoder(nn.Module):
    """A transformer, a pooling over tokens, a head and a unit norm.

    The backbone is of ``transformers``: token numbers and mask to ``last_hidden_state``. The head is ``"linear"`` (one
    layer) or ``"mlp"``: one layer and tanh (SimCSE). Pooling by ``"cls"`` takes the first token, ``"mean"`` averages
    over tokens that are no padding.
    """

    in_channels = 1

    def __init__(
        self, backbone: nn.Module, feature_dim: int, head: str = "linear", dim: int = 128,
        pooling: Literal["cls", "mean"] = "cls",
    ) -> None:  # fmt: skip
        super().__init__()
        self.backbone, self.feature_dim, self.dim, self.pooling = backbone, feature_dim, dim, pooling
        layer = nn.Linear(feature_dim, dim)
        self.head: nn.Module = nn.Sequential(layer, nn.Tanh()) if head == "mlp" else layer

    def features(self, x: Tensor, pooled: bool = True) -> Tensor:
        """What a task reads, ``[B, F]``, of token numbers ``[B, T]`` int64, −1 behind the end of a sentence."""
        if not pooled:
            raise errors.NotApplicableError("sentences differ in length: only pooled features can be compared")
        words = x >= 0
        if host.holds(x.device):  # no token of the batch is behind its longest sentence; a GPU would be waited for
            longest = max(int(words.sum(1).max()), 1) if len(x) else 1
            x, words = x[:, :longest], words[:, :longest]
        states: Tensor = self.backbone(input_ids=x.clamp(min=0), attention_mask=words.long()).last_hidden_state
        if self.pooling == "cls":
            return states[:, 0]
        weight = words.to(states.dtype)[..., None]
        return (states * weight).sum(1) / weight.sum(1).clamp(min=1)

    def forward(self, x: Tensor) -> Tensor:
        """Unit embeddings ``[B, dim]`` of token numbers ``[B, T]``; float32 also under autocast."""
        return F.normalize(self.head(self.features(x)).float(), dim=1, eps=1e-8)


def _read(transformers: Any, weights: Path, config: Any) -> nn.Module:
    logging = transformers.utils.logging
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # no report on weights that a shorter network leaves aside
    logging.disable_progress_bar()
    try:
        return transformers.AutoModel.from_pretrained(
            weights, config=config, local_files_only=True, use_safetensors=True, trust_remote_code=False
        )
    except (OSError, RuntimeError, SafetensorError) as error:
        raise errors.CorruptFileError(f"{weights} has no weights that can be read: {error}") from error
    finally:
        logging.set_verbosity(verbosity)


def build(
    config: Mapping[str, Any], *, head: str = "linear", dim: int = 128, pooling: Literal["cls", "mean"] = "cls",
    in_channels: int = 1, weights: Path | None = None,
) -> SentenceEncoder:  # fmt: skip
    """A new encoder of sentences, on the CPU, in training mode. No code of a model folder is run, no pickle is read.

    ``config`` is the ``config.json`` of a model folder. The weights of the layers that it names are read from the
    folder ``weights``; ``None`` draws them from torch's default generator.
    """
    errors.check(head in ("linear", "mlp"), "head", head, "'linear' or 'mlp', with sentences")
    transformers = errors.import_extra("transformers", "text")
    given = {name: value for name, value in config.items() if name not in ("model_type", "architectures")}
    try:
        made = transformers.AutoConfig.for_model(config.get("model_type"), **given)
        if weights is None:
            backbone = transformers.AutoModel.from_config(made, trust_remote_code=False)
        else:
            backbone = _read(transformers, weights, made)
    except (ValueError, KeyError, TypeError) as error:
        accepted = f"a model that transformers builds ({error})"
        raise errors.reject("config", config.get("model_type"), accepted) from error
    if hasattr(backbone, "pooler"):
        backbone.pooler = None  # its head is for another task
    return SentenceEncoder(backbone.float().train(), made.hidden_size, head, dim, pooling)
