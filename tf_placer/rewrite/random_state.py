"""State of ops that draw random numbers with a seed, kept outside of their kernels.

TensorFlow keeps it in the kernel: a function that is made anew begins anew. The ops of ``tf.random.Generator`` draw the
same numbers from a variable. Written with these, a function and its copies draw from the same variables, each going on
where another was.
"""

from __future__ import annotations

import functools
import itertools
import warnings
import weakref
from collections.abc import Iterable, Iterator, Mapping, MutableSequence

import tensorflow as tf
from tensorflow.core.framework import node_def_pb2

from colocation import tensorflow_internals as internals
from colocation.op_facts import BRANCHES, CALLS, LOOPS, control_inputs, data_inputs, is_compiled, new_node
from colocation.tensorflow_internals import ConcreteFunction, is_dataset_function
from tf_placer.base.eager import outside_functions
from tf_placer.graph.program import fresh_name, functions_in, functions_of
from tf_placer.graph.read_function import function_name

# Op type -> the one that draws the same numbers from a variable, bit for bit.
_WITH_VARIABLE = {
    "RandomStandardNormal": "StatefulStandardNormalV2",
    "RandomUniform": "StatefulUniform",
    "RandomUniformInt": "StatefulUniformInt",
    "TruncatedNormal": "StatefulTruncatedNormal",
}
_PHILOX = 1
_serial = itertools.count()


@functools.cache
def _has_seeds(op_type: str) -> bool:
    definition = internals.registered_op(op_type)
    return (
        definition is not None
        and definition.is_stateful
        and {"seed", "seed2"} <= {attribute.name for attribute in definition.attr}
        and not any(out.is_ref or out.type == tf.resource.as_datatype_enum for out in definition.output_arg)
    )


class SeededDraws:
    """The ops of a function that draw with a seed, in its loops, branches and calls, too.

    What they draw follows from the seed and from how often they have run.

    Attributes:
      carried: name of an op, with those of the nodes around it -> its state before it has run: counter and key.
      lost: types of the others, whose state nothing but the kernel can hold.
    """

    def __init__(self, concrete: ConcreteFunction) -> None:
        graphs = internals.graphs_of(concrete.graph)
        is_drawing = any(_has_seeds(op.type) for graph in graphs for op in graph.get_operations())
        draws = list(_draws(concrete.graph.as_graph_def())) if is_drawing else []
        self.carried = {
            path: (0, node.attr["seed2"].i, node.attr["seed"].i)
            for path, node, _, _ in draws
            if node.op in _WITH_VARIABLE
        }
        self.lost = sorted({node.op for _, node, _, _ in draws} - _WITH_VARIABLE.keys())

    def __bool__(self) -> bool:
        return bool(self.carried or self.lost)


_kept: weakref.WeakSet[ConcreteFunction] = weakref.WeakSet()


def mark_as_kept(function: ConcreteFunction) -> None:
    """Marks a traced function whose kernels are not missed, because none has run, or copies run instead."""
    _kept.add(function)


def tell_of_lost_state(functions: Iterable[object], why: str) -> None:
    """Warns of functions whose kernels TensorFlow makes anew, so that the numbers that they draw begin anew.

    ``functions`` are traced ones, among others; ``why`` begins the sentence.
    """
    traced = [f for f in functions if isinstance(f, ConcreteFunction) and not is_dataset_function(f)]
    drawing = [function for function in traced if function not in _kept and SeededDraws(function)]
    inside = set[str]().union(*(internals.functions_of(function.graph) for function in traced if drawing))
    outer = [function for function in drawing if tf.compat.as_str(function.name) not in inside]
    if outer:
        names = ", ".join(sorted({function_name(function).partition("__placed_")[0] for function in outer}))
        warnings.warn(
            f"{why}: numbers that {names} may have drawn with a seed before begin anew", stacklevel=2
        )


