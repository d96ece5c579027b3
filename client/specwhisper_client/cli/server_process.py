"""Start a server's process, read its log, and stop it."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from queue import Empty, SimpleQueue

from specwhisper.errors import TargetUnavailable

STOP_TIMEOUT_S = 10.0
TAIL_LINES = 20  # last lines of the log, in the error of a server that did not start


def start_server(
    command: Sequence[str], environment: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """Start a server that logs JSON lines; :func:`following` must read them.

    Parameters
    ----------
    environment : variables to add to this process's own.
    """
    variables = {**os.environ, **(environment or {})}
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, errors="replace", env=variables)


@contextmanager
def following(
    process: subprocess.Popen[str], name: str, *, start_timeout_s: float | None = None
) -> Iterator[str]:
    """Yield a server's address once it is ready; stop the server at the end.

    A thread reads its log, so that writing never blocks. The process is started by :func:`start_server`, so
    that it can be pinned to cores without that thread.

    Parameters
    ----------
    name : the server's name in the error.
    start_timeout_s : seconds until it must be ready; ``None`` for no limit.

    Raises
    ------
    TargetUnavailable : if it did not start; the message ends with the last lines of its log.
    """
    tail: deque[str] = deque(maxlen=TAIL_LINES)
    found: SimpleQueue[str | None] = SimpleQueue()

    def follow() -> None:
        for line in process.stderr or ():
            tail.append(line)
            if (address := _address_in(line)) is not None:
                found.put(address)
        found.put(None)

    follower = threading.Thread(target=follow, daemon=True)
    follower.start()
    try:
        try:
            address = found.get(timeout=start_timeout_s)
        except Empty:
            address = None
        if address is None:
            raise TargetUnavailable(f"{name} did not start: {''.join(tail).strip()}")
        yield address
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        follower.join()
        if process.stderr is not None:
            process.stderr.close()


def _address_in(line: str) -> str | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    if not isinstance(record, dict) or record.get("message") != "ready":
        return None
    return str(record.get("address"))
