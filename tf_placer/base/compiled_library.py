"""C++ libraries, compiled with the package or on first use and kept: one file for each state of the source."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import hashlib
import importlib.metadata
import importlib.util
import logging
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from tf_placer.base.arguments import InputError
from tf_placer.base.files import user_cache_folder

_LOG = logging.getLogger(__name__)
_SOON_S, _BAR = 3.0, 30
# In the header of a 64-bit ELF file: where its section table begins, the size of an entry, and how many there are.
_ELF, _ELF_HEADER_BYTES = b"\x7fELF", 64
_SECTIONS_AT, _SECTION_BYTES_AT, _SECTION_COUNT_AT = 0x28, 0x3A, 0x3C


@dataclasses.dataclass(frozen=True)
class Library:
    """A shared object and what it is compiled from.

    Attributes:
      name: of its file, before the fingerprint.
      purpose: what it is, in messages.
      sources: folder of its ``.cc`` files, a translation unit each, and what they include.
      folder: where it is kept if that can be written to; the user's cache otherwise.
      flags: what shapes the code.
      depends_on: what else the code depends on: the version of a library with headers of its own, say.
      places: flags that say where headers and libraries lie on this machine.
      prebuilt: environment variable that names one that was built elsewhere.
      core_s: seconds of a core, about, that compiling it takes.
    """

    name: str
    purpose: str
    sources: pathlib.Path
    folder: pathlib.Path
    flags: tuple[str, ...]
    prebuilt: str
    depends_on: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    core_s: float = 1.0

    @functools.cached_property
    def fingerprint(self) -> str:
        """Hex digest of all that the compiled code depends on."""
        digest = hashlib.sha256(" ".join((*self.depends_on, *self.flags)).encode())
        for path in sorted(self.sources.iterdir()):
            if path.suffix in (".cc", ".h", ".inc"):
                digest.update(path.name.encode() + b"\0" + path.read_bytes())
        return digest.hexdigest()[:16]

    @property
    def file_name(self) -> str:
        return f"{self.name}_{self.fingerprint}.so"

    @property
    def kept_in(self) -> tuple[pathlib.Path, ...]:
        """Folders that it is looked for in, and kept in the first of them that can be written to."""
        return self.folder, user_cache_folder()


def tensorflow() -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """The installed TensorFlow, which is not imported: its version, and flags for ``Library.flags`` and ``places``.

    Raises:
      InputError: there is none.
    """
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or spec.origin is None:
        raise InputError("TensorFlow is not installed; run pip install tensorflow")
    folder = pathlib.Path(spec.origin).parent
    # As tf.sysconfig.get_compile_flags has them. NDEBUG must be as in the wheel, or classes differ in layout.
    shape = ("-std=c++17", "-DNDEBUG", "-D_GLIBCXX_USE_CXX11_ABI=1", "-DEIGEN_MAX_ALIGN_BYTES=64")
    places = (f"-isystem{folder / 'include'}", f"-L{folder}", "-l:libtensorflow_framework.so.2")
    return importlib.metadata.version("tensorflow"), shape, places


def compiled(library: Library, is_announced: bool = False) -> pathlib.Path:
    """The file of a library, compiled if there is none for this state of its source.

    Several processes may compile at once: each writes a file of its own and renames it. Where it can be kept nowhere,
    which is told in one warning, it is compiled for this process alone.

    Args:
      library: to find or compile.
      is_announced: the caller has said that something is compiled, and how long that takes.

    Raises:
      InputError: there is no compiler, or it fails; or the environment names a file that is not there.
    """
    return compiled_all([library], is_announced)[0]


def compiled_all(libraries: Sequence[Library], is_announced: bool = False) -> list[pathlib.Path]:
    """The same of several libraries, whose sources are compiled side by side on all cores."""
    paths = [prebuilt_file(library) or _found(library) for library in libraries]
    missing = [library for library, path in zip(libraries, paths, strict=True) if path is None]
    built = iter(_compile(missing, is_announced) if missing else ())
    return [
        _kept(library, next(built)) if path is None else path
        for library, path in zip(libraries, paths, strict=True)
    ]


def is_compiled(library: Library) -> bool:
    """True if ``compiled`` has nothing to do.

    Raises:
      InputError: the environment names a file that is not there.
    """
    return prebuilt_file(library) is not None or _found(library) is not None


def prebuilt_file(library: Library) -> pathlib.Path | None:
    """The file that was built elsewhere; None where the environment names none.

    Raises:
      InputError: it is not there.
    """
    prebuilt = os.environ.get(library.prebuilt)
    if not prebuilt:
        return None
    if not pathlib.Path(prebuilt).is_file():
        raise InputError(
            f"{library.prebuilt} is {prebuilt}, which is no file; unset it to compile {library.purpose}"
        )
    return pathlib.Path(prebuilt)


def _found(library: Library) -> pathlib.Path | None:
    own = pathlib.Path(_folder_of_this_process().name)
    for path in (folder / library.file_name for folder in (*library.kept_in, own)):
        if not path.is_file():
            continue
        if _is_whole(path):
            return path
        _LOG.warning("%s is damaged: compiling it again", path)
    return None


def _is_whole(path: pathlib.Path) -> bool:
    """True if a file is a complete shared object: its section table, which comes last, is there."""
    try:
        with open(path, "rb") as file:
            header = file.read(_ELF_HEADER_BYTES)
        size = path.stat().st_size
    except OSError:
        return False
    if len(header) < _ELF_HEADER_BYTES or not header.startswith(_ELF):
        return False
    (start,) = struct.unpack_from("<Q", header, _SECTIONS_AT)
    (section_bytes,) = struct.unpack_from("<H", header, _SECTION_BYTES_AT)
    (count,) = struct.unpack_from("<H", header, _SECTION_COUNT_AT)
    return bool(start + section_bytes * count <= size)


def _compile(libraries: Sequence[Library], is_announced: bool) -> list[pathlib.Path]:
    """Compiles into the folder of this process, every source by itself."""
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        purpose = libraries[0].purpose
        raise InputError(f"cannot compile {purpose}: {compiler} not found; install g++ or set CXX")
    own = pathlib.Path(_folder_of_this_process().name)
    # Backwards by name, which happens to have what takes longest among the first.
    sources = [
        (library, path) for library in libraries for path in sorted(library.sources.glob("*.cc"))[::-1]
    ]
    cores = len(os.sched_getaffinity(0))
    with (
        tempfile.TemporaryDirectory(dir=own) as scratch,
        concurrent.futures.ThreadPoolExecutor(cores) as pool,
    ):
        objects = [f"{scratch}/{i}.o" for i in range(len(sources))]
        jobs = [
            pool.submit(_run_compiler, compiler, library, ("-c", str(source)), target)
            for (library, source), target in zip(sources, objects, strict=True)
        ]
        try:
            _await(jobs, "" if is_announced else _announcement(libraries, cores))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        for library in libraries:
            own_objects = [path for path, (of, _) in zip(objects, sources, strict=True) if of is library]
            built = f"{scratch}/{library.file_name}"
            _run_compiler(compiler, library, own_objects, built)
            os.replace(built, own / library.file_name)
    return [own / library.file_name for library in libraries]


def _announcement(libraries: Sequence[Library], cores: int) -> str:
    """What is compiled and how long that takes, a line; empty where it is done at once."""
    seconds = sum(library.core_s for library in libraries) / cores
    purposes = " and ".join(library.purpose for library in libraries)
    return f"compiling {purposes}, this once: about {seconds:.0f} s" if seconds >= _SOON_S else ""


def _await(jobs: Sequence[concurrent.futures.Future[None]], announcement: str) -> None:
    """Waits for all, with a bar on a terminal and a line elsewhere."""
    is_terminal = sys.stderr.isatty()
    if announcement and not is_terminal:
        print(announcement, file=sys.stderr, flush=True)
    for count, job in enumerate(concurrent.futures.as_completed(jobs), 1):
        job.result()
        if announcement and is_terminal:
            bar = "#" * (_BAR * count // len(jobs))
            end = "\n" if count == len(jobs) else ""
            print(f"\r{announcement} [{bar:<{_BAR}}]", end=end, file=sys.stderr, flush=True)


def _run_compiler(compiler: str, library: Library, inputs: Sequence[str], target: str) -> None:
    command = [compiler, *library.flags, *inputs, "-o", target, *library.places]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if "error:" in line] or [done.stderr.strip()]
        raise InputError(f"{compiler} could not compile {library.purpose}: {errors[0]}")


def _kept(library: Library, built: pathlib.Path) -> pathlib.Path:
    """Moves a compiled library to where later processes find it; leaves it where that cannot be."""
    why = []
    for folder in library.kept_in:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder, prefix=".build_") as scratch:
                whole = shutil.copy(built, scratch)
                os.replace(whole, folder / library.file_name)
        except OSError as error:
            why.append(f"{folder}: {error.strerror}")
            continue
        built.unlink()
        return folder / library.file_name
    _LOG.warning(
        "%s can be kept nowhere (%s), so every process compiles it anew; set XDG_CACHE_HOME",
        library.purpose,
        "; ".join(why),
    )
    return built


@functools.cache
def _folder_of_this_process() -> tempfile.TemporaryDirectory[str]:
    """Temporary folder, removed when the process ends."""
    return tempfile.TemporaryDirectory(prefix="tf_placer_")
