"""Clips: short videos with their optical flow, where they come from, and random views of them."""
