"""Where the checkout is, for the tests that read it."""

import pathlib

import pytest


@pytest.fixture(scope="session")
def root() -> pathlib.Path:
    """The repository root; under Bazel the copy of it that the test was given."""
    # absolute, not resolve: under Bazel this file is a link into the checkout, where undeclared files lie.
    return pathlib.Path(__file__).absolute().parent.parent.parent
