"""What a run must survive, as functions that count: see ``benchmarks/torture.py``."""
