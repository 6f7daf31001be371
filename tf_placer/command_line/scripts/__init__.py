"""Programs in a user's own script."""
