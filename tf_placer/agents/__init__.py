"""Learned policies and how they learn."""
