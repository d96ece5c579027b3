"""A draft server of one's own: started here, followed by its log, stopped in the end."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue

from specwhisper.errors import TargetUnavailable

STOP_TIMEOUT_S = 10.0
TAIL_LINES = 20  # of a log, told where a server did not start


@dataclass(frozen=True, slots=True)
class Pair:
    """A target, and the draft that is to work with it from here; options as the draft server has them."""

    target: str
    draft_model: str
    device: str = "cpu"
    dtype: str = "float32"
    threads: int | None = None

    @property
    def command(self) -> list[str]:
        """Give what starts the draft server."""
        told = ["--target", self.target, "--draft-model", self.draft_model, "--device", self.device]
        told += ["--dtype", self.dtype, "--port", "0", "--log-format", "json"]
        told += ["--threads", str(self.threads)] if self.threads else []
        return [sys.executable, "-m", "draft_server", *told]


@contextmanager
def running_server(command: Sequence[str]) -> Iterator[str]:
    """Start a server that logs JSON lines, give its address once it is ready, and stop it.

    Raises
    ------
    TargetUnavailable : it did not start; the message ends with what it said last.
    """
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, errors="replace")
    log = _Log(process)
    try:
        yield log.ready_address()
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

    def ready_address(self) -> str:
        """Wait for the line that says where the server listens."""
        address = self._address.get()
        if address is None:
            raise TargetUnavailable(f"The draft server did not start: {''.join(self._tail).strip()}")
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
