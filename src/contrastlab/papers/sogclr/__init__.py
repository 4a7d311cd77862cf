"""The paper sogclr."""
