"""Videos: frames and their optical flow."""
