"""Fusion: clusters of ops that XLA compiles as one kernel launch each."""

from tf_placer.base.lazy_face import make_lazy

make_lazy(__name__)
