"""What auto_place is asked for is checked where the function is decorated, not at its first call."""

import pytest

import tf_placer
from tf_placer.base.arguments import InputError


@pytest.mark.parametrize("folder", ["{tmp}/file", "{tmp}/file/plans", "/proc/plans"])
def test_a_folder_for_plans_that_cannot_be_written_to(tmp_path, folder):
    (tmp_path / "file").touch()
    folder = folder.format(tmp=tmp_path)
    with pytest.raises(InputError, match=f"^cache_dir={folder}: .*; give another folder$"):
        tf_placer.auto_place(lambda x: x, cache_dir=folder)


def test_a_folder_for_plans_is_made_when_there_is_a_plan(tmp_path):
    tf_placer.auto_place(lambda x: x, cache_dir=tmp_path / "deep" / "plans")
    assert list(tmp_path.iterdir()) == []
