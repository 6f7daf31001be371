"""Logits of each group without a network: the baseline of every learned agent."""
