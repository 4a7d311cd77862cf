"""Detection, masks and keypoints: a detector is trained on an encoder and scored by average precision."""

from contrastlab.tasks.dense.families import Boxes, Keypoints, Masks

__all__ = ["Boxes", "Keypoints", "Masks"]
