"""Training: the loop, a recipe made concrete, saved state."""

from contrastlab.pretrain.loop import Speed, Trained, pretrain
from contrastlab.pretrain.schedule import cpu_fabric

__all__ = ["Speed", "Trained", "cpu_fabric", "pretrain"]
