"""The paper jcl."""
