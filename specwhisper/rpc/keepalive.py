"""How a peer that has vanished without a word is noticed: by HTTP/2's pings, which nobody answers."""

from __future__ import annotations

EVERY_S = 20.0  # servers of ours permit as many as one in ten seconds
WITHIN_S = 10.0


def keepalive(every_s: float = EVERY_S, within_s: float = WITHIN_S) -> list[tuple[str, int]]:
    """Give gRPC's options, of a channel or a server, under which a dead connection ends.

    Parameters
    ----------
    every_s : seconds without a byte from the peer, until it is asked.
    within_s : seconds that it has for its answer.
    """
    return [
        ("grpc.keepalive_time_ms", round(every_s * 1_000)),
        ("grpc.keepalive_timeout_ms", round(within_s * 1_000)),
        # Without it gRPC 1.85 waits for a minute, whatever the line above says.
        ("grpc.http2.ping_timeout_ms", round(within_s * 1_000)),
        ("grpc.http2.max_pings_without_data", 0),  # a stream on which nothing is said is kept alive as well
    ]