class RandomState:
    """Variables that the copies of one function draw from, reset by ``tf.random.set_seed`` like kernels."""

    def __init__(self, draws: SeededDraws) -> None:
        self._initial = draws.carried
        self._scope = f"tf_placer_random_state_{next(_serial)}"
        self._seeds = internals.seed_source()
        self._handles: dict[str, tuple[str, tf.Tensor]] = {}  # path -> device, and the variable there
        self._home: Mapping[str, str] = {}  # of the first copy

    def written(self, graph_def: tf.compat.v1.GraphDef) -> dict[str, str]:
        """Has the ops of a graph draw from the variables, in place; returns path -> device of each.

        Every node has functions of its own (``with_functions_of_their_own``).
        """
        devices = {}
        # Open fields of a device are filled as TensorFlow fills them for an op that draws.
        kind = "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
        default = tf.DeviceSpec.from_string(f"{internals.host_address_space()}/device:{kind}:0")
        for path, node, nodes, device in list(_draws(graph_def)):
            if path in self._initial:
                spec = tf.DeviceSpec.from_string(device)
                if spec.device_type not in (None, kind) and spec.device_index is None:
                    spec = spec.replace(device_index=0)
                place = devices[path] = str(default.make_merged_spec(spec).to_string())
                names, of_state = {n.name for n in nodes}, {"dtype": tf.int64, "shape": tf.TensorShape([3])}
                name, shared = fresh_name(f"{node.name}/state", names), f"{self._scope}/{path}".encode()
                handle = new_node("VarHandleOp", name, (), place, **of_state, shared_name=shared)
                name, value = (
                    fresh_name(f"{node.name}/algorithm", names),
                    tf.make_tensor_proto(_PHILOX, tf.int64),
                )
                algorithm = new_node("Const", name, (), place, dtype=tf.int64, value=value)
                ends = (
                    ("", "") if path == node.name else (":resource:0", ":output:0")
                )  # in a graph, in a body
                state = [handle.name + ends[0], algorithm.name + ends[1]]
                node.input[:] = [*state, *data_inputs(node), *control_inputs(node)]
                types = ("Tout", "T") if node.op == "RandomUniformInt" else ("dtype", "T")
                dtype, shape_dtype = (node.attr[name].type for name in types)
                node.op, node.device = _WITH_VARIABLE[node.op], place
                for name in ("seed", "seed2", "T", "Tout"):
                    node.attr.pop(name, None)
                node.attr["dtype"].type, node.attr["shape_dtype"].type = dtype, shape_dtype
                nodes.extend([handle, algorithm])
        return devices

    def move(self, devices: Mapping[str, str]) -> None:
        """Makes the variables, or moves them, to where a copy reads them: path -> device (``written``)."""
        self._home = self._home or devices
        for path, device in devices.items():
            before = self._handles.get(path)
            if before is None or before[0] != device:
                value: object = self._initial[path]
                if before is not None:
                    with outside_functions():
                        value = tf.raw_ops.ReadVariableOp(resource=before[1], dtype=tf.int64).numpy()
                self._assign(path, device, value)

    def move_back(self) -> None:
        """Moves the variables to where the first copy reads them."""
        self.move(self._home)

    def follow_seeds(self) -> None:
        """Starts over where the program has set the seed since; for use before each step."""
        if internals.seed_source() is not self._seeds:
            self._seeds = internals.seed_source()
            for path, (device, _) in list(self._handles.items()):
                self._assign(path, device, self._initial[path])

    def _assign(self, path: str, device: str, value: object) -> None:
        with outside_functions(), tf.device(device):
            handle = tf.raw_ops.VarHandleOp(
                dtype=tf.int64, shape=[3], shared_name=f"{self._scope}/{path}", container=""
            )
            tf.raw_ops.AssignVariableOp(resource=handle, value=tf.constant(value, tf.int64))
        self._handles[path] = device, handle


_Draw = tuple[str, node_def_pb2.NodeDef, MutableSequence[node_def_pb2.NodeDef], str]


def _draws(graph_def: tf.compat.v1.GraphDef) -> Iterator[_Draw]:
    """Path, node, list of nodes around and device of each op that draws with a seed.

    A call's ops have the paths that they have as inlined ops. A dataset's functions are left out: an iterator has their
    state. So is what XLA compiles.
    """
    library = functions_of(graph_def.library)

    def walk(
        nodes: MutableSequence[node_def_pb2.NodeDef], scope: str, around: str, calls: tuple[str, ...]
    ) -> Iterator[_Draw]:
        for node in nodes:
            path, device = f"{scope}{node.name}", node.device or around
            if _has_seeds(node.op) and (node.attr["seed"].i or node.attr["seed2"].i):
                yield path, node, nodes, device
            if is_compiled(node) or node.op not in library.keys() | CALLS | LOOPS | BRANCHES:
                continue
            bodies = [(f"{path}/", node.op)] + [
                (f"{path}/" if node.op in CALLS else f"{path}/{key}_{i}/", called.name)
                for key, value in node.attr.items()
                for i, called in enumerate(functions_in(value))
            ]
            for inner, name in bodies:
                if name in library and name not in calls and not is_compiled(library[name]):
                    yield from walk(library[name].node_def, inner, device, (*calls, name))

    yield from walk(graph_def.node, "", "", ())
