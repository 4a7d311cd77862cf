"""What every kind of keys is made of: a choice (data), and the state that the choice makes for one run.

A state answers one question a step: which embeddings are contrasted with which keys (:meth:`KeyState.ask`). The learner
sums the losses of the answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from contrastlab.scores.choices import Choices, Need, Part, Setup, view_count
from contrastlab.support.collectives import gather_with_gradient, world
from contrastlab.support.errors import NotApplicableError, check, is_number

Embed = Callable[..., list[Tensor]]


@torch.no_grad()
def momentum_update(slow: nn.Module, fast: nn.Module, momentum: float) -> None:
    """Exponential moving average of the parameters; batch-norm statistics stay the slow network's own."""
    check(is_number(momentum) and 0 <= momentum <= 1, "momentum", momentum, "a number from 0 to 1")
    averages: list[Tensor] = list(slow.parameters())
    values = [parameter.detach() for parameter in fast.parameters()]
    shapes = [average.shape for average in averages]
    same = shapes == [value.shape for value in values]
    check(same, "slow", "a network of other parameters", "a copy of fast: copy.deepcopy(fast)")
    torch._foreach_lerp_(averages, values, 1 - momentum)


def embed(encoders: nn.ModuleList, views: tuple[Tensor, ...]) -> list[Tensor]:
    """Unit embeddings ``[B, d]`` of each view; view v is of stream ``v mod M``, with one encoder for each of M streams.

    All views of a stream go through its encoder as one batch, so batch-norm sees them together (SimCLR).
    """
    streams = len(encoders)
    if len(views) == streams:
        return [encoder(view) for encoder, view in zip(encoders, views, strict=True)]
    views_per_stream = len(views) // streams
    by_stream = []
    for stream, encoder in enumerate(encoders):
        embedded = encoder(torch.cat(views[stream::streams]))
        by_stream.append(embedded.chunk(views_per_stream))
    return [by_stream[v % streams][v // streams] for v in range(len(views))]


def in_chunks(embed: Embed, views: tuple[Tensor, ...], count: int) -> list[Tensor]:
    """What ``embed`` gives of the views ``[B, …]``, computed in ``count`` chunks of the items."""
    size = math.ceil(len(views[0]) / count)
    pieces = [view.split(size) for view in views]
    chunks = [embed(*chunk) for chunk in zip(*pieces, strict=True)]
    if len(chunks) == 1:
        return chunks[0]
    return [torch.cat(embeddings) for embeddings in zip(*chunks, strict=True)]


class Chunked(nn.Module):
    """A network that computes a batch in chunks of ``size`` items and holds the activations of one (GradCache).

    Source: Gao et al. 2021. Forward, each chunk is embedded and what its gradient needs is dropped. Backward, when the
    loss has given the gradient of every embedding, each chunk is embedded again with the same draws (dropout), and its
    gradient is added to the sum. Loss and gradient are thus those of the whole batch, unless the network has
    batch-norm: its statistics are those of a chunk. Running statistics take in each chunk once.
    """

    def __init__(self, network: nn.Module, size: int) -> None:
        super().__init__()
        self.network, self.size = network, size

    def forward(self, *views: Tensor) -> list[Tensor]:
        def contexts() -> tuple[Any, Any]:
            return nullcontext(), self._same_buffers()  # forward, and when it is computed again

        embed_twice = partial(checkpoint, self.network, use_reentrant=False, context_fn=contexts)
        return in_chunks(embed_twice, views, math.ceil(len(views[0]) / self.size))

    @contextmanager
    def _same_buffers(self) -> Iterator[None]:
        before = [(buffer, buffer.clone()) for buffer in self.network.buffers()]
        try:
            yield
        finally:
            for buffer, value in before:
                buffer.copy_(value)


@dataclass(frozen=True)
class Batch:
    """One step's share of this process."""

    views: tuple[Tensor, ...]  #: as the recipe makes them, each ``[B, …]``
    indices: Tensor  #: ``[B]`` numbers of the items in the pre-training set
    labels: Tensor  #: ``[B]`` classes, -1 where unknown
    generator: torch.Generator  #: of the step's draws, in the same state on every process
    chunks: int = 1  #: in which encoders without gradient compute it, as :class:`Chunked` does those with gradient
    step: int = 0  #: from 0, of a run of ``total`` steps
    total: int = 1


@dataclass(frozen=True)
class Direction:
    """Queries, and the keys that each of them is contrasted with."""

    query: Tensor  #: ``[B, d]`` unit, with gradient
    positive: Tensor  #: ``[B, M, d]`` unit keys of the query's own item
    pool: Tensor  #: ``[N, d]`` unit keys
    own: Tensor | None = None  #: ``[B]`` rows of the pool that are the queries' own items
    labels: Tensor | None = None  #: ``[N, H]`` clusters of the pool; of a batch ``[N, 1]`` classes
    banned: Tensor | None = None  #: ``[B, E]`` rows of the pool that are no candidates

    def part(self, start: int, end: int) -> Direction:
        """Some of the queries, with the same keys."""
        rows = slice(start, end)
        own = self.own
        if own is not None:
            own = own[rows]
        banned = self.banned
        if banned is not None:
            banned = banned[rows]
        return replace(self, query=self.query[rows], positive=self.positive[rows], own=own, banned=banned)


class Contrasts(NamedTuple):
    """What :meth:`KeyState.ask` answers."""

    directions: list[Direction]
    #: of each stream ``[B, M, d]``, without gradient, where keys are stored; :meth:`KeyState.commit` gets one per item
    new_keys: Sequence[Tensor] = ()


class KeyState(nn.Module):
    """The keys of one run, all of it in buffers and parameters, so ``state_dict`` holds it."""

    #: Whether pools come from earlier steps, without gradient: only scores that are used are computed.
    holds_keys: ClassVar[bool] = False
    row_per_item: ClassVar[bool] = False  #: whether :meth:`stored` keys are in the order of the pre-training items
    directions: tuple[tuple[int, int], ...]  #: (query, key) that :meth:`ask` answers, by stream or view of one stream
    slow: nn.ModuleList | None  #: momentum encoders, one per stream

    def __init__(self, setup: Setup) -> None:
        super().__init__()
        self.directions = setup.views.pairs
        self.slow = None

    def ask(self, batch: Batch, embed: Embed, network: Network) -> Contrasts:
        """What the batch is contrasted with: a :class:`Direction` for each of ``directions``, and new keys.

        ``embed`` returns the unit embeddings of views, with gradient: it is ``network``, as wrapped for the run.
        """
        raise NotApplicableError("keys=None is the untrained encoder: there is no loss")

    def unit_pair(self, direction: Direction) -> tuple[Tensor, Tensor] | None:
        """Unit queries ``[B, d]`` and positives ``[B, M, d]`` whose spread a run records, if they are embeddings."""
        return direction.query.detach(), direction.positive.detach()

    def queries(self, embed: Embed, views: tuple[Tensor, ...]) -> list[Tensor]:
        """Embeddings ``[B, d]`` of views that ask, one of each stream, as batch-norm of these keys has to see them."""
        return embed(*views)

    def commit(self, indices: Tensor, new_keys: tuple[Tensor, ...]) -> None:
        """Store ``[B, d]`` keys of each stream, after the optimiser step: the loss still needed the old ones."""

    def cluster(self, seed: int) -> None:
        """Cluster the stored keys anew, where the recipe needs clusters."""

    def norm_in_one_pass(self, encoders: nn.ModuleList) -> None:
        """Where batch-norm sees groups, let ``encoders`` and momentum encoders compute all groups in one pass.

        A step then starts several times fewer kernels. Sums over the batch are in another order, so its last bits
        differ.
        """

    def stored(self, stream: int) -> Tensor:
        """``[N, d]`` stored keys of a stream; ``NotApplicableError`` for keys that are not stored."""
        raise NotApplicableError(f"{type(self).__name__} stores no keys")


def views_of_other_keys(streams: int, further: int) -> int:
    """Views of each item that a query and its keys are made from, where keys are of other views of the item.

    One for the query, and one for each key. Streams are each other's keys: with one key per item, one view will do.
    """
    if streams > 1 and not further:
        return 1
    return 1 + max(1, further)


class Keys(Part):
    """Base of the kinds of keys."""

    shuffle_groups: int = 1  #: of a batch, each with batch-norm statistics of its own
    views_reason: ClassVar[str] = ""  #: why :meth:`views_needed` is what it is, in brackets, for a refusal
    bounds_information = True  # the keys are samples of views

    def views_needed(self, streams: int, further: int) -> int | None:
        """How many views of each item are used; ``None`` if the first is used whatever the number.

        ``further`` keys are of further views: 0 where the positives ask for the one key that every query has.
        """
        return None

    def needs(self, given: Choices) -> Iterator[Need]:
        count = self.views_needed(len(given.views.streams), given.positives.further_keys)
        if count is None:
            return
        number = {1: "one view", 2: "two views", 3: "three views"}.get(count, f"{count} views")
        reason = f"keys={self!r} with positives={given.positives!r} needs {number} of each image{self.views_reason}"
        yield Need(view_count(count), reason, f"given: {given.views!r}")

    def module(self, setup: Setup) -> nn.Module | None:
        """What these keys train besides the encoders; ``None`` for nothing. :meth:`embed` and the state get it."""
        return None

    def embed(self, encoders: nn.ModuleList, module: nn.Module | None, views: tuple[Tensor, ...]) -> list[Tensor]:
        """Embeddings of views, with gradient: here unit ones ``[B, d]``, see :func:`embed`."""
        return embed(encoders, views)

    def state(self, setup: Setup) -> KeyState:
        """The keys of one run."""
        raise NotImplementedError


class Network(nn.Module):
    """All that gradients reach, as one module to wrap and to compile: an encoder per stream, and what parts train.

    ``keys=None`` embeds views as they are.
    """

    def __init__(
        self,
        encoders: nn.ModuleList,
        keys: Keys | None = None,
        keys_module: nn.Module | None = None,
        objective_module: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.keys = Keys() if keys is None else keys
        self.encoders = encoders
        self.keys_module = keys_module
        self.objective_module = objective_module

    def forward(self, *views: Tensor) -> list[Tensor]:
        """What :meth:`Keys.embed` gives of the views."""
        return self.keys.embed(self.encoders, self.keys_module, views)


# Batch-norm across processes, and in groups ---------------------------------------------------------------------------


class _Synchronised(_BatchNorm):
    # PyTorch's own needs a GPU; this one also works on CPUs, and its state dict is that of the norm it stands for

    process_group = None  # for PyTorch's own: all processes
    _check_non_zero_input_channels = nn.SyncBatchNorm._check_non_zero_input_channels

    def forward(self, x: Tensor) -> Tensor:
        """Normalised by mean and variance over all processes, which have batches of one size, with their gradients."""
        _, processes = world()
        if processes == 1 or not self.training:
            return super().forward(x)
        if x.device.type == "cuda":  # two collectives a step where the code below has four
            return nn.SyncBatchNorm.forward(self, x)  # type: ignore[arg-type]
        axes = [axis for axis in range(x.dim()) if axis != 1]  # all but the channels
        shape = [1, -1, *[1] * (x.dim() - 2)]
        full = x.float()
        mean = gather_with_gradient(full.mean(axes)[None]).mean(0)
        centred = full - mean.view(shape)
        variance = gather_with_gradient(centred.square().mean(axes)[None]).mean(0)
        self._track(mean, variance, processes * x.numel() / x.shape[1])
        out = centred * (variance + self.eps).rsqrt().view(shape)
        if self.affine:
            out = out * self.weight.view(shape) + self.bias.view(shape)
        return out.to(x.dtype)

    @torch.no_grad()
    def _track(self, mean: Tensor, variance: Tensor, size: float) -> None:
        """Move the running statistics towards those of a batch of ``size`` values per channel."""
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        share = self.momentum or 0.0
        self.num_batches_tracked.add_(1)
        self.running_mean.lerp_(mean, share)
        self.running_var.lerp_(variance * (size / (size - 1)), share)


class _InGroups(_BatchNorm):
    # one norm after the other, of groups of a batch that all other layers see at once

    groups = 1

    def forward(self, x: Tensor) -> Tensor:
        """Normalised group by group, ``x`` ``[B, C, …]`` cut as ``tensor_split`` cuts; plain in evaluation."""
        if not self.training:
            return super().forward(x)
        mean, variance = self.running_mean, self.running_var
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(self.groups)
        least, larger = divmod(len(x), self.groups)
        sizes = [least + 1] * larger + [least] * (self.groups - larger)
        weights, biases = self._of_each_group(self.weight), self._of_each_group(self.bias)
        parts = []
        # the gradient of split is one tensor, that of tensor_split a sum of as many as there are groups
        for part, weight, bias in zip(x.split(sizes), weights, biases, strict=True):
            parts.append(F.batch_norm(part, mean, variance, weight, bias, True, self.momentum or 0.0, self.eps))
        return torch.cat(parts)

    def _of_each_group(self, parameter: Tensor | None) -> Sequence[Tensor | None]:
        """A parameter for each group, whose gradients are summed at once."""
        if parameter is None:
            return [None] * self.groups
        return parameter.expand(self.groups, -1).unbind()


def _forms(name: str, form: type) -> dict[type, type]:
    """The kinds of batch-norm in another form."""
    return {kind: type(f"{name}{kind.__name__}", (form, kind), {}) for kind in (nn.BatchNorm1d, nn.BatchNorm2d)}


_SYNCHRONISED = _forms("Sync", _Synchronised)
_IN_GROUPS = _forms("InGroups", _InGroups)


def _plain(network: nn.Module) -> list[_BatchNorm]:
    """The batch-norms that have no other form."""
    norms = [module for module in network.modules() if isinstance(module, _BatchNorm)]
    return [norm for norm in norms if not isinstance(norm, _Synchronised | _InGroups)]


def _has_forms(norm: _BatchNorm) -> bool:
    return type(norm) in _SYNCHRONISED and norm.momentum is not None


def synchronise(network: nn.Module) -> None:
    """Let every batch-norm of ``network`` see the global batch, in place."""
    for norm in _plain(network):
        if not _has_forms(norm):
            raise NotApplicableError(f"sync_batch_norm=True: no form of {norm} for several processes is known")
        norm.__class__ = _SYNCHRONISED[type(norm)]


def norm_in_groups(network: nn.Module, groups: int) -> bool:
    """Let every batch-norm of ``network`` see a batch in ``groups``, in place, and all other layers the batch at once.

    Whether that is so; nothing is changed where a batch-norm is of a kind of its own.
    """
    norms = _plain(network)
    if not all(_has_forms(norm) for norm in norms):
        return False
    for norm in norms:
        norm.__class__ = _IN_GROUPS[type(norm)]
        norm.groups = groups  # type: ignore[assignment]
    return True


def norm_plainly(network: nn.Module) -> None:
    """Make every batch-norm of ``network`` the plain one again, in place."""
    for module in network.modules():
        if isinstance(module, _Synchronised | _InGroups):
            module.__class__ = type(module).__bases__[1]
            vars(module).pop("groups", None)
