"""Native code: C++ libraries compiled on first use, XLA's compilations kept, op libraries of users loaded."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import itertools
import logging
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence

from tf_placer.base.arguments import InputError, told
from tf_placer.base.files import remove_oldest, user_cache_folder

_LOG = logging.getLogger(__name__)
_ANNOUNCED_S, _BAR = 3.0, 30
# Header of a 64-bit ELF file: start of the section table, and then size and number of its entries.
_ELF, _ELF_HEADER_BYTES = b"\x7fELF", 64
_SECTIONS_AT, _SECTION_ENTRIES_AT = 0x28, 0x3A

XLA_FLAGS = "TF_XLA_FLAGS"
XLA_CACHE_FLAG = "--tf_xla_persistent_cache_directory"
DEVICE_TYPES = "CPU"  # a GPU's compilations are kept by its driver
COMPILATIONS_BYTES = 2**30
_CPU_FACTS = ("vendor_id", "cpu family", "model", "stepping", "flags")
OP_LIBRARIES: dict[str, None] = {}  # loaded ones, in order; TensorFlow never unloads one


@dataclasses.dataclass(frozen=True)
class Library:
    """A shared object and its sources."""

    name: str  # of its file, before the fingerprint
    purpose: str  # for messages
    sources: pathlib.Path  # folder of its .cc files, a translation unit each, and their headers
    folder: pathlib.Path  # the user's cache takes its place where it is read-only
    flags: tuple[str, ...]  # that change the code
    prebuilt: str  # environment variable with the path of a file built elsewhere
    depends_on: tuple[str, ...] = ()  # anything else that changes the code, such as versions
    places: tuple[str, ...] = ()  # flags with the paths of headers and libraries on this machine
    core_s: float = 1.0  # seconds to compile it on one core, about

    @functools.cached_property
    def fingerprint(self) -> str:
        """Hex digest of everything that the compiled code depends on."""
        digest = hashlib.sha256(" ".join((*self.depends_on, *self.flags)).encode())
        for path in sorted(self.sources.iterdir()):
            if path.suffix in (".cc", ".h", ".inc"):
                digest.update(path.name.encode() + b"\0" + path.read_bytes())
        return digest.hexdigest()[:16]

    @property
    def file_name(self) -> str:
        return f"{self.name}_{self.fingerprint}.so"


def tensorflow() -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Version of the installed TensorFlow, without an import, and its flags for ``Library.flags`` and ``places``."""
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or spec.origin is None:
        raise InputError("TensorFlow is not installed; run pip install tensorflow")
    folder = pathlib.Path(spec.origin).parent
    # As tf.sysconfig.get_compile_flags has them. NDEBUG must be as in the wheel, or classes differ in layout.
    shape = ("-std=c++17", "-DNDEBUG", "-D_GLIBCXX_USE_CXX11_ABI=1", "-DEIGEN_MAX_ALIGN_BYTES=64")
    places = (f"-isystem{folder / 'include'}", f"-L{folder}", "-l:libtensorflow_framework.so.2")
    return importlib.metadata.version("tensorflow"), shape, places


def compiled(library: Library, is_announced: bool = False) -> pathlib.Path:
    """File of a library, compiled if its source has changed.

    Several processes may compile at once: each writes its own file and renames it. Where no folder is writable, which
    gives one warning, the file is this process's alone. ``is_announced``: the caller has told the time that it takes.
    """
    return compiled_all([library], is_announced)[0]


def compiled_all(libraries: Sequence[Library], is_announced: bool = False) -> list[pathlib.Path]:
    """Files of several libraries; their sources are compiled in parallel on all cores."""
    paths = [existing_file(library) for library in libraries]
    missing = [library for library, path in zip(libraries, paths, strict=True) if path is None]
    built_of = dict(zip(missing, _compile(missing, is_announced), strict=True)) if missing else {}
    for library, built in built_of.items():
        reasons = []
        for folder in (library.folder, user_cache_folder()):  # it moves to the first writable one
            try:
                folder.mkdir(parents=True, exist_ok=True)
                with tempfile.TemporaryDirectory(dir=folder, prefix=".build_") as scratch:
                    os.replace(shutil.copy(built, scratch), folder / library.file_name)
            except OSError as error:
                reasons.append(f"{folder}: {error.strerror}")
                continue
            built.unlink()
            built_of[library] = folder / library.file_name
            break
        else:
            where = f"{library.purpose} can be kept nowhere ({'; '.join(reasons)})"
            _LOG.warning("%s, so every process compiles it anew; set XDG_CACHE_HOME", where)
    return [path or built_of[library] for library, path in zip(libraries, paths, strict=True)]


def prebuilt_file(library: Library) -> pathlib.Path | None:
    """File that was built elsewhere, as the environment says, or None; raises InputError if missing."""
    prebuilt = os.environ.get(library.prebuilt)
    if prebuilt and not pathlib.Path(prebuilt).is_file():
        raise InputError(
            f"{library.prebuilt} is {prebuilt}, which is no file; unset it to compile {library.purpose}"
        )
    return pathlib.Path(prebuilt) if prebuilt else None


def existing_file(library: Library) -> pathlib.Path | None:
    """File of a library that need not be compiled, or None; raises InputError as ``prebuilt_file``."""
    if prebuilt := prebuilt_file(library):
        return prebuilt
    scratch = pathlib.Path(_folder_of_this_process().name)
    for path in (folder / library.file_name for folder in (library.folder, user_cache_folder(), scratch)):
        if not path.is_file():
            continue
        with contextlib.suppress(OSError), open(path, "rb") as file:
            header = file.read(_ELF_HEADER_BYTES)
            if header.startswith(_ELF) and len(header) == _ELF_HEADER_BYTES:
                # A shared object is whole if it has its section table, which comes last in the file.
                (start,) = struct.unpack_from("<Q", header, _SECTIONS_AT)
                entry_bytes, count = struct.unpack_from("<HH", header, _SECTION_ENTRIES_AT)
                if start + entry_bytes * count <= path.stat().st_size:
                    return path
        _LOG.warning("%s is damaged: compiling it again", path)
    return None


