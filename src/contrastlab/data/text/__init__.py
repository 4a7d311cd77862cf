"""Sentences and scored pairs of them: sets, token numbers, what names load."""
