"""Planners: placements that are not learned."""
