"""Names that a method or a workload of your own may use (docs/extending.md): they stay where modules move."""

from tf_placer.base.lazy_face import make_lazy

make_lazy(__name__)
