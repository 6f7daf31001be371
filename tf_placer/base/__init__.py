"""Errors, arguments, files and quantities, independent of placement."""
