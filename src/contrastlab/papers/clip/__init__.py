"""The paper clip."""
