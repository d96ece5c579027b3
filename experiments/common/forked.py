"""Servers in processes of their own that start in a moment: forked from one that has imported everything."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from time import monotonic
from typing import Any

from specwhisper.errors import TargetUnavailable
from specwhisper.wire.logs import LogFormat, LogLevel, configure_logging

START_TIMEOUT_S = 60.0
CONTEXT = get_context("forkserver")

Probes = dict[str, Callable[[], int]]
# Serves what its settings say until a signal; tells by its probes what can be asked of it.
Serve = Callable[[Any, Probes], Coroutine[Any, Any, None]]


class Forked:
    """A server's process, from the event loop that started it.

    Parameters
    ----------
    log : file that its log goes to.

    Attributes
    ----------
    address : where it listens, once it is ready.
    ended_s : when it ended, by the monotonic clock.
    """

    def __init__(self, serve: Serve, settings: Any, log: Path = Path(os.devnull)) -> None:
        self.name = log.stem
        self.address = ""
        self.ended_s: float | None = None
        self._connection, theirs = CONTEXT.Pipe()
        self._process = CONTEXT.Process(target=_run, args=(theirs, serve, settings, log), daemon=True)
        # The modules that serve are imported once, by the process that all others are copies of.
        CONTEXT.set_forkserver_preload([serve.__module__, __name__])
        self._process.start()
        theirs.close()
        self._has_ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._process.sentinel, self._end)

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self._process.pid or 0

    @property
    def exit_status(self) -> int | None:
        """How it ended; a signal's number is negative."""
        return self._process.exitcode

    async def ready(self) -> str:
        """Wait until it listens, and tell where."""
        self.address = str(await self._hear())
        return self.address

    async def probe(self) -> dict[str, int]:
        """Ask what it has open."""
        self._connection.send(None)
        facts = await self._hear()
        if not isinstance(facts, dict):
            raise TypeError(f"{self.name} answered {facts!r}.")
        return facts

    def signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.ended_s is None:
            os.kill(self.pid, number)

    async def ended(self) -> None:
        """Wait for its end."""
        await self._has_ended.wait()

    async def kill(self) -> None:
        """Kill it, also where it is stopped, and wait for its end."""
        self.signal(signal.SIGKILL)
        await self.ended()
        self._process.join()
        self._connection.close()

    def _end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._process.sentinel)
        self.ended_s = monotonic()
        self._has_ended.set()

    async def _hear(self) -> Any:
        try:
            if not await asyncio.to_thread(self._connection.poll, START_TIMEOUT_S):
                raise TargetUnavailable(f"Process {self.name} has said nothing for {START_TIMEOUT_S:g} s.")
            return self._connection.recv()
        except (EOFError, ConnectionError):
            raise TargetUnavailable(f"Process {self.name} has ended; its log says why.") from None


def _run(connection: Connection, serve: Serve, settings: Any, log: Path) -> None:
    """Serve; in the process."""
    with log.open("a") as file:
        os.dup2(file.fileno(), sys.stderr.fileno())
    configure_logging(LogFormat.JSON, LogLevel.INFO)
    logging.getLogger().addHandler(_Ready(connection))
    asyncio.run(_serve(connection, serve, settings))


async def _serve(connection: Connection, serve: Serve, settings: Any) -> None:
    probes: Probes = {
        "tasks": lambda: len(asyncio.all_tasks()),
        "threads": threading.active_count,
        "heap_bytes": _heap_bytes,
    }

    def answer() -> None:
        try:
            connection.recv()
        except EOFError:
            os._exit(1)  # whoever started it is gone
        gc.collect()
        connection.send({name: ask() for name, ask in probes.items()})

    asyncio.get_running_loop().add_reader(connection.fileno(), answer)
    await serve(settings, probes)


class _Mallinfo(ctypes.Structure):
    """What glibc tells of its heap; see mallinfo2(3)."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    )


def _heap_bytes() -> int:
    """Count the bytes that are allocated, in all arenas; Python's own are among them if it uses malloc."""
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = _Mallinfo
    told = mallinfo()
    return int(told.uordblks + told.hblkhd)


class _Ready(logging.Handler):
    """Tells the address once the server says it is ready."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection = connection

    def emit(self, record: logging.LogRecord) -> None:
        """Look at a line of the log."""
        if record.getMessage() == "ready":
            self._connection.send(record.__dict__["address"])
