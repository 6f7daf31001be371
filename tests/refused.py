"""``refused``: what is wrong ends in an ``InputError`` of one line."""

import contextlib
from collections.abc import Iterator

import pytest

from tf_placer.base.arguments import InputError


@contextlib.contextmanager
def refused(message: str | None = None) -> Iterator[pytest.ExceptionInfo[InputError]]:
    """Expects an error whose message is one line, in which a pattern is found where one is given."""
    with pytest.raises(InputError, match=message) as error:
        yield error
    assert "\n" not in str(error.value)
