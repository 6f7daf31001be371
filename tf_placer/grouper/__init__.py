"""Groups of units, and what searches over groups share."""
