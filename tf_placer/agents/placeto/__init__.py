"""Placeto: a device for one group after the other (Addanki et al. 2019)."""
