"""Servers that all examples of a module share."""

from collections.abc import Iterator

import pytest

from specwhisper.engine import verifier
from tests.fuzz.running import Running


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with pytest.MonkeyPatch.context() as patch, Running().in_thread() as servers:
        patch.setattr(
            verifier, "CANDIDATES_TIMEOUT_NS", 1_000_000
        )  # targets wait briefly for candidates that never arrive
        yield servers
        servers.check()
