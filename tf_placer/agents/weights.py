"""Files of weights, with the kind of their policy; and the protocol of teaching a policy."""

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
    """Kind of policy: policies of one kind can take each other's weights."""

    policy: str  # its class
    # name of a part, such as its features -> version of the weights' meaning
    versions: Mapping[str, int]
    settings: Mapping[str, Any]  # settings that fix the shapes of its weights, such as a width


def weights_path(name: str, beside: str) -> pathlib.Path:
    """The file of a setting: a path, or ``SHIPPED``, for ``weights.npz`` in the folder of the module ``beside``."""
    return pathlib.Path(beside).with_name("weights.npz") if name == SHIPPED else pathlib.Path(name)


def weights_bytes(kind: PolicyKind, policy: snt.Module, history: Mapping[str, Any]) -> bytes:
    """The content of a file: the trainable variables of a built policy, its kind, and their history.

    The history is JSON data for readers of the file: command, seed, problems.
    """
    header = {**dataclasses.asdict(kind), "history": dict(history)}
    arrays = {name: variable.numpy() for name, variable in _named(policy).items()}
    return array_file_bytes(_KIND, SCHEMA_VERSION, header, arrays)


def policy_of_weights(path: pathlib.Path) -> str:
    """Class of the policy of a file's weights; raises InputError for other files."""
    header, _ = read_array_file(path, _KIND, SCHEMA_VERSION, _REMEDY)
    return str(header.get("policy"))


def command_of_weights(path: pathlib.Path) -> str:
    """The command that made a file, by its history; raises InputError for other files."""
    header, _ = read_array_file(path, _KIND, SCHEMA_VERSION, _REMEDY)
    return str(header["history"]["command"])


def check_weights_file(path: pathlib.Path) -> None:
    """Raises InputError unless the file has weights of some policy."""
    read_array_file(path, _KIND, SCHEMA_VERSION, _REMEDY)


def restore_weights(path: pathlib.Path, kind: PolicyKind, policy: snt.Module) -> Mapping[str, Any]:
    """Gives a built policy the weights of a file, all of them or none; returns the file's history.

    Raises:
      InputError: the file is missing, damaged or of another type, or its weights are of another
        policy, of another version of the features, or of a network of other sizes: one line that
        names the file and the difference.
    """
    header, arrays = read_array_file(path, _KIND, SCHEMA_VERSION, _REMEDY)
    if header.get("policy") != kind.policy:
        tasks = _entry(header, "settings", "tasks")
        also = "" if tasks == "None" or "tasks" in kind.settings else f", or set tasks={tasks}"
        raise InputError(
            f"{path} has weights of a {str(header.get('policy'))[:60]}; give some of a {kind.policy}{also}"
        )
    for name, version in kind.versions.items():
        taught = _entry(header, "versions", name)
        if taught != version:
            raise InputError(
                f"{path} was taught with version {taught} of {name}, this program has {version}; teach it anew"
            )
    for name, value in kind.settings.items():
        taught = _entry(header, "settings", name)
        if taught != value:
            raise InputError(
                f"{path} was taught with {name}={taught}, this policy has {value}; set {name}={taught}, or "
                'weights="" to begin without'
            )
    variables = _named(policy)
    if {name: array.shape for name, array in arrays.items()} != {
        name: tuple(variable.shape) for name, variable in variables.items()
    }:
        raise InputError(f"{path} has other weights than a {kind.policy}; {_REMEDY}")
    if not all(array.dtype.kind == "f" and np.isfinite(array).all() for array in arrays.values()):
        raise InputError(f"{path} has weights that are no finite numbers; {_REMEDY}")
    for name, variable in variables.items():
        variable.assign(arrays[name])
    history = header.get("history")
    return history if isinstance(history, dict) else {}


def _named(policy: snt.Module) -> dict[str, Any]:
    """Position, layer and name -> variable: names alone are not distinct, and begin with the name of the learner."""
    return {
        f"{position} {'/'.join(variable.name.split('/')[-2:])}": variable
        for position, variable in enumerate(policy.trainable_variables)
    }


def _entry(header: Mapping[str, Any], part: str, name: str) -> Any:
    """Entry of a file's header, in a form that is short enough to show."""
    entries = header.get(part)
    value = entries.get(name) if isinstance(entries, dict) else None
    return value if isinstance(value, (int, float, bool)) else str(value)[:60]


@dataclasses.dataclass(frozen=True, eq=False)
class Plans:
    """Plans that a search found for one problem."""

    device_of_unit: np.ndarray  # [K, U] int32, the fastest first
    runtime_s: np.ndarray  # [K] float64, step times in the simulator
    # [K, L, G] int32 of groups, in the tasks beyond devices (``JointPlans``); L may be 0
    levels: np.ndarray


class Student(Protocol):
    """A ``tf.Module`` with a policy for any problem, all of whose state is in variables.

        group_of_unit = student.groups_of(problem)  # for a search that finds plans of these groups, tasks and levels
        lesson = student.meets(problem, plans)
        loss = student.learn(lesson, tf.constant(1.0))

    Draws of a step depend on the seed and the count of steps alone: a student with restored
    variables continues as the saved one would have.
    """

    policy: snt.Module  # what is taught
    kind: PolicyKind
    tasks: tuple[
        str, ...
    ]  # tasks of the plans to learn from, in the order of ``JointPlans``; () without plans
    levels: int  # K, of tasks beyond devices

    def groups_of(self, problem: Problem) -> np.ndarray:
        """[U] int32 from 0 on: units that the policy always places together have the same number."""

    def meets(self, problem: Problem, plans: Plans | None) -> Any:
        """A problem with good plans, if any are needed, as the policy sees them."""

    def learn(self, lesson: Any, rate: tf.Tensor) -> tf.Tensor:
        """Takes one step, of ``rate`` (scalar float32) times the learning rate; returns the previous loss."""

    def loss_of(self, lesson: Any) -> tf.Tensor:
        """Scalar float32 loss, for problems that are not taught: a mean -log p in nats, or the logarithm of a time."""
