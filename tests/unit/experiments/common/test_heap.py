"""Allocated memory is counted, and a system that cannot count reports it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from experiments.common.servers.heap import LIBRARY, heap_bytes
from specwhisper.errors import UnsupportedOption


@pytest.mark.skipif(not hasattr(LIBRARY, "mallinfo2"), reason="needs glibc 2.33")
def test_what_is_allocated_is_counted():
    before = heap_bytes()
    block = bytearray(32 * 1024 * 1024)
    assert heap_bytes() - before >= len(block) - 1024 * 1024


def test_a_library_without_mallinfo2_is_refused():
    with pytest.raises(UnsupportedOption, match=r"mallinfo2 of glibc 2\.33 or later") as refused:
        heap_bytes(SimpleNamespace())
    assert "\n" not in str(refused.value)
