"""The paper debiased."""
