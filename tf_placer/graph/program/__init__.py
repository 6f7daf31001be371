"""``Program``: a graph with its inputs, results, side effects and variables. Reading makes it, cleaning changes it."""
