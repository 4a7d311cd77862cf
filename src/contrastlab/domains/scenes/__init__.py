"""Indoor scenes with depth, normals and classes of pixels."""
