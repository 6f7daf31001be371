"""Ops that have their place leave a search the others."""

import re

import numpy as np
import pytest

from tests.tf_placer.problem.small_problems import problem_of, small_cluster
from tf_placer.errors import InputError
from tf_placer.problem.pinned import pinned

GPU_0, GPU_1 = (device.name for device in small_cluster().devices)


def chain(allowed=True):
    return problem_of([1, 1, 1], [(0, 1), (1, 2)], names=["a", "b", "c"], allowed=np.full((3, 2), allowed))


def test_only_what_is_named_is_held():
    problem = chain()
    held = pinned(problem, {"b": GPU_1, "of another graph": GPU_0})
    assert held.allowed.tolist() == [[True, True], [False, True], [True, True]]
    assert held.everything_on(0).tolist() == [0, 1, 0]
    assert problem.allowed.all()


def test_what_cannot_be_is_refused():
    with pytest.raises(InputError, match="'a' is to be on /device:TPU:0, which cluster 'toy2' lacks"):
        pinned(chain(), {"a": "/device:TPU:0"})
    message = f"'b' is to be on {GPU_0}, but what shares its device can only be on {GPU_1}"
    with pytest.raises(InputError, match=re.escape(message)):
        pinned(pinned(chain(), {"b": GPU_1}), {"b": GPU_0})
