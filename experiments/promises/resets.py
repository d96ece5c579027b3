"""Hundreds of connections that open a session and are reset: other sessions are not affected."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from pathlib import Path

from experiments.chaos.clients import Client
from experiments.common.bench.report import Bar
from experiments.common.network.proxy import RESET
from experiments.common.servers.forked import ForkedServer
from experiments.promises.servers import TARGET, Behaviour, running_pair, until
from experiments.promises.sessions import all_begun, first_request, recorded, spoken, violations_of

MAX_FREE_S = 1.0
AT_ONCE = 16
ANSWERED_EVERY = 4  # of so many connections one waits for the server's first bytes
LENGTH_S = 240.0
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS = 0, 1, 4  # HTTP/2's frames
END_HEADERS = 4


@dataclass(frozen=True, slots=True)
class Survived:
    """Outcome of reset connections.

    Attributes
    ----------
    free_s : from the last of them until no more was held than the other sessions need; and from the end of
        these until nothing was.
    wrong : violations of the sessions that were open before.
    """

    num_resets: int
    num_sessions: int
    free_s: float
    wrong: tuple[str, ...]


async def measure_resets(num: int, folder: Path) -> Survived:
    """Reset connections while sessions run; measure when servers are free again."""
    async with running_pair((TARGET, Behaviour())) as pair:
        address = pair.draft.address
        await _check_opens(address, pair.draft)
        await pair.idle()
        clients = [Client(asked, folder) for asked in (spoken(), spoken(), recorded(LENGTH_S))]
        running = [asyncio.create_task(client.run(address)) for client in clients]
        await all_begun(clients)
        for first in range(0, num, AT_ONCE):
            numbers = range(first, min(num, first + AT_ONCE))
            await asyncio.gather(*(_reset(address, waits=number % ANSWERED_EVERY == 0) for number in numbers))
        free_s = await pair.wait_held((len(clients),) * 3)
        await asyncio.gather(*running)
        free_s = max(free_s, await pair.wait_held((0, 0, 0)))
        return Survived(num, len(clients), free_s, violations_of(clients))


def bars(survived: Survived) -> list[Bar]:
    """Hold what is left against the bar."""
    num_wrong = len(survived.wrong)
    return [
        Bar(
            f"free after {survived.num_resets} reset connections, s",
            survived.free_s,
            MAX_FREE_S,
            f"{survived.free_s:.2f}",
        ),
        Bar("errors of sessions beside resets", num_wrong, 1, f"{num_wrong} of {survived.num_sessions}"),
    ]


async def _check_opens(address: str, draft: ForkedServer) -> None:
    """See that what is sent opens a session, where it is not reset."""
    _, writer = await _opened(address)
    await until(draft, "sessions")
    writer.close()
    await writer.wait_closed()


async def _reset(address: str, *, waits: bool) -> None:
    """Open a session over a connection that is reset: at once, or when the server has said something."""
    reader, writer = await _opened(address)
    if waits:
        await reader.read(1)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    writer.transport.abort()


async def _opened(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send what opens a session: gRPC's clients can leave a call, but not reset their connection."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    message = first_request().SerializeToString()
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": "/specwhisper.wire.v1.Transcription/StreamingRecognize",
        ":authority": address,
        "te": "trailers",
        "content-type": "application/grpc",
    }
    writer.write(
        PREFACE
        + _frame(SETTINGS, b"", stream=0)
        + _frame(HEADERS, b"".join(map(_header, headers, headers.values())), flags=END_HEADERS)
        + _frame(DATA, b"\0" + len(message).to_bytes(4, "big") + message)
    )
    await writer.drain()
    return reader, writer


def _frame(kind: int, payload: bytes, *, flags: int = 0, stream: int = 1) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def _header(name: str, value: str) -> bytes:
    """Write a header as HPACK's literal that is not indexed; either part is shorter than 127 bytes."""
    return b"\0" + b"".join(bytes((len(part),)) + part.encode() for part in (name, value))
