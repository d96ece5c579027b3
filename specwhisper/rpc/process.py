"""A server's process: the signals that stop it, and its garbage collector."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
INIT_PID = 1  # the kernel drops its signals that have no handler: the first process of a container


def exit_on_stop_signals() -> None:
    """End the process at once on SIGTERM or SIGINT.

    This holds until :func:`stop_signals` handles them. Nothing is served yet, so nothing is drained. Call it
    from the main thread, before imports that take long.
    """
    if os.getpid() == INIT_PID:
        _exit_from_a_thread()
        return
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_DFL)


def _exit_from_a_thread() -> None:
    """Exit with the status that a shell reports for the signal.

    Python runs handlers in the main thread between two bytecodes, and loading a model leaves few of these. So
    the interpreter's C handler writes the signal's number to a pipe, and a thread reads it.
    """
    numbers, wakeup = os.pipe()
    os.set_blocking(wakeup, False)

    def wait() -> None:
        while (number := os.read(numbers, 1)[0]) not in STOP_SIGNALS:
            pass  # a library has installed this handler
        os._exit(128 + number)

    threading.Thread(target=wait, name="stop-signals", daemon=True).start()
    signal.set_wakeup_fd(wakeup)
    for number in STOP_SIGNALS:
        signal.signal(number, lambda *_: None)


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
        try:
            loop.add_signal_handler(number, take)
        except NotImplementedError:  # Windows' event loop has none, but wakes for Python's own handlers
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(take))
    try:
        yield
    finally:
        for number in STOP_SIGNALS:
            with suppress(NotImplementedError):
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
