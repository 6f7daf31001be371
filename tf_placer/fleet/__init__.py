"""A fleet to measure on: many machines that time placements at once, through Ray."""
