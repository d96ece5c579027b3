"""Servers that all examples of a module ask."""

from collections.abc import Iterator

import pytest

from specwhisper.engine import verifier
from tests.fuzz.running import Running


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with pytest.MonkeyPatch.context() as patch, Running().in_thread() as servers:
        patch.setattr(
            verifier, "CANDIDATES_TIMEOUT_NS", 1_000_000
        )  # nobody waits for candidates that never come
        yield servers
        servers.check()
