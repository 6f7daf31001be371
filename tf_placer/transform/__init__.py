"""Transformations: Item to Item, each with the map from its ops to those that they came from."""

__all__ = ["AUTO", "BATCH_STATISTICS", "PART", "WHOLE"]

WHOLE = "whole"
PART = "part"
BATCH_STATISTICS = (WHOLE, PART)
"""Batch statistics of a split program: of the whole batch, or of each part as under ``tf.distribute``."""

AUTO = "auto"
"""Parts of a batch without a number: whole and a part for each device are both tried."""
