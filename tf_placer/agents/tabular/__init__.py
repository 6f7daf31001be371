"""Logits of each group without a network: what a learned agent is held against."""
