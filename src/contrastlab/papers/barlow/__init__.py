"""The paper barlow."""
