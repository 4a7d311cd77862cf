"""The paper siglip."""
