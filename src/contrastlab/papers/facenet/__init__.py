"""The paper facenet."""
