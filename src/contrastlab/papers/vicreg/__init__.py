"""The paper vicreg."""
