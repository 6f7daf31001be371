"""The plug-in places functions by fingerprint; what runs is seen in TensorFlow's own partition graphs."""

from __future__ import annotations

import pathlib

import pytest

from tests.logical_devices import outcomes_of
from tests.tf_placer.rewrite import plug_in_process
from tf_placer.base.arguments import InputError
from tf_placer.rewrite.plug_in import PREBUILT, plug_in


def test_functions_are_placed_by_the_plug_in() -> None:
    found = outcomes_of("tests.tf_placer.rewrite.plug_in_process")
    assert found == {check.__name__: "ok" for check in plug_in_process.CHECKS}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"...tf_placer plug-in for TensorFlow 2.20.1;...", "is built for TensorFlow 2.20.1, and 2.21"),
        (b"\x7fELF...", "is no plug-in of tf_placer; unset TF_PLACER_PLUG_IN_LIBRARY"),
    ],
)
def test_a_plug_in_for_another_tensorflow_is_refused(
    content: bytes, message: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other.so").write_bytes(content)
    monkeypatch.setenv(PREBUILT, str(tmp_path / "other.so"))
    with pytest.raises(InputError, match=message):
        plug_in()
