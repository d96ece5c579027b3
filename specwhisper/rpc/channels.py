"""Client ends of the connections between client, draft server and target server."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

import grpc
import grpc.aio

from specwhisper.errors import UnsafeBind
from specwhisper.observe import tracing
from specwhisper.observe.current_call import REQUEST_ID, current_request_id
from specwhisper.rpc.addresses import is_loopback, split_address
from specwhisper.rpc.tls import ClientTls, pem_option
from specwhisper.rpc.tokens import read_token
from specwhisper.settings.setting import SECURITY, part
from specwhisper.validated import naming, option, switch, text

PING_AFTER_S = 20.0  # our servers permit a ping every ten seconds
PING_TIMEOUT_S = 10.0
MAX_REPLY_BYTES = 8 * 1024 * 1024  # a vocabulary of 52,000 tokens takes 0.6 MB, an hour's transcript less


@dataclass(frozen=True, slots=True)
class Credentials:
    """Encryption and token for calls to a server."""

    tls: ClientTls | None = None
    token: str | None = field(default=None, repr=False)


OPEN = Credentials()
GRPCIO = "1.85"  # the last release whose private API was tried: tests/rpc/target/test_streams.py
# How grpcio words a write that Core did not begin. No status follows such a write. If Core did begin the
# write, it failed because the stream has ended, and the status comes after the messages still to be read.
WRITE_NOT_BEGUN = "grpc_call_start_batch"
CALLABLES = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")
Call = TypeVar("Call")


@dataclass(frozen=True, kw_only=True)
class ClientFlags:
    """The flags of a caller's credentials."""

    use_ssl: bool = switch(False, "TLS on connections to {peer}.", panel=SECURITY)
    root_cert: Path | None = pem_option(
        "CA bundle (PEM) used to verify the certificate of {peer}; default: gRPC's own.", "use_ssl"
    )
    client_cert: Path | None = pem_option("Client certificate (PEM) for {peer}.", "use_ssl")
    client_key: Path | None = pem_option("Private key (PEM) of the client certificate.", "use_ssl")
    server_name: str | None = text(
        None,
        "Host name in the certificate of {peer}; default: the host of the address.",
        "NAME",
        needs=("use_ssl",),
        panel=SECURITY,
    )
    token_file: Path | None = option(
        None,
        "File with the token for {peer}; default: the token in ${variable}.",
        "FILE",
        panel=SECURITY,
    )

    def credentials(self, variable: str) -> Credentials:
        """Return the credentials; without a file, the environment's ``variable`` may hold the token."""
        certificate = (self.root_cert, self.client_cert, self.client_key, self.server_name)
        with naming("token_file") if self.token_file is not None else nullcontext():
            token = read_token(self.token_file, variable)
        return Credentials(ClientTls(*certificate) if self.use_ssl else None, token)


def credentials_part(peer: str, prefix: str, variable: str, **about: Any) -> Any:
    """Declare a server's credentials for its connections to ``peer``."""
    then = partial(ClientFlags.credentials, variable=variable)
    words = {"peer": peer, "variable": variable}
    return part(ClientFlags, OPEN, then=then, prefix=prefix, words=words, **about)


def keepalive(after_s: float = PING_AFTER_S, timeout_s: float = PING_TIMEOUT_S) -> list[tuple[str, int]]:
    """Return gRPC's options, of a channel or a server, that end a dead connection.

    After ``after_s`` seconds without a byte the peer is pinged. A ping without an answer within
    ``timeout_s`` seconds ends the connection.
    """
    return [
        ("grpc.keepalive_time_ms", round(after_s * 1_000)),
        ("grpc.keepalive_timeout_ms", round(timeout_s * 1_000)),
        # Without it gRPC 1.85 waits for a minute, whatever the line above says.
        ("grpc.http2.ping_timeout_ms", round(timeout_s * 1_000)),
        ("grpc.http2.max_pings_without_data", 0),  # pings also keep streams without messages alive
    ]


