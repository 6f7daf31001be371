"""Files of arrays: what is written is read, and what is damaged, foreign or of another version is told in one line."""

import io
import zipfile

import numpy as np
import pytest

from tf_placer.base.arguments import InputError
from tf_placer.base.files import array_file_bytes, read_array_file

KIND, REMEDY = "a test", "write it again"
ARRAYS = {
    "whole": np.arange(6).reshape(2, 3),
    "truth": np.array([True, False]),
    "none": np.zeros((0, 4), np.int32),
}
CONTENT = array_file_bytes(KIND, 3, {"a": ["b", 1.5]}, ARRAYS)


def read(path, content=CONTENT, kind=KIND, version=3):
    path.write_bytes(content)
    return read_array_file(path, kind, version, REMEDY)


def test_what_is_written_is_read(tmp_path):
    header, arrays = read(tmp_path / "file")
    assert header == {"a": ["b", 1.5]}
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(arrays[name], array)


def test_equal_content_is_equal_bytes():
    assert array_file_bytes(KIND, 3, {"a": ["b", 1.5]}, ARRAYS) == CONTENT


def npz(**arrays):
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


def with_member(name, content):
    archive = io.BytesIO(CONTENT)
    with zipfile.ZipFile(archive, "a") as members:
        members.writestr(name, content)
    return archive.getvalue()


PICKLED = (
    b"\x93NUMPY\x01\x00v\x00"
    + b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }".ljust(117)
    + b"\n..."
)
HUGE = b"\x93NUMPY\x01\x00v\x00{'descr': '<i8', 'fortran_order': False, 'shape': (1152921504606846976,), }"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"text",
        b"PK\x03\x04",
        CONTENT[: len(CONTENT) // 2],
        CONTENT[:-1],
        npz(a=np.ones(3)),
        npz(header=np.ones(3)),
        npz(header=np.frombuffer(b"[1]", np.uint8)),
        npz(header=np.frombuffer(b'{"kind": "a test", "schema_version": 3, "header": 7}', np.uint8)),
        npz(header=np.frombuffer(b"[" * 100_000, np.uint8)),
        with_member("huge.npy", HUGE.ljust(127) + b"\n"),
        with_member("pickled.npy", PICKLED),
    ],
)  # fmt: skip
def test_what_is_no_such_file_is_told(tmp_path, content):
    with pytest.raises(InputError, match=r"file is damaged, or no file of a test; write it again$") as told:
        read(tmp_path / "file", content)
    assert "\n" not in str(told.value)


def test_another_kind_another_version_and_no_file(tmp_path):
    with pytest.raises(InputError, match=r"file is a file of 'a test', not of another; write it again$"):
        read(tmp_path / "file", kind="another")
    with pytest.raises(InputError, match=r"file has schema version 3, this program reads 4; write it again$"):
        read(tmp_path / "file", version=4)
    with pytest.raises(
        InputError, match=r"cannot read .*none \(No such file or directory\); write it again$"
    ):
        read_array_file(tmp_path / "none", KIND, 3, REMEDY)
    with pytest.raises(InputError, match=r"cannot read .* \(Is a directory\); write it again$"):
        read_array_file(tmp_path, KIND, 3, REMEDY)


def test_a_flipped_bit_is_seen_or_changes_nothing(tmp_path):
    generator, seen = np.random.default_rng(0), 0
    for _ in range(200):
        damaged = bytearray(CONTENT)
        damaged[generator.integers(len(CONTENT))] ^= 1 << generator.integers(8)
        try:
            header, arrays = read(tmp_path / "file", bytes(damaged))
        except InputError:
            seen += 1
            continue
        assert header == {"a": ["b", 1.5]}
        for name in arrays.keys() & ARRAYS.keys():
            np.testing.assert_array_equal(arrays[name], ARRAYS[name])
    assert seen > 100
