"""Files written whole or not at all: results, result folders, archives of arrays, and the user's cache.

And the kind of a file that a user gives: its bytes tell, never its name.

What a killed process leaves behind has a name that ends in ``.new``; the next write of the same results removes it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import io
import json
import logging
import math
import os
import pathlib
import re
import shutil
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tf_placer.base.arguments import InputError

# Result folders: checked before the work, and written by one process at a time.

_LOG = logging.getLogger(__name__)
_RUN_LOCK = ".run.lock"
# Of file systems that know no locks.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


def check_writable(folder: pathlib.Path, given_as: str) -> None:
    """Raises InputError where files could not be written into a folder later; leaves everything as it is.

    Makes the folder and a file in it and takes both away again: permissions do not tell (root has all of them, and
    cannot write to a read-only disk or to /proc).

    Args:
      folder: need not be there.
      given_as: how the user said it, ``--out=DIR`` say.
    """
    with _made(folder, given_as):
        pass


@contextlib.contextmanager
def reserved(folder: pathlib.Path, given_as: str) -> Iterator[None]:
    """Within it, the folder is there, can be written to, and no other process that asks has it.

    The system gives it free when this process ends, however that ends. A folder that was not there and that nothing
    was written into is gone afterwards; who is killed leaves a hidden ``.run.lock``, which the next run removes.

    Args:
      folder: for results.
      given_as: as in ``check_writable``.

    Raises:
      InputError: it cannot be written to, or another process has it.
    """
    with (
        _made(folder, given_as),
        exclusively(
            folder / _RUN_LOCK,
            f"{given_as}: another run is writing there; wait for it, or give another folder",
        ),
    ):
        yield


@contextlib.contextmanager
def exclusively(lock: pathlib.Path, refusal: str) -> Iterator[None]:
    """Lets one process in at a time.

    Args:
      lock: a file that is there only meanwhile; its folder is there.
      refusal: what to tell the others.

    Raises:
      InputError: another process, or another thread, is in.
    """
    descriptor = _locked(lock, refusal)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)  # before others are let in, or it might be theirs
        os.close(descriptor)


def _locked(lock: pathlib.Path, refusal: str) -> int:
    """An open descriptor of ``lock`` with the lock on it, which ends with the process, however that ends."""
    while True:
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise InputError(
                f"{lock.parent} cannot be written to: {error.strerror}; give another folder"
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever had it may have removed it after we opened it: then it keeps nobody out.
            if os.path.samestat(os.fstat(descriptor), os.stat(lock)):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            raise InputError(refusal) from None
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                os.close(descriptor)
                raise
            _LOG.warning("%s: nothing can be locked there, so take care to write there once at a time", lock)
            return descriptor
        os.close(descriptor)


@contextlib.contextmanager
def _made(folder: pathlib.Path, given_as: str) -> Iterator[None]:
    """A folder that can be written to, made if need be; what was made goes again if nothing is in it."""
    folder = folder.absolute()
    made: list[pathlib.Path] = []
    try:
        try:
            for path in (*reversed(folder.parents), folder):
                made += [path] * _make(path)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            file = next((path for path in (folder, *folder.parents) if os.path.isfile(path)), None)
            why = f"{file} is a file" if file else f"it cannot be written to: {error.strerror}"
            raise InputError(f"{given_as}: {why}; give another folder") from error
        yield
    finally:
        for path in reversed(made):
            with contextlib.suppress(OSError):  # something is in it
                path.rmdir()


def _make(path: pathlib.Path) -> bool:
    """Makes a folder; False if it exists, which another process may have made first."""
    if path.is_dir():
        return False
    try:
        path.mkdir()
    except FileExistsError:
        if path.is_dir():
            return False
        raise
    return True


UNFINISHED = ".new"
_REPLACED = "replaced"
_LOCK = ".lock"
# Errors of a disk that is full or must not be written to, as opposed to mistakes of ours.
_REFUSALS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM)


def write_atomically(path: pathlib.Path, content: str | bytes) -> None:
    """Writes to ``path.new``, syncs and renames, so that ``path`` is never half-written.

    What goes wrong leaves an older ``path`` as it was, and no ``path.new``. Of several processes that write at once one
    waits for the other.

    Raises:
      InputError: its folder is not there, is full, or must not be written to.
    """
    temporary = path.with_name(path.name + UNFINISHED)
    try:
        with _in_turn(temporary) as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
            os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            raise _refused(path, error) from error
        raise


@contextlib.contextmanager
def _in_turn(temporary: pathlib.Path) -> Iterator[io.BufferedWriter]:
    """Yields an empty file to write, when no other process writes one of that name any more."""
    while True:
        with open(temporary, "ab") as file:  # what is in it may be another's, who is writing
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise
            try:
                is_there = os.path.samestat(os.fstat(file.fileno()), os.stat(temporary))
            except FileNotFoundError:
                continue  # the other has renamed it
            if not is_there:
                continue
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                file.truncate(0)
            yield file
            return


@contextlib.contextmanager
def appearing_whole(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields a folder to fill, which gets its name when it is full and on the disk.

    Whatever stops that, a kill included, leaves no ``folder``.

    Args:
      folder: not there yet; folders that it is in are made with it.

    Raises:
      InputError: the disk is full, or must not be written to; or another process is filling such a folder.
    """
    with _told_of(folder), _alone(folder) as top:
        unfinished = top.with_name(f".{top.name}{UNFINISHED}")
        shutil.rmtree(unfinished, ignore_errors=True)
        inside = unfinished / folder.relative_to(top)
        try:
            inside.mkdir(parents=True)
            yield inside
            _sync(unfinished)
            os.rename(unfinished, top)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise


