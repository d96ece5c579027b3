"""Allocated memory is counted, and a system that cannot count reports it."""

import pytest

from experiments.common.servers.forked import LIBRARY, heap_bytes


@pytest.mark.skipif(not hasattr(LIBRARY, "mallinfo2"), reason="needs glibc 2.33")
def test_what_is_allocated_is_counted():
    before = heap_bytes()
    block = bytearray(32 * 1024 * 1024)
    assert heap_bytes() - before >= len(block) - 1024 * 1024
