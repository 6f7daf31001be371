"""Transformations: Item to Item, each with the map from its ops to those that they came from."""
