"""What users can call, and with which arguments: everything that the public face reaches."""

import enum
import inspect
import typing
from collections.abc import Callable, Iterator
from typing import Any

import tf_placer
from tf_placer.automatic.config import AutoPlaceConfig
from tf_placer.cluster.device import Device, Link
from tf_placer.runtime.timing import RuntimeConfig
from tf_placer.search.search import Wrappers

# Not in ``__all__``, but what public calls take: users make them by hand.
MADE_BY_HAND = (Device, Link, RuntimeConfig)
# Public, but only the package makes them: their values are checked where they come in.
PACKAGE_MADE = frozenset({"Item", "Measurement.joined", "SearchResult"})
# ``**settings`` of a call -> the dataclass whose fields they are.
SETTINGS = {"auto_place": AutoPlaceConfig, "search": Wrappers}


def public_calls() -> dict[str, dict[str, Any]]:
    """Name of each public function, constructor and method that takes arguments -> argument -> its annotation.

    The annotation is a text, or a type with limits where fields are checked by their types.
    """
    return {
        name: found
        for name, call in dict(_calls()).items()
        if name not in PACKAGE_MADE and (found := _arguments(name, call))
    }


def _calls() -> Iterator[tuple[str, Callable[..., Any]]]:
    public = {name: getattr(tf_placer, name) for name in tf_placer.__all__}
    for name, value in [*public.items(), *((kind.__name__, kind) for kind in MADE_BY_HAND)]:
        if not inspect.isclass(value):
            yield name, value
        elif not issubclass(value, Exception):  # which takes any text
            yield name, value
            yield from _methods(name, value)


def _methods(name: str, kind: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    ours = [base for base in kind.__mro__ if base.__module__.startswith("tf_placer")]
    for attribute in dict.fromkeys(attribute for base in ours for attribute in vars(base)):
        method = inspect.getattr_static(kind, attribute)
        if not attribute.startswith("_") and (
            inspect.isfunction(method) or isinstance(method, staticmethod | classmethod)
        ):
            yield f"{name}.{attribute}", method


def _arguments(name: str, call: Any) -> dict[str, Any]:
    if call in MADE_BY_HAND:
        hints = typing.get_type_hints(call, include_extras=True)
        return {field: kind for field, kind in hints.items() if not field.startswith("_")}
    if inspect.isclass(call) and issubclass(call, enum.Enum):
        return {"value": "int"}
    is_bound = isinstance(call, staticmethod) or inspect.isclass(call) or "." not in name
    function = call.__func__ if isinstance(call, staticmethod | classmethod) else call
    parameters = list(inspect.signature(function).parameters.values())[0 if is_bound else 1 :]
    found = {one.name: str(one.annotation) for one in parameters if one.kind != one.VAR_KEYWORD}
    if len(found) < len(parameters):
        settings = SETTINGS[name].__annotations__.items()
        found |= {key: str(getattr(kind, "__forward_arg__", kind)) for key, kind in settings}
    return found
