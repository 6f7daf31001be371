"""Colocation of ops: those of a TensorFlow graph that must share a device, and those that should."""
