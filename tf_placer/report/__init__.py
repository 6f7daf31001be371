"""Outcomes as text, tables, pages and files."""
