"""Words that flags choose among."""

from __future__ import annotations

FASTEST, METHOD = "fastest", "method"
WRITE = (FASTEST, METHOD)
OP, LAYER = "op", "layer"
BY = (OP, LAYER)
