"""What is refused of a graph that comes from a file, before anything relies on it."""
