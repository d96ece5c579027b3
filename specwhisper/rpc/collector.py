"""Python's garbage collector in servers, which stops all threads of a process while it runs."""

from __future__ import annotations

import gc


def freeze_loaded() -> None:
    """Keep what is loaded by now out of every later collection.

    A full collection looks at each object: at the several hundred thousand of the imported libraries, which
    stay for as long as the process does, it takes some 90 ms, in which no client is answered.
    """
    gc.collect()
    gc.freeze()
