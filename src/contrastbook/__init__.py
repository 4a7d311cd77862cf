"""What only the book, the notebooks and the benchmarks show.

Studies, figures, the claims of the papers with their verdicts, the ledger of statements, made data, and exact theory
beside :mod:`contrastlab`, which never imports this package.
"""
