"""A process that shapes traffic: reads commands from its standard input, and its CPU time is measured.

It runs beside the measured processes. Each line of JSON changes the conditions; it replies with one line
when they apply.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

from experiments.common.servers.usage import cpu_s
from experiments.latency.networks.conditions import Conditions

STOP_TIMEOUT_S = 5.0


class ShapingProcess:
    """A shaping process, seen by the process that started it.

    Parameters
    ----------
    module : Python module to run.
    files : file descriptors to inherit.

    Attributes
    ----------
    ready : its first reply.
    """

    def __init__(self, module: str, *arguments: str, files: Sequence[int] = ()) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=tuple(files),
        )
        self.ready = self._read_reply()

    def apply(self, conditions: Conditions, *, seed: int = 0) -> None:
        """Apply conditions, and return when they hold."""
        if self._process.stdin is None:
            raise RuntimeError("The shaping process has no standard input.")
        self._process.stdin.write(json.dumps({"conditions": conditions.facts(), "seed": seed}) + "\n")
        self._process.stdin.flush()
        self._read_reply()

    def cpu_s(self) -> float:
        """Return its CPU time."""
        return cpu_s(self._process.pid)

    def stop(self) -> None:
        """Close its input and wait for its end."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _read_reply(self) -> dict[str, Any]:
        line = self._process.stdout.readline() if self._process.stdout is not None else ""
        if not line:
            raise RuntimeError("The process that shapes traffic has ended; see its output above.")
        reply: dict[str, Any] = json.loads(line)
        return reply


class Commands:
    """Reads commands from standard input, in the shaping process."""

    def __init__(self, change: Callable[[Conditions, int], None]) -> None:
        self._change = change
        self._rest = b""

    def read(self) -> bool:
        """Carry out the commands that have arrived; return ``False`` at the end of input."""
        data = os.read(0, 65_536)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            command = json.loads(line)
            self._change(Conditions(**command["conditions"]), command["seed"])
            reply({"applied": True})
        return bool(data)


def reply(answer: dict[str, Any]) -> None:
    """Write a reply to standard output."""
    print(json.dumps(answer), flush=True)