def _compile(libraries: Sequence[Library], is_announced: bool) -> list[pathlib.Path]:
    """Compiles into the folder of this process, each source separately."""
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        purpose = libraries[0].purpose
        raise InputError(f"cannot compile {purpose}: {compiler} not found; install g++ or set CXX")
    cores = len(os.sched_getaffinity(0))
    seconds = sum(library.core_s for library in libraries) / cores
    purposes = " and ".join(library.purpose for library in libraries)
    is_announced = is_announced or seconds < _ANNOUNCED_S
    announcement = "" if is_announced else f"compiling {purposes}, this once: about {seconds:.0f} s"
    folder = pathlib.Path(_folder_of_this_process().name)
    with (
        tempfile.TemporaryDirectory(dir=folder) as scratch,
        concurrent.futures.ThreadPoolExecutor(cores) as pool,
    ):
        jobs, objects = list[concurrent.futures.Future[None]](), dict[Library, list[str]]()
        for library in libraries:
            # In reverse order of names, which happens to start the longest jobs early.
            for source in sorted(library.sources.glob("*.cc"), reverse=True):
                target = f"{scratch}/{len(jobs)}.o"
                objects.setdefault(library, []).append(target)
                jobs.append(pool.submit(_run_compiler, compiler, library, ("-c", str(source)), target))
        is_terminal = sys.stderr.isatty()
        if announcement and not is_terminal:
            print(announcement, file=sys.stderr, flush=True)
        try:
            for count, job in enumerate(concurrent.futures.as_completed(jobs), 1):
                job.result()
                if announcement and is_terminal:
                    bar = "#" * (_BAR * count // len(jobs))
                    end = "\n" if count == len(jobs) else ""
                    print(f"\r{announcement} [{bar:<{_BAR}}]", end=end, file=sys.stderr, flush=True)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        for library in libraries:
            built = f"{scratch}/{library.file_name}"
            _run_compiler(compiler, library, objects[library], built)
            os.replace(built, folder / library.file_name)
    return [folder / library.file_name for library in libraries]


def _run_compiler(compiler: str, library: Library, inputs: Sequence[str], target: str) -> None:
    command = [compiler, *library.flags, *inputs, "-o", target, *library.places]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if "error:" in line] or [done.stderr.strip()]
        raise InputError(f"{compiler} could not compile {library.purpose}: {errors[0]}")


@functools.cache
def _folder_of_this_process() -> tempfile.TemporaryDirectory[str]:
    """Temporary folder, removed when the process ends."""
    return tempfile.TemporaryDirectory(prefix="tf_placer_")


def with_kept_compilations(environment: Mapping[str, str]) -> dict[str, str]:
    """Environment of a new process in which TensorFlow keeps XLA's compilations, and loads them later.

    TensorFlow reads the flag for this once, when its first device is made, so it must be in the environment with which
    a process starts. ``tf_placer.ops.library`` sets it in a running process. The environment is unchanged where the
    user names a folder for this, or no folder can be used.
    """
    flags = environment.get(XLA_FLAGS, "")
    folder = None if XLA_CACHE_FLAG in flags else compilations_folder()
    if folder is None or any(blank in str(folder) for blank in " \t\n"):  # TensorFlow splits flags at blanks
        return dict(environment)
    return {**environment, XLA_FLAGS: f"{flags} {compilation_flags(folder)}".strip()}


def compilation_flags(folder: pathlib.Path) -> str:
    """Flags for ``TF_XLA_FLAGS`` that keep compilations in a folder without blanks in its name."""
    return f"{XLA_CACHE_FLAG}={folder} --tf_xla_persistent_cache_device_types={DEVICE_TYPES}"


@functools.cache
def compilations_folder() -> pathlib.Path | None:
    """Folder of this machine's compilations, made if need be; None where nothing can be kept.

    Each processor and TensorFlow has its own folder, because a compilation is machine code. Only its owner may write
    there, since its content is run. The oldest ones go where all folders exceed ``COMPILATIONS_BYTES``.
    """
    facts = [importlib.metadata.version("tensorflow"), os.uname().machine]
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf8") as file:
        for line in itertools.takewhile(str.strip, file):  # the first core is enough
            name, _, value = line.partition(":")
            if name.strip() in _CPU_FACTS:
                facts.append(value.strip())
    cache = user_cache_folder() / "compilations"
    folder = cache / hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if folder.stat().st_uid != os.getuid() or not os.access(folder, os.W_OK):
            return None
        folder.chmod(0o700)
    except OSError:
        return None
    remove_oldest(cache.rglob("*.pb"), most_bytes=COMPILATIONS_BYTES)
    return folder


def load_op_libraries(files: Sequence[str]) -> None:
    """Loads libraries of ops into this process, and into workers that are started later."""
    tf = importlib.import_module("tensorflow")  # this module is used before TensorFlow is loaded, too
    for file in files:
        if not pathlib.Path(file).is_file():
            raise InputError(f"--op_library={file}: no such file; give a shared library, for example FILE.so")
        path = str(pathlib.Path(file).resolve())
        try:
            tf.load_op_library(path)
        except (tf.errors.OpError, RuntimeError, ValueError) as error:
            raise InputError(
                f"--op_library={file}: TensorFlow {tf.__version__} cannot load it ({told(error)}); give a library of "
                "ops that was built for it"
            ) from error
        OP_LIBRARIES[path] = None
