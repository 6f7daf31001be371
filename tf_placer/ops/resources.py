"""Variables and tables of this process, kept when TensorFlow gives its devices new lists of resources."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from colocation.tensorflow_internals import live_resources
from tf_placer.ops.library import library


@contextlib.contextmanager
def resources_kept() -> Iterator[None]:
    """Keeps variables, tables, queues and summary writers of this process while the block connects it to others.

    Connecting gives each of its devices a new, empty list of resources. Without this, a table, a queue or a summary
    writer is gone then, since its handle has its name alone. A handle of a variable has the variable itself, so that it
    can be read and added to. But the op that assigns looks in the list, by name, does not find it, and makes another
    one under that name, which nothing reads: what is assigned is lost without a word, eagerly and in functions.
    """
    held = [(handle, _held(handle)) for handle in live_resources()]
    yield
    for handle, resource in held:
        if resource is not None:
            library().tf_placer_list_resource(handle=handle, held=resource)


def _held(handle: tf.Tensor) -> tf.Tensor | None:
    """A handle that keeps the resource of another; None where that is gone already, or of a type that is not kept."""
    try:
        return library().tf_placer_hold_resource(handle=handle)
    except (tf.errors.NotFoundError, tf.errors.UnimplementedError):
        return None
