"""Programs to read and to change, in cells as a notebook has them."""
