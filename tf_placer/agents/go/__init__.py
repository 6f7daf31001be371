"""GO: devices for all nodes of a graph at once, by a policy that serves any graph (Zhou et al. 2020)."""
