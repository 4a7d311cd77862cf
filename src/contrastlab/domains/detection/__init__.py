"""Detection, masks and keypoints: a detector is trained on an encoder and scored by average precision."""
