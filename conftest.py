"""Test-wide settings: quiet TensorFlow, fixed seeds, GPUs shared rather than hidden."""

import os

# Before anything imports TensorFlow, which reads these once.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# Worker processes share a GPU with the test process; without growth the first one takes all its memory.
os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
# matplotlib must not look for a display.
os.environ.setdefault("MPLBACKEND", "Agg")

import random
import sys

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def fixed_seeds() -> None:
    """Gives every test the same random state, so that a failure does not depend on the tests before it."""
    random.seed(0)
    np.random.seed(0)
    # Only where a test already uses TensorFlow: importing it takes seconds.
    if "tensorflow" in sys.modules:
        sys.modules["tensorflow"].random.set_seed(0)
