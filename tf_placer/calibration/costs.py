"""Words for where the costs of ops come from."""

from __future__ import annotations

COSTS = ("analytic", "profiled")
