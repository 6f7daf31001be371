"""auto_place(fuse=True) on one CPU: the function stays in its process, and clusters of it are kept where they pay."""

import pytest

from tests.logical_devices import outcomes_of
from tests.tf_placer.automatic.fuse_process import CHECKS


@pytest.mark.slow
@pytest.mark.alone
def test_a_function_with_clusters_in_its_own_process(tmp_path):
    outcomes = outcomes_of("tests.tf_placer.automatic.fuse_process", str(tmp_path))
    assert outcomes == {check.__name__: "ok" for check in CHECKS}
