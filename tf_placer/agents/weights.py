"""Weights of a policy in a file, with the kind of policy they are for; and the protocol of teaching one."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import sonnet as snt
import tensorflow as tf

from tf_placer.base.arguments import InputError
from tf_placer.base.files import array_file_bytes, read_array_file
from tf_placer.problem.problem import Problem

SHIPPED = "shipped"
"""Stands for the file of weights that comes with tf_placer, which ``python -m experiments.pretrain`` makes."""

WEIGHTS_REMEDY = "give the path of a file that `train` wrote"

SCHEMA_VERSION = 1
_KIND = "weights of a tf_placer policy"
_REMEDY = "give what `train` wrote"


@dataclasses.dataclass(frozen=True)
class PolicyKind:
    """Kind of policy: policies of one kind can take each other's weights.

    Attributes:
      policy: its class.
      versions: what its weights mean, such as that of the features -> version.
      settings: what fixes the shapes of its weights, such as a width -> value.
    """

    policy: str
    versions: Mapping[str, int]
    settings: Mapping[str, Any]


def weights_path(name: str, beside: str) -> pathlib.Path:
    """The file that a setting names.

    Args:
      name: a path, or ``SHIPPED``.
      beside: path of a module of the policy's folder, where the weights are that ship.
    """
    return pathlib.Path(beside).with_name("weights.npz") if name == SHIPPED else pathlib.Path(name)


def weights_bytes(kind: PolicyKind, policy: snt.Module, history: Mapping[str, Any]) -> bytes:
    """The content of a file.

    Args:
      kind: of the policy.
      policy: built, whose trainable variables are kept.
      history: where they come from, for who reads the file: command, seed, problems; what JSON can hold.
    """
    header = {**dataclasses.asdict(kind), "history": dict(history)}
    arrays = {name: variable.numpy() for name, variable in _named(policy).items()}
    return array_file_bytes(_KIND, SCHEMA_VERSION, header, arrays)


def policy_of_weights(path: pathlib.Path) -> str:
    """Class of the policy that the weights of a file are of.

    Raises:
      InputError: it is no file of weights.
    """
    header, _ = read_array_file(path, _KIND, SCHEMA_VERSION, _REMEDY)
    return str(header.get("policy"))


def command_of_weights(path: pathlib.Path) -> str:
    """The command that made a file, as its history tells.

    Raises:
      InputError: it is no file of weights.
    """
    header, _ = read_array_file(path, _KIND, SCHEMA_VERSION, _REMEDY)
    return str(header["history"]["command"])


def check_weights_file(path: pathlib.Path) -> None:
    """Raises InputError unless it is a file of weights, whosever they are."""
    read_array_file(path, _KIND, SCHEMA_VERSION, _REMEDY)


def restore_weights(path: pathlib.Path, kind: PolicyKind, policy: snt.Module) -> Mapping[str, Any]:
    """Gives a policy the weights of a file.

    Args:
      path: of the file.
      kind: of the policy.
      policy: built; changed whole or not at all.

    Returns:
      The history that was given when it was written.

    Raises:
      InputError: the file is missing, damaged or of something else, or its weights are of another policy, of another
        version of the features, or of a network of other sizes: one line that names the file and the difference.
    """
    header, arrays = read_array_file(path, _KIND, SCHEMA_VERSION, _REMEDY)
    if header.get("policy") != kind.policy:
        tasks = _entry(header, "settings", "tasks")
        also = "" if tasks == "None" or "tasks" in kind.settings else f", or set tasks={tasks}"
        raise InputError(
            f"{path} has weights of a {str(header.get('policy'))[:60]}; give some of a {kind.policy}{also}"
        )
    for name, version in kind.versions.items():
        found = _entry(header, "versions", name)
        if found != version:
            raise InputError(
                f"{path} was taught with version {found} of {name}, this program has {version}; teach it anew"
            )
    for name, value in kind.settings.items():
        found = _entry(header, "settings", name)
        if found != value:
            raise InputError(
                f"{path} was taught with {name}={found}, this policy has {value}; set {name}={found}, or "
                'weights="" to begin without'
            )
    named = _named(policy)
    if {name: array.shape for name, array in arrays.items()} != {
        name: tuple(variable.shape) for name, variable in named.items()
    }:
        raise InputError(f"{path} has other weights than a {kind.policy}; {_REMEDY}")
    if not all(array.dtype.kind == "f" and np.isfinite(array).all() for array in arrays.values()):
        raise InputError(f"{path} has weights that are no finite numbers; {_REMEDY}")
    for name, variable in named.items():
        variable.assign(arrays[name])
    history = header.get("history")
    return history if isinstance(history, dict) else {}


def _named(policy: snt.Module) -> dict[str, Any]:
    """Position, layer and name -> variable: names are not distinct, and begin with the name of the policy's maker."""
    return {
        f"{position} {'/'.join(variable.name.split('/')[-2:])}": variable
        for position, variable in enumerate(policy.trainable_variables)
    }


def _entry(header: Mapping[str, Any], part: str, name: str) -> Any:
    """Entry of a file's header, in a form that is short enough to show."""
    entries = header.get(part)
    value = entries.get(name) if isinstance(entries, dict) else None
    return value if isinstance(value, (int, float, bool)) else str(value)[:60]


# Protocol of a policy that is taught on many problems, with good plans if it needs some.


@dataclasses.dataclass(frozen=True, eq=False)
class Plans:
    """Plans that a search found for one problem.

    Attributes:
      device_of_unit: [K, U] int32, the fastest first.
      runtime_s: [K] float64, step times in the simulator.
      levels: [K, L, G] int32 of groups, in the tasks beyond devices (``JointPlans``); L = 0 where there are none.
    """

    device_of_unit: np.ndarray
    runtime_s: np.ndarray
    levels: np.ndarray


class Student(Protocol):
    """A ``tf.Module`` with a policy for any problem, all of whose state is in variables.

        group_of_unit = student.groups_of(problem)  # whoever looks for plans keeps to these, to its tasks and levels
        lesson = student.meets(problem, plans)
        loss = student.learn(lesson, tf.constant(1.0))

    What a step draws depends on the seed and the count of steps alone: a student with restored variables goes on as the
    saved one would have.

    Attributes:
      policy: what is taught.
      kind: says for which policies its weights are.
      tasks: what the plans decide that it learns from, in the order of ``JointPlans``; () for who learns without any.
      levels: K, of tasks beyond devices.
    """

    policy: snt.Module
    kind: PolicyKind
    tasks: tuple[str, ...]
    levels: int

    def groups_of(self, problem: Problem) -> np.ndarray:
        """[U] int32, from 0 on: units that the policy can only place together have the same number."""

    def meets(self, problem: Problem, plans: Plans | None) -> Any:
        """A problem with good plans, if it needs some, as the policy sees them."""

    def learn(self, lesson: Any, rate: tf.Tensor) -> tf.Tensor:
        """Takes one step: towards the plans, or towards what it finds by itself.

        Args:
          lesson: what ``meets`` gave.
          rate: scalar float32, the length of the step as a share of the learning rate.

        Returns:
          Scalar float32, what is to become small, before the step: a mean -log p in nats, or the logarithm of a time.
        """

    def loss_of(self, lesson: Any) -> tf.Tensor:
        """The same without a step: for problems that it is not taught."""
