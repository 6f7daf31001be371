"""Problems as data: what ``Problem.save`` writes, before it is held against what a problem must be."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from tf_placer.array_file import array_file_bytes, read_array_file
from tf_placer.cluster.cluster import Cluster
from tf_placer.cluster.device import Device, Link
from tf_placer.costs.op_work import OpWork
from tf_placer.errors import InputError
from tf_placer.problem.check_arrays import PROBLEM_ARRAYS

SCHEMA_VERSION = 1
_KIND = "a tf_placer problem"
_REMEDY = "give what Problem.save wrote, or save the problem again"
_WORK = tuple(field.name for field in dataclasses.fields(OpWork))
_WHERE_KNOWN = ("alias_of_tensor", "stage_of_op")  # not in older files, nor where all are -1
_DESCRIPTIONS = (
    "name",
    "op_names",
    "op_types",
    "output_shapes",
    "fingerprint",
    "guessed_op_types",
    "estimated_sizes",
)


def problem_bytes(fields: Mapping[str, Any]) -> bytes:
    """The content of a file for a problem with these fields."""
    work: OpWork | None = fields["work"]
    arrays = {name: fields[name] for name in PROBLEM_ARRAYS}
    if work is not None:
        arrays |= {f"work_{name}": getattr(work, name) for name in _WORK}
    arrays |= {name: fields[name] for name in _WHERE_KNOWN if (fields[name] >= 0).any()}
    header = {name: fields[name] for name in _DESCRIPTIONS}
    cluster = dataclasses.asdict(fields["cluster"])
    return array_file_bytes(
        _KIND, SCHEMA_VERSION, {**header, "cluster": cluster, "has_work": work is not None}, arrays
    )


def read_problem_file(path: pathlib.Path) -> dict[str, Any]:
    """Field of ``Problem`` -> value, as the file has it: the cluster is checked, the arrays are not.

    Raises:
      InputError: the file is missing, damaged, of something else, or of another version.
    """
    header, arrays = read_array_file(path, _KIND, SCHEMA_VERSION, _REMEDY)
    try:
        fields = {name: header[name] for name in _DESCRIPTIONS} | {
            name: arrays[name] for name in PROBLEM_ARRAYS
        }
        fields["output_shapes"] = tuple(_nested(shapes) for shapes in header["output_shapes"])
        for name in ("op_names", "op_types"):
            fields[name] = tuple(header[name])
        fields["cluster"] = _cluster(header["cluster"])
        fields |= {name: arrays[name] for name in _WHERE_KNOWN if name in arrays}
        if header["has_work"]:
            fields["work"] = OpWork(*(arrays[f"work_{name}"] for name in _WORK))
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} lacks a part of a problem ({error}); {_REMEDY}") from error
    return fields


def _cluster(found: dict[str, Any]) -> Cluster:
    return Cluster(
        name=found["name"],
        devices=tuple(Device(**device) for device in found["devices"]),
        links=tuple(Link(**link) for link in found["links"]),
        kind=found["kind"],
    )


def _nested(shapes: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(shape) for shape in shapes)
