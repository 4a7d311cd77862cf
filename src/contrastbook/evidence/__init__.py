"""What stored results say of the papers' claims: differences with verdicts, searches, curves, bounds."""

from contrastbook.evidence import bound, claims, curves, differences, headlines, inference, searches, words

__all__ = ["bound", "claims", "curves", "differences", "headlines", "inference", "searches", "words"]
