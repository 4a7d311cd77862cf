"""Images: sets of them, where they come from, and random views of them."""
