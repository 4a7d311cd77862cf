"""The paper vince."""
