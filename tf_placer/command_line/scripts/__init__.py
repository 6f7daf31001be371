"""Programs in a person's own script."""
