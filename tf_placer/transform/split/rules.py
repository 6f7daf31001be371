"""The rule of each op type that can be split (``split`` in the table of op facts)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from colocation.op_facts import values
from tf_placer.transform.split import batch_norm, elementwise, movement, products, reductions
from tf_placer.transform.split.states import OpStates, Split

Rule = Callable[[OpStates, str], Split]

_FAMILIES = (batch_norm, elementwise, movement, products, reductions)
_SPLIT_OF_TYPE: Mapping[str, str] = values("split")
# What mixes examples to tell how they are spread, and takes each part's own where that is asked for.
NORMALIZATION, GRADIENT = "normalization", "normalization_gradient"
STATISTICS = (NORMALIZATION, GRADIENT)


def split_types() -> frozenset[str]:
    """The op types that have a rule."""
    return frozenset(_SPLIT_OF_TYPE)


def rule_name(op_type: str) -> str:
    """Name of an op type's rule; "" for none."""
    return _SPLIT_OF_TYPE.get(op_type, "").partition(":")[0]


def split_by_rule(op: OpStates, has_own_statistics: bool = False) -> Split:
    """How an op is split.

    Args:
      op: one with a rule, and with an input that is not whole.
      has_own_statistics: each part is normalized by itself.

    Raises:
      NotSplit: it cannot be, with these inputs.
    """
    name, _, argument = _SPLIT_OF_TYPE[op.node.op].partition(":")
    if has_own_statistics and name in STATISTICS:
        return batch_norm.of_parts(op, argument)
    return _RULES[name](op, argument)


def _rules() -> dict[str, Rule]:
    named = {text.partition(":")[0] for text in _SPLIT_OF_TYPE.values()}
    found = {name: getattr(family, name) for family in _FAMILIES for name in named if hasattr(family, name)}
    if named - found.keys():
        raise ValueError(
            f"op facts name the rules {sorted(named - found.keys())}, which are nowhere; write them"
        )
    return found


_RULES: Mapping[str, Rule] = _rules()
