"""Training: the loop, a recipe made concrete, saved state."""

from contrastlab.pretrain.loop import Speed, Trained, cpu_fabric, pretrain

__all__ = ["Speed", "Trained", "cpu_fabric", "pretrain"]
