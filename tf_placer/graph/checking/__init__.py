"""Checks of graphs from files, made before anything relies on them."""
