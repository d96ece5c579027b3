"""What a process has allocated, as glibc counts it."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import platform
from typing import Any

from specwhisper.errors import UnsupportedOption

LIBRARY = ctypes.CDLL(None)
MAX_COLLECTIONS = 8  # a server that works makes new garbage all the time
TURNS = 10  # of the event loop: it closes generators in tasks, which hold 100 KiB each until they have run


class _Mallinfo(ctypes.Structure):
    """What glibc tells of its heap; see mallinfo2(3)."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    )


def check_heap_is_counted(library: Any = LIBRARY) -> None:
    """Refuse a system that does not count what is allocated.

    Raises
    ------
    UnsupportedOption : there is no ``mallinfo2``.
    """
    if not hasattr(library, "mallinfo2"):
        here = " ".join(platform.libc_ver()).strip() or "another C library"
        raise UnsupportedOption(
            f"Memory is counted by mallinfo2 of glibc 2.33 or later, and here is {here}: "
            "run it on such a system."
        )


def heap_bytes(library: Any = LIBRARY) -> int:
    """Count the bytes that are allocated, in all arenas; Python's own are among them if it uses malloc."""
    check_heap_is_counted(library)
    mallinfo = library.mallinfo2
    mallinfo.restype = _Mallinfo
    counted = mallinfo()
    return int(counted.uordblks + counted.hblkhd)


async def settle() -> None:
    """Free what is garbage; asynchronous generators close in the event loop, and free more then."""
    for _ in range(MAX_COLLECTIONS):
        num_freed = gc.collect()
        for _ in range(TURNS):
            await asyncio.sleep(0)
        if not num_freed:
            return
