"""Words for the sources of op costs."""

from __future__ import annotations

COSTS = ("analytic", "profiled")
