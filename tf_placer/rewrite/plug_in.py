"""The native plug-in that places functions as TensorFlow instantiates them: compiled, checked, and given plans.

TensorFlow loads it where ``TF_PLUGGABLE_DEVICE_LIBRARY_PATH`` names it. Its pass runs before TensorFlow's own Placer,
on every graph of a function, and writes devices, an order and fusion clusters into those that have a plan
(``cc/plan_pass.h``). Nothing here loads TensorFlow: whoever starts a process with the plug-in needs it before.
"""

from __future__ import annotations

import ctypes
import dataclasses
import itertools
import pathlib
import re
from collections.abc import Mapping, Sequence

from tf_placer.base.arguments import InputError
from tf_placer.base.native import Library, compiled, tensorflow

LOADED_BY = "TF_PLUGGABLE_DEVICE_LIBRARY_PATH"
PREBUILT = "TF_PLACER_PLUG_IN_LIBRARY"
DISABLE = "TF_PLACER_DISABLE"

_FOLDER = pathlib.Path(__file__).parent
_FLAGS = ("-O2", "-fPIC", "-shared", "-w")  # no warnings of TensorFlow's headers
_BUILT_FOR = re.compile(rb"tf_placer plug-in for TensorFlow ([^;]+);")


def plug_in() -> pathlib.Path:
    """The file of the plug-in, compiled if there is none for its source and the installed TensorFlow.

    Raises:
      InputError: it cannot be compiled; or ``TF_PLACER_PLUG_IN_LIBRARY`` names a file that is not there, is no plug-in
        of ours, or was built for another TensorFlow.
    """
    path = compiled(plug_in_library())
    version, *_ = tensorflow()
    built_for = _BUILT_FOR.search(path.read_bytes())
    if built_for is None:
        raise InputError(f"{path} is no plug-in of tf_placer; unset {PREBUILT} to compile it")
    if built_for[1].decode() != version:
        raise InputError(
            f"{path} is built for TensorFlow {built_for[1].decode()}, and {version} is installed; unset {PREBUILT} to "
            "compile it for this one"
        )
    return path


def plug_in_library() -> Library:
    """The plug-in's library, for the installed TensorFlow."""
    version, shape, places = tensorflow()
    return Library(
        name="_tf_placer_plug_in",
        purpose="the plug-in that places functions",
        sources=_FOLDER / "cc",
        folder=_FOLDER,
        flags=(*_FLAGS, *shape, f"-DTF_PLACER_TENSORFLOW={version}"),
        prebuilt=PREBUILT,
        places=places,
        core_s=18.0,
    )


@dataclasses.dataclass(frozen=True)
class FunctionPlan:
    """A plan of a traced function, by names as inlining makes them (``call/op``), of outer calls or without."""

    function: str  # TensorFlow's name of the function
    devices: Mapping[str, tuple[str, str]]  # op -> type, full device string
    order: Sequence[tuple[str, str]] = ()  # pairs of ops of one device, the first before the second
    clusters: Mapping[str, int] = dataclasses.field(default_factory=dict)  # op -> fusion cluster, if any


class PlugIn:
    """The plug-in in this process, loaded unless TensorFlow has loaded the library.

    Plans begin by the name of a function. From its first graph on a plan is known by that graph's fingerprint, and
    other functions of the same fingerprint are placed by it, whatever they and their ops are called.
    """

    _labels = itertools.count(1)

    def __init__(self, path: pathlib.Path) -> None:
        self._library = ctypes.CDLL(str(path))

    def add(self, plan: FunctionPlan) -> int:
        """Adds a plan for graphs that TensorFlow makes from now on; returns the label."""
        label = next(self._labels)
        lines = [
            f"op\t{name}\t{kind}\t{device}\t{plan.clusters.get(name, -1)}"
            for name, (kind, device) in plan.devices.items()
        ]
        lines += [f"order\t{before}\t{after}" for before, after in plan.order]
        self._library.tf_placer_add_plan(label, plan.function.encode(), "\n".join(lines).encode())
        return label

    def remove(self, label: int) -> None:
        """Forgets a plan."""
        self._library.tf_placer_remove_plan(label)
