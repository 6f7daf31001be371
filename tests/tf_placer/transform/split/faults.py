"""Faults of a splitter, put in on purpose: the oracle has to see each."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from unittest import mock

import numpy as np
import tensorflow as tf

from tf_placer.graph.item import Item
from tf_placer.transform.split import rules, split_batch
from tf_placer.transform.split.split_batch import SplitProgram, Writer, split_program
from tf_placer.transform.split.states import Part


@contextlib.contextmanager
def mean_of_parts_summed() -> Iterator[None]:
    """1/k is forgotten: each copy takes the mean of its own, and these are added up."""
    whole = rules._RULES["reduction"]

    def rule(op, argument):
        return dataclasses.replace(whole(op, argument), write=None)

    with mock.patch.dict(rules._RULES, {"reduction": rule}):
        yield


@contextlib.contextmanager
def local_divisor() -> Iterator[None]:
    """A number that is the batch's size becomes that of the first part where it is cast, to divide by it."""
    whole = Writer.write

    def write(self):
        whole(self)
        for node in list(self.nodes):
            op = self._index.id_of_name[self.origin_of[node.name]]
            value = self._program.known.get(self._program.inputs[op][0]) if node.op == "Cast" else None
            if value is not None and value.shape == () and value == self._batch.size:
                node.input[0] = self.constant(np.asarray(self._batch.sizes[0], value.dtype), "local_divisor")

    with mock.patch.object(Writer, "write", write):
        yield


@contextlib.contextmanager
def statistics_of_parts() -> Iterator[None]:
    """Each part is normalized by itself though nobody asked for that."""
    whole = split_batch.best_states

    with mock.patch.object(split_batch, "best_states", lambda program, parts, _: whole(program, parts, True)):
        yield


@contextlib.contextmanager
def dropout_drawn_anew() -> Iterator[None]:
    """Each copy draws its own random numbers."""
    whole = Writer._local

    def write(self, tensor, state: Part):
        op, _ = tensor
        node = self._index.graph_def.node[op]
        if node.op not in ("RandomUniform", "StatelessRandomUniformV2", "StatelessRandomNormalV2"):
            return whole(self, tensor, state)
        shape = self._outputs[op][0].shape
        made = []
        for c in range(self._batch.parts):
            inputs = [self.whole(tensor) for tensor in self._program.inputs[op]]
            self._op = op
            local = np.asarray(self._batch.local(shape, state, c), np.int32)
            inputs[0] = self.constant(local, f"part_{c}/{node.name}/shape")
            made.append(self.copy(c, inputs))
            self.nodes[-1].attr["T" if "T" in node.attr else "Tshape"].type = tf.int32.as_datatype_enum
        return made

    with mock.patch.object(Writer, "_local", write):
        yield


@contextlib.contextmanager
def sparse_added_as_dense() -> Iterator[None]:
    """Rows of a sparse gradient are added up part by part, as if they were of the same places."""

    node = Writer.node

    def write(self, op_type, name, inputs, copy=None, **attributes):
        if op_type != "ConcatV2":
            return node(self, op_type, name, inputs, copy, **attributes)
        tensors, dtype = inputs[:-1], attributes["T"]
        if dtype.is_integer:
            return node(self, "Identity", name, tensors[:1], T=dtype)
        return node(self, "AddN", name, tensors, T=dtype, N=len(tensors))

    with mock.patch.object(Writer, "node", write):
        yield


@contextlib.contextmanager
def control_edges_lost() -> Iterator[None]:
    """Nobody waits for anything but data."""
    with mock.patch.object(Writer, "_controls", lambda self, node, copy: []):
        yield


def split_with(
    fault: Callable[[], contextlib.AbstractContextManager[None]], item: Item, parts: int
) -> SplitProgram:
    """The item, split by a splitter with a fault."""
    with fault():
        return split_program(item, parts)
