"""Generations of random keys: what a biased random-key genetic algorithm is without its problem."""

from __future__ import annotations

import numpy as np


def children(
    keys: np.ndarray,
    elites: int,
    count: int,
    bias: float,
    mutation: float,
    generator: np.random.Generator,
) -> np.ndarray:
    """Children of an elite and another each (Goncalves & Resende 2011).

    Args:
      keys: [P, G] of the last generation, the fastest first; or [P, G, D], where the D keys of a group stay together.
      elites: how many of them are elites, in [1, P).
      count: how many children.
      bias: probability that a child has a key from its elite parent.
      mutation: probability that a child's key is drawn anew, uniformly.
      generator: draws.

    Returns:
      [count, G] or [count, G, D] keys.
    """
    one = keys[generator.integers(elites, size=count)]
    other = keys[generator.integers(elites, len(keys), size=count)]
    whole = (count, keys.shape[1], *[1] * (keys.ndim - 2))
    mixed = np.where(generator.random(whole) < bias, one, other)
    return np.where(generator.random(whole) < mutation, generator.random(mixed.shape), mixed)


def joined(
    keys: np.ndarray, runtime_s: np.ndarray, offered: np.ndarray, offered_s: np.ndarray, population: int
) -> tuple[np.ndarray, np.ndarray]:
    """The next generation: elites of the last one and what was offered, the fastest first.

    Args:
      keys, runtime_s: [K, G] and [K], the elites.
      offered, offered_s: [B, G] and [B].
      population: most that live on.

    Returns:
      Keys [P, G] and seconds [P].
    """
    every, times = np.concatenate([keys, offered]), np.concatenate([runtime_s, offered_s])
    order = np.argsort(times, kind="stable")[:population]
    return every[order], times[order]


def devices_of_keys(keys: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """[B, G] devices: a key k means the floor(k n)-th of the n devices that its group may be on.

    Args:
      keys: [B, G] in [0, 1).
      allowed: [G, D] bool, at least one True in each row.
    """
    nth = np.argsort(~allowed, axis=1, kind="stable")  # [G, D] allowed devices first
    count = allowed.sum(axis=1)
    position = np.minimum((keys * count).astype(np.int64), count - 1)
    return nth[np.arange(len(allowed)), position]


def keys_of_devices(devices: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """[G] keys in the middle of what stands for devices [G]; for the first one where a group may not be there."""
    group = np.arange(len(allowed))
    position = (np.cumsum(allowed, axis=1) - 1)[group, devices]
    position = np.where(allowed[group, devices], position, 0)
    return (position + 0.5) / allowed.sum(axis=1)
