"""The weights that come with tf_placer are those of the network in C++."""

from __future__ import annotations

import numpy as np
import pytest

from tf_placer.planners.memetic import edit_weights


def test_there_are_as_many_as_the_network_has() -> None:
    # 34 features, two layers of 16 with biases, and a score.
    assert edit_weights().shape == (34 * 16 + 16 + 16 * 16 + 16 + 16 + 1,)
    assert edit_weights().dtype == np.float32
    assert np.isfinite(edit_weights()).all()


def test_nobody_changes_them() -> None:
    with pytest.raises(ValueError, match="read-only"):
        edit_weights()[0] = 1.0
