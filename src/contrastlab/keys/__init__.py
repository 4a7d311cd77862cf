"""Where the embeddings to compare against live.

:class:`Bank`, :class:`Queue`, :class:`InBatch`, :class:`Prototypes`, :class:`Locations` and :class:`Pixels` are the
choices (data); ``choice.state(setup)`` makes the keys of one run, with all that must survive a restart in buffers. A
kind of keys is one file of this folder.

Across processes every update is gathered first, in rank order: N processes hold, bit for bit, what one
process with the same global batch holds.
"""

from contrastlab.keys.bank import Bank, BankState, MemoryBank, unit_rows
from contrastlab.keys.base import Batch, Direction, Embed, Keys, KeyState, Network, Setup, embed
from contrastlab.keys.batch import InBatch, InBatchState
from contrastlab.keys.distributed import gather, gather_with_gradient, world
from contrastlab.keys.locations import Locations, LocationsState
from contrastlab.keys.momentum import in_groups, local_groups, momentum_update
from contrastlab.keys.pixels import Pixels, PixelsState
from contrastlab.keys.prototypes import Prototypes, PrototypesState
from contrastlab.keys.queue import KeyQueue, Queue, QueueState

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
