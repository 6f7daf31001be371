"""The clean-ups, in order: each keeps the numbers and frees the placement."""

from __future__ import annotations

from tf_placer.graph.cleaning.bypass_loop_handles import bypass_loop_handles
from tf_placer.graph.cleaning.bypass_noops import bypass_noops
from tf_placer.graph.cleaning.clone_constants import clone_constants
from tf_placer.graph.cleaning.default_attributes import default_attributes
from tf_placer.graph.cleaning.inline_calls import inline_calls
from tf_placer.graph.cleaning.inline_in_functions import inline_in_functions
from tf_placer.graph.cleaning.prune import prune
from tf_placer.graph.cleaning.release_results import release_results
from tf_placer.graph.cleaning.rename_branches import rename_branches
from tf_placer.graph.cleaning.split_identity_n import split_identity_n
from tf_placer.graph.cleaning.topological_order import topological_order
from tf_placer.graph.program import Program

CLEAN_UPS = (
    release_results,  # first, while a call is still one control output
    inline_calls,
    bypass_loop_handles,
    split_identity_n,
    prune,  # before bypassing: the `end` of a call that nobody waits for goes
    inline_in_functions,  # after it: functions that were only called are gone
    topological_order,
    bypass_noops,
    prune,  # after it: side effects named through a NoOp may be mere reads
    clone_constants,
    topological_order,
    rename_branches,  # last of those that make names
    default_attributes,
)


def clean(program: Program) -> Program:
    """Returns the program after all ``CLEAN_UPS``; its nodes are in topological order."""
    for clean_up in CLEAN_UPS:
        program = clean_up(program)
    return program
