"""Training steps to place, by name."""

from tf_placer.base.lazy_face import make_lazy

make_lazy(__name__)
