"""Policies that are taught on many problems before a search begins."""
