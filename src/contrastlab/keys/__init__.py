"""Where the embeddings to compare against live.

:class:`Bank`, :class:`Queue`, :class:`InBatch`, :class:`Prototypes`, :class:`Locations` and :class:`Pixels` are the
choices (data); ``choice.state(setup)`` makes the keys of one run, with all that must survive a restart in buffers.

Across processes every update is gathered first, in rank order: N processes hold, bit for bit, what one process with the
same global batch holds.
"""

from contrastlab.keys.bank import Bank, BankState, MemoryBank, unit_rows
from contrastlab.keys.base import (
    Batch,
    Direction,
    Embed,
    Keys,
    KeyState,
    Network,
    Setup,
    embed,
    gather,
    gather_with_gradient,
    momentum_update,
    world,
)
from contrastlab.keys.batch import InBatch, InBatchState, Prototypes, PrototypesState
from contrastlab.keys.maps import Locations, LocationsState, Pixels, PixelsState
from contrastlab.keys.queue import KeyQueue, Queue, QueueState, in_groups, local_groups

__all__ = [
    "Bank",
    "BankState",
    "Batch",
    "Direction",
    "Embed",
    "InBatch",
    "InBatchState",
    "KeyQueue",
    "KeyState",
    "Keys",
    "Locations",
    "LocationsState",
    "MemoryBank",
    "Network",
    "Pixels",
    "PixelsState",
    "Prototypes",
    "PrototypesState",
    "Queue",
    "QueueState",
    "Setup",
    "embed",
    "gather",
    "gather_with_gradient",
    "in_groups",
    "local_groups",
    "momentum_update",
    "unit_rows",
    "world",
]
