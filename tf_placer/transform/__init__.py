"""Transformations: Item to Item, each with the map from its ops to those that they came from."""

__all__ = ["AUTO", "BATCH_STATISTICS", "PART", "RECOMPUTE", "WHOLE"]

WHOLE = "whole"
PART = "part"
BATCH_STATISTICS = (WHOLE, PART)
"""Batch statistics of a split program: of the whole batch, or of each part as under ``tf.distribute``."""

AUTO = "auto"
"""Parts of a batch without a number: whole and a part for each device are both tried."""

RECOMPUTE = ("none", AUTO)
"""What is done again, or parked for the backward pass: nothing, or what makes a step fit that does not otherwise."""
