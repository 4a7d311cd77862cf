"""The paper decoupled."""
