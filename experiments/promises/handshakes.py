"""Silent TLS connections to a gateway: they count, end in time, and delay no other client."""

from __future__ import annotations

import asyncio
import ssl
from asyncio import StreamReader, StreamWriter
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import trustme

from experiments.common.bench.report import Bar
from experiments.common.servers.forked import ForkedServer
from experiments.soak.servers import serve_gateway
from specwhisper.rpc.handshakes import HANDSHAKE_S
from specwhisper.rpc.tls import ServerTls
from specwhisper_gateway.config import GatewayConfig

NOWHERE = "127.0.0.1:1"  # no draft server is needed
MAX_ANSWER_S = 1.0
MAX_LATE_S = 2.0  # after the deadline of a handshake
NUM_OVER = 10  # connections beyond --max-connections
PROBE_EVERY_S = 0.1
REQUEST = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Silent:
    """Outcome of connections without a handshake.

    Attributes
    ----------
    longest_s : time until the last of them was closed.
    answers_s : time of each request of another client meanwhile, with its handshake.
    num_over_kept : connections beyond ``--max-connections`` that were not closed at once.
    """

    num_silent: int
    longest_s: float
    answers_s: tuple[float, ...]
    num_over_kept: int


async def measure_handshakes(num_silent: int, folder: Path) -> Silent:
    """Open so many connections without a word, and ask for little beside them; then one too many."""
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    certificate, key = folder / "server.pem", folder / "key.pem"
    issued.cert_chain_pems[0].write_to_path(certificate)
    issued.private_key_pem.write_to_path(key)
    context = ssl.create_default_context()
    authority.configure_trust(context)
    most = num_silent + NUM_OVER
    tls = ServerTls(certificate, key)
    gateway = ForkedServer(
        serve_gateway, GatewayConfig(server=NOWHERE, port=0, tls=tls, max_connections=most)
    )
    try:
        address = await gateway.ready()
        await _answer_s(address, context)  # all is loaded
        began_s = monotonic()
        ending = asyncio.gather(*[_ended_s(*await _opened(address)) for _ in range(num_silent)])
        answers_s = []
        while not ending.done():
            answers_s.append(await _answer_s(address, context))
            await asyncio.sleep(PROBE_EVERY_S)
        longest_s = max(await ending) - began_s
        num_over_kept = await _num_over_kept(address, most)
        return Silent(num_silent, longest_s, tuple(answers_s), num_over_kept)
    finally:
        await gateway.kill()


def bars(silent: Silent) -> list[Bar]:
    """Return the bars."""
    return [
        Bar(
            f"{silent.num_silent} silent TLS handshakes: until the last is cut, s",
            silent.longest_s,
            HANDSHAKE_S + MAX_LATE_S,
            f"{silent.longest_s:.2f}",
        ),
        Bar(
            f"a client's GET over TLS beside {silent.num_silent} silent handshakes, s",
            max(silent.answers_s),
            MAX_ANSWER_S,
            f"{max(silent.answers_s):.3f} at most of {len(silent.answers_s)}",
        ),
        Bar(
            "silent handshakes beyond --max-connections that were not cut at once",
            silent.num_over_kept,
            1,
            f"{silent.num_over_kept} of {NUM_OVER}",
        ),
    ]


async def _num_over_kept(address: str, most: int) -> int:
    """Open more connections than there may be; count those kept beyond that number."""
    ending = [asyncio.create_task(_ended_s(*await _opened(address))) for _ in range(most + NUM_OVER)]
    done, kept = await asyncio.wait(ending, timeout=HANDSHAKE_S / 2)
    for task in kept:
        task.cancel()
    await asyncio.gather(*ending, return_exceptions=True)
    return NUM_OVER - len(done)


async def _opened(address: str, **encryption: object) -> tuple[StreamReader, StreamWriter]:
    host, _, port = address.rpartition(":")
    return await asyncio.open_connection(host, int(port), **encryption)  # type: ignore[arg-type]


async def _ended_s(reader: StreamReader, writer: StreamWriter) -> float:
    """Wait until the server cuts a connection, and return when that was."""
    try:
        await reader.read()
    except ConnectionError:
        pass
    finally:
        writer.transport.abort()
    return monotonic()


async def _answer_s(address: str, context: ssl.SSLContext) -> float:
    """Ask for little over a new connection; return how long that took."""
    began_s = monotonic()
    reader, writer = await _opened(address, ssl=context, server_hostname="localhost")
    try:
        writer.write(REQUEST)
        await reader.readuntil(b'"ok"}')
    finally:
        writer.transport.abort()
    return monotonic() - began_s
