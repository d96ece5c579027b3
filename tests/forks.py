"""Calls in forked processes."""

import multiprocessing
from collections.abc import Callable

WAIT_S = 30.0


def in_fork(call: Callable[[], object]) -> object:
    """Return the result of a call in a forked process, which must end."""
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=lambda: queue.put(call()))
    child.start()
    try:
        return queue.get(timeout=WAIT_S)
    finally:
        child.join(WAIT_S)
        child.kill()
        child.join()
        assert child.exitcode == 0
