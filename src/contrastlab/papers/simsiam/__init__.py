"""The paper simsiam."""
