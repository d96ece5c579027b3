"""The Wyoming server as a process: it listens, and stops in order."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import zeroconf
from wyoming.event import async_get_stdin
from zeroconf.asyncio import AsyncServiceInfo, AsyncZeroconf

from specwhisper.errors import InvalidRequest, ServerFull
from specwhisper.observe.tracing import configure_tracing
from specwhisper.rpc.addresses import join_address, listen_error
from specwhisper.rpc.process import freeze_loaded, stop_signals
from specwhisper_client.api import TranscriptionClient
from specwhisper_wyoming.config import WyomingConfig
from specwhisper_wyoming.connection import MAX_HEADER_BYTES, Connection

logger = logging.getLogger(__name__)

SERVICE = "_wyoming._tcp.local."
MDNS = ("224.0.0.251", 5353)
WILDCARDS = ("0.0.0.0", "::")


class WyomingServer:
    """Listens during :meth:`serve`, at the URI ``address``, until :meth:`stop`."""

    def __init__(self, config: WyomingConfig) -> None:
        self._config = config
        self._client = TranscriptionClient(config.server, config.server_credentials)
        self._connections: dict[asyncio.Task[None], Connection] = {}
        self._stopping = asyncio.Event()
        self.address = ""
        self.ready = asyncio.Event()

    @property
    def num_connections(self) -> int:
        return sum(connection.refusal is None for connection in self._connections.values())

    def stop(self) -> None:
        """Take no more connections, drain, then stop."""
        self._stopping.set()

    async def serve(self) -> None:
        async with self._client:
            async with self._listening() as self.address:
                logger.info("ready", extra={"address": self.address})
                self.ready.set()
                await self._stopping.wait()
            await self._drain()

    @asynccontextmanager
    async def _listening(self) -> AsyncIterator[str]:
        address = self._config.address
        match address.scheme:
            case "tcp":
                host, port = address.hostname or "", address.port or 0
                async with AsyncExitStack() as stack:
                    try:
                        server = await asyncio.start_server(self._accept, host, port, limit=MAX_HEADER_BYTES)
                    except OSError as error:
                        raise listen_error(host, port, error) from error
                    stack.callback(server.close)
                    bound, port = server.sockets[0].getsockname()[:2]
                    if self._config.zeroconf is not None:
                        await stack.enter_async_context(announced(self._config.zeroconf, bound, port))
                    yield f"tcp://{join_address(host, port)}"
            case "unix":
                path = address.path
                try:
                    server = await asyncio.start_unix_server(self._accept, path, limit=MAX_HEADER_BYTES)
                except OSError as error:
                    raise InvalidRequest(f"Cannot listen on {path}: {error.strerror}.") from error
                try:
                    yield f"unix://{path}"
                finally:
                    server.close()
                    Path(path).unlink(missing_ok=True)
            case _:
                self._accept(*await _stdio())
                for task in self._connections:
                    task.add_done_callback(lambda _: self.stop())
                yield "stdio://"

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        config, limit = self._config, self._config.max_connections
        refusal = None
        if self.num_connections >= limit:
            refusal = ServerFull(f"This server has its {limit} connections already: try again later.")
        connection = Connection(reader, writer, self._client, config.idle_timeout_s, config.options, refusal)
        task = asyncio.create_task(connection.run())
        self._connections[task] = connection
        task.add_done_callback(self._connections.pop)

    async def _drain(self) -> None:
        """Let open utterances end, then cancel the rest."""
        tasks = list(self._connections)
        num_open = sum(connection.is_transcribing for connection in self._connections.values())
        logger.info("draining", extra={"address": self.address, "open_utterances": num_open})
        for connection in self._connections.values():
            connection.drain()
        if tasks:
            await asyncio.wait(tasks, timeout=self._config.drain_timeout_s)
        if self._connections:
            facts = {"address": self.address, "open_utterances": len(self._connections)}
            logger.warning("cut off", extra=facts)
        unfinished = list(self._connections)
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)
        logger.info("stopped", extra={"address": self.address})


@asynccontextmanager
async def announced(name: str, host: str, port: int) -> AsyncIterator[None]:
    """Announce a service by mDNS, as Home Assistant looks for it; a taken name gets a number."""
    async with AsyncExitStack() as stack:
        try:
            address = _outgoing_address() if host in WILDCARDS else host
            service = AsyncServiceInfo(SERVICE, f"{name}.{SERVICE}", port, parsed_addresses=[address])
            announcing = await stack.enter_async_context(AsyncZeroconf())
            await announcing.async_register_service(service, allow_name_change=True)
        except (OSError, zeroconf.Error) as error:
            raise InvalidRequest(
                f"--zeroconf cannot announce '{name}': {error or type(error).__name__}."
            ) from error
        yield


def _outgoing_address() -> str:
    """Return this machine's address on mDNS's network; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.connect(MDNS)
        return str(asking.getsockname()[0])


async def _stdio() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    loop, reader = asyncio.get_running_loop(), await async_get_stdin()
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), sys.stdout
    )
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def run(config: WyomingConfig) -> None:
    """Serve until SIGTERM or SIGINT; further signals change nothing."""
    configure_tracing("specwhisper-wyoming")
    server = WyomingServer(config)
    with stop_signals(server.stop):
        freeze_loaded()
        await server.serve()
