"""Groups of units, networks that make them, and what searches over groups share."""

from tf_placer.grouper.feed_forward import FeedForwardGrouper

__all__ = ["FeedForwardGrouper"]
