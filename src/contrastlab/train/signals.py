"""How a person or a cluster stops a run in good order."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SAME_SIGNAL_S = 2.0
"""Seconds in which a second signal is the first: a launcher passes on what the whole group was sent."""


@contextmanager
def signals(handler: Any, *numbers: int) -> Iterator[None]:
    """Handle some signals within, here and in processes that are started; only a main thread can do so."""
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in numbers:
            before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, old in before.items():
            if old is None:  # it was not set from Python
                old = signal.SIG_DFL
            signal.signal(number, old)


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C, or SIGTERM, sets; a later one interrupts at once."""
    stop = threading.Event()
    first = math.inf

    def handle(number: int, frame: Any) -> None:
        nonlocal first
        now = time.monotonic()
        if now - first > SAME_SIGNAL_S:
            # not the old handler: a shell starts background jobs with SIGINT ignored
            signal.default_int_handler(number, frame)
        first = min(first, now)
        stop.set()

    with signals(handle, signal.SIGINT, signal.SIGTERM):
        yield stop
