"""Programs that keep the repository itself in order; not installed."""
