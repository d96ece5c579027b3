"""Count the allocated bytes of a process, by glibc."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import platform

from specwhisper.errors import UnsupportedOption

LIBRARY = ctypes.CDLL(None)
MAX_COLLECTIONS = 8  # a working server creates new garbage all the time
TURNS = 10  # turns of the event loop, which closes generators in tasks of 100 KiB each


class _Mallinfo(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    )


def check_heap_is_counted() -> None:
    """Refuse a system without mallinfo2.

    Raises
    ------
    UnsupportedOption : there is no ``mallinfo2``.
    """
    if not hasattr(LIBRARY, "mallinfo2"):
        here = " ".join(platform.libc_ver()).strip() or "another C library"
        raise UnsupportedOption(
            f"Counting memory needs mallinfo2 of glibc 2.33 or later; this system has {here}: "
            "run it on another system."
        )


def heap_bytes() -> int:
    """Return the allocated bytes of all arenas, with Python's own if it uses malloc."""
    LIBRARY.mallinfo2.restype = _Mallinfo
    counted = LIBRARY.mallinfo2()
    return int(counted.uordblks + counted.hblkhd)


async def settle() -> None:
    """Collect garbage; asynchronous generators close in the event loop and free more."""
    for _ in range(MAX_COLLECTIONS):
        num_freed = gc.collect()
        for _ in range(TURNS):
            await asyncio.sleep(0)
        if not num_freed:
            return
