"""Where the embeddings to compare against live.

:class:`Bank`, :class:`Queue`, :class:`InBatch`, :class:`Pairs`, :class:`Prototypes`, :class:`Locations` and
:class:`Pixels` are the choices (data). ``choice.state(setup)`` makes the keys of one run, with all that must survive a
restart in buffers. Across processes every update is gathered first, in rank order: N processes hold, bit for bit, what
one process with the same global batch holds.
"""

from contrastlab.keys.base import (
    Batch,
    Chunked,
    Contrasts,
    Direction,
    Embed,
    Keys,
    KeyState,
    Network,
    embed,
    momentum_update,
    norm_in_groups,
    norm_plainly,
    synchronise,
)
from contrastlab.keys.batch import InBatch, Locations, Pairs, Pixels, Prototypes
from contrastlab.keys.stored import Bank, BankState, KeyQueue, MemoryBank, Queue
from contrastlab.scores.choices import Setup

__all__ = [
    "Bank",
    "BankState",
    "Batch",
    "Chunked",
    "Contrasts",
    "Direction",
    "Embed",
    "InBatch",
    "KeyQueue",
    "KeyState",
    "Keys",
    "Locations",
    "MemoryBank",
    "Network",
    "Pairs",
    "Pixels",
    "Prototypes",
    "Queue",
    "Setup",
    "embed",
    "momentum_update",
    "norm_in_groups",
    "norm_plainly",
    "synchronise",
]
