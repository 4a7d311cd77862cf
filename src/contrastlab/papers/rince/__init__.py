"""The paper rince."""
