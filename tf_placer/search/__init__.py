"""Runs a method against a budget and keeps the best placement."""

from tf_placer.base.lazy_face import make_lazy

make_lazy(__name__)
