"""Transformations: Item to Item, each with the map from its ops to those that they came from."""

BATCH_STATISTICS = WHOLE, PART = ("whole", "part")
"""Batch statistics of a split program: of the whole batch, or of each part as under ``tf.distribute``."""
