"""Placements written back into TensorFlow programs."""
