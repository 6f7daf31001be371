"""What many tests share: a pair of worker processes."""

from collections.abc import Iterator

import pytest

from tests.tf_placer.base.warm_workers import WarmWorkers


@pytest.fixture(scope="session")
def warm_workers() -> Iterator[WarmWorkers]:
    """Worker processes for tests that end none; a test that does makes workers of its own."""
    warm = WarmWorkers()
    yield warm
    warm.close()


@pytest.fixture(autouse=True)
def warm_workers_live(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails the test that ended shared workers, and not the next one that needs them."""
    yield
    if "warm_workers" in request.fixturenames:
        assert request.getfixturevalue("warm_workers").deaths() == []
