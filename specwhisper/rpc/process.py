"""A server's process: the signals that stop it, and its garbage collector."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def exit_on_stop_signals() -> None:
    """End the process at once on SIGTERM or SIGINT, until :func:`stop_signals` handles them.

    Call it from the main thread, before imports that take long.
    """
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_DFL)


@contextmanager
def stop_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call ``stop`` on every SIGTERM and SIGINT, in the main thread's event loop.

    If one has come, they are ignored afterwards: the process ends, and a late signal must not turn its exit
    status into a failure.
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


def freeze_loaded() -> None:
    """Exclude all objects that exist now from later garbage collections.

    A full collection visits each object. The imported libraries have several hundred thousand, which stay
    until the process ends: about 90 ms in which no client is answered.
    """
    gc.collect()
    gc.freeze()
