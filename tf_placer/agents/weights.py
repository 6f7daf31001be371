"""Files of weights, with the kind of their policy."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import sonnet as snt

from tf_placer.base.arguments import InputError
from tf_placer.base.files import array_file_bytes, read_array_file

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
    versions: Mapping[str, int]  # name of a part, such as features -> version of the weights' meaning
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


def weights_header(path: pathlib.Path) -> dict[str, Any]:
    """Kind and history of a file of weights; raises InputError for other files."""
    header, _ = read_array_file(path, _KIND, SCHEMA_VERSION, _REMEDY)
    return header


def restore_weights(path: pathlib.Path, kind: PolicyKind, policy: snt.Module) -> Mapping[str, Any]:
    """Gives a built policy the weights of a file, all of them or none; returns the file's history.

    Raises:
      InputError: the file is missing, damaged or of another type, or its weights are of another
        policy, of other features or of other sizes.
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
    shapes = {name: tuple(variable.shape) for name, variable in variables.items()}
    if {name: array.shape for name, array in arrays.items()} != shapes:
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
