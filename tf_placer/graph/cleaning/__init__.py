"""The clean-ups of a raw ``Program``: each keeps the numbers and frees the placement."""
