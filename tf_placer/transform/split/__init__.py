"""Splitting the batch: an Item whose ops work on parts of the examples."""

from tf_placer.base.lazy_face import make_lazy

make_lazy(__name__)
