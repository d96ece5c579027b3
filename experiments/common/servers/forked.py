"""Servers in processes of their own that start in a moment: forked from one that has imported everything."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from time import monotonic
from typing import Any

from experiments.common.servers.heap import heap_bytes, settle
from specwhisper.errors import TargetUnavailable
from specwhisper.observe.logs import LogFormat, LogLevel, configure_logging

START_TIMEOUT_S = 60.0
CONTEXT = get_context("forkserver")

# What can be asked of a server from outside: its name, and how it is found out.
Probes = dict[str, Callable[[], int]]
# Serves what its settings say until a signal; tells by its probes what can be asked of it.
Serve = Callable[[Any, Probes], Coroutine[Any, Any, None]]


class ForkedServer:
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

    async def probe(self, *names: str) -> dict[str, int]:
        """Ask what it has open, of what it knows among these names; without any, all of it."""
        self._connection.send(names)
        facts = await self._hear()
        if not isinstance(facts, dict):
            raise TypeError(f"{self.name} answered {facts!r}.")
        return facts

    async def leak(self, num_blocks: int, block_bytes: int) -> None:
        """Have it keep so many blocks of memory for good."""
        self._connection.send((num_blocks, block_bytes))
        await self._hear()

    def signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        with suppress(ProcessLookupError):  # which is told a moment later
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
    os.setsid()  # whatever it starts belongs to it, and a terminal's Ctrl-C is for who started it
    with log.open("a") as file:
        os.dup2(file.fileno(), sys.stderr.fileno())
    configure_logging(LogFormat.JSON, LogLevel.INFO)
    logging.getLogger().addHandler(_Ready(connection))
    asyncio.run(_serve(connection, serve, settings))


async def _serve(connection: Connection, serve: Serve, settings: Any) -> None:
    probes: Probes = {
        "tasks": lambda: len(asyncio.all_tasks()),
        "threads": threading.active_count,
        "heap_bytes": heap_bytes,
    }

    leaked: list[bytes] = []
    answering: set[asyncio.Task[None]] = set()

    def answer() -> None:
        match _received(connection):
            case int(num_blocks), int(block_bytes):
                leaked.extend(b"\1" * block_bytes for _ in range(num_blocks))
                connection.send(len(leaked))
            case names:
                asked = [name for name in probes if not names or name in names]
                answering.add(task := asyncio.create_task(report(asked)))
                task.add_done_callback(answering.discard)

    async def report(names: Sequence[str]) -> None:
        if "heap_bytes" in names:
            await settle()
        connection.send({name: probes[name]() for name in names})

    asyncio.get_running_loop().add_reader(connection.fileno(), answer)
    await serve(settings, probes)


def _received(connection: Connection) -> Any:
    try:
        return connection.recv()
    except EOFError:
        os._exit(1)  # whoever started it is gone


class _Ready(logging.Handler):
    """Tells the address once the server says it is ready."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection = connection

    def emit(self, record: logging.LogRecord) -> None:
        """Look at a line of the log."""
        if record.getMessage() == "ready":
            self._connection.send(record.__dict__["address"])
