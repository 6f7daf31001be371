"""Finds which device should run which operation of a TensorFlow program."""

import tf_placer.native_log  # noqa: F401 - before everything that imports TensorFlow
from tf_placer.base.lazy_face import make_lazy
from tf_placer.version import VERSION as __version__  # noqa: F401 - no public name, but there

make_lazy(__name__)
