"""ColocRL (Mirhoseini et al. 2017): devices of groups that co-location rules make."""
