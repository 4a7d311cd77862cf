"""What stored results say of the papers' claims: differences with verdicts, searches, curves, bounds."""

from contrastbook.evidence import bound, claims, curves, inference, searches

__all__ = ["bound", "claims", "curves", "inference", "searches"]
