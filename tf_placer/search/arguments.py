"""What ``search`` is given, taken as it is meant or refused in one line."""

from __future__ import annotations

import dataclasses
import functools
import warnings

import numpy as np

from tf_placer import arguments
from tf_placer.arguments import MAX_SEED
from tf_placer.errors import InputError
from tf_placer.method_spec import MethodSpec
from tf_placer.problem.placement import Placement
from tf_placer.problem.problem import Problem
from tf_placer.search import methods
from tf_placer.search.round import Method


def seed_of(seed: int) -> int:
    """A plain integer, also from NumPy's.

    Raises:
      InputError: no whole number, or one out of range.
    """
    return arguments.whole_number("seed", seed, 0, MAX_SEED)


def method_of(method: str | MethodSpec | Method) -> MethodSpec:
    """The row of a method.

    Raises:
      InputError: an unknown name, or nothing that can be called.
    """
    if isinstance(method, MethodSpec):
        return method
    if isinstance(method, str):
        return methods.find(method)
    arguments.function("method", method, f"give one of {', '.join(methods.names())}, or a method itself")
    # It need not be a plain function: it may be one with some arguments filled in.
    inner = method.func if isinstance(method, functools.partial) else method
    # Whoever gives a function knows what it does with a start.
    named = methods.own_rounds(getattr(inner, "__name__", type(inner).__name__), method)
    return dataclasses.replace(named, uses_start=True)


def start_of(problem: Problem, start: Placement | np.ndarray | None, method: MethodSpec) -> np.ndarray | None:
    """[U] where to begin, if it is given and the method begins anywhere; else a warning.

    Raises:
      InputError: no legal placement of this problem, nor of one with the same units and devices.
    """
    if start is None:
        return None
    if isinstance(start, Placement):
        if not _same_units(start.problem, problem):
            raise InputError(
                f"start is a placement of {start.problem.name!r} on {start.problem.cluster.name!r}, another graph or "
                f"other devices than {problem.name!r} on {problem.cluster.name!r}; give one of this problem"
            )
        if start.priority_of_op is not None or start.cluster_of_op is not None:
            warnings.warn(
                "methods decide devices alone: the start's priorities and clusters are left", stacklevel=3
            )
        start = start.device_of_unit
    try:
        begin = np.array(Placement(problem, start).device_of_unit)
    except InputError as error:
        raise InputError(f"start: {error}") from None
    if not method.uses_start:
        using = ", ".join(name for name in methods.names() if methods.find(name).uses_start)
        warnings.warn(f"method {method.name!r} ignores start; {using} begin there", stacklevel=3)
        return None
    return begin


def _same_units(one: Problem, other: Problem) -> bool:
    """Whether a placement of one problem means the same for the other, whatever their costs."""
    names = [[device.name for device in problem.cluster.devices] for problem in (one, other)]
    return one is other or (
        names[0] == names[1]
        and one.op_names == other.op_names
        and np.array_equal(one.unit_of_op, other.unit_of_op)
    )
