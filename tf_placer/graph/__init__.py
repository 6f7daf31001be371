"""``Item``: one self-contained graph and where it comes from."""
