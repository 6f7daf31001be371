"""Networks that put units into groups."""

from tf_placer.grouper.feed_forward import FeedForwardGrouper

__all__ = ["FeedForwardGrouper"]
