"""Work of random number generators."""

from __future__ import annotations

from tf_placer.costs.formula import serve
from tf_placer.costs.op_view import OpView
from tf_placer.costs.work import Kind, Work

# Philox 4x32-10 makes four numbers in ten rounds of about ten integer operations; a normal number adds a
# logarithm, a root and a sine per pair. Rounded up to one figure for both.
_OPERATIONS = 50.0


def draw(op: OpView) -> Work:
    """A fixed number of operations per number; the output is written."""
    return Work(Kind.RANDOM, _OPERATIONS * op.output_elements, op.output_bytes)


FORMULAS = serve(
    draw,
    "RandomUniform RandomUniformInt RandomStandardNormal TruncatedNormal Multinomial RandomShuffle "
    "StatelessRandomUniform StatelessRandomUniformV2 StatelessRandomUniformInt StatelessRandomUniformIntV2 "
    "StatelessRandomNormal StatelessRandomNormalV2 StatelessTruncatedNormal StatelessTruncatedNormalV2 "
    "StatelessRandomUniformFullInt StatelessRandomUniformFullIntV2 StatelessRandomGetKeyCounter "
    "StatelessRandomGetAlg StatelessRandomGetKeyCounterAlg StatelessMultinomial StatefulUniform "
    "StatefulUniformInt StatefulUniformFullInt StatefulStandardNormalV2 StatefulTruncatedNormal RngSkip "
    "RngReadAndSkip",
)
