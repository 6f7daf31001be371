"""The Hierarchical planner (Mirhoseini et al. 2018)."""
