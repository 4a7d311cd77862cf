"""The paper ring."""
