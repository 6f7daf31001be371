"""Graphs that were profiled elsewhere, read from files."""
