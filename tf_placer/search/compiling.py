"""The C++ ops compiled as a phase of what somebody waits for: an installed package has none until its first use."""

from __future__ import annotations

from tf_placer.ops.build import build_library, is_built
from tf_placer.waiting.durations import Durations
from tf_placer.waiting.wait import Wait
from tf_placer.waiting.work import Phase

COMPILE = "compiling the simulator (this once)"
_KEY = "compiling the ops"
_COMPILE_S = 40.0  # where it was never done on this machine; on two idle cores


def compiling(durations: Durations) -> tuple[Phase, ...]:
    """The phase of it; empty where the ops are there."""
    return () if is_built() else (Phase(COMPILE, durations.known(_KEY, _COMPILE_S), _KEY),)


def compile_within(wait: Wait) -> None:
    """Compiles the ops where the wait has that phase and they are not there; how long it takes is kept.

    Raises:
      InputError: there is no compiler, or it fails.
    """
    if wait.phase_of(COMPILE) is None or is_built():
        return
    # Kept here, because a wait that is planned anew after it has no such phase any more.
    with wait.phase(COMPILE), Durations().timing(_KEY):
        build_library()
