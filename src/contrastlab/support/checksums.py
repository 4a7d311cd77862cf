"""Records of plain values with the checksum of their content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

CHECKSUM = "checksum"
ALTERED = "its content was altered after it was written"


def checksum(value: Mapping[str, Any]) -> str:
    """SHA-256 of a record's canonical JSON without its entry ``checksum``: 64 hexadecimal digits."""
    # as read back, where every key is a text
    plain = json.loads(json.dumps({name: item for name, item in value.items() if name != CHECKSUM}))
    return hashlib.sha256(json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def with_checksum(value: Mapping[str, Any]) -> dict[str, Any]:
    """A record of plain values with :func:`checksum` as its last entry."""
    return {**value, CHECKSUM: checksum(value)}


def verified(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A record as :func:`with_checksum` was given it; a ``ValueError`` tells one that does not have its checksum."""
    if CHECKSUM in raw and raw[CHECKSUM] != checksum(raw):
        raise ValueError(ALTERED)
    return {name: item for name, item in raw.items() if name != CHECKSUM}
