"""Run servers as operators start them: processes with a log and an exit status."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

START_S = 240.0  # importing torch alone takes seconds, on a busy machine many


class Process:
    """A running command whose standard error is read line by line."""

    def __init__(self, *command: str) -> None:
        environment = os.environ | {"COLUMNS": "80"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.lines: list[str] = []
        self._has_ended = False
        self._changed = threading.Condition()
        self._follower = threading.Thread(target=self._follow)
        self._follower.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def events(self) -> list[dict[str, Any]]:
        """Return the log so far; every line must be JSON."""
        with self._changed:
            return [json.loads(line) for line in self.lines]

    def wait_event(self, message: str, within_s: float = START_S, **facts: object) -> dict[str, Any]:
        """Wait for a line of the log with these facts."""

        def found() -> dict[str, Any] | None:
            events = (json.loads(line) for line in self.lines if line.startswith("{"))
            fitting = (e for e in events if e["message"] == message and facts.items() <= e.items())
            return next(fitting, None)

        with self._changed:
            event = self._changed.wait_for(lambda: found() or self._has_ended, within_s)
        if not isinstance(event, dict):
            log = "\n".join(self.lines)
            raise EOFError(f"'{message}' {facts} was not logged:\n{log}")
        return event

    def send_signal(self, number: int) -> None:
        self._process.send_signal(number)

    def wait(self, within_s: float = 60.0) -> tuple[int, str, str]:
        """Wait for the end; return exit status, standard output and standard error."""
        status = self._process.wait(within_s)
        self._follower.join()
        out = self._process.stdout.read() if self._process.stdout else ""
        return status, out, "\n".join(self.lines)

    def cpu_s(self) -> float:
        """Return the processor time used so far, in seconds."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        """Kill the process if it still runs, and close its pipes."""
        self._process.kill()
        self._process.wait()
        self._follower.join()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe:
                pipe.close()

    def _follow(self) -> None:
        for line in self._process.stderr or ():
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()


class Server(Process):
    """A server process; ``address`` waits until it is ready."""

    @property
    def address(self) -> str:
        return self.wait_event("ready")["address"]

    @property
    def port(self) -> str:
        return self.address.rpartition(":")[2]

    def session_ids(self) -> list[str]:
        return [event["session"] for event in self.events if event["message"] == "session opened"]


def run(*command: str) -> tuple[int, str, str]:
    """Run a command; return exit status, standard output and standard error."""
    process = Process(*command)
    try:
        return process.wait(START_S)
    finally:
        process.end()


def run_client(*arguments: object) -> tuple[int, str, str]:
    """Run ``specwhisper`` with arguments; see :func:`run`."""
    return run("specwhisper", *map(str, arguments))
