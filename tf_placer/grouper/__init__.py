"""Groups of units, networks that make them, and what searches over groups share."""