@contextlib.contextmanager
def _alone(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields the topmost folder that is not there and will be there with ``folder``, to one process at a time."""
    while True:
        top = _topmost_missing(folder)
        lock = top.with_name(f".{top.name}{_LOCK}")
        with exclusively(
            lock, f"{folder}: another process is writing {top}; wait for it, or give another folder"
        ):
            if not top.exists():  # nobody made it before it was ours
                yield top
                return


def _topmost_missing(folder: pathlib.Path) -> pathlib.Path:
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    if not missing:
        raise InputError(f"{folder} is there already; give a new folder")
    return missing[-1]


@contextlib.contextmanager
def replacing(folder: pathlib.Path, names: Sequence[str]) -> Iterator[pathlib.Path]:
    """Yields a folder to fill; then what is in it, and nothing else of ``names``, is in ``folder``.

    Whatever stops that, a kill included, leaves everything as it was or, in the instant in which one set of results
    takes the other's place, neither set whole and no ``names[-1]``. A set is never a mix of two. A ``folder`` that was
    not there appears with everything in it.

    Args:
      folder: where the results go; other files in it are left alone.
      names: of the files and folders that belong together; where the last one lies, the rest is complete.

    Raises:
      InputError: the disk is full, or must not be written to; or another process is writing results there.
    """
    if not folder.exists():
        with appearing_whole(folder) as inside:
            yield inside
        return
    refusal = f"{folder}: another process is writing results there; wait for it, or give another folder"
    with _told_of(folder), exclusively(folder / f".results{_LOCK}", refusal):
        unfinished = folder / f".results{UNFINISHED}"
        shutil.rmtree(unfinished, ignore_errors=True)
        replaced = unfinished / _REPLACED
        try:
            unfinished.mkdir()
            yield unfinished
            replaced.mkdir()
            _sync(unfinished)
            for name in reversed(names):
                if os.path.lexists(folder / name):
                    os.rename(folder / name, replaced / name)
            for name in names:
                if os.path.lexists(unfinished / name):
                    os.rename(unfinished / name, folder / name)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)


@contextlib.contextmanager
def _told_of(path: pathlib.Path) -> Iterator[None]:
    """Turns what the disk refuses into one line that names what was to be written."""
    try:
        yield
    except OSError as error:
        if error.errno not in _REFUSALS:
            raise
        raise _refused(path, error) from error


def _refused(path: pathlib.Path, error: OSError) -> InputError:
    return InputError(f"{path} cannot be written: {error.strerror}; make room, or write somewhere else")


def _sync(folder: pathlib.Path) -> None:
    """Flushes everything in a folder to the disk before the folder gets its name."""
    for path in [*folder.rglob("*"), folder]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


# Archives: named arrays and a JSON header in one file, of a stated kind and version.

_HEADER = "header"
# Errors of NumPy, zipfile and json for damaged bytes.
_DAMAGES = (
    ValueError,  # with it: of JSON and of Unicode
    KeyError,
    TypeError,
    EOFError,
    OSError,
    MemoryError,
    OverflowError,
    RecursionError,
    NotImplementedError,  # another compression
    RuntimeError,  # encrypted
    SyntaxError,
    zipfile.BadZipFile,
    zlib.error,
)


def array_file_bytes(
    kind: str, version: int, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> bytes:
    """The content of a file.

    Args:
      kind: what is in it, in a few words.
      version: of what header and arrays mean.
      header: what JSON can hold.
      arrays: of numbers or truth values.
    """
    text = json.dumps({"kind": kind, "schema_version": version, "header": dict(header)})
    content = io.BytesIO()
    np.savez(content, **{_HEADER: np.frombuffer(text.encode(), np.uint8)}, **arrays)  # type: ignore[arg-type]
    return content.getvalue()


def read_array_file(
    path: pathlib.Path, kind: str, version: int, remedy: str
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The header and the arrays of a file.

    Args:
      path: of the file.
      kind: what it must be of.
      version: which it must be of.
      remedy: how to get a good one, after a semicolon.

    Raises:
      InputError: it is missing, damaged, of another kind, or of another version: one line that names it.
    """
    try:
        file = open(path, "rb")  # noqa: SIM115 - so that what cannot be opened is told apart
    except OSError as error:
        raise InputError(f"cannot read {path} ({error.strerror}); {remedy}") from error
    try:
        with file, np.load(file, allow_pickle=False) as members:
            arrays = {name: members[name] for name in members.files}
        document = json.loads(arrays.pop(_HEADER).tobytes())
        found, found_version, header = document["kind"], document["schema_version"], document["header"]
        if not isinstance(header, dict):
            raise TypeError("its header is no object")
    except _DAMAGES as error:
        raise InputError(f"{path} is damaged, or no file of {kind}; {remedy}") from error
    if found != kind:
        raise InputError(f"{path} is a file of {str(found)[:60]!r}, not of {kind}; {remedy}")
    if found_version != version:
        raise InputError(
            f"{path} has schema version {str(found_version)[:20]}, this program reads {version}; {remedy}"
        )
    return header, arrays


# The user's cache folder (profiles, plans, traced workloads, compiled libraries), and its limit on workloads.

WORKLOADS_LIMIT = "TF_PLACER_WORKLOAD_CACHE_GIB"  # environment variable
_DEFAULT_GIB = 5.0
_NOBODYS_HOME = "/nonexistent"  # what systems call the home of who has none


def user_cache_folder() -> pathlib.Path:
    """``$XDG_CACHE_HOME/tf_placer``, usually in ``~/.cache``; it need not be there, nor can it always be made."""
    cache = os.environ.get("XDG_CACHE_HOME")
    if cache:
        return pathlib.Path(cache) / "tf_placer"
    home = os.path.expanduser("~")  # unchanged where the user has no home, as in some containers
    return pathlib.Path(_NOBODYS_HOME if home == "~" else home) / ".cache" / "tf_placer"


def workloads_limit_bytes() -> int:
    """Bytes that traced workloads may take in the cache: 5 GiB, or what ``TF_PLACER_WORKLOAD_CACHE_GIB`` says.

    Raises:
      InputError: the variable holds no number of gibibytes.
    """
    given = os.environ.get(WORKLOADS_LIMIT, "") or str(_DEFAULT_GIB)
    try:
        gibibytes = float(given)
    except ValueError:
        gibibytes = math.nan
    if not 0 <= gibibytes < math.inf:
        raise InputError(
            f"{WORKLOADS_LIMIT} is {given!r}; give gibibytes, for example 5, or 0 to keep nothing"
        )
    return int(gibibytes * 2**30)


# Kinds of files that users give: told by their bytes, since a GraphDef may be called saved_model.pb.

SAVED_MODEL_FILES = ("saved_model.pb", "saved_model.pbtxt")
"""In the order in which TensorFlow looks for them."""


@dataclasses.dataclass(frozen=True)
class Kind:
    """Kind of a file or a folder.

    Attributes:
      what: with its article.
      remedy: for a user who gave it for something else; ``{}`` stands for its path.
      flags: of the command line, that take it.
    """

    what: str
    remedy: str
    flags: tuple[str, ...] = ()

    def told(self, path: pathlib.Path) -> str:
        """Kind and remedy."""
        return f"{self.what}; {self.remedy.format(path)}"


_AS_GRAPH = "give --meta_graph={} with --fetches (in Python: tf_placer.Item.from_meta_graph)"
_FROM_KERAS = (
    "export it with keras.models.load_model(FILE).export(FOLDER) and give --saved_model=FOLDER, or write "
    "model = keras.models.load_model('{}') in a script and give FILE.py:model"
)
_CONVERTED = "give the SavedModel that it was converted from"
_AGAIN = "write or copy it again"
_UNPACKED = "unpack it, and give what is in it"
_GRAPH_DEF = Kind("a GraphDef", _AS_GRAPH, ("meta_graph",))
_META_GRAPH = Kind("a MetaGraphDef", _AS_GRAPH, ("meta_graph",))
_MODEL_FILE = Kind(
    "the file of a SavedModel", "call it saved_model.pb, in a folder that --saved_model=FOLDER names"
)
_MODEL_FOLDER = Kind("the folder of a SavedModel", "give --saved_model={}", ("saved_model",))
_ONNX = Kind("an ONNX model", "convert it to a SavedModel (onnx2tf does, for example) and give the folder")
_KERAS = Kind("a Keras model", _FROM_KERAS)
_CHECKPOINT = Kind(
    "a checkpoint, which has no graph", "give the SavedModel or the .meta file that belongs to it"
)
_PROFILED = Kind("a profiled graph", "give --graph={}", ("graph",))
_PLAN = Kind("a plan", "give --plan={} with the program that it is of", ("plan", "placement"))
_MARKS = (  # where the mark of a format begins, the mark, and the format
    (0, b"\x89HDF\r\n\x1a\n", Kind("a Keras model or weights in HDF5", _FROM_KERAS)),
    (4, b"TFL3", Kind("a TensorFlow Lite model", _CONVERTED)),
    (0, b"\x1f\x8b", Kind("a file that gzip compressed", _UNPACKED)),
    (257, b"ustar", Kind("a tar archive", _UNPACKED)),
)
_END_OF_TABLE = bytes.fromhex("57fb808b247547db")  # of LevelDB, as which TensorFlow writes checkpoints
_TEXTS = (  # how a text begins, comments aside
    (r"saved_model_schema_version\s*:|meta_graphs\s*:?\s*[{<]", _MODEL_FILE),
    (r"(meta_info|graph|saver|collection|signature|asset_file|object_graph)_def\s*:?\s*[{<]", _META_GRAPH),
    (r"(node|library|versions)\s*:?\s*[{<]", _GRAPH_DEF),
    (r"\S+ -- .* -- ", _PROFILED),
    (r"(.*\n)*?\[\[device\]\]", Kind("the file of a cluster", "give --cluster={}", ("cluster",))),
)
_OBJECTS = (  # JSON: a key, the type of its value, and the kind
    ("nodes", list, _PROFILED),
    ("devices", dict, _PLAN),
    ("modelTopology", dict, Kind("a TensorFlow.js model", _CONVERTED)),
)
_OP_TYPE = re.compile(rb"[A-Za-z_][\w.>]*")
_MOST_FIELDS = 64  # numbers of the fields of these messages are below it


def check_kind(flag: str, path: pathlib.Path, said: str) -> None:
    """Raises InputError where a file or folder is known to be of a kind that a flag does not take.

    Args:
      flag: without dashes.
      path: need not be there.
      said: what the message calls it.
    """
    kind = kind_of(path)
    if kind is not None and flag not in kind.flags:
        raise InputError(f"{said}: it is {kind.told(path)}")


def kind_of(path: pathlib.Path) -> Kind | None:
    """Kind of a file by its bytes, of a folder by what is in it; None where it is not there or not known."""
    if path.is_dir():
        return _kind_of_folder(path)
    if not path.is_file():  # a pipe is read once, by whoever needs it
        return None
    try:
        kind = _kind_of_bytes(path.read_bytes())
    except OSError:
        return None  # its reader says why
    if kind is _MODEL_FILE and path.name in SAVED_MODEL_FILES:
        return dataclasses.replace(kind, remedy=f"give its folder, --saved_model={_literal(path.parent)}")
    return kind


def _kind_of_folder(folder: pathlib.Path) -> Kind | None:
    for name in SAVED_MODEL_FILES:
        if (folder / name).is_file():
            kind = kind_of(folder / name)
            if kind is None or kind.what == _MODEL_FILE.what:
                return kind and _MODEL_FOLDER
            remedy = kind.remedy.format(f"{{}}/{name}")
            return Kind(f"a folder whose {name} is {kind.what}", remedy)
    files = sorted(folder.glob("*/saved_model.pb*"))
    if files:
        inner = f"give a folder in it that has one, --saved_model={_literal(files[-1].parent)}"
        return Kind("a folder without a saved_model.pb", inner)
    if (folder / "variables" / "variables.index").is_file() or (folder / "keras_metadata.pb").is_file():
        return Kind(
            "a SavedModel without its saved_model.pb", "export the model again, and copy the whole folder"
        )
    graphs = [file for file in sorted(folder.glob("*.meta")) if kind_of(file) is _META_GRAPH]
    if graphs:
        remedy = _AS_GRAPH.format(_literal(graphs[-1]))
        return Kind("a folder of checkpoints and their graphs", remedy)
    return _CHECKPOINT if any(kind_of(file) is _CHECKPOINT for file in folder.glob("*.index")) else None


def _literal(path: pathlib.Path) -> str:
    """A path in a remedy, where braces stand for another one."""
    return str(path).replace("{", "{{").replace("}", "}}")


def _kind_of_bytes(data: bytes) -> Kind | None:
    if not data.strip():
        return Kind("empty", _AGAIN, ("settings",))
    for at, mark, kind in _MARKS:
        if data.startswith(mark, at):
            return kind
    if data.endswith(_END_OF_TABLE):
        return _CHECKPOINT
    if data.startswith(b"PK\x03\x04"):
        return _kind_of_archive(data)
    message, is_whole = _message(memoryview(data))
    if message is not None and not is_whole:
        return Kind(f"{message.what} that ends early", _AGAIN)
    return message or _kind_of_text(data)


def _kind_of_archive(data: bytes) -> Kind | None:
    """Kind of a zip archive; None where it may be one of arrays, which has a reader of its own."""
    try:
        names = zipfile.ZipFile(io.BytesIO(data)).namelist()
    except zipfile.BadZipFile:
        return Kind("a zip archive, as a Keras model is, that ends early", _AGAIN, ("weights",))
    if "config.json" in names:
        return _KERAS
    is_model = any(name.endswith(SAVED_MODEL_FILES) for name in names)
    return Kind("a zip archive of a SavedModel", _UNPACKED) if is_model else None


def _kind_of_text(data: bytes) -> Kind | None:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    if text.lstrip().startswith("{"):
        with contextlib.suppress(ValueError, RecursionError):  # its reader says where it is no JSON
            content = json.loads(text)
            return next((kind for key, of, kind in _OBJECTS if isinstance(content.get(key), of)), None)
    start = re.compile(r"(\s|#.*)*").match(text)
    begins_at = start.end() if start else 0
    return next((kind for begins, kind in _TEXTS if re.compile(begins).match(text, begins_at)), None)


def _message(data: memoryview) -> tuple[Kind | None, bool]:
    """Kind of a protocol buffer, and whether it is whole; its first fields tell, so no schema has to be loaded."""
    values, is_whole = _fields(data)
    head, second = values.get(1), values.get(2)
    if isinstance(head, int) and isinstance(second, memoryview):
        return (_MODEL_FILE if head == 1 and len(values) == 2 else _ONNX if head > 1 else None), is_whole
    if isinstance(head, memoryview):
        node = _fields(head)[0]
        op_type = node.get(2)
        if (
            isinstance(node.get(1), memoryview)
            and isinstance(op_type, memoryview)
            and _OP_TYPE.fullmatch(op_type)
        ):
            return _GRAPH_DEF, is_whole
    inner = _message(second)[0] if isinstance(second, memoryview) else None
    if inner is _META_GRAPH and head is None:
        return _MODEL_FILE, is_whole
    return (_META_GRAPH if inner is _GRAPH_DEF else None), is_whole


def _fields(data: memoryview) -> tuple[dict[int, int | memoryview], bool]:
    """First value of each field of a message, and whether the last is whole; no fields where it is none."""
    values: dict[int, int | memoryview] = {}
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire_type = key >> 3, key & 7
        if not 0 < number < _MOST_FIELDS or wire_type not in (0, 1, 2, 5):
            return {}, False
        if wire_type == 0:
            value, at = _varint(data, at)
            values.setdefault(number, value)
            continue
        size, at = _varint(data, at) if wire_type == 2 else (8 if wire_type == 1 else 4, at)
        values.setdefault(number, data[at : at + size])
        at += size
    return values, at == len(data)


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """A number of seven bits in each byte, and the position after it; beyond the end where it is cut."""
    value = 0
    for place in range(at, len(data)):
        value |= (data[place] & 127) << 7 * (place - at)
        if data[place] < 128:
            return value, place + 1
    return value, len(data) + 1
