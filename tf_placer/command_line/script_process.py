"""The process that a script runs in: hooks behind the imports of TensorFlow and Keras, then the script as ``__main__``.

TensorFlow is loaded when the script loads it, so that what a script sets before that counts.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import json
import os
import pathlib
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tf_placer.rewrite.plug_in import LOADED_BY, PlugIn

if TYPE_CHECKING:
    from colocation.tensorflow_internals import Function
    from tf_placer.automatic.watched import Watcher

_BAD_INPUT = 2
_LOGICAL = "logical"
_ROOT = pathlib.Path(__file__).parents[2]  # of this package


@dataclasses.dataclass(frozen=True)
class ScriptRun:
    """What is run, and how."""

    program: Sequence[str]  # the script and its arguments
    library: str  # file of the plug-in
    cluster: str  # word for the devices
    plan: str | None  # file of a plan; None where one is searched
    budget_s: float  # seconds of each search
    batch_size: int  # stands for sizes that functions leave open
    refresh: bool  # nothing that was kept is taken
    folder: str  # the working folder, for files that are named relative to it

    def file(self, path: str) -> str:
        """A path that holds wherever the script goes."""
        return str(pathlib.Path(self.folder, path))


def main() -> None:
    """Runs the script that the command line says; ends with its exit status."""
    run = ScriptRun(**json.loads(sys.argv[1]))
    functions = _Functions(run)
    sys.meta_path.insert(0, _AfterImport({"tensorflow": functions.watch, "keras": _open_keras_steps}))
    try:
        _run_as_main(run.program)
    except SystemExit as error:
        if error.code not in (None, 0):
            raise
    unused = functions.unused_plan()
    if unused:
        _say(unused)
        sys.exit(_BAD_INPUT)
    left = functions.nothing_placed()
    if left:
        _say(left)


def _say(line: str) -> None:
    sys.stderr.write(f"tf-placer: {' '.join(line.split())}\n")
    sys.stderr.flush()


class _Functions:
    """The functions of the script, watched from the import of TensorFlow on.

    What watches them is loaded when the first one is called: it needs Keras, which a script may be importing still.
    """

    def __init__(self, run: ScriptRun) -> None:
        self._run = run
        self._watcher: Watcher | None = None

    def watch(self) -> None:
        """Begins, when TensorFlow has been imported."""
        os.environ.pop(LOADED_BY, None)  # of this process alone
        sys.path.insert(0, str(_ROOT))
        import tensorflow as tf

        from colocation.tensorflow_internals import watch_calls

        sys.path.remove(str(_ROOT))
        word, _, count = self._run.cluster.partition(":")
        if word == _LOGICAL:
            cpu = tf.config.list_physical_devices("CPU")[0]
            devices = [tf.config.LogicalDeviceConfiguration()] * int(count)
            tf.config.set_logical_device_configuration(cpu, devices)
        watch_calls(self._call)

    def unused_plan(self) -> str:
        """``Watcher.unused_plan``, also before anything was watched."""
        if self._run.plan is None:
            return ""
        if self._watcher is None:
            return f"no function ran by {self._run.plan}: {self._run.program[0]} calls no tf.function"
        return self._watcher.unused_plan()

    def nothing_placed(self) -> str:
        """``Watcher.nothing_placed``, also before anything was watched."""
        if self._run.plan is not None:
            return ""
        if self._watcher is not None:
            return self._watcher.nothing_placed()
        does = "calls no tf.function" if "tensorflow" in sys.modules else "does not load TensorFlow"
        return f"nothing is placed: {self._run.program[0]} {does}"

    def _call(
        self, function: Function, as_it_is: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        if self._watcher is None:
            self._watcher = self._made()
        return self._watcher.call(function, as_it_is, args, kwargs)

    def _made(self) -> Watcher:
        from tf_placer.automatic.config import AutoPlaceConfig
        from tf_placer.automatic.watched import Watcher
        from tf_placer.problem.placement import PlanFile

        run = self._run
        cluster = run.file(run.cluster) if run.cluster.endswith(".toml") else run.cluster
        plan = None if run.plan is None else PlanFile.read(run.file(run.plan))
        config = AutoPlaceConfig(
            cluster=cluster, budget_s=run.budget_s, batch_size=run.batch_size, refresh=run.refresh
        )
        return Watcher(PlugIn(pathlib.Path(run.library)), config, plan, _say)


def _open_keras_steps() -> None:
    """Has ``jit_compile="auto"`` of Keras mean no compilation: in a compiled step, one call, nothing can be placed."""
    import keras

    compile_as_it_is = keras.Model.compile
    signature = inspect.signature(compile_as_it_is)
    default = signature.parameters["jit_compile"].default  # Keras decides

    @functools.wraps(compile_as_it_is)
    def compile_open(self: keras.Model, *args: Any, **kwargs: Any) -> Any:
        result = compile_as_it_is(self, *args, **kwargs)
        asked = signature.bind(self, *args, **kwargs).arguments.get("jit_compile", default)
        if asked == default and self.jit_compile:
            self.jit_compile = False
            _say(
                f"model {self.name}: jit_compile='auto' would compile its step as one program; it is left open"
            )
        return result

    keras.Model.compile = compile_open


class _AfterImport(importlib.abc.MetaPathFinder):
    """Calls something when a module has been imported, once."""

    def __init__(self, actions: Mapping[str, Callable[[], object]]) -> None:
        self._actions = dict(actions)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The usual spec of a module, with an action after its execution."""
        if name not in self._actions:
            return None
        action = self._actions.pop(name)
        spec = importlib.util.find_spec(name)
        loader: Any = None if spec is None else spec.loader
        if loader is not None:
            execute = loader.exec_module

            def exec_module(module: types.ModuleType) -> None:
                execute(module)
                action()

            loader.exec_module = exec_module
        return spec


def _run_as_main(program: Sequence[str]) -> None:
    """Runs a script as ``python SCRIPT ARGS`` does."""
    path = os.path.abspath(program[0])
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=path, __builtins__=__builtins__, __spec__=None)
    sys.modules["__main__"] = module
    sys.argv[:] = program
    sys.path[0] = os.path.dirname(os.path.realpath(path))
    code = compile(pathlib.Path(path).read_bytes(), path, "exec")
    try:
        exec(code, module.__dict__)
    except Exception as error:  # noqa: BLE001 - told as Python tells it, without the lines of this file
        ours = error.__traceback__
        error = error.with_traceback(None if ours is None else ours.tb_next)
        sys.excepthook(type(error), error, error.__traceback__)
        sys.exit(1)
