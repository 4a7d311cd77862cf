"""The paper supcon."""
