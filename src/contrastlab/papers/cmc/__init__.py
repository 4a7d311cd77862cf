"""The paper cmc."""
