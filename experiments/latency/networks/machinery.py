"""The process that shapes traffic: told over its standard input what to do, watched for what it costs.

It stands beside what is measured, never in it. It gets one line of JSON for each change of conditions and
answers with one line when they hold.
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


class Machinery:
    """A shaping process, as those see it who started it.

    Parameters
    ----------
    module : what to run.
    files : descriptors that it inherits.

    Attributes
    ----------
    told : what it said when it was ready.
    """

    def __init__(self, module: str, *arguments: str, files: Sequence[int] = ()) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=tuple(files),
        )
        self.told = self._answer()

    def apply(self, conditions: Conditions, *, seed: int = 0) -> None:
        """Have traffic shaped like this from now on."""
        if self._process.stdin is None:
            raise RuntimeError("A shaping process has an input.")
        self._process.stdin.write(json.dumps({"conditions": conditions.facts(), "seed": seed}) + "\n")
        self._process.stdin.flush()
        self._answer()

    def cpu_s(self) -> float:
        """Tell the processor time that it has taken."""
        return cpu_s(self._process.pid)

    def stop(self) -> None:
        """End it."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _answer(self) -> dict[str, Any]:
        line = self._process.stdout.readline() if self._process.stdout is not None else ""
        if not line:
            raise RuntimeError("The process that shapes traffic has ended; what it said stands above.")
        answer: dict[str, Any] = json.loads(line)
        return answer


class Orders:
    """The same pipe from inside: reads what was asked for when the input is readable."""

    def __init__(self, change: Callable[[Conditions, int], None]) -> None:
        self._change = change
        self._rest = b""

    def read(self) -> bool:
        """Carry out what has arrived; ``False`` when nobody will ask for anything any more."""
        data = os.read(0, 65_536)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            order = json.loads(line)
            self._change(Conditions(**order["conditions"]), order["seed"])
            tell({"applied": True})
        return bool(data)


def tell(answer: dict[str, Any]) -> None:
    """Answer on the standard output."""
    print(json.dumps(answer), flush=True)
