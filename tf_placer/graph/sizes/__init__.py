"""Shape, dtype and bytes of every tensor of a graph: inferred, bounded or estimated."""
