"""Learned policies and their learners."""
