"""Kinds of data beside pictures, a folder each, and the tables by which names find data sets, modalities and tasks."""
