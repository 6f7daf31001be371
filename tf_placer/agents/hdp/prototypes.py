"""Starting points of the Grouper's groups."""

from __future__ import annotations

import numpy as np


def spread_prototypes(points: np.ndarray, count: int, generator: np.random.Generator) -> np.ndarray:
    """Chooses points far from each other (k-means++ seeding, Arthur & Vassilvitskii 2007).

    Args:
      points: [U, H].
      count: G <= U prototypes; where fewer points differ, some prototypes repeat.
      generator: source of randomness.

    Returns:
      [G, H] rows of ``points``.
    """
    chosen = [int(generator.integers(len(points)))]
    distance = np.square(points - points[chosen[0]]).sum(axis=1)
    while len(chosen) < count:
        total = distance.sum()
        weights = distance / total if total > 0 else np.full(len(points), 1 / len(points))
        chosen.append(int(generator.choice(len(points), p=weights)))
        distance = np.minimum(distance, np.square(points - points[chosen[-1]]).sum(axis=1))
    return points[chosen]
