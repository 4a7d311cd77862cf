"""The paper debiased: a sixth one, which shows that a paper is one folder."""
