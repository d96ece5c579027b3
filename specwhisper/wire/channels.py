"""Client ends of the connections between client, draft server and target server."""

from __future__ import annotations

import grpc.aio

from specwhisper.wire.addresses import is_loopback, split_address

MAX_REPLY_BYTES = 8 * 1024 * 1024  # a vocabulary of 52,000 tokens takes 0.6 MB, an hour's transcript less


def open_channel(address: str, max_message_bytes: int = MAX_REPLY_BYTES) -> grpc.aio.Channel:
    """Open a channel to ``HOST:PORT``; ``max_message_bytes`` bounds what it receives.

    It connects on first use and again after a loss. What it sends is bounded by the server, whose refusal
    names the limit. Repeating a call is up to the caller, who knows what was committed.
    """
    host, _ = split_address(address)
    options: list[tuple[str, int]] = [
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.keepalive_time_ms", 20_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.http2.max_pings_without_data", 0),  # a silent stream is kept alive as well
        ("grpc.enable_retries", 0),
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.max_reconnect_backoff_ms", 3_000),
        ("grpc.use_local_subchannel_pool", 1),  # no shared backoff with another channel to the same address
    ]
    if is_loopback(host):
        options.append(("grpc.enable_http_proxy", 0))
    return grpc.aio.insecure_channel(address, options=options)
