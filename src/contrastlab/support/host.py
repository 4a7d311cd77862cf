"""Which device is the host: its values can be looked at without waiting for them.

Code that has one way for a CPU and another for a GPU asks here, so that tests compute the GPU's ways on a CPU.
"""

from __future__ import annotations

import torch

TYPE = "cpu"
"""The device type that counts as the host; only tests change it."""


def holds(device: torch.device) -> bool:
    """Whether values on ``device`` are the host's own; those of any other device it has to wait for."""
    return device.type == TYPE
