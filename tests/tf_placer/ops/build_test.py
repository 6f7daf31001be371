"""Compiling the ops: what is reused, and what the library depends on."""

import dataclasses

import tensorflow as tf

from tf_placer.ops import build


def test_library_is_reused():
    first = build.build_library()
    before = first.stat().st_mtime_ns
    assert build.build_library() == first and first.stat().st_mtime_ns == before


def test_fingerprint_follows_the_flags_and_tensorflow():
    library = build._library()
    other_flags = dataclasses.replace(library, flags=("-O1",))
    other_tensorflow = dataclasses.replace(library, depends_on=("0.0",))
    assert len({library.fingerprint, other_flags.fingerprint, other_tensorflow.fingerprint}) == 3
    assert library.depends_on == (tf.__version__,)
    # Where TensorFlow lies on this machine changes nothing.
    assert dataclasses.replace(library, places=()).fingerprint == library.fingerprint
