"""Descriptions of hardware: devices, links, clusters; files and presets; what this machine has."""
