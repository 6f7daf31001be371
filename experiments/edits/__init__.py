"""Moves that are chosen by a network: the searches that it learns from and is judged by, and its training."""
