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
        self,
        backbone: nn.Module,
        feature_dim: int,
        head: str = "linear",
        dim: int = 128,
        pooling: Literal["cls", "mean"] = "cls",
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.feature_dim = feature_dim
        self.dim = dim
        self.pooling = pooling
        self.head: nn.Module = nn.Linear(feature_dim, dim)
        if head == "mlp":
            self.head = nn.Sequential(self.head, nn.Tanh())

    def features(self, x: Tensor, pooled: bool = True) -> Tensor:
        """What a task reads, ``[B, F]``, of token numbers ``[B, T]`` int64, −1 behind the end of a sentence."""
        if not pooled:
            raise errors.NotApplicableError("sentences differ in length: only pooled features can be compared")
        is_word = x >= 0
        if host.holds(x.device):  # no token of the batch is behind its longest sentence; a GPU would be waited for
            longest = _longest(is_word)
            x = x[:, :longest]
            is_word = is_word[:, :longest]
        output = self.backbone(input_ids=x.clamp(min=0), attention_mask=is_word.long())
        states: Tensor = output.last_hidden_state
        if self.pooling == "cls":
            return states[:, 0]
        weight = is_word.to(states.dtype)[..., None]
        return (states * weight).sum(1) / weight.sum(1).clamp(min=1)

    def forward(self, x: Tensor) -> Tensor:
        """Unit embeddings ``[B, dim]`` of token numbers ``[B, T]``; float32 also under autocast."""
        embeddings = self.head(self.features(x))
        return F.normalize(embeddings.float(), dim=1, eps=1e-8)


def _longest(is_word: Tensor) -> int:
    """Tokens of the longest sentence, at least one."""
    if not len(is_word):
        return 1
    lengths = is_word.sum(1)
    return max(int(lengths.max()), 1)


def _read(transformers: Any, weights: Path, config: Any) -> nn.Module:
    logging = transformers.utils.logging
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # no report on weights that a shorter network leaves aside
    logging.disable_progress_bar()
    try:
        return transformers.AutoModel.from_pretrained(
            weights,
            config=config,
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
        )
    except (OSError, RuntimeError, SafetensorError) as error:
        raise errors.CorruptFileError(f"{weights} has no weights that can be read: {error}") from error
    finally:
        logging.set_verbosity(verbosity)


def build(
    config: Mapping[str, Any],
    *,
    head: str = "linear",
    dim: int = 128,
    pooling: Literal["cls", "mean"] = "cls",
    in_channels: int = 1,
    weights: Path | None = None,
) -> SentenceEncoder:
    """A new encoder of sentences, on the CPU, in training mode. No code of a model folder is run, no pickle is read.

    ``config`` is the ``config.json`` of a model folder. The weights of the layers that it names are read from the
    folder ``weights``; ``None`` draws them from torch's default generator.
    """
    errors.check(head in ("linear", "mlp"), "head", head, "'linear' or 'mlp', with sentences")
    transformers = errors.import_extra("transformers", "text")
    values = dict(config)
    model_type = values.pop("model_type", None)
    values.pop("architectures", None)
    try:
        configuration = transformers.AutoConfig.for_model(model_type, **values)
        if weights is None:
            backbone = transformers.AutoModel.from_config(configuration, trust_remote_code=False)
        else:
            backbone = _read(transformers, weights, configuration)
    except (ValueError, KeyError, TypeError) as error:
        raise errors.reject("config", model_type, f"a model that transformers builds ({error})") from error
    if hasattr(backbone, "pooler"):
        backbone.pooler = None  # its head is for another task
    return SentenceEncoder(backbone.float().train(), configuration.hidden_size, head, dim, pooling)
