"""Networks that read whole graphs."""
