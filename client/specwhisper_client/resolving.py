"""Look up the addresses of draft servers: by DNS, or from a locator."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from time import monotonic
from typing import Any, NamedTuple

import grpc.aio

from specwhisper.errors import InvalidRequest, SpecWhisperError, TargetUnavailable
from specwhisper.rpc.addresses import is_address, is_loopback, join_address, split_address
from specwhisper.rpc.channels import Credentials, open_channel
from specwhisper.validated import option
from specwhisper.wire.status import error_from_rpc
from specwhisper.wire.v1 import discovery_pb2 as pb
from specwhisper.wire.v1.discovery_pb2_grpc import DiscoveryStub

DNS = "dns:///"
LOCATOR = "locator:///"
SERVERS = (
    "Addresses of draft servers, or locator:///HOST:PORT of their locator; sessions are spread over all."
)
REFRESH_S = 5.0  # age at which known addresses are looked up again
WAIT_S = 1.0  # longest time that a session waits for a look-up; then it uses the known addresses
LOCATOR_DEADLINE_S = 5.0

Resolve = Callable[[], Awaitable[list[str]]]


class Name(NamedTuple):
    """A name that stands for one or several draft servers, or for a locator that lists their addresses."""

    address: str  # HOST:PORT
    is_locator: bool = False


def read_names(text: str) -> list[Name]:
    """Read ``[dns:///|locator:///]HOST:PORT``, or several with commas between.

    Raises :class:`InvalidRequest` for anything else.
    """
    if not isinstance(text, str):
        raise InvalidRequest(f"server is {text}: it must be text, as '127.0.0.1:50051'.")
    names = []
    for word in (part.strip() for part in text.split(",")):
        is_locator = word.startswith(LOCATOR)
        address = word.removeprefix(LOCATOR if is_locator else DNS)
        split_address(address)
        names.append(Name(address, is_locator))
    return list(dict.fromkeys(names))


def servers_option(default: str | None, help: str, **about: Any) -> Any:
    return option(default, help, "HOST:PORT,...", read=lambda text: read_names(text) and text, **about)


def resolver(name: Name, credentials: Credentials) -> Resolve | None:
    """Return the function that looks up a name's addresses; ``None`` if gRPC does.

    gRPC resolves addresses, ``localhost``, and names that are reached through an HTTP proxy.
    """
    host, port = split_address(name.address)
    if name.is_locator:
        return partial(list_draft_servers, name.address, credentials)
    if is_address(host) or is_loopback(host) or _has_proxy(host):
        return None
    return partial(look_up, host, port)


async def look_up(host: str, port: int) -> list[str]:
    """Return a host's addresses by DNS, as ``HOST:PORT``, the preferred ones first."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(join_address(str(address[0]), port) for *_, address in found))


async def list_draft_servers(address: str, credentials: Credentials) -> list[str]:
    """Return the addresses of the draft servers that a locator knows."""
    async with open_channel(address, credentials) as channel:
        try:
            reply = await DiscoveryStub(channel).ListServers(
                pb.ListServersRequest(), timeout=LOCATOR_DEADLINE_S
            )
        except grpc.aio.AioRpcError as error:
            raise error_from_rpc(error, address) from error
    if not reply.addresses:
        raise TargetUnavailable(f"The locator at {address} knows no draft server; does one run?")
    for each in reply.addresses:
        split_address(each)
    return list(reply.addresses)


class Resolution:
    """The addresses of one name, looked up again when they are old.

    Attributes
    ----------
    addresses : the known ones.
    error : why the last look-up failed; ``None`` if it succeeded.
    """

    def __init__(self, name: Name, credentials: Credentials) -> None:
        self.name = name
        self._resolve = resolver(name, credentials)
        self.addresses: Sequence[str] = () if self._resolve else (name.address,)
        self.error: SpecWhisperError | None = None
        self._fresh_until_s = 0.0
        self._task: asyncio.Task[None] | None = None

    def expire(self) -> None:
        """Look the addresses up again before the next session."""
        self._fresh_until_s = 0.0

    async def update(self) -> None:
        """Look old addresses up again; wait for the result, but only briefly if some are known."""
        if self._resolve is None or monotonic() < self._fresh_until_s:
            return
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look_up(self._resolve))
        await asyncio.wait((self._task,), timeout=WAIT_S if self.addresses else None)

    async def _look_up(self, resolve: Resolve) -> None:
        try:
            self.addresses, self.error = await resolve(), None
        except SpecWhisperError as error:
            self.error = error
        except (OSError, UnicodeError) as error:  # the latter: a name that DNS cannot encode
            reason = getattr(error, "strerror", None) or error
            self.error = TargetUnavailable(
                f"The name in {self.name.address} cannot be resolved ({reason}); check it."
            )
        self._fresh_until_s = monotonic() + REFRESH_S

    async def close(self) -> None:
        """Cancel a look-up that is still running."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


def _has_proxy(host: str) -> bool:
    """Return whether the environment names a proxy through which gRPC reaches a host."""
    if not any(os.environ.get(variable) for variable in ("grpc_proxy", "https_proxy", "http_proxy")):
        return False
    exceptions = os.environ.get("no_grpc_proxy") or os.environ.get("no_proxy") or ""
    return not any(host.endswith(each.strip()) for each in exceptions.split(",") if each.strip())
