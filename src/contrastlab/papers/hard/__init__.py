"""The paper hard."""
