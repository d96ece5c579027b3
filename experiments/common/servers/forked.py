"""Servers in processes that start quickly: forked from one that has imported everything."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import os
import platform
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

from specwhisper.errors import TargetUnavailable, UnsupportedOption
from specwhisper.observe.logs import LogFormat, LogLevel, configure_logging

LIBRARY = ctypes.CDLL(None)
MAX_COLLECTIONS = 8  # a working server creates new garbage all the time
TURNS = 10  # turns of the event loop, which closes generators in tasks of 100 KiB each


class _Mallinfo(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    )


def check_heap_is_counted() -> None:
    """Refuse a system without mallinfo2.

    Raises
    ------
    UnsupportedOption : there is no ``mallinfo2``.
    """
    if not hasattr(LIBRARY, "mallinfo2"):
        here = " ".join(platform.libc_ver()).strip() or "another C library"
        raise UnsupportedOption(
            f"Counting memory needs mallinfo2 of glibc 2.33 or later; this system has {here}: "
            "run it on another system."
        )


def heap_bytes() -> int:
    """Return the allocated bytes of all arenas, with Python's own if it uses malloc."""
    LIBRARY.mallinfo2.restype = _Mallinfo
    counted = LIBRARY.mallinfo2()
    return int(counted.uordblks + counted.hblkhd)


async def settle() -> None:
    """Collect garbage; asynchronous generators close in the event loop and free more."""
    for _ in range(MAX_COLLECTIONS):
        num_freed = gc.collect()
        for _ in range(TURNS):
            await asyncio.sleep(0)
        if not num_freed:
            return


START_TIMEOUT_S = 60.0
CONTEXT = get_context("forkserver")

# Values of a server that can be requested from outside, by name.
Probes = dict[str, Callable[[], int]]
# Serves with its settings until a signal, and adds its probes.
Serve = Callable[[Any, Probes], Coroutine[Any, Any, None]]


class ForkedServer:
    """A server's process, controlled from the event loop that started it.

    Parameters
    ----------
    log : file of its log.

    Attributes
    ----------
    address : its ``HOST:PORT``, once it is ready.
    ended_s : its end by the monotonic clock.
    """

    def __init__(self, serve: Serve, settings: Any, log: Path = Path(os.devnull)) -> None:
        self.name = log.stem
        self.address = ""
        self.ended_s: float | None = None
        self._connection, theirs = CONTEXT.Pipe()
        self._process = CONTEXT.Process(target=_run, args=(theirs, serve, settings, log), daemon=True)
        # The fork server imports the serving modules once; every process is a copy of it.
        CONTEXT.set_forkserver_preload([serve.__module__, __name__])
        self._process.start()
        theirs.close()
        self._has_ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._process.sentinel, self._end)

    @property
    def pid(self) -> int:
        return self._process.pid or 0

    @property
    def exit_status(self) -> int | None:
        return self._process.exitcode

    async def ready(self) -> str:
        self.address = str(await self._receive())
        return self.address

    async def probe(self, *names: str) -> dict[str, int]:
        """Return the values of its probes with these names, or of all probes."""
        self._connection.send(names)
        facts = await self._receive()
        if not isinstance(facts, dict):
            raise TypeError(f"{self.name} answered {facts!r}.")
        return facts

    async def leak(self, num_blocks: int, block_bytes: int) -> None:
        self._connection.send((num_blocks, block_bytes))
        await self._receive()

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError):  # the sentinel reports it a moment later
            if self.ended_s is None:
                os.kill(self.pid, number)

    async def ended(self) -> None:
        await self._has_ended.wait()

    async def kill(self) -> None:
        """Kill it, even if stopped, and wait for its end."""
        self.signal(signal.SIGKILL)
        await self.ended()
        self._process.join()
        self._connection.close()

    def _end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._process.sentinel)
        self.ended_s = monotonic()
        self._has_ended.set()

    async def _receive(self) -> Any:
        try:
            if not await asyncio.to_thread(self._connection.poll, START_TIMEOUT_S):
                raise TargetUnavailable(f"Process {self.name} sent no reply for {START_TIMEOUT_S:g} s.")
            return self._connection.recv()
        except (EOFError, ConnectionError):
            raise TargetUnavailable(f"Process {self.name} has ended; see its log.") from None


def _run(connection: Connection, serve: Serve, settings: Any, log: Path) -> None:
    os.setsid()  # its children belong to it, and a terminal's Ctrl-C goes to the parent only
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
                requested = [name for name in probes if not names or name in names]
                answering.add(task := asyncio.create_task(report(requested)))
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
        os._exit(1)  # the parent has ended


class _Ready(logging.Handler):
    """Sends the address once the server logs that it is ready."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection = connection

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage() == "ready":
            self._connection.send(record.__dict__["address"])
