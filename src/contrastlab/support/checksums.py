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
    as_read_back = json.loads(json.dumps(_without_checksum(value)))  # where every key is a text
    canonical = json.dumps(as_read_back, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def with_checksum(value: Mapping[str, Any]) -> dict[str, Any]:
    """A record of plain values with :func:`checksum` as its last entry."""
    return {**value, CHECKSUM: checksum(value)}


def verified(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A record as :func:`with_checksum` was given it; a ``ValueError`` tells one that does not have its checksum."""
    if CHECKSUM in raw and raw[CHECKSUM] != checksum(raw):
        raise ValueError(ALTERED)
    return _without_checksum(raw)


def _without_checksum(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name != CHECKSUM}
