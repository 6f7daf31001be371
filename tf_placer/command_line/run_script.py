"""``run``: a script in a process of its own, whose TensorFlow loads the plug-in that places functions.

In that process hooks stand behind the imports of TensorFlow and Keras, and then the script runs as ``__main__``.
TensorFlow is loaded when the script loads it, so that what a script sets before that counts.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import json
import os
import pathlib
import signal
import subprocess
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tf_placer import native_log
from tf_placer.base.arguments import InputError
from tf_placer.planning.request import Flags
from tf_placer.rewrite.plug_in import DISABLE, LOADED_BY, PlugIn, plug_in

if TYPE_CHECKING:
    from colocation.tensorflow_internals import Function
    from tf_placer.automatic.watched import Watcher

_ROOT = pathlib.Path(__file__).parents[2]  # of this package
# The folder of this package leaves the path again: a script finds what it finds with `python SCRIPT`.
_PROGRAM = (
    "import sys; sys.path.insert(0, {root!r}); from tf_placer.command_line.run_script import main; "
    "del sys.path[0]; main()"
)
_OF_FLAGS = ("program", "cluster", "plan", "budget_s", "batch_size", "refresh")
_BAD_INPUT = 2
_BY_SIGNAL = 128  # added to a signal's number, as shells do


def run_script(options: Flags) -> int:
    """Runs a script as ``python SCRIPT ARGS`` does, under a plan; returns its exit status."""
    if os.environ.get(LOADED_BY):
        raise InputError(
            f"{LOADED_BY} is {os.environ[LOADED_BY]}, and run has a plug-in of its own to load; unset it"
        )
    if options.plan is not None:
        native_log.load_tensorflow()
        from tf_placer.problem.placement import PlanFile

        splitting = PlanFile.read(options.plan).splitting
        if splitting is not None:
            remedy = "give one of the whole batch: place with --parts=1 --recompute=none"
            raise InputError(f"--plan={options.plan} has {splitting}; {remedy}")
    library = plug_in()
    if os.environ.get(DISABLE) == "1":
        sys.stderr.write(f"tf-placer: {DISABLE}=1: {options.program[0]} runs as it is\n")
        return _status([sys.executable, *options.program], dict(os.environ))
    flags = json.dumps({name: getattr(options, name) for name in _OF_FLAGS})
    command = [sys.executable, "-c", _PROGRAM.format(root=str(_ROOT)), flags]
    return _status(command, os.environ | {LOADED_BY: str(library)})


def _status(command: list[str], environment: dict[str, str]) -> int:
    sys.stdout.flush()
    with subprocess.Popen(command, env=environment) as process:
        # Ctrl-C is the script's meanwhile, and a termination signal is passed on.
        before = {
            signal.SIGINT: signal.signal(signal.SIGINT, lambda *_: None),
            signal.SIGTERM: signal.signal(signal.SIGTERM, lambda number, _: process.send_signal(number)),
        }
        try:
            status = process.wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    return _BY_SIGNAL - status if status < 0 else status


def main() -> None:
    """Runs the script that the command line says; ends with its exit status."""
    options = Flags(**json.loads(sys.argv[1]))
    functions = _Functions(options)
    sys.meta_path.insert(0, _AfterImport({"tensorflow": functions.watch, "keras": _open_keras_steps}))
    path = os.path.abspath(options.program[0])
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=path, __builtins__=__builtins__, __spec__=None)
    sys.modules["__main__"] = module
    sys.argv[:] = options.program
    sys.path[0] = os.path.dirname(os.path.realpath(path))
    code = compile(pathlib.Path(path).read_bytes(), path, "exec")
    try:
        exec(code, module.__dict__)
    except SystemExit as error:
        if error.code not in (None, 0):
            raise
    except Exception as error:  # noqa: BLE001 - told as Python tells it, without the lines of this file
        ours = error.__traceback__
        error = error.with_traceback(None if ours is None else ours.tb_next)
        sys.excepthook(type(error), error, error.__traceback__)
        sys.exit(1)
    watcher = functions.watcher
    if watcher is not None:
        unused = watcher.nothing_placed()
    elif options.plan:
        unused = f"no function ran by {options.plan}: {options.program[0]} calls no tf.function"
    else:
        does = "calls no tf.function" if "tensorflow" in sys.modules else "does not load TensorFlow"
        unused = f"nothing is placed: {options.program[0]} {does}"
    if unused:
        _say(unused)
    if unused and options.plan is not None:
        sys.exit(_BAD_INPUT)


def _say(line: str) -> None:
    sys.stderr.write(f"tf-placer: {' '.join(line.split())}\n")
    sys.stderr.flush()


class _Functions:
    """The functions of the script, watched from the import of TensorFlow on.

    The watcher is loaded at the first call: it needs Keras, which a script may be importing still.
    """

    def __init__(self, options: Flags) -> None:
        self._options, self._library, self._folder = options, os.environ[LOADED_BY], pathlib.Path.cwd()
        self.watcher: Watcher | None = None

    def watch(self) -> None:
        """Begins, when TensorFlow has been imported."""
        os.environ.pop(LOADED_BY, None)  # of this process alone
        sys.path.insert(0, str(_ROOT))
        import tensorflow as tf

        from colocation.tensorflow_internals import watch_calls

        sys.path.remove(str(_ROOT))
        word, _, count = self._options.cluster.partition(":")
        if word == "logical":
            cpu = tf.config.list_physical_devices("CPU")[0]
            devices = [tf.config.LogicalDeviceConfiguration()] * int(count)
            tf.config.set_logical_device_configuration(cpu, devices)
        watch_calls(self._call)

    def _call(
        self, function: Function, as_it_is: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        if self.watcher is None:
            from tf_placer.automatic.config import AutoPlaceConfig
            from tf_placer.automatic.watched import Watcher
            from tf_placer.problem.placement import PlanFile

            # The script may have changed the working folder, to which files are relative.
            options, cluster = self._options, self._options.cluster
            cluster = str(self._folder / cluster) if cluster.endswith(".toml") else cluster
            plan = None if options.plan is None else PlanFile.read(str(self._folder / options.plan))
            of_flags = {name: getattr(options, name) for name in ("budget_s", "batch_size", "refresh")}
            config = AutoPlaceConfig(cluster, **of_flags)
            self.watcher = Watcher(PlugIn(pathlib.Path(self._library)), config, plan, _say)
        return self.watcher.call(function, as_it_is, args, kwargs)


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
        loader: Any = spec and spec.loader
        if loader is not None:
            execute = loader.exec_module

            def exec_module(module: types.ModuleType) -> None:
                execute(module)
                action()

            loader.exec_module = exec_module
        return spec
