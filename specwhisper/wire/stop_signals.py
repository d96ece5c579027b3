"""The signals by which servers are told to stop, however often."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stop_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Have SIGTERM and SIGINT call ``stop``, any number of times; from the main thread's event loop.

    Behind it they are ignored if one has come, since the process ends then: another one that comes late would
    make a failure of a good end.
    """
    loop, has_come = asyncio.get_running_loop(), False

    def take() -> None:
        nonlocal has_come
        has_come = True
        stop()

    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, take)
    try:
        yield
    finally:
        for number in STOP_SIGNALS:
            loop.remove_signal_handler(number)
            if has_come:
                signal.signal(number, signal.SIG_IGN)
