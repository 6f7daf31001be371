"""Errors, arguments, files and quantities: what knows nothing of placement."""
