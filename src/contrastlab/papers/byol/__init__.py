"""The paper byol."""
