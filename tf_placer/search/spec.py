"""The public home of a method's row."""

from tf_placer.method_spec import Kind as Kind
from tf_placer.method_spec import MethodSpec as MethodSpec
from tf_placer.method_spec import Role as Role
