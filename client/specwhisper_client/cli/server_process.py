"""A server's process: started, followed by its log, stopped in the end."""

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
TAIL_LINES = 20  # of a log, told where a server did not start


def start_server(
    command: Sequence[str], environment: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """Start a server that logs JSON lines; it blocks unless :func:`following` reads them.

    Parameters
    ----------
    environment : variables that are set beside ours.
    """
    variables = {**os.environ, **(environment or {})}
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, errors="replace", env=variables)


@contextmanager
def following(
    process: subprocess.Popen[str], name: str, *, start_timeout_s: float | None = None
) -> Iterator[str]:
    """Give a server's address once it is ready, read its log to the end, and stop it by SIGTERM.

    Starting is apart from this, so that who pins a server to its cores leaves the log's reader off them.

    Parameters
    ----------
    name : what it is called where it does not start.
    start_timeout_s : seconds until it must be ready; without, it may take as long as it runs.

    Raises
    ------
    TargetUnavailable : it did not start; the message ends with what it said last.
    """
    log = _Log(process)
    try:
        yield log.ready_address(name, start_timeout_s)
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        log.close()


class _Log:
    """What a process writes to standard error; a thread reads it to the end, so that writing never blocks."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._address: SimpleQueue[str | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        for line in self._process.stderr or ():
            self._tail.append(line)
            if (address := _address_in(line)) is not None:
                self._address.put(address)
        self._address.put(None)

    def ready_address(self, name: str, timeout_s: float | None) -> str:
        """Wait for the line that says where the server listens."""
        try:
            address = self._address.get(timeout=timeout_s)
        except Empty:
            address = None
        if address is None:
            raise TargetUnavailable(f"{name} did not start: {''.join(self._tail).strip()}")
        return address

    def close(self) -> None:
        """Read the rest; the process has ended."""
        self._thread.join()
        if self._process.stderr is not None:
            self._process.stderr.close()


def _address_in(line: str) -> str | None:
    """Give the address that a line tells; most tell none, and some are no JSON."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    if not isinstance(record, dict) or record.get("message") != "ready":
        return None
    return str(record.get("address"))