def check_credentials(address: str, credentials: Credentials) -> None:
    """Raise :class:`UnsafeBind` where a token would cross a network unencrypted."""
    host, _ = split_address(address)
    if credentials.token is not None and credentials.tls is None and not is_loopback(host):
        raise UnsafeBind(
            f"The token for {address} would cross the network unencrypted, where others can read it: "
            "encrypt the connection."
        )


def open_channel(
    address: str,
    credentials: Credentials = OPEN,
    *,
    resolved: str | None = None,
) -> grpc.aio.Channel:
    """Open a channel to ``HOST:PORT``, which receives messages of up to :data:`MAX_REPLY_BYTES`.

    It connects on first use and again after a loss. What it sends is bounded by the server, whose refusal
    names the limit. Repeating a call is up to the caller, who knows what was committed.

    ``resolved`` is the one of the host's addresses to connect to. The server's certificate is still verified
    against the host, and each channel has a connection of its own.
    """
    check_credentials(address, credentials)
    host, _ = split_address(address)
    options: list[tuple[str, int | str]] = [
        *keepalive(),
        ("grpc.max_receive_message_length", MAX_REPLY_BYTES),
        ("grpc.max_send_message_length", -1),
        ("grpc.enable_retries", 0),
        # Its pings wait for a long answer on a slow link, such as a vocabulary, and end the connection.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.max_reconnect_backoff_ms", 500),
        ("grpc.use_local_subchannel_pool", 1),  # no shared backoff with another channel to the same address
    ]
    if resolved is not None:
        options.append(("grpc.default_authority", address))
    if is_loopback(host) or resolved is not None:
        options.append(("grpc.enable_http_proxy", 0))
    if credentials.tls is not None and credentials.tls.server_name is not None:
        options.append(("grpc.ssl_target_name_override", credentials.tls.server_name))
    if credentials.tls is None:
        channel = grpc.aio.insecure_channel(resolved or address, options=options)
    else:
        tls = credentials.tls.credentials()
        channel = grpc.aio.secure_channel(resolved or address, tls, options=options)
    return _AuthenticatedChannel(channel, address, credentials.token)


def with_true_status(call: Call) -> Call:
    """Return a streaming call that always ends with the server's status; other calls stay as they are.

    When a server ends a stream, the client's next write fails, and grpc.aio then reports INTERNAL instead of
    the status that the server sent, even OK (https://github.com/grpc/grpc/issues/36066). A target ends its
    stream while candidates are still in flight, and may refuse a session in the middle of its audio.

    Read in one task and write in another: a write that failed waits for the status.
    """
    if (core := getattr(call, "_cython_call", None)) is not None:
        call._cython_call = _CoreCall(core)  # type: ignore[attr-defined]
    return call


class _CoreCall:
    """A call's core object, which no write ends that Core has begun."""

    def __init__(self, core: Any) -> None:
        self._core = core

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)

    def set_internal_error(self, details: str) -> None:
        if WRITE_NOT_BEGUN in details:
            self._core.set_internal_error(details)


class _AuthenticatedChannel:
    """A channel whose calls carry the token, the request id and the trace context.

    gRPC's own call credentials require encryption on loopback too, and its interceptors wrap the calls.
    """

    def __init__(self, channel: grpc.aio.Channel, address: str, token: str | None) -> None:
        self._channel = channel
        self._address = address
        self._credentials = [("authorization", f"Bearer {token}")] if token is not None else []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()

    def __getattr__(self, name: str) -> Any:
        own = getattr(self._channel, name)
        return partial(self._with_metadata, own) if name in CALLABLES else own

    def _with_metadata(
        self, make_callable: Callable[..., Any], method: str, *args: Any, **kwargs: Any
    ) -> Any:
        make = make_callable(method, *args, **kwargs)

        def call(*args: Any, metadata: Iterable[tuple[str, str | bytes]] = (), **kwargs: Any) -> Any:
            sent = [*self._credentials, *metadata]
            if not any(key == REQUEST_ID for key, _ in sent):
                sent.append((REQUEST_ID, current_request_id()))
            follow = tracing.start_call_span(method, self._address, sent)
            started = make(*args, metadata=tuple(sent), **kwargs)
            if follow is not None:
                follow(started)
            return started

        return call
