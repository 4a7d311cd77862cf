"""Mutual information: exact values, bounds on samples, critics, densities, and made variables with a known truth."""
